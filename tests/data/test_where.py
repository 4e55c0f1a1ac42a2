"""Filters: which rows are counted, by columns of the source; the same on every source, and before ids are bounded."""

# What pandas and ibis return is known to them alone; wrong arguments are the subject of some tests.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hdmm
from hdmm import Bins, DataError, Domain, HdmmError, Labels, PureDP, SpecError, Workload, WorkloadError, from_table
from hdmm.apps.cli import run
from hdmm.data.inspect import inspect_rows
from hdmm.data.where import filter_facts
from hdmm.privacy.rows_of import RowsOf
from hdmm.publication.preflight import _of_these_rows, purpose_of
from hdmm.publication.publish import rewrite_report
from hdmm.sql.row_filter import row_filter
from tests.data.hostile import TEXTS
from tests.data.test_sources import SOURCES, duckdb_file
from tests.data.test_sources import pytestmark as of_engines
from tests.support.spec_cases import planned

pytestmark = of_engines

DOMAIN = Domain({"sex": ["M", "F"], "age": 10})


def people(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "sex": rng.choice(["M", "F", "x"], rows),
            "age": rng.integers(0, 12, rows),
            "month": rng.choice(["2026-01", "2026-02"], rows),
            "pay": rng.normal(50, 20, rows).round(2),
            "who": rng.integers(0, 40, rows),
        }
    )


def counted(table: pd.DataFrame) -> np.ndarray:
    inside = table[table.sex.isin(["M", "F"]) & (table.age < 10)]
    return DOMAIN.count({"sex": inside.sex.tolist(), "age": inside.age.tolist()})


CONDITIONS = {
    "month = '2026-01'": lambda t: t.month == "2026-01",
    "month IN ('2026-02', '2026-03') AND pay BETWEEN 40 AND 60.5": lambda t: (
        (t.month == "2026-02") & t.pay.between(40, 60.5)
    ),
    "pay > 50": lambda t: t.pay > 50,
    "30 <= pay AND pay < 50 AND age <= 4": lambda t: (t.pay >= 30) & (t.pay < 50) & (t.age <= 4),
    "who = 7": lambda t: t.who == 7,
}


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("source", ["pandas", "CSV", "duckdb", "sqlite"])
def test_every_source_counts_the_same_rows(source: str, text: str, tmp_path: Path) -> None:
    table = people()
    expected = counted(table[CONDITIONS[text](table)])
    data = from_table(DOMAIN, _source(source, table, tmp_path), **_options(source), where=row_filter(text))
    assert data.domain == DOMAIN
    both, sex, total = data.marginals([["sex", "age"], ["sex"], []])
    np.testing.assert_array_equal(both, expected)
    np.testing.assert_array_equal(sex, expected.sum(axis=1))
    assert total == expected.sum()


@pytest.mark.parametrize("source", ["pandas", "CSV", "duckdb", "sqlite"])
def test_rows_that_are_left_out_take_no_place_of_a_person(source: str, tmp_path: Path) -> None:
    table = people()
    kept = table[(table.month == "2026-01") & table.sex.isin(["M", "F"]) & (table.age < 10)]
    data = from_table(
        DOMAIN,
        _source(source, table, tmp_path),
        **_options(source),
        where={"month": "2026-01"},
        id="who",
        max_rows_per_id=2,
    )
    both, sex = data.marginals([["sex", "age"], ["sex"]])
    assert both.sum() == sex.sum() == kept.groupby("who").size().clip(upper=2).sum()


def _source(name: str, table: pd.DataFrame, folder: Path) -> Any:
    if name == "CSV":
        table.to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"
    if name == "duckdb":
        return duckdb_file(table, folder)
    return {"pandas": table, "sqlite": SOURCES["ibis, sqlite"](table, folder) if name == "sqlite" else None}[name]


def _options(source: str) -> dict[str, Any]:
    return {"table": "people"} if source == "duckdb" else {"declared_types": True} if source == "pandas" else {}


