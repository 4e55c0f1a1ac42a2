"""The codec: records, and the domains, workloads and strategies in them, to JSON and arrays and back.

KINDS drives both directions. When a file is read, each table of keys becomes the record of its kind, and the record
becomes a value through the constructor that checks it; an error says where in the file.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, cast, get_args

import msgspec
import numpy as np
from msgspec import UNSET

from hdmm.base.exceptions import FileError
from hdmm.describe.domain import Domain
from hdmm.describe.levels import Level
from hdmm.describe.product import Product
from hdmm.describe.values import Labels
from hdmm.io.folder import AnyPath, file_sizes, load_folder, save_folder
from hdmm.io.kinds import KINDS, FileKind
from hdmm.io.npy import stored
from hdmm.io.strict_json import Json
from hdmm.io.strict_records import MisfitError, convert, described, shown
from hdmm.matrix import Array
from hdmm.strategy.blocks import Block

T = TypeVar("T")
Encoded: TypeAlias = tuple[Json, dict[str, Array]]

_FRACTION = re.compile(r"[0-9]+(/[0-9]+)?", re.ASCII)
_EXACT = (type(None), bool, int, float)
_LONGEST = 4096  # characters of a fraction: Python converts that many digits to an integer
_KINDS_OF: dict[type, list[FileKind]] = {}
for _kind in (kind for kinds in KINDS.values() for kind in kinds):
    _KINDS_OF.setdefault(_kind.cls, []).append(_kind)
_RECORDS: dict[type, Any] = {
    family: functools.reduce(operator.or_, (kind.record for kind in kinds)) for family, kinds in KINDS.items()
}
_BY_RECORD = {kind.record: kind for kinds in KINDS.values() for kind in kinds}


def encode(value: object) -> Encoded:
    """A domain, workload or strategy, or a record of them, as (JSON, arrays); each distinct factor is written once.

    >>> encode(Domain({"age": 115}))[0]["attributes"]
    [{'name': 'age', 'values': {'kind': 'Integers', 'first': 0, 'last': 114, 'step': 1, 'outside': 'drop'}}]
    """
    arrays: dict[str, Array] = {}
    try:
        return _written(value, arrays), arrays
    except MisfitError as wrong:
        raise FileError(f"The {type(value).__name__} cannot be written to a file. {wrong}") from None


def decode(form: type[T], value: Json, arrays: Mapping[str, Array], *, at: str = "") -> T:
    """The value of this form that `encode` wrote; FileError, which begins with `at` and the key, for anything else.

    Domains that are equal are one object, so that comparing them later is free.

    >>> decode(Domain, *encode(Domain({"age": 115}))).shape
    (115,)
    """
    reader = _Reader(arrays)
    try:
        return reader.read(form, value) if form in KINDS else convert(value, form, reader.read)
    except MisfitError as wrong:
        raise wrong.in_file(at) from None


def save_record(path: AnyPath, kind: str, record: msgspec.Struct, **more: Array) -> Path:
    """The path of the folder that now holds a record of this kind, and more arrays; see `save_folder`."""
    content, arrays = encode(record)
    return save_folder(path, kind, cast(Mapping[str, Json], content), {**arrays, **more})


def file_sizes_of(kind: str, record: msgspec.Struct, **more: int) -> dict[str, int]:
    """The bytes of each file that `save_record` would write, with more arrays of so many numbers."""
    content, arrays = encode(record)
    return file_sizes(kind, cast(Mapping[str, Json], content), arrays, **more)


def load_record(path: AnyPath, kind: str, form: type[T]) -> tuple[T, dict[str, Array]]:
    """The record in a folder of this kind, and all its arrays; FileError for anything else."""
    content, arrays = load_folder(path, kind)
    return decode(form, content, arrays, at=str(Path(path) / f"{kind}.json")), arrays


class _Reader:
    """Reads what msgspec does not know: arrays by their names, fractions, and values by their kinds."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.domains: dict[Domain, Domain] = {}

    def read(self, form: Any, given: Any) -> Any:
        if form is np.ndarray:
            found = self.arrays.get(given) if isinstance(given, str) else None
            return _refuse(given, "the name of an array that the file lists") if found is None else found
        if form is Fraction:
            return _fraction(given) if isinstance(given, str) else _refuse(given, "a fraction in quotes")
        family = form if form in KINDS else get_args(form)[0]
        record = convert(given, _RECORDS[family], self.read)
        try:
            keys = msgspec.structs.asdict(record).items()
            value = _BY_RECORD[type(record)].build(**{key: each for key, each in keys if each is not UNSET})
        except MisfitError:
            raise
        except (ValueError, ArithmeticError, MemoryError) as wrong:  # HdmmErrors, and NumPy's errors about sizes
            raise MisfitError(str(wrong) or f"This {type(record).__name__} is too large.") from None
        return self.domains.setdefault(value, value) if isinstance(value, Domain) else value


