"""DAWA and PrivBayes: every stage against its definition by brute force, what is spent, and an audit of the whole."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

import hdmm
import hdmm.measure.measure
from hdmm import (
    ZCDP,
    AllRange,
    Answers,
    Data,
    DataError,
    Domain,
    Identity,
    Ledger,
    NotApplicableError,
    Prefix,
    PrivacyError,
    PureDP,
    StrategyError,
    Total,
    Unit,
    Workload,
    from_array,
)
from hdmm.base.exceptions import NoiseError
from hdmm.baselines import dawa, network, partition, privbayes, stages
from hdmm.baselines.dawa import bucket_gram
from hdmm.baselines.greedy_h import greedy_tree
from hdmm.baselines.network import (
    affordable_cells,
    candidates,
    dependence,
    largest_sets,
    noisy_network,
    sets_within,
    useful_cells,
)
from hdmm.baselines.partition import costs_of, hilbert_order, least_cost, longest, noisy_partition
from hdmm.baselines.privbayes import sampled
from hdmm.matrix import Dense, column_norms, to_dense
from hdmm.matrix.integers import rounded
from hdmm.measure.measure import split
from hdmm.noise import discrete_laplace, exponential_choice
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from tests.support import brute

counts = st.lists(st.integers(0, 9), min_size=1, max_size=7).map(lambda x: np.array(x, dtype=np.int64))
Mechanism = Callable[[Data, Workload, PureDP], Answers]


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
        assert np.abs(np.subtract(before, after)).max() <= partition.COST_SENSITIVITY * longest(len(x))


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
    assert dependence(table * 2**33) == apart / 2 * 2**33  # beyond 64 bits


large = st.integers(0, 2**38) | st.sampled_from([0, 2**31 - 1, 2**31, 2**38])


@given(st.lists(st.lists(large, min_size=3, max_size=3), min_size=2, max_size=5))
def test_dependence_is_exact_for_all_counts_there_can_be(rows: list[list[int]]) -> None:
    """More rows than declared included: no cell counts more than 2³⁸."""
    n, columns = sum(map(sum, rows)), [sum(column) for column in zip(*rows, strict=True)]
    apart = sum(abs(n * c - sum(row) * columns[j]) for row in rows for j, c in enumerate(row))
    assert dependence(np.array(rows)) == Fraction(apart, 2 * max(n, 1))


def test_dependence_on_as_many_rows_as_there_can_be() -> None:
    """As of 2²⁴ cells of 2³⁸ rows, n is nearly 2⁶², and the sum of the differences beyond 2¹¹⁰."""
    c, cells = 2**49, 2**13
    table = np.full((2, cells // 2), c)
    table[0, 0] = table[1, 1] = 0
    n = (cells - 2) * c
    empty, beside, elsewhere = n // 2 * c, abs(n * c - n // 2 * c), abs(n * c - n // 2 * 2 * c)
    assert dependence(table) == Fraction(2 * empty + 2 * beside + (cells - 4) * elsewhere, 2 * n)


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
    data = from_array(domain, x)
    for _ in range(10):
        found = dict(
            noisy_network(
                domain,
                lambda wanted: data.marginals([[domain.names[i] for i in axes] for axes in wanted]),
                lambda scores: exponential_choice(scores, Fraction(4)),
                cells=4,
            )
        )
        assert found[0] == (1,) or found[1] == (0,)


def test_rows_are_drawn_from_the_network() -> None:
    domain = Domain({"a": 2, "b": 3})
    columns = sampled(domain, [(1, ()), (0, (1,))], [np.array([0, 3, 1]), np.array([[5, 5], [7, 0], [0, 0]])], 40_000)
    counts = np.bincount(columns[0] * 3 + columns[1], minlength=6) / 40_000
    np.testing.assert_allclose(counts, [0, 0.75, 0.125, 0, 0, 0.125], atol=0.02)  # no count: both values alike


line = Domain({"x": 6})
prefix = Workload.product(line, x=Prefix())
pair = Domain({"a": 2, "b": 3})


def run_dawa(data: Data, w: Workload, privacy: PureDP) -> Answers:
    return dawa(data, w, privacy, ledger=None)


def run_dawa_opt_0(data: Data, w: Workload, privacy: PureDP) -> Answers:
    return dawa(data, w, privacy, ledger=None, second_stage="opt_0")


def run_privbayes(data: Data, w: Workload, privacy: PureDP) -> Answers:
    return privbayes(data, w, privacy, ledger=None)


mechanisms = pytest.mark.parametrize("mechanism", [run_dawa, run_dawa_opt_0, run_privbayes])


@mechanisms
@pytest.mark.parametrize("domain", [Domain({"x": 1}), line, pair, Domain({"a": 1, "b": 3})])
def test_answers_are_near_the_truth_where_epsilon_is_large(mechanism: Mechanism, domain: Domain) -> None:
    x = np.arange(domain.size) * 10_000
    w = Workload.marginals(domain, k=range(len(domain) + 1)) + 0.5 * Workload.product(domain)
    answers = mechanism(from_array(domain, x), w, PureDP(1000))
    truth = w.matrix.matmat(x[:, None])[:, 0]
    assert answers.workload is w
    np.testing.assert_allclose(answers.values, truth, atol=0.03 * x.sum() + 20)


@mechanisms
def test_asking_for_standard_deviations_says_why_there_are_none(mechanism: Mechanism) -> None:
    answers = mechanism(from_array(line, np.ones(6, dtype=int)), prefix, PureDP(1))
    assert answers.values.shape == (6,)
    for ask in (lambda: answers.stddev, answers.tables, answers.interval):
        with pytest.raises(StrategyError, match="depends on the data"):
            ask()


@mechanisms
def test_the_error_falls_with_epsilon(mechanism: Mechanism) -> None:
    x = np.array([300, 310, 20, 25, 22, 21])
    data, truth = from_array(line, x), np.cumsum(x)

    def error(epsilon: str) -> float:
        return float(
            np.mean([np.sum((mechanism(data, prefix, PureDP(epsilon)).values - truth) ** 2) for _ in range(12)])
        )

    assert error("0.01") > 100 * error("10")


@mechanisms
def test_empty_data_and_totals(mechanism: Mechanism) -> None:
    w = Workload.product(line, x=Total())
    values = mechanism(from_array(line, np.zeros(6, dtype=int)), w, PureDP(100)).values
    assert np.abs(values).max() < 10


@given(st.fractions(Fraction(1, 100), 10), st.lists(st.fractions(Fraction(1, 50), Fraction(9, 40)), max_size=4))
def test_stages_spend_exactly_the_budget(epsilon: Fraction, shares: list[Fraction]) -> None:
    found = split(PureDP(epsilon), shares)
    assert sum(found) == epsilon
    assert list(found[:-1]) == [share * epsilon for share in shares]


@pytest.mark.parametrize(("unit", "factor"), [(None, 1), (Unit(rows=3), 3), (Unit(rows=2, neighbours="replace"), 4)])
def test_dawa_adds_the_noise_its_stages_ask_for(
    monkeypatch: pytest.MonkeyPatch, unit: Unit | None, factor: int
) -> None:
    scales: list[Fraction] = []
    spent: list[object] = []
    draw, measure = hdmm.measure.measure.draw, hdmm.measure.measure.measure

    def noted(noise: hdmm.Noise, scale: Fraction, size: int) -> np.ndarray:
        scales.append(scale)
        return draw(noise, scale, size)

    def measured(*given: object, **named: object) -> object:
        spent.append((given[2], named["unit"], named["ledger"]))
        return measure(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(hdmm.measure.measure, "draw", noted)
    monkeypatch.setattr(sys.modules["hdmm.baselines.dawa"], "measure", measured)
    dawa(from_array(line, np.ones(6, dtype=int)), prefix, PureDP("0.8"), ledger=None, share="1/5", unit=unit)
    # ε₁ = 0.16: costs times 4 (the longest bucket), each of sensitivity 2 to a row, twice.
    assert scales[0] == 4 * 2 * 2 * factor / Fraction("0.16")
    assert spent == [(PureDP("0.64"), unit or Unit(), None)]


def test_privbayes_adds_the_noise_its_stages_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain({"a": 2, "b": 2, "c": 3})
    noises: list[tuple[Fraction, int]] = []
    choices: list[Fraction] = []
    draw, choose = hdmm.measure.measure.draw, hdmm.measure.measure.exponential_choice

    def noted(noise: hdmm.Noise, scale: Fraction, size: int) -> np.ndarray:
        noises.append((scale, size))
        return draw(noise, scale, size)

    def choosing(scores: Sequence[Fraction | int], scale: Fraction | int) -> int:
        choices.append(Fraction(scale))
        return choose(scores, scale)

    monkeypatch.setattr(hdmm.measure.measure, "draw", noted)
    monkeypatch.setattr(hdmm.measure.measure, "exponential_choice", choosing)
    data = from_array(domain, np.full(12, 100))
    privbayes(data, Workload.marginals(domain, k=1), PureDP(2), ledger=None, unit=Unit(rows=5))
    assert noises[0] == (5 / Fraction("0.1"), 1)  # ε/20 for the count
    assert choices[1:] == [2 * 2 * 5 / (Fraction("0.6") / 2)] * 2  # 3ε/10 over two choices
    assert [scale for scale, _ in noises[1:]] == [5 / (Fraction("1.3") / 3)] * 3  # the rest over three tables


class Unread(Data):
    """Data that must not be read."""

    def __init__(self, domain: Domain) -> None:
        self.domain, self.rows_bound, self.max_rows_per_id = domain, 2**20, None
        self.read = False

    def check(self) -> None:
        pass

    def _marginals(self, wanted: object) -> Iterator[np.ndarray]:
        self.read = True
        raise OSError("the disk is full of 17 people")


@pytest.mark.parametrize("mechanism", [dawa, privbayes])
def test_the_budget_is_debited_before_data_is_read(mechanism: Callable[..., Answers], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    data = Unread(line)
    with pytest.raises(DataError, match=r"Counting the data failed \(OSError\)") as caught:
        mechanism(data, prefix, PureDP("0.7"), ledger=ledger)
    assert "17" not in str(caught.value)
    assert data.read
    assert ledger.remaining == Fraction("0.3")
    refused = Unread(line)
    with pytest.raises(hdmm.BudgetError):
        mechanism(refused, prefix, PureDP("0.7"), ledger=ledger)
    assert not refused.read


class Broken(Unread):
    """Data that fails while it is counted, in words of our own."""

    def _marginals(self, wanted: object) -> Iterator[np.ndarray]:
        raise DataError("The database has gone away. Start it and run again.")


@pytest.mark.parametrize("mechanism", [dawa, privbayes])
def test_our_own_errors_in_counting_keep_their_words(mechanism: Callable[..., Answers]) -> None:
    with pytest.raises(DataError, match="The database has gone away"):
        mechanism(Broken(line), prefix, PureDP(1), ledger=None)


class Missing(Unread):
    """Data whose source is not there."""

    def check(self) -> None:
        raise DataError("There is no such file.")


@pytest.mark.parametrize("mechanism", [dawa, privbayes])
def test_a_missing_source_is_found_before_the_debit(mechanism: Callable[..., Answers], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    with pytest.raises(DataError, match="no such file"):
        mechanism(Missing(line), prefix, PureDP("0.7"), ledger=ledger)
    assert ledger.remaining == 1


@pytest.mark.parametrize(
    ("mechanism", "workload", "privacy", "named", "error"),
    [
        (dawa, Workload.marginals(Domain({"a": 2, "b": 2, "c": 2}), k=1), PureDP(1), {}, NotApplicableError),
        (dawa, Workload.marginals(Domain({"x": 2**15}), k=1), PureDP(1), {}, NotApplicableError),
        (dawa, prefix, ZCDP(1), {}, PrivacyError),
        (dawa, prefix, PureDP(1), {"share": 1}, PrivacyError),
        (dawa, prefix, PureDP(1), {"share": 0}, PrivacyError),
        (dawa, prefix, PureDP(1), {"second_stage": "hb"}, StrategyError),
        (dawa, prefix, PureDP(1), {"second_stage": "opt_0", "time_limit": math.nan}, StrategyError),
        (dawa, prefix, PureDP(1), {"second_stage": "opt_0", "time_limit": "30"}, StrategyError),
        (dawa, prefix, PureDP(Fraction(1, 2**60)), {}, NoiseError),
        (dawa, prefix, PureDP(Fraction(1, 2**44)), {"share": "1/1000"}, NoiseError),
        (dawa, prefix, PureDP(Fraction(1, 2**44)), {"share": "999/1000"}, NoiseError),
        (dawa, prefix, PureDP(2**48), {}, StrategyError),
        (dawa, 1e150 * prefix, PureDP(1), {}, StrategyError),
        (dawa, 1e300 * prefix, PureDP(1), {}, StrategyError),
        (dawa, Workload.product(line, x=hdmm.Vectors([[1e200, 0, 0, 0, 0, -1e200]])), PureDP(1), {}, StrategyError),
        (dawa, 2**28 * prefix, PureDP(2**100), {}, StrategyError),
        (privbayes, prefix, ZCDP(1), {}, PrivacyError),
        (privbayes, prefix, PureDP(1), {"count_share": "1/2", "network_share": "1/2"}, PrivacyError),
        (privbayes, prefix, PureDP(1), {"usefulness": 0}, StrategyError),
        (privbayes, prefix, PureDP(Fraction(1, 2**60)), {}, NoiseError),
        (privbayes, Workload.marginals(Domain({f"a{i}": 32 for i in range(6)}), k=6), PureDP(1), {}, StrategyError),
        (
            privbayes,
            Workload.product(Domain({"a": 2**9, "b": 2**9}), a=AllRange(), b=AllRange()),
            PureDP(1),
            {},
            StrategyError,
        ),
        (privbayes, Workload.marginals(Domain({"a": 2**40}), k=0), PureDP(1), {}, DataError),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_debit(
    mechanism: Callable[..., Answers],
    workload: Workload,
    privacy: object,
    named: dict[str, object],
    error: type[Exception],
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(2**101))
    data = Unread(workload.domain)
    with pytest.raises(error):
        mechanism(data, workload, privacy, ledger=ledger, **named)
    assert not data.read
    assert ledger.remaining == 2**101


EXTREMES = [
    ("2**-42", 1, Unit()),  # the largest noise: 2⁸·2/ε ≤ 2⁵² of the second stage
    ("2**-30", 2**38, Unit(rows=1000)),
    ("2**14", 2**38, Unit()),  # the least noise: rows·128·ε ≤ 2⁶⁰
    ("2**14", 2**38, Unit(rows=3, neighbours="replace")),
    ("2**44", 2**8, Unit()),
]


@pytest.mark.parametrize(("epsilon", "rows_bound", "unit"), EXTREMES)
@pytest.mark.parametrize("second_stage", ["greedy_h", "opt_0"])
@pytest.mark.parametrize(
    "workload",
    [
        1e48 * prefix,
        1e-200 * prefix,
        Workload.product(line, x=AllRange()),
        Workload.product(line, x=Total()),
        Workload.product(line, x=hdmm.Vectors([[0, 0, 0, 0, 0, 0]])),
        Workload.product(line, x=hdmm.Vectors([[1e-40, 0, 1e40, 0, -1e40, 0]])),
    ],
)
def test_dawa_goes_through_wherever_it_was_not_refused(
    epsilon: str, rows_bound: int, unit: Unit, second_stage: str, workload: Workload
) -> None:
    data = from_array(line, np.array([0, 0, 5, 200, 201, 1]), rows_bound=rows_bound)
    privacy = PureDP(Fraction(2) ** int(epsilon.removeprefix("2**")))
    for _ in range(3):  # buckets differ
        found = dawa(
            data, workload, privacy, ledger=None, share="1/2", second_stage=second_stage, unit=unit, time_limit=0
        )
        assert np.isfinite(found.values).all()


@given(st.integers(1, 40), st.data())
def test_a_rounded_tree_sums_to_what_dawa_counts_on(n: int, draw: st.DataObject) -> None:
    """Of any gram, GreedyH's tree and what OPT_0 finds in no time: columns of at most 2⁸, nothing below 0."""
    W = np.array(draw.draw(st.lists(st.lists(st.integers(-3, 1000), min_size=n, max_size=n), min_size=1, max_size=4)))
    V = Dense((W.T @ W).astype(float))
    for A in (greedy_tree(V), opt_0(V, first_search(0.0))):
        found, _ = rounded(A, 8)
        assert column_norms(found, 1).max() <= 2**8
        assert to_dense(found).min() >= 0


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


