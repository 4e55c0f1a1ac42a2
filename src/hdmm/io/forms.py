"""Forms: how a value is written as JSON and arrays, and read back through the constructors that check it.

A form is a pair of functions. Forms of plain values check types, both ways; forms of lists and records are made from
others, and an error gathers its key path on the way out, so that reading what is well formed costs nothing extra.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar, cast, final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import FileError
from hdmm.io.npy import stored
from hdmm.io.strict_json import Json
from hdmm.matrix import Array

T = TypeVar("T")
Arrays = dict[str, Array]

AGAIN = "The file is damaged or was edited; save it again."
_MOST_TEXT = 500  # of a message that may quote the file
_MOST_SIZE = 2**63  # sizes, positions and axes are below it


class FormError(Exception):
    """What is wrong, and where below the value that is being written or read. Never leaves `hdmm.io`."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path = ""

    def under(self, step: str) -> FormError:
        """The same, seen from one level further up."""
        self.path = step + self.path
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a value is read from besides its JSON: the arrays, and the domains that are known already.

    A domain equal to a known one is that very object, so that comparing the two later is free.
    """

    arrays: Mapping[str, Array]
    domains: list[Domain] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Form(Generic[T]):
    """How values of one type are written (adding to the arrays) and read (raising FormError).

    >>> LABEL.read(True, Source({})), TEXT.write("age", {})
    (True, 'age')
    """

    write: Callable[[T, Arrays], Json]
    read: Callable[[Json, Source], T]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """One class: its attributes with their forms, and what builds it from them (by default, the class).

    `former` is a name under which earlier versions wrote it: such records are read, and not written any more.
    """

    cls: type[T]
    fields: Mapping[str, Form[Any]] = field(default_factory=dict[str, Form[Any]])
    build: Callable[..., T] | None = None
    former: str | None = None

    @property
    def name(self) -> str:
        """What names it in files."""
        return self.former or self.cls.__name__


def record(kind: Kind[T]) -> Form[T]:
    """A value as a JSON object of exactly its fields.

    >>> form = record(Kind(complex, {"real": NUMBER, "imag": NUMBER}))
    >>> form.write(1 + 2j, {}), form.read({"real": 0, "imag": 3}, Source({}))
    ({'real': 1.0, 'imag': 2.0}, 3j)
    """
    return Form(
        lambda value, arrays: _written(kind, value, arrays),
        lambda value, source: _built(kind, as_object(value), source),
    )


def one_of(kinds: Callable[[], Sequence[Kind[Any]]]) -> Form[Any]:
    """A value of any of the kinds, as a record that names its class under "kind"."""

    def write(value: object, arrays: Arrays) -> Json:
        kind = next((kind for kind in kinds() if kind.cls is type(value) and kind.former is None), None)
        if kind is None:
            raise FormError(f"is a {type(value).__name__}, which files do not hold. {_kinds(kinds())}")
        return {"kind": kind.name, **_written(kind, value, arrays)}

    def read(value: Json, source: Source) -> object:
        given = dict(as_object(value))
        name = given.pop("kind", None)
        kind = next((kind for kind in kinds() if kind.name == name), None)
        if kind is None:
            raise FormError(f"has the kind {shown(name)}. {_kinds(kinds())}")
        return _built(kind, given, source)

    return Form(write, read)


def list_of(form: Form[T]) -> Form[Sequence[T]]:
    """A list, every element in the same form.

    >>> list_of(INDEX).read([2, 0], Source({}))
    [2, 0]
    """

    def write(values: Sequence[T], arrays: Arrays) -> Json:
        written: list[Json] = []
        try:
            for value in values:
                written.append(form.write(value, arrays))
        except FormError as wrong:
            raise wrong.under(f"[{len(written)}]") from None
        return written

    def read(value: Json, source: Source) -> Sequence[T]:
        found: list[T] = []
        try:
            for element in as_list(value):
                found.append(form.read(element, source))
        except FormError as wrong:
            raise wrong.under(f"[{len(found)}]" if isinstance(value, list) else "") from None
        return found

    return Form(write, read)


def optional(form: Form[T]) -> Form[T | None]:
    """A value or null.

    >>> optional(TEXT).read(None, Source({})) is None
    True
    """
    return Form(
        lambda value, arrays: None if value is None else form.write(value, arrays),
        lambda value, source: None if value is None else form.read(value, source),
    )


def shown(value: object) -> str:
    """A value from a file as messages show it: short, quoted."""
    text = repr(value) if isinstance(value, str | bool | int | float) else described(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_list(value: Json) -> Sequence[Json]:
    """The value, if it is a list."""
    if not isinstance(value, list):
        _refuse(value, "a list")
    return value


def as_object(value: Json) -> Mapping[str, Json]:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        _refuse(value, "an object")
    return value


def check_keys(given: Mapping[str, Json], keys: tuple[str, ...]) -> None:
    """Refuse an object that has not exactly these keys."""
    for key in keys:
        if key not in given:
            raise FormError(f"lacks the key {key!r}. {AGAIN}")
    for key in given:
        if key not in keys:
            raise FormError(f"has the unknown key {shown(key)}; keys: {', '.join(keys) or 'none'}. Remove it.")


def described(value: object) -> str:
    """What a value is, in the words of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return f"a list of {len(cast(list[object], value))}"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _written(kind: Kind[Any], value: object, arrays: Arrays) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    for name, form in kind.fields.items():
        try:
            fields[name] = form.write(getattr(value, name), arrays)
        except FormError as wrong:
            raise wrong.under(f".{name}") from None
    return fields


