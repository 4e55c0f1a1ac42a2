"""The distribution over rows: its loss against dense algebra and finite differences, and what it fits."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from hdmm import Domain, StrategyError, Workload
from hdmm.matrix import Cumulative, Dense, Eye, Ones, to_dense
from hdmm.reconstruct.components import Components, _basis, _Observed, _signal, fitted_components
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block
from tests.support.families import FLAT

DOMAIN = Domain({"a": 3, "b": 2, "c": 4, "e": 2})


def blocks() -> list[Block]:
    """Factors of every shape: on one attribute, on several, several of one attribute's, and the total."""
    rng = np.random.default_rng(5)
    return [
        Block(1.3, [(0, Eye(3)), ((1, 2), Dense(rng.normal(size=(5, 8))))]),
        Block(0.4, [(0, Cumulative(3)), (1, Eye(2)), (2, Eye(4)), (3, Ones(1, 2))]),
        Block(2.0, []),
        Block(0.7, [((0, 3), Dense(rng.normal(size=(3, 6)))), (2, Eye(4))]),
    ]


def dense(block: Block, domain: Domain) -> np.ndarray:
    """The queries of a block over all cells, by Kronecker products of what is written out."""
    groups = AxisGroups.of(domain, [axes for axes, _ in block.factors])
    return to_dense(groups.stacked([block]))


def mean_of_products(shares: list[np.ndarray]) -> np.ndarray:
    letters = "abcdefgh"[: len(shares)]
    return np.einsum(",".join(f"{x}z" for x in letters) + f"->{letters}", *shares).ravel() / shares[0].shape[1]


def test_the_loss_is_that_of_the_dense_table() -> None:
    rng = np.random.default_rng(1)
    shares = [rng.dirichlet(np.ones(n), size=4).T for n in DOMAIN.shape]
    x = 50 * mean_of_products(shares)
    answers = [rng.normal(size=block.rows) for block in blocks()]
    sure = Block(3.0, [(1, Eye(2))])
    observed = _Observed.of(DOMAIN, blocks(), answers, 50.0, [(sure, np.array([20.0, 30.0]))])
    squares, _ = observed.loss(shares)
    z = [dense(block, DOMAIN) @ x - block.weight * y for block, y in zip(blocks(), answers, strict=True)]
    z.append(dense(sure, DOMAIN) @ x - 3 * np.array([20.0, 30.0]))
    assert squares == pytest.approx(sum(float(off @ off) for off in z), rel=1e-5)
    seen = observed.seen(shares)
    for j, off in enumerate(z):
        assert np.ravel(observed.off(j, seen)) == pytest.approx(off, rel=1e-4, abs=1e-4)
    assert observed.count == sum(map(len, answers))


def test_slopes_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(2)
    shares = [rng.random((n, 3)) for n in DOMAIN.shape]
    answers = [rng.normal(size=block.rows) for block in blocks()]
    observed = _Observed.of(DOMAIN, blocks(), answers, 20.0, [])
    slopes = observed.loss(shares)[1]
    for i, P in enumerate(shares):
        for place in np.ndindex(*P.shape):
            ends: list[float] = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in shares]
                moved[i][place] += step
                ends.append(observed.loss(moved)[0])
            assert slopes[i][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-3)


def test_tables_agree_are_not_negative_and_have_the_total() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 40, size=DOMAIN.size).astype(float)
    observed = [dense(block, DOMAIN) @ x / block.weight for block in blocks()]
    fit = fitted_components(DOMAIN, blocks(), observed, x.sum(), components=20)
    whole = fit.estimate.values(Workload.marginals(DOMAIN, k=4).products[0]).reshape(DOMAIN.shape)
    assert (whole >= 0).all()
    assert whole.sum() == pytest.approx(x.sum())
    for product in Workload.marginals(DOMAIN, k=[1, 2]).products:
        others = tuple(i for i in range(4) if i not in product.axes)
        assert np.allclose(fit.estimate.values(product), whole.sum(axis=others).ravel())


def test_it_fits_as_well_as_noise_allows_and_no_better() -> None:
    """Beyond χ² of 1 per answer it would fit noise; the answers to what has none hold to a part of a row."""
    rng = np.random.default_rng(4)
    domain = Domain({"a": 6, "b": 5, "c": 4})
    x = rng.integers(50, 400, size=domain.shape)
    pairs = [(0, 1), (0, 2), (1, 2)]
    measured = [Block(0.1, [(i, Eye(domain.shape[i])) for i in axes]) for axes in pairs]
    noisy = [x.sum(axis=3 - sum(axes)).ravel() + 10 * rng.normal(size=x.sum(axis=3 - sum(axes)).size) for axes in pairs]
    sure = Block(1.0, [(0, Eye(6))])
    fit = fitted_components(domain, measured, noisy, x.sum(), exact=[(sure, x.sum(axis=(1, 2)).astype(float))])
    assert 0.2 < fit.misfit <= 1
    first = fit.estimate.values(Workload.marginals(domain, k=1).products[0])
    assert np.abs(first - x.sum(axis=(1, 2))).max() < 3


def test_no_small_table_is_lost_in_the_sum() -> None:
    """A large table of little information beside a small one whose attributes depend on each other."""
    rng = np.random.default_rng(6)
    domain = Domain({"a": 40, "b": 40, "c": 2, "e": 2})
    measured = [Block(0.1, [(0, Eye(40)), (1, Eye(40))]), Block(0.1, [(2, Eye(2)), (3, Eye(2))])]
    noisy = [np.full(1600, 5.0) + 10 * rng.normal(size=1600), np.array([2050.0, 1950, 1950, 2050])]
    fit = fitted_components(domain, measured, noisy, 8000.0)
    small = fit.estimate.values(Workload.marginals(domain, [["c", "e"]]).products[0])
    assert fit.misfit <= 1
    assert np.sum((small - noisy[1]) ** 2) / 100 < 25  # noise is beyond that once in 20,000 times


