"""Family: matrices with columns of norm 1 as a function of free numbers x, and how a gradient is pulled back to x.

Everything that depends on A(x) depends on it through G = AᵀA. Losses that are traces of H = G⁻¹ are computed implicitly
(`Implicit.loss`, and `theta.InverseGram` for several at once), in O(np²) for p-Identities; losses that need the
eigenvectors of G have it written out (`Explicit.gram`), in O(pn²), and one rule has their gradients (`Divided.pull`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.matrix import Array, Dense, ExtendedDiagonal, Eye, Matrix, Ones, gram, to_dense
from hdmm.privacy.guarantee import Noise

LARGEST = 1e3  # entries of Θ: beyond it the identity rows are negligible, and losses lose their digits
_THIN = 3e-3  # costs 1e-5 of the error if queries on an attribute do not span all of its directions


class Family(ABC):
    """x ↦ A(x), whose columns all have norm 1."""

    __slots__ = ()

    @abstractmethod
    def matrix(self, x: Array) -> Matrix:
        """A at x."""


class Implicit(Family):
    """A family whose loss for a gram matrix V needs no n × n array."""

    __slots__ = ()

    @abstractmethod
    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C = tr((AᵀA)⁻¹V) and ∂C/∂x."""


class Explicit(Family):
    """A family whose gram matrices are written out; `start` is None if nothing is free."""

    __slots__ = ()

    start: Array | None

    @abstractmethod
    def gram(self, x: Array) -> Array:
        """G at x: n × n, or diag of its two eigenvalues (on 1, on the rest) for an even factor."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A = B/s, below I/s if there is an `identity`: s has the norm of each column, or one number for all of them.

    `slopes` is ∂s/∂B, of each column's norm by its own entries, or of the one number by all.
    """

    A: Array
    s: Array
    slopes: Array
    identity: bool = False


class Divided(Explicit):
    """A family of matrices B(x), linear in x, whose columns are divided by norms."""

    __slots__ = ()

    @abstractmethod
    def columns(self, x: Array) -> Columns:
        """The columns at x."""

    @abstractmethod
    def free_entries(self, B: Array) -> Array:
        """∂f/∂x from ∂f/∂B."""

    @final
    def gram(self, x: Array) -> Array:
        at = self.columns(x)
        G = at.A.T @ at.A
        if at.identity:
            G.flat[:: len(G) + 1] += 1 / at.s**2
        return G

    @final
    def pull(self, x: Array, F: Array) -> Array:
        """∂f/∂x, given the symmetric F = ∂f/∂G at x: ∂f/∂B is 2AF/s at fixed s, and ∂f/∂s is −2 diag(GF)/s. O(pn²)."""
        at = self.columns(x)
        AF = at.A @ F
        on = np.einsum("pn,pn->n", AF, at.A)
        if at.identity:
            on += F.diagonal() / at.s**2
        if len(at.s) == 1:
            on = on.sum()
        return self.free_entries(2 * (AF - on * at.slopes) / at.s)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Constant(Explicit):
    """A factor that stays as it is, such as Total. If `folded`, its gram is given by its two eigenvalues.

    >>> Constant(Ones(1, 3), folded=True).gram(np.empty(0))
    array([[3., 0.],
           [0., 0.]])
    """

    A: Matrix
    folded: bool = False
    start: Array | None = None

    def matrix(self, x: Array) -> Matrix:
        return self.A

    def gram(self, x: Array) -> Array:
        if self.folded:
            return np.diag([float(self.A.shape[1]), 0.0] if isinstance(self.A, Ones) else [1.0, 1.0])
        return to_dense(gram(self.A)).astype(np.float64)


@final
@dataclass(frozen=True, slots=True, eq=False)
class EvenRow(Divided):
    """[I; t·1ᵀ] scaled to columns of norm 1: all that an attribute of identities and totals needs; x = [t].

    In coordinates of 1 and its complement the row is (t√n, 0).

    >>> EvenRow(3, Noise.LAPLACE, np.array([1.0])).gram(np.array([1.0])).round(12)
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """

    n: int
    noise: Noise
    start: Array | None

    def matrix(self, x: Array) -> Matrix:
        t = abs(float(x[0]))  # under Gaussian noise x is free, and only t² matters
        return ExtendedDiagonal(Dense(np.full((1, self.n), t)), order=self.noise.order) if t else Eye(self.n)

    def columns(self, x: Array) -> Columns:
        t, root = float(x[0]), self.n**0.5
        s, slope = (1 + t, 1.0) if self.noise is Noise.LAPLACE else ((1 + t * t) ** 0.5, t / (1 + t * t) ** 0.5)
        return Columns(np.array([[t * root / s, 0.0]]), np.array([s]), np.array([[slope / root, 0.0]]), identity=True)

    def free_entries(self, B: Array) -> Array:
        return B[0, :1] * self.n**0.5


@final
@dataclass(frozen=True, slots=True, eq=False)
class Roots(Divided):
    """R with columns scaled to L2 norm 1: any strategy, for Gaussian noise."""

    start: Array | None

    def matrix(self, x: Array) -> Matrix:
        """A, whose singular values are kept above _THIN of the largest: below that, its errors are mostly rounding."""
        A = x / np.linalg.norm(x, axis=0)
        U, s, V = np.linalg.svd(A, full_matrices=False)
        if s[-1] < _THIN * s[0]:
            A = (U * np.maximum(s, _THIN * s[0])) @ V
            A /= np.linalg.norm(A, axis=0)
        return Dense(A)

    def columns(self, x: Array) -> Columns:
        norms = np.linalg.norm(x, axis=0)
        return Columns(x / norms, norms, x / norms)

    def free_entries(self, B: Array) -> Array:
        return B


@final
@dataclass(frozen=True, slots=True, eq=False)
class SignedRows(Divided):
    """C·R over orthonormal rows R, divided by a smooth bound on its largest column L1 norm: any signs, Laplace noise.

    |a| is √(a² + smooth²), and the largest norm the p-norm of all of them for a large power p. Grams are CᵀC, in the
    coordinates of R.
    """

    R: Array
    start: Array | None
    smooth: float
    power: float

    def matrix(self, x: Array) -> Matrix:
        A = x @ self.R
        return Dense(A / np.abs(A).sum(axis=0).max())

    def columns(self, x: Array) -> Columns:
        A = x @ self.R
        sizes = np.sqrt(A * A + self.smooth**2)
        norms = sizes.sum(axis=0)
        largest = norms.max()
        s = largest * ((norms / largest) ** self.power).sum() ** (1 / self.power)
        by_entry = A / sizes * (norms / s) ** (self.power - 1)
        return Columns(x / s, np.array([s]), by_entry @ self.R.T)

    def free_entries(self, B: Array) -> Array:
        return B
