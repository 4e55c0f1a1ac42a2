"""Parameter: one factor of a product as a function of free numbers, and how a gradient comes back to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.matrix import Array, Dense, Eye, Matrix, Ones, PIdentity, Scaled, gram, to_dense
from hdmm.privacy import Noise
from hdmm.strategy.theta import theta_of

_THIN = 3e-3  # costs 1e-5 of the error where an attribute asks for less than all of its directions


class Parameter(ABC):
    """x ↦ A(x) with columns of norm 1, G = AᵀA, and ∂f/∂x from F = ∂f/∂G; `start` is None where nothing is free."""

    __slots__ = ()

    start: Array | None

    @abstractmethod
    def gram(self, x: Array) -> Array:
        """G at x: n × n, or diag of its two eigenvalues (on 1, on the rest) for an even factor."""

    @abstractmethod
    def pulled(self, x: Array, F: Array) -> Array:
        """∂f/∂x, given the symmetric F = ∂f/∂G at x."""

    @abstractmethod
    def factor(self, x: Array) -> Matrix:
        """A at x."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Constant(Parameter):
    """A factor that stays as it is, such as Total. `folded`: by its two eigenvalues.

    >>> Constant(Ones(1, 3), folded=True).gram(np.empty(0))
    array([[3., 0.],
           [0., 0.]])
    """

    A: Matrix
    folded: bool = False
    start: Array | None = None

    def gram(self, x: Array) -> Array:
        if self.folded:
            return np.diag([float(self.A.shape[1]), 0.0] if isinstance(self.A, Ones) else [1.0, 1.0])
        return to_dense(gram(self.A)).astype(np.float64)

    def pulled(self, x: Array, F: Array) -> Array:
        return np.zeros_like(x)

    def factor(self, x: Array) -> Matrix:
        return self.A


@final
@dataclass(frozen=True, slots=True, eq=False)
class EvenRow(Parameter):
    """[I; t·1ᵀ] scaled to columns of norm 1: all that an attribute of identities and totals needs; x = [t].

    >>> EvenRow(3, Noise.LAPLACE, np.array([1.0])).gram(np.array([1.0]))
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """

    n: int
    noise: Noise
    start: Array | None

    def gram(self, x: Array) -> Array:
        t = float(x[0])
        return np.diag([1 + self.n * t * t, 1.0]) / self._norm(t)

    def pulled(self, x: Array, F: Array) -> Array:
        t = float(x[0])
        u, du = self._norm(t), 2 * (1 + t) if self.noise is Noise.LAPLACE else 2 * t
        numerators = np.array([1 + self.n * t * t, 1.0])
        slopes = np.array([2 * self.n * t, 0.0]) / u - numerators * du / u**2
        return np.array([F.diagonal() @ slopes])

    def factor(self, x: Array) -> Matrix:
        t = abs(float(x[0]))  # under Gaussian noise x is free, and only t² matters
        if t == 0:
            return Eye(self.n)
        A = PIdentity(np.full((1, self.n), t))
        return A if self.noise is Noise.LAPLACE else Scaled((1 + t) / self._norm(t) ** 0.5, A)

    def _norm(self, t: float) -> float:
        return (1 + t) ** 2 if self.noise is Noise.LAPLACE else 1 + t * t


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rows(Parameter):
    """[I; Θ]·diag(1/s), s = 1 + Θᵀ1: the p-Identity matrices, for Laplace noise."""

    start: Array | None

    def gram(self, x: Array) -> Array:
        s = 1 + x.sum(axis=0)
        G = (x / s).T @ (x / s)
        G.flat[:: len(s) + 1] += 1 / s**2
        return G

    def pulled(self, x: Array, F: Array) -> Array:
        """With A = B·diag(1/s): ∂f/∂A = 2AF, ∂f/∂s = −2 diag(GF)/s. O(pn²)."""
        s = 1 + x.sum(axis=0)
        A = x / s
        AF = A @ F
        return 2 * (AF - np.einsum("pn,pn->n", AF, A) - F.diagonal() / s**2) / s

    def factor(self, x: Array) -> Matrix:
        kept = x[x.max(axis=1) > 0]
        return PIdentity(kept) if len(kept) else Eye(x.shape[1])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Root(Parameter):
    """R with columns scaled to L2 norm 1: any strategy, for Gaussian noise."""

    start: Array | None

    def gram(self, x: Array) -> Array:
        A = x / np.linalg.norm(x, axis=0)
        return A.T @ A

    def pulled(self, x: Array, F: Array) -> Array:
        norms = np.linalg.norm(x, axis=0)
        A = x / norms
        AF = 2 * A @ F
        return (AF - A * np.einsum("pn,pn->n", AF, A)) / norms

    def factor(self, x: Array) -> Matrix:
        """A, whose singular values are kept above _THIN of the largest: below, its errors are those of rounding."""
        A = x / np.linalg.norm(x, axis=0)
        U, s, V = np.linalg.svd(A, full_matrices=False)
        if s[-1] < _THIN * s[0]:
            A = (U * np.maximum(s, _THIN * s[0])) @ V
            A /= np.linalg.norm(A, axis=0)
        return Dense(A)


def parameter(A: Matrix, noise: Noise, *, even: bool) -> Parameter:
    """The parameter whose start is A; `even` where the attribute has only identities and totals. O(n²).

    >>> parameter(Eye(3), Noise.LAPLACE, even=False).start.shape
    (1, 3)
    """
    n = A.shape[1]
    if isinstance(A, Ones):
        return Constant(A, even)
    if even:
        return EvenRow(n, noise, np.array([_even_weight(A)]))
    if noise is Noise.GAUSSIAN:
        return Root(to_dense(A).astype(np.float64))
    theta = theta_of(A)
    return Constant(A) if theta is None else Rows(theta)


def _even_weight(A: Matrix) -> float:
    """t of the [I; t·1ᵀ] whose gram has the same ratio of mean eigenvalues on 1 and on the rest as A's."""
    n = A.shape[1]
    ones = A.matmat(np.ones((n, 1)))
    on_one = float(np.sum(ones**2)) / n
    rest = (float(np.sum(to_dense(A).astype(np.float64) ** 2)) - on_one) / max(n - 1, 1)
    return float(np.sqrt(max(on_one / rest - 1, 0.0) / n))
