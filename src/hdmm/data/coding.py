"""Rows as codes: attributes that were merged are read from the columns of their parts."""

from __future__ import annotations

from collections.abc import Callable

from hdmm.domain import Attribute, Merged, joined
from hdmm.values import Codes


def parts(attribute: Attribute) -> tuple[Attribute, ...]:
    """The attributes that are columns: the attribute itself, or what it was merged from."""
    if isinstance(attribute.values, Merged):
        return tuple(inner for part in attribute.values.parts for inner in parts(part))
    return (attribute,)


def drops(attribute: Attribute) -> bool:
    """Whether some value drops the row."""
    return any(part.values.outside == "drop" for part in parts(attribute))


def codes(attribute: Attribute, code: Callable[[Attribute], Codes]) -> Codes:
    """The codes of an attribute, given those of its parts; −1 where the row is dropped."""
    if isinstance(attribute.values, Merged):
        inner = attribute.values.parts
        return joined(inner, [codes(part, code) for part in inner])
    return code(attribute)
