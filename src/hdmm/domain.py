"""What a table may contain: attributes, their cells, and how values become cells.

A domain is declared, never learned from data: a value that was not declared is outside, and what is outside
follows a public rule (the row is dropped, or counted in a cell "other"). No value makes anything here raise,
and no message tells a value, a count or the length of a column (security I1, I2).

How values are compared:

- Numbers by value, whatever their type: 18, 18.0, Decimal("18") and NumPy's 18 are one number, and True is 1,
  as in Python. So a boolean attribute reads a column of 0 and 1, and True and 1 cannot both be labels.
- Text exactly, case and spaces included. The label 1 is not the label "1".
- Integers and Bins also read text that spells a decimal number ("18", "1.5e3"), as files of text give it.
- None, NaN, a masked entry, and values that cannot be hashed or compared are outside everywhere.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias, cast, final, overload

import numpy as np
import numpy.typing as npt

from hdmm.exceptions import DomainError

Codes: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.object_]
Label: TypeAlias = Hashable
Outside: TypeAlias = Literal["drop", "other"]


class SupportsArray(Protocol):
    """What NumPy can read: its own arrays and the columns of pandas, polars and pyarrow."""

    def __array__(self) -> npt.NDArray[np.generic]: ...


Column: TypeAlias = Sequence[object] | SupportsArray
Declaration: TypeAlias = "int | range | type[bool] | Sequence[Label] | Values"

_DROPPED = -1
_OTHER = "other"
_INT64_END = 2**63
_MOST_FLOAT = sys.float_info.max
_DENSE_LIMIT = 2**31  # cells of a histogram: 16 GiB
_LABELS_LIMIT = 10**7  # labels written out at once
_CHUNK = 2**20  # rows of Python objects looked at together: bounds the memory they take

_Number: TypeAlias = int | float | Fraction | Decimal
_NUMBERS = (int, float, Fraction, Decimal)
_COMPARABLE = {type(None), str, bool, int, float}  # equal values of these types have one code
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Domain:
    """The cross product of the declared attributes; cells are numbered in row-major order.

    >>> domain = Domain({"sex": ["M", "F"], "age": 115, "income": Bins([0, 10_000, 50_000, 250_000])})
    >>> domain.names, domain.shape, domain.size
    (('sex', 'age', 'income'), (2, 115, 3), 690)
    >>> domain["sex"].labels
    ('M', 'F')
    """

    attributes: tuple[Attribute, ...]
    names: tuple[str, ...] = field(compare=False)
    shape: tuple[int, ...] = field(compare=False)
    size: int = field(compare=False)

    def __init__(self, attributes: Mapping[str, Declaration] | Iterable[Attribute]) -> None:
        given = tuple(_declared(attributes))
        if not given:
            raise DomainError("The domain has no attributes. Declare at least one, as in Domain({'age': 115}).")
        names = tuple(a.name for a in given)
        _refuse_repeats(names, "in the domain", "Give each attribute a name of its own.")
        shape = tuple(a.size for a in given)
        object.__setattr__(self, "attributes", given)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "size", math.prod(shape))

    def __repr__(self) -> str:
        return f"Domain({{{', '.join(f'{a.name!r}: {a.values!r}' for a in self.attributes)}}})"

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axis(name)]

    def axis(self, name: str) -> int:
        """The position of an attribute.

        >>> Domain({"sex": ["M", "F"], "age": 115}).axis("age")
        1
        """
        if name in self.names:
            return self.names.index(name)
        close = difflib.get_close_matches(str(name), self.names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise DomainError(f"Attribute {name!r} is not in the domain; attributes: {', '.join(self.names)}.{hint}")

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of these attributes alone, in the order given.

        >>> Domain({"sex": ["M", "F"], "age": 115, "race": 7}).project(["race", "sex"]).shape
        (7, 2)
        """
        return Domain(self._named(names, "to project on"))

    def merge(self, names: Iterable[str], *, name: str) -> Domain:
        """The domain with these attributes as one, at the place of the first of them in the domain.

        The merged cells are in row-major order of the names as given (the first is the slowest), their
        labels are tuples, and encode still reads the original columns.

        >>> domain = Domain({"age": 115, "white": bool, "black": bool}).merge(["white", "black"], name="race")
        >>> domain.shape, domain["race"].labels
        ((115, 4), ((False, False), (False, True), (True, False), (True, True)))
        """
        parts = self._named(names, "to merge")
        if len(parts) < 2:
            raise DomainError("Merging needs two attributes or more. Name those that become one.")
        merged = Attribute(name, Merged(parts))
        first = min(self.axis(p.name) for p in parts)
        rest = [merged if i == first else a for i, a in enumerate(self.attributes) if i == first or a not in parts]
        return Domain(rest)

    @overload
    def index(self, cells: Sequence[int]) -> int: ...
    @overload
    def index(self, cells: Sequence[Sequence[int]] | npt.NDArray[np.generic]) -> Indices: ...
    def index(self, cells: Sequence[int] | Sequence[Sequence[int]] | npt.NDArray[np.generic]) -> int | Indices:
        """The row-major index of cells, given by their codes along the last axis.

        int64 where the domain has fewer than 2⁶³ cells, exact Python integers beyond. O(cells · attributes).

        >>> domain = Domain({"sex": ["M", "F"], "age": 115})
        >>> domain.index((1, 0)), domain.index([(0, 0), (1, 114)])
        (115, array([  0, 229]))
        """
        codes = _integers(cells, "Cells")
        if codes.shape == (0,):
            codes = codes.reshape(0, len(self))
        if codes.ndim == 0 or codes.shape[-1] != len(self):
            raise DomainError(
                f"A cell of this domain is {len(self)} codes, one for each of {', '.join(self.names)}. "
                f"Give the codes along the last axis."
            )
        dtype = self._index_dtype
        flat = np.zeros(codes.shape[:-1], dtype)
        for axis, attribute in enumerate(self.attributes):
            code = codes[..., axis]
            if np.any((code < 0) | (code >= attribute.size)):
                raise DomainError(
                    f"A code of attribute {attribute.name!r} is not one of 0 to {attribute.size - 1}. "
                    f"Give the codes of rows that encode() kept."
                )
            flat = np.asarray(flat * attribute.size + code.astype(dtype), dtype)
        return flat if isinstance(cells, np.ndarray) or flat.ndim else int(flat[()])

    @overload
    def cell(self, index: int) -> tuple[int, ...]: ...
    @overload
    def cell(self, index: Sequence[int] | npt.NDArray[np.generic]) -> Codes: ...
    def cell(self, index: int | Sequence[int] | npt.NDArray[np.generic]) -> tuple[int, ...] | Codes:
        """The codes of the cells at these row-major indices, along a new last axis: the inverse of index.

        >>> domain = Domain({"sex": ["M", "F"], "age": 115})
        >>> domain.cell(115)
        (1, 0)
        >>> domain.cell([0, 229])
        array([[  0,   0],
               [  1, 114]])
        """
        rest = _integers(index, "Indices")
        if np.any((rest < 0) | (rest >= self.size)):
            raise DomainError(f"A cell index is not one of 0 to {self.size - 1}. The domain has {self.size} cells.")
        rest = rest.astype(self._index_dtype)
        codes = np.empty((*rest.shape, len(self)), np.int64)
        for axis in reversed(range(len(self))):
            codes[..., axis] = rest % self.shape[axis]
            rest = rest // self.shape[axis]
        return tuple(codes.tolist()) if isinstance(index, int | np.integer) else codes

    def labels(self, cell: int | Sequence[int]) -> tuple[Label, ...]:
        """The labels of one cell, given by its index or by its codes.

        >>> domain = Domain({"sex": ["M", "F"], "income": Bins([0, 10_000, 50_000])})
        >>> domain.labels(3), domain.labels((0, 1))
        (('F', '[10000, 50000)'), ('M', '[10000, 50000)'))
        """
        codes = self.cell(cell if isinstance(cell, int) else self.index(cell))
        return tuple(a.label(code) for a, code in zip(self.attributes, codes, strict=True))

    def encode(self, columns: Mapping[str, Column]) -> Codes:
        """The codes of the rows that are kept, one row each, in the domain's order of attributes.

        Columns that the domain does not name are ignored. Rows with a value outside an attribute declared
        with outside="drop" are left out.

        >>> domain = Domain({"sex": ["M", "F"], "age": Integers(0, 114, outside="other")})
        >>> domain.encode({"sex": ["F", "x", "M"], "age": [30, 40, None]})
        array([[  1,  30],
               [  0, 115]])
        """
        codes = self._read(columns)
        kept = _kept(codes)
        return np.stack([code[kept] for code in codes], axis=1)

    def count(self, columns: Mapping[str, Column]) -> Codes:
        """The number of kept rows in every cell, as an array of the domain's shape. O(rows + cells).

        >>> Domain({"sex": ["M", "F"], "age": 2}).count({"sex": ["F", "F", "M"], "age": [1, 1, 0]})
        array([[1, 0],
               [0, 2]])
        """
        if self.size > _DENSE_LIMIT or len(self) > 64:
            raise DomainError(
                f"A histogram over {len(self)} attributes and {self.size} cells is too large; the limits are "
                f"64 attributes and {_DENSE_LIMIT} cells. Project the domain on fewer attributes."
            )
        index = _joined(self.attributes, self._read(columns))
        counts = np.bincount(index[index >= 0], minlength=self.size)
        return counts.astype(np.int64, copy=False).reshape(self.shape)

    @property
    def _index_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64) if self.size < _INT64_END else np.dtype(np.object_)

    def _read(self, columns: Mapping[str, Column]) -> list[Codes]:
        there = tuple(columns)
        for name in (name for a in self.attributes for name in a.columns):
            if name not in there:
                raise DomainError(
                    f"Column {name!r} is not in the data; columns: {', '.join(map(str, there)) or 'none'}. "
                    f"Rename the column, or project the domain on the attributes that are there."
                )
        return [_read(a, columns) for a in self.attributes]

    def _named(self, names: Iterable[str], purpose: str) -> tuple[Attribute, ...]:
        if isinstance(names, str):
            raise DomainError(f"The attributes {purpose} are given as the text {names!r}. Give a list: [{names!r}].")
        chosen = tuple(self[name] for name in names)
        _refuse_repeats([a.name for a in chosen], f"among the attributes {purpose}", "Name each attribute once.")
        return chosen


