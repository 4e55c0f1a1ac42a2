"""Gram matrices of every kind OPT_0 meets, on n cells."""

from __future__ import annotations

import numpy as np

from hdmm.matrix import (
    AllIntervalsGram,
    Conjugated,
    Cumulative,
    Dense,
    Diag,
    Eye,
    Gram,
    Intervals,
    Kron,
    Matrix,
    Ones,
    Scaled,
    Sum,
    to_dense,
)


def grams(n: int) -> dict[str, Matrix]:
    """n is even."""
    rng = np.random.default_rng(n)
    W = rng.normal(size=(2 * n, n))
    return {
        "identity": Eye(n),
        "prefix": Gram(Cumulative(n)),
        "ranges": AllIntervalsGram(n),
        "shuffled ranges": Conjugated(AllIntervalsGram(n), rng.permutation(n)),
        "dense": Dense(W.T @ W),
        "wide": Gram(Dense(W[:2])),
        "weighted sum": Sum((Scaled(2, AllIntervalsGram(n)), Ones(n, n), Scaled(0.5, Eye(n)))),
        "intervals": Gram(Intervals(n, np.arange(n) // 2, np.arange(n) // 2 + rng.integers(0, n // 2 + 1, size=n))),
        "diagonal": Diag(rng.uniform(1, 2, size=n)),
        "merged": Kron((AllIntervalsGram(2), Gram(Cumulative(n // 2)))),
    }


def dense_loss(A: np.ndarray, V: Matrix) -> float:
    """tr((AᵀA)⁻¹V) by the definition."""
    return float(np.trace(np.linalg.inv(A.T @ A) @ to_dense(V)))


def numeric_gradient(f, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences."""
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        unit = np.zeros_like(x)
        unit[at] = step
        out[at] = (f(x + unit) - f(x - unit)) / (2 * step)
    return out