def test_privbayes_goes_through_with_many_attributes_and_rows() -> None:
    domain = Domain({f"a{i}": 1 + i % 2 for i in range(12)})
    data = from_array(Domain({"a": 2}), np.array([2**32, 2**31]))
    w = Workload.marginals(data.domain, k=1)
    assert privbayes(data, w, PureDP(1000), ledger=None).values.sum() == pytest.approx(3 * 2**31, rel=1e-3)
    small = from_array(domain, np.full(domain.shape, 1000))
    w = Workload.marginals(domain, k=1)
    assert np.isfinite(privbayes(small, w, PureDP(2**40), ledger=None).values).all()


def test_data_of_another_domain_is_refused() -> None:
    with pytest.raises(DataError, match="Build both on one Domain"):
        dawa(Unread(pair), prefix, PureDP(1), ledger=None)


def test_counts_too_large_for_the_costs_are_refused() -> None:
    w = Workload.product(Domain({"x": 2**13}), x=AllRange())
    data = Unread(w.domain)
    data.rows_bound = 2**38
    with pytest.raises(StrategyError, match="smaller rows_bound"):
        dawa(data, w, PureDP(1), ledger=None)
    assert not data.read


def spent_at_least(draws: Callable[[np.ndarray], list[tuple[int, ...]]], one: np.ndarray, two: np.ndarray) -> float:
    """A lower bound on ε at level 1 − 2e-6: the event that looks worst on half of the draws, on the other half."""

    def split_draws(x: np.ndarray) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int], int]:
        seen = draws(x)
        half = len(seen) // 2
        first, second = ({}, {})
        for into, part in ((first, seen[:half]), (second, seen[half:])):
            for event in part:
                into[event] = into.get(event, 0) + 1
        return first, second, len(seen) - half

    (a, more_a, n), (b, more_b, _) = split_draws(one), split_draws(two)
    bounds = [0.0]
    for (p, more_p), (q, more_q) in (((a, more_a), (b, more_b)), ((b, more_b), (a, more_a))):
        # The union of all events whose ratio is large is an event, and a likely one.
        for cut in (0.5, 0.8, 1.0):
            event = {e for e in p if p[e] > math.exp(cut) * (q.get(e, 0) + 1)}
            k, m = sum(more_p.get(e, 0) for e in event), sum(more_q.get(e, 0) for e in event)
            if k:
                low = beta.ppf(1e-6 / 6, k, n - k + 1)
                high = beta.ppf(1 - 1e-6 / 6, m + 1, n - m)
                bounds.append(math.log(low / high))
    return max(bounds)


