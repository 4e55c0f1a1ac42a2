"""A value in the address of the data is neither published nor recorded, and no message has it (security O6)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import duckdb
import pytest

from hdmm import DataError, load_spec
from hdmm.apps.cli import run
from hdmm.apps.studio.edits import RemoveTable
from hdmm.apps.studio.server import Studio
from hdmm.apps.studio.spec_file import StudioFile
from hdmm.data.engines.address import Address, has_secret, is_address, without_password
from hdmm.data.table_like import from_table
from hdmm.publication import publish as folder_module
from hdmm.publication.forecast import forecasts
from hdmm.publication.metadata import metadata
from hdmm.publication.preflight import purpose_of, source_name
from hdmm.publication.spec import read_spec
from hdmm.publication.spec.origin import open_data
from tests.support.spec_cases import SPEC, people, planned, write_spec

Captured = pytest.CaptureFixture[str]
SECRET = "hunter2-s3cr3t"
FILES = SPEC.replace("dataset =", 'table = "people"\ndataset =')
SERVER = FILES.replace("people.csv", "postgres://me:${PASSWORD}@nowhere.invalid/town")
GIVEN = ["--set", f"PASSWORD={SECRET}"]


def written(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the data itself, whose name has the secret."""
    paths = (path for path in folder.rglob("*") if path.is_file() and SECRET not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def clean(folder: Path, capsys: Captured) -> tuple[str, str]:
    """What was printed; neither that nor any file holds the secret."""
    said = capsys.readouterr()
    assert SECRET not in said.out
    assert SECRET not in said.err
    for name, content in written(folder).items():
        assert SECRET.encode() not in content, name
        assert SECRET not in name
    return said.out, said.err


def make(engine: str, folder: Path) -> str:
    """A database in a file whose name has the secret, and the source that names it by a variable."""
    path, rows = folder / f"{SECRET}.db", people()
    if engine == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("given", rows)
            connection.execute("CREATE TABLE people AS SELECT * FROM given")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(
                "CREATE TABLE people (sex TEXT, age INTEGER, smokes INTEGER, income INTEGER, who INTEGER)"
            )
            values = zip(*(rows.column(name).to_pylist() for name in rows.schema.names), strict=True)
            connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?)", values)
        connection.close()
    return f"{engine}://{folder}/${{PASSWORD}}.db"


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_o6_a_variable_in_the_address_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, engine: str
) -> None:
    """Every command with a real release: its folder, a failed one, the plan, the ledger, and all that is printed."""
    monkeypatch.chdir(tmp_path)
    text = FILES.replace("people.csv", make(engine, tmp_path)).replace('"People"', '"People of ${PLACE}"')
    given = [*GIVEN, "--set", "PLACE=Berlin"]
    write_spec(tmp_path, text)
    for command in (["check"], ["check", "--json"], ["plan"], ["plan", "--json", "--force"], ["budget"]):
        assert run([command[0], "people.toml", *command[1:], *given]) == 0
        clean(tmp_path, capsys)
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "render", lambda *_: 1 / 0)
        assert run(["release", "people.toml", "--yes", *given]) == 1
    said = clean(tmp_path, capsys)[1]
    assert "hdmm release people.toml --set 'PASSWORD=…' --set PLACE=Berlin --resume" in said
    assert run(["check", "people.toml", *given]) == 1
    clean(tmp_path, capsys)
    assert run(["release", "people.toml", "--resume", *given]) == 0
    assert run(["report", "people.toml", "--xlsx", *given]) == 0
    assert run(["release", "people.toml", "--yes", "--force", "--json", *given]) == 0
    assert run(["plan", "people.toml", "--with", "out", *given]) == 0
    assert run(["budget", "people.toml", "--json", *given]) == 0
    out, _ = clean(tmp_path, capsys)
    assert "PLACE=Berlin" in out
    assert "PASSWORD" not in out.replace("PASSWORD=…", "")
    stated = json.loads(Path("out/metadata.json").read_text())["specification"]
    assert stated["variables"] == {"PLACE": "Berlin"}
    assert len(stated["sha256"]) == 64


@pytest.mark.parametrize("command", [["check"], ["check", "--json"], ["release", "--yes"]])
@pytest.mark.parametrize(
    "source",
    [
        "postgres://me:${PASSWORD}@localhost:1/town",
        "postgres://localhost:1/town?user=me&password=${PASSWORD}",
        "postgres://me@localhost:1/town?sslkey=/${PASSWORD}",
        "postgres://me@localhost:1/${PASSWORD}",
        "postgres://${PASSWORD}@localhost:1/town",
        "Postgres://me:${PASSWORD}@localhost:1/town",
        "postgres://me:5?${PASSWORD}@localhost:1/town",
        "s3://${PASSWORD}@bucket/people.parquet",
        "sqlite://${PASSWORD}.db",
        "duckdb://${PASSWORD}.db",
        "sqlite://people.db?key=${PASSWORD}",
        "file:///${PASSWORD}",
        "${PASSWORD}://x",
        "me:${PASSWORD}@localhost",
        "host=localhost password=${PASSWORD}",
    ],
)
def test_o6_a_database_that_cannot_be_opened_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, source: str, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = load_spec(write_spec(tmp_path, FILES.replace("people.csv", source)), variables={"PASSWORD": SECRET})
    planned(spec).save(spec.plan.folder)
    assert run([command[0], "people.toml", *command[1:], *GIVEN]) == 1
    clean(tmp_path, capsys)
    assert SECRET not in spec.command
    assert SECRET not in purpose_of(spec, None)
    assert SECRET not in source_name(spec)


