"""The paper's workloads: sizes, and the closed forms of Identity and the Laplace mechanism."""

from __future__ import annotations

import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from benchmarks.workloads import PAPER, paper_workloads, sf1, sf1_domain, sf1_single_queries, up_to_k_way

import hdmm
from hdmm import Domain, Sets, Workload
from hdmm.baselines import identity, laplace
from hdmm.matrix import to_dense

CHECKS = json.loads((PAPER / "paper_tables.json").read_text())["checks"]
WORKLOADS = paper_workloads()


@pytest.mark.parametrize("row", CHECKS["table_main"], ids=lambda row: row["workload"])
def test_main_table_closed_forms(row: dict[str, float]) -> None:
    w = WORKLOADS[str(row["workload"])]
    assert w.queries == row["queries"]
    assert hdmm.unit_error(w, identity(w)) == pytest.approx(row["identity_total_sq_error"], rel=1e-12)
    assert laplace(w).sensitivity("laplace") == row["sensitivity_of_workload"]
    assert math.sqrt(hdmm.unit_error(w, identity(w)) / w.queries) == pytest.approx(row["identity_rmse"], rel=1e-12)
    assert math.sqrt(hdmm.unit_error(w, laplace(w)) / w.queries) == pytest.approx(row["lm_rmse"], rel=1e-12)


@pytest.mark.parametrize("row", CHECKS["table_highd_marginals"], ids=lambda row: f"K={row['K']}")
def test_marginals_closed_forms(row: dict[str, float]) -> None:
    w = up_to_k_way(int(row["K"]))
    assert w.queries == row["queries"]
    assert laplace(w).sensitivity("laplace") == row["sensitivity"]
    by_cell = math.sqrt(hdmm.unit_error(w, identity(w)) / w.queries)
    assert by_cell == pytest.approx(row["identity_rmse"], rel=1e-6)
    by_query = math.sqrt(hdmm.unit_error(w, laplace(w)) / w.queries)
    assert by_query / by_cell == pytest.approx(row["lm_over_identity_closed_form"], abs=5e-7)


def test_sf1_sizes() -> None:
    w = sf1()
    assert (w.queries, len(w.products), w.domain.size) == (4151, 33, 500_480)
    assert laplace(w).sensitivity("laplace") == 41
    assert w.nbytes < 335_000
    compact32 = sf1(form="compact32")
    assert (compact32.queries, len(compact32.products)) == (4151, 32)
    assert len(sf1(form="distinct24").products) == 24
    plus = sf1(plus=True)
    assert (plus.queries, len(plus.products), plus.domain.size) == (215_852, 33, 25_524_480)
    assert laplace(plus).sensitivity("laplace") == 2 * 41
    assert plus.nbytes < 687_000


def test_sf1_closed_forms() -> None:
    """The numbers of the check block, which counts race code 0 among two or more races (sf1_note)."""
    row = CHECKS["table_main_sf1"]
    w = sf1()
    assert hdmm.unit_error(w, identity(w)) == 18_924_264  # the 57 true codes
    noted = _with_code_zero(w)
    assert hdmm.unit_error(noted, identity(noted)) == row["identity_total_sq_error_5_attributes"]
    ratio = math.sqrt(hdmm.unit_error(noted, laplace(noted)) / hdmm.unit_error(noted, identity(noted)))
    assert ratio == pytest.approx(row["lm_over_identity"]["5 attributes, sensitivity 41"], abs=5e-5)


def _with_code_zero(w: Workload) -> Workload:
    from dataclasses import replace

    def widen(p: hdmm.PredicateSet) -> hdmm.PredicateSet:
        if isinstance(p, Sets) and len(p.members) == 7:
            return Sets([*p.members[:6], (0, *p.members[6])])
        return p

    return Workload(
        w.domain,
        tuple(replace(p, factors=tuple((i, widen(s)) for i, s in p.factors)) for p in w.products),
    )


@pytest.mark.parametrize("form", ["compact32", "distinct24"])
def test_sf1_forms_have_one_gram(form: str) -> None:
    full, other = sf1(), sf1(form=form)  # type: ignore[arg-type]
    x = np.random.default_rng(0).normal(size=(full.domain.size, 1))
    np.testing.assert_allclose(other.gram.matmat(x), full.gram.matmat(x), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("plus", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["SF1", "SF1+"])
def test_sf1_from_single_queries_compacts(plus: bool) -> None:
    """4,151 (215,852) single-query products, in any order, come back as at most 40 products."""
    domain = sf1_domain(plus=plus)
    queries = list(sf1_single_queries(plus=plus))
    random.Random(7).shuffle(queries)
    w = _from_queries(domain, queries)
    c = w.compact()
    assert len(c.products) <= 40
    whole = sf1(plus=plus)
    # Equal grams, tested on random vectors of each attribute: xᵀVx for product vectors x.
    rng = np.random.default_rng(3)
    for _ in range(5):
        vectors = [rng.normal(size=(n, 1)) for n in domain.shape]
        assert _energy(c, vectors) == pytest.approx(_energy(whole, vectors), rel=1e-9)
    if not plus:
        assert _multiset(c) == Counter(queries)


def _from_queries(domain: Domain, queries: list[tuple[tuple[int, ...], ...]]) -> Workload:
    shape = domain.shape
    sets: dict[tuple[int, ...], Sets] = {}
    products = [
        hdmm.Product(
            domain,
            tuple((i, sets.setdefault(s, Sets([s]))) for i, s in enumerate(query) if len(s) < shape[i]),
        )
        for query in queries
    ]
    return Workload(domain, tuple(products))


def _energy(w: Workload, vectors: list[np.ndarray]) -> float:
    """‖W x‖² for x = ⊗ vectors."""
    shape = w.domain.shape
    return sum(
        p.weight**2
        * math.prod(
            float(np.sum(s.matrix(n).matmat(v) ** 2)) for s, n, v in zip(p.predicates, shape, vectors, strict=True)
        )
        for p in w.products
    )


def _multiset(w: Workload) -> Counter[tuple[tuple[int, ...], ...]]:
    """Every query as its index sets, counted weight² times."""
    import itertools

    found: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for p in w.products:
        rows = [
            [tuple(np.flatnonzero(row).tolist()) for row in to_dense(s.matrix(n))]
            for s, n in zip(p.predicates, w.domain.shape, strict=True)
        ]
        copies = round(p.weight**2)
        assert p.weight**2 == pytest.approx(copies)
        for query in itertools.product(*rows):
            found[query] += copies
    return found