def test_days_are_dates_or_texts(tmp_path: Path) -> None:
    days = [date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1), None]
    domain = Domain({"a": 2})
    where = row_filter("day BETWEEN '2026-01-31' AND '2026-02-28'")
    dates = pa.table({"a": [1, 1, 0, 1], "day": pa.array(days, pa.date32())})
    texts = pa.table({"a": [1, 1, 0, 1], "day": [None if d is None else d.isoformat() for d in days]})
    for k, table in enumerate((dates, texts)):
        pq.write_table(table, tmp_path / f"{k}.parquet")
        assert from_table(domain, tmp_path / f"{k}.parquet", where=where).marginal(["a"]).tolist() == [1, 1]
    times = pa.table({"a": [1], "day": [datetime(2026, 1, 31)]})
    with pytest.raises(DataError, match=r"of timestamps\. Filter by a column of dates"):
        from_table(domain, times, where=where, declared_types=True)
    with pytest.raises(DataError, match=r"Column 'day' holds dates\. Filter it by days such as"):
        from_table(domain, dates, where={"day": "January"}, declared_types=True)


def test_no_value_in_a_filtered_column_decides_more_than_its_own_row(capfd: Any) -> None:
    table = pa.table({"a": [1] * (len(TEXTS) + 1), "x": ["in", *TEXTS]})
    for source in (table, ibis.memtable(table)):
        data = from_table(Domain({"a": 2}), source, where={"x": "in"}, declared_types=True)
        assert data.marginal(["a"]).tolist() == [0, 1]
        found = from_table(Domain({"a": 2}), source, where=row_filter("x > 5"), declared_types=True).marginal(["a"])
        assert found.tolist() == [0, 0]  # all of these are too long, infinite or no numbers
    assert capfd.readouterr() == ("", "")


