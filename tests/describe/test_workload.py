from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import AllRange, Domain, DomainError, Identity, Prefix, Sets, Total, Workload, WorkloadError
from hdmm.base.exceptions import MatrixError
from hdmm.matrix import to_dense
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads


@given(st.data(), domains())
def test_matrix_is_the_definition(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    W = brute.workload_matrix(w)
    assert W.shape == (w.queries, domain.size)
    np.testing.assert_allclose(to_dense(w.matrix), W, atol=1e-12)
    np.testing.assert_allclose(to_dense(w.gram), W.T @ W, atol=1e-9)
    x = np.arange(1.0, domain.size + 1)
    np.testing.assert_allclose(w.matrix.matmat(x[:, None])[:, 0], W @ x, atol=1e-9)
    assert len(list(w.labels())) == w.queries
    assert w.nbytes >= 0


@examples(200)
@given(st.data(), domains())
def test_compact_keeps_the_gram(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain, products=6))
    c = w.compact()
    assert len(c.products) <= len(w.products)
    W, C = brute.workload_matrix(w), brute.workload_matrix(c)
    np.testing.assert_allclose(C.T @ C, W.T @ W, atol=1e-9)
    again = c.compact()
    assert len(again.products) == len(c.products)


@given(st.data(), domains(attributes=2, size=4))
def test_compact_does_not_depend_on_the_order(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain, products=5))
    shuffled = Workload(domain, tuple(data.draw(st.permutations(w.products))))
    one, two = w.compact(), shuffled.compact()
    assert len(one.products) == len(two.products)
    assert one.queries == two.queries


def test_compact_merges_duplicates_into_weights() -> None:
    domain = Domain({"age": 5, "sex": 2})
    w = Workload.product(domain, age=Prefix())
    assert [(p.weight, p.factors) for p in (w + w).compact().products] == [(math.sqrt(2), w.products[0].factors)]
    mixed = (3.0 * w + 4.0 * w).compact()
    assert [p.weight for p in mixed.products] == [5.0]


def test_compact_finds_structure_in_single_queries() -> None:
    domain = Domain({"age": 4, "sex": 2})
    singles = [
        Workload.product(domain, age=Sets([range(lo, hi + 1)]), sex=Sets([[s]]))
        for lo, hi in itertools.combinations_with_replacement(range(4), 2)
        for s in range(2)
    ]
    c = sum(singles[1:], start=singles[0]).compact()
    assert [dict(p.factors) for p in c.products] == [{0: AllRange(), 1: Identity()}]


def test_compact_handles_marginals_of_many_attributes() -> None:
    w = Workload.marginals(Domain({f"a{i}": 10 for i in range(30)}), k=2)
    assert len(w.compact().products) <= len(w.products) == 435


