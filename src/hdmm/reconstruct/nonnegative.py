"""Estimates without negative counts: they are biased, and only made on request.

Over up to 134 million measured cells this is least squares over all x ≥ 0 with the estimated total, and every table
comes from that one x. Beyond, tables over the measured sets of attributes are fitted so that they agree with each
other (agreeing.py). The total is kept because least squares would raise it: every cell whose noise is below 0 is
raised and few are lowered, and on 1.5 million cells that adds a quarter to a total that is known to 0.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.steps import shown_steps
from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.reconstruct.agreeing import agreeing_tables, maximal
from hdmm.reconstruct.estimate import CoordinateEstimate, Estimate, GroupedEstimate, in_cells
from hdmm.reconstruct.information import Information
from hdmm.reconstruct.simplex import simplex_threshold
from hdmm.reconstruct.whole_numbers import rounded
from hdmm.strategy.blocks import Block
from hdmm.strategy.coupled import Coupled
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.error import check_support
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.informed import Conditioned, Informed
from hdmm.strategy.iterative import Unknown, Written
from hdmm.strategy.orthogonal import Orthogonal

MOST_CELLS = 1 << 27
"""Up to which x is found whole: some ten arrays of 1 GiB."""
MOST_FITTED = 1 << 22
"""Up to which x is fitted to known counts whole: each of many rounds passes over it several times."""

MOST_TRANSPORTED = 1 << 16
"""Up to which x is rounded beside two known tables: a linear program of seconds."""

_WithBlocks: TypeAlias = Coupled | Diagonal | Grid | Written | Unknown

_WORK = 1 << 28  # cells times steps, which are fewer on large domains, within the two bounds below
_LEAST_STEPS, _MOST_STEPS = 150, 5000
_TOLERANCE = 1e-8  # per cell, and at most the next, of the standard deviation of a measurement (root mean square)
_LARGEST_TOLERANCE = 0.02
_CHECKED = 10  # steps between looks at how far it is
_RELAXED = 1.8  # over-relaxation: 1.6 takes a third more steps
_LONG = 1 << 18  # cells from which on progress is shown


@singledispatch
def nonnegative(form: Form, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    """An estimate with no count below 0, from the same measurements as the unbiased `estimate`.

    >>> from hdmm.describe.domain import Domain
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
    raise StrategyError(f"There is no rule for estimates from a {type(form).__name__}. This is a fault of hdmm.")


