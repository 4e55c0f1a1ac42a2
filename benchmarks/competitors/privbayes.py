"""PrivBayes: a Bayesian network is chosen and measured privately, and a synthetic table is drawn from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from hdmm import Domain
from hdmm.matrix import Array
from hdmm.noise import discrete_laplace

Pair: TypeAlias = tuple[int, tuple[int, ...]]  # an attribute and its parents, as positions in the domain
Marginals: TypeAlias = Callable[[list[tuple[int, ...]]], Iterator[Array]]
PrivateChoice: TypeAlias = Callable[[Sequence[Fraction | int]], int]  # the place of one of the scores

SCORE_SENSITIVITY = 2  # of `dependence` to one row
_MOST_DRAWN = 1 << 24  # rows drawn; in a larger table each row counts for several
_MOST_CELLS = 1 << 24  # of a table: 128 MiB
_MOST_WORK = 1 << 32  # cells of all tables that may be examined for one choice
_LEAST_WORK = 1 << 10  # cells that take as long as the fixed cost of a table


def privbayes(
    domain: Domain,
    x: Array,
    epsilon: Fraction,
    *,
    count_share: Fraction = Fraction(1, 20),
    network_share: Fraction = Fraction(3, 10),
    usefulness: int = 4,
) -> Array:
    """The counts of all cells in a synthetic table, which does not depend on any workload.

    There are three stages: the number of rows; a network (`noisy_network`), whose d − 1 choices share ε₂; and d tables,
    one of each attribute with its parents, with noise of scale d/ε₃ on every cell and negative counts set to 0. Then as
    many rows as were counted are drawn, attribute by attribute. Attributes get as many parents as leave tables whose
    average count is `usefulness` times the scale of their noise, as far as all of them can be examined
    (`affordable_cells`). The reference takes the number of rows as public and has two stages. O(d²·pairs) tables.

    Reference: Zhang, Cormode, Procopiuc, Srivastava, Xiao, "PrivBayes: private data release via Bayesian networks"
    (SIGMOD 2014, and TODS 2017 for the score of attributes that are not binary).

    >>> privbayes(Domain({"sex": 2, "smokes": 2}), np.array([5000, 0, 0, 5000]), Fraction(10)).round(-3)
    array([5000.,    0.,    0., 5000.])
    """
    table = x.reshape(domain.shape)

    def marginal(axes: Sequence[int]) -> Array:
        kept = table.sum(axis=tuple(i for i in range(len(domain)) if i not in axes))
        return kept.transpose([sorted(axes).index(i) for i in axes])

    columns, weight = privbayes_rows(
        domain, marginal, epsilon, count_share=count_share, network_share=network_share, usefulness=usefulness
    )
    return np.bincount(np.ravel_multi_index(columns, domain.shape), minlength=domain.size) * weight


def privbayes_rows(
    domain: Domain,
    marginal: Callable[[Sequence[int]], Array],
    epsilon: Fraction,
    *,
    count_share: Fraction = Fraction(1, 20),
    network_share: Fraction = Fraction(3, 10),
    usefulness: int = 4,
) -> tuple[list[Array], float]:
    """The same from any tables of some attributes: the codes of rows, and how many each stands for."""
    d, rng = len(domain), np.random.default_rng()
    for_tables = (1 - count_share - network_share) * epsilon

    def chosen(scores: Sequence[Fraction | int]) -> int:
        scale = 2 * SCORE_SENSITIVITY * max(1, d - 1) / (network_share * epsilon)
        likely = np.exp([float((score - max(scores)) / scale) for score in scores])
        return int(rng.choice(len(scores), p=likely / likely.sum()))

    rows = max(0, int(marginal(()).sum() + discrete_laplace(1 / (count_share * epsilon), 1)[0]))
    cells = affordable_cells(domain.shape, useful_cells(rows, for_tables, d, usefulness))
    network = noisy_network(domain, lambda wanted: map(marginal, wanted), chosen, cells=cells)
    exact = [marginal((*parents, attribute)) for attribute, parents in network]
    noisy = [np.maximum(t + discrete_laplace(d / for_tables, t.size).reshape(t.shape), 0) for t in exact]
    drawn = min(rows, _MOST_DRAWN)
    return sampled(domain, network, noisy, drawn, rng), rows / drawn if drawn else 0.0


def sampled(
    domain: Domain, network: Sequence[Pair], tables: Sequence[Array], rows: int, rng: np.random.Generator
) -> list[Array]:
    """Rows drawn from the network, one column of codes per attribute, each given its parents. O(rows·log cells).

    If a table says nothing about a combination of parents, all values are equally likely.
    """
    columns: dict[int, Array] = {}
    for (attribute, parents), table in zip(network, tables, strict=True):
        size = table.shape[-1]
        weights = table.reshape(-1, size).astype(np.float64)
        weights[weights.sum(axis=1) == 0] = 1.0
        reached = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        reached = (reached / reached[:, -1:] + np.arange(len(reached))[:, None]).ravel()
        given = np.zeros(rows, dtype=np.int64)
        for parent in parents:
            given = given * domain.shape[parent] + columns[parent]
        at = np.searchsorted(reached, given + rng.random(rows), side="right")
        columns[attribute] = np.clip(at - given * size, 0, size - 1)  # a sum may round up into the next row
    return [columns[i] for i in range(len(domain))]


def noisy_network(domain: Domain, marginals: Marginals, choice: PrivateChoice, *, cells: int) -> list[Pair]:
    """Attributes with their parents, in order: the first at random, each following pair by a private choice.

    A pair's score is its `dependence`; it has as many parents as leave at most `cells` cells in its table. With
    d attributes there are d − 1 choices, each ε-differentially private if `choice` is the exponential mechanism of
    scale 2·SCORE_SENSITIVITY/ε. The first says nothing about the data, because all its scores are 0.
    """
    first = choice([0] * len(domain))
    network: list[Pair] = [(first, ())]
    while len(network) < len(domain):
        pairs = candidates(domain.shape, [attribute for attribute, _ in network], cells)
        tables = marginals([(*parents, attribute) for attribute, parents in pairs])
        scores = [dependence(table.reshape(-1, table.shape[-1])) for table in tables]
        network.append(pairs[choice(scores)])
    return network


def candidates(shape: Sequence[int], placed: Sequence[int], cells: int) -> list[Pair]:
    """Every attribute not placed yet, with each of its largest sets of parents."""
    earlier = {i: shape[i] for i in sorted(placed)}
    out: list[Pair] = []
    for i, size in enumerate(shape):
        if i not in earlier:
            out += [(i, tuple(sorted(parents))) for parents in largest_sets(earlier, cells // size) or [frozenset()]]
    return out


def largest_sets(sizes: dict[int, int], cells: int) -> list[frozenset[int]]:
    """The sets of attributes with at most `cells` cells that no other such set contains; none if cells is 0.

    >>> largest_sets({0: 2, 1: 3, 2: 4}, 8)
    [frozenset({0, 2}), frozenset({0, 1})]
    """
    if cells < 1:
        return []
    if not sizes:
        return [frozenset()]
    (first, size), *rest = sizes.items()
    found = dict.fromkeys(largest_sets(dict(rest), cells))
    for smaller in largest_sets(dict(rest), cells // size):
        found.pop(smaller, None)
        found[smaller | {first}] = None
    return list(found)


def dependence(table: Array) -> Fraction:
    """½ Σ |c(π, x) − c(π)c(x)/n|: the number of rows that would have to change for independence, exact.

    It is n times the score R of the reference. One more row changes it by less than SCORE_SENSITIVITY: if a and b are
    the counts of its x and its π, Σ|…| changes by at most 1 − δ + 3(n−a)(n−b)/(n(n+1)) with
    δ = (n(a+b+1) − ab)/(n(n+1)), which is largest at a = b = 0: 4n/(n+1). Exact for up to 2³¹ rows.

    >>> dependence(np.array([[2, 0], [0, 2]])), dependence(np.array([[1, 1], [1, 1]]))
    (Fraction(2, 1), Fraction(0, 1))
    """
    rows, columns, n = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True), int(table.sum())
    apart = np.abs(n * table - rows * columns)  # below 2⁶², and so are 2³¹ of their high and low halves together
    return Fraction((int((apart >> 31).sum()) << 31) + int((apart & (2**31 - 1)).sum()), 2 * max(n, 1))


def useful_cells(rows: int, epsilon: Fraction, tables: int, usefulness: int) -> int:
    """The most cells of a table whose average count is `usefulness` times the scale of its noise.

    >>> useful_cells(1000, Fraction(1), 5, 4)
    50
    """
    return math.floor(rows * epsilon / (usefulness * tables))


def affordable_cells(shape: Sequence[int], cells: int) -> int:
    """The most cells of a table, at most those asked for, such that choosing parents stays affordable.

    It is what was asked for, at most 2²⁴, halved until all tables of at most that many cells, with every attribute as
    the child, have at most 2³² cells together; a small table counts for 2¹⁰. With up to 5 attributes, only tables of
    more than 2²⁴ cells are out of reach.

    >>> affordable_cells((2,) * 5, 50), affordable_cells((2,) * 100, 50_000)
    (50, 6)
    """
    cells = min(cells, _MOST_CELLS)
    while len(shape) * sets_within(shape, cells) * max(cells, _LEAST_WORK) > _MOST_WORK:
        cells //= 2
    return cells


def sets_within(sizes: Sequence[int], cells: int) -> int:
    """How many sets of attributes have at most `cells` cells together. O(attributes·√cells).

    >>> sets_within((2, 3, 4), 8)  # none, each, and 2 with 3 or 4
    6
    """
    rooms = Counter({cells: 1})  # room left for further attributes: how many sets leave it
    for size in sizes:
        for room, sets in list(rooms.items()):
            if size <= room:
                rooms[room // size] += sets
    return rooms.total() if cells > 0 else 0
