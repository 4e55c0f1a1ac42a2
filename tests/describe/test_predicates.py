from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import (
    AllRange,
    Amounts,
    Attribute,
    DifferenceAtMost,
    Domain,
    Groups,
    Identity,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    SumAtMost,
    Total,
    Vectors,
    Weighted,
    Width,
    Workload,
    WorkloadError,
)
from hdmm.describe.predicates import PREDICATE_SETS, Union
from hdmm.io.codec import decode, encode
from hdmm.matrix import diagonal, to_dense, total, trace
from tests.support import brute
from tests.support.pages import ROOT
from tests.support.plain_sets import PLAIN
from tests.support.strategies import predicate_sets


@given(st.data(), st.integers(1, 9))
def test_every_set_is_its_definition(data: st.DataObject, n: int) -> None:
    predicates = data.draw(predicate_sets(n))
    W = brute.rows(predicates, n)
    assert predicates.count(n) == len(W)
    np.testing.assert_array_equal(to_dense(predicates.matrix(n)), W)
    X = np.arange(2.0 * n).reshape(n, 2) - n
    np.testing.assert_allclose(predicates.matrix(n).matmat(X), W @ X, atol=1e-9)
    np.testing.assert_allclose(predicates.matrix(n).T.matmat(W @ X), W.T @ W @ X, atol=1e-9)


def test_every_kind_of_set_is_drawn() -> None:
    """So a new kind that is not drawn, or not written to files, fails a test."""
    of_others = {Union, Shuffled, Weighted}
    other_tests = {Groups, Amounts, SumAtMost, DifferenceAtMost}  # of levels, sums and pairs of attributes
    assert set(PLAIN) | of_others | other_tests == set(PREDICATE_SETS)
    assert {kind.__name__ for kind in PREDICATE_SETS if kind is not Union} <= set(hdmm.__all__)
    guide = (ROOT / "docs/guide/tables.md").read_text()
    assert not [kind for kind in PREDICATE_SETS if kind is not Union and f"| `{kind.__name__}(" not in guide]


@given(st.data(), st.integers(1, 9))
def test_a_place_is_an_end_of_its_predicate(data: st.DataObject, n: int) -> None:
    """Charts put a predicate there: at the range that it is, or at the value up to which it counts."""
    predicates = data.draw(predicate_sets(n))
    places = list(predicates.places(n))
    assert len(places) in (0, predicates.count(n))
    for row, (low, high) in zip(brute.rows(predicates, n), places, strict=False):
        inside = np.flatnonzero(row).tolist()
        assert not inside or low == high in (inside[0], inside[-1]) or (low, high) == (inside[0], inside[-1])


@given(st.data(), st.integers(1, 9))
def test_every_set_comes_back_from_a_file(data: st.DataObject, n: int) -> None:
    w = Workload.product(Domain({"a": n}), a=data.draw(predicate_sets(n)))
    assert decode(Workload, *encode(w)) == w


@given(st.data(), st.integers(1, 9))
def test_gram_is_never_wrong(data: st.DataObject, n: int) -> None:
    predicates = data.draw(predicate_sets(n))
    W = brute.rows(predicates, n)
    V, implicit = W.T @ W, predicates.gram(n)
    np.testing.assert_allclose(to_dense(implicit), V, atol=1e-9)
    np.testing.assert_allclose(implicit.matmat(np.eye(n)[:, ::-1]), V[:, ::-1], atol=1e-9)
    np.testing.assert_allclose(diagonal(implicit), np.diag(V), atol=1e-9)
    assert trace(implicit) == pytest.approx(np.trace(V))
    assert total(implicit) == pytest.approx(V.sum())


@given(st.data(), st.integers(1, 6))
def test_one_label_a_query(data: st.DataObject, n: int) -> None:
    predicates = data.draw(predicate_sets(n))
    attribute = Domain({"a": n})["a"]
    assert len(predicates.labels(attribute)) == predicates.count(n)


