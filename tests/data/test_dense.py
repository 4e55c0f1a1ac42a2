"""Histograms as data: sums over axes, what is clipped, and what is refused."""

# Wrong arguments are the subject of some tests.
# pyright: reportArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import Amount, DataError, Domain, DomainError, from_array, from_chunks, from_table
from hdmm.data import ChunkedCounts
from hdmm.data import arrays as dense
from hdmm.data.counts import DEFAULT_ROWS_BOUND, LARGEST_ROWS_BOUND


def plain(sizes: list[int]) -> Domain:
    return Domain({f"a{i}": n for i, n in enumerate(sizes)})


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.randoms(use_true_random=False), st.integers(1, 40))
def test_marginals_are_sums_in_the_order_asked_for(sizes: list[int], random: Random, at_once: int) -> None:
    domain = plain(sizes)
    x = np.array([random.randint(0, 9) for _ in range(domain.size)]).reshape(domain.shape)
    wanted = [random.sample(domain.names, random.randint(0, len(domain))) for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "_CELLS_AT_ONCE", at_once)  # several slabs
        for given_x in (x, x.reshape(-1)):
            for names, found in zip(wanted, from_array(domain, given_x).marginals(wanted), strict=True):
                axes = [domain.axis(name) for name in names]
                rest = tuple(set(range(len(domain))) - set(axes))
                kept = x.sum(axis=rest)
                np.testing.assert_array_equal(found, kept.transpose([sorted(axes).index(a) for a in axes]))
                assert found.dtype == np.int64
                assert found.shape == tuple(domain[name].size for name in names)


@pytest.mark.parametrize("dtype", ["i1", "i8", "u1", "u8", ">i4"])
def test_any_integers_and_extreme_counts(dtype: str) -> None:
    """S2: nothing wraps; negative counts are 0 and large ones the bound, by public rule."""
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.max, 3, limits.min], dtype)
    data = from_array(Domain({"a": 2, "b": 2}), x)
    most = min(int(limits.max), DEFAULT_ROWS_BOUND)
    assert data.marginal(["a", "b"]).tolist() == [[most, most], [3, 0]]
    assert data.marginal(["a"]).tolist() == [min(2 * most, DEFAULT_ROWS_BOUND), 3]
    assert data.rows_bound == DEFAULT_ROWS_BOUND
    assert data.max_rows_per_id is None


def test_a_declared_bound_clips_every_cell_of_every_marginal() -> None:
    data = from_array(Domain({"a": 2, "b": 2}), [[5, 20], [6, 6]], rows_bound=10)
    assert data.rows_bound == 10
    assert data.marginal(["a", "b"]).tolist() == [[5, 10], [6, 6]]
    assert data.marginal(["a"]).tolist() == [10, 10]
    assert data.marginal([]).tolist() == 10


@pytest.mark.parametrize("bound", [0, -1, 2.0, True, "3", 2**38 + 1])
def test_bounds_that_are_none(bound: object) -> None:
    with pytest.raises(DataError, match="bound on rows"):
        from_array(Domain({"a": 1}), [1], rows_bound=bound)


def test_memory_mapped_arrays_are_read_where_they_are(tmp_path: Path) -> None:
    domain = plain([3, 4, 5])
    np.save(tmp_path / "x.npy", np.arange(60).reshape(domain.shape))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert from_array(domain, x).marginal(["a1"]).tolist() == x.sum(axis=(0, 2)).tolist()


@pytest.mark.parametrize("x", [[1.0, 2.0], [True, False], ["1", "2"], [None, 1], np.ma.MaskedArray([1, 2])], ids=str)
def test_only_integers_are_counts(x: object) -> None:
    with pytest.raises(DataError, match=r"counts are integers.*astype\(np.int64\)"):
        from_array(Domain({"a": 2}), x)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (6, 1), (1, 6), (2, 3, 1)])
def test_shapes_are_checked_when_data_are_declared(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"The array has the shape .* length 6"):
        from_array(Domain({"a": 3, "b": 2}), np.zeros(shape, int))


def test_names_are_checked_before_data_are_read() -> None:
    data = from_array(Domain({"age": 3, "b": 2}), np.zeros(6, int))
    data.check()
    for names, message in ((["agee"], "Did you mean 'age'"), ("age", r"\['age'\]"), (["b", "b"], "twice")):
        with pytest.raises(DomainError, match=message):
            data.marginals([["b"], names])


def test_a_histogram_shows_neither_counts_nor_marks() -> None:
    shown = repr(from_array(Domain({"a": 2}), [123456789, 5]))
    assert shown.startswith("Histogram(domain=")
    assert not any(word in shown for word in ("123456789", "_x", "rows_of"))


def test_no_sum_of_counts_wraps_however_many_slabs_it_takes() -> None:
    """S2: 2²⁶ cells of 2³⁸ rows are 2⁶⁴ together."""
    counts = np.broadcast_to(np.int64(2**38), (2**13, 2**13))
    data = from_array(Domain({"a": 2**13, "b": 2**13}), counts, rows_bound=2**38)
    assert data.marginal([]).tolist() == 2**38
    assert (data.marginal(["b"]) == 2**38).all()


def test_parts_of_rows_are_counted_in_64_bits() -> None:
    """S2: as many parts as rows may have, on as many rows as may be declared; more parts than that are refused."""
    amounts = {"a": Amount(0, 2**25), "b": Amount(0, 1, step=0.5), "c": Amount(0, 1)}
    table = pa.table({"a": [2**25, 1, None], "b": [1, 0, 0], "c": [0, 1, 1]})
    data = from_table(Domain({}, amounts=amounts), table, rows_bound=LARGEST_ROWS_BOUND)
    assert data.marginal(["a"]).tolist() == [2**25 - 1, 2**25 + 1, 2**25]
    assert data.marginal(["a", "c"]).tolist() == [[0, 2**25 - 1, 0], [2**25, 1, 0], [0, 2**25, 0]]
    for refused in (data.check_marginals, data.marginals):
        with pytest.raises(DataError, match="into 67,108,864 parts; at most 33,554,432"):
            refused([["b"], ["a", "b"]])


@pytest.mark.parametrize("attributes", [64, 65])
def test_as_many_attributes_as_arrays_have_axes(attributes: int) -> None:
    names = [f"a{i}" for i in range(attributes)]
    data = from_table(Domain(dict.fromkeys(names, 1)), pa.table({name: [0, 0] for name in names}))
    if attributes > 64:
        with pytest.raises(DataError, match="64 attributes"):
            data.marginal(names)
    else:
        assert data.marginal(names).reshape(-1).tolist() == [2]


def test_how_many_rows_of_a_person_count_is_shown() -> None:
    table = pa.table({"a": [0], "who": [7]})
    cards = [
        from_table(Domain({"a": 2}), table, **given)._card() for given in ({}, {"id": "who", "max_rows_per_id": 3})
    ]
    assert [card.facts["Rows per person"] for card in cards] == ["one", "at most 3 are counted"]


def test_what_a_function_of_counts_says_when_it_fails_is_withheld() -> None:
    """O3: it may be about the counts."""

    def counts(start: int, stop: int) -> np.ndarray:
        raise ValueError(f"canary 73 between {start} and {stop}")

    data = from_chunks(Domain({"a": 4}), counts)
    assert isinstance(data, ChunkedCounts)
    assert "counts" not in repr(data)
    with pytest.raises(DataError, match="could not be read to the end") as error:
        data.between(0, 4)
    assert "73" not in str(error.value)
    assert error.value.__suppress_context__
