"""DAWA and PrivBayes, the data-dependent methods of the evaluation: every stage against its definition."""

from __future__ import annotations

import doctest
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.competitors import dawa as buckets
from benchmarks.competitors import privbayes as network
from benchmarks.competitors.dawa import (
    bucket_gram,
    costs_of,
    dawa,
    hilbert_order,
    least_cost,
    longest,
    noisy_partition,
)
from benchmarks.competitors.privbayes import (
    affordable_cells,
    candidates,
    dependence,
    largest_sets,
    noisy_network,
    privbayes,
    sampled,
    sets_within,
    useful_cells,
)
from hypothesis import given
from hypothesis import strategies as st

from hdmm import Domain, Identity, NotApplicableError, Prefix, Workload
from hdmm.matrix import to_dense
from hdmm.noise import discrete_laplace
from tests.support import brute

counts = st.lists(st.integers(0, 9), min_size=1, max_size=7).map(lambda x: np.array(x, dtype=np.int64))
Mechanism = Callable[[Workload, np.ndarray, Fraction], np.ndarray]


@pytest.mark.parametrize("module", [buckets, network])
def test_the_examples_are_right(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """All ways to write n as a sum of powers of two, in order."""
    if n == 0:
        yield ()
    for k in range(n.bit_length()):
        yield from ((1 << k, *rest) for rest in partitions(n - (1 << k)))


def deviation(x: Sequence[int]) -> Fraction:
    mean = Fraction(sum(x), len(x))
    return sum((abs(v - mean) for v in x), Fraction(0))


@given(counts)
def test_costs_are_the_deviations_times_the_longest_length(x: np.ndarray) -> None:
    for k, found in enumerate(costs_of(x)):
        length = 1 << k
        windows = [x[i : i + length].tolist() for i in range(len(x) - length + 1)]
        assert found.tolist() == [longest(len(x)) * deviation(window) for window in windows]


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            *(
                st.lists(st.integers(-5, 5), min_size=n - (1 << k) + 1, max_size=n - (1 << k) + 1)
                for k in range(n.bit_length())
            )
        )
    )
)
def test_the_cheapest_partition_is_the_cheapest_of_all(costs: tuple[list[int], ...]) -> None:
    def price(lengths: Sequence[int]) -> int:
        starts = [0, *itertools.accumulate(lengths)][:-1]
        return sum(costs[length.bit_length() - 1][start] for start, length in zip(starts, lengths, strict=True))

    n = len(costs[0])
    # Of equal ones the last bucket is the shortest, and so on leftwards.
    expected = min(partitions(n), key=lambda lengths: (price(lengths), lengths[::-1]))
    assert np.diff([*least_cost(costs), n]).tolist() == list(expected)


@given(counts, st.data())
def test_one_row_moves_a_cost_by_at_most_its_sensitivity(x: np.ndarray, draw: st.DataObject) -> None:
    more = x.copy()
    more[draw.draw(st.integers(0, len(x) - 1))] += 1
    for before, after in zip(costs_of(x), costs_of(more), strict=True):
        assert np.abs(np.subtract(before, after)).max() <= buckets.COST_SENSITIVITY * longest(len(x))


def test_uniform_regions_are_found() -> None:
    x = np.repeat([400, 0, 90], [8, 4, 4])
    scale = Fraction(1, 8) * longest(len(x))
    found = noisy_partition(x, lambda costs: costs + discrete_laplace(scale, costs.size), price=Fraction(6))
    assert found == [0, 8, 12]


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16])
def test_the_hilbert_curve_steps_to_a_neighbour(side: int) -> None:
    order = hilbert_order(side, side)
    assert sorted(order.tolist()) == list(range(side * side))
    y, x = np.divmod(order, side)
    assert (np.abs(np.diff(x)) + np.abs(np.diff(y)) == 1).all()


@pytest.mark.parametrize("shape", [(1, 5), (3, 5), (6, 2)])
def test_the_hilbert_order_of_any_table_has_every_cell(shape: tuple[int, int]) -> None:
    assert sorted(hilbert_order(*shape).tolist()) == list(range(math.prod(shape)))