@final
@dataclass(frozen=True, slots=True)
class Attribute:
    """One dimension of a domain: a name and the values it may hold.

    >>> age = Attribute("age", Integers(18, 99))
    >>> age.size, age.ordered, age.label(0), age.encode([18, 99.0, 17, None])
    (82, True, 18, array([ 0, 81, -1, -1]))
    """

    name: str
    values: Values

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(f"An attribute is named {self.name!r}. Name it by a text that is not empty.")
        if not isinstance(self.values, Values):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"Attribute {self.name!r} is declared by a {type(self.values).__name__}. "
                f"Use Labels, Integers or Bins, or declare it in a Domain({{name: …}})."
            )
        if self.values.size >= _INT64_END:
            raise DomainError(
                f"Attribute {self.name!r} has {self.values.size} cells; an attribute has fewer than 2**63. "
                f"Use coarser bins, or merge fewer attributes."
            )

    @property
    def size(self) -> int:
        """The number of cells, the one for "other" included."""
        return self.values.size

    @property
    def ordered(self) -> bool:
        """Whether neighbouring cells hold neighbouring values, so that ranges mean something."""
        return self.values.ordered

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: the attribute's own, or those of the parts it was merged from."""
        if isinstance(self.values, Merged):
            return tuple(name for part in self.values.parts for name in part.columns)
        return (self.name,)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of all cells; refused above ten million, where label(code) gives one."""
        if self.size > _LABELS_LIMIT:
            raise DomainError(
                f"Attribute {self.name!r} has {self.size} labels, too many to write out. Use label(code) for one."
            )
        return tuple(map(self.values.label, range(self.size)))

    def label(self, code: int) -> Label:
        """The label of one cell.

        >>> Attribute("income", Bins([0, 10_000, 50_000])).label(1)
        '[10000, 50000)'
        """
        with _naming(self.name):
            return self.values.label(code)

    def encode(self, values: Column) -> Codes:
        """The code of each value; −1 where the row is dropped. Values never raise.

        A merged attribute takes tuples here; Domain.encode reads the columns it was merged from.

        >>> Attribute("sex", Labels(["M", "F"])).encode(["F", "M", "f", None])
        array([ 1,  0, -1, -1])
        """
        with _naming(self.name):
            return self.values.encode(values)


class Values(ABC):
    """The values an attribute may hold, in the order of its cells: Labels, Integers, Bins or Merged.

    A kind says how many cells it declares and where one value (or an array of numbers) belongs; the cell for
    "other", the rule for what is outside and the handling of awkward values are written here, once.

    >>> Integers(0, 2, outside="other").size
    4
    """

    __slots__ = ()

    outside: Outside

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether neighbouring cells hold neighbouring values."""

    @property
    @abstractmethod
    def _declared(self) -> int:
        """The number of cells without the one for "other"."""

    @abstractmethod
    def _label(self, position: int) -> Label:
        """The label of a declared cell."""

    @abstractmethod
    def _position(self, value: object) -> int:
        """The declared cell of a value, or −1. May raise on a value that cannot be compared."""

    @abstractmethod
    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        """The same for an int64, uint64 or float64 array at once; never raises."""

    @property
    def size(self) -> int:
        """The number of cells, the one for "other" included."""
        return self._declared + (self.outside == _OTHER)

    def label(self, code: int) -> Label:
        """The label of one cell.

        >>> Integers(18, 99, outside="other").label(82)
        'other'
        """
        if not 0 <= code < self.size:
            raise DomainError(f"Code {code} has no label. Use a code from 0 to {self.size - 1}.")
        return _OTHER if code == self._declared else self._label(int(code))

    def encode(self, values: Column) -> Codes:
        """The code of each value, −1 where it is dropped. A few seconds for ten million values.

        >>> Bins([0, 10, 20], outside="other").encode([0, 9.5, 10, 20, float("nan")])
        array([0, 0, 1, 2, 2])
        """
        if isinstance(values, np.ma.MaskedArray):
            codes = self.encode(np.asarray(values.data))
            codes[np.ma.getmaskarray(values)] = self._outside_code
            return codes
        rows = _rows(values)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and rows.dtype.itemsize <= 8:
            codes = self._positions(_widened(rows))
        else:
            chunks = [self._chunk(_objects(rows[i : i + _CHUNK])) for i in range(0, len(rows), _CHUNK)]
            codes = np.concatenate([np.empty(0, np.int64), *chunks])
        codes[codes < 0] = self._outside_code
        return codes

    @property
    def _outside_code(self) -> int:
        return self._declared if self.outside == _OTHER else _DROPPED

    def _chunk(self, values: list[object]) -> Codes:
        """Positions of Python objects; each distinct one is looked at once, all loops over rows are C's."""
        types = set(map(type, values))
        if types in ({bool}, {int}, {float}):
            try:
                return self._positions(np.array(values, np.float64 if float in types else np.int64))
            except OverflowError:  # an integer beyond int64
                pass
        try:
            if types <= _COMPARABLE:
                codes = {value: self._position_or_outside(value) for value in set(values)}
                return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))
            # The type is part of the key: a duration of 1 equals the number 1, and is none.
            keys = list(zip(map(type, values), values, strict=True))
            codes = {key: self._position_or_outside(key[1]) for key in set(keys)}
            return np.fromiter(map(codes.__getitem__, keys), np.int64, len(keys))
        except Exception:  # a value that cannot be hashed, or whose comparison raises: one by one
            return np.fromiter(map(self._position_or_outside, values), np.int64, len(values))

    def _position_or_outside(self, value: object) -> int:
        try:
            return self._position(value)
        except Exception:  # whatever a value does when it is compared, it is outside (security I1)
            return _DROPPED


