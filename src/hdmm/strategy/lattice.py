"""Lattice: a strategy rounded to integers, with its exact sensitivity (security S1, S2; docs/trust/security.md).

Every factor A becomes an integer matrix Â ≈ q·A (matrix/integers.py). Block j is then measured as r_j·Â_j x + Z_j, with
integers throughout: its share w_j of the privacy comes from its weight θ_j, and the scale of Z_j from the exact privacy
loss of one person. The strategy that is answered from, and whose error is reported, is the rounded one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.product import Attributes
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Matrix, Scaled, scaled
from hdmm.matrix.integers import entries, rounded
from hdmm.matrix.norms import Order
from hdmm.privacy.guarantee import Noise, Privacy, PureDP
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.error import unit_error
from hdmm.strategy.form import NoClosedFormError
from hdmm.strategy.strategy import Strategy

T = TypeVar("T", float, Fraction)
R = TypeVar("R")

MAX_ANSWER = 2**60
"""The largest exact answer: noise of any size below 2⁶² is added to it in int64, and the sum is clamped to ±2⁶¹."""

LEAST_SCALE = 64
"""The least noise, in steps of the lattice: margins of error are one step wider, which matters if noise is small."""

_BITS = (8, 9, 10, 11, 12, 14, 16)  # tried in turn until rounding costs less than _COST
_FEWER_BITS = (7, 6, 5, 4, 3)  # tried if 8 do not fit MAX_ANSWER
_FEWEST_ROWS = 2**24  # the least assumed, so that factors leave room for noise, whose scale is at most 2⁵²
_COST = 1e-3  # as a fraction of the error


@final
@dataclass(frozen=True, eq=False)
class Lattice:
    """A strategy of integer factors; a block's weight is its share of the privacy, exact as a fraction.

    >>> from hdmm import Domain
    >>> from hdmm.matrix import PIdentity, to_dense
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
                "factor. Declare a smaller max_rows or larger steps of amounts, or use fewer attributes at once."
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
        shares = once_each(lambda weight: Fraction(weight) ** order, self.strategy.table.weights.tolist())
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

    def ratios(self, scales: Sequence[Fraction], noise: Noise) -> set[Fraction]:
        """t = s_j·w_j, or τ = σ_j²·w_j², of the blocks: one number, if these scales are those of one measurement."""
        pairs = zip(self.strategy.table.weights.tolist(), (s.as_integer_ratio() for s in scales), strict=True)
        return {Fraction(weight) ** noise.order * Fraction(*scale) for weight, scale in dict.fromkeys(pairs)}

    def largest_answers(self, max_rows: int) -> tuple[int, ...]:
        """A bound on |Âx| of each block, for tables of at most `max_rows` rows: max_rows · Π max|Â_i|."""
        table = self.strategy.table
        largest = table.products([self._largest[A] for _, A in table.distinct])
        return tuple([max_rows * entry for entry in largest.tolist()])

    @cached_property
    def signed(self) -> bool:
        """Whether an entry is below 0."""
        return any(entries(A)[0] < 0 for A in self._largest)

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
    """[function(value) for value in values], called once for each number: 166,751 blocks share few scales and weights.

    >>> once_each(print, [0.5] * 3)
    0.5
    [None, None, None]
    """
    keys = [value.as_integer_ratio() for value in values]  # to hash fractions takes several times as long
    known = {key: function(value) for key, value in dict(zip(keys, values, strict=True)).items()}
    return [known[key] for key in keys]


def resolution(scale: Fraction, noise: Noise) -> int:
    """The least power of 2 by which noise of this scale must be multiplied to look continuous.

    >>> [resolution(Fraction(scale), Noise.LAPLACE) for scale in (1, 100)], resolution(Fraction(1), Noise.GAUSSIAN)
    ([64, 1], 64)
    """
    r = 1
    while scale * r**noise.order < LEAST_SCALE**noise.order:
        r *= 2
    return r


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
    grains = [_grain(strategy, axes) for axes, _ in table.distinct]
    scales = [factors[A][1] * grain for (_, A), grain in zip(table.distinct, grains, strict=True)]
    weights = table.weights / table.products(scales)
    for j in np.flatnonzero(weights == 0).tolist():
        axes = strategy.blocks[j].axes
        raise StrategyError(
            f"A block over {len(axes)} attributes is too large for integers. Use a strategy over fewer."
        )
    held = [(axes, scaled(grain, factors[A][0])) for (axes, A), grain in zip(table.distinct, grains, strict=True)]
    distinct = tuple(held)  # each once, shared by all blocks
    return replace(strategy, blocks=replace(table, weights=short_weights(weights), distinct=distinct))


def on_parts(strategy: Strategy) -> BlockTable:
    """The blocks of a lattice as they are applied to counts of parts of rows, into which amounts divide them.

    Answers are of rows, so its factors on amounts are multiples of the number of parts: y = (m·Â)x = Â(m·x).
    """
    table = strategy.table
    if not any(attribute.values.divided for attribute in strategy.domain.attributes):
        return table
    held = [(axes, _divided(A, _grain(strategy, axes))) for axes, A in table.distinct]
    return replace(table, distinct=tuple(held))


def _grain(strategy: Strategy, axes: Attributes) -> int:
    """The parts into which attributes of the strategy divide a row: 1 without amounts."""
    return math.prod([strategy.domain.grains[i] for i in axes])


def _divided(A: Matrix, grain: int) -> Matrix:
    if grain == 1:
        return A
    if not isinstance(A, Scaled) or int(A.c) % grain:
        raise StrategyError("The factors on an amount are no multiples of its steps. Round the strategy to integers.")
    return scaled(int(A.c) // grain, A.inner)


def _distinct(strategy: Strategy) -> dict[Matrix, None]:
    """Each matrix once: marginals of 100 attributes have half a million factors of few kinds."""
    return dict.fromkeys(A for _, A in strategy.table.distinct)


def short_weights(weights: Array) -> Array:
    """The weights to 12 bits: makes weights equal that should be.

    It costs less than 1e-7 of the error where one block is measured, or few cells reach the largest norm; where all do,
    it can cost 1e-4, so that an optimum over all strategies is written with such weights.

    >>> short_weights(np.array([1 / 3]))
    array([0.33337402])
    """
    mantissas, exponents = np.frexp(weights)
    return np.ldexp(np.rint(mantissas * 2**12), exponents - 12)
