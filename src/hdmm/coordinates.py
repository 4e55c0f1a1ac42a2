"""The coordinates of one attribute in which the blocks of a strategy weigh answers apart from each other.

One factor in every block: the cells themselves. A base in some blocks and Total in the others: the one direction Total
sees, and n − 1 residuals. Anything else that diagonalises together: the columns of Q (strategy/spectrum.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.exceptions import StrategyError
from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    Eye,
    Gram,
    Matrix,
    Ones,
    Scaled,
    Sparse,
    Stack,
    Sum,
    gram_inverse,
    to_dense,
)
from hdmm.matrix.checks import frozen
from hdmm.strategy.blocks import Block
from hdmm.strategy.mixture import tabulate
from hdmm.strategy.spectrum import EigenSpectrum, invertible, spectrum

_WRITTEN = 64  # values of an attribute up to which its coordinates are a table: one product, not several


class Axis(ABC):
    """The coordinates of one attribute."""

    @abstractmethod
    def analysis(self, A: Matrix) -> Matrix:
        """From answers to A on this attribute to coordinates."""

    @abstractmethod
    def delta(self, A: Matrix) -> Array:
        """What A measures of each coordinate."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cells(Axis):
    """One factor in every block: the coordinates are the cells."""

    H: Matrix

    def analysis(self, A: Matrix) -> Matrix:
        return A if isinstance(A, Eye) else Chain(self.H, A.T)

    def delta(self, A: Matrix) -> Array:
        return np.ones(A.shape[1])


@final
@dataclass(frozen=True, eq=False)
class Split(Axis):
    """A base in some blocks and Total in the others, under the inverse gram H of the base, h = H1, c = 1ᵀh.

    Coordinate 0 is the direction h/c that Total sees; the rest are all but the last cell of what remains, which
    sums to 0.
    """

    H: Matrix
    h: Array
    c: float

    def analysis(self, A: Matrix) -> Matrix:
        return self._coordinates if isinstance(A, Eye) else Chain(self._coordinates, A.T)

    def delta(self, A: Matrix) -> Array:
        return np.concatenate([[1 / self.c], np.ones(len(self.h) - 1)])

    @cached_property
    def synthesis(self) -> Matrix:
        """From coordinates back to cells: [h/c | I; −1]."""
        n = len(self.h)
        return _small(Stack((self._row, _zero_sum(n))).T if n > 1 else self._row.T)

    @cached_property
    def _coordinates(self) -> Matrix:
        """From cells to coordinates, under H: [hᵀ/c; all but the last row of H − hhᵀ/c]."""
        n = len(self.h)
        rest = Sum((self.H, Scaled(-self.c, Gram(self._row))))
        return _small(Stack((self._row, Chain(_first(n), rest))) if n > 1 else self._row)

    @property
    def _row(self) -> Matrix:
        return Dense(frozen(self.h[None, :] / self.c))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Eigen(Axis):
    """Any factors that diagonalise together, by the columns of Q."""

    Q: Array
    factors: tuple[Matrix, ...]
    table: Array  # coordinates × factors

    def analysis(self, A: Matrix) -> Matrix:
        return Chain(Dense(frozen(self.Q.T.copy())), A.T)

    def delta(self, A: Matrix) -> Array:
        return self.table[:, self.factors.index(A)]


def coordinates(shape: Sequence[int], blocks: Sequence[Block]) -> dict[int, Axis]:
    """The coordinates of every attribute that is measured at all, of blocks that have a diagonal form."""
    totals: list[Matrix] = [Ones(1, n) for n in shape]
    _, factors = tabulate([tuple(block.by_axis.items()) for block in blocks], totals)
    axes: dict[int, Axis] = {}
    for i, (total, each) in enumerate(zip(totals, factors, strict=True)):
        others = tuple(A for A in each if total != A)
        if not others:
            continue
        if len(others) == 1 and invertible(others[0]):
            H = gram_inverse(others[0])
            h = H.matmat(np.ones((shape[i], 1)))[:, 0]
            axes[i] = Cells(H) if len(each) == 1 else Split(H, h, float(h.sum()))
            continue
        found = spectrum(each)
        if not isinstance(found, EigenSpectrum):
            raise StrategyError("The factors on an attribute do not diagonalise together. This is a fault of hdmm.")
        sizes = np.diff([*found.starts, found.Q.shape[1]])
        axes[i] = Eigen(found.Q, each, np.repeat(found.delta, sizes, axis=0))
    return axes


def _small(A: Matrix) -> Matrix:
    """A, written out where that is quicker than its parts."""
    return Dense(frozen(to_dense(A).astype(np.float64))) if A.shape[1] <= _WRITTEN else A


def _first(n: int) -> Matrix:
    """All rows of the identity but the last."""
    return Sparse(sp.eye_array(n - 1, n, format="csr"))


def _zero_sum(n: int) -> Matrix:
    """[I | −1]: all cells but the last, which takes what makes the sum 0."""
    return Sparse(sp.hstack([sp.eye_array(n - 1), -np.ones((n - 1, 1))], format="csr"))