@final
@dataclass(frozen=True, slots=True, init=False)
class Labels(Values):
    """Named values in the order given; a value is inside where it equals a label (see the top of this file).

    >>> Labels(["M", "F"]).encode(["F", "M", "m"])
    array([ 1,  0, -1])
    >>> Labels(["a", "b"], outside="other").encode(["b", None, "z"])
    array([1, 2, 2])
    """

    values: tuple[Label, ...]
    outside: Outside
    _types: tuple[type, ...] = field(repr=False)  # (True,) == (1,), but the labels are not the same
    _codes: dict[tuple[type, Label], int] = field(repr=False, compare=False)

    def __init__(self, values: Sequence[Label], outside: Outside = "drop") -> None:
        codes: dict[tuple[type, Label], int] = {}
        labels = tuple(map(_label, _listed(values, "Labels")))
        for code, label in enumerate(labels):
            first = codes.setdefault(_key(label), code)
            if first != code:
                raise DomainError(f"Labels {labels[first]!r} and {label!r} are equal. Declare each value once.")
        if not labels:
            raise DomainError("The list of labels is empty. Declare at least one value.")
        if outside == _OTHER and _OTHER in labels:
            raise DomainError("The label 'other' is declared, and outside='other' adds a cell of that name. Rename it.")
        object.__setattr__(self, "values", labels)
        object.__setattr__(self, "outside", _rule(outside))
        object.__setattr__(self, "_types", tuple(map(type, labels)))
        object.__setattr__(self, "_codes", codes)

    @property
    def ordered(self) -> bool:
        return False

    @property
    def _declared(self) -> int:
        return len(self.values)

    def _label(self, position: int) -> Label:
        return self.values[position]

    def _position(self, value: object) -> int:
        return self._codes.get(_key(_plain(value)), _DROPPED)

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        exact = ((_as_element(label, numbers.dtype), code) for code, label in enumerate(self.values))
        known = sorted((number, code) for number, code in exact if number is not None)
        if not known:
            return np.full(len(numbers), _DROPPED, np.int64)
        elements = np.array([number for number, _ in known], numbers.dtype)
        at = np.minimum(np.searchsorted(elements, numbers), len(known) - 1)
        return np.where(elements[at] == numbers, np.array([code for _, code in known])[at], _DROPPED)