@lru_cache(maxsize=1024)  # a hundred thousand blocks share few scales
def _fraction(text: str) -> Fraction:
    if len(text) > _LONGEST or not _FRACTION.fullmatch(text):
        _refuse(text, "a fraction in quotes")
    numerator, denominator = (*map(int, text.split("/")), 1)[:2]
    if denominator == 0:
        raise MisfitError(f"This is {shown(text)}, which divides by 0.")
    return Fraction(numerator, denominator)


def _refuse(value: object, expected: str) -> NoReturn:
    raise MisfitError(f"This is {described(value)}; {expected} is expected.")


def _written(value: Any, arrays: dict[str, Array]) -> Json:
    match value:
        case None | bool() | int() | float() if type(value) in _EXACT:
            return value
        case str():
            return str.__str__(value)
        case np.integer() | np.floating():
            return value.item()
        case Fraction():
            return str(value)
        case np.ndarray():
            return _named(value, arrays)
        case (Product() | Block(), *_):
            return _products(cast(Sequence[Product | Block], value), arrays)
        case list() | tuple():
            return [_written(each, arrays) for each in cast(Sequence[object], value)]
        case msgspec.Struct():
            return {
                key: _written(each, arrays) for key, each in msgspec.structs.asdict(value).items() if each is not UNSET
            }
        case _:
            return _kept(value, arrays)


def _kept(value: object, arrays: dict[str, Array]) -> Json:
    """A value as the record of its kind."""
    taken = ((kind, kind.take(value)) for kind in _KINDS_OF.get(type(value), ()))
    kind, keys = next(((kind, keys) for kind, keys in taken if keys is not None), (None, {}))
    if kind is None:
        kinds = next((kinds for family, kinds in KINDS.items() if isinstance(value, family)), ())
        names = ", ".join(each.name for each in kinds)
        raise MisfitError(f"Files do not hold a {type(value).__name__}{f'; kinds here: {names}' if names else ''}.")
    if isinstance(value, Labels | Level):
        for label in value.values if isinstance(value, Labels) else value.groups:
            # Exactly these types: a subclass would be read back as another type.
            if type(label) not in (str, int, float, bool):
                raise MisfitError(
                    f"The label {shown(label)} is a {type(label).__name__}. A label in a file is a text, an integer, a "
                    "float, true or false."
                )
    tag = kind.record.__struct_config__.tag
    written = {key: _written(each, arrays) for key, each in keys.items()}
    return written if tag is None else {"kind": tag, **written}


def _products(products: Sequence[Product | Block], arrays: dict[str, Array]) -> Json:
    """{"distinct": [value, …], "rows": [[weight, [[axis, index], …]], …]}; several axes are a list of them.

    Values that are written alike are one, so names that equality ignores are kept.
    """
    distinct: list[Json] = []
    known: dict[tuple[object, object], tuple[object, int]] = {}  # a hundred thousand products share few objects
    by_text: dict[str, int] = {}

    def index(axes: int | tuple[int, ...], value: object) -> int:
        last, found = known.get((axes, value), (None, 0))
        if last is not value:  # it may have other names
            kept = _kept(value, arrays)
            found = by_text.setdefault(repr(kept), len(distinct))
            distinct.extend([kept] * (found == len(distinct)))
            known[axes, value] = value, found
        return found

    def axis(axes: int | tuple[int, ...]) -> Json:
        return operator.index(axes) if not isinstance(axes, tuple) else axis(axes[0]) if len(axes) == 1 else list(axes)

    def held(p: Product | Block) -> Sequence[tuple[int | tuple[int, ...], object]]:
        return p.sets if isinstance(p, Product) else p.factors

    rows = [[float(p.weight), [[axis(axes), index(axes, value)] for axes, value in held(p)]] for p in products]
    return {"distinct": distinct, "rows": rows}


def _named(array: Array, arrays: dict[str, Array]) -> str:
    """The name of an array, by what it holds: equal arrays are one file, and two encodings can be joined by |."""
    try:
        kept = stored(array, "to save")
    except FileError as wrong:
        raise MisfitError(str(wrong)) from None
    layout = f"{kept.dtype.str} {kept.shape} {'F' if kept.flags.fnc else 'C'}"
    name = hashlib.sha256(layout.encode() + np.ascontiguousarray(kept).tobytes()).hexdigest()[:32]
    arrays[name] = kept
    return name
