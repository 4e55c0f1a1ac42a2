"""A strategy rounded to integers: exact answers and exact sensitivity (security S1, S2; docs/security.md).

Every factor A becomes an integer matrix Â ≈ q·A. Block j is then measured as r_j·Â_j x + Z_j, with integers throughout:
its share w_j of the privacy comes from its weight θ_j, and the scale of Z_j from the exact privacy loss of one person.
The strategy that is answered from, and whose error is reported, is the rounded one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import TypeVar, final

import numpy as np

from hdmm.cores import spread
from hdmm.error import unit_error
from hdmm.exceptions import MatrixError, StrategyError
from hdmm.matrix import (
    AllIntervals,
    Array,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Forest,
    Haar,
    Intervals,
    Kron,
    Matrix,
    Nested,
    Ones,
    Permuted,
    Residual,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    to_dense,
)
from hdmm.matrix.checks import frozen
from hdmm.matrix.extended import column_scale, entries_of, refilled
from hdmm.matrix.norms import Order
from hdmm.privacy import Noise, Privacy, PureDP, Unit
from hdmm.strategy.base import Strategy
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.form import NoClosedFormError
from hdmm.workload import Workload

T = TypeVar("T")
R = TypeVar("R")

MAX_ANSWER = 2**60
"""The largest exact answer: noise of any size below 2⁶² is added to it in int64, and the sum is clamped to ±2⁶¹."""

LEAST_SCALE = 64
"""The least noise, in steps of the lattice: margins of error are one step wider, which matters if noise is small."""

_BITS = (8, 10, 12, 14, 16)  # tried in turn until rounding costs less than _COST
_FEWER_BITS = (6, 5, 4, 3)  # tried if 8 do not fit MAX_ANSWER
_FEWEST_ROWS = 2**24  # the least assumed, so that factors leave room for noise, whose scale is at most 2⁵²
_COST = 1e-3  # as a fraction of the error
_SMALL = 16  # the largest q tried that may make all entries whole
_LARGEST_DENSE = 2**27  # entries of a factor that has to be written out
_SLAB = 2**16  # numbers worked on at a time: 0.5 MiB per thread, which stay in its cache
_TOGETHER = 2**15  # numbers of blocks that are answered together


@final
@dataclass(frozen=True, eq=False)
class Lattice:
    """A strategy of integer factors; a block's weight is its share of the privacy, exact as a fraction.

    >>> from hdmm import Domain
    >>> from hdmm.matrix import PIdentity
    >>> domain = Domain({"age": 3})
    >>> half = Strategy(domain, (Block(0.5, [(0, PIdentity([[1.0, 1.0, 1.0]]))]), Block(0.5, ())))
    >>> lattice = Lattice.of(half, Noise.LAPLACE)
    >>> to_dense(lattice.blocks[0].factors[0][1]).astype(int).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    >>> lattice.scales(PureDP(1))
    (Fraction(4, 1), Fraction(2, 1))
    """

    strategy: Strategy

    @classmethod
    def of(
        cls,
        strategy: Strategy,
        noise: Noise,
        *,
        max_rows: int = 2**32,
        workload: Workload | None = None,
        bits: int | None = None,
    ) -> Lattice:
        """The strategy with factors rounded to `bits`, or to as many bits as the error on the workload needs.

        Answers stay below MAX_ANSWER for any table of at most `max_rows` rows. If 8 bits are too many for that, fewer
        are used; if 3 are too many, StrategyError says so. 0/1 factors cost no bits.
        """
        _check_rows(max_rows)
        found, cost = None, math.inf
        for b in (*_BITS, *_FEWER_BITS) if bits is None else (bits,):
            if bits is None and found is None and b > _BITS[0]:
                continue  # if 8 do not fit, more do not
            lattice = cls(_rounded_strategy(strategy, b))
            if max(lattice.largest_answers(max(max_rows, _FEWEST_ROWS))) <= MAX_ANSWER:
                found, cost = lattice, _cost(lattice.strategy, strategy, workload, noise)
            if found is not None and (cost <= _COST or found is not lattice or not _BITS[0] <= b < _BITS[-1]):
                break  # it costs little, or more bits do not fit, or there are no more
        if found is None:
            raise StrategyError(
                f"Answers of this strategy on a table of {max_rows:,} rows could exceed 2**60, even with few bits per "
                "factor. Declare a smaller max_rows, or use a strategy over fewer attributes."
            )
        if math.isinf(cost):
            raise StrategyError(
                "Rounded to integers, the strategy no longer measures everything that the workload asks for: entries "
                "of a factor differ too much in size. Measure the small ones in a block of their own."
            )
        return found

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, with factors of integers."""
        return self.strategy.blocks

    def scales(self, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
        """The noise of each block before its resolution: Laplace's scale s_j, or Gauss's σ_j².

        With s_j = t/w_j the privacy loss of one row in cell c is Σ_j w_j‖Â_j e_c‖₁/t, whose largest over all cells,
        for all rows of a person, is ε at this t. Likewise Σ_j w_j²‖Â_j e_c‖₂²/(2τ) = ρ at σ_j² = τ/w_j².
        """
        order = privacy.noise.order
        people = (unit or Unit()).factor(privacy.noise, signed=self.signed)
        shares = once_each(lambda weight: Fraction(weight) ** order, self._weights)
        loss = self._largest_norm(shares, order) * people
        if loss == 0:
            raise StrategyError("Every block of the strategy is 0, so it measures nothing. Give it a query.")
        budget = privacy.epsilon if isinstance(privacy, PureDP) else 2 * privacy.rho
        return tuple(once_each(lambda share: loss / (budget * share), shares))

    def loss(self, scales: Sequence[Fraction], noise: Noise, unit: Unit) -> Fraction:
        """The ε or ρ of measuring with noise of these scales: what a release really spends, from its factors.

        >>> from hdmm import Domain
        >>> Lattice(Strategy.identity(Domain({"age": 3}))).loss([Fraction(4)], Noise.LAPLACE, Unit())
        Fraction(1, 4)
        """
        people = unit.factor(noise, signed=self.signed)  # MatrixError if a factor has entries that are not integers
        return self._largest_norm(once_each(lambda s: 1 / s, scales), noise.order) * people / noise.order

    def largest_answers(self, max_rows: int) -> tuple[int, ...]:
        """A bound on |Âx| of each block, for tables of at most `max_rows` rows: max_rows · Π max|Â_i|."""
        table = self.strategy.table
        largest = table.products([self._largest[A] for _, A in table.distinct])
        return tuple([max_rows * entry for entry in largest.tolist()])

    @cached_property
    def signed(self) -> bool:
        """Whether an entry is below 0."""
        return any(entries(A)[0] < 0 for A in self._largest)

    @property
    def _weights(self) -> list[float]:
        """The weights of the blocks; equal ones are one object."""
        known: dict[float, float] = {}
        return [known.setdefault(weight, weight) for weight in self.strategy.table.weights.tolist()]

    @cached_property
    def _largest(self) -> dict[Matrix, int]:
        """max |Â| of every distinct factor."""
        return {A: max(map(abs, entries(A))) for A in _distinct(self.strategy)}

    def _largest_norm(self, coefficients: Sequence[Fraction], order: Order) -> Fraction:
        """max over the cells c of Σ_j coefficient_j·‖Â_j e_c‖, the L1 norm or the squared L2 norm; exact."""
        found = self.strategy.largest_norm(coefficients, order)
        if isinstance(found, float):
            raise StrategyError("The sensitivity of a factor is not exact. Round the strategy to integers first.")
        return Fraction(found)


def once_each(function: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """[function(value) for value in values], called once for each object: 166,751 blocks share few scales and weights.

    >>> once_each(print, ["a"] * 3)
    a
    [None, None, None]
    """
    known = {key: function(value) for key, value in {id(value): value for value in values}.items()}
    return [known[id(value)] for value in values]


def resolution(scale: Fraction, noise: Noise) -> int:
    """The least power of 2 by which noise of this scale must be multiplied to look continuous.

    >>> [resolution(Fraction(scale), Noise.LAPLACE) for scale in (1, 100)], resolution(Fraction(1), Noise.GAUSSIAN)
    ([64, 1], 64)
    """
    r = 1
    while scale * r**noise.order < LEAST_SCALE**noise.order:
        r *= 2
    return r


def exact_answers(factors: Sequence[Matrix], x: Array) -> Array:
    """(⊗ factors) x as int64, for counts x. The bits do not depend on the order of rows or the number of threads.

    All arithmetic is modulo 2⁶⁴ and the same for all tables, so the time it takes reveals nothing about the counts. A
    table within its declared rows has answers below MAX_ANSWER, which are exact; for a table with more rows, the sum
    with noise modulo 2⁶⁴ reveals no more than the sum itself.

    >>> exact_answers([Eye(2), Ones(1, 2)], np.array([[1, 2], [3, 4]]))
    array([3, 7])
    """
    return kron_slabs(factors, x.reshape([A.shape[1] for A in factors]), np.int64)


def exact_answers_of(table: BlockTable, order: Sequence[int], counts: Iterable[Array]) -> list[Array]:
    """`exact_answers` of many blocks, those of the same factors together; the counts come in the given order of blocks.

    100 attributes have 161,700 tables of 1,000 cells, and each array operation on one of them takes as long as on ten.
    """
    found: list[Array] = [np.empty(0, dtype=np.int64)] * len(table)
    factors = list(table.per_block([A for _, A in table.distinct]))
    waiting: dict[tuple[int, ...], list[tuple[int, Array]]] = {}
    for j, x in zip(order, counts, strict=True):
        same = tuple(map(id, factors[j]))
        batch = waiting.setdefault(same, [])
        batch.append((j, x))
        if len(batch) * max(x.size, math.prod([A.shape[0] for A in factors[j]])) >= _TOGETHER:
            _answer(factors[j], waiting.pop(same), found)
    for batch in waiting.values():
        _answer(factors[batch[0][0]], batch, found)
    return found


def _answer(factors: Sequence[Matrix], batch: Sequence[tuple[int, Array]], found: list[Array]) -> None:
    if len(batch) == 1:
        found[batch[0][0]] = exact_answers(factors, batch[0][1])
        return
    together = exact_answers([Eye(len(batch)), *factors], np.stack([x for _, x in batch]))
    for (j, _), y in zip(batch, together.reshape(len(batch), -1), strict=True):
        found[j] = y


def kron_slabs(factors: Sequence[Matrix], x: Array, dtype: type[np.int64] | type[np.float64]) -> Array:
    """(⊗ factors) x, flat, in little memory besides x and the result: slabs of the first axis, then it in place.

    >>> kron_slabs([Ones(1, 2), Eye(2)], np.array([[1, 2], [3, 4]]), np.float64)
    array([4., 6.])
    """
    if not factors:
        return x.reshape(1).astype(dtype)
    head, *tail = factors
    m, n = head.shape
    rest = Kron(tuple(tail)) if tail else Eye(1)
    outer, inner = rest.shape
    flat = x.reshape(n, inner)
    out = np.empty((max(m, n), outer), dtype=dtype)
    rows, columns = max(1, _SLAB // max(inner, outer)), max(1, _SLAB // max(m, n))

    def along_the_rest(start: int) -> None:
        stop = min(start + rows, n)
        slab = flat[start:stop].astype(dtype, copy=False)
        out[start:stop] = rest.along(slab[:, :, None])[:, :, 0]

    def along_the_first(start: int) -> None:
        piece = np.ascontiguousarray(out[:n, start : start + columns])
        out[:m, start : start + columns] = head.along(piece[None])[0]

    spread(along_the_rest, range(0, n, rows))
    if not isinstance(head, Eye):
        spread(along_the_first, range(0, outer, columns))
    # In place, which drops the rows below: they hold exact values that are not released.
    out.resize(m * outer, refcheck=False)
    return out


def entries(A: Matrix) -> tuple[int, int]:
    """(least, largest) entry of a matrix of integers, zeros included; MatrixError if an entry is not an integer.

    >>> entries(ExtendedDiagonal(Dense([[-1, 0]]), [2, 3]))
    (-1, 3)
    """
    match A:
        case Eye() | Ones() | Cumulative() | Intervals() | AllIntervals():
            return 0, 1
        case Haar():
            return -1, 1
        case Residual(n):
            return -min(n - 1, 1), n - 1
        case Dense(array) | Nested(array) | Forest(array):
            return _extent(array)
        case Sparse(csr):
            return _extent(csr.data)
        case ExtendedDiagonal(below, d) if d is not None:
            return _hull(_extent(d), entries(below))
        case Permuted(inner, _):
            return entries(inner)
        case Stack(blocks):
            return _hull(*map(entries, blocks))
        case Scaled(c, inner) if isinstance(c, int):
            return _hull(*(c * e for e in entries(inner)))
        case RowScaled(weights, inner):
            return _hull(*(w * e for w in _extent(weights) for e in entries(inner)))
        case Kron(factors):
            least, largest = 0, 1
            for pair in map(entries, factors):
                least, largest = _hull(*(a * b for a in (least, largest) for b in pair))
            return least, largest
        case _:
            raise MatrixError(f"The entries of a {type(A).__name__} are not integers. Round it first.")


def _extent(array: Array) -> tuple[int, int]:
    if array.dtype.kind == "f":
        raise MatrixError("The entries are floats. Round them to integers first.")
    return (min(int(array.min()), 0), max(int(array.max()), 0)) if array.size else (0, 0)


def _hull(*values: int | tuple[int, int]) -> tuple[int, int]:
    flat = [0, *(v for value in values for v in (value if isinstance(value, tuple) else (value,)))]
    return min(flat), max(flat)


@singledispatch
def rounded(A: Matrix, bits: int) -> tuple[Matrix, float]:
    """(Â, q): integers with Â ≈ q·A. Matrices of integers stay as they are, with q = 1.

    >>> rounded(Dense([[0.25, 0.5]]), 8)[0].array
    array([[1, 2]])
    """
    with suppress(MatrixError):
        entries(A)
        return A, 1.0
    if math.prod(A.shape) > _LARGEST_DENSE:
        raise StrategyError(
            f"A factor of shape {A.shape} ({type(A).__name__}) cannot be rounded to integers in place, and is too "
            "large to write out. Use identities with rows below (PIdentity, TreeIdentity) or 0/1 factors."
        )
    array = to_dense(A)
    largest = float(np.abs(array).max()) or 1.0
    for q in range(1, _SMALL + 1):  # hierarchies and wavelets need few levels
        exact = np.rint(q * array / largest)
        if np.allclose(exact, q * array / largest, rtol=0, atol=1e-9):
            return Dense(frozen(exact.astype(np.int64))), q / largest
    q = 2**bits / largest
    return Dense(frozen(np.rint(q * array).astype(np.int64))), q


@rounded.register
def _(A: Scaled, bits: int) -> tuple[Matrix, float]:
    if A.c == 0:
        raise StrategyError("A factor is 0 times a matrix, so it measures nothing. Drop the block.")
    inner, q = rounded(A.inner, bits)
    return inner, q / abs(float(A.c))  # a sign changes nothing, because answers are computed from Â itself


@rounded.register
def _(A: Permuted, bits: int) -> tuple[Matrix, float]:
    inner, q = rounded(A.inner, bits)
    return Permuted(inner, A.index), q


@rounded.register
def _(A: ExtendedDiagonal, bits: int) -> tuple[Matrix, float]:
    if A.order is None:
        return rounded.dispatch(Matrix)(A, bits)
    theta = entries_of(A.below)
    scale = column_scale(theta, A.order)
    if A.order == 1:
        diagonal, below, q = _columns(theta, scale, bits)
    else:
        q = 2.0**bits
        below = np.rint(q * theta / scale).astype(np.int64)
        diagonal = np.maximum(np.rint(q / scale), 1).astype(np.int64)
    return ExtendedDiagonal(refilled(A.below, below), diagonal), q


def _columns(theta: Array, scale: Array, bits: int) -> tuple[Array, Array, float]:
    """The diagonal and the rows below of q·[I; Θ]/s as integers; every column sums to exactly q.

    Entries with the largest remainders are rounded up and the others down, so that the sums hold; the diagonal is at
    least 1. O(np log p). If a small q makes all entries whole, as for Θ = 1, that q is used.
    """
    small = int(np.rint(scale.max()))
    if small <= _SMALL and (scale == small).all() and (theta == np.rint(theta)).all():
        return frozen(np.ones(scale.size, dtype=np.int64)), frozen(theta.astype(np.int64)), float(small)
    q = 2**bits
    diagonal = np.maximum(np.rint(q / scale), 1).astype(np.int64)
    largest = theta.max(axis=0, initial=0.0)
    parts = theta / np.where(largest > 0, largest, 1.0)
    # What the diagonal leaves is divided in proportion to Θ. Each share is off by some 2⁻⁵⁰ of q, so the floors never
    # sum to more than is available, and what is missing is at most the number of remainders: what was 0 stays 0.
    shares = (q - diagonal) * (parts / np.maximum(parts.sum(axis=0), 1.0))
    below = np.floor(shares).astype(np.int64)
    missing = q - diagonal - below.sum(axis=0)
    order = np.argsort(np.argsort(below - shares, axis=0, kind="stable"), axis=0, kind="stable")
    below += order < missing
    return frozen(diagonal), frozen(below), float(q)


def _cost(lattice: Strategy, strategy: Strategy, workload: Workload | None, noise: Noise) -> float:
    """What rounding adds to the error, as a fraction of it; 0 if there is no workload or no formula."""
    if workload is None:
        return 0.0
    try:
        before = unit_error(workload, strategy, noise=noise)
        after = lattice.sensitivity(noise) ** 2 * lattice.total_variance(workload)
    except NoClosedFormError:
        return 0.0
    return after / before - 1 if before > 0 else 0.0


def _check_rows(max_rows: int) -> None:
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StrategyError(f"max_rows is {max_rows!r}. Give a whole number above 0 that the rows never exceed.")


def _rounded_strategy(strategy: Strategy, bits: int) -> Strategy:
    factors = {A: rounded(A, bits) for A in _distinct(strategy)}
    if strategy.inference == "none" and any(A is not found for A, (found, _) in factors.items()):
        raise StrategyError(
            "The queries have coefficients that are not integers, so they cannot be measured directly. Use "
            "hdmm.optimize, or baselines.identity."
        )
    table = strategy.table
    weights = table.weights / table.products([factors[A][1] for _, A in table.distinct])
    for j in np.flatnonzero(weights == 0).tolist():
        axes = strategy.blocks[j].axes
        raise StrategyError(
            f"A block over {len(axes)} attributes is too large for integers. Use a strategy over fewer."
        )
    held = tuple([(axes, factors[A][0]) for axes, A in table.distinct])  # each once, shared by all blocks
    return replace(strategy, blocks=replace(table, weights=_short(weights), distinct=held))


def _distinct(strategy: Strategy) -> dict[Matrix, None]:
    """Each matrix once: marginals of 100 attributes have half a million factors of few kinds."""
    return dict.fromkeys(A for _, A in strategy.table.distinct)


def _short(weights: Array) -> Array:
    """The weights to 12 bits: this costs less than 1e-7 of the error, and makes weights equal that should be."""
    mantissas, exponents = np.frexp(weights)
    return np.ldexp(np.rint(mantissas * 2**12), exponents - 12)
