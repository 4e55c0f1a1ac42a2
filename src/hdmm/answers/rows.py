"""Rows: made-up persons whose tables are as near to those of a release as its noise allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from hdmm.answers.answers import Answers
from hdmm.answers.table import Framed
from hdmm.base.exceptions import StrategyError
from hdmm.base.lazy import Lazy
from hdmm.base.mixing import fixed_uniforms
from hdmm.base.notebook import Card
from hdmm.base.numbers import many
from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.describe.values import Labels, Values
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.reconstruct.estimate import Estimate, TableEstimate
from hdmm.strategy.blocks import Block
from hdmm.strategy.slabs import kron_slabs

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

INSIDE = "Known only up to its range; the rows of a range are spread evenly over it."
_AMOUNT = "sums do not say which row has which part of them"
_UNMEASURED = "nothing was measured about it"
_STREAM = 1 << 40  # of the places in bins


@final
@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of rows: its name, what it holds (text, whole numbers, numbers or truth values), and a remark."""

    name: str
    kind: str
    values: str
    remark: str = ""


@final
@dataclass(frozen=True, slots=True)
class Closeness:
    """How far the rows are from what was measured of some attributes, in standard deviations of its noise.

    Rows as near as the truth itself have a `typical` of about 1, and a `largest` of 2 to 4.
    """

    attributes: tuple[str, ...]
    numbers: int
    typical: float  # the root of the mean of squares
    largest: float


