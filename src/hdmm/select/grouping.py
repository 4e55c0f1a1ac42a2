"""Ways to divide the products of a workload into the groups of OPT_+ (the paper's g)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm.matrix import Array, Matrix, Ones, gram_inverse, trace_product
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search
from hdmm.select.terms import Terms, is_total

_MOST_CLUSTERED = 512  # number of terms up to which pairs of them are compared, which takes a second or two

Grouping = tuple[tuple[int, ...], ...]
"""The numbers of the terms in each group; every term is in one group."""


def groupings(terms: Terms, search: Search) -> list[Grouping]:
    """Pairs of groups to try, the most promising first, without repeats; empty if there is only one term.

    Terms are grouped by the single-product strategies that suit them (two clusters), by whether one attribute is
    active, by the number of active attributes, into halves in order, as in the paper, and into random halves.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.search import first_search
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3}), k=1))
    >>> groupings(terms, first_search())
    [((0,), (1,))]
    """
    k = len(terms.coefficients)
    if k < 2:
        return []
    active = _active(terms)
    masks = [_clusters(terms, search)] if k <= _MOST_CLUSTERED else []
    masks += [active[:, i] for i in np.argsort(-np.asarray(terms.sizes), kind="stable")]
    masks += [active.sum(axis=1) > size for size in np.unique(active.sum(axis=1))]
    masks += [np.arange(k) >= k // 2, search.rng.permutation(k) >= k // 2]
    found: dict[Grouping, None] = {}
    for mask in masks:
        parts = (tuple(np.flatnonzero(~mask).tolist()), tuple(np.flatnonzero(mask).tolist()))
        if all(parts):
            found[parts if parts[0] < parts[1] else parts[::-1]] = None
    return list(found)


def paired(terms: Terms, search: Search) -> tuple[Array, list[Array]]:
    """(factors of the blocks, blocks × attributes; factor of each gram): many groups over two factors per attribute.

    On every attribute the grams are divided in two: one gram each if there are two, Total and the rest, or the two
    clusters whose strategies serve all grams best. Terms with the same factors on all attributes form one group. So
    every product is a group if all have different grams, and every set of active attributes is a group if there are
    only Total and one other gram.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.search import first_search
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3, "c": 4}), k=1))
    >>> paired(terms, first_search())[0]
    array([[0, 1, 1],
           [1, 0, 1],
           [1, 1, 0]])
    """
    sides = [_sides(each, search) for each in terms.grams]
    rows = np.stack([side[terms.choices[:, i]] for i, side in enumerate(sides)], axis=1)
    return np.unique(rows, axis=0), sides


def _sides(grams: Sequence[Matrix], search: Search) -> Array:
    """0 or 1 for each gram of an attribute."""
    totals = np.array([is_total(V) for V in grams])
    if totals.any() or len(grams) <= 2:
        return totals.astype(np.int64) if totals.any() else np.arange(len(grams))
    costs = np.array([_costs(V, grams, search) for V in grams])
    return _two_clusters(costs).astype(np.int64)


def _active(terms: Terms) -> Array:
    """Whether term k asks for more than the total of attribute i."""
    tables = [np.array([not is_total(V) for V in each]) for each in terms.grams]
    return np.stack([table[terms.choices[:, i]] for i, table in enumerate(tables)], axis=1)


def _clusters(terms: Terms, search: Search) -> Array:
    """Two clusters of terms, around the two terms whose strategies together serve all terms best.

    The strategy of a term is a product of one result of OPT_0 per distinct gram. Its cost for another term is the
    product of traces, which is infinite if it measures only the total where the other term needs more. Every term
    goes to the cheaper of the two, and the budget is divided by the cube roots of the costs. O(k²·(d + k)).
    """
    k, d = terms.choices.shape
    logs = np.zeros((k, k))  # [strategy, term]
    for i in range(d):
        each = terms.grams[i]
        table = np.array([np.log(_costs(V, each, search)) for V in each])
        logs += table[terms.choices[:, i][:, None], terms.choices[:, i][None, :]]
    costs = terms.coefficients * np.exp(logs)
    return _two_clusters(costs)


def _two_clusters(costs: Array) -> Array:
    """A mask of the terms that go to the second of the best two strategies; `costs` is [strategy, term]. O(k³)."""
    k = len(costs)
    best, mask = np.inf, np.arange(k) > 0
    for p in range(k):
        for q in range(p + 1, k):
            second = costs[q] < costs[p]
            second[q], second[p] = True, False
            value = np.cbrt(costs[p][~second].sum()) + np.cbrt(costs[q][second].sum())
            if value < best:
                best, mask = value, second
    return mask


def _costs(V: Matrix, others: Sequence[Matrix], search: Search) -> Array:
    """The error of each gram under the strategy that suits V, relative to its error under Identity."""
    A = opt_0(V, search.silent().numbered(0))
    if isinstance(A, Ones):
        return np.array([1 / V.shape[0] if is_total(U) else np.inf for U in others])
    H = gram_inverse(A)
    return np.array([trace_product(H, U) for U in others])
