"""Marginals of coded rows against a plain count, on awkward shapes and numbers of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from hdmm import DataError, Domain, from_table
from hdmm.data import counting
from hdmm.data.counting import Cover, count, counting_order, covered, groupings

SHAPES = [
    (3,),
    (1, 1, 1),
    (1, 256),
    (256, 1),
    (1, 65536, 1),
    (2, 1, 257, 3),
    (16, 16, 256),
    (5, 4, 3, 2, 6),
    (10,) * 7,
    (2,) * 18,
]


def rows_of(shape: Sequence[int], rows: int) -> list[np.ndarray]:
    """Codes of random rows, among them the last cell and, in half of them, one and the same cell."""
    rng = np.random.default_rng(rows)
    columns = [rng.integers(0, n, rows) for n in shape]
    for column, n in zip(columns, shape, strict=True):
        column[: rows // 2] = n - 1
    return columns


def plain(shape: Sequence[int], columns: Sequence[np.ndarray], axes: Sequence[int]) -> np.ndarray:
    counts = np.zeros([shape[i] for i in axes], dtype=np.int64)
    for row in zip(*(columns[i].tolist() for i in axes), strict=True) if axes else [()] * len(columns[0]):
        counts[row] += 1
    return counts


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_marginals_are_plain_counts(shape: tuple[int, ...], rows: int) -> None:
    """In the order in which they are measured, with marginals asked for twice, and in any order of attributes."""
    domain, columns = Domain({f"a{i}": n for i, n in enumerate(shape)}), rows_of(shape, rows)
    data = from_table(domain, pa.table(dict(zip(domain.names, columns, strict=True))))
    axes = [b for k in range(4) for b in itertools.combinations(range(len(shape)), k)][:80]
    axes += [axes[-1], axes[-1][::-1], axes[0]]
    order = counting_order(domain, axes)
    assert sorted(order) == list(range(len(axes)))
    wanted = [[domain.names[i] for i in axes[j]] for j in order]
    for j, found in zip(order, data.marginals(wanted), strict=True):
        np.testing.assert_array_equal(found, plain(shape, columns, axes[j]))
        assert found.dtype == np.int64


def test_neighbours_share_a_count_of_few_cells() -> None:
    domain = Domain({"a": 10, "b": 10, "c": 2**16})
    assert covered(domain, [(0,), (1,), (2,), (0, 2), (0,)]) == [
        Cover((0, 1), ((0,), (1,))),
        Cover((2,), ((2,),)),
        Cover((0, 2), ((0, 2), (0,))),
    ]


def test_a_database_groups_by_few_attributes_at_once() -> None:
    """Large marginals come first, so that small ones are sums of theirs; others share a grouping of few cells."""
    assert groupings(Domain({"a": 1000, "b": 500, "c": 2000}), [(0,), (0, 2), (1,)]) == [(0, 2), (1,)]
    assert groupings(Domain({"a": 1000, "b": 500, "c": 2000}), [(0,), (1,), (1,)]) == [(0, 1)]
    assert groupings(Domain({"a": 10, "b": 400, "c": 1000, "d": 100}), [(0,), (0, 2), (1, 3)]) == [(1, 3), (0, 2)]
    many = Domain({f"a{i}": 2**11 for i in range(17)})
    assert sorted(groupings(many, [(i,) for i in range(16)])) == [(i,) for i in range(16)]
    assert groupings(many, [(i,) for i in range(17)]) == [tuple(range(17))]


@pytest.mark.parametrize("few", [8, 0])
def test_marginals_of_a_cover_are_its_sums(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the cover is small, which one routine sums, or large, which another does."""
    monkeypatch.setattr(counting, "_FEW_AXES", few)
    columns = rows_of((3, 2, 4), 200)
    wanted = [b for k in range(4) for b in itertools.combinations((1, 4, 7), k)]
    cover = Cover((1, 4, 7), tuple(wanted))
    for axes, found in zip(wanted, cover.marginals(plain((3, 2, 4), columns, (0, 1, 2))), strict=True):
        np.testing.assert_array_equal(found, plain((3, 2, 4), columns, [(1, 4, 7).index(axis) for axis in axes]))


@pytest.mark.parametrize(("size", "kind"), [(1, "u1"), (256, "u1"), (257, "u2"), (65536, "u2"), (65537, "u4")])
def test_codes_take_as_few_bytes_as_hold_them(size: int, kind: str) -> None:
    assert counting.smallest_type(size) == np.dtype(kind)


@pytest.mark.parametrize("kept", [counting._KEPT_BYTES, 0])  # pyright: ignore[reportPrivateUsage]
def test_slabs_of_any_size_add_up(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Rows that come in slabs of different sizes, with codes kept for the next count or read again."""
    monkeypatch.setattr(counting, "_KEPT_BYTES", kept)
    monkeypatch.setattr(counting, "_CELLS_PER_PASS", 1)
    shape = (4, 300, 2)
    domain, columns = Domain({"a": 4, "b": 300, "c": 2}), rows_of(shape, 500)
    cuts = [0, 1, 1, 200, 201, 500]
    types = [np.uint8, np.uint16, np.uint8]
    slabs = [
        {i: column[start:stop].astype(kind) for i, (column, kind) in enumerate(zip(columns, types, strict=True))}
        for start, stop in itertools.pairwise(cuts)
    ]
    wanted = [(0, 1, 2), (0, 2), (0, 1), (1, 2), (), (0, 1, 2)]
    asked: list[int] = []
    counts = count(domain, [Cover(b, (b,)) for b in wanted], lambda: asked.append(1) or slabs)
    for axes, found in zip(wanted, counts, strict=True):
        np.testing.assert_array_equal(found, plain(shape, columns, axes))
    assert len(asked) == (1 if kept else len(wanted))


@pytest.mark.parametrize("codes", [np.array([0, 3], np.uint8), np.array([0, -1], np.int8)], ids=str)
def test_a_code_beyond_its_attribute_is_refused(codes: np.ndarray) -> None:
    """Instead of a count in memory that is not the total's."""
    slab = {0: codes}
    with pytest.raises(DataError, match="fault in hdmm"):
        list(count(Domain({"a": 3}), [Cover((0,), ((0,),))], lambda: [slab]))


def test_rows_of_cells_that_come_several_times_add_up_exactly() -> None:
    """Beyond the integers that floats distinguish; and of no cells there are none."""
    parts = [(np.array([5, 1]), np.array([2, 2**60])), (np.array([1]), np.array([1]))]
    cells, rows = counting._summed(parts)
    assert (cells.tolist(), rows.tolist()) == ([1, 5], [2**60 + 1, 2])
    for found in (cells, rows, *counting._summed([])):
        assert found.dtype == np.int64
