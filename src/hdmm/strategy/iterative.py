"""Unions of products without a diagonal form: written out on small domains, solved by iteration beyond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, cg

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense, Matrix, diagonal, gram, quadratic, to_dense, trace, trace_product
from hdmm.strategy.blocks import Block
from hdmm.strategy.diagonal import rows_of
from hdmm.strategy.form import Form, NoClosedFormError

MOST_WRITTEN = 4096  # cells of a dense AᵀA: 128 MiB and an eigendecomposition of seconds
_NULL = 1e-11


@final
@dataclass(frozen=True, slots=True, eq=False)
class Written(Form):
    """(AᵀA)⁺ and the projection onto what A does not see, written out. O(N³) to form, N² numbers each."""

    domain: Domain
    blocks: Sequence[Block]
    inverse: Matrix
    unseen: Matrix

    @classmethod
    def of(cls, domain: Domain, blocks: Sequence[Block], A: Matrix) -> Written:
        """The form of blocks whose matrix is A, on at most MOST_WRITTEN cells."""
        values, Q = scipy.linalg.eigh(to_dense(gram(A)).astype(np.float64), driver="evd")
        seen = values > len(values) * 10 * np.finfo(float).eps * values[-1]
        inverse = (Q[:, seen] / values[seen]) @ Q[:, seen].T
        return cls(domain, blocks, Dense(inverse), Dense(Q[:, ~seen] @ Q[:, ~seen].T))

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_k w_k² tr((AᵀA)⁺V_k); infinite if a product asks for something A does not see."""
        total = 0.0
        for V in [product.gram for product in products if product.weight > 0]:
            if trace_product(self.unseen, V) > _NULL * trace(V):
                return math.inf
            total += trace_product(self.inverse, V)
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        yield np.maximum(quadratic(replace(product, weight=1.0).matrix, self.inverse), 0.0)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        R = rows_of(replace(first, weight=1.0).matrix, rows)
        S = rows_of(replace(second, weight=1.0).matrix, others)
        return np.einsum("ij,ij->j", R, self.inverse.matmat(S))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unknown(Form):
    """Measurements whose variances are not known, for a `reason` that the error states.

    This is the form of blocks on too many cells to write out, whose answers are found by iteration; and, without
    blocks, of mechanisms that choose what they measure by looking at the data.
    """

    reason: str
    domain: Domain
    blocks: Sequence[Block] = ()

    def total_variance(self, products: Sequence[Product]) -> float:
        self._refuse()

    def variances(self, product: Product) -> Iterator[Array]:
        self._refuse()

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NoClosedFormError(self.reason)


def solved(X: Matrix, u: Array, tolerance: float) -> Array:
    """x with Xx = u by conjugate gradients, preconditioned by diag X; u is one column."""
    scale = diagonal(X).astype(np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    n = len(scale)

    def times(x: Array) -> Array:
        return X.matmat(x.reshape(-1, 1))[:, 0]

    def unscaled(x: Array) -> Array:
        return x.ravel() / scale

    operators: list[Any] = [LinearOperator(shape=(n, n), matvec=f, dtype=np.float64) for f in (times, unscaled)]  # pyright: ignore[reportCallIssue]
    found, failed = cg(operators[0], u[:, 0].astype(np.float64), rtol=tolerance, maxiter=10 * n, M=operators[1])
    if failed:
        raise StrategyError(
            f"Conjugate gradients did not converge in {10 * n:,} steps: the strategy may not support the workload. "
            "Add the missing queries to it, or use at most two products."
        )
    return found[:, None]