BAD = {
    "a = 1 OR b = 2": "not supported. Supported: = IN",
    "a <> 1": "not supported",
    "NOT a = 1": "not supported",
    "a IS NULL": "not supported",
    "a": "not supported",
    "a = b": "A literal is expected",
    "a = NULL": "A comparison with NULL is never true",
    "FLOOR(a) = 1": "A column is expected",
    "a = 1 AND a = 2": "Write one condition on a",
    "a > 1 AND a > 2": "one lower and one upper end",
    "a > 5 AND a < 2": "No number is in the interval",
    "a > 5 AND a < '2026-01-01'": "Use one of them",
    "a > 'x'": "Intervals are of numbers, or of days",
    "a > '2026-01-01'": "Give the first and the last day",
    "a BETWEEN '2026-02-01' AND '2026-01-01'": "There are -30 days",
    "a BETWEEN '1026-02-01' AND '2026-01-01'": "1 to 1,000 may be",
    "a = 1 GROUP BY b": "Write one condition",
    "a = 1; SELECT 1": "Write one condition",
    "a = 'x": "never closed",
    "a = 1 UNION SELECT 2": "condition",
    "": "condition",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_filter_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(HdmmError, match=BAD[text]) as wrong:
        row_filter(text)
    assert isinstance(wrong.value, WorkloadError)
    if text:
        with pytest.raises(SpecError, match="where"):
            _spec(tmp_path, text)


def test_a_filter_by_declared_values() -> None:
    table = pa.table({"a": [0, 1, 1], "x": ["u", "v", "w"], "n": [1, 2, 3]})
    for where, expected in (
        ({"x": ["u", "w"]}, [1, 1]),
        ({"x": Labels(["v"])}, [0, 1]),
        ({"n": 2}, [0, 1]),
        ({"n": Bins([2, 9]), "x": "w"}, [0, 1]),
        ({}, [1, 2]),
    ):
        assert (
            from_table(Domain({"a": 2}), table, where=where, declared_types=True).marginal(["a"]).tolist() == expected
        )
    with pytest.raises(DataError, match="counts other values, too"):
        from_table(Domain({"a": 2}), table, where={"x": Labels(["v"], outside="other")}, declared_types=True)
    with pytest.raises(DataError, match="Column 'y' is not in the data"):
        from_table(Domain({"a": 2}), table, where={"y": 1}, declared_types=True)


def test_rows_of_other_filters_are_other_rows() -> None:
    one, two = (RowsOf.of("p", filter_facts({"month": month})) for month in ("2026-01", "2026-02"))
    assert one.differences(one) == []
    assert one.differences(two) == ["their columns or filter"]
    assert RowsOf.of("p", {}).differences(one) == ["their columns or filter"]


SPEC = """
title = "People"
[data]
source = "people.csv"
dataset = "people"
where = "%s"
[domain]
sex = ["M", "F"]
age = 10
[[table]]
name = "ages"
marginals = 2
[privacy]
epsilon = "1"
[ledger]
path = "budget.db"
cap = { epsilon = "4" }
"""


def _spec(folder: Path, text: str) -> hdmm.Spec:
    (folder / "people.toml").write_text(SPEC % text)
    return hdmm.load_spec(folder / "people.toml", variables={"MONTH": "2026-02"} if "${" in text else None)


def test_a_publication_says_which_rows_it_counts(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    spec = _spec(tmp_path, "month = '${MONTH}' AND pay > 30")
    assert "from people.csv where month = '2026-02' AND pay > 30" in purpose_of(spec, None)
    published = hdmm.publish(spec, planned(spec))
    said = "Only rows are counted for which this holds: month = '2026-02' AND pay > 30."
    facts = json.loads((published.folder / "metadata.json").read_text())
    assert said in facts["rows"]["meaning"]
    assert said.replace("'", "&#39;").replace(">", "&gt;") in (published.folder / "report.html").read_text()


def test_releases_of_two_months_are_not_combined() -> None:
    domain = Domain({"sex": ["M", "F"]})
    plan = hdmm.optimize(Workload.marginals(domain, 1), restarts=1)
    table = people()
    releases = [
        plan.measure(from_table(domain, table, where={"month": m}, declared_types=True), PureDP(1), ledger=None)
        for m in ("2026-01", "2026-02")
    ]
    with pytest.raises(HdmmError, match="their columns or filter"):
        hdmm.combine(releases)


def test_a_look_at_the_data_tells_rows_that_the_filter_leaves_out() -> None:
    table = pa.table({"a": [0, 1, 5], "x": ["u", "v", "u"]})
    found = inspect_rows(from_table(Domain({"a": 2}), table, where={"x": "u"}, declared_types=True))
    assert found.counted == 1
    assert [(each.attribute, each.outside) for each in found.attributes] == [("a", 1), ("where x", 1)]


@pytest.mark.parametrize("changed", ["the filter", "a variable"])
def test_a_release_of_other_rows_is_not_published(changed: str, tmp_path: Path) -> None:
    """What a report or --resume says of the rows is what was measured, though the specification changed since."""
    people().to_csv(tmp_path / "people.csv", index=False)
    path = tmp_path / "people.toml"
    path.write_text((SPEC % "month = '2026-01'").replace('"People"', '"People in ${MONTH}"'))
    spec = hdmm.load_spec(path, variables={"MONTH": "January"})
    hdmm.publish(spec, planned(spec))
    rewrite_report(spec)
    if changed == "the filter":
        path.write_text(path.read_text().replace("2026-01", "2026-02"))
    other = hdmm.load_spec(path, variables={"MONTH": "January" if changed == "the filter" else "February"})
    with pytest.raises(hdmm.FileError, match="was released of other rows than"):
        rewrite_report(other)


def test_a_combination_is_of_these_rows_only_if_all_its_parts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    text = SPEC % "month = '2026-01'"
    for name, written in (("one", text), ("two", text.replace("2026-01", "2026-02"))):
        Path(f"{name}.toml").write_text(written)
        assert run(["release", f"{name}.toml", "--output", name, "--yes", "--quiet"]) == 0
    one, two = (hdmm.load_release(Path(name) / "release") for name in ("one", "two"))
    spec = hdmm.load_spec("one.toml")
    assert _of_these_rows(spec, one)
    assert not _of_these_rows(spec, hdmm.combine([one, two], same_rows=True))


def test_what_is_wrong_with_a_filter_is_said_of_the_filter() -> None:
    rows = pa.table({"sex": ["M"], "age": [1]})
    with pytest.raises(DataError, match=r"Column 'year' is not in the data.*The filter \(where\) names it"):
        from_table(DOMAIN, rows, where={"year": 2026}, declared_types=True)
    with pytest.raises(DataError, match=r"Give values by column, such as \{'month': '2026-01'\}"):
        from_table(DOMAIN, rows, where="sex = 'M'", declared_types=True)
