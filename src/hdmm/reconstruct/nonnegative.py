"""Estimates without negative counts, or in whole numbers: they are biased, and only made on request.

Over up to 134 million measured cells this is least squares over all x ≥ 0 with the estimated total, and every table
comes from that one x. Beyond, tables over the measured sets of attributes are fitted so that they agree with each
other (agreeing.py). The total is kept because least squares would raise it: every cell whose noise is below 0 is
raised and few are lowered, and on 1.5 million cells that adds a quarter to a total that is known to 0.5 %. Beside known
counts, these are measurements of large weight, which proportional fitting (fitted.py) makes exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.steps import shown_steps
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.reconstruct.agreeing import agreeing_tables, maximal
from hdmm.reconstruct.estimate import Estimate, in_cells
from hdmm.reconstruct.fitted import MOST_FITTED, fitted, groupings
from hdmm.reconstruct.information import Information
from hdmm.reconstruct.known import Known, KnownEstimate
from hdmm.reconstruct.least_squares import as_measured
from hdmm.reconstruct.whole_numbers import rounded
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.error import check_support
from hdmm.strategy.form import Direct, Form, NoClosedFormError, NoForm
from hdmm.strategy.informed import WithExactBlocks
from hdmm.strategy.orthogonal import Orthogonal

MOST_CELLS = 1 << 27
"""Up to which x is found whole: some ten arrays of 1 GiB."""
MOST_TRANSPORTED = 1 << 16
"""Up to which x is rounded beside two known tables: a linear program of seconds."""

_MOST_JOINED = 1 << 22  # cells of attributes that blocks join in many ways: the largest tables then take less time
_HEAVY = 10.0  # times the largest weight: known counts among measurements where only a penalty can be had
_WORK = 1 << 28  # cells times steps, which are fewer on large domains, within the two bounds below
_LEAST_STEPS, _MOST_STEPS = 150, 5000
_TOLERANCE = 1e-8  # per cell, and at most the next, of the standard deviation of a measurement (root mean square)
_LARGEST_TOLERANCE = 0.02
_CHECKED = 10  # steps between looks at how far it is
_RELAXED = 1.8  # over-relaxation: 1.6 takes a third more steps
_LONG = 1 << 18  # cells from which on progress is shown


@singledispatch
def nonnegative(
    form: Form, answers: Sequence[Array], units: Sequence[float], estimate: Estimate, known: Sequence[Known] = ()
) -> Estimate:
    """An estimate with no count below 0, from the same measurements as the unbiased `estimate`.

    >>> from hdmm.matrix import Eye
    >>> from hdmm.reconstruct.least_squares import reconstruct
    >>> from hdmm.strategy.strategy import Strategy
    >>> domain = Domain({"x": 3})
    >>> form = Strategy(domain, (Block(1.0, [(0, Eye(3))]),)).form
    >>> raw = reconstruct(form, [np.array([5, 4, -1])], [1.0])
    >>> found = nonnegative(form, [np.array([5, 4, -1])], [1.0], raw)
    >>> found.values(Workload.marginals(domain, k=1).products[0]).round(6)
    array([4.5, 3.5, 0. ])
    """
    check_nonnegative(form, integers=False)
    total, cells = estimated_total(form, estimate), _Cells.of(form.domain, form.blocks)
    if cells.size > MOST_CELLS:
        return agreeing_tables(form, form.domain, cells.tables, estimate, total)
    X = cells.information
    return cells.estimate(nonnegative_cells(X, X.transposed(answers, units), total))


@nonnegative.register
def _(
    form: Direct, answers: Sequence[Array], units: Sequence[float], estimate: Estimate, known: Sequence[Known] = ()
) -> Estimate:
    """Queries measured one by one; an answer below 0 becomes 0."""
    return as_measured(form, [np.maximum(y * unit, 0.0) for y, unit in zip(answers, units, strict=True)])


@nonnegative.register
def _(
    form: Orthogonal, answers: Sequence[Array], units: Sequence[float], estimate: Estimate, known: Sequence[Known] = ()
) -> Estimate:
    if _Cells.of(form.domain, form.blocks).size <= _MOST_JOINED:
        return nonnegative.dispatch(Form)(form, answers, units, estimate, known)
    sets = maximal(tuple(sorted(block.axes)) for block in form.blocks)
    return agreeing_tables(form, form.domain, sets, estimate, estimated_total(form, estimate))


@nonnegative.register
def _(
    form: WithExactBlocks,
    answers: Sequence[Array],
    units: Sequence[float],
    estimate: Estimate,
    known: Sequence[Known] = (),
) -> Estimate:
    """The same with the known counts as measurements of large weight, which proportional fitting makes exact."""
    check_nonnegative(form, integers=False)
    heavy = _HEAVY * max(block.weight for block in form.blocks)
    blocks = (*form.blocks, *(Block(heavy, block.factors) for block in form.known_blocks))
    found = nonnegative(NoForm(form.domain, blocks, ""), answers, units, _before_known(estimate))
    return fitted(found, form.domain, _axes(form, known), known)


@singledispatch
def in_integers(
    form: Form, answers: Sequence[Array], units: Sequence[float], found: Estimate, known: Sequence[Known] = ()
) -> Estimate:
    """The nonnegative estimate that was found from a form, in whole numbers that add up to the rounded total."""
    check_nonnegative(form, integers=True)
    cells = _Cells.of(form.domain, form.blocks)
    return cells.estimate(rounded(cells.information, cells.read(found)))


@in_integers.register
def _(
    form: Direct, answers: Sequence[Array], units: Sequence[float], found: Estimate, known: Sequence[Known] = ()
) -> Estimate:
    """Queries measured one by one, each rounded by itself."""
    return as_measured(form, [np.rint(np.maximum(y * unit, 0.0)) for y, unit in zip(answers, units, strict=True)])


@in_integers.register
def _(
    form: WithExactBlocks,
    answers: Sequence[Array],
    units: Sequence[float],
    found: Estimate,
    known: Sequence[Known] = (),
) -> Estimate:
    """The same beside one known table or two, whose sums stay; check_nonnegative says where."""
    check_nonnegative(form, integers=True)
    cells = _Cells.of(form.domain, form.blocks, _axes(form, known))
    return cells.estimate(rounded(cells.information, cells.read(found), *groupings(form.domain, cells.axes, known)))


def check_nonnegative(form: Form, *, integers: bool) -> None:
    """Raise StrategyError if counts of this kind cannot be made from a form; needs no data."""
    if integers and any(attribute.values.divided for attribute in form.domain.attributes):
        raise StrategyError(
            "Amounts divide rows into parts, so that their sums cannot be made from whole numbers of rows. Ask for "
            "nonnegative counts, or for unbiased ones."
        )
    _check(form, integers=integers)


@singledispatch
def _check(form: Form, *, integers: bool) -> None:
    cells = _Cells.of(form.domain, form.blocks)
    if cells.size <= MOST_CELLS:
        return
    if integers:
        raise StrategyError(
            f"Whole numbers that add up in all tables need one table of all measured cells, and these are "
            f"{cells.size:.1e}; the limit is {MOST_CELLS:,}. Ask for nonnegative counts, which agree too, or for "
            "tables over fewer attributes."
        )
    sizes = [math.prod(form.domain.shape[i] for i in each) for each in cells.tables]
    if sum(sizes) > MOST_CELLS:
        raise StrategyError(
            f"Nonnegative counts need the {len(sizes):,} measured tables with {sum(sizes):.1e} cells in memory; "
            f"the limit is {MOST_CELLS:,}. Ask for unbiased counts, or for tables over fewer attributes."
        )


@_check.register
def _(form: Direct, *, integers: bool) -> None:
    if any(attribute.values.divided for attribute in form.domain.attributes):
        raise StrategyError("Queries that are answered as they are give sums as they are. Ask for unbiased counts.")


@_check.register
def _(form: Orthogonal, *, integers: bool) -> None:
    if integers and _Cells.of(form.domain, form.blocks).size > _MOST_JOINED:
        raise StrategyError(
            f"Whole numbers that add up in all tables need one table, here of more than {_MOST_JOINED:,} cells. Ask "
            "for nonnegative counts, or for unbiased ones."
        )


@_check.register
def _(form: WithExactBlocks, *, integers: bool) -> None:
    if not form.inner.has_cells:
        raise StrategyError(
            "Beside known counts, this plan gives unbiased counts only. Ask for these, or leave out the known ones."
        )
    _check(form.inner, integers=False)
    cells = _Cells.of(form.domain, (*form.blocks, *form.known_blocks))
    tables = len(form.determined or maximal(block.axes for block in form.known_blocks))
    most = {1: MOST_FITTED, 2: MOST_TRANSPORTED}.get(tables, 0)
    if integers and (not cells.groups.trivial or cells.size > most):
        raise StrategyError(
            f"Beside known counts, whole numbers are made if these are one table, on up to {MOST_FITTED:,} cells, or "
            f"two, on up to {MOST_TRANSPORTED:,}, and without predicates on pairs of attributes. Ask for nonnegative "
            "counts, or for unbiased ones."
        )


@final
@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of some attributes, which blocks measure; those of a factor on several are one attribute."""

    groups: AxisGroups
    blocks: BlockTable  # over groups
    axes: tuple[int, ...]  # groups

    @classmethod
    def of(cls, domain: Domain, blocks: Sequence[Block], axes: Sequence[int] = ()) -> _Cells:
        """The cells of all attributes that blocks touch, or of these."""
        table = BlockTable.of(blocks)
        groups = AxisGroups.of(domain, [on for on, _ in table.distinct])
        over = BlockTable.of(groups.blocks(table))
        return cls(groups, over, tuple(axes or sorted({i for on, _ in over.distinct for i in on})))

    @property
    def size(self) -> int:
        """How many there are."""
        return math.prod(self.groups.domain.shape[i] for i in self.axes)

    @property
    def tables(self) -> list[Attributes]:
        """The largest sets of attributes that are measured together, groups as a whole."""
        each = ([i for g in axes for i in self.groups.groups[g]] for axes in self.blocks.axes)
        return maximal(tuple(sorted(axes)) for axes in each)

    @property
    def information(self) -> Information:
        """What the blocks say about the cells."""
        shape, place = self.groups.domain.shape, {axis: k for k, axis in enumerate(self.axes)}
        moved = tuple(Block(b.weight, [(place[i], A) for i, A in b.by_axis.items()]) for b in self.blocks)
        return Information(tuple(shape[i] for i in self.axes) or (1,), moved)  # if only the total was measured, it

    def estimate(self, x: Array) -> Estimate:
        """The estimate that is x on the cells."""
        return in_cells(self.groups.domain, self.axes, x, self.groups)

    def read(self, found: Estimate) -> Array:
        """The cells of an estimate."""
        order = [i for g in self.axes for i in self.groups.groups[g]]
        domain = self.groups.original
        cells = found.values(Product(domain, tuple((i, Identity()) for i in sorted(order))))
        x = cells.reshape([domain.shape[i] for i in sorted(order)])
        return x.transpose([sorted(order).index(i) for i in order]).ravel()


