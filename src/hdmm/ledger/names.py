"""Names that could be taken for one another: by the eye, or by a slip of the hand.

A budget belongs to a name, so a second spelling of it is a second budget for the same people. Names are compared by
what they look like (after the skeletons of Unicode's UTS #39, with a table of the letters that are commonest in such
mistakes), and by how few keystrokes lie between them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

# Capitals are mapped before case is folded, because they look like other letters than their small forms do.
_CAPITALS: Final = str.maketrans(
    "АВЕЅІЈКМНОРСТУХҮԚԜҺ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳ" + "ՕՍՏԼՀԱ" + "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏒᏕᏙᏟᏢᏦᏞᏴ",
    "abesijkmhopctyxyqwh" + "abezhikmnoptyxcj" + "ousl" + "hu" + "drtajewmhgzrsvcpklb",
)
_SMALL_LETTERS: Final = str.maketrans(
    "авеѕіјкмнорстухүԛԝһԁӏѵгпиьё" + "αβγειϊκνορστυχωϲ" + "օսոհզցյռ" + "ɑɡıłøđɩʏᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡᴢ",
    "abesijkmhopctyxyqwhdlvrnube" + "abyeiikvopotuxwc" + "ounhqgjn" + "agilodiyabcdeghijklmnoprtuvwz",
)
_BLANK_LETTERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))  # letters of Hangul that show nothing
_LOOK_ALIKE: Final = str.maketrans("01i|", "olll")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_DIGITS: Final = re.compile(r"[0-9]+")


def near_names(name: str, others: Iterable[str]) -> tuple[str, ...]:
    """Those of the other names that may be this one, written otherwise.

    Numbers, and letters that stand alone, tell datasets apart on purpose: people-2025 and people-2026 are two.

    >>> near_names("People_2026", ["people-2026", "people-2025", "firms-2026"])
    ('people-2026',)
    """
    return tuple(other for other in others if _near(name, other))


def told_name(name: str) -> str:
    """A name in quotes, and letter by letter where it holds others than ASCII's: look-alikes are told apart.

    >>> told_name("people"), told_name("реople")
    ("'people'", "'реople' ('\\\\u0440\\\\u0435ople')")
    """
    return repr(name) if name.isascii() else f"{name!r} ({name!a})"


def _near(one: str, two: str) -> bool:
    if _folded(one) == _folded(two) or _skeleton(one) == _skeleton(two):
        return True
    (counted, letters), (other_counted, other_letters) = _parts(one), _parts(two)
    length = min(len(letters), len(other_letters))
    slips = 0 if length < 4 else 1 if length < 8 else 2  # in short names one letter makes another word
    return counted == other_counted and _distance(letters, other_letters, slips) <= slips


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _plain(name: str) -> str:
    """The name in small Latin letters where it looks like them, without accents, one space for any separators."""
    decomposed = unicodedata.normalize("NFKD", name).translate(_BLANK_LETTERS)
    letters = "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))
    digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in letters)
    small = digits.translate(_CAPITALS).casefold().translate(_SMALL_LETTERS)
    return _SEPARATORS.sub(" ", small.replace("|", "l")).strip()


def _skeleton(name: str) -> str:
    """What the eye sees: letters and digits of one shape are one, and spaces count only between two numbers."""
    text = re.sub(r"(?<![0-9]) | (?![0-9])", "", _plain(name))
    return text.translate(_LOOK_ALIKE).replace("rn", "m").replace("vv", "w")


def _parts(name: str) -> tuple[list[str], str]:
    """What counts or lists datasets (numbers, letters that stand alone), and all other letters, spaces left out."""
    words = _DIGITS.sub(lambda number: f" {number[0].lstrip('0') or '0'} ", _plain(name)).split()
    counted = [word for word in words if word.isdecimal() or len(word) == 1]
    return counted, "".join(word for word in words if not (word.isdecimal() or len(word) == 1))


def _distance(one: str, two: str, most: int) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours from one text to the other; beyond `most`, more."""
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
