"""The exact error of stacked products over two factors an attribute, its gradient and the best split of the budget.

Block g has on attribute i the first or the second factor of a pair, c_gi, so that any number of blocks has a common
diagonal form: with Q_i the generalised eigenvectors of the pair's grams (G_0i, G_1i) and δ_fi = diag(Q_iᵀG_fiQ_i),
X = Σ_g θ_g² ⊗_i G_{c_gi,i} has λ = Σ_g θ_g² ⊗_i δ_{c_gi,i}. With T = QᵀVQ = Σ_k c_k ⊗ T_ki and t its diagonal,

    f = tr(X⁻V) = Σ_cells t/λ
    ∂f/∂G_fi = −Q_i E_fi Q_iᵀ,   E_fi[a,b] = Σ_k c_k T_ki[a,b] Σ_c (⊗_{j≠i} t_kj ∘ m_fi)(c) / (λ(a,c)·λ(b,c))
    m_fi = Σ_{g: c_gi=f} θ_g² ⊗_{j≠i} δ_gj

the sum over the cells c of the other attributes: one product of n_i × N/n_i matrices a distinct gram. Two products are
two blocks, one of first and one of second factors; marginals over bases are blocks whose second factor is Total.
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
from hdmm.strategy.minimize import minimize
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.terms import Terms

MAX_CELLS = 1 << 22  # of the pair's form: a few arrays of 32 MiB
_INFEASIBLE = 1e6  # where Identity has 1
_ZERO = 1e-10  # δ's of whitened grams below this are 0; they are good to 1e-13
_SUPPORT = 1e-11  # of tr(V)·‖q‖²: rounding in qᵀVq stays near 1e-15 of it


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Blocks over two factors an attribute in their common diagonal form: what the error at any split is read from.

    `blocks` is blocks × attributes of 0 (the first factor) or 1. `weighted[i][v]` is Q_iᵀV_ivQ_i, `t` the cells of the
    workload and `cells` those of every block. Identity has error 1. O(Σ n_i³ + Σ n_i²·cost(V)) to form, N cells a
    block held.
    """

    terms: Terms
    blocks: Array
    bases: tuple[Array, ...]
    deltas: tuple[tuple[Array, ...], tuple[Array, ...]]
    weighted: tuple[tuple[Array, ...], ...]
    tables: tuple[Array, ...]
    t: Array
    cells: Array

    @classmethod
    def of(cls, terms: Terms, first: Sequence[Array], second: Sequence[Array], blocks: Array | None = None) -> Pair:
        """The form of blocks over the grams `first` and `second`, one of each an attribute of the terms.

        Without `blocks`: two products, ⊗first and ⊗second.
        """
        chosen = np.repeat([[0], [1]], len(terms.axes), axis=1) if blocks is None else blocks
        forms = [_diagonalised(G, H) for G, H in zip(first, second, strict=True)]
        bases = tuple(Q for Q, _, _ in forms)
        weighted = tuple(tuple(Q.T @ V.matmat(Q) for V in each) for Q, each in zip(bases, terms.grams, strict=True))
        tables = tuple(
            np.stack([_supported(np.diag(T), Q) for T in each], axis=1) for Q, each in zip(bases, weighted, strict=True)
        )
        deltas = tuple(d for _, d, _ in forms), tuple(d for _, _, d in forms)
        t = Mixture(terms.coefficients, terms.choices, tables).values()
        cells = np.stack([_outer([deltas[f][i] for i, f in enumerate(row)]) for row in chosen.tolist()])
        return cls(terms, chosen, bases, deltas, weighted, tables, t, cells)

    def error(self, shares: Sequence[float]) -> float:
        """Σ_cells t/λ with weights θ = shares; infinite where a cell of the workload is not measured. O(N) a block."""
        lam = np.square(shares) @ self.cells
        needed = self.t > 0
        if (lam[needed] <= 0).any():
            return np.inf
        return float(np.sum(self.t[needed] / lam[needed]))

    def split(self, noise: Noise, start: Sequence[float] | None = None) -> tuple[tuple[float, ...], float]:
        """(θ, error) at the best split: Σθ = 1 for Laplace, Σθ² = 1 for Gaussian.

        By the true error, cells measured by several blocks counting for all of them. About 20 evaluations of O(N) for
        two blocks; for more a descent from `start` (even shares unless told), of which Laplace noise has many ends.

        >>> from hdmm import Domain, Workload
        >>> terms = Terms.of(Workload.marginals(Domain({"a": 3, "b": 3}), k=1))
        >>> I, J = np.eye(3), np.ones((3, 3))
        >>> np.round(Pair.of(terms, [I, J], [J, I]).split(Noise.LAPLACE)[0], 6).tolist()
        [0.5, 0.5]
        """
        needed = self.t > 0
        t, cells = self.t[needed], self.cells[:, needed]
        u = _line_split(t, cells, noise) if len(cells) == 2 else _split(t, cells, noise, start)
        theta = np.sqrt(u)
        theta /= noise.norm(theta)
        return tuple(theta.tolist()), float(np.sum(t / (theta**2 @ cells)))

    def gradients(self, shares: Sequence[float]) -> tuple[list[Array], list[Array]]:
        """∂ error/∂G_fi for both factors of every attribute, at fixed θ. O(Σ_i n_i·N) a distinct gram."""
        squares = np.square(shares)
        lam = squares @ self.cells
        sizes = self.terms.sizes
        inverse = np.where((self.t > 0) & (lam > 0), 1 / np.where(lam > 0, lam, 1.0), 0.0).reshape(sizes)
        out: tuple[list[Array], list[Array]] = ([], [])
        for i, Q in enumerate(self.bases):
            L = np.ascontiguousarray(np.moveaxis(inverse, i, 0).reshape(sizes[i], -1))
            measured = [self._measured(i, f, squares) for f in range(2)]
            E = [np.zeros((sizes[i], sizes[i])) for _ in out]
            for v, T in enumerate(self.weighted[i]):
                others = self._others(i, v)
                for f in range(2):
                    u = others * measured[f]
                    used = u > 0
                    E[f] += T * ((L[:, used] * u[used]) @ L[:, used].T)
            for f in range(2):
                out[f].append(-(Q @ E[f] @ Q.T))
        return out

    def _measured(self, i: int, f: int, squares: Array) -> Array:
        """Σ θ_g² ⊗_{j≠i} δ_gj over the blocks whose i-th factor is the f-th: a vector over the other cells."""
        out = np.zeros(math.prod(self.terms.sizes) // self.terms.sizes[i])
        for square, row in zip(squares.tolist(), self.blocks.tolist(), strict=True):
            if row[i] == f:
                out += square * _outer([self.deltas[c][j] for j, c in enumerate(row) if j != i])
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


def _line_split(t: Array, cells: Array, noise: Noise) -> Array:
    """θ² of two blocks, on a line."""
    a, b = cells

    def squares(x: float) -> Array:
        return np.array([x * x, (1 - x) ** 2]) if noise is Noise.LAPLACE else np.array([x, 1 - x])

    def at(x: float) -> float:
        u, v = squares(x)
        return float(np.sum(t / (u * a + v * b)))

    inside: Any = scipy.optimize.fminbound(at, 1e-6, 1 - 1e-6, xtol=1e-9)
    ends = [float(x) for x, whole in ((1, a), (0, b)) if (whole > 0).all()]  # one product measures it all
    return squares(min([float(inside), *ends], key=at))


def _split(t: Array, cells: Array, noise: Noise, start: Sequence[float] | None) -> Array:
    """θ² of any number of blocks at a local minimum of (Σθ)²·Σt/λ, or the minimum of (Σθ²)·Σt/λ."""

    def objective(x: Array) -> tuple[float, Array]:
        u, slope, norm = (x * x, 2 * x, x.sum()) if noise is Noise.LAPLACE else (x, np.ones(len(x)), math.sqrt(x.sum()))
        lam = u @ cells
        if (lam <= 0).any():
            return _INFEASIBLE, np.zeros(len(x))  # something is not measured: the step is shortened
        value = float(np.sum(t / lam))
        by_norm = 2 * norm * value if noise is Noise.LAPLACE else value
        return norm**2 * value, by_norm - norm**2 * slope * (cells @ (t / lam**2))

    theta = np.full(len(cells), 1.0 / len(cells)) if start is None else np.asarray(start, dtype=np.float64)
    x0 = theta if noise is Noise.LAPLACE else theta**2
    found = minimize(objective, x0, tolerance=1e-10, iterations=200).x
    return found**2 if noise is Noise.LAPLACE else found


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
