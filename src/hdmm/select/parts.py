"""Parts: products whose errors are combined by a norm instead of a sum, so that the largest counts most.

If e_k is the error of part k, φ(e) = ‖e‖_p is homogeneous: φ = Σ_k ω_k e_k with ω = ∇φ(e). So every formula for a sum
of errors, and its gradient, holds at the weights ω if ω is recomputed whenever e is. A maximum is approached by p = 8,
64, 512 in turn: a large p from a bad start ends anywhere, and p = 32 leaves 1 % of the largest error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np

from hdmm.matrix import Array

POWERS = (8.0, 64.0, 512.0)
_LEAST = 1e-150  # of λ


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The part of each product, and the power of the norm that combines the errors of the parts.

    >>> parts = Parts(np.array([0, 1, 1]), 2, 8.0)
    >>> parts.sums(np.array([3.0, 1.0, 1.0])).tolist()
    [3.0, 2.0]
    >>> parts.weights(np.array([3.0, 2.0])).round(3).tolist()
    [0.967, 0.057]
    """

    of: Array
    count: int
    power: float

    def sums(self, values: Array) -> Array:
        """The sum of the values of the products in each part."""
        return np.bincount(self.of, weights=values, minlength=self.count)

    def weights(self, errors: Array) -> Array:
        """ω = ∇‖e‖_p, for one column of errors or several; equal weights if an error is infinite."""
        largest = errors.max(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = errors / largest
            norm = (ratio**self.power).sum(axis=0) ** (1 / self.power)
            found = (ratio / norm) ** (self.power - 1)
        return np.where(np.isfinite(largest) & (largest > 0), found, 1.0)

    def of_products(self, errors: Array) -> Array:
        """ω of the part of each product."""
        return self.weights(errors)[self.of]

    def taken(self, products: Array | list[int]) -> Parts:
        """The parts of some of the products."""
        return replace(self, of=self.of[products])


def sharpened(parts: Parts | None) -> Iterator[Parts | None]:
    """The parts with each power that a descent goes through, from their own on; one step if errors are summed."""
    if parts is None:
        yield None
        return
    yield from (replace(parts, power=power) for power in POWERS if power >= parts.power)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parted:
    """What the parts ask of each cell: t is parts × cells.

    >>> asked = Parted(np.array([[1.0, 0.0], [0.0, 2.0]]), 64.0)
    >>> asked.at(np.array([1.0, 1.0])).round(3).tolist()
    [0.0, 2.0]
    """

    t: Array
    power: float

    def weights(self, lam: Array) -> Array:
        """ω at 1/λ; columns of λ are independent."""
        inverse = 1 / np.maximum(lam, _LEAST)  # far above all other values, and finite
        return self._parts.weights(self.t @ inverse)

    def at(self, lam: Array) -> Array:
        """Σ_k ω_k t_k over the cells, for each column of λ."""
        return self.t.T @ self.weights(lam)

    @property
    def _parts(self) -> Parts:
        return Parts(np.arange(len(self.t)), len(self.t), self.power)


Asked: TypeAlias = Array | Parted
"""What is asked of each cell: summed over all products, or by parts."""


def asked_at(t: Asked, lam: Array) -> Array:
    """t as an array that broadcasts with λ."""
    if isinstance(t, Parted):
        return t.at(lam)
    return t if lam.ndim == 1 else t[:, None]
