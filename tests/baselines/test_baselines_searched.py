"""DataCube, the Low-Rank Mechanism and the Matrix Mechanism."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from benchmarks.workloads import adult_domain, up_to_k_way
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import AllRange, Domain, Identity, NotApplicableError, Prefix, PureDP, Strategy, Total, Width, Workload
from hdmm.baselines import datacube, greedy_h, hb, identity, low_rank, matrix_mechanism, privelet
from hdmm.bounds.svd import svd_bound
from hdmm.matrix import to_dense
from hdmm.select.gaussian_optimum import gaussian_optimum
from tests.baselines.test_baselines_trees import assert_exact
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads

Cuboid = tuple[int, ...]


def all_cuboids(d: int) -> list[Cuboid]:
    return [c for k in range(d + 1) for c in itertools.combinations(range(d), k)]


def rolled_up(measured: list[Cuboid], asked: list[Cuboid], shape: tuple[int, ...]) -> list[float]:
    """The variance of a cell of each marginal, rolled up from the best of the measured ones."""
    return [
        len(measured) ** 2
        * min((math.prod(shape[i] for i in c if i not in a) for c in measured if set(a) <= set(c)), default=math.inf)
        for a in asked
    ]


def measured_by(strategy: Strategy) -> list[Cuboid]:
    return [block.axes for block in strategy.blocks]


@examples(30)
@given(domains(attributes=3, size=5), st.data())
def test_datacube_against_all_sets(domain: Domain, data: st.DataObject) -> None:
    """Within the guarantee of a greedy cover, (1 + ln |L|)², of the best of all sets of marginals."""
    cuboids = all_cuboids(len(domain))
    asked = data.draw(st.lists(st.sampled_from(cuboids), min_size=1, unique=True))
    w = Workload.marginals(domain, [[domain.names[i] for i in c] for c in asked])
    sets = [list(s) for k in range(1, len(cuboids) + 1) for s in itertools.combinations(cuboids, k)]
    least = min(max(rolled_up(s, asked, domain.shape)) for s in sets)
    found = max(rolled_up(measured_by(datacube(w)), asked, domain.shape))
    assert least <= found <= (1 + math.log(len(asked))) ** 2 * least

    def total(s: list[Cuboid]) -> float:
        cells = [math.prod(domain.shape[i] for i in c) for c in asked]
        return float(np.dot(rolled_up(s, asked, domain.shape), cells))

    summed = total(measured_by(datacube(w, norm="total")))
    assert min(map(total, sets)) <= summed * (1 + 1e-12)
    finest = tuple(sorted({i for c in asked for i in c}))
    assert summed <= min(total(asked), total([finest])) * (1 + 1e-12)
    assert_exact(w, datacube(w))
    own = measured_by(datacube(w, norm="L2"))
    assert set(own) <= set(asked)
    assert max(rolled_up(own, asked, domain.shape)) <= len(own) ** 2 * len(asked)


def test_datacube_reads_unions_and_refuses_the_rest() -> None:
    domain = Domain({"a": 3, "b": 2})
    union = Workload.product(domain, a=Identity() | Total(), b=Identity())
    listed = Workload.marginals(domain, [("a", "b"), ("b",)])
    assert measured_by(datacube(union)) == measured_by(datacube(listed))
    with pytest.raises(NotApplicableError, match=r"Prefix.* on attribute 'a'"):
        datacube(Workload.product(domain, a=Prefix()))
    with pytest.raises(NotApplicableError, match="13 attributes"):
        datacube(Workload.marginals(Domain({f"a{i}": 2 for i in range(13)}), k=1))
    with pytest.raises(NotApplicableError, match="'max', 'total' and 'L2'"):
        datacube(listed, norm="L1")  # type: ignore[arg-type]


def over_the_papers_hdmm(workload: Workload, strategy: Strategy, identity_ratio: float) -> float:
    """The error over that of HDMM in the paper, which is Identity's over its cell."""
    reference = hdmm.unit_error(workload, identity(workload)) / identity_ratio**2
    return math.sqrt(hdmm.unit_error(workload, strategy) / reference)


