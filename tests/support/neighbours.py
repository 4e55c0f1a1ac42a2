"""The privacy loss of neighbouring tables, by writing out every row that there can be: exact, for small domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from hdmm import PureDP
from hdmm.describe.values import Values
from hdmm.matrix import Matrix, to_dense
from hdmm.measure.prepare import Prepared
from hdmm.strategy.lattice import on_parts

Answers = list[Any]  # of one row to each block, in Python's integers


def assert_no_more_than_asked(prepared: Prepared) -> None:
    """No neighbour loses more than what was asked for, and one loses all of it where it is added or removed."""
    privacy, lost = prepared.privacy, largest_loss(prepared)
    asked = privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho
    assert lost <= asked
    assert lost == asked or prepared.unit.neighbours == "replace"  # a row may have no other at twice its distance


def largest_loss(prepared: Prepared) -> Fraction:
    """The most of ε, or of ρ, that a neighbour by the unit of a measurement loses, over all pairs of neighbours.

    It is a maximum where the rows of a person are equal, because a norm is convex in what they add.
    """
    order, unit = prepared.privacy.noise.order, prepared.unit
    changes: Iterable[Answers] = answers_of_rows(prepared)
    if unit.neighbours == "replace":
        changes = ([a - b for a, b in zip(*pair, strict=True)] for pair in itertools.combinations(changes, 2))
    losses = (_loss(change, prepared.scales, order) for change in changes)
    return max(losses) * unit.rows**order / order


def answers_of_rows(prepared: Prepared) -> list[Answers]:
    """What each row that there can be adds to the answers of each block, before noise."""
    attributes = prepared.strategy.domain.attributes
    blocks = [
        ([i for axes, _ in block.factors for i in axes], _whole([A for _, A in block.factors]))
        for block in on_parts(prepared.strategy)
    ]
    rows = itertools.product(*(range(attribute.codes) for attribute in attributes))
    return [
        [A @ reduce(np.kron, [_parts(attributes[i].values, row[i]) for i in axes], _one()) for axes, A in blocks]
        for row in rows
    ]


def _loss(change: Answers, scales: Sequence[Fraction], order: int) -> Fraction:
    return sum((int((abs(y) ** order).sum()) / scale for y, scale in zip(change, scales, strict=True)), Fraction(0))


def _whole(factors: Sequence[Matrix]) -> Any:
    """The Kronecker product of factors of integers, in Python's integers."""
    return reduce(np.kron, [np.array(np.rint(to_dense(A)), np.int64).astype(object) for A in factors], _one()[None])


def _parts(values: Values, code: int) -> Any:
    """How many parts of a row are in each cell."""
    if not values.divided:
        return np.array([int(cell == code) for cell in range(values.size)], object)
    return np.array([int(values.parts(np.array([code]), cell)[0]) for cell in range(values.size)], object)


def _one() -> Any:
    return np.array([1], object)
