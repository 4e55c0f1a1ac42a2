"""Publishing: the same counts from every source; folders are whole or absent; nothing that is left holds data."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

import hdmm
from hdmm import (
    ZCDP,
    BudgetError,
    DataError,
    FileError,
    Ledger,
    PureDP,
    Spec,
    Strategy,
    load_plan,
    load_release,
    load_spec,
)
from hdmm.answers.margins import half_width
from hdmm.answers.table import NUMBER_COLUMNS
from hdmm.base.numbers import LEVEL
from hdmm.describe.table_column import named_columns
from hdmm.publication import files, planning
from hdmm.publication.answered import answer_tables
from hdmm.publication.files import escape_formula
from hdmm.publication.forecast import as_measured, forecasts
from hdmm.publication.planning import make_plan, plan_for
from hdmm.publication.publish import publish
from hdmm.publication.spec.origin import open_data
from hdmm.strategy.blocks import Block
from tests.support import brute
from tests.support.spec_cases import SPEC, people, planned, prepared, write_csv, write_spec


def counts(spec: Spec, source: object = None) -> list[list[int]]:
    data = open_data(spec, source)  # type: ignore[arg-type]
    return [c.ravel().tolist() for c in data.marginals([spec.domain.names, spec.domain.names[:2], ()])]


def _csv(folder: Path, table: pa.Table) -> str:
    write_csv(table, folder / "people.csv")
    return "people.csv"


def _parquet_folder(folder: Path, table: pa.Table) -> str:
    (folder / "parts" / "sub").mkdir(parents=True)
    pq.write_table(table.slice(0, 100), folder / "parts" / "a.parquet")
    pq.write_table(table.slice(100), folder / "parts" / "sub" / "b.parquet")
    return "parts"


def _duckdb(folder: Path, table: pa.Table) -> str:
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return 'people.duckdb"\ntable = "people'


def _duckdb_url(folder: Path, table: pa.Table) -> str:
    _duckdb(folder, table)
    return f'duckdb://{folder / "people.duckdb"}"\ntable = "people'


def _sqlite(folder: Path, table: pa.Table) -> str:
    rows = list(zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True))
    with sqlite3.connect(folder / "people.db") as connection:
        connection.execute("CREATE TABLE people (sex TEXT, age INTEGER, smokes INTEGER, income INTEGER, who INTEGER)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    return f'sqlite://{folder / "people.db"}"\ntable = "people'


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("write", [_csv, _parquet_folder, _duckdb, _duckdb_url, _sqlite])
def test_one_specification_on_every_source(
    tmp_path: Path, write: Callable[[Path, pa.Table], str], bounded: bool
) -> None:
    table = people()
    text = SPEC if not bounded else SPEC.replace("[domain]", 'id = "who"\nmax_rows_per_id = 1000\n[domain]')
    spec = load_spec(write_spec(tmp_path, text.replace("people.csv", write(tmp_path, table))))
    expected = load_spec(write_spec(tmp_path, SPEC, "plain.toml"))
    frame = table.to_pandas()
    import polars as pl

    truth = counts(expected, frame)
    assert truth[2][0] > 300
    assert counts(spec) == truth
    assert counts(expected, pl.from_arrow(table)) == truth


def test_labels_of_numbers_and_truth_count_the_same_on_every_source(tmp_path: Path) -> None:
    """As numbers and as text: a specification does not depend on how the table is kept."""
    rng = np.random.default_rng(4)
    codes, alive = rng.integers(0, 4, 300), rng.random(300) < 0.4
    written = [[str(c) for c in codes], [f"0{c}" if c == 2 else str(c) for c in codes], [f"{c}.0" for c in codes]]
    words = [[str(a).lower() for a in alive], [str(a).upper() for a in alive], [str(int(a)) for a in alive]]
    plain = pa.table({"code": codes, "alive": alive})
    texts = [pa.table({"code": c, "alive": a}) for c, a in zip(written, words, strict=True)]
    text = """
        [data]
        source = "people.csv"
        dataset = "people"
        [domain]
        code = [1, 2, 0]
        alive = [true, false]
        [[table]]
        name = "both"
        marginals = 2
        [privacy]
        epsilon = 1
        [ledger]
        path = "budget.db"
        cap = { epsilon = 4 }
    """
    import polars as pl

    truth = [[int(((codes == c) & (alive == a)).sum()) for c in (1, 2, 0) for a in (True, False)]]
    truth += [truth[0], [sum(truth[0])]]
    for i, table in enumerate([plain, *texts]):
        folder = tmp_path / str(i)
        folder.mkdir()
        spec = load_spec(write_spec(folder, text))
        write_csv(table, folder / "people.csv")
        assert counts(spec) == truth
        pq.write_table(table, folder / "people.parquet")
        with duckdb.connect(str(folder / "people.duckdb")) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE people AS SELECT * FROM given")
        with sqlite3.connect(folder / "people.db") as connection:
            connection.execute(
                f"CREATE TABLE people (code {'TEXT' if i else 'INTEGER'}, alive {'TEXT' if i else 'BOOLEAN'})"
            )
            rows = zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True)
            connection.executemany("INSERT INTO people VALUES (?, ?)", list(rows))
        connection.close()
        for source in (
            "people.parquet",
            'people.duckdb"\ntable = "people',
            f'sqlite://{folder}/people.db"\ntable = "people',
        ):
            assert counts(load_spec(write_spec(folder, text.replace("people.csv", source)))) == truth, source
        for frame in (table, table.to_pandas(), pl.from_arrow(table), ibis.memtable(table)):
            assert counts(spec, frame) == truth


def test_tables_hold_what_the_release_answers(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path))
    plan = planned(spec)
    done = publish(spec, plan)
    listed = ["datapackage.json", "metadata.json", "plan", "release", "report.html", "tables"]
    assert sorted(os.listdir(done.folder)) == listed
    release = load_release(done.folder / "release")
    truth = open_data(spec).marginal(spec.domain.names).reshape(-1, 1)
    for table in spec.tables:
        answers = release.answer(table.workload)
        lower, upper = answers.interval()
        with open(done.folder / "tables" / f"{table.name}.csv", newline="") as file:
            rows = list(csv.reader(file))
        ends = [name for name in rows[0] if name in ("income_from", "income_to")]
        names = [name for name in rows[0] if name not in ends]
        assert names == [*table.columns, "estimate", "stddev", "lower", "upper"]
        assert len(ends) == (2 if "income" in table.columns else 0)
        assert [tuple(row[rows[0].index(name)] for name in table.columns) for row in rows[1:]] == [
            tuple(map(str, labels)) for labels in table.labels()
        ]
        numbers = np.array([row[-4:] for row in rows[1:]], dtype=float)
        exactly = np.stack([answers.values, answers.stddev, lower, upper], axis=1)
        off = np.abs(numbers - exactly) / answers.stddev[:, None]  # in standard deviations of the row itself
        assert (off[:, 0] <= 0.05 + 1e-9).all()
        assert (numbers[:, 2] <= lower).all()
        assert (numbers[:, 3] >= upper).all()
        assert (off[:, 1] <= 0.01 + 1e-9).all()
        assert (off[:, 2:] <= 0.2 + 1e-9).all()
        even = numbers[numbers[:, 2] != 0]  # an interval above 0 is not shown to reach below it
        np.testing.assert_allclose(even[:, 3] - even[:, 0], even[:, 0] - even[:, 2], atol=1e-9)
        exact = table.workload.matrix.matmat(truth)[:, 0]
        least, most = answers.interval(1 - 1e-9)
        assert ((least <= exact) & (exact <= most)).all()
        columns = pq.read_table(done.folder / "tables" / f"{table.name}.parquet")
        assert columns.schema.names == rows[0]
        read = [columns.column(name).to_numpy() for name in ("estimate", "stddev", "lower", "upper")]
        np.testing.assert_allclose(np.stack(read, axis=1), exactly, rtol=1e-12)  # Parquet has all digits
        assert columns.column(table.columns[0]).to_pylist() == [row[0] for row in rows[1:]]
    told = json.loads((done.folder / "metadata.json").read_text())
    assert told["privacy"]["epsilon"] == "1/2"
    assert told["receipt"]["balance"] == "7/2"
    assert told["specification"]["sha256"] == hashlib.sha256(spec.path.read_bytes()).hexdigest()
    rmse = [np.sqrt(release.error(table.workload) / table.rows) for table in spec.tables]
    np.testing.assert_allclose([table["rmse"] for table in told["tables"]], rmse)
    assert load_plan(done.folder / "plan").workload == spec.workload


def test_the_forecast_is_the_error_of_the_release(tmp_path: Path) -> None:
    for more in ("", 'id = "who"\nmax_rows_per_id = 3\n', 'neighbours = "replace"\n'):
        spec = load_spec(prepared(tmp_path, SPEC.replace("[domain]", f"{more}[domain]")))
        plan = planned(spec)
        expected = forecasts(spec, as_measured(spec, plan).form)
        release = plan.measure(open_data(spec), spec.privacy, ledger=None, unit=spec.unit)
        errors = [np.sqrt(release.error(table.workload) / table.rows) for table in spec.tables]
        np.testing.assert_allclose([f.rmse for f in expected], errors)
        assert all(f.bound is not None and f.bound <= f.rmse * (1 + 1e-9) for f in expected)
        factor = spec.unit.factor(spec.privacy.noise, signed=False)
        for f, table in zip(expected, spec.tables, strict=True):
            by_cell = hdmm.baselines.identity(table.workload)
            assert f.identity == pytest.approx(factor * hdmm.rmse(table.workload, by_cell, spec.privacy))
        everything = np.concatenate([brute.workload_matrix(table.workload) for table in spec.tables])
        direct = factor * np.abs(everything).sum(axis=0).max() * np.sqrt(2) / 0.5
        np.testing.assert_allclose([f.direct for f in expected], direct)


def test_rows_that_are_sums(tmp_path: Path) -> None:
    text = SPEC.replace(
        "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age",
        "SELECT smokes, COUNT(*) FROM people WHERE sex = 'F' OR age < 5 GROUP BY smokes",
    )
    spec = load_spec(prepared(tmp_path, text.replace('epsilon = "0.5"', 'epsilon = "1000"').replace('"4"', '"1000"')))
    table = spec.tables[0]
    assert table.combine is not None
    release = planned(spec).measure(open_data(spec), spec.privacy, ledger=None)
    forecast, *_ = expected = forecasts(spec, release.form)
    published = answer_tables(spec, release, expected)[0]
    rows = [r for r in people().to_pylist() if r["sex"] in "MF" and 0 <= r["age"] <= 19 and 0 <= r["income"] < 100]
    chosen = [r["smokes"] for r in rows if r["sex"] == "F" or r["age"] < 5]
    expected = [sum(1 for s in chosen if s == v) for v in (0, 1, None)]
    assert np.rint(published.estimate).tolist() == expected
    parts = release.answer(table.workload).stddev
    assert (published.stddev <= table.combine @ parts * (1 + 1e-9)).all()
    half = half_width(published.stddev, LEVEL, spec.privacy.noise)  # as of a row that is one query
    np.testing.assert_allclose(
        [published.lower, published.upper], [published.estimate - half, published.estimate + half]
    )
    assert forecast.bound is None
    assert forecast.rmse == pytest.approx(np.sqrt(np.mean(published.stddev**2)))


def test_a_plan_is_used_again_while_the_tables_stay(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path))
    plan = make_plan(spec, progress=False).plan
    assert load_plan(spec.plan.folder).workload == spec.workload
    before = (spec.plan.folder / "plan.json").stat().st_mtime_ns
    cheaper = load_spec(prepared(tmp_path, SPEC.replace('"0.5"', '"0.25"')))
    plan_for(cheaper, progress=False)
    assert (spec.plan.folder / "plan.json").stat().st_mtime_ns == before
    other = load_spec(prepared(tmp_path, SPEC.replace("weight = 2", "weight = 3")))
    with pytest.raises(FileError, match="other tables"):
        plan_for(other, spec.plan.folder)
    with pytest.raises(hdmm.StrategyError, match="other tables"):
        publish(other, plan)
    assert plan_for(other, progress=False).workload == other.workload
    assert (spec.plan.folder / "plan.json").stat().st_mtime_ns > before
    aimed = load_spec(
        prepared(tmp_path, SPEC.replace("weight = 2", "weight = 3").replace('["age"]', '["age"]\nmargin = 9'))
    )
    assert plan_for(aimed, spec.plan.folder, progress=False).goal == other.goal  # what is named is used if it answers
    assert plan_for(aimed, progress=False).goal == aimed.goal


def test_a_plan_for_other_margins_does_not_suit(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path))
    aimed, loose = spec.aiming({"ages": 30}), spec.aiming({"ages": 60})
    plan = planned(aimed)
    assert planning.suits(plan, aimed)
    assert planning.suits(plan, replace(aimed, output=structs.replace(aimed.output, level=0.9)))  # the same plan
    assert not planning.suits(plan, loose)
    assert not planning.suits(plan, spec)
    assert planning.suits(load_plan(plan.save(tmp_path / "plan")), aimed)


def test_a_worse_plan_never_replaces_a_better_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(prepared(tmp_path))
    good = planned(spec)
    bad = replace(good, strategy=Strategy.identity(spec.domain), operator="Identity")
    assert bad.value > good.value
    monkeypatch.setattr(planning, "optimize", lambda *_, **__: good)
    assert make_plan(spec).outcome == "saved"
    monkeypatch.setattr(planning, "optimize", lambda *_, **__: bad)
    kept = make_plan(spec)
    assert (kept.outcome, kept.plan.operator) == ("kept", good.operator)
    assert load_plan(spec.plan.folder).operator == good.operator
    assert make_plan(spec, trial=True).outcome == "trial"
    assert load_plan(spec.plan.folder).operator == good.operator
    assert make_plan(spec, force=True).outcome == "saved"
    assert load_plan(spec.plan.folder).operator == "Identity"
    other = load_spec(prepared(tmp_path, SPEC.replace("[plan]", '[plan]\nobjective = "worst"')))
    monkeypatch.setattr(planning, "optimize", lambda *_, **__: planned(other))
    assert make_plan(other).outcome == "saved"  # for another goal


def test_an_interrupted_search_keeps_its_plan_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_spec(prepared(tmp_path))
    best = replace(planned(spec), stopped="interrupted by the user")
    monkeypatch.setattr(planning, "optimize", lambda *_, **__: best)
    with pytest.raises(KeyboardInterrupt):
        plan_for(spec)
    assert load_plan(spec.plan.folder).stopped == "interrupted by the user"


def test_a_table_without_answers_is_refused_before_the_debit(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path, SPEC.replace("weight = 2", "weight = 1e-200")))  # whose square is 0
    with pytest.raises(hdmm.StrategyError, match="no answers to table 'pairs_sex_smokes'"):
        publish(spec, planned(spec))
    total = Strategy(spec.domain, (Block(1.0, ()),))
    with pytest.raises(hdmm.StrategyError, match="cannot answer all queries"):
        publish(spec, replace(planned(spec), strategy=total))
    assert not spec.ledger.path.exists()


def test_gaussian_noise_charges_rho(tmp_path: Path) -> None:
    text = SPEC.replace('epsilon = "0.5"', 'epsilon = 1\ndelta = "1e-9"').replace('{ epsilon = "4" }', "{ rho = 1 }")
    spec = load_spec(prepared(tmp_path, text))
    done = publish(spec, planned(spec))
    ledger = Ledger(spec.ledger.path, dataset="people-2026")
    assert isinstance(ledger.cap, ZCDP)
    assert 0 < ledger.spent == done.release.receipt.amount  # type: ignore[union-attr]


# F5: whole or not at all, confined, no links followed


def test_an_earlier_publication_is_replaced_only_when_told(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path))
    plan = planned(spec)
    publish(spec, plan)
    first = (spec.output.folder / "metadata.json").read_text()
    with pytest.raises(FileError, match="earlier publication"):
        publish(spec, plan)
    assert Ledger(spec.ledger.path, dataset="people-2026").spent == PureDP("0.5").epsilon  # refused before the debit
    publish(spec, plan, force=True)
    assert (spec.output.folder / "metadata.json").read_text() != first


@pytest.mark.parametrize("what", ["file", "link", "folder", "other metadata"])
def test_what_hdmm_did_not_publish_stays(tmp_path: Path, what: str) -> None:
    spec = load_spec(prepared(tmp_path))
    out, elsewhere = spec.output.folder, tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "file":
        out.write_text("mine")
    elif what == "link":
        out.symlink_to(elsewhere)
    else:
        out.mkdir()
        (out / ("metadata.json" if what == "other metadata" else "mine.txt")).write_text('{"format": "x"}')
    plan = planned(spec)
    with pytest.raises(FileError):
        publish(spec, plan, force=True)
    assert not spec.ledger.path.exists()
    assert list(elsewhere.iterdir()) == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".hdmm")]


def test_an_output_folder_that_cannot_be_is_refused_before_the_debit(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path, SPEC.replace('folder = "out"', 'folder = "people.parquet/such/out"')))
    with pytest.raises(FileError):
        publish(spec, planned(spec))
    assert not spec.ledger.path.exists()


def test_the_budget_is_refused_before_data_is_read(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path, SPEC.replace('epsilon = "4"', 'epsilon = "0.1"')))
    with pytest.raises(BudgetError):
        publish(spec, planned(spec))
    assert not spec.output.folder.exists()


# O2: what a spreadsheet would run


def test_formulas_are_prefixed(tmp_path: Path) -> None:
    starts = "=+-@\t\r\n＝＋－＠﹦﹢﹣﹫"
    labels = [f"{start}cmd|' /C calc'!A0" for start in starts]
    assert [escape_formula(label) for label in labels] == [f"'{label}" for label in labels]
    spec = load_spec(prepared(tmp_path, SPEC.replace('sex = ["M", "F"]', f"sex = {json.dumps(labels)}")))
    release = planned(spec).measure(open_data(spec), spec.privacy, ledger=None)
    with open(tmp_path / "x.csv", "wb") as file:
        files.write_csv(answer_tables(spec, release, forecasts(spec, release.form))[0], file)
    with open(tmp_path / "x.csv", newline="") as file:
        cells = {cell for row in csv.reader(file) for cell in row[:2]}
    assert not any(cell.startswith(tuple(starts)) for cell in cells)
    assert {f"'{label}" for label in labels} <= cells


def test_numbers_stay_numbers() -> None:
    assert [escape_formula(text) for text in ("-5", "+1.5", "-", "-5+1", "5", "")] == [
        "-5",
        "+1.5",
        "'-",
        "'-5+1",
        "5",
        "",
    ]
    assert [escape_formula(text) for text in ("－5", "-5\n", "½", "a=b", "女")] == ["'－5", "'-5\n", "½", "a=b", "女"]


def test_a_column_named_like_a_number(tmp_path: Path) -> None:
    text = SPEC.replace("smokes =", "Estimate =").replace("marginals = 2", 'marginals = [["Estimate"]]')
    spec = load_spec(write_spec(tmp_path, text))
    data = open_data(spec, people().rename_columns(["sex", "age", "Estimate", "income", "who"]))
    release = planned(spec).measure(data, spec.privacy, ledger=None)
    published = answer_tables(spec, release, forecasts(spec, release.form))[1]
    assert published.header(NUMBER_COLUMNS) == ["Estimate_", "estimate", "stddev", "lower", "upper"]


def test_a_row_without_a_label_is_empty_in_csv_and_null_in_parquet(tmp_path: Path) -> None:
    number = np.array([1.5, 2.5])
    table = hdmm.Table(
        "a", "A", named_columns("kind"), lambda: [("=x",), (None,)], number, number, number - 1, number + 1, 0.95
    )
    for write in (files.write_csv, files.write_parquet):
        with open(tmp_path / write.__name__, "wb") as file:
            write(table, file)
    assert (tmp_path / "write_csv").read_bytes() == (
        b"kind,estimate,stddev,lower,upper\r\n'=x,1.5,1.50,0.5,2.5\r\n,2.5,2.50,1.5,3.5\r\n"
    )
    columns = pq.read_table(tmp_path / "write_parquet")
    assert columns.column("kind").to_pylist() == ["=x", None]
    assert columns.schema.names == ["kind", "estimate", "stddev", "lower", "upper"]


# O3, O4: nothing of the data in messages, or in what a killed run leaves


CANARY = "CANARY-7f3a"


def test_errors_after_data_is_read_tell_nothing_of_it(tmp_path: Path) -> None:
    import pandas as pd

    class Value:
        def __hash__(self) -> int:
            raise ValueError(CANARY)

    spec = load_spec(prepared(tmp_path))
    plan = planned(spec)
    frame = people().to_pandas()
    frame["sex"] = pd.Series([Value()] * len(frame), dtype=object)
    with pytest.raises(DataError, match="whose values may be of any type") as refused:
        publish(spec, plan, source=frame)
    assert CANARY not in str(refused.value)
    (tmp_path / "people.parquet").write_bytes((tmp_path / "people.parquet").read_bytes()[:-200] + b"PAR1")
    with pytest.raises(DataError) as caught:
        publish(spec, plan, force=True)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


_KILLED = """
import os, signal, sys
from hdmm import load_spec, load_plan
from hdmm.publication import files, publish as publishing
write = files.write_file
def stop(path, fill):
    if path.name == "ages.csv":
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, fill)
files.write_file = stop
spec = load_spec(sys.argv[1])
publishing.publish(spec, load_plan(spec.plan.folder))
"""


def test_a_killed_run_leaves_no_counts_and_stays_charged(tmp_path: Path) -> None:
    text = SPEC.replace('epsilon = "0.5"', 'epsilon = "0.01"')
    spec = load_spec(prepared(tmp_path, text))
    planned(spec).save(spec.plan.folder)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path / "home")}
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    known = {path for path in tmp_path.rglob("*") if path.is_file()}
    done = subprocess.run([sys.executable, "-c", _KILLED, str(spec.path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not spec.output.folder.exists()
    assert Ledger(spec.ledger.path, dataset="people-2026").spent == PureDP("0.01").epsilon
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path not in known]
    truth = open_data(spec).marginal(("sex", "age")).ravel()
    raw = [truth.astype(kind).tobytes() for kind in (np.int64, np.float64, np.int32)]
    for path in left:
        data = path.read_bytes()
        assert not any(bytes_ in data for bytes_ in raw), path
        if path.suffix == ".parquet":
            estimates = pq.read_table(path).column("estimate").to_numpy()
            assert np.abs(np.rint(estimates) - estimates).max() > 0
    assert any(path.name == "measurements.npy" for path in left)  # the noisy release, which is public


def test_neighbouring_tables_leave_the_same_names_and_shapes(tmp_path: Path) -> None:
    seen = []
    for i, n in enumerate((500, 499)):
        folder = tmp_path / str(i)
        folder.mkdir()
        spec = load_spec(prepared(folder))
        pq.write_table(people().slice(0, n), folder / "people.parquet")
        publish(spec, planned(spec))
        shapes = {
            str(path.relative_to(folder)): pq.read_table(path).shape
            for path in sorted(folder.rglob("out/**/*.parquet"))
        }
        seen.append(shapes)
    assert seen[0] == seen[1]


def test_a_plan_that_could_not_be_kept_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(prepared(tmp_path, SPEC.replace("[plan]", '[plan]\nfolder = "people.parquet/such/plan"')))
    monkeypatch.setattr(planning, "optimize", None)
    with pytest.raises(FileError, match="cannot be saved"):
        make_plan(spec)
