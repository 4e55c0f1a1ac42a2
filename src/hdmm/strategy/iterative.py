"""Unions of products without a diagonal form: exact error on small domains, an estimate with its error beyond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import scipy.linalg

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Dense, Matrix, diagonal, gram, quadratic, to_dense, trace, trace_product
from hdmm.strategy.diagonal import rows_of
from hdmm.workload import Product, Workload

MAX_CELLS = 4096  # cells of a dense AᵀA: 128 MiB and an eigendecomposition of seconds
_NULL = 1e-11


@final
@dataclass(frozen=True, slots=True, eq=False)
class DenseForm:
    """(AᵀA)⁺ and the projection on what A does not see, written out. O(N³) to form, N² numbers each."""

    inverse: Matrix
    unseen: Matrix

    @classmethod
    def of(cls, A: Matrix) -> DenseForm:
        """The form of any matrix on at most MAX_CELLS cells.

        >>> from hdmm.matrix import Eye
        >>> DenseForm.of(Eye(2)).inverse.array
        array([[1., 0.],
               [0., 1.]])
        """
        values, Q = scipy.linalg.eigh(to_dense(gram(A)).astype(np.float64), driver="evd")
        seen = values > len(values) * 10 * np.finfo(float).eps * values[-1]
        inverse = (Q[:, seen] / values[seen]) @ Q[:, seen].T
        return cls(Dense(inverse), Dense(Q[:, ~seen] @ Q[:, ~seen].T))

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_k w_k² tr((AᵀA)⁺V_k); infinite where a product asks for something A does not see."""
        total = 0.0
        for V in [product.gram for product in products if product.weight > 0]:
            if trace_product(self.unseen, V) > _NULL * trace(V):
                return math.inf
            total += trace_product(self.inverse, V)
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        """The variance of each query of a supported product, its weight left out."""
        weight = product.weight or 1.0
        yield np.maximum(quadratic(product.matrix, self.inverse), 0.0) / weight**2

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """cov(query rows[k] of one product, query others[k] of another), weights left out."""
        R = rows_of(replace(first, weight=1.0).matrix, rows)
        S = rows_of(replace(second, weight=1.0).matrix, others)
        return np.einsum("ij,ij->j", R, self.inverse.matmat(S))


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its standard error."""

    value: float
    standard_error: float


def estimated_variance(
    A: Matrix, workload: Workload, *, rng: np.random.Generator, samples: int = 64, tolerance: float = 1e-6
) -> Estimate:
    """‖W A⁺‖²_F = E zᵀW(AᵀA)⁺Wᵀz over random signs z: Hutchinson's estimate, each sample by conjugate gradients.

    For a union of three products or more on any domain that fits in memory; the workload must be supported. The
    solver's own error, `tolerance` of each sample, is added to the standard error. O(samples · steps · cost(A)).

    >>> from hdmm import Domain
    >>> from hdmm.matrix import Eye
    >>> w = Workload.marginals(Domain({"a": 3, "b": 4}), k=2)
    >>> estimated_variance(Eye(12), w, rng=np.random.default_rng(0), samples=4)
    Estimate(value=12.0, standard_error=...)
    """
    if samples < 2:
        raise StrategyError(f"{samples} samples have no standard error. Use 2 or more.")
    X, W = gram(A), workload.matrix
    found = np.empty(samples)
    for j in range(samples):
        u = W.T.matmat(rng.choice([-1.0, 1.0], size=(W.shape[0], 1)))
        found[j] = float(np.sum(u * solved(X, u, tolerance)))
    spread = float(found.std(ddof=1)) / math.sqrt(samples)
    return Estimate(float(found.mean()), spread + tolerance * float(found.mean()))


def solved(X: Matrix, u: Array, tolerance: float) -> Array:
    """x with Xx = u by conjugate gradients, preconditioned by diag X."""
    scale = diagonal(X).astype(np.float64)[:, None]
    scale = np.where(scale > 0, scale, 1.0)
    x, residual = np.zeros_like(u), u.astype(np.float64)
    direction = residual / scale
    energy = float(np.sum(residual * direction))
    enough = tolerance**2 * energy
    for _ in range(10 * len(u)):
        if energy <= enough:
            return x
        image = X.matmat(direction)
        step = energy / float(np.sum(direction * image))
        x += step * direction
        residual = residual - step * image
        before, energy = energy, float(np.sum(residual**2 / scale))
        direction = residual / scale + energy / before * direction
    raise StrategyError(
        f"Conjugate gradients did not converge in {10 * len(u):,} steps: the strategy may not support the workload. "
        "Add the missing queries to it, or use at most two products."
    )
