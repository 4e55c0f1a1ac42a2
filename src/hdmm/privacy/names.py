"""Names that could be confused with one another, because they look alike or differ by a typing error.

A budget belongs to a name, so a second spelling of it is a second budget for the same people. Names are compared by
their appearance (after the skeletons of Unicode's UTS #39, with a table of the letters that are most often confused)
and by the number of keystrokes in which they differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

# Capitals are mapped before case is folded, because they resemble other letters than their lower-case forms do.
_CAPITALS: Final = str.maketrans(
    "АВЕЅІЈКМНОРСТУХҮԚԜҺ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳ" + "ՕՍՏԼՀԱ" + "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏒᏕᏙᏟᏢᏦᏞᏴ",
    "abesijkmhopctyxyqwh" + "abezhikmnoptyxcj" + "ousl" + "hu" + "drtajewmhgzrsvcpklb",
)
_SMALL_LETTERS: Final = str.maketrans(
    "авеѕіјкмнорстухүԛԝһԁӏѵгпиьё" + "αβγειϊκνορστυχωϲ" + "օսոհզցյռ" + "ɑɡıłøđɩʏᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡᴢ",
    "abesijkmhopctyxyqwhdlvrnube" + "abyeiikvopotuxwc" + "ounhqgjn" + "agilodiyabcdeghijklmnoprtuvwz",
)
_BLANK_LETTERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))  # invisible letters of Hangul
_LOOK_ALIKE: Final = str.maketrans("01i|", "olll")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_DIGITS: Final = re.compile(r"[0-9]+")


def near_names(name: str, others: Iterable[str]) -> tuple[str, ...]:
    """Those of the other names that may be another spelling of this one.

    Numbers and single letters distinguish datasets on purpose: people-2025 and people-2026 are two datasets.

    >>> near_names("People_2026", ["people-2026", "people-2025", "firms-2026"])
    ('people-2026',)
    """
    return tuple(other for other in others if _near(name, other))


def shown_name(name: str) -> str:
    """A name in quotes, followed by its escapes if it is not ASCII, so that look-alike letters can be distinguished.

    >>> shown_name("people"), shown_name("реople")
    ("'people'", "'реople' ('\\\\u0440\\\\u0435ople')")
    """
    return repr(name) if name.isascii() else f"{name!r} ({name!a})"


def _near(one: str, two: str) -> bool:
    if _folded(one) == _folded(two) or _skeleton(one) == _skeleton(two):
        return True
    (counted, letters), (other_counted, other_letters) = _parts(one), _parts(two)
    length = min(len(letters), len(other_letters))
    slips = 0 if length < 4 else 1 if length < 8 else 2  # in short names, one different letter makes a different word
    return counted == other_counted and _distance(letters, other_letters, slips) <= slips


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _plain(name: str) -> str:
    """The name with letters that look Latin as lower-case Latin letters, no accents, and one space per separator."""
    decomposed = unicodedata.normalize("NFKD", name).translate(_BLANK_LETTERS)
    letters = "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))
    digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in letters)
    small = digits.translate(_CAPITALS).casefold().translate(_SMALL_LETTERS)
    return _SEPARATORS.sub(" ", small.replace("|", "l")).strip()


def _skeleton(name: str) -> str:
    """The appearance of a name: letters and digits of one shape are equal; spaces count only between two numbers."""
    text = re.sub(r"(?<![0-9]) | (?![0-9])", "", _plain(name))
    return text.translate(_LOOK_ALIKE).replace("rn", "m").replace("vv", "w")


def _parts(name: str) -> tuple[list[str], str]:
    """The parts that number datasets (numbers and single letters), and all other letters without spaces."""
    words = _DIGITS.sub(lambda number: f" {number[0].lstrip('0') or '0'} ", _plain(name)).split()
    counted = [word for word in words if word.isdecimal() or len(word) == 1]
    return counted, "".join(word for word in words if not (word.isdecimal() or len(word) == 1))


def _distance(one: str, two: str, most: int) -> int:
    """The number of insertions, deletions, substitutions and swaps of neighbours between two texts.

    If it is above `most`, any number above `most` may be returned.
    """
    if abs(len(one) - len(two)) > most:
        return most + 1
    before, last = [0] * (len(two) + 1), list(range(len(two) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(two, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == two[j - 2] and b == one[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