@given(st.data(), domains())
def test_normalised_divides_every_query_by_its_norm(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    W = brute.workload_matrix(w)
    plain = brute.workload_matrix(Workload(domain, tuple(_unweighted(p) for p in w.products)))
    norms = np.abs(plain).sum(axis=1)
    expected = W / np.where(norms > 0, norms, 1.0)[:, None]
    np.testing.assert_allclose(brute.workload_matrix(w.normalised()), expected, atol=1e-12)


def _unweighted(product):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(product, weight=1.0)


def test_normalised_keeps_structure() -> None:
    domain = Domain({"age": 100, "sex": 2})
    w = Workload.product(domain, age=Identity()).normalised()
    assert w.products[0].factors == ((0, Identity()),)
    assert w.products[0].weight == 0.5


def test_marginals_in_every_form() -> None:
    domain = Domain({"sex": 2, "race": 3, "age": 4})
    assert Workload.marginals(domain, 2).queries == 6 + 8 + 12
    assert Workload.marginals(domain, k=range(4)).queries == 3 * 4 * 5
    listed = Workload.marginals(domain, [("age", "sex"), ("race",), ()])
    assert [tuple(i for i, _ in p.factors) for p in listed.products] == [(0, 2), (1,), ()]
    assert listed.queries == 8 + 3 + 1


def test_range_marginals_take_ordered_attributes() -> None:
    domain = Domain({"income": 6, "sex": ["M", "F"]})
    w = Workload.range_marginals(domain, k=2)
    assert dict(w.products[0].factors) == {0: AllRange(), 1: Identity()}
    every = Workload.range_marginals(domain)
    assert dict(every.products[0].factors) == {0: AllRange(), 1: Identity() | Total()}
    assert Workload.range_marginals(domain, ranges=["sex"], k=1).queries == 6 + 3


def test_a_hundred_attributes() -> None:
    domain = Domain({f"a{i}": 10 for i in range(100)})
    w = Workload.marginals(domain, k=3)
    assert len(w.products) == math.comb(100, 3)
    assert w.queries == math.comb(100, 3) * 1000
    assert domain.size == 10**100
    assert Workload.product(domain, {n: AllRange() for n in domain.names}).queries == 55**100


def test_all_subsets_of_25_attributes_are_refused_before_they_are_listed() -> None:
    domain = Domain({f"a{i}": 2 for i in range(25)})
    with pytest.raises(WorkloadError, match=r"the limit is 2,097,152.*Identity\(\) \| Total\(\)"):
        Workload.marginals(domain, k=range(26))
    whole = Workload.product(domain, {name: Identity() | Total() for name in domain.names})
    assert whole.queries == 3**25


def test_arithmetic() -> None:
    domain = Domain({"age": 3})
    w = Workload.product(domain, age=Identity())
    both = 2.0 * w + w * 3
    assert [p.weight for p in both.products] == [2.0, 3.0]
    assert (2 * both).products[1].weight == 6.0
    assert str(both.products[0]) == "2 · (age: Identity())"
    assert repr(both) == "Workload(6 queries in 2 products over 3 cells)"


DOMAIN = Domain({"sex": ["M", "F"], "age": 3})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Workload.product(DOMAIN, sex=[[1, 0, 0]]), WorkloadError, "'sex'.*2 values.*3 columns"),
        (lambda: Workload.product(DOMAIN, sex=[[1, 1, 1]]), WorkloadError, "Use Total"),
        (lambda: Workload.product(DOMAIN, agee=Identity()), DomainError, "'agee'.*age"),
        (lambda: Domain({"a": 2}).project(["a", "a"]), DomainError, "'a'"),
        (lambda: Workload.marginals(DOMAIN, [("age", "age")]), WorkloadError, "age, age.*twice"),
        (lambda: Workload.marginals(DOMAIN, ["age"]), WorkloadError, r"string.*\('age',\)"),
        (lambda: Workload.marginals(DOMAIN, k=3), WorkloadError, "3-way.*0 to 2"),
        (lambda: Workload.marginals(DOMAIN, k=[]), WorkloadError, "k is empty"),
        (lambda: Workload(DOMAIN, ()), WorkloadError, "empty"),
        (lambda: -1.0 * Workload.marginals(DOMAIN, 1), WorkloadError, "-1.*>= 0"),
        (lambda: float("nan") * Workload.marginals(DOMAIN, 1), WorkloadError, "nan"),
        (lambda: float("inf") * Workload.marginals(DOMAIN, 1), WorkloadError, "inf"),
        (
            lambda: Workload.marginals(DOMAIN, 1) + Workload.marginals(Domain({"x": 2}), 1),
            WorkloadError,
            "different domains",
        ),
    ],
)
def test_bad_input_says_what_to_do(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


def test_to_dense_of_a_large_workload_is_refused_at_once() -> None:
    domain = Domain({"a": 25_524_480})
    with pytest.raises(MatrixError, match=r"5\.2 PB.*Use matmat"):
        to_dense(Workload.product(domain, a=Identity()).matrix)
