"""hdmm init: what describes a table becomes a specification, without a look at its rows; a terminal is asked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from hdmm import Amount, load_spec
from hdmm.apps.cli import init_command as commands
from hdmm.apps.cli import run

Captured = pytest.CaptureFixture[str]
CANARY = "canary-7319"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """A terminal in which somebody gives these answers; the questions are returned."""
    asked: list[str] = []
    left: Iterator[str] = iter(answers)

    def prompt(question: str, default: str = "", **_: object) -> str:
        asked.append(question)
        return next(left) or default

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(commands.click, "prompt", prompt)
    return asked


FIELDS = [
    {"name": "sex", "type": "string", "constraints": {"enum": ["M", "F"]}},
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": "114"}},
    {"name": "smokes", "type": "boolean"},
    {"name": "party", "type": "string", "categories": [{"value": "a", "label": "A"}, {"value": "b"}]},
    {"name": "income", "type": "number", "constraints": {"minimum": 0, "maximum": 9}},
    {"name": "note", "type": "string\n[domain]"},
]


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ({"fields": FIELDS}, []),
        ({"resources": [{"name": "people", "schema": {"fields": FIELDS}}]}, []),
        (
            {"resources": [{"name": "towns", "schema": {}}, {"name": "people", "schema": {"fields": FIELDS}}]},
            ["--table", "people"],
        ),
    ],
)
def test_a_table_schema_or_data_package_is_a_dictionary(folder: Path, content: Any, more: list[str]) -> None:
    (folder / "datapackage.json").write_text(json.dumps(content))
    assert run(["init", "--from", "datapackage.json", *more, "--quiet"]) == 0
    domain = load_spec("hdmm.toml").domain
    assert {name: domain[name].size for name in domain.names} == {"sex": 2, "age": 115, "smokes": 2, "party": 2}
    text = (folder / "hdmm.toml").read_text()
    assert "# income =    # number: which values can it hold?" in text
    assert text.count("\n[domain]") == 1


def test_pandas_writes_such_a_schema(folder: Path) -> None:
    frame = pd.DataFrame({"sex": pd.Categorical(["M"], categories=["M", "F"]), "ok": [True]})
    schema = pd.io.json.build_table_schema(frame, index=False)  # type: ignore[attr-defined]
    (folder / "schema.json").write_text(json.dumps(schema))
    assert run(["init", "--from", "schema.json", "--quiet"]) == 0
    assert load_spec("hdmm.toml").domain["sex"].labels == ("M", "F")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "neither a Table Schema"),
        ("{", "is not JSON"),
        ('{"fields": [{"type": "string"}]}', "neither a Table Schema"),
        ('{"resources": [{"name": "a"}, {"name": "b"}]}', "has the resources a, b. Name one of them with --table."),
        (f'{{"schema": {{"fields": []}}, "data": [{{"sex": "{CANARY}"}}]}}', "holds rows beside its schema"),
        ('{"fields": [{"name": "age", "type": "integer"}]}', "No column has declared values; the columns are age."),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(folder: Path, capsys: Captured, content: str, words: str) -> None:
    (folder / "schema.json").write_text(content)
    assert run(["init", "--from", "schema.json"]) == 1
    wrong = capsys.readouterr().err
    assert words in wrong
    assert CANARY not in wrong
    assert os.listdir(folder) == ["schema.json"]


@pytest.mark.parametrize("name", ["people.parquet", "people.feather"])
def test_a_file_is_described_by_its_schema_alone(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = pa.table({"sex": pa.array([CANARY, "F"]).dictionary_encode(), "age": [1, 2], "smokes": [True, False]})
    pq.write_table(table, name) if name.endswith("parquet") else pyarrow.feather.write_feather(table, name)
    assert run(["init", "--from", name]) == 0
    spec = load_spec("hdmm.toml")
    assert spec.domain.names == ("smokes",)
    assert spec.data.source == ("people.parquet" if name.endswith("parquet") else "people.csv")
    assert CANARY not in (folder / "hdmm.toml").read_text()
    asked = answering(monkeypatch, "M|F", "0..3", "oops")
    assert run(["init", "asked.toml", "--from", name]) == 0
    assert [question.partition(" (")[0] for question in asked] == ["Values of sex", "Values of age"]
    assert load_spec("asked.toml").domain.shape == (2, 4, 2)
    assert CANARY not in "".join(capsys.readouterr())


def test_a_broken_file_says_so(folder: Path, capsys: Captured) -> None:
    (folder / "x.arrow").write_bytes(b"no")
    assert run(["init", "--from", "x.arrow"]) == 1
    assert "cannot be read as a file of Parquet, Feather or Arrow" in capsys.readouterr().err


def people_database(file: Path) -> None:
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('glad', 'it''s')")
        connection.execute(
            """CREATE TABLE people (
            sex VARCHAR CHECK (sex IN ('M', 'F')), Age INTEGER CHECK (age >= 0 AND 114 >= age), feels mood, ok BOOLEAN,
            income DOUBLE CHECK (income > 0), kids SMALLINT, step BIGINT CHECK (step > -2), town VARCHAR,
            grade VARCHAR CHECK (grade = 'a' OR grade = 'b'), other VARCHAR CHECK (lower(other) IN ('x')),
            CHECK (kids BETWEEN 1 AND 5 AND step < 3), CHECK (income > kids), CHECK (NOT (town IN ('x'))))"""
        )
        row = f"('M', 30, 'glad', true, 9, 2, 0, '{CANARY}', 'a', 'X')"
        connection.execute(f"INSERT INTO people VALUES {row}")


def test_a_duckdb_catalogue_gives_types_and_constraints(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    people_database(folder / "people.duckdb")
    statements: list[str] = []

    def recorded(file: Path) -> Any:
        connection = duckdb.connect(str(file), read_only=True)

        class Recorder:
            def execute(self, statement: str, *more: Any) -> Any:
                statements.append(statement)
                return connection.execute(statement, *more)

            def close(self) -> None:
                connection.close()

        return Recorder()

    with monkeypatch.context() as patch:
        patch.setattr("hdmm.apps.scaffold.catalogue.open_duckdb", recorded)
        assert run(["init", "--from", "people.duckdb"]) == 0
    spec = load_spec("hdmm.toml")
    assert (spec.data.source, spec.data.table) == ("people.duckdb", "people")
    domain = spec.domain
    assert {name: domain[name].labels[:3] for name in domain.names} == {
        "sex": ("M", "F"),
        "Age": (0, 1, 2),
        "feels": ("glad", "it's"),
        "ok": (False, True),
        "kids": (1, 2, 3),
        "step": (-1, 0, 1),
        "grade": ("a", "b"),
    }
    assert (domain["Age"].size, domain["step"].size) == (115, 4)
    text = (folder / "hdmm.toml").read_text()
    for left in ("income", "town", "other"):
        assert f"# {left} = " in text
    assert run(["check", "hdmm.toml", "--quiet"]) == 0
    # No statement reads a table: each is from functions of the catalogue.
    assert len(statements) == 3
    with duckdb.connect(str(folder / "people.duckdb"), read_only=True) as connection:
        for statement in statements:
            bound = statement.replace("?", "'people'")
            plan = "".join(str(row) for row in connection.execute(f"EXPLAIN {bound}").fetchall())
            assert "DUCKDB_" in plan
            assert "SEQ_SCAN" not in plan.replace("people.main", "people")
            assert "Table: people" not in plan
    assert CANARY not in text + "".join(capsys.readouterr())


def test_a_table_of_several_is_named(folder: Path, capsys: Captured) -> None:
    people_database(folder / "people.duckdb")
    with duckdb.connect("people.duckdb") as connection:
        connection.execute("CREATE VIEW persons AS SELECT sex FROM people")
        connection.execute("CREATE SCHEMA raw; CREATE TABLE raw.people (elsewhere INTEGER CHECK (elsewhere < 9))")
    assert run(["init", "--from", "people.duckdb"]) == 1
    assert "has several tables; its tables are people, persons." in capsys.readouterr().err
    assert run(["init", "--from", "people.duckdb", "--table", "peeple"]) == 1
    assert "Did you mean 'people'?" in capsys.readouterr().err
    assert run(["init", "--from", "people.duckdb", "--table", "people", "--quiet"]) == 0
    assert "elsewhere" not in (folder / "hdmm.toml").read_text()
    assert run(["init", "x.toml", "--from", "mysql://u:p@h/d"]) == 1
    assert "mysql" in capsys.readouterr().err
    assert run(["init", "x.toml", "--table", "people"]) == 2


def test_a_terminal_is_asked_for_names_values_and_tables(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["town.csv", "town-2026", "sex", "M,F", "M|F", "age", "0..114", "sex", "hh income", "bins 0|10|50"]
    answers += ["ok", "true|false", "", "sex,agee", "sex, age", "hh income", ""]
    asked = answering(monkeypatch, *answers)
    assert run(["init"]) == 0
    out = capsys.readouterr().out
    assert "'M,F' is not a list of values." in out
    assert "sex is there already." in out
    assert "'agee' is not a column; there are sex, age, hh income, ok. Did you mean 'age'?" in out
    assert len(asked) == len(answers)
    spec = load_spec("hdmm.toml")
    assert (spec.data.source, spec.data.dataset) == ("town.csv", "town-2026")
    assert spec.domain.shape == (2, 115, 2, 2)
    assert [table.columns for table in spec.tables] == [("sex", "age"), ("hh income",)]
    assert run(["init"]) == 1  # before anything is asked
    assert len(asked) == len(answers)


def test_nothing_is_written_without_a_column(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "", "", "", "")
    assert run(["init"]) == 1
    assert "No column has declared values" in capsys.readouterr().err
    assert os.listdir(folder) == []


def test_the_questions_in_a_real_terminal(folder: Path) -> None:
    above, below = pty.openpty()
    command = [sys.executable, "-m", "hdmm", "init"]
    with subprocess.Popen(command, stdin=below, stdout=below, stderr=below, close_fds=True) as process:
        os.close(below)
        os.write(above, b"\n\nsex\nM|F\n\n\n")
        shown = b""
        while process.poll() is None or not shown.endswith(b"hdmm.toml\r\n"):
            try:
                shown += os.read(above, 10_000)
            except OSError:  # the other end was closed
                break
    os.close(above)
    assert process.returncode == 0
    assert b"Values of sex" in shown
    assert load_spec("hdmm.toml").domain["sex"].labels == ("M", "F")


@pytest.mark.parametrize(("columns", "tables"), [("sex,labels,M|F\n", 1), ("sex,labels,M|F\nage,integers,0..9\n", 2)])
def test_a_first_specification_may_be_for_rows(folder: Path, columns: str, tables: int) -> None:
    """`hdmm rows` makes rows that serve many uses from the tables of every attribute and every pair of them."""
    Path("dictionary.csv").write_text(f"name,type,values\n{columns}")
    assert run(["init", "rows.toml", "--from", "dictionary.csv", "--rows", "--quiet"]) == 0
    names = [query.name for query in load_spec("rows.toml").tables]
    assert {name.partition("_")[0] for name in names} == set(["singles", "pairs"][:tables])


def test_a_dictionary_has_groups_and_amounts(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.csv"
    path.write_text("name,type,values\nsex,labels,M|F\nage,integers,0..114 decade:10\nwage,amount,0..20000\n")
    assert run(["init", str(tmp_path / "new.toml"), "--from", str(path), "--quiet"]) == 0
    spec = load_spec(tmp_path / "new.toml")
    assert [level.name for level in spec.domain["age"].values.levels] == ["decade"]
    assert spec.domain["wage"].values == Amount(0, 20_000)
    assert spec.tables[-1].group == "mean_wage"
    path.write_text("name,type,values\nwage,amount,20000..0\n")
    assert run(["init", str(tmp_path / "bad.toml"), "--from", str(path)]) == 1
    path.write_text("name,type,values\nwage,amount,0..20000\n")
    assert run(["init", str(tmp_path / "bad.toml"), "--from", str(path)]) == 1