ADULT_2_WAY = Workload.marginals(adult_domain(), k=2)
ADULT_ALL = Workload.marginals(adult_domain(), k=range(6))


@pytest.mark.parametrize(
    ("workload", "identity_ratio", "ratio"),
    [(up_to_k_way(1), 435.19, 1.12), (ADULT_2_WAY, 5.30, 2.01)],
    ids=["up to 1-way of 10^8", "Adult 2-way"],
)
def test_datacube_of_the_paper(workload: Workload, identity_ratio: float, ratio: float) -> None:
    """The two cells whose marginals BMAX determines."""
    assert over_the_papers_hdmm(workload, datacube(workload), identity_ratio) == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize(
    ("workload", "identity_ratio", "ours", "paper", "apart"),
    [
        (up_to_k_way(1), 435.19, 1.116, 1.12, 0.005),
        (up_to_k_way(2), 43.89, 1.035, 1.03, 0.005),
        (up_to_k_way(3), 8.37, 1.146, 1.15, 0.005),
        (up_to_k_way(4), 2.73, 1.214, 1.21, 0.005),
        (up_to_k_way(5), 1.33, 1.359, 1.36, 0.005),
        (up_to_k_way(6), 1.00, 1.709, 1.67, 0.065),  # these three differ by ties of the greedy cover
        (up_to_k_way(7), 1.07, 2.833, 2.99, 0.065),
        (up_to_k_way(8), 1.06, 6.125, 5.76, 0.065),
        (ADULT_ALL, 1.38, 4.572, 4.57, 0.005),
        (ADULT_2_WAY, 5.30, 2.012, 2.01, 0.005),
    ],
    ids=[*(f"up to {k}-way of 10^8" for k in range(1, 9)), "Adult all", "Adult 2-way"],
)
def test_datacube_as_the_paper_ran_it(
    workload: Workload, identity_ratio: float, ours: float, paper: float, apart: float
) -> None:
    """Every DataCube cell of the paper's tables, by the rule of norm="L2"."""
    found = over_the_papers_hdmm(workload, datacube(workload, norm="L2"), identity_ratio)
    assert found == pytest.approx(ours, abs=6e-4)
    assert found == pytest.approx(paper, rel=apart)


