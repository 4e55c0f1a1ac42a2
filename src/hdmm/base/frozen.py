"""Fields of frozen values that are checked or computed before they are set."""

from __future__ import annotations


def assign(value: object, **fields: object) -> None:
    """Set the fields of a frozen dataclass in its constructor, which is the only place where this is right."""
    for name, field in fields.items():
        object.__setattr__(value, name, field)
