"""Estimates without negative counts, or in whole numbers, that have the sums of known tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Product
from hdmm.matrix import Array
from hdmm.reconstruct.estimate import Estimate, GroupedEstimate, in_cells
from hdmm.reconstruct.known import ConditionedEstimate, Known, by_group, codes_of
from hdmm.reconstruct.nonnegative import MOST_FITTED, check_nonnegative, information, nonnegative
from hdmm.reconstruct.whole_numbers import rounded
from hdmm.strategy.blocks import Attributes, Block
from hdmm.strategy.coupled import Coupled
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.informed import Conditioned, Informed
from hdmm.strategy.iterative import Unknown, Written

_ROUNDS = 1000  # of proportional fitting
_CLOSE = 1e-12  # of the total
_LITTLE = 1e-3  # of the mean count
_HEAVY = 10.0  # times the largest weight: known counts among measurements where only a penalty can be had


@nonnegative.register(Informed)
@nonnegative.register(Conditioned)
def _(form: Informed | Conditioned, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    """The same with the known counts as measurements of large weight, which `fitted` makes exact."""
    check_nonnegative(form, integers=False)
    groups, core = (form.inner.groups, form.inner.inner) if isinstance(form.inner, Grouped) else (None, form.inner)
    if not isinstance(core, Coupled | Diagonal | Grid | Written):
        raise StrategyError(f"There is no rule for estimates from a {type(core).__name__}. This is a fault of hdmm.")
    count = len(form.known_blocks)
    measured = core.blocks[: len(answers) - count]
    heavy = _HEAVY * max(block.weight for block in measured)
    known = (block if groups is None else groups.block(block) for block in form.known_blocks)
    blocks = (*measured, *(Block(heavy, block.factors) for block in known))
    raw = estimate.inner if isinstance(estimate, ConditionedEstimate) else estimate  # it is only where to start
    raw = raw.inner if isinstance(raw, GroupedEstimate) else raw
    found = nonnegative(Unknown("", core.domain, blocks), answers, units, raw)
    return found if groups is None else GroupedEstimate(groups, found)


def fitted(estimate: Estimate, domain: Domain, axes: Sequence[int], known: Sequence[Known]) -> Estimate:
    """The estimate, none of whose counts is negative, in proportions that have the sums of the known marginals.

    On the cells of the measured and known attributes, `axes`, if these are few; else each table by itself.
    """
    return _Fitted(estimate, domain, tuple(axes), tuple(known)) if known else estimate


def fitted_integers(form: Form, estimate: Estimate, axes: Sequence[int], known: Sequence[Known]) -> Estimate:
    """The same in whole numbers, beside one known table or two, whose sums stay; check_nonnegative says where."""
    core = form.inner if isinstance(form, Informed | Conditioned) else form
    if not isinstance(core, Coupled | Diagonal | Grid | Written) or not isinstance(form, Informed | Conditioned):
        raise StrategyError(f"There is no rule for estimates from a {type(core).__name__}. This is a fault of hdmm.")
    domain, shape = known[0].domain, [known[0].domain.shape[i] for i in axes]
    told = isinstance(form, Informed) or form.stacked
    measured = core.blocks[: len(core.blocks) - len(form.known_blocks)] if told else core.blocks
    x = _Fitted(estimate, domain, tuple(axes), tuple(known)).cells.ravel()
    places = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    groupings: list[Array] = []
    for each in known:
        groups = np.zeros(shape, np.int64)
        for i, p in each.product.factors:
            codes = codes_of(p, domain.shape[i])
            groups = groups * (int(codes.max()) + 1) + codes[places[axes.index(i)]]
        groupings.append(groups.ravel())
    return in_cells(domain, axes, rounded(information(domain, axes, measured), x, *groupings))


@final
@dataclass(frozen=True, eq=False)
class _Fitted(Estimate):
    inner: Estimate
    domain: Domain
    axes: Attributes
    known: tuple[Known, ...]

    def values(self, product: Product) -> Array:
        whole = math.prod(self.domain.shape[i] for i in self.axes) <= MOST_FITTED
        axes = self.axes if whole else product.axes
        return in_cells(self.domain, axes, self.cells if whole else self._table(axes)).values(product)

    @cached_property
    def cells(self) -> Array:
        return self._table(self.axes)

    def _table(self, axes: Attributes) -> Array:
        """Iterative proportional fitting: the known sums over and over, until all hold."""
        cells = Product(self.domain, tuple((i, Identity()) for i in axes))
        table = self.inner.values(cells).reshape([self.domain.shape[i] for i in axes])
        if len(self.known) > 1:  # where zeros leave no way to have all sums
            table = table + _LITTLE * (table.sum() + 1) / table.size
        for _ in range(_ROUNDS):
            off = 0.0
            for known in self.known:
                table, apart = _proportional(table, axes, known)
                off = max(off, apart)
            if off <= _CLOSE * max([1, *(known.total for known in self.known)]):
                break
        return table


def _proportional(table: Array, axes: Attributes, known: Known) -> tuple[Array, float]:
    """The table of these attributes in proportions that have known sums, and how far it was from these."""
    groups = {axes.index(i): codes_of(p, known.domain.shape[i]) for i, p in known.product.factors if i in axes}
    others = tuple(k for k in range(len(axes)) if k not in groups)
    target = np.expand_dims(known.summed(axes).astype(np.float64), others)

    def sums_of(x: Array) -> Array:
        found = x.sum(axis=others, keepdims=True)
        return reduce(lambda x, k: by_group(x, k, groups[k]), groups, found)

    def spread(x: Array) -> Array:
        return reduce(lambda x, k: x.take(groups[k], axis=k), groups, x)

    sums = sums_of(table)
    empty = (sums == 0) & (target > 0)
    if empty.any():
        table = np.where(spread(empty), 1.0, table)
        sums = sums_of(table)
    off = float(np.abs(sums - target).max(initial=0.0))
    return table * spread(np.divide(target, sums, out=np.zeros_like(sums), where=sums > 0)), off
