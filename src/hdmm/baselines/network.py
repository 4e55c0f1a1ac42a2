"""PrivBayes's network: an order of the attributes, each with the earlier ones it depends on most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from hdmm.data.counts import Counts
from hdmm.describe.domain import Domain

Pair: TypeAlias = tuple[int, tuple[int, ...]]  # an attribute and its parents, as positions in the domain
Marginals: TypeAlias = Callable[[list[tuple[int, ...]]], Iterator[Counts]]
PrivateChoice: TypeAlias = Callable[[Sequence[Fraction | int]], int]  # the place of one of the scores

SCORE_SENSITIVITY = 2  # of `dependence` to one row
_MOST_CELLS = 1 << 24  # of a table: 128 MiB
_LIMB = 31  # bits: counts of 2²⁴ cells of up to 2³⁸ rows each have two such limbs
_MASK = (1 << _LIMB) - 1
_MOST_WORK = 1 << 32  # cells of all tables that may be examined for one choice
_LEAST_WORK = 1 << 10  # cells that take as long as the fixed cost of a table


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


def dependence(table: Counts) -> Fraction:
    """½ Σ |c(π, x) − c(π)c(x)/n|: the number of rows that would have to change for independence, exact.

    It is n times the score R of the reference. One more row changes it by less than SCORE_SENSITIVITY: if a and b are
    the counts of its x and its π, Σ|…| changes by at most 1 − δ + 3(n−a)(n−b)/(n(n+1)) with
    δ = (n(a+b+1) − ab)/(n(n+1)), which is largest at a = b = 0: 4n/(n+1).

    >>> dependence(np.array([[2, 0], [0, 2]])), dependence(np.array([[1, 1], [1, 1]]))
    (Fraction(2, 1), Fraction(0, 1))
    """
    if len(table) == 1:
        return Fraction(0)  # no parents: c(π) = n
    n = sum(table.sum(axis=1).tolist())
    return Fraction(_apart(table, n), 2 * max(n, 1))


def _apart(table: Counts, n: int) -> int:
    """Σ |n·c(π, x) − c(π)c(x)|, exact for products of up to 124 bits, with the same int64 steps for all counts.

    Each factor is high·2³¹ + low, so each difference is h·2⁶² + m·2³¹ + l with sums of products that fit int64.
    After carrying, m and l are from 0 to 2³¹ − 1, so the sign of h is the sign of the difference.
    """
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    (n1, n0), (c1, c0), (a1, a0), (b1, b0) = ((v >> _LIMB, v & _MASK) for v in (n, table, rows, columns))
    low = n0 * c0 - a0 * b0
    middle = (n1 * c0 + n0 * c1) - (a1 * b0 + a0 * b1) + (low >> _LIMB)
    high = n1 * c1 - a1 * b1 + (middle >> _LIMB)
    sign = np.where(high < 0, -1, 1)
    limbs = (low & _MASK, middle & _MASK, high & _MASK, high >> _LIMB)
    return sum(int((sign * limb).sum()) << _LIMB * k for k, limb in enumerate(limbs))


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
