"""Fields of a TOML file read with their types; every error says the file, the line and the key."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, cast, final, overload

from hdmm.exceptions import HdmmError, SpecError, SqlError
from hdmm.hints import did_you_mean
from hdmm.spec.lines import Lines, Place

Toml: TypeAlias = object  # what Python's parser gives: texts, numbers, booleans, dates, lists and dictionaries
Choice = TypeVar("Choice", bound=str)

_MOST_SHOWN = 60
_NAMES = {bool: "true or false", str: "a text", int: "a whole number", list: "a list", dict: "a table"}


@final
@dataclass(frozen=True, slots=True)
class Document:
    """A file that was parsed; makes the errors about its parts."""

    file: str
    lines: Lines

    def error(self, place: Place, message: str) -> SpecError:
        """An error about the value at a place."""
        return SpecError(message, file=self.file, line=self.lines.line(place), key=written(place))

    @contextmanager
    def telling(self, place: Place) -> Generator[None]:
        """What goes wrong inside is about the value at a place."""
        try:
            yield
        except SpecError:
            raise
        except SqlError as wrong:
            line = self.lines.begin(place) + wrong.line - 1
            raise SpecError(str(wrong), file=self.file, line=line, key=written(place)) from None
        except HdmmError as wrong:
            raise self.error(place, str(wrong)) from None


def written(place: Place) -> str:
    """A place as it is written in messages; items of lists count from 1, as lines do.

    >>> written(("table", 0, "sql"))
    'table[1].sql'
    """
    parts = [f"[{part + 1}]" if isinstance(part, int) else f".{part[:_MOST_SHOWN]}" for part in place]
    return "".join(parts).removeprefix(".")


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """One table of a file: its fields, each of a type, and no others than `known`."""

    document: Document
    place: Place
    content: Mapping[str, Toml]

    @classmethod
    def of(cls, document: Document, place: Place, value: Toml) -> Fields:
        """The fields of a value that must be a table."""
        if not isinstance(value, dict):
            raise document.error(place, f"This is {_kind(value)}; a table is expected, such as [{written(place)}].")
        return cls(document, place, cast(dict[str, Toml], value))

    def only(self, *known: str) -> Fields:
        """The same fields, where no others are there."""
        for key in self.content:
            if key not in known:
                hint = did_you_mean(key, known)
                raise self.error(key, f"This key is unknown; keys: {', '.join(known)}.{hint}")
        return self

    def error(self, key: str, message: str) -> SpecError:
        """An error about a field."""
        return self.document.error((*self.place, key), message)

    def telling(self, key: str) -> AbstractContextManager[None]:
        """What goes wrong inside is about a field."""
        return self.document.telling((*self.place, key))

    def has(self, key: str) -> bool:
        """Whether a field is there."""
        return key in self.content

    def table(self, key: str) -> Fields:
        """A table in this one; empty where it is not there."""
        return Fields.of(self.document, (*self.place, key), self.content.get(key, {}))

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: str) -> str: ...
    @overload
    def text(self, key: str, default: None) -> str | None: ...
    def text(self, key: str, default: str | Literal[False] | None = False) -> str | None:
        """A text that is not empty; one that must be there where no default is given."""
        if key not in self.content:
            if default is False:
                raise self.missing(key, "a text")
            return default
        value = self.content[key]
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        if not value.strip() or "\0" in value:
            raise self.error(key, "The text is empty or holds a zero byte. Write something.")
        return value

    @overload
    def whole(self, key: str, default: int, *, least: int, most: int) -> int: ...
    @overload
    def whole(self, key: str, default: None, *, least: int, most: int) -> int | None: ...
    def whole(self, key: str, default: int | None, *, least: int, most: int) -> int | None:
        """A whole number between two bounds."""
        if key not in self.content:
            return default
        value = self.content[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number")
        if not least <= value <= most:
            raise self.error(key, f"This is {_shown(value)}; a whole number from {least} to {most} is expected.")
        return value

    def number(self, key: str, default: float, *, above: float, below: float) -> float:
        """A finite number strictly between two bounds."""
        if key not in self.content:
            return default
        value = self.content[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        if not above < value < below:
            limit = f"above {above:g}" if math.isinf(below) else f"between {above:g} and {below:g}"
            raise self.error(key, f"This is {_shown(value)}; a number {limit} is expected.")
        try:
            return float(value)
        except OverflowError:
            raise self.error(key, "This number is too large.") from None

    def exact(self, key: str) -> str | int | float:
        """A number that must be exact: as a text, or as the shortest decimal that TOML's number prints as."""
        value = self.content[key]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._wrong(key, 'a number, exact in quotes, such as "0.5"')
        return value

    def choice(self, key: str, choices: tuple[Choice, ...]) -> Choice:
        """One of several words; the first where none is given."""
        value = self.content.get(key, choices[0])
        for each in choices:
            if value == each:
                return each
        allowed = ", ".join(f'"{each}"' for each in choices)
        raise self.error(key, f"This is {_shown(value)}; one of {allowed} is expected.")

    def items(self, key: str) -> Iterator[tuple[Place, Toml]]:
        """The items of a list with their places."""
        value = self.content.get(key, [])
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        for i, item in enumerate(cast(list[Toml], value)):
            yield (*self.place, key, i), item

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        found: list[str] = []
        for place, item in self.items(key):
            if not isinstance(item, str) or not item:
                raise self.document.error(place, f"This is {_kind(item)}; a text is expected.")
            found.append(item)
        return found

    def missing(self, key: str, what: str) -> SpecError:
        """An error about a field that must be there."""
        return self.document.error(self.place, f"The key {key!r} is missing: {what}. Add it.")

    def _wrong(self, key: str, expected: str) -> SpecError:
        return self.error(key, f"This is {_kind(self.content[key])}; {expected} is expected.")


def _kind(value: Toml) -> str:
    """What a value is, and the value where it is short."""
    name = next((name for kind, name in _NAMES.items() if type(value) is kind), "a number or a date")
    return f"{name} ({_shown(value)})" if isinstance(value, bool | int | float | str) else name


def _shown(value: Toml) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of many digits"
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
