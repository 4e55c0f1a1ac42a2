"""Extrapolation: rounds that turn gram matrices V into others, G(V), and settle where V = G(V), in fewer rounds.

Anderson's method goes on from the combination of the last images G(V) whose residuals G(V) − V nearly cancel. Residuals
are compared by diagonals and row sums only, which tell surrogates apart. A combination that is no gram matrix any more
is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from hdmm.matrix import Array, Matrix, diagonal, scaled, summed, to_dense, trace

_KEPT = 3  # rounds that are combined; with five, prefixes on five of Adult's attributes take 11 rounds instead of 10
_SINGULAR = 1e-8  # relative to the largest: differences of residuals below this are rounding
_ROUNDING = 1e-10  # of the mean of the diagonal


@final
@dataclass(slots=True, eq=False)
class Extrapolation:
    """The last images, what is seen of them and of the points that they are of, and the next point as a combination.

    >>> from hdmm.matrix import Eye, Ones
    >>> found, given = Extrapolation(), [Ones(2, 2)]
    >>> for _ in range(3):  # every round comes halfway to the identity
    ...     given = found.after([summed([Eye(2), scaled(1 / trace(V) * 2, V)]) for V in given])
    >>> found.extrapolates, bool(np.allclose(to_dense(given[0]), np.eye(2) / 2))
    (True, True)
    """

    images: list[list[Matrix]] = field(default_factory=list[list[Matrix]])
    seen: list[Array] = field(default_factory=list[Array])
    points: list[Array] = field(default_factory=list[Array])
    shares: list[float] = field(default_factory=list[float])

    @property
    def extrapolates(self) -> bool:
        """Whether the next point is more than the last image."""
        return len(self.shares) > 1

    def after(self, image: Sequence[Matrix]) -> list[Matrix]:
        """The next point, after one that has this image; all matrices are taken at trace 1. O(n³) for each."""
        if self.shares:
            self.points.append(np.array(self.shares) @ np.stack(self.seen[-len(self.shares) :]))
        self.images.append([scaled(1 / trace(V), V) for V in image])
        self.seen.append(np.concatenate([_seen(V) for V in self.images[-1]]))
        self.images, self.seen, self.points = self.images[-_KEPT:], self.seen[-_KEPT:], self.points[-_KEPT:]
        self.shares = self._shares()
        found = self._point()
        if self.extrapolates and not all(map(_is_gram, found)):
            return self.taken_back()
        return found

    def taken_back(self) -> list[Matrix]:
        """The last image itself, in the place of a point that gained nothing; what came before is forgotten."""
        self.images, self.seen, self.points, self.shares = self.images[-1:], self.seen[-1:], [], [1.0]
        return self._point()

    def _shares(self) -> list[float]:
        """The shares of the last images in the next point, which sum to 1."""
        if len(self.points) < 2:  # the first image is of no point: where the rounds start
            return [1.0]
        residuals = np.stack(self.seen[-len(self.points) :]) - np.stack(self.points)
        c = np.linalg.lstsq(np.diff(residuals, axis=0).T, residuals[-1], rcond=_SINGULAR)[0]
        return np.diff([0.0, *c, 1.0]).tolist()

    def _point(self) -> list[Matrix]:
        last = self.images[-len(self.shares) :]
        return [
            summed(scaled(c, V) for c, V in zip(self.shares, each, strict=True)) for each in zip(*last, strict=True)
        ]


def _is_gram(V: Matrix) -> bool:
    """Whether a symmetric V is positive semidefinite, but for rounding."""
    G = to_dense(V).astype(np.float64)
    G.flat[:: len(G) + 1] += _ROUNDING * float(np.trace(G)) / len(G)
    try:
        np.linalg.cholesky(G)
    except np.linalg.LinAlgError:
        return False
    return True


def _seen(V: Matrix) -> Array:
    """The diagonal of V and its row sums."""
    return np.concatenate([diagonal(V), V.matmat(np.ones((V.shape[0], 1)))[:, 0]]).astype(np.float64)
