"""What a strategy supports is what its release answers, and what linear algebra says, on small random problems."""

from __future__ import annotations

import numpy as np
import pytest

import hdmm
from hdmm import Domain, Known, Prefix, PureDP, Strategy, Workload, combine, from_array
from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Dense, Eye, to_dense
from hdmm.measure.measure import measure
from hdmm.strategy.blocks import Block
from tests.support.problems import MANY, dense_block, drawn_domain, drawn_known, drawn_strategy, drawn_workload

FEW = range(12)


def check_supported(seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = drawn_domain(rng)
    x = rng.integers(0, 50, size=domain.shape)
    known = [drawn_known(rng, domain, x) for _ in range(rng.integers(0, 3))]
    data = from_array(domain, x)
    made = [
        measure(drawn_strategy(rng, domain), data, PureDP(1), ledger=None, known=known)
        for _ in range(rng.choice([1, 1, 2]))
    ]
    release = combine(made)
    rows = [dense_block(domain.shape, block) for block in release.strategy.blocks]
    A = np.vstack([*rows, *(to_dense(each.product.matrix) for each in release.known)])
    for product in drawn_workload(rng, domain).products:
        w, W = Workload(domain, (product,)), to_dense(product.matrix)
        told = np.allclose(W @ np.linalg.pinv(A) @ A, W, atol=1e-7)
        try:
            answers = release.answer(w)
        except StrategyError:
            answers = None
        assert hdmm.supports(w, release.strategy) == (answers is not None) == told, product
        if answers is not None:
            assert np.isfinite(answers.values).all()


@pytest.mark.parametrize("seed", FEW)
def test_a_release_answers_what_its_strategy_supports(seed: int) -> None:
    check_supported(seed)


@pytest.mark.slow
def test_500_releases_answer_what_their_strategies_support() -> None:
    for seed in MANY:
        check_supported(seed)


def test_counts_that_are_known_need_no_answer_from_what_was_measured() -> None:
    """Where blocks have no closed form, the cells are solved for, and know nothing of attributes never measured."""
    domain = Domain({"a": 4, "b": 3})
    rng = np.random.default_rng(0)
    blocks = tuple(Block(1.0, [(0, Dense(rng.integers(-1, 4, (3, 4))))]) for _ in range(3))
    x = np.arange(12).reshape(4, 3)
    told = Known(domain, ["b"], x.sum(axis=0))
    release = measure(Strategy(domain, blocks), from_array(domain, x), PureDP(1), ledger=None, known=[told])
    w = Workload.marginals(domain, [("b",)]) + Workload.product(domain, b=Prefix())
    assert hdmm.supports(w, release.strategy)
    np.testing.assert_allclose(release.answer(w).values, [*x.sum(axis=0), *np.cumsum(x.sum(axis=0))])


def test_a_factor_of_zeros_is_refused_before_the_debit(tmp_path: object) -> None:
    domain = Domain({"a": 2})
    ledger = hdmm.Ledger(f"{tmp_path}/budget.db", dataset="people", cap=PureDP(1))
    nothing = Strategy(domain, (Block(1.0, [(0, Eye(2))]), Block(1.0, [(0, Dense([[0, 0]]))])))
    with pytest.raises(StrategyError, match="all zeros"):
        measure(nothing, from_array(domain, [1, 2]), PureDP(1), ledger=ledger)
    assert ledger.spent == 0
