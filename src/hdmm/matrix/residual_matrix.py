"""Residual: what the values of an attribute hold beyond its total, as a matrix of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hdmm.matrix.checks import count, widened
from hdmm.matrix.elementary import axis_sum
from hdmm.matrix.matrix import Array, Matrix


@final
@dataclass(frozen=True, slots=True)
class Residual(Matrix):
    """nI − J: n times every value less the total. It sees nothing of the total. O(n) per column.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Residual(3))
    array([[ 2., -1., -1.],
           [-1.,  2., -1.],
           [-1., -1.,  2.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Residual"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        """n times every cell, less the sum over the axis; integers modulo 2⁶⁴."""
        values = widened(X)
        found = self.n * values
        found -= axis_sum(values)
        return found

    def along_t(self, X: Array) -> Array:
        """The same: nI − J is symmetric."""
        return self.along(X)