@given(st.integers(2, 8), st.data())
def test_the_gram_over_buckets(n: int, draw: st.DataObject) -> None:
    w = Workload.product(Domain({"x": n}), x=Prefix()) + 2.0 * Workload.product(Domain({"x": n}), x=Identity())
    starts = [0, *sorted(draw.draw(st.sets(st.integers(1, n - 1))))]
    order = np.array(draw.draw(st.permutations(range(n))))
    E = np.zeros((n, len(starts)))
    for b, (start, end) in enumerate(itertools.pairwise([*starts, n])):
        E[order[start:end], b] = 1 / (end - start)
    W = brute.workload_matrix(w) @ E
    np.testing.assert_allclose(to_dense(bucket_gram(w, order, starts)), W.T @ W, atol=1e-9)


tables = (
    st.integers(1, 3)
    .flatmap(lambda m: st.lists(st.lists(st.integers(0, 6), min_size=m, max_size=m), min_size=1, max_size=4))
    .map(lambda rows: np.array(rows, dtype=np.int64))
)


@given(tables)
def test_dependence_is_half_the_distance_to_independence(table: np.ndarray) -> None:
    n = int(table.sum())
    apart = Fraction(0)
    for i, j in np.ndindex(*table.shape):
        if n:
            apart += abs(int(table[i, j]) - Fraction(int(table[i].sum() * table[:, j].sum()), n))
    assert dependence(table) == apart / 2
    assert dependence(table * 2**24) == apart / 2 * 2**24


@given(tables, st.data())
def test_one_row_moves_dependence_by_less_than_its_sensitivity(table: np.ndarray, draw: st.DataObject) -> None:
    more = table.copy()
    more[draw.draw(st.integers(0, table.shape[0] - 1)), draw.draw(st.integers(0, table.shape[1] - 1))] += 1
    assert abs(dependence(more) - dependence(table)) < network.SCORE_SENSITIVITY


def test_tables_are_no_larger_than_useful() -> None:
    """49.95 cells: with 50, the average count would be below four times the noise's scale of 5/ε."""
    assert useful_cells(999, Fraction(1), 5, 4) == 49
    assert useful_cells(19, Fraction(1), 5, 4) == 0
    assert useful_cells(1000, Fraction(1, 2), 5, 4) == 25


