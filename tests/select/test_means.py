"""Oblique means: their slopes by finite differences, and what they gain, by dense algebra."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from hdmm import AllRange, DifferenceAtMost, Domain, Identity, Prefix, SumAtMost, Workload, unit_error
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select import means
from hdmm.select.means import DemandedSpace, Means, MeansTried, demands, short_basis
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.select.spaces import opt_spaces
from hdmm.strategy.lattice import Lattice
from tests.support.families import dense

DOMAIN = Domain({"x": 3, "y": 4, "z": 3, "u": 4})
ASKED = [
    Workload.product(DOMAIN, {("x", "y"): SumAtMost(), "z": Prefix()}),
    Workload.product(DOMAIN, {("z", "u"): DifferenceAtMost()}),
    2.0 * Workload.product(DOMAIN, {"x": Prefix(), "y": AllRange(), "z": Identity()}),
    Workload.product(DOMAIN, {"y": Prefix(), "z": Identity()}),
]


def mixed(n: int, d: int) -> Workload:
    """Ranges of each attribute, i + j ≤ c on every pair, prefixes of every three."""
    domain = Domain({f"a{i}": n for i in range(d)})
    found = [Workload.range_marginals(domain, k=1, ranges=domain.names)]
    found += [Workload.product(domain, {pair: SumAtMost()}) for pair in itertools.combinations(domain.names, 2)]
    found += [
        Workload.product(domain, dict.fromkeys(three, Prefix())) for three in itertools.combinations(domain.names, 3)
    ]
    return Workload(domain, tuple(product for w in found for product in w.products))


def test_slopes_are_those_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "_GAP", 1e-8)
    kinds, rng = (0, 1, 0, 2), np.random.default_rng(0)
    asked = demands([p for w in ASKED for p in w.products], kinds)
    spaces = [DemandedSpace.of(1.5, demand) for demand in asked.values()]
    tried = MeansTried(spaces, first_search(), time.monotonic() + 1e4)
    at = [h / h.sum() for h in (rng.uniform(0.5, 1.5, size=n) for n in (3, 4, 4))]
    *_, slopes = (tried.at(at)[1] for _ in range(10))  # Λ settles
    for k, slope in enumerate(slopes):
        for i in range(len(slope)):
            moved = [
                [h + s * 1e-4 * ((j == k) * np.eye(len(h))[min(i, len(h) - 1)]) for j, h in enumerate(at)]
                for s in (1, -1)
            ]
            up, down = (tried.at(each)[0] for each in moved)
            assert (up - down) / 2e-4 == pytest.approx(slope[i], rel=3e-3)


@pytest.mark.parametrize(
    ("n", "d", "even", "found", "optimum"),
    [
        (6, 3, 3215.8, 2853.0, 2809.0),
        (4, 4, 3587.0, 3240.0, 3219.0),
        pytest.param(10, 3, 22535.0, 19073.0, 18776.0, marks=pytest.mark.slow),
        pytest.param(4, 5, 12538.0, 11241.0, 11177.0, marks=pytest.mark.slow),
    ],
)
def test_the_best_means_gain_what_a_trial_gained(n: int, d: int, even: float, found: float, optimum: float) -> None:
    w = mixed(n, d)
    strategy = opt_spaces(Problem(w, Noise.GAUSSIAN), first_search())
    W, A = to_dense(w.matrix), dense(strategy)
    error = (A**2).sum(axis=0).max() * float(np.trace(W @ np.linalg.pinv(A.T @ A) @ W.T))
    assert unit_error(w, strategy, noise=Noise.GAUSSIAN) == pytest.approx(error, rel=1e-6)
    assert optimum * (1 - 1e-3) < error < found * (1 + 1e-3) < even
    assert all(
        np.array_equal(B, np.rint(B)) for block in strategy.blocks for _, A in block.factors for B in [to_dense(A)]
    )


def test_products_of_three_factors_are_measured_on_four_billion_rows() -> None:
    w = mixed(10, 4)
    strategy = opt_spaces(Problem(w, Noise.GAUSSIAN), first_search())
    lattice = Lattice.of(strategy, Noise.GAUSSIAN, max_rows=2**32, workload=w)
    before, after = (unit_error(w, s, noise=Noise.GAUSSIAN) for s in (strategy, lattice.strategy))
    assert after == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize("weights", [[1, 1, 1], [15, 9, 7, 7, 8, 19], [-1, 4, 2], [5]], ids=str)
def test_a_short_basis_is_of_all_integers_without_a_mean(weights: list[int]) -> None:
    B = short_basis(np.array(weights))
    assert not (B @ weights).any()
    assert len(B) == len(weights) - 1
    if len(B):  # its volume is that of the lattice
        volume = np.linalg.norm(weights) / np.gcd.reduce(weights)
        assert np.sqrt(np.linalg.det((B @ B.T).astype(float))) == pytest.approx(volume)


def test_attributes_that_are_asked_for_alike_are_of_one_kind() -> None:
    assert Means.alike(mixed(3, 4).products).kinds == (0, 0, 0, 0)
    assert Means.alike([p for w in ASKED for p in w.products]).kinds == (0, 1, 2, 3)
