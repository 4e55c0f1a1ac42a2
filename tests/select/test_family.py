"""Families: the gram of their matrix, and gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm.matrix import Eye, Ones, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import Constant, Divided, EvenRow, Roots, SignedRows
from hdmm.select.theta import DenseTheta, theta_of

from .grams import numeric_gradient


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


FAMILIES: list[Divided] = [
    DenseTheta(rng(0).random((2, 5))),
    DenseTheta.within(rng(0).random((2, 5)), np.array([0, 3, 4, 7])),
    Roots(rng(1).normal(size=(6, 5))),
    EvenRow(5, Noise.LAPLACE, np.array([0.7])),
    EvenRow(5, Noise.GAUSSIAN, np.array([0.7])),
]
SIGNED = SignedRows(np.linalg.qr(rng(3).normal(size=(7, 3)))[0].T, rng(4).normal(size=(5, 3)), 0.2, 8.0)


@pytest.mark.parametrize("family", [*FAMILIES, SIGNED], ids=lambda family: type(family).__name__)
def test_gradients_are_pulled_back(family: Divided) -> None:
    x = family.start
    assert x is not None
    size = len(family.gram(x))
    F = rng(2).normal(size=(size, size))
    F += F.T
    numeric = numeric_gradient(lambda y: float(np.sum(F * family.gram(y))), x)
    np.testing.assert_allclose(family.pull(x, F), numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_the_gram_is_that_of_the_matrix(family: Divided) -> None:
    x = family.start
    assert x is not None
    A = to_dense(family.matrix(x))
    G = A.T @ A
    if isinstance(family, EvenRow):
        G = np.diag([G.sum() / 5, (np.trace(G) - G.sum() / 5) / 4])
    np.testing.assert_allclose(family.gram(x), G, atol=1e-12)


def test_a_constant_is_what_it_is() -> None:
    total = Constant(Ones(1, 5))
    assert total.start is None
    assert total.gram(np.empty(0)).sum() == 25
    assert total.matrix(np.empty(0)) == Ones(1, 5)


def test_rows_of_zeros_are_left_out() -> None:
    theta = np.array([[0.0, 0.0], [1.0, 0.0]])
    A = DenseTheta(None).matrix(theta)
    assert theta_of(A).tolist() == [[1.0, 0.0]]
    assert DenseTheta(None).matrix(np.zeros((2, 3))) == Eye(3)