def _built(kind: Kind[T], given: Mapping[str, Json], source: Source) -> T:
    check_keys(given, tuple(kind.fields))
    fields: dict[str, Any] = {}
    for name, form in kind.fields.items():
        try:
            fields[name] = form.read(given[name], source)
        except FormError as wrong:
            raise wrong.under(f".{name}") from None
    try:
        return (kind.build or kind.cls)(**fields)
    except (ValueError, ArithmeticError, MemoryError) as error:  # HdmmErrors, and what NumPy says of sizes
        problem = str(error) or f"is too large a {kind.cls.__name__}. Save it again."
        raise FormError(problem if len(problem) <= _MOST_TEXT else f"{problem[:_MOST_TEXT]}…") from None


def _kinds(kinds: Sequence[Kind[Any]]) -> str:
    return f"Kinds here: {', '.join(kind.name for kind in kinds if kind.former is None)}."


def _refuse(value: object, expected: str) -> NoReturn:
    raise FormError(f"is {described(value)} where {expected} is expected. {AGAIN}")


def _text(value: object, _: object) -> str:
    return str.__str__(value) if isinstance(value, str) else _refuse(value, "a text")


def _label(value: object, _: object) -> str | int | float | bool:
    if type(value) not in (str, int, float, bool):  # exactly: a subclass would come back as another type
        raise FormError(f"is {described(value)}. A label in a file is a text, an integer, a float, true or false.")
    return cast(str | int | float | bool, value)


def _integer(value: object, _: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool) or not isinstance(value, int | np.integer):
        _refuse(value, "an integer")
    return operator.index(value)


def _index(value: object, _: object) -> int:
    number = _integer(value, _)
    if not 0 <= number < _MOST_SIZE:
        raise FormError(f"is {shown(number)} where an integer from 0 is expected, below 2^63. {AGAIN}")
    return number


def _number(value: object, _: object) -> float:
    if isinstance(value, bool | np.bool) or not isinstance(value, int | float | np.integer | np.floating):
        _refuse(value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormError("is not a finite number of float's range. Use a finite number.")
    return number


def _edge(value: object, _: object) -> int | float:
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return value
    _refuse(value, "a finite number")


def _pair(value: object, _: object) -> tuple[int, int]:
    match value:
        case [low, high]:
            return _index(low, _), _index(high, _)
        case _:
            _refuse(value, "a pair of integers")


def _write_array(array: Array, arrays: Arrays) -> str:
    """Named by what it holds: equal arrays are one file, and the arrays of two encodings can be joined by |."""
    try:
        kept = stored(array, "to save")
    except FileError as error:
        raise FormError(f"cannot be saved. {error}") from None
    layout = f"{kept.dtype.str} {kept.shape} {'F' if kept.flags.fnc else 'C'}"
    name = hashlib.sha256(layout.encode() + np.ascontiguousarray(kept).tobytes()).hexdigest()[:32]
    arrays[name] = kept
    return name


def _read_array(value: Json, source: Source) -> Array:
    found = source.arrays.get(value) if isinstance(value, str) else None
    if found is None:
        raise FormError(f"is {shown(value)} where the name of an array that the file lists is expected. {AGAIN}")
    return found


TEXT = Form(_text, _text)
LABEL = Form(_label, _label)
INTEGER = Form(_integer, _integer)
INDEX = Form(_index, _index)
NUMBER = Form(_number, _number)
EDGE = Form(_edge, _edge)
PAIR = Form(lambda value, _: list(_pair(value, _)), _pair)
ARRAY = Form(_write_array, _read_array)
