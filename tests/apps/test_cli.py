"""Every command as a user runs it, in an empty folder; exit codes, JSON, silence, and no traceback."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

from hdmm import ZCDP, Ledger, PureDP, load_plan, load_spec
from hdmm.apps import cli as app
from hdmm.apps.cli import run
from hdmm.publication.spec import schema_text
from tests.support.spec_cases import SPEC, people, planned, prepared, write_csv

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ready(folder: Path) -> Path:
    """An empty folder with a specification, its data, and a plan."""
    prepared(folder)
    spec = load_spec("people.toml")
    planned(spec).save(spec.plan.folder)
    return folder


def told(capsys: Captured) -> dict[str, object]:
    return json.loads(capsys.readouterr().out)


def test_init_writes_a_specification_that_checks(folder: Path, capsys: Captured) -> None:
    assert run(["init"]) == 0
    assert sorted(os.listdir(folder)) == ["hdmm.schema.json", "hdmm.toml"]
    assert (folder / "hdmm.toml").read_text().startswith("#:schema ./hdmm.schema.json\n")
    assert (folder / "hdmm.schema.json").read_text() == schema_text()
    write_csv(people(), folder / "people.csv")
    assert run(["check", "hdmm.toml"]) == 0
    assert "ε = 4 left" in capsys.readouterr().out
    assert run(["init"]) == 1  # never over what is there
    assert "exists already" in capsys.readouterr().err


def test_init_from_a_dictionary(folder: Path, capsys: Captured) -> None:
    (folder / "dictionary.csv").write_text(
        'name,type,values\nsex,labels,M|F\nage,integers,0..114\n"hh income",bins,0|10000|50000\nalive,boolean,\n'
        "score,integers,0..100/5\n"
    )
    assert run(["init", "survey.toml", "--from", "dictionary.csv", "--json"]) == 0
    assert told(capsys) == {"spec": "survey.toml", "schema": "hdmm.schema.json"}
    domain = load_spec("survey.toml").domain
    assert domain.names == ("sex", "age", "hh income", "alive", "score")
    assert domain.shape == (2, 115, 2, 2, 21)


@pytest.mark.parametrize("header", ["Name, Type ,VALUES", "name;type;values", "name\ttype\tvalues"])
def test_a_dictionary_as_spreadsheets_save_it(folder: Path, header: str) -> None:
    delimiter = next(c for c in ";\t," if c in header)
    lines = [header, "sex,labels,M|F".replace(",", delimiter), "", delimiter * 2]
    (folder / "dictionary.csv").write_text("\r\n".join(lines), encoding="utf-8-sig")
    assert run(["init", "--from", "dictionary.csv"]) == 0
    assert load_spec("hdmm.toml").domain["sex"].labels == ("M", "F")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("name,type,values\nland,labels,Tirol|Kärnten\n".encode("latin-1"), "UTF-8"),
        (b"attribute,values\nsex,M|F\n", "begins with 'attribute,values'"),
        (b"", "needs the columns"),
        (None, "No such file"),
    ],
)
def test_a_dictionary_that_cannot_be_read_says_why(
    folder: Path, capsys: Captured, data: bytes | None, words: str
) -> None:
    if data is not None:
        (folder / "dictionary.csv").write_bytes(data)
    assert run(["init", "--from", "dictionary.csv"]) == 1
    assert words in capsys.readouterr().err


def test_init_asks_for_no_more_counts_than_one_can_look_at(folder: Path) -> None:
    (folder / "dictionary.csv").write_text("name,type,values\nperson,integers,0..99999999999\nsex,labels,M|F\n")
    assert run(["init", "--from", "dictionary.csv"]) == 0
    assert [table.rows for table in load_spec("hdmm.toml").tables] == [2, 1]


@pytest.mark.parametrize(
    "line",
    [
        "age,integers,x..9",
        ",labels,M|F",
        "a,words,M|F",
        "a,labels,M||F",
        "sex,labels,a|b",
        "a,labels,M,F",  # | is meant
        '"a",labels,"M,F"',
        "a,labels,M|F|M",
        "a,integers,9..0",
        "a,bins,0|50|10",
    ],
)
def test_a_dictionary_that_is_wrong_names_its_line(folder: Path, capsys: Captured, line: str) -> None:
    (folder / "dictionary.csv").write_text(f"name,type,values\nsex,labels,M|F\n{line}\n")
    assert run(["init", "--from", "dictionary.csv"]) == 1
    assert "dictionary.csv, line 3" in capsys.readouterr().err
    assert os.listdir(folder) == ["dictionary.csv"]


@pytest.mark.parametrize("name", ["hh income", "größe", "select", 'a"b', "order", "0", "a-b", "a.b", "count"])
def test_init_quotes_names(folder: Path, name: str) -> None:
    with open("dictionary.csv", "w", newline="") as file:
        csv.writer(file).writerows([["name", "values"], [name, 'x|"y"|ü']])
    assert run(["init", "--from", "dictionary.csv", "--quiet"]) == 0
    assert load_spec("hdmm.toml").domain[name].labels == ("x", '"y"', "ü")
    assert load_spec("hdmm.toml").tables[0].columns == (name,)


def test_init_reads_data_only_when_told_and_says_it_is_not_private(folder: Path, capsys: Captured) -> None:
    write_csv(people(), folder / "people.csv")
    assert run(["init", "--suggest-from-data", "people.csv"]) == 0
    assert "not private" in capsys.readouterr().err
    text = (folder / "hdmm.toml").read_text()
    assert "NOT PRIVATE" in text
    assert load_spec("hdmm.toml").domain["age"].size == 22
    assert "?" in load_spec("hdmm.toml").domain["sex"].labels
    assert run(["init", "x.toml", "--suggest-from-data", "people.csv", "--from", "y.csv"]) == 2


def test_a_first_draft_from_messy_data_in_another_folder(folder: Path, capsys: Captured) -> None:
    rows = [f"{i},{i % 50}{'.0' * (i % 7 == 0)},{'mw'[i % 2]},Tirol,{i * 1.5}\n" for i in range(7000)]
    rows += ["7000,n/a,,Tirol,1\n", "7001,3,m,K\xe4rnten,1\n"]
    (folder / "persons.csv").write_text("person,age,sex,land,income\n" + "".join(rows), encoding="latin-1")
    (folder / "specs").mkdir()
    assert run(["init", "specs/a.toml", "--suggest-from-data", "persons.csv"]) == 0
    err = capsys.readouterr().err
    assert "Columns that were left out because they have too many values: person, income." in err
    assert "Text in land that is not UTF-8 counts as missing." in err
    assert run(["check", "specs/a.toml"]) == 0  # the path is as the specification sees it
    domain = load_spec("specs/a.toml").domain
    assert domain["age"].size == 50
    assert domain["sex"].labels == ("m", "w")
    (folder / "empty.csv").write_text("person,age\n")
    assert run(["init", "b.toml", "--suggest-from-data", "empty.csv"]) == 1
    assert "no rows" in capsys.readouterr().err


def test_check_says_when_a_release_would_be_refused(ready: Path, capsys: Captured) -> None:
    (ready / "people.toml").write_text((ready / "people.toml").read_text().replace('epsilon = "0.5"', 'epsilon = "9"'))
    assert run(["check", "people.toml"]) == 3
    printed = capsys.readouterr()
    assert "P12" in printed.out  # what it would be is told all the same
    assert printed.err.startswith("error: At present a release would be refused. Dataset 'people-2026' has ε = 4 left")
    assert run(["check", "people.toml", "--quiet"]) == 3
    assert "a release would be refused" in capsys.readouterr().err
    assert run(["check", "people.toml", "--json"]) == 3
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["ok"], found["payable"], len(found["refused"])) == (False, False, 1)
    assert json.loads(printed.err)["kind"] == "BudgetError"


def test_check_tries_the_folder_of_the_ledger_and_leaves_no_trace(
    ready: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for opened in (False, True):
        if opened:
            Ledger("budget.db", dataset="people-2026", cap=PureDP(4))
        before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in ready.iterdir() if path.is_file()}
        assert run(["check", "people.toml"]) == 0
        assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in ready.iterdir() if p.is_file()} == before
    capsys.readouterr()

    def unlockable(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.lockf", unlockable)
        assert run(["check", "people.toml"]) == 4
    assert "budget.db cannot be used: No locks available" in capsys.readouterr().err
    path = ready / "people.toml"
    path.write_text(
        path.read_text().replace('"budget.db"', '"none/budget.db"').replace('"out"', '"people.parquet/out"')
    )
    assert run(["check", "people.toml"]) == 4
    wrong = capsys.readouterr().err
    assert "none/budget.db cannot be used: No such file or directory" in wrong
    assert "people.parquet is not a folder, or may not be written" in wrong  # all that is wrong is told at once
    assert not (ready / "none").exists()


def test_check_waits_for_no_process_that_only_reads(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(4))
    with closing(sqlite3.connect("budget.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM records").fetchone()
        assert run(["check", "people.toml", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_strict_takes_warnings_for_errors(ready: Path, capsys: Captured) -> None:
    assert run(["check", "people.toml", "--strict"]) == 0
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    assert run(["check", "people.toml"]) == 0  # --force would replace what is there
    assert "out holds an earlier publication" in capsys.readouterr().out
    assert run(["check", "people.toml", "--strict", "--json"]) == 1
    printed = capsys.readouterr()
    assert [words[:35] for words in json.loads(printed.out)["warnings"]] == ["out holds an earlier publication. C"]
    assert "With --strict, warnings are errors." in json.loads(printed.err)["error"]
    (ready / "out" / "notes.txt").write_text("mine")
    assert run(["check", "people.toml"]) == 1  # what is never replaced is no warning
    assert "out exists and holds files that hdmm did not publish" in capsys.readouterr().err


def test_check_makes_no_database_where_there_is_none(ready: Path, capsys: Captured) -> None:
    text = SPEC.replace('source = "people.csv"', f'source = "sqlite://{ready}/people.db"\ntable = "people"')
    assert text != SPEC
    (ready / "people.toml").write_text(text)
    assert run(["check", "people.toml"]) == 1
    assert f"there is no file {ready}/people.db" in capsys.readouterr().err
    assert not (ready / "people.db").exists()


def test_before_the_first_release(ready: Path, capsys: Captured) -> None:
    assert run(["budget", "people.toml"]) == 0
    assert "There are no records" in capsys.readouterr().out
    assert run(["report", "people.toml"]) == 1
    assert "nothing was published" in capsys.readouterr().err


def test_usage_is_told_as_json_too(folder: Path, capsys: Captured) -> None:
    assert run(["check", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["kind"] == "UsageError"


def test_check(ready: Path, capsys: Captured) -> None:
    assert run(["check", "people.toml", "--json"]) == 0
    found = told(capsys)
    assert found["ok"] is True
    names = [table["name"] for table in found["tables"]]  # type: ignore[union-attr]
    assert names[:3] == ["P12", "pairs_sex_age", "pairs_sex_smokes"]
    assert names[-1] == "ages"
    assert not (ready / "budget.db").exists()  # looking opens no account
    (ready / "people.parquet").unlink()
    assert run(["check", "people.toml"]) == 1
    assert capsys.readouterr().err.startswith("error: There is no file")


def test_plan_tells_errors_and_spends_nothing(folder: Path, capsys: Captured) -> None:
    prepared(folder)
    assert run(["plan", "people.toml"]) == 0
    out = capsys.readouterr().out
    for words in ("typical", "worst", "every cell", "each count", "ε = 2", "δ = 0.000000001", "Nothing was spent"):
        assert words in out
    for words in ("OPT_", "unit noise", "singular", "Identity", "\x1b"):
        assert words not in out
    assert max(map(len, out.splitlines())) <= 80
    assert sorted(os.listdir(folder)) == ["people.parquet", "people.plan", "people.toml"]
    assert run(["plan", "people.toml", "--json"]) == 0
    found = told(capsys)
    for errors in found["errors"]:  # type: ignore[union-attr]
        assert errors["bound"] <= errors["rmse"] <= errors["direct"]
    assert [budget["error_factor"] for budget in found["budgets"]] == [4, 2, 1, 0.5, 0.25]  # type: ignore[union-attr]


def aimed(*lines: str) -> str:
    """The specification with keys added to its last table."""
    return SPEC.replace('ranges = ["age"]', "\n".join(['ranges = ["age"]', *lines]))


def test_plan_tells_the_least_budget_for_margins(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(load_spec(prepared(folder, aimed("margin = 60", "expected = 400"))))
    monkeypatch.setattr("hdmm.publication.planning.optimize", lambda *_, **__: plan)
    assert run(["plan", "people.toml", "--json"]) == 0
    found = told(capsys)
    ages = found["margins"][2]  # type: ignore[index]
    assert (ages["asked"], ages["expected"]) == (60, 400)
    assert ages["typical"] < ages["worst"]
    assert ages["relative"] == pytest.approx(ages["worst"] / 400)
    least = found["least"]
    assert least["reached"] == (ages["worst"] <= 60)  # type: ignore[index]
    assert least["declared_times_least"] == pytest.approx(60 / ages["worst"], rel=1e-3)  # type: ignore[index]
    (folder / "people.toml").write_text(
        (folder / "people.toml").read_text().replace('"0.5"', f'"{least["privacy"]["epsilon"]}"')  # type: ignore[index]
    )
    assert run(["plan", "people.toml"]) == 0  # at that budget the margin holds
    out = capsys.readouterr().out
    assert "reaches them: it is 1 times that." in out
    assert "was kept" in out
    assert max(map(len, out.splitlines())) <= 80


def test_plan_says_which_margins_a_budget_misses(folder: Path, capsys: Captured) -> None:
    prepared(folder, aimed("margin = 1"))
    assert run(["plan", "people.toml"]) == 0
    out = capsys.readouterr().out
    assert "does not reach them" in out
    assert "Too wide: ages ± " in out


def test_margins_of_known_counts_hold_at_any_budget(folder: Path, capsys: Captured) -> None:
    """Planning failed where all margins were of what is known, though another table has to be measured."""
    counted = '[[table]]\nname = "all"\nmarginals = [[]]\nmargin = 10\n\n[privacy]'
    prepared(folder, f"{SPEC.replace('[privacy]', counted)}\n[known]\ncounts = 500\n")
    assert run(["plan", "people.toml"]) == 0
    assert "is of known counts, and holds at any budget." in capsys.readouterr().out
    assert run(["plan", "people.toml", "--target", "ages=60", "--json"]) == 0
    assert told(capsys)["least"] is not None


def test_margins_below_one_row_are_warned_of(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a count, such as 2 %, is not what a margin is."""
    words = "0.02, which is less than one row. A margin is a number of rows: for 2 % of a count of 1,000, write 20,"
    plan = planned(load_spec(prepared(folder)))
    assert run(["check", "people.toml", "--json"]) == 0
    assert not any("less than one row" in line for line in told(capsys)["warnings"])  # type: ignore[union-attr]
    monkeypatch.setattr("hdmm.publication.planning.optimize", lambda *_, **__: plan)
    assert run(["plan", "people.toml", "--target", "P12=0.02", "--json"]) == 0
    assert any(words in line for line in told(capsys)["advice"])  # type: ignore[union-attr]
    for verbose in ([], ["--verbose"]):
        assert run(["plan", "people.toml", "--target", "P12=0.02", *verbose]) == 0
        assert words in " ".join(capsys.readouterr().out.split())
    monkeypatch.undo()
    monkeypatch.chdir(prepared(folder, aimed("margin = 0.02")).parent)
    assert run(["check", "people.toml"]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    assert run(["check", "people.toml", "--strict"]) == 1
    sums = SPEC.replace('ranges = ["age"]', 'sum = ["age"]\nmargin = 0.5')
    monkeypatch.chdir(prepared(folder, sums).parent)  # in years, not rows
    capsys.readouterr()
    assert run(["check", "people.toml", "--json"]) == 0
    assert not any("less than one row" in line for line in told(capsys)["warnings"])  # type: ignore[union-attr]


def test_targets_on_the_command_line_save_nothing(ready: Path, capsys: Captured) -> None:
    before = (ready / "people.plan" / "plan.json").stat().st_mtime_ns
    assert run(["plan", "people.toml", "--target", "P12=40", "--target", "ages=300", "--json"]) == 0
    found = told(capsys)
    assert [each["asked"] for each in found["margins"]] == [40, None, 300]  # type: ignore[index]
    assert (found["outcome"], found["plan"], found["objective"]) == ("trial", None, "margins")
    assert (ready / "people.plan" / "plan.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("P13=40", 1, "no table of that name. Did you mean 'P12'?"),
        ("P12=-1", 2, "not a margin of error"),
        ("P12=nan", 2, "not a margin of error"),
        ("P12=inf", 2, "not a margin of error"),
        ("P12=x", 2, "not a margin of error"),
        ("P12=0,5", 2, "Write 0.5, with a point in place of the comma."),
        ("P12", 2, "Write it as P12=50"),
        ("=5", 2, "Write it as P12=50"),
        ("P12=1e-200", 1, "no budget that can be written reaches"),
    ],
)
def test_targets_that_are_none_are_refused_before_the_search(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, target: str, code: int, words: str
) -> None:
    monkeypatch.delattr("hdmm.publication.planning.optimize")
    prepared(folder)
    assert run(["plan", "people.toml", "--target", target]) == code
    assert words in capsys.readouterr().err
    assert run(["plan", "people.toml", "--target", "P12=1", "--target", "P12=2"]) == 2
    assert "two targets" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('epsilon = "0.5"', 'epsilon = "0,5"'),
        ('epsilon = "0.5"', "epsilon = 0,5"),
        ('cap = { epsilon = "4" }', "cap = { epsilon = 0,5 }  # too little"),
        ('folder = "out"', 'folder = "out"\nlevel = "0,5"'),
        ('folder = "out"', 'folder = "out"\nlevel = 0,5'),
    ],
)
def test_a_number_with_a_comma_is_told_the_point(folder: Path, capsys: Captured, before: str, after: str) -> None:
    (folder / "people.toml").write_text(SPEC.replace(before, after))
    assert run(["check", "people.toml"]) == 1
    wrong = capsys.readouterr().err
    assert "people.toml, line " in wrong
    assert "Write 0.5, with a point in place of the comma." in wrong