@examples(10)
@given(st.data())
def test_searched_strategies_are_exact(data: st.DataObject) -> None:
    """Any rank, any number of attributes: supported, and the error is the dense one."""
    domain = data.draw(domains(attributes=2, size=4))
    w = data.draw(workloads(domain))
    for method in (low_rank, matrix_mechanism):
        strategy = method(w)
        A, W = to_dense(strategy.matrix), brute.workload_matrix(w)
        assert brute.sensitivity(A, "laplace") <= 1 + 1e-12
        expected = brute.sensitivity(A, "laplace") ** 2 * brute.variances(W, A).sum()
        assert hdmm.unit_error(w, strategy) == pytest.approx(expected, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("predicates", [Prefix(), AllRange(), Width(4)], ids=str)
def test_matrix_mechanism_is_no_worse_than_the_others(predicates: hdmm.PredicateSet) -> None:
    w = Workload.product(Domain({"x": 16}), x=predicates)
    others = [method(w) for method in (identity, privelet, hb, greedy_h, low_rank)]
    found = matrix_mechanism(w)
    assert hdmm.unit_error(w, found) <= min(hdmm.unit_error(w, other) for other in others) * (1 + 1e-6)
    assert hdmm.unit_error(w, found) >= svd_bound(w)
    assert hdmm.query_variance(w, found, PureDP(1)).sum() == pytest.approx(2 * hdmm.unit_error(w, found), rel=1e-9)


RANDOM = hdmm.Vectors(np.random.default_rng(0).integers(0, 2, (40, 24)))
FEW = hdmm.Vectors(np.random.default_rng(1).integers(0, 2, (5, 12)))


@pytest.mark.parametrize(
    ("n", "predicates"),
    [
        *((n, p) for n in (2, 5, 16, 32) for p in (Prefix(), AllRange(), Width(min(n, 7)))),
        (24, RANDOM),
        (12, FEW),
        (1, Total()),
        (3, Total()),
    ],
    ids=str,
)
def test_semidefinite_program_and_opt_0_agree(n: int, predicates: hdmm.PredicateSet) -> None:
    """Two ways to one convex optimum. It is below the error of any strategy for Laplace noise, as L2 norms are."""
    w = Workload.product(Domain({"x": n}), x=predicates)
    solved = matrix_mechanism(w, noise="gaussian")
    least = hdmm.unit_error(w, solved, noise="gaussian")
    assert solved.sensitivity("gaussian") == pytest.approx(1, rel=1e-12)
    found = gaussian_optimum(w.gram, tolerance=1e-6, iterations=2000)
    assert least == pytest.approx(found.loss, rel=1e-4)
    assert least == pytest.approx(found.bound, rel=1e-4)
    assert svd_bound(w) <= least * (1 + 1e-6)
    assert least <= min(hdmm.unit_error(w, other(w)) for other in (identity, low_rank, greedy_h)) * (1 + 1e-6)


def test_semidefinite_program_and_hdmm_agree() -> None:
    for predicates in (Prefix(), AllRange(), Width(4)):
        w = Workload.product(Domain({"x": 16}), x=predicates)
        plan = hdmm.optimize(w, noise="gaussian", seed=0, progress=False)
        least = hdmm.unit_error(w, matrix_mechanism(w, noise="gaussian"), noise="gaussian")
        assert least * (1 - 1e-6) <= plan.error <= least * (1 + 2e-3)
        assert least <= hdmm.unit_error(w, matrix_mechanism(w)) * (1 + 1e-6)


def test_semidefinite_program_on_two_attributes() -> None:
    w = Workload.product(Domain({"x": 4, "y": 3}), x=Prefix(), y=Prefix())
    solved = matrix_mechanism(w, noise="gaussian")
    A, W = to_dense(solved.matrix), brute.workload_matrix(w)
    expected = brute.sensitivity(A, "gaussian") ** 2 * brute.variances(W, A).sum()
    assert hdmm.unit_error(w, solved, noise="gaussian") == pytest.approx(expected, rel=1e-9)


def test_without_cvxpy(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Workload.product(Domain({"x": 4}), x=Prefix())
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(hdmm.StrategyError, match=r"Install hdmm\[paper\]"):
        matrix_mechanism(w, noise="gaussian")
    assert hdmm.unit_error(w, matrix_mechanism(w)) > 0
    with pytest.raises(hdmm.StrategyError, match="noise='laplace' or noise='gaussian'"):
        matrix_mechanism(w, noise="cauchy")  # type: ignore[arg-type]


def test_matrix_mechanism_on_32_cells() -> None:
    """Below OPT_0's optimum of the same workload (314.44), as its search space is larger."""
    w = Workload.product(Domain({"x": 32}), x=Prefix())
    assert hdmm.unit_error(w, matrix_mechanism(w)) == pytest.approx(314.43, abs=0.01)


def test_low_rank_finds_the_rank() -> None:
    """Four disjoint sums of eight cells: noise on each is the best there is, 4 in all; Identity has 32."""
    w = Workload.product(Domain({"x": 32}), x=hdmm.Ranges([(0, 7), (8, 15), (16, 23), (24, 31)]))
    assert hdmm.unit_error(w, low_rank(w)) == pytest.approx(4, rel=0.02)


def test_domains_too_large() -> None:
    for method, n in ((low_rank, 1025), (matrix_mechanism, 65)):
        with pytest.raises(NotApplicableError, match="cells"):
            method(Workload.product(Domain({"x": n})))