@final
@dataclass(frozen=True, slots=True)
class Integers(Values):
    """The integers first, first + step, …, up to last (inclusive).

    In a Domain, 115 stands for Integers(0, 114) and range(18, 100) for Integers(18, 99).

    >>> Integers(18, 99).encode([18, 18.0, "18", 18.5, 17, float("inf"), 10**30])
    array([ 0,  0,  0, -1, -1, -1, -1])
    """

    first: int
    last: int
    step: int = field(default=1, kw_only=True)
    outside: Outside = field(default="drop", kw_only=True)

    def __post_init__(self) -> None:
        first, last, step = (_declared_integer(n) for n in (self.first, self.last, self.step))
        if step < 1:
            raise DomainError(f"Integers have the step {step}. Use a positive step.")
        if last < first:
            raise DomainError(f"Integers from {first} to {last} are none. The last must not be below the first.")
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last - (last - first) % step)
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "outside", _rule(self.outside))

    @property
    def ordered(self) -> bool:
        return True

    @property
    def _declared(self) -> int:
        return (self.last - self.first) // self.step + 1

    def _label(self, position: int) -> Label:
        return self.first + position * self.step

    def _position(self, value: object) -> int:
        number = _number(value)
        if number is None or not self.first <= number <= self.last:
            return _DROPPED
        whole = int(number)
        inside = whole == number and (whole - self.first) % self.step == 0
        return (whole - self.first) // self.step if inside else _DROPPED

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        if not (self.first >= -_INT64_END and self.last < _INT64_END and self.last - self.first < _INT64_END):
            plain = map(self._position_or_outside, numbers.tolist())  # beyond int64 arithmetic: one by one
            return np.fromiter(plain, np.int64, len(numbers))
        integers, exact = _as_int64(numbers)
        inside = exact & (integers >= self.first) & (integers <= self.last)
        offsets = np.where(inside, integers, self.first) - self.first
        return np.where(inside & (offsets % self.step == 0), offsets // self.step, _DROPPED)


@final
@dataclass(frozen=True, slots=True, init=False)
class Bins(Values):
    """The half-open intervals [e₀, e₁), [e₁, e₂), …; the last edge itself is outside.

    >>> Bins([0, 10_000, 50_000]).encode([0, 9_999.5, 10_000, 50_000, -1])
    array([ 0,  0,  1, -1, -1])
    """

    edges: tuple[int | float, ...]
    outside: Outside

    def __init__(self, edges: Sequence[float] | npt.NDArray[np.generic], outside: Outside = "drop") -> None:
        given = tuple(map(_edge, _listed(edges, "Edges of bins")))
        if len(given) < 2:
            raise DomainError(f"Bins have {len(given)} edges. Give two or more: n + 1 edges make n bins.")
        for low, high in pairwise(given):
            if low >= high:
                raise DomainError(f"Bins have the edges {low}, {high} in this order. Edges must increase strictly.")
        object.__setattr__(self, "edges", given)
        object.__setattr__(self, "outside", _rule(outside))

    @property
    def ordered(self) -> bool:
        return True

    @property
    def _declared(self) -> int:
        return len(self.edges) - 1

    def _label(self, position: int) -> Label:
        return f"[{self.edges[position]}, {self.edges[position + 1]})"

    def _position(self, value: object) -> int:
        number = _number(value)
        if number is None or not self.edges[0] <= number < self.edges[-1]:
            return _DROPPED
        return bisect_right(self.edges, number) - 1

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        if numbers.dtype.kind == "f":
            edges = np.array(self.edges, np.float64)  # exact: _edge saw to it
        else:
            # For an integer v, v ≥ e is v ≥ ⌈e⌉; edges that no element of the type reaches are left out.
            limits = np.iinfo(numbers.dtype)
            ceilings = map(math.ceil, self.edges)
            edges = np.array([max(e, limits.min) for e in ceilings if e <= limits.max], numbers.dtype)
        positions = np.searchsorted(edges, numbers, side="right").astype(np.int64) - 1
        return np.where(positions < self._declared, positions, _DROPPED)  # NaN sorts after the last edge


@final
@dataclass(frozen=True, slots=True)
class Merged(Values):
    """The cells of several attributes as one, in row-major order; labels are tuples. Made by Domain.merge.

    >>> Merged((Attribute("a", Integers(0, 1)), Attribute("b", Labels(["x", "y", "z"])))).label(4)
    (1, 'y')
    """

    parts: tuple[Attribute, ...]
    outside: Outside = field(default="drop", init=False)

    @property
    def ordered(self) -> bool:
        return False

    @property
    def _declared(self) -> int:
        return math.prod(part.size for part in self.parts)

    def _label(self, position: int) -> Label:
        labels: list[Label] = []
        for part in reversed(self.parts):
            position, code = divmod(position, part.size)
            labels.append(part.label(code))
        return tuple(reversed(labels))

    def _position(self, value: object) -> int:
        if not isinstance(value, tuple):
            return _DROPPED
        cells = zip(self.parts, cast(tuple[object, ...], value), strict=True)
        return int(_joined(self.parts, [part.encode([v]) for part, v in cells])[0])

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        return np.full(len(numbers), _DROPPED, np.int64)  # numbers are not tuples


# Declarations: what is wrong here is public, and is said.


def _declared(attributes: Mapping[str, Declaration] | Iterable[Attribute]) -> Iterator[Attribute]:
    if isinstance(attributes, Mapping):
        for name, declaration in cast(Mapping[str, Declaration], attributes).items():
            with _naming(name):
                values = _values(declaration)
            yield Attribute(name, values)
        return
    for attribute in attributes:
        if not isinstance(attribute, Attribute):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"A domain is given a {type(attribute).__name__}. Give a mapping from names to values, "
                f"as in Domain({{'age': 115}}), or a list of Attribute."
            )
        yield attribute


