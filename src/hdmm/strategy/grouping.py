"""Ways to part the products of a workload into the groups of OPT_+ (the paper's g)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm.matrix import Array, Matrix, Ones, gram_inverse, trace_product
from hdmm.strategy.p_identity import opt_0
from hdmm.strategy.search import Search
from hdmm.strategy.terms import Terms, is_total

_MOST_CLUSTERED = 512  # terms up to which pairs of them are compared: a second or two

Grouping = tuple[tuple[int, ...], ...]
"""The terms of each group, by number; every term in one group."""


def groupings(terms: Terms, *, rng: np.random.Generator) -> list[Grouping]:
    """Pairs of groups to try, likeliest first, without repeats; empty where there is one term only.

    By the single-product strategies that suit the terms (two clusters); by which attribute is active; by how
    many are; halves in order, as the paper has it; and last a random half.

    >>> from hdmm import Domain, Workload
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3}), k=1))
    >>> groupings(terms, rng=np.random.default_rng(0))
    [((0,), (1,))]
    """
    k = len(terms.coefficients)
    if k < 2:
        return []
    active = _active(terms)
    masks = [_clusters(terms, rng=rng)] if k <= _MOST_CLUSTERED else []
    masks += [active[:, i] for i in np.argsort(-np.asarray(terms.sizes), kind="stable")]
    masks += [active.sum(axis=1) > size for size in np.unique(active.sum(axis=1))]
    masks += [np.arange(k) >= k // 2, rng.permutation(k) >= k // 2]
    found: dict[Grouping, None] = {}
    for mask in masks:
        parts = (tuple(np.flatnonzero(~mask).tolist()), tuple(np.flatnonzero(mask).tolist()))
        if all(parts):
            found[parts if parts[0] < parts[1] else parts[::-1]] = None
    return list(found)


def paired(terms: Terms, *, rng: np.random.Generator) -> tuple[Array, list[Array]]:
    """(blocks × attributes, which gram has which factor): more than two groups over two factors per attribute.

    On every attribute the grams are parted in two: as they are where there are two, Total from the rest, or the two
    clusters whose strategies serve all best; terms that go the same way on all attributes are one group, so that with
    grams of their own every product is one, and with Total and one other every set of active attributes.

    >>> from hdmm import Domain, Workload
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3, "c": 4}), k=1))
    >>> paired(terms, rng=np.random.default_rng(0))[0]
    array([[0, 1, 1],
           [1, 0, 1],
           [1, 1, 0]])
    """
    sides = [_sides(each, rng) for each in terms.grams]
    rows = np.stack([side[terms.choices[:, i]] for i, side in enumerate(sides)], axis=1)
    return np.unique(rows, axis=0), sides


def _sides(grams: Sequence[Matrix], rng: np.random.Generator) -> Array:
    """0 or 1 for each gram of an attribute."""
    totals = np.array([is_total(V) for V in grams])
    if totals.any() or len(grams) <= 2:
        return totals.astype(np.int64) if totals.any() else np.arange(len(grams))
    costs = np.array([_costs(V, grams, rng) for V in grams])
    return _two_clusters(costs).astype(np.int64)


def _active(terms: Terms) -> Array:
    """Whether term k asks for more than the total of attribute i."""
    tables = [np.array([not is_total(V) for V in each]) for each in terms.grams]
    return np.stack([table[terms.choices[:, i]] for i, table in enumerate(tables)], axis=1)


def _clusters(terms: Terms, *, rng: np.random.Generator) -> Array:
    """Two clusters around the pair of terms whose own strategies serve all terms best between them.

    Each term's own strategy is a product of one OPT_0 per distinct gram; what it costs another term is the product of
    traces, infinite where it measures only a total that the other needs more of. Every term goes to the cheaper of
    the pair, the budget being parted as the cube roots of the costs. O(k²·(d + k)).
    """
    k, d = terms.choices.shape
    logs = np.zeros((k, k))  # [strategy, term]
    for i in range(d):
        each = terms.grams[i]
        table = np.array([np.log(_costs(V, each, rng)) for V in each])
        logs += table[terms.choices[:, i][:, None], terms.choices[:, i][None, :]]
    costs = terms.coefficients * np.exp(logs)
    return _two_clusters(costs)


def _two_clusters(costs: Array) -> Array:
    """Which terms go to the second of the pair of strategies that serves all best; costs is [strategy, term]. O(k³)."""
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


def _costs(V: Matrix, others: Sequence[Matrix], rng: np.random.Generator) -> Array:
    """What each of the grams costs under the strategy that suits V, of what it costs under Identity."""
    A = opt_0(V, Search(rng))
    if isinstance(A, Ones):
        return np.array([1 / V.shape[0] if is_total(U) else np.inf for U in others])
    H = gram_inverse(A)
    return np.array([trace_product(H, U) for U in others])
