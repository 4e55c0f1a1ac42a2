"""The exact error of two stacked products, its gradient and the best split of the budget between them.

With X = Σ_g θ_g² ⊗_i G_gi, G_gi = A_giᵀA_gi, and Q_i the generalised eigenvectors of (G_1i, G_2i), X is diagonal:
λ = Σ_g θ_g² ⊗_i δ_gi. With T = QᵀVQ = Σ_k c_k ⊗ T_ki and t its diagonal,

    f = tr(X⁻V) = Σ_cells t/λ
    ∂f/∂G_gi = −θ_g² Q_i E_gi Q_iᵀ,   E_gi[a,b] = Σ_k c_k T_ki[a,b] Σ_c (⊗_{j≠i} δ_gj t_kj)(c) / (λ(a,c)·λ(b,c))

the sum over the cells c of the other attributes: one product of n_i × N/n_i matrices a distinct gram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

import numpy as np
import scipy.linalg
import scipy.optimize

from hdmm.matrix import Array
from hdmm.privacy import Noise
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.terms import Terms

MAX_CELLS = 1 << 22  # of the pair's form: a few arrays of 32 MiB
_ZERO = 1e-10  # δ's of whitened grams below this are 0; they are good to 1e-13
_SUPPORT = 1e-11  # of tr(V)·‖q‖²: rounding in qᵀVq stays near 1e-15 of it


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two products in their common diagonal form: what the error at any split is read from.

    `weighted[i][v]` is Q_iᵀV_ivQ_i, `first` and `second` the δ's, `t`, `a` and `b` the cells of the workload and
    of the two products. Identity has error 1. O(Σ n_i³ + Σ n_i²·cost(V)) to form, N cells held.
    """

    terms: Terms
    bases: tuple[Array, ...]
    deltas: tuple[tuple[Array, ...], tuple[Array, ...]]
    weighted: tuple[tuple[Array, ...], ...]
    tables: tuple[Array, ...]
    t: Array
    a: Array
    b: Array

    @classmethod
    def of(cls, terms: Terms, first: Sequence[Array], second: Sequence[Array]) -> Pair:
        """The form of the two products with grams ⊗first and ⊗second, one an attribute of the terms."""
        forms = [_diagonalised(G, H) for G, H in zip(first, second, strict=True)]
        bases = tuple(Q for Q, _, _ in forms)
        weighted = tuple(tuple(Q.T @ V.matmat(Q) for V in each) for Q, each in zip(bases, terms.grams, strict=True))
        tables = tuple(
            np.stack([_supported(np.diag(T), Q) for T in each], axis=1) for Q, each in zip(bases, weighted, strict=True)
        )
        deltas = tuple(d for _, d, _ in forms), tuple(d for _, _, d in forms)
        t = Mixture(terms.coefficients, terms.choices, tables).values()
        return cls(terms, bases, deltas, weighted, tables, t, _outer(deltas[0]), _outer(deltas[1]))

    def error(self, shares: tuple[float, float]) -> float:
        """Σ_cells t/λ with weights θ = shares; infinite where a cell of the workload is not measured. O(N)."""
        lam = shares[0] ** 2 * self.a + shares[1] ** 2 * self.b
        needed = self.t > 0
        if (lam[needed] <= 0).any():
            return np.inf
        return float(np.sum(self.t[needed] / lam[needed]))

    def split(self, noise: Noise) -> tuple[tuple[float, float], float]:
        """((θ₁, θ₂), error) at the best split: θ₁ + θ₂ = 1 for Laplace, θ₁² + θ₂² = 1 for Gaussian.

        By the true error, cells measured by both products counting both; about 20 evaluations of O(N).

        >>> from hdmm import Domain, Workload
        >>> terms = Terms.of(Workload.marginals(Domain({"a": 3, "b": 3}), k=1))
        >>> I, J = np.eye(3), np.ones((3, 3))
        >>> np.round(Pair.of(terms, [I, J], [J, I]).split("laplace")[0], 6).tolist()
        [0.5, 0.5]
        """
        needed = self.t > 0
        t, a, b = self.t[needed], self.a[needed], self.b[needed]

        def at(x: float) -> float:
            u, v = (x * x, (1 - x) ** 2) if noise == "laplace" else (x, 1 - x)
            return float(np.sum(t / (u * a + v * b)))

        inside: Any = scipy.optimize.fminbound(at, 1e-6, 1 - 1e-6, xtol=1e-9)
        ends = [float(x) for x, whole in ((1, a), (0, b)) if (whole > 0).all()]  # one product measures it all
        x = min([float(inside), *ends], key=at)
        shares = (x, 1 - x) if noise == "laplace" else (math.sqrt(x), math.sqrt(1 - x))
        return shares, at(x)

    def gradients(self, shares: tuple[float, float]) -> tuple[list[Array], list[Array]]:
        """∂ error/∂G_gi for both products, at fixed θ. O(Σ_i n_i·N) a distinct gram."""
        lam = shares[0] ** 2 * self.a + shares[1] ** 2 * self.b
        sizes = self.terms.sizes
        inverse = np.where((self.t > 0) & (lam > 0), 1 / np.where(lam > 0, lam, 1.0), 0.0).reshape(sizes)
        out: tuple[list[Array], list[Array]] = ([], [])
        for i, Q in enumerate(self.bases):
            L = np.ascontiguousarray(np.moveaxis(inverse, i, 0).reshape(sizes[i], -1))
            E = [np.zeros((sizes[i], sizes[i])) for _ in out]
            for v, T in enumerate(self.weighted[i]):
                others = self._others(i, v)
                for g in range(2):
                    u = others * _outer(self._without(self.deltas[g], i))
                    used = u > 0
                    E[g] += T * ((L[:, used] * u[used]) @ L[:, used].T)
            for g in range(2):
                out[g].append(-(shares[g] ** 2) * (Q @ E[g] @ Q.T))
        return out

    def _others(self, i: int, v: int) -> Array:
        """Σ c_k ⊗_{j≠i} t_kj over the products whose i-th gram is the v-th: a vector over the other cells."""
        chosen = self.terms.choices[:, i] == v
        choices = np.delete(self.terms.choices[chosen], i, axis=1)
        if not choices.shape[1]:
            return np.array([self.terms.coefficients[chosen].sum()])
        return Mixture(self.terms.coefficients[chosen], choices, self._without(self.tables, i)).values()

    @staticmethod
    def _without(items: tuple[Array, ...], i: int) -> tuple[Array, ...]:
        return items[:i] + items[i + 1 :]


def _diagonalised(G: Array, H: Array) -> tuple[Array, Array, Array]:
    """(Q, δ, ε) with QᵀGQ = diag(δ) and QᵀHQ = diag(ε), G + H invertible. O(n³)."""
    g, h = float(np.trace(G)), float(np.trace(H))
    L = scipy.linalg.cholesky(G / g + H / h, lower=True)
    white = scipy.linalg.solve_triangular(L, np.eye(len(G)), lower=True)
    values, U = scipy.linalg.eigh(white @ (G / g) @ white.T, driver="evd")
    values = np.where(values < _ZERO, 0.0, np.where(values > 1 - _ZERO, 1.0, values))
    return white.T @ U, g * values, h * (1 - values)


def _supported(diagonal: Array, Q: Array) -> Array:
    """diag(QᵀVQ) with rounding noise set to 0, V of trace 1."""
    return np.where(diagonal > _SUPPORT * np.einsum("ij,ij->j", Q, Q), diagonal, 0.0)


def _outer(vectors: Sequence[Array]) -> Array:
    """⊗ of vectors, the first slowest."""
    return reduce(lambda x, y: np.multiply.outer(x, y).ravel(), vectors, np.ones(1))
