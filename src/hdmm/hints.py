"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

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