def test_o6_the_studio_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Neither its page, its offer, nor the file that it saves."""
    monkeypatch.chdir(tmp_path)
    source = make("duckdb", tmp_path)
    spec = load_spec(write_spec(tmp_path, FILES.replace("people.csv", source)), variables={"PASSWORD": SECRET})
    planned(spec).save(spec.plan.folder)
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "render", lambda *_: 1 / 0)
        assert run(["release", "people.toml", "--yes", *GIVEN]) == 1
    file = StudioFile(tmp_path / "people.toml", {"PASSWORD": SECRET})
    studio, seen = Studio(file), file.snapshot().digest
    shown = json.dumps([studio.state(), studio.pulse(), studio.outlook()], ensure_ascii=False)
    assert "--set 'PASSWORD=…' --resume" in shown
    assert SECRET not in shown
    shutil.rmtree("out.unpublished")
    assert SECRET not in json.dumps(studio.offer(seen))
    studio.edit(RemoveTable("pairs"), seen)
    assert b"${PASSWORD}" in Path("people.toml").read_bytes()
    clean(tmp_path, capsys)


@pytest.mark.parametrize(
    "given",
    [
        f"postgres://me:{SECRET}@localhost:1/town",
        f"postgres://localhost:1/town?password={SECRET}",
        f"postgres://me@localhost:1/town?sslpassword={SECRET}",
        f"https://{SECRET}@localhost/rows.csv",
        f"https://localhost/rows.csv?X-Amz-Signature={SECRET}",
        f"https://localhost/rows.csv?a=b#{SECRET}",
        f"duckdb://people.db?motherduck_token={SECRET}",
        f"POSTGRES://me:{SECRET}@localhost:1/town",
    ],
)
def test_o6_a_source_on_the_command_line_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path, FILES)
    spec = load_spec("people.toml", source=given)
    assert SECRET not in spec.command
    assert SECRET not in purpose_of(spec, None)
    for command in ("check", "release"):
        assert run([command, "people.toml", "--source", given, *(["--yes"] if command == "release" else [])]) == 1
        clean(tmp_path, capsys)
    assert has_secret(given) or "#" in given


def test_o6_options_that_hold_no_secret_are_repeated(tmp_path: Path) -> None:
    for url in ("postgres://me@/town?host=/run/socket&port=5433", "postgres://db/town?sslmode=require"):
        assert without_password(url) == url
        assert not has_secret(url)
    assert without_password("postgres://me:x@db/town?sslmode=require") == "postgres://me:…@db/town?sslmode=require"


def test_o6_a_password_in_the_file_is_warned_about_and_its_digest_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Whoever has the rest of the file could guess the password by the digest."""
    monkeypatch.chdir(tmp_path)
    text = SERVER.replace("${PASSWORD}", SECRET)
    spec = read_spec(text.encode(), Path("people.toml"))
    assert spec.tells_secret
    data = from_table(spec.domain, people())
    plan = planned(spec)
    release = plan.measure(data, spec.privacy, ledger=None)
    stated = metadata(spec, release, forecasts(spec, release.form))["specification"]
    assert stated == {"file": "people.toml"}
    write_spec(tmp_path, text)
    assert run(["release", "people.toml", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "warning: A password, token or key is written into source in people.toml" in " ".join(said.split())
    assert SECRET not in said


@pytest.mark.parametrize(
    ("source", "tells"),
    [
        ("postgres://me:secret@db/town", True),
        ("postgres://me:${PASSWORD}@db/town", False),
        ("postgres://me:se${PASSWORD}@db/town", True),
        ("postgres://me@db/town", False),
        ("postgres://db/town?password=secret", True),
        ("postgres://db/town?sslkey=/home/me/key.pem", False),
        ("https://token@host/x", True),
        ("${URL}", False),
        ("people.parquet", False),
    ],
)
def test_o6_what_is_written_into_a_file_is_told_from_what_is_given(source: str, tells: bool) -> None:
    variables = {name: "x://" for name in ("PASSWORD", "URL") if f"${{{name}}}" in source}
    spec = read_spec(FILES.replace("people.csv", source).encode(), Path("people.toml"), variables)
    assert spec.tells_secret == tells
    assert spec.withheld == frozenset(variables)
    assert spec.recorded == {}


def test_o6_a_path_is_no_address_and_its_variables_tell_months_apart(tmp_path: Path) -> None:
    text = SPEC.replace("people.csv", "people-${MONTH}.parquet")
    spec = read_spec(text.encode(), Path("people.toml"), {"MONTH": "5"})
    assert spec.recorded == {"MONTH": "5"}
    assert purpose_of(spec, None).endswith("from people-5.parquet by people.toml, MONTH=5")
    with pytest.raises(DataError, match=r"people-5\.parquet"):
        open_data(spec)
    assert not is_address("people-5.parquet")


def test_o6_a_password_that_looks_like_a_port_is_not_shown() -> None:
    assert Address.of("postgres://me:5?ecret@db/town") is None


def test_o6_set_does_not_repeat_what_it_cannot_read(capsys: Captured, tmp_path: Path) -> None:
    write_spec(tmp_path, SERVER)
    for given in (SECRET, f"={SECRET}", f"PASSWORD:{SECRET}"):
        assert run(["check", str(tmp_path / "people.toml"), "--set", given]) == 2
        assert SECRET not in capsys.readouterr().err
