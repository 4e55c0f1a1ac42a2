"""Rows of more cells than fit in memory: the counts of `marginal`, held for the cells that have rows alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import DataError, Domain, Integers, Ledger, PureDP, Workload, from_table, optimize
from hdmm.data.counting import SparseCounts
from hdmm.data.records import TableData
from tests.data.test_sources import pytestmark  # noqa: F401 (read by pytest)
from tests.engines.test_engines import here
from tests.support.chance import near

DOMAIN = Domain({"sex": ["M", "F"], "age": Integers(0, 99, outside="drop"), "place": 7})
ROWS = 5000


def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "sex": rng.choice(["M", "F", "?"], ROWS),
            "age": rng.integers(-5, 120, ROWS),
            "place": rng.integers(0, 7, ROWS),
            "who": rng.integers(0, 900, ROWS),
        }
    )


def source(kind: str, folder: Path) -> Any:
    if kind == "file":
        pq.write_table(rows(), folder / "rows.parquet", row_group_size=700)
        return folder / "rows.parquet"
    if kind == "database":
        return pytest.importorskip("ibis").memtable(rows())
    return rows() if kind == "table" else rows().to_reader(500)


@pytest.mark.parametrize("kind", ["table", "file", "reader", "database"])
@pytest.mark.parametrize("owned", [{}, {"id": "who", "max_rows_per_id": 2}])
def test_sparse_counts_are_those_of_the_marginal(tmp_path: Path, kind: str, owned: dict[str, Any]) -> None:
    names, key = ("place", "sex", "age"), bytes(32)

    def data() -> TableData:
        found = from_table(DOMAIN, source(kind, tmp_path), rows_bound=6, declared_types=kind == "reader", **owned)
        assert isinstance(found, TableData)
        return replace(found, _key=key)  # which decides the rows of a person that are kept

    found, expected = data().sparse(names), data().marginal(names).reshape(-1)
    assert len(found.cells) == np.count_nonzero(expected)
    for start, stop in ((0, DOMAIN.size), (0, 0), (3, 800), (800, 1400)):
        assert np.array_equal(found.between(start, stop), expected[start:stop])
    assert expected.max() == 6 or owned  # larger counts are clipped


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=12), max_size=9))
def test_parts_add_up(parts: list[list[tuple[int, int]]]) -> None:
    expected = np.zeros(31, dtype=np.int64)
    for cell, rows in (pair for part in parts for pair in part):
        expected[cell] += rows
    arrays = [tuple(np.array([pair[k] for pair in part], dtype=np.int64) for k in (0, 1)) for part in parts]
    found = SparseCounts.of(arrays, 2**33)  # type: ignore[arg-type]
    assert np.array_equal(found.between(0, 31), expected)
    assert len(found.cells) == np.count_nonzero(expected)


def test_rows_of_too_many_cells_are_released_by_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many cells, the marginal is refused before the debit; the rows are counted in memory for themselves."""
    plan = optimize(Workload.marginals(DOMAIN, k=3), restarts=1, progress=False)
    data = from_table(DOMAIN, rows())
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1000))
    monkeypatch.setattr("hdmm.data.counts.MOST_MARGINAL_CELLS", 100)
    with pytest.raises(DataError, match="the limits on this machine are"):
        plan.measure(data, PureDP(100), ledger=ledger, engine=here(tmp_path / "dense", chunk_bytes=2**12))
    assert ledger.remaining == 1000
    monkeypatch.setattr("hdmm.measure.measure._MOST_DENSE", 100)
    release = plan.measure(data, PureDP(100), ledger=ledger, engine=here(tmp_path, chunk_bytes=2**12))
    monkeypatch.undo()
    answers = release.answer(plan.workload)
    assert near(answers, data.marginal(DOMAIN.names).reshape(-1))
    domain = Domain({"person": 30_000, "place": 30_000})
    few = pa.table({"person": [3, 29_999], "place": [5, 29_999]})
    found = from_table(domain, few).sparse(domain.names)  # type: ignore[attr-defined]
    assert found.cells.tolist() == [3 * 30_000 + 5, 30_000**2 - 1]
