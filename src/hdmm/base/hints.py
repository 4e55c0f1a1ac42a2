"""What a user may have meant by a name or a number, and a value of theirs as messages show it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_MOST_SHOWN = 80
_COMMA = re.compile(r"\s*([+-]?[0-9]*),([0-9]+)\s*")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that suggests the closest known name, with a leading space; an empty text if no name is close.

    >>> did_you_mean("agee", ["sex", "age"]), did_you_mean("income", ["sex", "age"])
    (" Did you mean 'age'?", '')
    """
    listed = list(known)
    same = [each for each in listed if each.casefold() == name.casefold()]
    close = same or difflib.get_close_matches(name, listed, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def brief(value: object) -> str:
    """A value as a message shows it: on one line, and its beginning only if it is long.

    >>> brief("0,1"), brief(list(range(99)))
    ("'0,1'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1… (list)')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN // 2]}… ({type(value).__name__})"


def first_of(names: Sequence[str], most: int = 20, joint: str = ", ") -> str:
    """Names as a message lists them: the first ones, and how many more there are.

    >>> first_of(["a", "b", "c"], 2), first_of(["a", "b"])
    ('a, b and 1 more', 'a, b')
    """
    more = len(names) - most
    return joint.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def decimal_point(text: object) -> str:
    """A sentence for a number that was written with a comma, with a leading space; an empty text for anything else.

    >>> decimal_point("0,1"), decimal_point("0.1"), decimal_point("1,000,000")
    (' Write 0.1, with a point in place of the comma.', '', '')
    >>> decimal_point("1,000")
    ' Write 1000, or 1.000, with a point in place of the comma.'
    """
    found = _COMMA.fullmatch(text) if isinstance(text, str) and len(text) < 64 else None
    if found is None:
        return ""
    whole, part = found.groups()
    thousands = f"{whole}{part}, or " if len(part) == 3 and whole.strip("+-0") else ""
    return f" Write {thousands}{whole or 0}.{part}, with a point in place of the comma."