@final
@dataclass(frozen=True, eq=False)
class SyntheticRows(Framed):
    """Rows over a domain, made from a release and nothing else: each is one of a distribution that fits its tables.

    `codes` has an array for each attribute of the domain. Attributes that nothing was measured about have no column,
    nor have amounts, because the sums that were measured do not say which row has which part of them.
    `total` is how many rows the release counts: where there are more or fewer rows, tables are compared in proportion.
    """

    domain: Domain
    codes: tuple[Array, ...]
    total: float
    digest: str | None  # of the release
    measured: tuple[int, ...]  # attributes
    blocks: tuple[Block, ...]  # that were measured
    answers: tuple[Array, ...]  # to them
    answering: Callable[[Workload, Estimate], Answers]  # with the intervals of the release

    def __len__(self) -> int:
        return len(self.codes[0])

    @cached_property
    def estimate(self) -> Estimate:
        """The counts of the rows, in proportion to the total."""
        return TableEstimate(self.domain, self._table)

    def answer(self, workload: Workload) -> Answers:
        """What the rows answer to queries that were measured, with intervals of the release that hold these answers."""
        return self.answering(workload, self.estimate)

    @cached_property
    def closeness(self) -> tuple[Closeness, ...]:
        """How far the rows are from the release, for every set of attributes that was measured together.

        Of what was measured with amounts, which rows do not have, it is the table of the other attributes.
        """
        found: dict[Attributes, list[Array]] = {}
        beside: set[Attributes] = set()
        for block, y in zip(self.blocks, self.answers, strict=True):
            axes = [i for on, _ in block.factors for i in on]
            listed = tuple(sorted(i for i in axes if not self.domain.attributes[i].values.divided))
            if len(listed) < len(axes):
                beside.add(listed)
                continue
            seen = kron_slabs([A for _, A in block.factors], self._table_of(axes), np.float64)
            found.setdefault(listed, []).append(block.weight * (seen - y.ravel()))
        for axes in beside - found.keys():
            found |= self._off(axes)
        names = self.domain.names
        each = (
            (axes, np.concatenate(z)) for axes, z in sorted(found.items(), key=lambda held: (len(held[0]), held[0]))
        )
        return tuple(
            Closeness(tuple(names[i] for i in axes), len(z), float(np.sqrt(np.mean(z**2))), float(np.abs(z).max()))
            for axes, z in each
        )

    def _off(self, axes: Attributes) -> dict[Attributes, list[Array]]:
        """The distances of a whole table from its estimates; none if these have no noise, or were not measured."""
        with suppress(StrategyError):
            table = Product(self.domain, tuple((i, Identity()) for i in axes))
            found = self.answer(Workload(self.domain, (table,)))
            noisy = np.isfinite(found.stddev) & (found.stddev > 0)
            z = (found.counts - found.centre)[noisy] / found.stddev[noisy]
            return {axes: [z]} if z.size else {}
        return {}

    @cached_property
    def columns(self) -> tuple[RowColumn, ...]:
        """The columns and what they hold."""
        return tuple(_described(name, values) for name, values, _ in self._held())

    @property
    def left_out(self) -> dict[str, str]:
        """The attributes that have no column, and why."""
        return {
            attribute.name: _AMOUNT if attribute.values.divided else _UNMEASURED
            for i, attribute in enumerate(self.domain.attributes)
            if attribute.values.divided or i not in self.measured
        }

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table: a column per attribute, and one per level of it. O(rows · columns)."""
        arrays = {name: _array(k, values, codes) for k, (name, values, codes) in enumerate(self._held())}
        facts = {"hdmm": "synthetic rows", "release": self.digest or ""}
        return pa.table(arrays, metadata=facts)

    def _held(self) -> Iterator[tuple[str, Values, Array]]:
        """Every column, its values and its codes; attributes that were merged are as they are read."""
        for i in (i for i in self.measured if not self.domain.attributes[i].values.divided):
            rest, codes = self.domain.attributes[i].size, self.codes[i].astype(np.int64)
            for part in self.domain.attributes[i].parts:
                rest //= part.size
                here = codes // rest % part.size
                yield part.name, part.values, here
                for level in part.values.levels:
                    groups, of = part.values.level(level.name)
                    yield level.name, groups, of[here]

    def _table(self, product: Product) -> tuple[Attributes, Array]:
        return product.axes, self._table_of(product.axes)

    def _table_of(self, axes: Sequence[int]) -> Array:
        shape = [self.domain.shape[i] for i in axes]
        cells = np.ravel_multi_index([self.codes[i] for i in axes], shape) if axes else np.zeros(len(self), np.int64)
        counts = np.bincount(cells, minlength=int(np.prod(shape))) * (self.total / len(self))
        return counts.reshape(shape)

    def __repr__(self) -> str:
        return f"SyntheticRows({many(len(self), 'row')} of {many(len(self.measured), 'attribute')})"

    def _card(self) -> Card:
        facts = {"Rows": f"{len(self):,}", "Made from": "a release; none is a person"}
        rows = ([c.name, c.kind, c.values, c.remark] for c in self.columns)
        return Card(
            "Synthetic rows", facts, ["column", "kind", "values", "remark"], rows, texts=4, total=len(self.columns)
        )


def _described(name: str, values: Values) -> RowColumn:
    shown = Attribute(name, values).values_in_words()
    shown = shown.lower() if _kind(values) == "truth values" else shown  # as they are in files
    remark = INSIDE if isinstance(values, Bins) and values.values is None else ""
    if _kind(values) != "text" and values.outside == "other":
        remark = f"{remark} A missing value is any other.".strip()
    return RowColumn(name, _kind(values), shown, remark)


def _kind(values: Values) -> str:
    match values:
        case Integers():
            return "whole numbers" if -(2**63) <= values.first <= values.last < 2**63 else "text"
        case Bins():
            exact = values.values or values.edges
            return "whole numbers" if all(isinstance(each, int) for each in exact) else "numbers"
        case Labels():
            kinds = {type(label) for label in values.values}
            if kinds == {int} and max(map(abs, values.values)) < 2**63:  # pyright: ignore[reportArgumentType]
                return "whole numbers"
            return "truth values" if kinds == {bool} else "numbers" if kinds == {float} else "text"
        case _:
            return "text"


def _array(stream: int, values: Values, codes: Array) -> pa.Array | pa.ChunkedArray:
    """A column of this many codes, in the type that its values have; any other value than those is missing."""
    kind = _kind(values)
    if kind == "text":
        labels = pa.array([str(values.label(code)) for code in range(values.size)], pa.string())
        return pa.DictionaryArray.from_arrays(codes.astype(np.int32), labels)
    types = {"whole numbers": "int64", "numbers": "float64", "truth values": "bool"}
    if isinstance(values, Bins) and values.values is None:
        other = codes >= len(values.edges) - 1
        numbers = _inside(values, np.where(other, 0, codes), stream)
        whole = numbers.astype(np.int64) if kind == "whole numbers" else numbers
        held = whole.astype(object)
        held[other] = None
        return pa.array(held, pa.type_for_alias(types[kind]))
    declared = values.size - (values.outside == "other")
    labels = list(values.values or ()) if isinstance(values, Bins) else [values.label(code) for code in range(declared)]
    labels += [None] * (values.size - declared)
    dictionary = pa.array(labels, pa.type_for_alias(types[kind]))
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), dictionary).dictionary_decode()


def _inside(values: Bins, codes: Array, stream: int) -> Array:
    """A number in the bin of each row: the m rows of a bin are spread evenly over it, in a fixed order."""
    n = len(codes)
    order = np.lexsort((fixed_uniforms(n, stream=_STREAM + stream), codes))
    counts = np.bincount(codes)
    rank = np.empty(n)
    rank[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = np.array(values.edges, dtype=np.float64)
    low, high = edges[codes], edges[codes + 1]
    found = low + (high - low) * (rank + 0.5) / counts[codes]
    return np.minimum(found, np.nextafter(high, low))