def _values(declaration: Declaration) -> Values:
    if isinstance(declaration, Values):
        return declaration
    if declaration is bool:
        return Labels((False, True))
    if isinstance(declaration, int | np.integer) and not isinstance(declaration, bool):
        if declaration < 1:
            raise DomainError(f"the size is {declaration}. Declare at least one value.")
        return Integers(0, int(declaration) - 1)
    if isinstance(declaration, range):
        if not declaration:
            raise DomainError(f"{declaration} is empty. Declare at least one value.")
        return Integers(declaration[0], declaration[-1], step=declaration.step)
    if isinstance(declaration, list | tuple | np.ndarray):
        return Labels(declaration)
    if isinstance(declaration, bool):
        raise DomainError(f"declared by the value {declaration}. Use the type bool, or a list of labels.")
    raise DomainError(
        f"declared by a {type(declaration).__name__}. Use a size such as 115, a range, a list of labels, "
        f"Bins([…]), Integers(…), Labels([…]) or the type bool."
    )


def _listed(values: object, what: str) -> list[object]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return list(values)
    if isinstance(values, list | tuple | range):
        return list(cast(Iterable[object], values))
    raise DomainError(f"{what} are given as a {type(values).__name__}. Give a list, in the order of the cells.")


def _label(given: object) -> Label:
    label = str(given) if isinstance(given, np.str_) else _plain(given)
    if label is None or (isinstance(label, float | Decimal) and Decimal(label).is_nan()):
        raise DomainError(f"The label {label} stands for a missing value. Use outside='other' to count missing values.")
    try:
        hash(label)
    except Exception:  # mostly TypeError; NumPy's durations without a unit raise ValueError
        raise DomainError(
            f"A label is a {type(label).__name__}, which cannot be hashed. Use text or numbers."
        ) from None
    return cast(Label, label)