def test_labels_speak_the_attributes_words() -> None:
    size = Domain({"size": ["S", "M", "L"]})["size"]
    assert Identity().labels(size) == ["S", "M", "L"]
    assert (Prefix() | Total()).labels(size) == ["≤ S", "≤ M", "≤ L", "total"]
    assert Ranges([(0, 1), (2, 2)]).labels(size) == ["S – M", "L"]
    assert AllRange().labels(size) == ["S", "S – M", "S – L", "M", "M – L", "L"]
    assert Sets({"not small": [1, 2]}).labels(size) == ["not small"]
    assert Sets([[0, 2]]).labels(size) == ["{S, L}"]


def test_structured_grams_of_a_million_values_stay_implicit() -> None:
    n = 1_000_000
    x = np.ones((n, 1))
    assert trace(Prefix().gram(n)) == n * (n + 1) // 2
    assert trace(AllRange().gram(n)) == n * (n + 1) * (n + 2) // 6
    prefix = Prefix().gram(n).matmat(x)[:, 0]  # V1 at i is Σ_j (n − max(i, j))
    assert prefix[0] == pytest.approx(n * (n + 1) / 2)
    ranges = AllRange().gram(n).matmat(x)[:, 0]  # V1 at 0 is Σ_j (n − j)
    assert ranges[0] == pytest.approx(n * (n + 1) / 2)
    windows = Width(32).gram(n).matmat(x)[:, 0]
    assert windows[n // 2] == 32 * 32
    assert windows[0] == 32


def test_union_flattens_and_keeps_repeats() -> None:
    both = Identity() | Total() | (Total() | Prefix())
    assert both == Union((Identity(), Total(), Total(), Prefix()))
    assert both.count(4) == 10


def test_equal_sets_are_equal_values() -> None:
    assert Vectors([[1, 0]]) == Vectors([[1.0, 0.0]])
    assert hash(Vectors([[1, 0]])) == hash(Vectors([[1.0, 0.0]]))
    assert Sets([[1, 0, 1]]) == Sets([[0, 1]])
    assert Weighted(Identity(), [1, 2]) == Weighted(Identity(), [1.0, 2.0])
    assert Weighted(Identity(), [1, 2]) != Weighted(Identity(), [2, 1])


AGE = Domain({"age": 3})["age"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vectors([[1, 1]]).check(AGE), "'age'.*3 values.*2 columns.*Total"),
        (lambda: Vectors([[1, 2]]).check(AGE), "'age'.*3 values.*2 columns"),
        (lambda: Ranges([(1, 3)]).check(AGE), r"'age'.*\[1, 3\].*<= 2"),
        (lambda: Sets([[0, 7]]).check(AGE), "'age'.*position 7.*3 values"),
        (lambda: Width(4).check(AGE), "'age'.*width 4.*<= 3"),
        (lambda: Width(2).matrix(2**40), "1,099,511,627,775 ranges.*coarser"),
        (lambda: Shuffled(Prefix(), [1, 0]).check(AGE), "'age'.*3 values.*2"),
        (lambda: Weighted(Identity(), [1, 1]).check(AGE), "'age'.*2 weights for 3"),
        (lambda: Ranges([(2, 1)]), r"\[2, 1\].*lo <= hi"),
        (lambda: Ranges([]), "no predicates"),
        (lambda: Sets([]), "no predicates"),
        (lambda: Sets([[-1]]), "negative"),
        (lambda: Sets([["a"]]), "'a'.*not an integer"),
        (lambda: Width(0), "at least 1"),
        (lambda: Vectors([1, 0, 0]), "2-D"),
        (lambda: Vectors([[float("nan")]]), "NaN"),
        (lambda: Vectors([["x"]]), "numbers"),
        (lambda: Vectors(np.zeros((0, 3))), "one row per query"),
        (lambda: Shuffled(Prefix(), [0, 0, 1]), "permutation"),
        (lambda: Weighted(Identity(), [1, -1]), ">= 0"),
        (lambda: Weighted(Identity(), [1, float("nan")]), "finite"),
    ],
)
def test_bad_sets_say_what_to_do(make: object, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make()  # type: ignore[operator]


def test_attribute_is_exported() -> None:
    assert isinstance(AGE, Attribute)
