"""The keeper of the data can examine it before spending, and nobody can mistake what they see for private."""

# What ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import Bins, DataError, Domain, Integers, Labels, from_array, from_table
from hdmm.apps.cli import run
from hdmm.data.inspect import AttributeReport, inspect_rows
from hdmm.data.sources.frames import ArrowTable
from hdmm.data.sources.source import Batch
from hdmm.data.sources.table_files import CsvFiles
from tests.data.test_sources import pytestmark  # noqa: F401 (read by pytest)
from tests.house.test_layering import imports, modules
from tests.support.spec_cases import smallest, write_spec

Captured = pytest.CaptureFixture[str]
DOMAIN = Domain(
    {
        "sex": ["m", "f"],
        "age": Integers(0, 99, outside="other"),
        "income": Bins([0, 10]),
        "region": Labels(["nord", "süd"], outside="other"),
    }
)
TABLE = pa.table(
    {
        "sex": ["M", "F", "f", " f", None],
        "age": [1, 100, None, -1, 5],
        "income": [1.0, 10.0, float("nan"), 0.0, 2.0],
        "region": ["nord", "nord", "ost", None, "nord"],
    }
)
SPEC = smallest('source = "people.csv"', 'sex = ["m", "f"]\nregion = ["nord", "süd"]')


@pytest.mark.parametrize("kind", ["arrow", "pandas", "ibis"])
def test_what_each_attribute_misses(kind: str) -> None:
    sources: dict[str, Any] = {"arrow": TABLE, "pandas": TABLE.to_pandas(), "ibis": ibis.memtable(TABLE)}
    found = inspect_rows(from_table(DOMAIN, sources[kind]))
    assert found.attributes == (
        AttributeReport("sex", "sex", "drop", 4, 1, ("m",), (("m", "M"),)),
        AttributeReport("age", "age", "other", 3, 1, (), ()),
        AttributeReport("income", "income", "drop", 2, 1, (), ()),
        AttributeReport("region", "region", "other", 2, 1, ("süd",), ()),
    )
    assert (found.rows, found.dropped, found.without_id, found.beyond, found.counted) == (5, 5, 0, 0, 0)


def test_merged_attributes_and_columns_of_other_names() -> None:
    domain = Domain({"a": 2, "b": Labels(["x", "y"], outside="other")}).merge(["a", "b"], name="c")
    table = pa.table({"A": [0, 1, 2], "b": ["x", "z", "x"]})
    found = inspect_rows(from_table(domain, table, columns={"a": "A"}))
    assert found.attributes == (
        AttributeReport("a", "A", "drop", 1, 0, (), ()),
        AttributeReport("b", "b", "other", 1, 0, ("y",), ()),
    )
    assert found.counted == int(from_table(domain, table, columns={"a": "A"}).marginal([])) == 2


def test_ids_that_are_missing_and_rows_beyond_a_share() -> None:
    table = pa.table({"a": [0, 1, 1, 1, 9, 0, 0], "who": ["u", "u", "u", "v", "v", None, "w"]})
    data = from_table(Domain({"a": 2}), table, id="who", max_rows_per_id=1, rows_bound=1)
    found = inspect_rows(data)
    assert (found.rows, found.dropped, found.without_id, found.beyond, found.counted) == (7, 1, 1, 2, 3)


def test_what_pandas_takes_for_missing() -> None:
    odd = pd.DataFrame({"a": pd.array(["x", pd.NA, None, "y", "X "], dtype="string")})
    found = inspect_rows(from_table(Domain({"a": ["x", "X"]}), odd))
    assert found.attributes == (AttributeReport("a", "a", "drop", 4, 2, ("X",), (("X", "X "),)),)


def test_only_tables_are_looked_at_and_engines_are_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="one row per record"):
        inspect_rows(from_array(Domain({"a": 2}), [1, 2]))

    def fails(_: object, __: object) -> Batch:
        raise ValueError("canary")

    monkeypatch.setattr(ArrowTable, "batches", fails)
    with pytest.raises(DataError, match=r"could not be read to the end") as error:
        inspect_rows(from_table(DOMAIN, TABLE))
    assert "canary" not in str(error.value)


def test_no_release_looks_at_the_data() -> None:
    users = {name for name, path in modules().items() if "hdmm.data.inspect" in imports(path)}
    assert users == {"hdmm.apps.cli.check_command"}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rows = ["sex,region", "M,nord", "F,s\xfcd", "F,nord", "m,s\xfcd"]
    (tmp_path / "people.csv").write_bytes("\n".join(rows).encode("latin-1"))
    return write_spec(tmp_path, SPEC)


