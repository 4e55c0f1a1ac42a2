"""A parsed TOML file: its records, its variables, and errors that name the file, the line and the key.

Variables are ${MONTH} in texts, given where the file is read, as by --set MONTH=2026-01.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast, final

from hdmm.base.exceptions import HdmmError, SpecError, SqlError
from hdmm.base.hints import decimal_point, did_you_mean
from hdmm.io.strict_records import Hook, MisfitError, Place, convert, written
from hdmm.publication.spec.positions import MOST_DEEP, Lines, TooDeepError

T = TypeVar("T")

MOST_SPEC_BYTES = 2**22
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USE = re.compile(r"(\$?)\$\{([^}]*)\}")  # $${…} stands for the characters ${…}
_AT_LINE = re.compile(r"line ([0-9]+)")
_NUMBER_WITH_COMMA = re.compile(r"=\s*([+-]?[0-9]+,[0-9]+)\s*(?:[,}#]|$)")


@final
@dataclass(frozen=True, slots=True)
class Document:
    """A file that was parsed. It makes the errors about its parts."""

    file: str
    lines: Lines
    content: dict[str, Any]
    written: dict[str, Any]  # the content before variables are replaced

    @classmethod
    def of(cls, data: bytes, file: str, variables: Mapping[str, str]) -> Document:
        """The document that these bytes spell in TOML, with its variables replaced."""

        def refused(message: str, line: int = 1) -> SpecError:
            return SpecError(message, file=file, line=line, key="")

        if len(data) > MOST_SPEC_BYTES:
            raise refused(
                f"The file has more than {MOST_SPEC_BYTES:,} bytes. Give a specification, which is a small text file."
            )
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as wrong:
            raise refused(
                "This is not text in UTF-8. Save the file as UTF-8.", data.count(b"\n", 0, wrong.start) + 1
            ) from None
        try:
            # First, because Python's parser takes time quadratic in the dots of a key and in brackets.
            lines = Lines.of(text)
            content = tomllib.loads(text)
        except TooDeepError as deep:
            raise refused(
                f"A key, list or table is nested more than {MOST_DEEP} deep. Write fewer dots and brackets.", deep.line
            ) from None
        except ValueError as wrong:  # TOMLDecodeError; also numbers of thousands of digits, and invalid dates
            found = _AT_LINE.search(str(wrong))
            line = int(found.group(1)) if found else text.count("\n") + 1
            reason = str(wrong) if isinstance(wrong, tomllib.TOMLDecodeError) else "a number or a date is not valid"
            comma = _NUMBER_WITH_COMMA.search(text.split("\n")[line - 1])
            raise refused(f"This is not TOML: {reason}.{decimal_point(comma and comma[1])}", line) from None
        found = cls(file, lines, content, content)
        try:
            return replace(found, content=substituted(content, variables))
        except MisfitError as wrong:
            raise found.error(wrong.place, str(wrong)) from None

    def record(self, form: type[T], hook: Hook) -> T:
        """The whole file as a record."""
        try:
            return cast(T, convert(self.content, form, hook))
        except MisfitError as wrong:
            raise self.error(wrong.place, str(wrong)) from None

    def error(self, place: Place, message: str) -> SpecError:
        """An error about the value at a place."""
        return SpecError(message, file=self.file, line=self.lines.line(place), key=written(place, first=1))

    @contextmanager
    def locating(self, *place: str | int) -> Generator[None]:
        """Turn errors inside the block into errors about the value at a place."""
        try:
            yield
        except SpecError:
            raise
        except SqlError as wrong:
            line = self.lines.begin(place) + wrong.line - 1
            raise SpecError(str(wrong), file=self.file, line=line, key=written(place, first=1)) from None
        except HdmmError as wrong:
            raise self.error(place, str(wrong)) from None


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


def account_variables(data: bytes, given: Mapping[str, str]) -> dict[str, str]:
    """Values for all variables of a file whose account alone matters: 1 for each that decides nothing about it.

    >>> text = b'source = "${MONTH}.csv"\\n[data]\\ndataset = "${TOWN}"\\n[ledger]\\npath = "budget.db"'
    >>> account_variables(text, {"TOWN": "Ems"})
    {'MONTH': '1', 'TOWN': 'Ems'}
    """
    try:
        content: dict[str, Any] = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except ValueError:
        return dict(given)  # the file is refused when it is read
    about = content.get("data")
    named = about.get("dataset") if isinstance(about, dict) else None
    deciding = used_in([named, content.get("ledger")])
    return {**dict.fromkeys(sorted(used_in(content) - deciding), "1"), **given}


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
