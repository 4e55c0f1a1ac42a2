"""Variables of a specification: ${MONTH} in its texts, given where it is read, as by --set MONTH=2026-01."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, cast

from hdmm.base.hints import did_you_mean
from hdmm.io.strict_records import MisfitError, Place

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USE = re.compile(r"(\$?)\$\{([^}]*)\}")  # $${…} stands for the characters ${…}


def substituted(content: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """The content of a file with ${NAME} replaced in all texts; MisfitError if a name has no value or is not used.

    >>> substituted({"title": "People in ${MONTH}"}, {"MONTH": "May"})
    {'title': 'People in May'}
    """
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise MisfitError(f"{name!r} cannot name a variable. Use letters, digits and _, as in MONTH=2026-01.")
        if not isinstance(value, str) or not value.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MisfitError(f"The value of the variable {name} is not one printable line of text. Give another.")
    used: set[str] = set()
    found = cast(dict[str, Any], _replaced(content, (), variables, used))
    for name in variables.keys() - used:
        raise MisfitError(
            f"The variable {name} has a value, but ${{{name}}} is nowhere in the specification."
            f"{did_you_mean(name, sorted(used | set(_names(content))))} Leave it out, or use it."
        )
    return found


def _replaced(value: object, place: Place, variables: Mapping[str, str], used: set[str]) -> object:
    if isinstance(value, dict):
        held = cast(dict[str, object], value)
        return {key: _replaced(each, (*place, key), variables, used) for key, each in held.items()}
    if isinstance(value, list):
        items = cast(list[object], value)
        return [_replaced(each, (*place, k), variables, used) for k, each in enumerate(items)]
    if not isinstance(value, str):
        return value

    def text(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match.group()[1:]
        if name not in variables:
            raise MisfitError(
                f"${{{name[:60]}}} has no value. Give it one, as in --set {name[:60]}=2026-01; $${{…}} stands for the "
                "characters themselves.",
                place,
            )
        used.add(name)
        return variables[name]

    return _USE.sub(text, value)


def used_in(value: object) -> frozenset[str]:
    """The names of the variables that a text, list or table uses, as it is written.

    >>> sorted(used_in({"source": "postgres://me:${PASSWORD}@${HOST}/$${x}"}))
    ['HOST', 'PASSWORD']
    """
    return frozenset(_names(value))


def without_variables(text: str) -> str:
    """A text as it is written, with nothing in the place of its variables."""
    return _USE.sub("", text)


def _names(value: object) -> Generator[str]:
    """The names that are used anywhere in a value."""
    if isinstance(value, dict):
        for each in cast(dict[str, object], value).values():
            yield from _names(each)
    elif isinstance(value, list):
        for each in cast(list[object], value):
            yield from _names(each)
    elif isinstance(value, str):
        yield from (name for escaped, name in _USE.findall(value) if not escaped)
