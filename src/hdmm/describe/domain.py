"""What a table may contain: attributes, their cells, and how values become cells.

A domain is declared, never learned from data. A value that was not declared is outside, and a public rule says what
happens to its row: it is dropped, or counted in a cell "other". No value in a table causes an exception, and no
message contains a value, a count or the length of a column (security I1, I2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, final, overload

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.base.frozen import assign
from hdmm.base.hints import did_you_mean
from hdmm.base.notebook import Card, NotebookValue
from hdmm.describe.amount import SUM_IT, Amount
from hdmm.describe.attribute import Attribute, Column, Merged, columns, joined, kept_rows, naming
from hdmm.describe.entries import INT64_END, Codes, ColumnLike, Label
from hdmm.describe.numeric import Integers
from hdmm.describe.values import Labels, Values

Indices: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.object_]
Declaration: TypeAlias = "int | range | type[bool] | Sequence[Label] | Values"

_DENSE_LIMIT = 2**31  # cells of a histogram: 16 GiB


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Domain(NotebookValue):
    """The cross product of the declared attributes; cells are numbered in row-major order.

    >>> from hdmm import Bins
    >>> domain = Domain({"sex": ["M", "F"], "age": 115, "income": Bins([0, 10_000, 50_000, 250_000])})
    >>> domain.names, domain.shape, domain.size
    (('sex', 'age', 'income'), (2, 115, 3), 690)
    >>> domain["sex"].labels
    ('M', 'F')

    Amounts are numbers that are added up in tables by attributes. Each is an attribute of three cells (see Amount).

    >>> from hdmm import Amount
    >>> Domain({"sex": ["M", "F"]}, amounts={"wage": Amount(0, 200_000)}).countable
    ('sex',)
    """

    attributes: tuple[Attribute, ...]
    names: tuple[str, ...] = field(compare=False)
    shape: tuple[int, ...] = field(compare=False)
    size: int = field(compare=False)
    grains: tuple[int, ...] = field(compare=False)  # into how many parts each attribute divides a row

    def __init__(
        self,
        attributes: Mapping[str, Declaration] | Iterable[Attribute],
        *,
        amounts: Mapping[str, Amount] | None = None,
    ) -> None:
        given = tuple(_declared(attributes))
        given += tuple(_declared_amounts({} if amounts is None else amounts, given))
        if not given:
            raise DomainError("The domain has no attributes. Declare at least one, as in Domain({'age': 115}).")
        names = tuple(a.name for a in given)
        _refuse_repeats(names, "in the domain", "Give every attribute a different name.")
        _refuse_taken(given)
        shape, grains = tuple(a.size for a in given), tuple(a.values.grain for a in given)
        assign(self, attributes=given, names=names, shape=shape, size=math.prod(shape), grains=grains)

    def __repr__(self) -> str:
        return f"Domain({{{', '.join(f'{a.name!r}: {a.values!r}' for a in self.attributes)}}})"

    def _card(self) -> Card:
        """The attributes and what they may hold."""
        rows = ([a.name, a.values_in_words(), f"{a.size:,}"] for a in self.attributes)
        facts = {"Cells": f"{self.size:,}"}
        return Card("Domain", facts, ["attribute", "values", "cells"], rows, texts=2, total=len(self))

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axis(name)]

    @property
    def countable(self) -> tuple[str, ...]:
        """The names of the attributes by which rows are counted: all but amounts."""
        return tuple(a.name for a in self.attributes if not a.values.divided)

    def axis(self, name: str) -> int:
        """The position of an attribute.

        >>> Domain({"sex": ["M", "F"], "age": 115}).axis("age")
        1
        """
        if name in self.names:
            return self.names.index(name)
        of = column.grouped if (column := columns(self.attributes).get(name)) else None
        if of is not None:
            raise DomainError(
                f"{name!r} is a level of {of.name}, and here an attribute is needed; attributes: "
                f"{', '.join(self.names)}. Name {of.name}, or ask for {name} in SQL or in marginals."
            )
        hint = did_you_mean(str(name), self.names)
        raise DomainError(f"Attribute {name!r} is not in the domain; attributes: {', '.join(self.names)}.{hint}")

    def columns(self, names: Iterable[str], purpose: str) -> tuple[Column, ...]:
        """The columns of these names: attributes, parts of merged ones, and levels.

        DomainError, which mentions the purpose, if there is no such column, or if a name occurs twice.

        >>> tract = Labels(["T1", "T2", "T3"], levels={"county": ["Kent", "Essex", "Kent"]})
        >>> Domain({"sex": ["M", "F"], "tract": tract}).columns(["county"], "counted")[0].codes
        array([0, 1, 0])
        """
        chosen = _listed(names, purpose)
        _refuse_repeats(chosen, f"among the attributes {purpose}", "Name each attribute once.")
        _refuse_amounts([self[name] for name in chosen if name in self.names], "listed by its values")
        own = {a.name: Column(a.name, i, a.values) for i, a in enumerate(self.attributes)}
        known = columns(self.attributes) | own
        for name in chosen:
            if name not in known:
                self.axis(name)  # which raises
        return tuple(known[name] for name in chosen)

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of only these attributes, in the given order.

        >>> Domain({"sex": ["M", "F"], "age": 115, "race": 7}).project(["race", "sex"]).shape
        (7, 2)
        """
        return Domain(self.named(names, "to project on"))

    def merge(self, names: Iterable[str], *, name: str) -> Domain:
        """The domain with these attributes merged into one, which takes the place of the first of them.

        The merged cells are in row-major order of the given names (the first varies slowest), their labels are
        tuples, and encode still reads the original columns.

        >>> domain = Domain({"age": 115, "white": bool, "black": bool}).merge(["white", "black"], name="race")
        >>> domain.shape, domain["race"].labels
        ((115, 4), ((False, False), (False, True), (True, False), (True, True)))
        """
        _refuse_amounts(self.named(names, "to merge"), "merged with other attributes")
        return self.merged_cells(names, name=name)

    def merged_cells(self, names: Iterable[str], *, name: str) -> Domain:
        """`merge` of attributes that may be amounts, whose cells are merged; no data is read by such a domain."""
        parts = self.named(names, "to merge")
        if len(parts) < 2:
            raise DomainError("Merging needs at least two attributes. Name all attributes that become one.")
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

        Indices are int64 if the domain has fewer than 2⁶³ cells, else exact Python integers. O(cells · attributes).

        >>> domain = Domain({"sex": ["M", "F"], "age": 115})
        >>> domain.index((1, 0)), domain.index([(0, 0), (1, 114)])
        (115, array([  0, 229]))
        """
        codes = _integers(cells, "Cells")
        if codes.shape == (0,):
            codes = codes.reshape(0, len(self))
        if codes.ndim == 0 or codes.shape[-1] != len(self):
            raise DomainError(
                f"A cell of this domain has {len(self)} codes, one for each of {', '.join(self.names)}. "
                f"Give the codes along the last axis."
            )
        dtype = self._index_dtype
        flat = np.zeros(codes.shape[:-1], dtype)
        for axis, attribute in enumerate(self.attributes):
            code = codes[..., axis]
            if np.any((code < 0) | (code >= attribute.size)):
                raise DomainError(
                    f"A code of attribute {attribute.name!r} is not between 0 and {attribute.size - 1}. "
                    f"Give codes of rows that encode() kept."
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
            raise DomainError(
                f"A cell index is not between 0 and {self.size - 1}. The domain has {self.size} cells, counted from 0."
            )
        rest = rest.astype(self._index_dtype)
        codes = np.empty((*rest.shape, len(self)), np.int64)
        for axis in reversed(range(len(self))):
            codes[..., axis] = rest % self.shape[axis]
            rest = rest // self.shape[axis]
        return tuple(codes.tolist()) if isinstance(index, int | np.integer) else codes

    def labels(self, cell: int | Sequence[int]) -> tuple[Label, ...]:
        """The labels of one cell, given by its index or by its codes.

        >>> from hdmm import Bins
        >>> domain = Domain({"sex": ["M", "F"], "income": Bins([0, 10_000, 50_000])})
        >>> domain.labels(3), domain.labels((0, 1))
        (('F', '[10000, 50000)'), ('M', '[10000, 50000)'))
        """
        codes = self.cell(cell if isinstance(cell, int) else self.index(cell))
        return tuple(a.label(code) for a, code in zip(self.attributes, codes, strict=True))

    def encode(self, columns: Mapping[str, ColumnLike]) -> Codes:
        """The codes of the rows that are kept, one row each, in the domain's order of attributes.

        Columns that the domain does not name are ignored. A row is left out if it has a value outside an attribute
        declared with outside="drop".

        >>> domain = Domain({"sex": ["M", "F"], "age": Integers(0, 114, outside="other")})
        >>> domain.encode({"sex": ["F", "x", "M"], "age": [30, 40, None]})
        array([[  1,  30],
               [  0, 115]])
        """
        _refuse_amounts(self.attributes, "encoded as cells, because a row is divided between them")
        codes = self._read(columns)
        kept = kept_rows(codes)
        return np.stack([code[kept] for code in codes], axis=1)

    def count(self, columns: Mapping[str, ColumnLike]) -> Codes:
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
        _refuse_amounts(self.attributes, "counted here, because a row is divided between cells; use from_table")
        index = joined(self.attributes, self._read(columns))
        counts = np.bincount(index[index >= 0], minlength=self.size)
        return counts.astype(np.int64, copy=False).reshape(self.shape)

    @property
    def _index_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64) if self.size < INT64_END else np.dtype(np.object_)

    def _read(self, columns: Mapping[str, ColumnLike]) -> list[Codes]:
        there = tuple(columns)
        for name in (name for a in self.attributes for name in a.columns):
            if name not in there:
                raise DomainError(
                    f"Column {name!r} is not in the data; columns: {', '.join(map(str, there)) or 'none'}. "
                    f"Rename the column, or project the domain on the attributes that the data has."
                )
        return [joined(a.parts, [part.encode(columns[part.name]) for part in a.parts]) for a in self.attributes]

    def attribute_over(self, axes: Sequence[int]) -> Attribute:
        """One attribute, or the cells of several as those of one, in the order given.

        >>> Domain({"x": 2, "y": 3}).attribute_over((0, 1)).size
        6
        """
        parts = tuple(self.attributes[i] for i in axes)
        return parts[0] if len(parts) == 1 else Attribute(", ".join(part.name for part in parts), Merged(parts))

    def named(self, names: Iterable[str], purpose: str) -> tuple[Attribute, ...]:
        """The attributes of these names; DomainError, which mentions the purpose, if a name occurs twice."""
        chosen = tuple(self[name] for name in _listed(names, purpose))
        _refuse_repeats([a.name for a in chosen], f"among the attributes {purpose}", "Name each attribute once.")
        return chosen


def _declared(attributes: Mapping[str, Declaration] | Iterable[Attribute]) -> Iterator[Attribute]:
    if isinstance(attributes, Mapping):
        for name, declaration in cast(Mapping[str, Declaration], attributes).items():
            with naming(name):
                values = _values(declaration)
            yield Attribute(name, values)
        return
    for attribute in attributes:
        if not isinstance(attribute, Attribute):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"A domain was given an object of type {type(attribute).__name__}. Give a mapping from names to "
                f"values, as in Domain({{'age': 115}}), or a list of Attribute objects."
            )
        yield attribute


def _declared_amounts(amounts: object, others: Sequence[Attribute]) -> Iterator[Attribute]:
    """Amounts as attributes; DomainError if one is none, or has the name of another attribute or of a level."""
    if not isinstance(amounts, Mapping):
        raise DomainError(
            f"The amounts are given as type {type(amounts).__name__}. Give the bounds of each by its name, as in "
            "amounts={'wage': Amount(0, 200_000)}."
        )
    taken = {level.name: "A level" for a in others for part in a.parts for level in part.values.levels}
    taken |= {column: "An attribute" for a in others for column in (a.name, *a.columns)}
    for name, amount in amounts.items():
        if name in taken:
            raise DomainError(
                f"Amount {name!r}: {taken[name]} has this name. Give the amount another, and name its column in "
                f"columns, as in columns = {{ {name}_amount = {str(name)!r} }}."
            )
        if not isinstance(amount, Amount):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"Amount {name!r} is declared with a value of type {type(amount).__name__}. Give its bounds, as in "
                "Amount(0, 200_000)."
            )
        yield Attribute(name, amount)


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
        raise DomainError(f"it is declared with the value {declaration}. Use the type bool, or a list of labels.")
    raise DomainError(
        f"it is declared with a value of type {type(declaration).__name__}. Use a size such as 115, a range, "
        f"a list of labels, Bins([…]), Integers(…), Labels([…]) or the type bool."
    )


def _listed(names: Iterable[str], purpose: str) -> list[str]:
    if isinstance(names, str):
        raise DomainError(f"The attributes {purpose} were given as the text {names!r}. Give a list: [{names!r}].")
    return list(names)


def _refuse_repeats(names: Sequence[str], where: str, advice: str) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise DomainError(f"Attribute {name!r} occurs twice {where}. {advice}")


def _refuse_taken(attributes: Sequence[Attribute]) -> None:
    """Refuse levels whose name another column has: SQL names levels as columns."""
    taken = {*(a.name for a in attributes), *(name for a in attributes for name in a.columns)}
    for part, level in [(p, level) for a in attributes for p in a.parts for level in p.values.levels]:
        if level.name in taken:
            raise DomainError(
                f"Level {level.name!r} of attribute {part.name!r} has the name of another attribute or level. Give "
                f"every level a name of its own. If the data has a column {level.name!r}, leave it out of the domain."
            )
        taken.add(level.name)


def _refuse_amounts(attributes: Iterable[Attribute], what: str) -> None:
    for attribute in attributes:
        if attribute.values.divided:
            raise DomainError(f"{attribute.name!r} is an amount, which cannot be {what}. {SUM_IT}")


def _integers(given: object, what: str) -> npt.NDArray[Any]:
    """Codes or indices as an array; Python integers stay objects, because NumPy may round them to floats."""
    try:
        array = given if isinstance(given, np.ndarray) else np.array(given, dtype=object)
    except ValueError:  # ragged
        array = np.empty(0)
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "O" and all(type(n) is int or isinstance(n, np.integer) for n in array.flat):
        return array
    raise DomainError(f"{what} must be integers, but something else was given. Use codes from encode(), or integers.")