@given(st.lists(st.integers(1, 5), max_size=5), st.integers(0, 60))
def test_parent_sets_are_the_largest_that_fit(sizes: list[int], cells: int) -> None:
    every = [frozenset(s) for k in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    fit = [s for s in every if math.prod(sizes[i] for i in s) <= cells]
    largest = {s for s in fit if not any(s < other for other in fit)}
    found = largest_sets(dict(enumerate(sizes)), cells)
    assert len(found) == len(set(found))
    assert set(found) == largest


def test_an_attribute_too_large_for_any_table_has_no_parents() -> None:
    assert candidates([2, 100], [0], 4) == [(1, ())]


def test_the_network_finds_what_depends_on_what() -> None:
    """b copies a, c is by itself: once a or b is placed, the other follows with it as its parent."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    x = np.zeros((2, 2, 2), dtype=np.int64)
    x[0, 0] = x[1, 1] = 500

    def marginals(wanted: list[tuple[int, ...]]) -> Iterator[np.ndarray]:
        for axes in wanted:
            yield np.einsum(x, [0, 1, 2], list(axes))

    for first in range(3):
        choices = iter([first])

        def choice(scores: Sequence[Fraction | int], choices: Iterator[int] = choices) -> int:
            return next(choices, int(np.argmax([float(score) for score in scores])))

        found = dict(noisy_network(domain, marginals, choice, cells=4))
        assert found[0] == (1,) or found[1] == (0,)


def test_rows_are_drawn_from_the_network() -> None:
    domain = Domain({"a": 2, "b": 3})
    rng = np.random.default_rng(0)
    columns = sampled(
        domain, [(1, ()), (0, (1,))], [np.array([0, 3, 1]), np.array([[5, 5], [7, 0], [0, 0]])], 40_000, rng
    )
    counts = np.bincount(columns[0] * 3 + columns[1], minlength=6) / 40_000
    np.testing.assert_allclose(counts, [0, 0.75, 0.125, 0, 0, 0.125], atol=0.02)  # no count: both values alike


line = Domain({"x": 6})
prefix = Workload.product(line, x=Prefix())
pair = Domain({"a": 2, "b": 3})


def run_dawa_opt_0(w: Workload, x: np.ndarray, epsilon: Fraction) -> np.ndarray:
    return dawa(w, x, epsilon, second_stage="opt_0")


def run_privbayes(w: Workload, x: np.ndarray, epsilon: Fraction) -> np.ndarray:
    return privbayes(w.domain, x, epsilon)


mechanisms = pytest.mark.parametrize("mechanism", [dawa, run_dawa_opt_0, run_privbayes])


@mechanisms
@pytest.mark.parametrize("domain", [Domain({"x": 1}), line, pair, Domain({"a": 1, "b": 3})])
def test_counts_are_near_the_truth_where_epsilon_is_large(mechanism: Mechanism, domain: Domain) -> None:
    x = np.arange(domain.size) * 10_000
    w = Workload.marginals(domain, k=range(len(domain) + 1)) + 0.5 * Workload.product(domain)
    np.testing.assert_allclose(mechanism(w, x, Fraction(1000)), x, atol=0.03 * x.sum() + 20)


@mechanisms
def test_the_error_falls_with_epsilon(mechanism: Mechanism) -> None:
    x = np.array([300, 310, 20, 25, 22, 21])

    def error(epsilon: str) -> float:
        return float(np.mean([np.sum((mechanism(prefix, x, Fraction(epsilon)) - x) ** 2) for _ in range(12)]))

    assert error("0.01") > 100 * error("10")


def test_dawa_is_for_few_attributes_and_cells() -> None:
    for domain in (Domain({"a": 2, "b": 2, "c": 2}), Domain({"x": 2**15})):
        with pytest.raises(NotApplicableError):
            dawa(Workload.marginals(domain, k=1), np.zeros(8), Fraction(1))


def test_the_noise_of_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scales that the proofs of both mechanisms ask for."""
    scales: list[tuple[Fraction, int]] = []

    def noted(scale: Fraction, size: int) -> np.ndarray:
        scales.append((scale, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(buckets, "discrete_laplace", noted)
    monkeypatch.setattr(network, "discrete_laplace", noted)
    dawa(prefix, np.ones(6, dtype=int), Fraction("0.8"), share=Fraction(1, 5))
    # ε₁ = 0.16: costs times 4 (the longest bucket), each of sensitivity 2 to a row, twice.
    assert scales == [(4 * 2 * 2 / Fraction("0.16"), 6 + 5 + 3)]
    scales.clear()
    privbayes(Domain({"a": 2, "b": 2, "c": 3}), np.full(12, 100), Fraction(2))
    assert scales[0] == (1 / Fraction("0.1"), 1)  # ε/20 for the count
    assert [scale for scale, _ in scales[1:]] == [1 / (Fraction("1.3") / 3)] * 3  # the rest over three tables


@pytest.mark.parametrize("rows", [0, 1, 1000, 2**38])
def test_parents_are_few_enough_to_be_looked_at(rows: int) -> None:
    """Where many rows make every table useful, public sizes alone limit what is looked at."""
    for shape in ((2,) * 100, (1,) * 70, (1000,) * 6, (2, 3) * 10, (2**25, 2)):
        cells = affordable_cells(shape, useful_cells(rows, Fraction(1000), len(shape), 4))
        assert len(shape) * sets_within(shape, cells) * max(cells, 2**10) <= 2**32
    assert affordable_cells((75, 16, 5, 2, 20), 10**6) == 10**6


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 50))
def test_sets_within_are_counted(sizes: list[int], cells: int) -> None:
    sets = itertools.chain.from_iterable(itertools.combinations(sizes, k) for k in range(len(sizes) + 1))
    assert sets_within(sizes, cells) == sum(math.prod(s) <= cells for s in sets)
