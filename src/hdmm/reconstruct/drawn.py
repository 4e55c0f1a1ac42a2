"""Rows drawn from a fitted distribution: stratified, brought nearer to its tables, and exact where that is required.

Every component has as many rows as any other, and in each the values of an attribute have their share of its rows,
up to one; over all rows every value has its expected count, up to one. Then values are exchanged between pairs of rows
wherever that brings the tables of two attributes nearer to those of the distribution, which leaves every count of
values as it is. Then rows are moved so that `exact` tables hold, and exchanged until no row is an impossible one.
What looks random here is fixed in advance: the same distribution gives the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from hdmm.base.connected import connected
from hdmm.base.exceptions import StrategyError
from hdmm.base.mixing import fixed_uniforms
from hdmm.describe.predicates import Groups
from hdmm.describe.product import Product
from hdmm.matrix import Array
from hdmm.reconstruct.components import Components
from hdmm.reconstruct.known import codes_of

MOST_CODES = 1 << 29
"""Rows times attributes: some 8 GiB while they are drawn."""

_PASSES = 3
_MOST_VALUES = 4096  # of all attributes whose tables are brought nearer: 64 MiB
_BATCH = 150  # exchanges judged at once, of 50,000 rows: more would all mend the same cells
_ROUNDS = 8  # of tables that must hold
_TRIES = 400  # partners of a row that may not be as it is

Required: TypeAlias = tuple[Product, Array]
"""A product of values, or of groups of values, and how many rows there must be of each."""


@final
@dataclass(frozen=True, slots=True)
class Possible:
    """Which rows can be: a function of the codes of all attributes, and the attributes that it looks at."""

    holds: Callable[[Sequence[Array]], Array]
    axes: tuple[int, ...]


def drawn(fit: Components, n: int, exact: Sequence[Required] = (), possible: Possible | None = None) -> list[Array]:
    """The codes of n rows, one array per attribute. O(n · attributes² + n log n · attributes).

    StrategyError if the tables that must hold contradict each other or what is possible, as far as this can find rows.

    >>> from hdmm import Domain
    >>> fit = Components(Domain({"x": 2, "y": 3}), 6.0, (np.array([[1.0], [0.0]]), np.full((3, 1), 1 / 3)))
    >>> [np.bincount(codes).tolist() for codes in drawn(fit, 6)]
    [[6], [2, 2, 2]]
    """
    codes = _stratified(fit, n)
    _exchange(fit, codes)
    required(fit, codes, exact, possible)
    return codes


def required(fit: Components, codes: list[Array], exact: Sequence[Required], possible: Possible | None) -> None:
    """Move rows, and exchange their values, until they have the tables that they must have and all are possible."""
    _hold(fit, codes, exact)
    if possible is not None and not possible.holds(codes).all():
        _make_possible(codes, exact, possible)


def whole_counts(shares: Array, n: int) -> Array:
    """n split in these proportions: everyone's share is rounded up or down, those with the largest rest up.

    >>> whole_counts(np.array([0.5, 0.3, 0.2]), 4)
    array([2, 1, 1])
    """
    wanted = shares / shares.sum() * n if shares.any() else np.full(len(shares), n / len(shares))
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    counts[np.argsort(counts - wanted, kind="stable")[: n - counts.sum()]] += 1
    return counts


def cells_of_rows(product: Product, codes: Sequence[Array]) -> Array:
    """The number of the cell of each row among those of a product of values or groups."""
    found = np.zeros(len(codes[0]), np.int64)
    for i, p in product.factors:
        groups = codes_of(p, product.domain.shape[i])
        found = found * (int(groups.max()) + 1) + groups[codes[i]]
    return found


def _stratified(fit: Components, n: int) -> list[Array]:
    sizes = whole_counts(np.ones(fit.shares[0].shape[1]), n)
    component = np.repeat(np.arange(len(sizes)), sizes)
    found: list[Array] = []
    for i, P in enumerate(fit.shares):
        wanted = P * sizes
        counts = np.floor(wanted).astype(np.int64)
        lacking = whole_counts(wanted.sum(axis=1), n) - counts.sum(axis=1)
        values = np.repeat(np.arange(len(P)), lacking)[np.argsort(fixed_uniforms(int(lacking.sum()), stream=2 * i))]
        np.add.at(counts, (values, np.repeat(np.arange(len(sizes)), sizes - counts.sum(axis=0))), 1)
        held = np.repeat(np.tile(np.arange(len(P), dtype=_least_type(len(P))), len(sizes)), counts.T.ravel())
        found.append(held[np.lexsort((fixed_uniforms(n, stream=2 * i + 1), component))])
    return found


def _exchange(fit: Components, codes: list[Array]) -> None:
    """Exchange values between pairs of rows where the tables of two attributes come nearer to those of the fit."""
    axes = _fitting([len(P) for P in fit.shares])
    n = len(codes[0])
    if len(axes) < 2 or n < 2:
        return
    starts = np.cumsum([0, *(len(fit.shares[i]) for i in axes)])[:-1]
    stacked = np.concatenate([fit.shares[i] for i in axes])
    places = np.stack([codes[i] + start for i, start in zip(axes, starts, strict=True)], axis=1)
    off = -(stacked @ stacked.T) * (n / stacked.shape[1])  # rows of each pair of values, less what there should be
    columns = range(len(axes))
    for a, b in itertools.product(columns, columns):
        np.add.at(off, (places[:, a], places[:, b]), 1.0)
    batch = max(_BATCH, _BATCH * n // 50_000)
    for turn, k in itertools.product(range(_PASSES), columns):
        order = np.argsort(fixed_uniforms(n, stream=1000 + turn * len(axes) + k))[: n - n % 2].reshape(-1, 2)
        others = np.delete(np.array(columns), k)
        for pairs in np.array_split(order, max(1, len(order) // batch)):
            _exchanged(off, places, pairs, k, others)
    for k, i in enumerate(axes):
        codes[i][:] = places[:, k] - starts[k]


def _exchanged(off: Array, places: Array, pairs: Array, k: int, others: Array) -> None:
    """Exchange the values of attribute k in those pairs of rows where the sum of squares of `off` falls."""
    one, two = places[pairs[:, 0]], places[pairs[:, 1]]
    a, b, rest, there = one[:, k, None], two[:, k, None], one[:, others], two[:, others]
    change = off[a, there] - off[a, rest] + off[b, rest] - off[b, there]
    gains = np.where(rest == there, 0.0, change + 2.0).sum(axis=1)
    chosen = (gains < 0) & (one[:, k] != two[:, k])
    a, b, rest, there = a[chosen], b[chosen], rest[chosen], there[chosen]
    for value, other, amount in ((a, rest, -1.0), (a, there, 1.0), (b, rest, 1.0), (b, there, -1.0)):
        np.add.at(off, (value, other), amount)
        np.add.at(off, (other, value), amount)
    rows = pairs[chosen]
    places[rows[:, 0], k], places[rows[:, 1], k] = b[:, 0], a[:, 0]


def _hold(fit: Components, codes: list[Array], exact: Sequence[Required]) -> None:
    """Move rows between cells until all tables that must hold do."""
    for _ in range(_ROUNDS):
        off = 0
        for j, (product, counts) in enumerate(exact):
            off += _moved(fit, codes, product, counts.ravel(), [other for other, _ in exact[:j]])
        if not off:
            return
    raise StrategyError(
        "No rows were found that have all known counts, and the table that was to be exact, at once. Ask for another "
        "number of rows, which have them in proportion, or leave some of them out."
    )


def _moved(fit: Components, codes: list[Array], product: Product, counts: Array, held: Sequence[Product]) -> int:
    """Move rows from cells that have too many to those that have too few; how many were moved.

    A row goes, if it can, to a cell that is the same one in the tables that hold already.
    """
    cells = cells_of_rows(product, codes)
    surplus = np.bincount(cells, minlength=len(counts)) - counts
    if not surplus.any():
        return 0
    order = np.argsort(cells, kind="stable")
    firsts = np.searchsorted(cells[order], np.arange(len(counts)))
    rows = np.concatenate([order[firsts[c] : firsts[c] + surplus[c]] for c in np.flatnonzero(surplus > 0)])
    free = np.repeat(np.arange(len(counts)), np.maximum(-surplus, 0))
    kept = _kept_cells(product, held)
    rows, free = rows[np.argsort(kept[cells[rows]], kind="stable")], free[np.argsort(kept[free], kind="stable")]
    sizes = [p.count(product.domain.shape[i]) for i, p in product.factors]
    for (i, p), groups in zip(product.factors, np.unravel_index(free, sizes), strict=True):
        if isinstance(p, Groups):
            changed = codes_of(p, product.domain.shape[i])[codes[i][rows]] != groups
            codes[i][rows[changed]] = _members(fit.shares[i].mean(axis=1), np.asarray(p.codes), groups[changed])
        else:
            codes[i][rows] = groups
    return len(rows)


def _kept_cells(product: Product, held: Sequence[Product]) -> Array:
    """For every cell of a product what rows of it have in common in tables that hold: moves within it keep these."""
    shape, each = product.domain.shape, list[Array]()
    for i, p in product.factors:
        mine, n = codes_of(p, shape[i]), p.count(shape[i])
        unions = [_unions(mine, codes_of(dict(other.factors)[i], shape[i])) for other in held if i in other.axes]
        each.append(
            np.zeros(n, np.int64) if not unions else np.unique(np.stack(unions), axis=1, return_inverse=True)[1]
        )
    return reduce(
        lambda found, k: (found[:, None] * (int(k.max()) + 1) + k.ravel()).ravel(), each, np.zeros(1, np.int64)
    )


def _unions(mine: Array, others: Array) -> Array:
    """For each of some groups of values, the least union of them that is one of other groups, too."""
    count = int(mine.max()) + 1
    graph: Any = sp.coo_array((np.ones(len(mine)), (mine, others + count)), shape=[count + int(others.max()) + 1] * 2)
    return connected_components(graph, directed=False)[1][:count]


def _members(shares: Array, groups: Array, wanted: Array) -> Array:
    """A value of each wanted group, in proportion to the shares of its values."""
    found = np.empty(len(wanted), np.int64)
    for group in np.unique(wanted):
        values, rows = np.flatnonzero(groups == group), np.flatnonzero(wanted == group)
        found[rows] = np.repeat(values, whole_counts(shares[values] + 1e-12, len(rows)))
    return found


def _make_possible(codes: list[Array], exact: Sequence[Required], possible: Possible) -> None:
    """Exchange values of rows that cannot be with those of others, so that both can be and every table holds."""
    fixed = [product for product, _ in exact]
    whole = list(connected([*((i,) for i in possible.axes), *(p.axes for p in fixed if p.axes)]))
    sets = [(i,) for i in possible.axes] + [axes for axes in whole if len(axes) > 1 and set(axes) & set(possible.axes)]
    n = len(codes[0])
    for turn, axes in itertools.product(range(_TRIES), sets):
        wrong = np.flatnonzero(~possible.holds(codes))
        if not len(wrong):
            return
        partners = np.argsort(fixed_uniforms(n, stream=100_000 + turn))[: len(wrong)]
        pairs = np.stack([wrong[: len(partners)], partners], axis=1)
        pairs = pairs[~np.isin(pairs[:, 1], wrong)]
        before, after = ([codes[i][side] for i in range(len(codes))] for side in (pairs, pairs[:, ::-1]))
        mixed = [after[i] if i in axes else before[i] for i in range(len(codes))]
        good = np.logical_and(*(possible.holds([x[:, side] for x in mixed]) for side in (0, 1)))
        for product in fixed:
            if set(product.axes) & set(axes) and not set(product.axes) <= set(axes):
                old, new = (
                    np.stack([cells_of_rows(product, [x[:, s] for x in xs]) for s in (0, 1)]) for xs in (before, mixed)
                )
                good &= (np.sort(old, axis=0) == np.sort(new, axis=0)).all(axis=0)
        for i in axes:
            codes[i][pairs[good]] = mixed[i][good]
    wrong = ~possible.holds(codes)
    if wrong.all() or exact:
        raise StrategyError(
            "No rows were found that are all possible and have the known counts. Leave out known counts, or conditions "
            "that exclude what was counted."
        )
    there = np.flatnonzero(~wrong)
    taken = there[np.argsort(fixed_uniforms(len(there), stream=99_999))]
    for held in codes:
        held[wrong] = np.resize(held[taken], int(wrong.sum()))


def _fitting(sizes: Sequence[int]) -> list[int]:
    """The attributes, smallest first, whose values together are few enough, in their order."""
    order = np.argsort(sizes, kind="stable")
    return sorted(order[np.cumsum(np.array(sizes)[order]) <= _MOST_VALUES].tolist())


def _least_type(values: int) -> type[np.unsignedinteger[Any]]:
    return next(t for t in (np.uint8, np.uint16, np.uint32, np.uint64) if values <= np.iinfo(t).max)
