"""Everything computed the plain way, on dense arrays, to check the implicit formulas against."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

import numpy as np

from hdmm import PredicateSet, Shuffled, Strategy, Weighted, Workload
from hdmm.describe.predicates import Union
from hdmm.privacy.guarantee import Noise
from tests.support.plain_sets import PLAIN


def rows(predicates: PredicateSet, n: int) -> np.ndarray:
    """The predicate matrix written out from the definition of each set."""
    match predicates:
        case Union():
            return np.vstack([rows(part, n) for part in predicates.parts])
        case Shuffled():
            return rows(predicates.inner, n)[:, list(predicates.order)]
        case Weighted():
            return np.diag(predicates.weights) @ rows(predicates.inner, n)
        case _:
            return PLAIN[type(predicates)].rows(predicates, n)


def workload_matrix(workload: Workload) -> np.ndarray:
    shape = workload.domain.shape
    return np.vstack(
        [p.weight * kron([rows(s, n) for s, n in zip(p.predicates, shape, strict=True)]) for p in workload.products]
    )


def strategy_matrix(strategy: Strategy, dense: dict[int, np.ndarray]) -> np.ndarray:
    """The stacked blocks; `dense` has the explicit form of each factor object, by id."""
    shape = strategy.domain.shape
    blocks = []
    for block in strategy.blocks:
        active = {i: dense[id(A)] for i, A in block.by_axis.items()}
        blocks.append(block.weight * kron([active.get(i, np.ones((1, n))) for i, n in enumerate(shape)]))
    return np.vstack(blocks)


def kron(factors: Sequence[np.ndarray]) -> np.ndarray:
    return reduce(np.kron, factors)


def p_identity(theta: np.ndarray) -> np.ndarray:
    return np.vstack([np.eye(theta.shape[1]), theta]) / (1 + theta.sum(axis=0))


def supported(W: np.ndarray, A: np.ndarray) -> bool:
    return bool(np.allclose(W @ np.linalg.pinv(A) @ A, W, atol=1e-8))


def variances(W: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Unit-noise variance of each row of W A⁺."""
    return np.sum((W @ np.linalg.pinv(A)) ** 2, axis=1)


def sensitivity(A: np.ndarray, noise: str) -> float:
    return float(np.abs(A).sum(axis=0).max() if noise == Noise.LAPLACE else np.sqrt((A**2).sum(axis=0).max()))


def cells(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(n) for n in shape)))
