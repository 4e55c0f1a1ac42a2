"""Where Θ is large, a p-Identity all but loses its identity rows; errors are still those of extended precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from hdmm import Domain, Identity, Sets, Strategy, Workload
from hdmm.matrix import Dense, Eye, PIdentity, gram_inverse, to_dense, trace_product
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm

DOMAIN = Domain({"races": 16, "sex": 2})
MARKED = np.array([[cell >> bit & 1 for cell in range(16)] for bit in range(4)], dtype=np.float64)
SETS = Sets([np.flatnonzero(row).tolist() for row in MARKED])
ASKED = Workload.product(DOMAIN, races=SETS) + Workload.product(DOMAIN, races=SETS, sex=Identity())


def steep(size: float, seed: int) -> np.ndarray:
    """Rows that measure what is asked for, nearly so, and so large that the identity above them hardly counts.

    Their columns have one sum, so that the queries remain queries once the columns are scaled to norm 1.
    """
    rng = np.random.default_rng(seed)
    rows = size * MARKED * rng.uniform(0.5, 1.0, size=(4, 1)) / 4
    rows = np.vstack([rows, size - rows.sum(axis=0)])
    return rows * (1 + 1e-5 * rng.normal(size=rows.shape))


def exactly(A: list[tuple[float, list[mp.matrix]]], W: np.ndarray) -> float:
    """tr(W(AᵀA)⁻¹Wᵀ) in 60 digits; A are weights and gram matrices of two attributes."""
    with mp.workdps(60):
        n, m = A[0][1][0].rows, A[0][1][1].rows
        X = mp.matrix(n * m, n * m)
        for weight, (G, H) in A:
            for i in range(n * m):
                for j in range(n * m):
                    X[i, j] += mp.mpf(weight) ** 2 * G[i // m, j // m] * H[i % m, j % m]
        V = mp.matrix((W.T @ W).tolist())
        solved = mp.inverse(X)
        return float(sum(solved[i, j] * V[j, i] for i in range(n * m) for j in range(n * m)))


def gram_of(theta: np.ndarray) -> mp.matrix:
    """The gram matrix of PIdentity(theta) in 60 digits."""
    with mp.workdps(60):
        T = mp.matrix(theta.tolist())
        p, n = theta.shape
        s = [1 + mp.fsum(T[k, j] for k in range(p)) for j in range(n)]
        entries = [
            [(mp.fsum(T[k, i] * T[k, j] for k in range(p)) + (i == j)) / (s[i] * s[j]) for j in range(n)]
            for i in range(n)
        ]
        return mp.matrix(entries)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e3])
def test_forms_agree_with_extended_precision(size: float) -> None:
    first, second = steep(size, 0), steep(size, 1)
    W = to_dense(ASKED.matrix)
    eye, ones = mp.eye(2), mp.ones(2)
    over = [Block(0.7, [(0, PIdentity(first)), (1, Eye(2))]), Block(0.3, [(0, PIdentity(first))])]
    diagonal = Strategy(DOMAIN, tuple(over)).form
    expected = exactly([(0.7, [gram_of(first), eye]), (0.3, [gram_of(first), ones])], W)
    assert isinstance(diagonal, ClassForm)
    assert not diagonal.free
    assert diagonal.total_variance(ASKED.products) == pytest.approx(expected, rel=1e-9)
    two = Strategy(DOMAIN, (over[0], Block(0.3, [(0, PIdentity(second))]))).form
    expected = exactly([(0.7, [gram_of(first), eye]), (0.3, [gram_of(second), ones])], W)
    assert isinstance(two, ClassForm)
    assert not two.free
    assert two.total_variance(ASKED.products) == pytest.approx(expected, rel=1e-7)
    blocks = (over[0], Block(0.3, [(0, PIdentity(second))]), Block(0.2, [(1, Eye(2))]))
    coupled = Strategy(DOMAIN, blocks).form
    weighed = [(0.7, [gram_of(first), eye]), (0.3, [gram_of(second), ones]), (0.2, [mp.ones(16), eye])]
    assert isinstance(coupled, ClassForm)
    assert coupled.free == (0,)
    assert coupled.total_variance(ASKED.products) == pytest.approx(exactly(weighed, W), rel=1e-6)


def test_an_inverse_gram_keeps_its_digits() -> None:
    theta = steep(1e3, 2)
    with mp.workdps(60):
        H = mp.inverse(gram_of(theta))
        V = mp.matrix((MARKED.T @ MARKED).tolist())
        expected = float(mp.fsum(H[i, j] * V[j, i] for i in range(16) for j in range(16)))
    found = trace_product(gram_inverse(PIdentity(theta)), Dense(MARKED.T @ MARKED))
    assert found == pytest.approx(expected, rel=1e-10)
