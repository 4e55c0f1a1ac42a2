"""Rows as codes: attributes that were merged are read from the columns of their parts."""

from __future__ import annotations

from collections.abc import Callable

from hdmm.describe.attribute import Attribute, joined
from hdmm.describe.entries import Codes


def drops(attribute: Attribute) -> bool:
    """Whether some value drops the row."""
    return any(part.values.outside == "drop" for part in attribute.parts)


def codes(attribute: Attribute, code: Callable[[Attribute], Codes]) -> Codes:
    """The codes of an attribute, given those of its parts; −1 if the row is dropped."""
    return joined(attribute.parts, [code(part) for part in attribute.parts])