@nonnegative.register
def _(form: Direct, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    return _Clipped(estimate)


@nonnegative.register
def _(form: Grouped, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    raw = estimate.inner if isinstance(estimate, GroupedEstimate) else estimate
    return GroupedEstimate(form.groups, nonnegative(form.inner, answers, units, raw))


@nonnegative.register
def _(form: Orthogonal, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    return agreeing_tables(form, form.domain, maximal(form.blocks), estimate, _total(form, estimate))


@nonnegative.register(Coupled)
@nonnegative.register(Diagonal)
@nonnegative.register(Grid)
@nonnegative.register(Written)
@nonnegative.register(Unknown)
def _(
    form: _WithBlocks,
    answers: Sequence[Array],
    units: Sequence[float],
    estimate: Estimate,
) -> Estimate:
    check_nonnegative(form, integers=False)
    total = _total(form, estimate)
    if _cells(form) > MOST_CELLS:
        return agreeing_tables(form, form.domain, maximal(form.blocks), estimate, total)
    X = _information(form)
    return in_cells(form.domain, _axes(form.blocks), _fitted(X, X.transposed(answers, units), total))


def in_integers(form: Form, found: Estimate) -> Estimate:
    """The nonnegative estimate that was found from a form, in whole numbers that add up to the rounded total."""
    if isinstance(form, Grouped) and isinstance(found, GroupedEstimate):
        return GroupedEstimate(form.groups, in_integers(form.inner, found.inner))
    check_nonnegative(form, integers=True)
    if isinstance(form, Direct):
        return _Rounded(found)
    if not isinstance(form, _WithBlocks) or not isinstance(found, CoordinateEstimate):
        raise StrategyError(
            f"There is no rule for whole numbers from a {type(form).__name__}. This is a fault of hdmm."
        )
    return in_cells(form.domain, _axes(form.blocks), rounded(_information(form), found.parts[()].ravel()))


def check_nonnegative(form: Form, *, integers: bool) -> None:
    """Raise StrategyError if counts of this kind cannot be made from a form; needs no data."""
    if isinstance(form, Grouped):
        check_nonnegative(form.inner, integers=integers)
    elif isinstance(form, Informed | Conditioned):
        _check_beside_known(form, integers=integers)
    elif integers and not isinstance(form, _WithBlocks | Direct):
        raise StrategyError(
            "Whole numbers are not made from predicates on pairs of attributes that overlap. Ask for nonnegative "
            "counts, or for unbiased ones."
        )
    elif isinstance(form, _WithBlocks) and _cells(form) > MOST_CELLS:
        if integers:
            raise StrategyError(
                f"Whole numbers that add up in all tables need one table of all measured cells, and these are "
                f"{_cells(form):.1e}; the limit is {MOST_CELLS:,}. Ask for nonnegative counts, which agree too, or for "
                "tables over fewer attributes."
            )
        sizes = [math.prod(form.domain.shape[i] for i in each) for each in maximal(form.blocks)]
        if sum(sizes) > MOST_CELLS:
            raise StrategyError(
                f"Nonnegative counts need the {len(sizes):,} measured tables with {sum(sizes):.1e} cells in memory; "
                f"the limit is {MOST_CELLS:,}. Ask for unbiased counts, or for tables over fewer attributes."
            )


def _check_beside_known(form: Informed | Conditioned, *, integers: bool) -> None:
    core = form.inner.inner if isinstance(form.inner, Grouped) else form.inner
    if not isinstance(core, Coupled | Diagonal | Grid | Written):
        raise StrategyError(
            "Beside known counts, this plan gives unbiased counts only. Ask for these, or leave out the known ones."
        )
    check_nonnegative(core, integers=False)
    if integers and (core is not form.inner or _told_cells(form, core) > MOST_FITTED):
        raise StrategyError(
            f"Beside known counts, whole numbers are made if these are one table, on up to {MOST_FITTED:,} cells, or "
            f"two, on up to {MOST_TRANSPORTED:,}, and without predicates on pairs of attributes. Ask for nonnegative "
            "counts, or for unbiased ones."
        )


def _told_cells(form: Informed | Conditioned, core: _WithBlocks) -> float:
    """The cells of all attributes that were measured or of which counts are known, in terms of one known table."""
    known = len(form.told or maximal(form.known_blocks))
    axes = sorted({*_axes(core.blocks), *_axes(form.known_blocks)})
    times = {1: 1.0, 2: MOST_FITTED / MOST_TRANSPORTED}.get(known, math.inf)
    return times * math.prod(core.domain.shape[i] for i in axes)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Clipped(Estimate):
    """Queries measured one by one; an answer below 0 becomes 0."""

    inner: Estimate

    def values(self, product: Product) -> Array:
        return np.maximum(self.inner.values(product), 0.0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Rounded(Estimate):
    """Queries measured one by one, each rounded by itself."""

    inner: Estimate

    def values(self, product: Product) -> Array:
        return np.rint(self.inner.values(product))


def information(domain: Domain, axes: Sequence[int], blocks: Sequence[Block]) -> Information:
    """What blocks say about the cells of these attributes."""
    place = {axis: k for k, axis in enumerate(axes)}
    moved = tuple(Block(b.weight, [(place[i], A) for i, A in b.by_axis.items()]) for b in blocks)
    return Information(tuple(domain.shape[i] for i in axes) or (1,), moved)  # if only the total was measured, it alone


def _information(form: _WithBlocks) -> Information:
    return information(form.domain, _axes(form.blocks), form.blocks)


def _axes(blocks: Sequence[Block]) -> list[int]:
    return sorted({i for block in blocks for i in block.axes})


def _cells(form: _WithBlocks) -> int:
    return math.prod(form.domain.shape[i] for i in _axes(form.blocks))


def _total(form: _WithBlocks | Orthogonal, estimate: Estimate) -> float | None:
    """The estimated total, at least 0; None if the measurements do not support it."""
    product = Product(form.domain, (), 1.0)
    try:
        with suppress(NoClosedFormError):
            check_support(Workload(form.domain, (product,)), form)
        return max(float(estimate.values(product)[0]), 0.0)
    except StrategyError:
        return None


def _fitted(X: Information, y: Array, total: float | None) -> Array:
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
    return z if total is None else z * (total / z.sum())