def test_the_command_tells_and_writes_nothing(spec: Path, capsys: Captured, caplog: pytest.LogCaptureFixture) -> None:
    before = {file: file.read_bytes() for file in spec.parent.rglob("*")}
    with caplog.at_level(logging.DEBUG):
        assert run(["check", str(spec), "--look-at-data", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: NOT PRIVATE: ")
    assert "NOT PRIVATE: 0 of 4 rows are counted.\n  4 are not: a value is outside" in out
    assert "Save such a file as UTF-8." in out
    assert "No row has these labels of 'sex': 'f'." in out
    assert "The data has 'F' for 'f'" in out
    assert "No row has these labels of 'region': 'süd'." in out
    assert [line.split() for line in out.splitlines() if line.startswith(("sex", "region"))] == [
        ["sex", "sex", "dropped", "3", "0"],
        ["region", "region", "dropped", "2", "2"],
    ]
    assert {file: file.read_bytes() for file in spec.parent.rglob("*")} == before
    assert not caplog.records


def test_rows_without_an_amount_are_in_no_sum_of_it(tmp_path: Path, capsys: Captured) -> None:
    """They were said to be counted as other, which amounts do not have."""
    path = write_spec(
        tmp_path, smallest('source = "people.csv"', 'sex = ["m", "f"]\n[amounts]\npay = { low = 0, high = 9 }')
    )
    (tmp_path / "people.csv").write_text("sex,pay\nm,3\nf,none\nm,99\n")
    assert run(["check", str(path), "--look-at-data", "--yes"]) == 0
    assert re.search(r"pay +pay +in no sum of it +1 +0", capsys.readouterr().out)


def test_the_command_for_programs(spec: Path, capsys: Captured) -> None:
    assert run(["check", str(spec), "--look-at-data", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["not_private"]
    assert told["warning"].startswith("NOT PRIVATE: ")
    assert (told["rows"], told["counted"], told["dropped"]) == (4, 0, 4)
    assert told["attributes"][1] == {
        "attribute": "region",
        "column": "region",
        "outside": "drop",
        "rows_outside": 2,
        "rows_missing": 2,
        "labels_unmatched": ["süd"],
        "nearly": [],
    }
    assert run(["check", str(spec), "--json"]) == 0
    assert "not_private" not in json.loads(capsys.readouterr().out)


def test_it_is_told_on_a_terminal_or_when_asked_for(
    spec: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the output goes to a file or a log, nothing is read before the user has said --yes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvFiles, "batches", None)
        for wrong, why in (
            (["--look-at-data"], "is not a terminal"),
            (["--look-at-data", "--json"], "is not a terminal"),
            (["--look-at-data", "--yes", "--quiet"], "Leave out --quiet"),
            (["--yes"], "belongs to --look-at-data"),
        ):
            assert run(["check", str(spec), *wrong]) == 2
            out, err = capsys.readouterr()
            assert why in err
            assert "NOT PRIVATE" not in out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["check", str(spec), "--look-at-data"]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out


def test_a_specification_without_data_cannot_be_looked_at(tmp_path: Path, capsys: Captured) -> None:
    spec = write_spec(tmp_path, SPEC.replace('source = "people.csv"\n', ""))
    assert run(["check", str(spec), "--look-at-data", "--yes"]) == 1
    assert "names no data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "declared", "doubt"),
    [
        (pa.array([1.0, 2.5]), "{ first = 0, last = 9 }", "a value with a fraction is outside the domain"),
        (pa.array([Decimal("1.5")]), "{ first = 0, last = 9 }", "a value with a fraction is outside the domain"),
        (pa.array([date(2024, 1, 1)]), '["2024-01-01"]', "every row would be outside the domain"),
        (pa.array([b"M"]), '["M"]', "every row would be outside the domain"),
        (pa.array([1.0, 2.5]), "{ bins = [0, 1, 5] }", None),
        (pa.array([Decimal(1)]), "{ first = 0, last = 9 }", None),
        (pa.array([1]), "{ first = 0, last = 9 }", None),
        (pa.array(["1"]), "{ first = 0, last = 9 }", None),
    ],
)
def test_check_warns_of_types_that_a_declaration_misses(
    tmp_path: Path, capsys: Captured, column: pa.Array, declared: str, doubt: str | None
) -> None:
    pq.write_table(pa.table({"sex": column}), tmp_path / "people.parquet")
    spec = write_spec(tmp_path, smallest('source = "people.parquet"', f"sex = {declared}"))
    assert run(["check", str(spec), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["warnings"]) == (doubt is not None)
    assert all(doubt is not None and doubt in warning for warning in told["warnings"])
    assert told["rows_read"] is False
    assert run(["check", str(spec), "--strict"]) == (doubt is not None)
    assert "No rows were read." in capsys.readouterr().out


@pytest.mark.parametrize("command", [["plan"], ["budget"], ["check"]])
def test_a_source_that_is_given_must_be_there(spec: Path, capsys: Captured, command: list[str]) -> None:
    assert run([*command, str(spec), "--source", str(spec.parent / "nowhere.csv")]) == 1
    assert "There is no file" in capsys.readouterr().err
