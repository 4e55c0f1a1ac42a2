"""The error of blocks over two factors per attribute: compared with dense algebra, finite differences, and itself."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm import AllRange, Domain, Identity, Prefix, Strategy, Workload
from hdmm.matrix import Dense, Eye, Ones, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import Constant, Explicit, Roots
from hdmm.select.loss import BasesLoss
from hdmm.select.pairs import BesideTotal, Diagonalised, PairsLoss, family_of
from hdmm.select.terms import Terms
from hdmm.select.theta import DenseTheta
from hdmm.strategy.blocks import Block
from tests.support import brute

from .grams import numeric_gradient

CUBE = Domain({"x": 4, "y": 3, "z": 2})
THREE = (
    Workload.product(CUBE, x=AllRange())
    + Workload.product(CUBE, y=AllRange(), z=Identity())
    + 2.0 * Workload.product(CUBE, x=Prefix(), z=Identity())
)
SIDES = Workload.product(CUBE, x=AllRange()) + Workload.product(CUBE, y=AllRange(), z=Identity())
TOTALS = tuple(Constant(Ones(1, n)) for n in CUBE.shape)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def thetas(seed: int) -> list[Explicit]:
    return [DenseTheta(rng(seed + n).random((2, n))) for n in CUBE.shape]


def roots(seed: int) -> list[Explicit]:
    return [Roots(rng(seed + n).normal(size=(n + 1, n))) for n in CUBE.shape]


CASES = {
    "three blocks": (THREE, thetas(4), thetas(5), [[0, 0, 0], [1, 0, 1], [0, 1, 1]]),
    "roots": (THREE, roots(4), roots(5), [[0, 0, 0], [1, 0, 1], [0, 1, 1]]),
    "second factors Total": (THREE, thetas(4), TOTALS, [[0, 0, 0], [0, 1, 0], [1, 0, 0]]),
    "first factors Total": (SIDES, TOTALS, thetas(4), [[1, 0, 0], [0, 1, 1]]),
    "some Total": (SIDES, [thetas(4)[0], *TOTALS[1:]], [TOTALS[0], *thetas(4)[1:]], [[0, 0, 0], [1, 1, 1]]),
    "mixed": (THREE, thetas(4), [TOTALS[0], *thetas(5)[1:]], [[0, 0, 0], [1, 0, 1], [0, 1, 1]]),
    "roots beside Total": (THREE, roots(4), TOTALS, [[0, 0, 0], [0, 1, 0], [1, 0, 0]]),
    "a constant": (THREE, [Constant(Eye(4)), *thetas(4)[1:]], TOTALS, [[0, 0, 0], [0, 1, 0], [1, 0, 0]]),
}


def case(name: str) -> tuple[PairsLoss, Workload, np.ndarray]:
    workload, first, second, blocks = CASES[name]
    theta = rng(7).uniform(0.2, 1.0, len(blocks))
    return PairsLoss.of(Terms.of(workload), list(zip(first, second, strict=True)), np.array(blocks)), workload, theta


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_the_dense_one(name: str) -> None:
    loss, workload, theta = case(name)
    factors = loss.matrices(loss.starts)
    rows = [[to_dense(factors[f][i]) for i, f in enumerate(row)] for row in CASES[name][3]]
    A = np.vstack([weight * brute.kron(row) for weight, row in zip(theta, rows, strict=True)])
    W = brute.workload_matrix(workload)
    expected = brute.variances(W, A).sum()
    assert loss.at(loss.starts).error(theta.tolist()) == pytest.approx(expected / np.sum(W**2))
    built = (
        Block(weight, tuple((i, Dense(B)) for i, B in enumerate(row)))
        for weight, row in zip(theta.tolist(), rows, strict=True)
    )
    assert Strategy(CUBE, tuple(built)).total_variance(workload) == pytest.approx(expected)


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_finite_differences(name: str) -> None:
    loss, _, theta = case(name)
    xs = loss.starts
    value, g, by_x = loss.at(xs).gradient(theta)
    numeric = numeric_gradient(lambda x: loss.at(xs).error(x.tolist()), theta)
    np.testing.assert_allclose(-2 * theta * g, numeric, rtol=1e-5, atol=1e-7 * value)
    for j, x in enumerate(xs):
        numeric = numeric_gradient(lambda y, j=j: loss.at([*xs[:j], y, *xs[j + 1 :]]).error(theta.tolist()), x)
        np.testing.assert_allclose(by_x[j], numeric, rtol=1e-4, atol=1e-6 * value)


def test_classes_are_two_beside_total_and_as_many_as_values_elsewhere() -> None:
    loss, _, _ = case("mixed")
    pairs = loss.at(loss.starts).pairs
    assert [type(pair) for pair in pairs] == [BesideTotal, Diagonalised, Diagonalised]
    assert [pair.deltas.shape[1] for pair in pairs] == [2, 3, 2]


def test_listed_classes_agree_with_the_grid() -> None:
    loss, workload, theta = case("second factors Total")
    terms = Terms.of(workload)
    listed = BasesLoss.of(terms, [0b111, 0b101, 0b110], dict(enumerate(thetas(4))))
    value, g, by_x = loss.at(loss.starts).gradient(theta)
    other, h, by_y = listed.at(loss.starts).gradient(theta)
    assert value == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(g, h, rtol=1e-10)
    for x, y in zip(by_x, by_y, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12 * value)


def test_what_is_not_measured_is_infinite() -> None:
    loss = PairsLoss.of(Terms.of(THREE), list(zip(thetas(4), TOTALS, strict=True)), np.array([[0, 1, 0]]))
    form = loss.at(loss.starts)
    assert form.error([1.0]) == np.inf
    assert form.split(Noise.LAPLACE, [2.0]) == ((1.0,), np.inf)
    value, g, by_x = form.gradient(np.ones(1))
    assert value == np.inf
    assert not g.any()
    assert not any(x.any() for x in by_x)


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_no_small_change_improves_a_split(noise: Noise) -> None:
    loss, _, theta = case("three blocks")
    form = loss.at(loss.starts)
    shares, value = form.split(noise, theta.tolist())
    assert form.error(shares) == pytest.approx(value)
    assert noise.norm(np.array(shares)) == pytest.approx(1.0)
    for g, sign in np.ndindex(3, 2):
        moved = np.maximum(np.array(shares) + (1e-3 if sign else -1e-3) * np.eye(3)[g], 0)
        assert form.error((moved / noise.norm(moved)).tolist()) >= value * (1 - 1e-6)


def test_an_even_attribute_has_one_free_number() -> None:
    assert family_of(Eye(4), Noise.LAPLACE, even=True).start.tolist() == [0.0]
    assert isinstance(family_of(Ones(1, 4), Noise.LAPLACE, even=True), Constant)
    assert family_of(Eye(4), Noise.GAUSSIAN).start.shape == (4, 4)
