"""Block: one weighted product of matrices; BlockTable: many of them as arrays."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, final, overload

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes
from hdmm.matrix import Array, Kron, Matrix, Ones, Scaled, Stack

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, init=False)
class Block:
    """θ · ⊗ A over attributes; a factor may sit on several, whose cells it takes in row-major order.

    `factors` holds pairs (axes, matrix), with each attribute at most once; attributes left out are totalled. A single
    axis may be given as its number.

    >>> Block(0.5, [(0, Ones(1, 2))]).factors, Block(1.0, [((1, 2), Ones(1, 6))]).axes
    ((((0,), Ones(m=1, n=2)),), (1, 2))
    """

    weight: float
    factors: tuple[tuple[Attributes, Matrix], ...]

    def __init__(self, weight: float, factors: Iterable[tuple[int | Attributes, Matrix]]) -> None:
        object.__setattr__(self, "weight", weight)
        held = tuple([f if type(f[0]) is tuple else ((f[0],), f[1]) for f in factors])  # shared with the giver's
        object.__setattr__(self, "factors", held)

    @property
    def axes(self) -> Attributes:
        """All attributes that are not totalled, in the order of the factors."""
        return tuple([i for axes, _ in self.factors for i in axes])

    @property
    def by_axis(self) -> dict[int, Matrix]:
        """The factor of each attribute, if each sits on one."""
        return {i: A for (i,), A in self.factors}

    @property
    def rows(self) -> int:
        """How many queries it has."""
        return math.prod([A.shape[0] for _, A in self.factors])


@final
@dataclass(frozen=True, eq=False)
class BlockTable(Sequence[Block]):
    """Blocks as arrays, so that what holds for a factor is worked out once: 100 attributes have 166,751 blocks of few.

    The factors of block j are those numbered numbers[starts[j]:starts[j + 1]]. The blocks themselves are made when one
    of them is asked for.
    """

    weights: Array
    starts: Array
    numbers: Array
    distinct: tuple[tuple[Attributes, Matrix], ...]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> BlockTable:
        """The table of some blocks. O(factors)."""
        if isinstance(blocks, BlockTable):
            return blocks
        found: dict[tuple[Attributes, Matrix], int] = {}
        held = [found.setdefault(factor, len(found)) for block in blocks for factor in block.factors]
        starts, numbers = np.cumsum([0, *(len(block.factors) for block in blocks)]), np.array(held, dtype=np.int64)
        table = cls(np.array([block.weight for block in blocks]), starts, numbers, tuple(found))
        table.__dict__["blocks"] = tuple(blocks)
        return table

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks, one object each."""
        weights, each = self.weights.tolist(), self.per_block(self.distinct)
        return tuple([Block(weight, factors) for weight, factors in zip(weights, each, strict=True)])

    def per_block(self, values: Sequence[T]) -> Iterator[list[T]]:
        """For each block, what its factors have; each distinct one has a value."""
        held, starts = [values[k] for k in self.numbers.tolist()], self.starts.tolist()
        return (held[a:b] for a, b in itertools.pairwise(starts))

    def __len__(self) -> int:
        return len(self.weights)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...
    def __getitem__(self, index: int | slice) -> Block | tuple[Block, ...]:
        return self.blocks[index]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    @property
    def axes(self) -> list[Attributes]:
        """All attributes of each block that are not totalled, in the order of its factors."""
        each = self.per_block([axes for axes, _ in self.distinct])
        return [tuple([i for axes in block for i in axes]) for block in each]

    @property
    def of_block(self) -> Array:
        """The block of each of the numbers."""
        return np.repeat(np.arange(len(self.weights)), np.diff(self.starts))

    def products(self, values: Sequence[int | float]) -> Array:
        """Π over the factors of each block; each distinct one has a value; exact for integers."""
        exact = all(isinstance(value, int) for value in values)
        dtype = np.float64 if not exact else np.int64 if self._fits(values) else object
        out = np.ones(len(self.weights), dtype=dtype)
        each = np.array(values, dtype=dtype)
        lengths = np.diff(self.starts)
        for k in range(int(lengths.max(initial=0))):
            out[lengths > k] *= each[self.numbers[self.starts[:-1][lengths > k] + k]]
        return out

    def factors(self, j: int, values: Sequence[T]) -> dict[int, T]:
        """What the factors of a block have, by attribute, where each sits on one."""
        return {self.distinct[k][0][0]: values[k] for k in self.numbers[self.starts[j] : self.starts[j + 1]].tolist()}

    def _fits(self, values: Sequence[int | float]) -> bool:
        most = max((abs(int(value)) for value in values), default=1)
        return max(most, 1) ** int(np.diff(self.starts).max(initial=0)) < 2**63

    def check(self, domain: Domain) -> bool:
        """StrategyError if a block is not one over this domain; else whether all list their attributes in order."""
        for weight in self.weights[~(np.isfinite(self.weights) & (self.weights > 0))].tolist():
            raise StrategyError(f"A block has weight {weight}. Weights are finite and above 0; drop the block?")
        for axes, A in self.distinct:
            _check_factor(axes, A, domain)
        first = np.array([axes[0] for axes, _ in self.distinct], dtype=np.int64)[self.numbers]
        last = np.array([axes[-1] for axes, _ in self.distinct], dtype=np.int64)[self.numbers]
        of = self.of_block
        behind = np.flatnonzero((of[1:] == of[:-1]) & (first[1:] <= last[:-1]))
        for j in np.unique(of[behind]).tolist():
            listed = [i for k in self.numbers[self.starts[j] : self.starts[j + 1]] for i in self.distinct[k][0]]
            if len(set(listed)) < len(listed):
                raise StrategyError(f"A block lists an attribute twice: axes {tuple(listed)}. Give each one factor.")
        return len(behind) == 0