@singledispatch
def _before_known(estimate: Estimate) -> Estimate:
    """The estimate before it was moved so that known counts hold."""
    return estimate


@_before_known.register
def _(estimate: KnownEstimate) -> Estimate:
    return estimate.inner


def _axes(form: WithExactBlocks, known: Sequence[Known]) -> list[int]:
    """The attributes that were measured, or whose counts are known."""
    return sorted({i for block in form.blocks for i in block.axes}.union(*(each.axes for each in known)))


def estimated_total(form: Form, estimate: Estimate) -> float | None:
    """The estimated total, at least 0; None if the measurements do not support it."""
    product = Product(form.domain, (), 1.0)
    try:
        with suppress(NoClosedFormError):
            check_support(Workload(form.domain, (product,)), form)
        return max(float(estimate.values(product)[0]), 0.0)
    except StrategyError:
        return None


def nonnegative_cells(X: Information, y: Array, total: float | None) -> Array:
    """min ½xᵀXx − yᵀx over x ≥ 0 with this total.

    By the alternating direction method of multipliers: x solves the equations, z meets the conditions, and u adds up
    how they differ. ρ rises while z lags behind x (in units of the noise), which halves the number of steps.
    """
    cells = math.prod(X.shape)
    if total == 0:
        return np.zeros(cells)
    most = min(max(_WORK // cells, _LEAST_STEPS), _MOST_STEPS)
    goal = min(_TOLERANCE * cells, _LARGEST_TOLERANCE) ** 2 * X.rows
    rho, threshold = 4 * X.mean, 0.0
    solve = X.inverse(rho)
    x = z = seen = np.full(cells, 0.0 if total is None else total / cells)
    u = np.zeros(cells)
    with shown_steps("Fitting nonnegative counts", most, long=cells >= _LONG) as advance:
        for step in range(1, most + 1):
            x = solve(y + rho * (z - u), x)
            v = _RELAXED * x + (1 - _RELAXED) * z + u
            threshold = 0.0 if total is None else simplex_threshold(v, total, threshold)
            z = np.maximum(v - threshold, 0.0)
            u = v - z
            advance()
            if step % _CHECKED == 0:
                apart, moved = X.squared(x - z), X.squared(z - seen)
                seen = z
                if max(apart, moved) <= goal:
                    break
                change = min(max((4 * apart / moved) ** 0.25, 0.5), 2.0) if moved > 0 else 2.0
                if step < most / 2 and abs(math.log(change)) > 0.25:
                    rho, u = rho * change, u / change
                    solve = X.inverse(rho)
    # Of a total that is lost in the rounding of the answers, no cell has any.
    return z if total is None or not z.any() else z * (total / z.sum())


def simplex_threshold(x: Array, total: float, start: float = -np.inf) -> float:
    """τ with Σ max(x − τ, 0) = total > 0. O(n) per step, and few: Newton's method on a piecewise linear function.

    max(x − τ, 0) is the nearest point to x with no entry below 0 and this sum.

    >>> simplex_threshold(np.array([3.0, 1.0, -1.0]), 3.0)
    0.5
    """
    kept = x[x > start]
    if float(np.sum(kept - start)) < total:  # the start is above τ, or none was given
        kept, start = x, -np.inf
    while len(kept):
        found = (float(kept.sum()) - total) / len(kept)
        if found <= start:
            break
        start = found
        kept = kept[kept > found]
    return start