def _edge(given: object) -> int | float:
    edge = _plain(given)
    if isinstance(edge, bool) or not isinstance(edge, int | float) or not -_MOST_FLOAT <= edge <= _MOST_FLOAT:
        raise DomainError(f"Bins have the edge {given!r}. Edges are integers or floats, and finite.")
    if float(edge) != edge:
        raise DomainError(f"Bins have the edge {edge}, which no float equals. Use an edge that one does.")
    return int(edge) if edge == int(edge) and abs(edge) < 2**53 else float(edge)


def _declared_integer(given: object) -> int:
    number = _plain(given)
    if isinstance(number, bool) or not isinstance(number, int):
        raise DomainError(f"Integers are declared with {given!r}. Give their first, last and step as integers.")
    return number


def _rule(outside: str) -> str:
    if outside not in ("drop", _OTHER):
        raise DomainError(f"The rule for values outside is {outside!r}. Use outside='drop' or outside='other'.")
    return outside


def _refuse_repeats(names: Sequence[str], where: str, advice: str) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise DomainError(f"Attribute {name!r} is twice {where}. {advice}")


@contextmanager
def _naming(name: str) -> Generator[None]:
    """Say which attribute an error is about."""
    try:
        yield
    except DomainError as error:
        raise DomainError(f"Attribute {name!r}: {error}") from None