@pytest.mark.parametrize("shape", [(30, 40), (40, 30), (5, 6, 7), (1, 200), (300,)], ids=str)
def test_noise_is_taken_out_and_what_is_beyond_it_stays(shape: tuple[int, ...]) -> None:
    """Less than a tenth of noise stays, and an estimate no further than the measurement."""
    rng = np.random.default_rng(9)
    whole = [None] * len(shape)
    noise, parts = rng.normal(size=shape), [rng.normal(size=n) for n in shape]
    X = reduce(np.multiply.outer, [part / np.linalg.norm(part) for part in parts])
    size = math.sqrt(noise.size)
    assert np.linalg.norm(_signal(noise, whole)) <= 0.1 * size
    for strength, share in ((20.0, 1.001), (1.2, 0.9)):
        estimate = _signal(strength * size * X + noise, whole)
        assert np.linalg.norm(estimate - strength * size * X) < share * np.linalg.norm(noise)
    assert np.linalg.norm(_signal(20 * size * X + noise, whole)) == pytest.approx(20 * size, rel=0.1)


def test_noise_outside_what_can_be_answered_is_taken_out_first() -> None:
    """Differences from a mean have one direction less than numbers; a sum of columns is in the span of the columns."""
    rng = np.random.default_rng(10)
    centred = Dense(np.eye(6) - 1 / 6)
    Q, whole = _basis(centred), _basis(Dense(rng.normal(size=(3, 8))))
    assert Q is not None
    assert Q.shape == (6, 5)
    assert whole is None
    assert np.allclose(Q @ Q.T, np.eye(6) - 1 / 6)
    z = 50 * rng.normal(size=(6, 4))
    assert _signal(z, [Q, None]) == pytest.approx((Q @ Q.T) @ _signal(z, [Q, None]))


def test_noise_alone_leaves_the_product() -> None:
    rng = np.random.default_rng(11)
    domain = Domain({"a": 12, "b": 15})
    p, q = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(15))
    x = 20_000 * np.outer(p, q)
    blocks = [Block(0.05, [(0, Eye(12)), (1, Eye(15))]), Block(1.0, [(0, Eye(12))]), Block(1.0, [(1, Eye(15))])]
    answers = [(x + 20 * rng.normal(size=x.shape)).ravel(), x.sum(axis=1), x.sum(axis=0)]
    found = fitted_components(domain, blocks, answers, 20_000.0).table([0, 1]).reshape(12, 15)
    assert np.abs(found - x).sum() < 0.25 * np.abs(answers[0].reshape(12, 15) - x).sum()


def test_a_product_is_fitted_to_the_end_where_noise_happens_to_be_small() -> None:
    """In one release of Adult in ten, χ² was its mean when the product was hardly begun: pairs 12.5 % off, not 10.3."""
    rng = np.random.default_rng(9)
    domain = Domain({"a": 40, "b": 40})
    first, second = (rng.dirichlet(np.full(40, 3.0)) for _ in range(2))
    truth = np.outer(first, second) * 10_000
    noise = 0.9 * 12 * rng.normal(size=truth.shape)
    both = Block(1 / 12, [(0, Eye(40)), (1, Eye(40))])
    fit = fitted_components(domain, [both], [(truth + noise).ravel()], truth.sum())
    assert fit.misfit == pytest.approx(0.81, abs=0.05)
    off = np.abs(fit.table([0]) - truth.sum(axis=1)).sum() / truth.sum()
    assert off < 0.2


def test_no_single_number_is_lost_in_its_table() -> None:
    """A range that many cells share is 30 deviations from independence, which the sum over 800 cells does not show."""
    rng = np.random.default_rng(8)
    ages = np.vstack([np.eye(400), np.arange(400) < 200])
    domain, block = Domain({"a": 2, "b": 400}), Block(0.1, [(0, Eye(2)), (1, Dense(ages))])
    y = np.full((2, 400), 40.0) + 5 * rng.normal(size=(2, 400))
    y = np.hstack([y, [[8000 + 300.0], [8000 - 300.0]]]).ravel()
    fit = fitted_components(domain, [block], [y], 32_000.0)
    z = 0.1 * (dense(Block(1.0, block.factors), domain) @ fit.table([0, 1]) - y)
    assert np.abs(z).max() < 8.1  # Laplace noise is beyond that once in a hundred releases
    assert fit.misfit <= 1


def test_attributes_of_one_value_and_none_measured() -> None:
    fit = fitted_components(FLAT, [Block(1.0, [(1, Eye(4))])], [np.array([1.0, 2, 3, 4])], 10.0, components=5)
    assert fit.unmeasured == (0, 2)
    assert isinstance(fit, Components)
    assert fit.misfit <= 1


def test_tables_too_large_are_refused() -> None:
    domain = Domain({f"a{i}": 100 for i in range(5)})
    fit = fitted_components(domain, [Block(1.0, [(0, Eye(100))])], [np.ones(100)], 100.0, components=5)
    with pytest.raises(StrategyError, match="fewer attributes"):
        fit.estimate.values(Workload.marginals(domain, k=5).products[0])


def test_the_same_measurements_give_the_same_fit() -> None:
    answers = [np.arange(block.rows, dtype=float) for block in blocks()]
    one, other = (fitted_components(DOMAIN, blocks(), answers, 30.0, components=7) for _ in range(2))
    assert all(map(np.array_equal, one.shares, other.shares))
