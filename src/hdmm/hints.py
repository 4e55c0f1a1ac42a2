"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that suggests the closest known name, with a leading space; an empty text if no name is close.

    >>> did_you_mean("agee", ["sex", "age"]), did_you_mean("income", ["sex", "age"])
    (" Did you mean 'age'?", '')
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