# Data: whatever it holds, nothing here raises because of it.


def _read(attribute: Attribute, columns: Mapping[str, Column]) -> Codes:
    if isinstance(attribute.values, Merged):
        parts = attribute.values.parts
        return _joined(parts, [_read(part, columns) for part in parts])
    return attribute.encode(columns[attribute.name])


def _joined(attributes: Sequence[Attribute], codes: Sequence[Codes]) -> Codes:
    """The row-major index of each row, −1 where an attribute has dropped it."""
    kept = _kept(codes)
    index = np.zeros(len(kept), np.int64)
    for attribute, code in zip(attributes, codes, strict=True):
        index *= attribute.size
        index += code
    return np.where(kept, index, _DROPPED)


def _kept(codes: Sequence[Codes]) -> npt.NDArray[np.bool]:
    """Which rows no attribute has dropped."""
    if len(set(map(len, codes))) > 1:
        raise DomainError("The columns have different lengths. Give columns of one table.")
    return np.logical_and.reduce([code >= 0 for code in codes])


def _rows(values: Column) -> Sequence[object] | npt.NDArray[np.generic]:
    if isinstance(values, list | tuple):
        return cast(Sequence[object], values)  # not by NumPy, which would make ["a", 1] two texts
    try:
        array = np.asarray(values)
    except Exception:
        raise DomainError("the column cannot be read as an array. Convert it to a NumPy array.") from None
    if array.ndim != 1:
        raise DomainError("the column is not one-dimensional. Give one value a row.")
    return array


