"""Error, variance and support of every strategy family against dense brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Prefix, PureDP, Strategy, StrategyError, Workload
from hdmm.baselines import identity, laplace
from hdmm.matrix import Dense, ExtendedDiagonal, Eye, Matrix, Ones, PIdentity, to_dense
from hdmm.strategy.blocks import Block
from hdmm.strategy.error import stream_query_variance
from hdmm.strategy.form import total_variances
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads

Factors = dict[int, np.ndarray]


@st.composite
def factors(draw: st.DrawFn, n: int) -> Matrix:
    """A one-attribute strategy: identity, p-identity, or explicit rows, of any rank above 0."""
    entry = st.sampled_from([0.0, 0.5, 1.0, 2.0])
    match draw(st.sampled_from(["eye", "p", "dense"])):
        case "eye":
            return Eye(n)
        case "p":
            p = draw(st.integers(0, 3))
            theta = draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=p, max_size=p))
            return PIdentity(np.array(theta).reshape(p, n))
        case _:
            m = draw(st.integers(1, 3))
            rows = draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=m, max_size=m))
            A = np.array(rows)
            return Dense(A if A.any() else np.ones((m, n)))


@st.composite
def products(draw: st.DrawFn, domain: Domain, count: int) -> Strategy:
    """A union of `count` products."""
    blocks = []
    for _ in range(count):
        chosen = [(i, draw(factors(n))) for i, n in enumerate(domain.shape) if draw(st.integers(0, 3))]
        blocks.append(Block(draw(st.sampled_from([0.25, 0.5, 1.0, 3.0])), tuple(chosen)))
    return Strategy(domain, tuple(blocks))


@st.composite
def marginals(draw: st.DrawFn, domain: Domain) -> Strategy:
    """Weighted marginals over bases; the base is often the identity."""
    bases = []
    for n in domain.shape:
        p = draw(st.integers(0, 2))
        theta = draw(
            st.lists(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=n, max_size=n), min_size=p, max_size=p)
        )
        bases.append(PIdentity(np.array(theta).reshape(p, n)) if p else Eye(n))
    subsets = list(
        itertools.chain.from_iterable(itertools.combinations(range(len(domain)), k) for k in range(len(domain) + 1))
    )
    picked = draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=6))
    return Strategy(
        domain,
        tuple(Block(draw(st.sampled_from([0.1, 1.0, 2.0])), tuple((i, bases[i]) for i in s)) for s in picked),
    )


def dense(strategy: Strategy) -> np.ndarray:
    explicit = {id(A): explicit_factor(A) for block in strategy.blocks for _, A in block.factors}
    return brute.strategy_matrix(strategy, explicit)


def explicit_factor(A: Matrix) -> np.ndarray:
    match A:
        case Eye():
            return np.eye(A.shape[1])
        case ExtendedDiagonal(Dense(theta), order=1):
            return brute.p_identity(theta)
        case Dense():
            return np.asarray(A.array)
        case _:
            raise AssertionError(f"no definition of {A}")


def check_against_dense(w: Workload, strategy: Strategy) -> None:
    W, A = brute.workload_matrix(w), dense(strategy)
    np.testing.assert_allclose(to_dense(strategy.matrix), A, atol=1e-12)
    alone = [strategy.form.total_variance([product]) for product in w.products]
    np.testing.assert_allclose(total_variances(strategy.form, w.products), alone, rtol=1e-6, atol=1e-9)
    for privacy, noise in ((PureDP(2), "laplace"), (ZCDP("0.1"), "gaussian")):
        sensitivity = brute.sensitivity(A, noise)
        assert strategy.sensitivity(noise) == pytest.approx(sensitivity, rel=1e-12)  # type: ignore[arg-type]
        weighted = W[np.abs(W).sum(axis=1) > 0]
        if not (len(weighted) == 0 or brute.supported(weighted, A)):
            assert not hdmm.supports(w, strategy)
            with pytest.raises(StrategyError, match="does not measure"):
                hdmm.expected_error(w, strategy, privacy)
            with pytest.raises(StrategyError, match="does not measure"):
                hdmm.query_variance(w, strategy, privacy)
            continue
        assert hdmm.supports(w, strategy)
        factor = {"laplace": 2 / 4, "gaussian": 1 / 0.2}[noise]
        expected = factor * sensitivity**2 * brute.variances(W, A)
        np.testing.assert_allclose(hdmm.query_variance(w, strategy, privacy), expected, rtol=1e-6, atol=1e-9)
        assert hdmm.expected_error(w, strategy, privacy) == pytest.approx(expected.sum(), rel=1e-6, abs=1e-9)
        assert hdmm.rmse(w, strategy, privacy) == pytest.approx(math.sqrt(expected.mean()), rel=1e-6, abs=1e-9)


@examples(300)
@given(st.data(), domains(size=4))
def test_one_product(data: st.DataObject, domain: Domain) -> None:
    check_against_dense(data.draw(workloads(domain)), data.draw(products(domain, 1)))


@examples(300)
@given(st.data(), domains(size=4))
def test_two_products(data: st.DataObject, domain: Domain) -> None:
    check_against_dense(data.draw(workloads(domain)), data.draw(products(domain, 2)))


@examples(300)
@given(st.data(), domains(size=4))
def test_marginals_and_marginals_over_bases(data: st.DataObject, domain: Domain) -> None:
    check_against_dense(data.draw(workloads(domain)), data.draw(marginals(domain)))


@examples(100)
@given(st.data(), domains(size=4))
def test_identity_and_laplace(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    W = brute.workload_matrix(w)
    assert hdmm.unit_error(w, identity(w)) == pytest.approx(np.sum(W**2))
    weighted = Workload(domain, tuple(p for p in w.products if p.weight > 0) or w.products)
    if weighted.products[0].weight > 0:
        distinct = {p.factors: max(q.weight for q in w.products if q.factors == p.factors) for p in weighted.products}
        error = sum(p.queries * (p.weight / distinct[p.factors]) ** 2 for p in weighted.products)
        sensitivity = brute.sensitivity(W, "laplace")
        assert laplace(w).sensitivity("laplace") == pytest.approx(sensitivity)
        assert hdmm.unit_error(weighted, laplace(w)) == pytest.approx(sensitivity**2 * error)


def test_nested_splits_diagonalise_together() -> None:
    """Levels of a hierarchy commute, so a quadtree of three levels has a closed form too."""
    n = 8
    levels = [Dense(np.kron(np.eye(k), np.ones((1, n // k)))) for k in (1, 2, 4, 8)]
    domain = Domain({"x": n, "y": n})
    quadtree = Strategy(domain, tuple(Block(0.25, ((0, A), (1, A))) for A in levels))
    w = Workload.product(domain, x=Prefix(), y=AllRange()) + Workload.marginals(domain, k=1)
    check_against_dense(w, quadtree)


def test_three_unrelated_products_say_that_there_is_no_form() -> None:
    domain = Domain({"x": 4, "y": 4, "z": 2000})
    rows = np.random.default_rng(0).random((3, 4, 4))
    strategy = Strategy(domain, tuple(Block(1.0, ((0, Dense(A)), (1, Dense(A)))) for A in rows))
    with pytest.raises(StrategyError, match=r"'x'.*at most two products"):
        hdmm.supports(Workload.marginals(domain, 1), strategy)


@pytest.mark.parametrize("shape", [(30, 10), (3, 120)])
def test_two_products_on_larger_attributes(shape: tuple[int, int]) -> None:
    """[R ⊗ T; T ⊗ R], the workload where the public upper bound is 36 % off: exact here."""
    rng = np.random.default_rng(1)
    domain = Domain({"x": shape[0], "y": shape[1]})
    bases = [PIdentity(rng.random((3, n))) for n in shape]
    strategy = Strategy(domain, (Block(0.5, ((0, bases[0]),)), Block(0.5, ((1, bases[1]),))))
    w = Workload.product(domain, x=AllRange()) + Workload.product(domain, y=AllRange())
    G = sum(0.25 * np.kron(*pair) for pair in _grams(bases))
    H = np.linalg.pinv(G, hermitian=True)
    for k, axis in enumerate((0, 1)):
        R = brute.rows(AllRange(), shape[axis])
        lift = np.kron(R, np.ones((1, shape[1]))) if axis == 0 else np.kron(np.ones((1, shape[0])), R)
        expected = 2 * np.einsum("ij,jk,ik->i", lift, H, lift, optimize=True)
        found = hdmm.query_variance(Workload(domain, (w.products[k],)), strategy, PureDP(1))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def _grams(bases: list[ExtendedDiagonal]) -> list[tuple[np.ndarray, np.ndarray]]:
    dense = [brute.p_identity(to_dense(B.theta)) for B in bases]
    grams = [A.T @ A for A in dense]
    ones = [np.ones_like(G) for G in grams]
    return [(grams[0], ones[1]), (ones[0], grams[1])]


def test_wide_tables_are_folded() -> None:
    """AllRange on 512 values beside an eigen-form: 130,000 queries, never queries × classes."""
    n = 512
    domain = Domain({"x": n, "y": 2})
    rng = np.random.default_rng(2)
    A, B = PIdentity(rng.random((2, n))), Dense(np.array([[1.0, 0.0]]))
    strategy = Strategy(domain, (Block(0.5, ((0, A),)), Block(0.5, ((0, Eye(n)), (1, B)))))
    w = Workload.product(domain, x=Prefix())
    found = hdmm.query_variance(w, strategy, PureDP(1))
    assert found.sum() == pytest.approx(hdmm.expected_error(w, strategy, PureDP(1)), rel=1e-9)
    ranges = Workload.product(domain, x=AllRange())
    assert hdmm.query_variance(ranges, strategy, PureDP(1)).sum() == pytest.approx(
        hdmm.expected_error(ranges, strategy, PureDP(1)), rel=1e-9
    )


@pytest.mark.slow
def test_a_hundred_attributes_without_the_domain() -> None:
    """All 3-way marginals of 100 attributes measured as themselves; checked on the 4 attributes that matter."""
    names = [f"a{i}" for i in range(100)]
    domain, small = Domain(dict.fromkeys(names, 10)), Domain(dict.fromkeys(names[:4], 10))
    subsets = list(itertools.combinations(range(100), 3))
    strategy = Strategy(domain, tuple(Block(1.0, tuple((i, Eye(10)) for i in s)) for s in subsets))
    assert strategy.sensitivity("laplace") == len(subsets)
    w = Workload.marginals(domain, k=3)
    total = strategy.total_variance(w)
    one = hdmm.Workload(domain, w.products[:1])
    assert total == pytest.approx(len(subsets) * strategy.total_variance(one), rel=1e-9)
    # The same by symmetry: eigenspace b of a 3-way marginal is seen by every block that contains it.
    lam = {s: math.comb(100 - s, 3 - s) * 0.1 ** (3 - s) for s in range(4)}
    expected = sum(math.comb(3, s) * 9**s * 0.1 ** (3 - s) * 10 ** (3 - s) * 0.1 ** (3 - s) / lam[s] for s in range(4))
    assert strategy.total_variance(one) == pytest.approx(expected, rel=1e-9)
    piece = hdmm.query_variance(one, strategy, PureDP(1))
    assert piece.sum() == pytest.approx(2 * len(subsets) ** 2 * expected, rel=1e-9)
    assert not hdmm.supports(Workload.marginals(domain, [("a0", "a1", "a2", "a3")]), strategy)
    assert small.size == 10**4


def test_many_queries_are_streamed() -> None:
    """All range-marginals of CPS have 772,650,000 queries: refused as an array, walked in pieces."""
    domain = Domain({"income": 100, "age": 50, "marital": list("abcdefg"), "race": list("abcd"), "sex": ["M", "F"]})
    w = Workload.range_marginals(domain)
    assert w.queries == 772_650_000
    two_way = Workload.range_marginals(domain, k=2)
    strategy = identity(w)
    assert hdmm.query_variance(two_way, strategy, PureDP(1)).sum() == pytest.approx(2 * 214_310_320_000)
    first = next(iter(stream_query_variance(w, strategy, PureDP(1))))[1]
    assert len(first) < 1 << 26
    assert first[:3].tolist() == [2.0 * 1, 2.0 * 1, 2.0 * 2]
    with pytest.raises(StrategyError, match="stream_query_variance"):
        hdmm.query_variance(Workload.product(Domain({"x": 60_000}), x=AllRange()), identity(w), PureDP(1))


def test_scaling_a_workload_scales_the_error() -> None:
    domain = Domain({"x": 7, "y": 2})
    w = Workload.product(domain, x=AllRange()) + Workload.marginals(domain, 1)
    assert hdmm.unit_error(7 * w, identity(w)) == pytest.approx(49 * hdmm.unit_error(w, identity(w)))
    doubled = w + w
    assert hdmm.unit_error(doubled, identity(w)) == pytest.approx(hdmm.unit_error(math.sqrt(2) * w, identity(w)))
    assert hdmm.unit_error(w.compact(), identity(w)) == pytest.approx(hdmm.unit_error(w, identity(w)))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((), "no blocks"),
        ((Block(0.0, ()),), "weight 0"),
        ((Block(float("nan"), ()),), "weight nan"),
        ((Block(1.0, ((0, Eye(3)),)),), "'x'.*4 values.*3 columns"),
        ((Block(1.0, ((0, Eye(4)), (0, Eye(4)))),), "twice"),
        ((Block(1.0, ((2, Eye(2)),)),), "axis 2"),
    ],
)
def test_bad_strategies_say_what_to_do(blocks: tuple[Block, ...], message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        Strategy(Domain({"x": 4, "y": 2}), blocks)


def test_domains_must_agree() -> None:
    w = Workload.marginals(Domain({"x": 4}), 1)
    other = Workload.marginals(Domain({"y": 4}), 1)
    with pytest.raises(StrategyError, match=r"\(x\).*\(y\)"):
        hdmm.expected_error(other, identity(w), PureDP(1))
    with pytest.raises(StrategyError, match=r"\(x\).*\(y\)"):
        hdmm.expected_error(other, laplace(w), PureDP(1))


def test_unsupported_product_is_named() -> None:
    domain = Domain({"x": 4, "y": 2})
    totals = Strategy(domain, (Block(1.0, ((1, Eye(2)),)),))
    w = Workload.marginals(domain, [("y",), ("x",)])
    with pytest.raises(StrategyError, match=r"x: Identity\(\)"):
        hdmm.expected_error(w, totals, PureDP(1))
    assert Ones(1, 4) == Ones(1, 4)
    assert hdmm.supports(0.0 * Workload.product(domain, x=Identity()) + Workload.marginals(domain, [("y",)]), totals)


def test_variances_of_many_attributes_are_a_matter_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of forms too large to write out, against the plain one."""
    domain = Domain({"a": 3, "b": 2, "c": 4, "d": 1})
    w = Workload.marginals(domain, k=range(4)) + Workload.product(domain, a=Prefix(), c=AllRange())
    w += Workload.product(domain, a=np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]))
    blocks = [Block(0.5, ((0, Eye(3)), (1, Eye(2)), (2, Eye(4)))), Block(0.25, ((0, Eye(3)),)), Block(0.25, ())]
    plain = np.concatenate([v for p in w.products for v in Strategy(domain, tuple(blocks)).variances(p)])
    monkeypatch.setattr("hdmm.strategy.class_inverse.SLAB_CELLS", 1)
    strategy = Strategy(domain, tuple(blocks))
    few = np.concatenate([v for p in w.products for v in strategy.variances(p)])
    np.testing.assert_allclose(few, plain, rtol=1e-12)
