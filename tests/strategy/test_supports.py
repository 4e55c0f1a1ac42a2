"""What a strategy supports is what its release answers, and what linear algebra says, on small random problems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import hdmm
from hdmm import (
    AllRange,
    Domain,
    Identity,
    Known,
    Labels,
    PredicateSet,
    Prefix,
    PureDP,
    Strategy,
    SumAtMost,
    Total,
    Vectors,
    Workload,
    combine,
    from_array,
)
from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Weighted
from hdmm.matrix import Dense, Eye, Matrix, PIdentity, to_dense
from hdmm.measure.measure import measure
from hdmm.strategy.blocks import Block

SIZES = (1, 1, 2, 3, 4)
FEW = (*range(12), 141)  # the last: what is not seen had a variance of 10³⁰ in a form of two free attributes
MANY = range(500)


def drawn_domain(rng: np.random.Generator) -> Domain:
    domain: dict[str, int | Labels] = {f"a{i}": int(rng.choice(SIZES)) for i in range(rng.integers(1, 4))}
    if rng.random() < 0.4:
        domain["place"] = Labels(["T1", "T2", "T3"], levels={"state": ["N", "S", "N"]})
    return Domain(domain)


def drawn_predicates(rng: np.random.Generator, n: int) -> PredicateSet:
    sets: Sequence[PredicateSet] = (
        Identity(),
        Prefix(),
        AllRange(),
        Total(),
        Identity() | Total(),
        Weighted(Identity(), rng.uniform(0.2, 3, n)),
        Vectors(np.eye(2)[np.arange(n) % 2].T),  # of places, the states
    )
    return sets[rng.integers(len(sets))]


def drawn_workload(rng: np.random.Generator, domain: Domain) -> Workload:
    """Products with weights, some of them twice, and some on two attributes at once."""
    shape = domain.shape
    products: list[Workload] = []
    for _ in range(rng.integers(1, 4)):
        if len(domain) > 1 and rng.random() < 0.15:
            made = Workload.product(domain, {domain.names[:2]: SumAtMost(shape[:2])})
        else:
            chosen = [i for i in range(len(domain)) if rng.random() < 0.6]
            made = Workload.product(domain, {domain.names[i]: drawn_predicates(rng, shape[i]) for i in chosen})
        products += [float(rng.choice([0.3, 1.0, 2.5])) * made] * int(rng.choice([1, 1, 2]))
    return sum(products[1:], start=products[0])


def drawn_known(rng: np.random.Generator, domain: Domain, x: np.ndarray) -> Known:
    axes = [i for i in range(len(domain)) if rng.random() < 0.5]
    others = tuple(i for i in range(len(domain)) if i not in axes)
    names = [domain.names[i] for i in axes]
    table = x.sum(axis=others)
    if names and names[-1] == "place" and rng.random() < 0.5:
        names[-1] = "state"
        table = np.stack([table[..., 0] + table[..., 2], table[..., 1]], axis=-1)
    return Known(domain, names, table)


def drawn_strategy(rng: np.random.Generator, domain: Domain) -> Strategy:
    blocks: list[Block] = []
    for _ in range(rng.integers(1, 4)):
        factors: list[tuple[int, Matrix]] = []
        for i, n in enumerate(domain.shape):
            some = Dense(rng.integers(-1, 2, (2, n)) + 3 * np.eye(2, n, dtype=np.int64))
            kinds: Sequence[Matrix | None] = (None, None, Eye(n), PIdentity(rng.random((1, n))), some)
            A = kinds[rng.integers(len(kinds))]
            factors += [] if A is None else [(i, A)]
        blocks.append(Block(float(rng.choice([0.3, 1.0])), factors))
    return Strategy(domain, tuple(blocks))


def dense_block(shape: Sequence[int], block: Block) -> np.ndarray:
    """The rows of a block, without its weight, over all cells."""
    used = [i for axes, _ in block.factors for i in axes]
    order = [*used, *(i for i in range(len(shape)) if i not in used)]
    K = np.ones((1, 1))
    for _, A in block.factors:
        K = np.kron(K, to_dense(A))
    K = np.kron(K, np.ones((1, int(np.prod([shape[i] for i in order[len(used) :]])))))
    K = K.reshape(len(K), *(shape[i] for i in order)).transpose(0, *(1 + order.index(i) for i in range(len(shape))))
    return K.reshape(len(K), -1)


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