def _objects(rows: Sequence[object] | npt.NDArray[np.generic]) -> list[object]:
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "OUST":
        return rows.tolist()
    return list(rows)  # NumPy's scalars: tolist() would make dates plain integers


def _widened(numbers: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
    return numbers.astype({"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}[numbers.dtype.kind])


def _as_int64(numbers: npt.NDArray[Any]) -> tuple[Codes, npt.NDArray[np.bool]]:
    """The elements as int64, and where that is exact; 0 elsewhere."""
    if numbers.dtype.kind == "f":
        exact = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
        exact &= np.floor(np.where(exact, numbers, 0.5)) == numbers
    else:
        exact = np.asarray(numbers <= _INT64_END - 1)
    return np.where(exact, numbers, 0).astype(np.int64), exact


def _as_element(label: Label, dtype: np.dtype[Any]) -> int | float | None:
    """The element of an int64, uint64 or float64 array that equals a label, or None."""
    if not isinstance(label, _NUMBERS):
        return None
    if dtype.kind == "f":
        try:
            element = float(label)
        except OverflowError:
            return None
    elif np.iinfo(dtype).min <= label <= np.iinfo(dtype).max:
        element = int(label)
    else:
        return None
    return element if element == label else None


def _integers(given: object, what: str) -> npt.NDArray[Any]:
    """Codes or indices as an array; Python's integers as objects, since NumPy may round them to floats."""
    try:
        array = given if isinstance(given, np.ndarray) else np.array(given, dtype=object)
    except ValueError:  # ragged
        array = np.empty(0)
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "O" and all(type(n) is int or isinstance(n, np.integer) for n in array.flat):
        return array
    raise DomainError(f"{what} are integers; something else is given. Use codes from encode(), or integers.")


def _key(value: object) -> tuple[type, Label]:
    """What labels are compared by: all numbers are of one kind, all texts of another."""
    kinds = ((_NUMBERS, float), (str, str), (bytes, bytes))
    kind = next((kind for types, kind in kinds if isinstance(value, types)), type(value))
    return kind, cast(Label, value)


def _number(value: object) -> _Number | None:
    """The number that a value is or spells, exactly; None where there is none."""
    if isinstance(value, str):
        if _INTEGER.fullmatch(value):
            return int(value)
        return float(value) if _DECIMAL.fullmatch(value) else None
    plain = _plain(value)
    return plain if isinstance(plain, _NUMBERS) else None


def _plain(value: object) -> object:
    """A number of NumPy's as one of Python's; everything else as it is (durations are no numbers)."""
    if isinstance(value, np.timedelta64) or not isinstance(value, np.bool | np.integer | np.floating):
        return value
    plain = value.item()
    if isinstance(plain, np.floating):  # a long double stays one
        return Fraction(*plain.as_integer_ratio()) if np.isfinite(plain) else float(plain)
    return plain