def sharing(table: BlockTable) -> BlockTable:
    """The blocks with equal factors as one object, as files bring them back: then forms find what is the same.

    O(factors), and the entries of those that are alike.
    """
    kinds = [(axes, type(A), A.shape) for axes, A in table.distinct]
    count, first = Counter(kinds), dict[Hashable, Matrix]()
    shared = tuple(
        [
            (axes, A if count[kind] == 1 else first.setdefault((kind, content(A)), A))
            for kind, (axes, A) in zip(kinds, table.distinct, strict=True)
        ]
    )
    is_new = any(A is not B for (_, A), (_, B) in zip(table.distinct, shared, strict=True))
    return replace(table, distinct=shared) if is_new else table


def content(value: object) -> Any:
    """What a matrix holds, as a value that can be looked up; whole numbers are as exact as floats."""
    if isinstance(value, sp.csr_array):
        return value.shape, content(value.indptr), content(value.indices), content(value.data)
    if isinstance(value, Matrix):
        return (type(value).__name__, *(content(getattr(value, f.name)) for f in fields(value)))  # pyright: ignore[reportArgumentType]
    if isinstance(value, np.ndarray):
        return value.shape, value.astype(np.float64).tobytes()
    return tuple(map(content, value)) if isinstance(value, tuple) else value


def _check_factor(axes: Attributes, A: Matrix, domain: Domain) -> None:
    if not axes or axes[0] < 0 or not all(a < b for a, b in itertools.pairwise(axes)):
        raise StrategyError(f"A block lists axes {axes} out of order. List every factor's axes ascending.")
    if axes[-1] >= len(domain):
        raise StrategyError(f"A block lists axis {axes[-1]}; the domain has the axes 0 to {len(domain) - 1}.")
    if A.shape[1] != math.prod(domain.shape[i] for i in axes):
        names = ", ".join(repr(domain.names[i]) for i in axes)
        one = f"Attribute {names} has {domain.shape[axes[0]]} values"
        several = f"Attributes {names} have {math.prod(domain.shape[i] for i in axes)} cells"
        raise StrategyError(f"{one if len(axes) == 1 else several} but a block's matrix has {A.shape[1]} columns.")


def stacked_blocks(shape: Sequence[int], blocks: Sequence[Block]) -> Matrix:
    """The matrix of blocks whose factors sit on one attribute each; `shape` has the sizes of the attributes."""
    totals = [Ones(1, n) for n in shape]
    stacked: list[Matrix] = []
    for block in blocks:
        active = block.by_axis
        kron = Kron(tuple(active.get(i, total) for i, total in enumerate(totals)))
        stacked.append(kron if block.weight == 1 else Scaled(block.weight, kron))
    return stacked[0] if len(stacked) == 1 else Stack(tuple(stacked))