def audited(mechanism: Mechanism, domain: Domain, trials: int) -> Callable[[np.ndarray], list[tuple[int, ...]]]:
    w = Workload.marginals(domain, k=len(domain))

    def draws(x: np.ndarray) -> list[tuple[int, ...]]:
        data = from_array(domain, x)
        return [tuple(np.rint(2 * mechanism(data, w, PureDP(1)).values).astype(int)) for _ in range(trials)]

    return draws


AUDITS = [
    (run_dawa, Domain({"x": 2}), np.array([0, 0]), np.array([1, 0])),
    (run_dawa, Domain({"x": 2}), np.array([3, 0]), np.array([4, 0])),
    (run_privbayes, Domain({"a": 2}), np.array([0, 0]), np.array([1, 0])),
    (run_privbayes, Domain({"a": 2, "b": 2}), np.array([2, 0, 0, 2]), np.array([2, 0, 0, 3])),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "domain", "one", "two"), AUDITS)
def test_no_audit_shows_more_than_epsilon(
    mechanism: Mechanism, domain: Domain, one: np.ndarray, two: np.ndarray
) -> None:
    assert spent_at_least(audited(mechanism, domain, 8000), one, two) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [run_dawa, run_privbayes])
def test_the_audit_catches_noise_that_is_too_small(monkeypatch: pytest.MonkeyPatch, mechanism: Mechanism) -> None:
    """A third of the noise, in every stage."""
    scale, measure = hdmm.measure.measure.Stages.scale, hdmm.measure.measure.measure
    monkeypatch.setattr(hdmm.measure.measure.Stages, "scale", lambda self, stage: scale(self, stage) / 3)

    def generous(*given: object, **named: object) -> object:
        return measure(given[0], given[1], PureDP(3 * given[2].epsilon), **named)  # type: ignore[attr-defined,arg-type]

    monkeypatch.setattr(sys.modules["hdmm.baselines.dawa"], "measure", generous)
    draws = audited(mechanism, Domain({"x": 2}), 8000)
    assert spent_at_least(draws, np.array([0, 0]), np.array([1, 0])) > 1


def test_as_many_answers_as_8_gib_hold() -> None:
    """I4: 2³⁰ answers are not refused, and more are, before the debit."""
    data = Unread(Domain({"a": 2**15, "b": 2**15}))
    stages.refuse_workload(Workload.marginals(data.domain, k=2), data)
    with pytest.raises(StrategyError, match="1,073,741,825 answers would fill 9 GB"):
        stages.refuse_workload(Workload.marginals(data.domain, k=[0, 2]), data)


def test_what_can_be_read_once_is_refused_where_it_is_counted_in_stages(tmp_path: Path) -> None:
    """I8: before the debit, and whether or not rows have ids."""
    domain = Domain({"a": ["x", "y"], "b": ["u", "v"]})
    table = pa.table({"a": ["x", "y"], "b": ["u", "v"], "id": ["p", "q"]})
    w = Workload.marginals(domain, k=1)
    for more in ({}, {"id": "id", "max_rows_per_id": 1}):
        ledger = hdmm.Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(9))
        with pytest.raises(hdmm.DataError, match="counts it several times"):
            privbayes(hdmm.from_table(domain, table.to_reader(), **more), w, PureDP(1), ledger=ledger)
        assert ledger.remaining == 9