def test_a_level_with_a_comma_is_told_the_point(folder: Path, capsys: Captured) -> None:
    assert run(["show", "out", "P12", "--level", "0,9"]) == 2
    assert "Write 0.9, with a point" in capsys.readouterr().err


@pytest.mark.usefixtures("whole_search")
def test_verbose_tells_how_the_plan_was_found(ready: Path, capsys: Captured) -> None:
    assert run(["plan", "people.toml", "--verbose"]) == 0
    out = capsys.readouterr().out
    for words in ("OPT_", "at unit noise", "a loose bound", "is the bound's own"):
        assert words in out


def test_an_interrupted_plan_is_saved_and_shown(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_spec(prepared(folder))
    best = replace(planned(spec), stopped="interrupted by the user")
    monkeypatch.setattr("hdmm.publication.planning.optimize", lambda *_, **__: best)
    assert run(["plan", "people.toml"]) == 130
    out = capsys.readouterr().out
    assert "Interrupted: this is the best plan so far." in out
    assert "typical" in out
    assert load_plan(spec.plan.folder).operator == best.operator
    assert run(["release", "people.toml", "--yes"]) == 0  # which uses it


@pytest.mark.parametrize(
    ("privacy", "others"),
    [
        ('rho = "0.02"', ["ρ = 0.02", "ε = 1.", "Pure ε has no δ"]),
        ('epsilon = "0.5"\ndelta = "1e-6"', ["ε = 0.5, δ = 0.000001", "Pure ε has no δ"]),
    ],
)
def test_plan_compares_gaussian_noise_with_pure_privacy(
    folder: Path, capsys: Captured, privacy: str, others: list[str]
) -> None:
    text = aimed("margin = 60").replace('epsilon = "0.5"', privacy).replace('epsilon = "4"', 'rho = "1"')
    prepared(folder, text)
    assert run(["plan", "people.toml"]) == 0
    out = capsys.readouterr().out
    for words in (*others, "laplace", "gaussian", " is the smallest budget that meets every margin."):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_release_budget_and_report(ready: Path, capsys: Captured) -> None:
    assert run(["release", "people.toml", "--yes"]) == 0
    printed = capsys.readouterr()
    assert "This spends ε = 0.5" in printed.out
    assert "ε = 3.5 left of ε = 4" in printed.out
    assert sorted(os.listdir(ready / "out" / "tables"))[:2] == ["P12.csv", "P12.parquet"]
    assert run(["budget", "people.toml"]) == 0
    assert "tables P12, pairs, ages" in " ".join(capsys.readouterr().out.split())  # over several lines
    assert run(["budget", "people.toml", "--json"]) == 0
    found = told(capsys)
    assert (found["cap"], found["spent"], found["remaining"]) == ("4", "1/2", "7/2")
    before = (ready / "out" / "report.html").read_bytes()
    (ready / "out" / "report.html").unlink()
    (ready / "people.parquet").unlink()
    assert run(["report", "people.toml"]) == 0
    assert (ready / "out" / "report.html").read_bytes() == before
    there = ["datapackage.json", "metadata.json", "plan", "release", "report.html", "tables"]
    assert sorted(os.listdir(ready / "out")) == there
    (ready / "people.toml").write_text(SPEC.replace("marginals = 2", "marginals = 1"))
    assert run(["report", "people.toml"]) == 1
    assert "other tables" in capsys.readouterr().err


def test_a_ledger_is_shown_without_a_specification(folder: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(4)).debit(PureDP("0.5"), "ages by sex")
    Ledger("budget.db", dataset="towns", cap=ZCDP(1))
    assert run(["budget", "--ledger", "budget.db"]) == 0
    out = capsys.readouterr().out
    assert "Dataset 'people-2026': ε = 3.5 left of ε = 4; ε = 0.5 spent." in out
    assert "Dataset 'towns': ρ = 1 left of ρ = 1; ρ = 0 spent." in out
    assert "ages by sex" in out
    assert run(["budget", "--ledger", "budget.db", "--json"]) == 0
    assert [each["dataset"] for each in told(capsys)["accounts"]] == ["people-2026", "towns"]  # type: ignore[union-attr]
    assert run(["budget", "--ledger", "none.db"]) == 4
    assert "There is no ledger none.db" in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == ["budget.db", "budget.db.head"]
    assert run(["budget"]) == 2
    assert run(["budget", "people.toml", "--ledger", "budget.db"]) == 2
    assert run(["budget", "--ledger", "budget.db", "--raise-cap", "--reason", "x"]) == 2


def test_release_with_a_plan_of_its_own_and_json(ready: Path, capsys: Captured) -> None:
    os.rename("people.plan", "elsewhere")
    assert run(["release", "people.toml", "--yes", "--plan", "elsewhere", "--json"]) == 0
    found = told(capsys)
    assert found["folder"] == "out"
    assert found["receipt"]["sequence"] == 3  # type: ignore[index]
    assert not (ready / "people.plan").exists()
    assert run(["release", "people.toml", "--yes", "--plan", "elsewhere", "--quiet"]) == 1  # out is there
    assert run(["release", "people.toml", "--yes", "--plan", "elsewhere", "--quiet", "--force"]) == 0
    assert capsys.readouterr().out == ""


def test_release_needs_a_yes(ready: Path, capsys: Captured) -> None:
    assert run(["release", "people.toml"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert not (ready / "budget.db").exists()


@pytest.mark.parametrize("answer", [True, False])
def test_release_asks_in_a_terminal(
    ready: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(app.click, "confirm", lambda text: asked.append(text) or answer)
    assert run(["release", "people.toml"]) == (0 if answer else 1)
    assert asked == ["Spend ε = 0.5?"]
    assert (ready / "out").exists() == answer
    assert (ready / "budget.db").exists() == answer


def test_a_release_without_a_plan_says_so_before_it_asks(folder: Path, capsys: Captured) -> None:
    prepared(folder)
    assert run(["release", "people.toml"]) == 2
    assert capsys.readouterr().out.startswith("There is no plan yet")
    planned(spec := load_spec("people.toml")).save(spec.plan.folder)
    assert run(["release", "people.toml"]) == 2
    assert "no plan" not in capsys.readouterr().out


def test_an_interrupted_question_spends_nothing(ready: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> bool:
        raise app.click.Abort

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(app.click, "confirm", interrupted)
    assert run(["release", "people.toml"]) == 130
    assert capsys.readouterr().out.endswith("Nothing was spent.\n")
    assert not (ready / "budget.db").exists()


def test_a_budget_that_is_spent_is_exit_code_3(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(4)).debit(PureDP("3.9"), "before")
    assert run(["release", "people.toml", "--yes"]) == 3
    assert "ε = 0.1 left" in capsys.readouterr().err
    assert not (ready / "out").exists()
    assert run(["release", "people.toml", "--yes", "--json"]) == 3
    wrong = json.loads(capsys.readouterr().err)
    assert (wrong["kind"], wrong["exit"]) == ("BudgetError", 3)


def recap(cap: str) -> None:
    """Write another cap into the specification."""
    path = Path("people.toml")
    path.write_text(re.sub(r"cap = \{.*\}", f"cap = {{ {cap} }}", path.read_text()))


def test_a_cap_is_raised_in_the_specification_and_then_in_the_ledger(ready: Path, capsys: Captured) -> None:
    """The way a refused release points at: write the cap, record it with its reason, release."""
    recap('epsilon = "0.6"')
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    assert run(["release", "people.toml", "--yes", "--force"]) == 3
    said = capsys.readouterr().err
    assert "ε = 0.1 left" in said
    assert "write a larger cap in [ledger] of people.toml" in said
    assert "hdmm budget people.toml --raise-cap --reason" in said

    recap('epsilon = "1"')
    assert run(["check", "people.toml"]) == 3
    assert "people.toml says ε = 1. The ledger's cap is the one that counts" in capsys.readouterr().err
    assert run(["release", "people.toml", "--yes", "--force"]) == 3  # the ledger's counts until it is told
    said = capsys.readouterr().err
    assert "The ledger's cap for dataset 'people-2026' is ε = 0.6; people.toml says ε = 1." in said
    assert "--raise-cap" in said

    assert run(["budget", "people.toml", "--raise-cap", "--reason", "board of 12 March", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "from ε = 0.6 to ε = 1" in out
    assert "ε = 0.5 left of ε = 1; ε = 0.5 spent" in out
    assert "board of 12 March" in out
    assert run(["release", "people.toml", "--yes", "--force", "--quiet"]) == 0
    ledger = Ledger("budget.db", dataset="people-2026")
    assert (ledger.cap, ledger.remaining) == (PureDP(1), 0)
    assert [entry.kind for entry in ledger.entries()] == ["create", "declare", "debit", "raise", "debit"]


def test_raising_a_cap_in_json(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(3))
    command = ["budget", "people.toml", "--raise-cap", "--reason", "decided", "--json"]
    assert run(command) == 2  # nobody can be asked
    assert Ledger("budget.db", dataset="people-2026").cap == PureDP(3)
    capsys.readouterr()
    assert run([*command, "--yes"]) == 0
    found = told(capsys)
    assert (found["cap"], found["spent"]) == ("4", "0")
    last = found["entries"][-1]  # type: ignore[index]
    assert (last["kind"], last["amount"], last["text"]) == ("raise", "4", "decided")


@pytest.mark.parametrize("answer", [True, False])
def test_raising_a_cap_asks_in_a_terminal(ready: Path, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(3))
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(app.click, "confirm", lambda text: asked.append(text) or answer)
    assert run(["budget", "people.toml", "--raise-cap", "--reason", "decided"]) == (0 if answer else 1)
    assert asked == ["Raise the cap from ε = 3 to ε = 4?"]
    assert Ledger("budget.db", dataset="people-2026").cap == PureDP(4 if answer else 3)


@pytest.mark.parametrize(
    ("declared", "words", "code"),
    [
        (None, "no account", 3),
        (PureDP(4), "not larger", 3),
        (PureDP(5), "not larger", 3),
        (ZCDP(1), "counts ρ", 3),
    ],
)
def test_a_cap_that_cannot_be_raised(
    ready: Path, capsys: Captured, declared: PureDP | ZCDP | None, words: str, code: int
) -> None:
    if declared is not None:
        Ledger("budget.db", dataset="people-2026", cap=declared)
    assert run(["budget", "people.toml", "--raise-cap", "--reason", "decided", "--yes"]) == code
    assert words in capsys.readouterr().err
    assert (ready / "budget.db").exists() == (declared is not None)
    if declared is not None:
        assert Ledger("budget.db", dataset="people-2026").cap == declared


def test_a_cap_is_raised_with_a_reason_only(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(3))
    assert run(["budget", "people.toml", "--raise-cap", "--yes"]) == 2
    assert run(["budget", "people.toml", "--reason", "decided"]) == 2
    assert run(["budget", "people.toml", "--raise-cap", "--reason", "", "--yes"]) == 4
    assert Ledger("budget.db", dataset="people-2026").cap == PureDP(3)


def test_a_cap_below_the_ledgers_is_noticed(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(5))
    assert run(["release", "people.toml", "--yes"]) == 3
    assert "is never lowered. Write it in [ledger] of people.toml" in capsys.readouterr().err
    recap("epsilon = 5")
    assert run(["release", "people.toml", "--yes"]) == 0


def test_a_ledger_in_trouble_is_exit_code_4(ready: Path, capsys: Captured) -> None:
    Ledger("budget.db", dataset="people-2026", cap=PureDP(4))
    (ready / "budget.db.head").unlink()
    for command in (["check"], ["budget"], ["release", "--yes"]):
        assert run([*command, "people.toml"]) == 4
    assert capsys.readouterr().err.count("error: ") == 3


def test_wrong_input_is_exit_code_1_and_wrong_usage_2(ready: Path, capsys: Captured) -> None:
    (ready / "people.toml").write_text(SPEC.replace("marginals = 2", "marginal = 2"))
    assert run(["check", "people.toml"]) == 1
    assert capsys.readouterr().err == (
        "error: people.toml, line 20, table[2].marginal: This key is unknown; keys: name, title, titles, "
        "note, columns, sql, marginals, ranges, sum, mean, quantiles, percent, weight, margin, expected. "
        "Did you mean 'marginals'?\n"
    )
    assert run(["chekc"]) == 2
    assert run(["check"]) == 2
    assert run(["--help"]) == 0
    assert "release" in capsys.readouterr().out
    assert run(["schema"]) == 0
    assert capsys.readouterr().out == schema_text()


@pytest.mark.parametrize(
    ("wrong", "code"), [(ValueError("CANARY"), 1), (MemoryError("CANARY"), 1), (KeyboardInterrupt("CANARY"), 130)]
)
def test_what_is_unexpected_tells_its_type_only(
    ready: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, wrong: BaseException, code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise wrong

    monkeypatch.setattr(sys.modules["hdmm.apps.cli.release_command"], "publish_ready", fails)
    monkeypatch.setenv("HDMM_DEBUG", "1")
    assert run(["release", "people.toml", "--yes"]) == code
    printed = capsys.readouterr()
    assert "CANARY" not in printed.out + printed.err
    assert "Traceback" not in printed.err
    assert printed.err.strip().startswith("error: ")


def test_neighbouring_tables_print_the_same(folder: Path, capsys: Captured) -> None:
    printed = []
    for n in (500, 499):
        (folder / str(n)).mkdir()
        os.chdir(folder / str(n))
        prepared(Path())
        pq.write_table(people().slice(0, n), "people.parquet")
        spec = load_spec("people.toml")
        planned(spec).save(spec.plan.folder)
        assert run(["release", "people.toml", "--yes"]) == 0
        printed.append(tuple(capsys.readouterr()))
    assert printed[0] == printed[1]


def test_the_program_itself(ready: Path) -> None:
    """As a process: module and exit codes; a terminal's colours only where they are wanted."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FORCE_COLOR": "1", "NO_COLOR": "1"}

    def hdmm(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hdmm", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = hdmm("check", "people.toml")
    assert done.returncode == 0, done.stderr
    assert "P12" in done.stdout
    assert not re.search(r"\x1b\[[0-9;]*(3|4|9|10)[0-7]", done.stdout)  # no colour
    assert hdmm("check", "none.toml").returncode == 1


def test_a_command_that_another_one_invokes_has_no_variables(ready: Path, capsys: Captured) -> None:
    """As demo does: then click skips what turns --set into a mapping."""
    context = click.Context(app.app)
    common = {"spec": ready / "people.toml", "as_json": False, "quiet": False}
    context.invoke(app.budget, **common, ledger=None, larger=False, reason=None, yes=False)
    assert "left of" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("whole_search")
def test_the_demo(folder: Path, capsys: Captured) -> None:
    assert run(["demo"]) == 0
    out = capsys.readouterr().out
    assert "hdmm-demo/out/report.html" in out
    assert (folder / "hdmm-demo" / "out" / "report.html").stat().st_size > 0
    assert run(["demo"]) == 1
    assert "not empty" in capsys.readouterr().err


def test_a_part_of_the_tables_has_a_plan_of_its_own(ready: Path, capsys: Captured) -> None:
    """plan and release with --only leave the plan of all tables as it is, and share theirs."""
    spec = load_spec("people.toml")
    planned(spec).save(spec.plan.folder)
    whole = {path.name: path.read_bytes() for path in spec.plan.folder.iterdir()}
    assert run(["plan", "people.toml", "--only", "P12"]) == 0
    assert "The plan is in people.plan.only-P12." in capsys.readouterr().out
    part = Path("people.plan.only-P12/plan.json").read_bytes()
    assert run(["release", "people.toml", "--only", "P12", "--output", "part", "--yes"]) == 0
    assert "Published 1 table in" in capsys.readouterr().out
    assert Path("people.plan.only-P12/plan.json").read_bytes() == part == Path("part/plan/plan.json").read_bytes()
    every = [word for name in ("P12", "pairs", "ages") for word in ("--only", name)]
    assert run(["release", "people.toml", *every, "--output", "all", "--yes"]) == 0  # which is no part
    assert run(["release", "people.toml", "--only", "pairs", "--output", "long", "--yes"]) == 0
    assert {path.name: path.read_bytes() for path in spec.plan.folder.iterdir()} == whole
    (long,) = set(Path().glob("people.plan.*")) - {Path("people.plan.only-P12")}
    assert len(long.name) <= len("people.plan.only-") + 16


def test_every_month_has_a_folder_that_is_made(ready: Path) -> None:
    """docs/guide/over-time.md as it is written; with a folder for the plan that is not there yet either."""
    text = (ready / "people.toml").read_text()
    text = text.replace('"out"', '"out/${YEAR}/${MONTH}"').replace("[plan]", '[plan]\nfolder = "plans/people"')
    (ready / "people.toml").write_text(text)
    for month in ("01", "02"):
        given = ["people.toml", "--set", "YEAR=2026", "--set", f"MONTH={month}"]
        assert run(["check", *given]) == 0
        assert run(["release", *given, "--yes"]) == 0
        assert Path(f"out/2026/{month}/report.html").is_file()
    assert Path("plans/people/plan.json").is_file()
    assert sorted(path.name for path in Path("out/2026").iterdir()) == ["01", "02"]


def test_a_folder_above_the_output_that_cannot_be_made_costs_nothing(ready: Path, capsys: Captured) -> None:
    (ready / "people.toml").write_text((ready / "people.toml").read_text().replace('"out"', '"people.parquet/x/out"'))
    assert run(["release", "people.toml", "--yes"]) == 1
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    assert not Path("budget.db").exists()
