"""`hdmm release --engine dask`: the tables of a specification from a release in chunks."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hdmm import FileError, Ledger, load_release, load_spec
from hdmm.chunked import load_chunked
from hdmm.cli import run
from hdmm.publication.tables import answer_tables
from tests.spec_cases import planned, prepared
from tests.test_engines import here

RELEASE = ["release", "people.toml", "--yes", "--engine", "dask"]
FOLDER = ["--engine-folder", "kept"]


@pytest.fixture
def chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A folder with a specification and its plan; what the command asks of Dask is answered by this process."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    spec = load_spec("people.toml")
    planned(spec).save(spec.plan.folder)
    asked: list[Any] = []

    def dask(scheduler: str | None, folder: Path) -> Any:
        asked.append((scheduler, folder))
        return here(tmp_path / folder, chunk_bytes=2**16, scheduler=scheduler)

    monkeypatch.setattr("hdmm.cli.release.dask", dask)
    return asked


def shown(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_tables_are_published_from_chunks(chunks: list[Any], tmp_path: Path, capsys: Any) -> None:
    assert run([*RELEASE, *FOLDER, "--scheduler", "tcp://there:8786"]) == 0
    assert chunks == [("tcp://there:8786", Path("kept"))]
    spec = load_spec("people.toml")
    release = load_chunked(here(tmp_path / "kept", chunk_bytes=2**16))
    for table in answer_tables(spec, release, [None] * len(spec.tables)):  # type: ignore[list-item]
        published = pq.read_table(spec.output.folder / "tables" / f"{table.name}.parquet")
        assert published["estimate"].to_pylist() == pytest.approx(table.estimate.tolist(), abs=1e-6)
    release.verify(Ledger(spec.ledger.path, dataset=spec.data.dataset))
    with pytest.raises(FileError, match="measured in chunks, which lie in the folder of its engine"):
        load_release(spec.output.folder / "release")
    capsys.readouterr()
    assert run(["query", str(spec.output.folder), "SELECT COUNT(*) FROM t"]) == 1
    assert "measured in chunks" in capsys.readouterr().err


def test_a_publication_that_failed_is_resumed_from_its_chunks(
    chunks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hdmm.publication.folder.write_csv", fails)
        assert run([*RELEASE, *FOLDER]) == 1
    spec = load_spec("people.toml")
    left = Ledger(spec.ledger.path, dataset=spec.data.dataset).remaining
    assert not spec.output.folder.exists()
    assert run(["release", "people.toml", "--resume"]) == 1
    assert "measured in chunks" in capsys.readouterr().err
    assert run([*RELEASE, *FOLDER, "--resume"]) == 0
    assert shown(spec.output.folder / "tables" / f"{spec.tables[0].name}.csv")
    assert Ledger(spec.ledger.path, dataset=spec.data.dataset).remaining == left


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_the_command_that_is_said_to_resume_does(
    chunks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, failure: BaseException
) -> None:
    """It names the engine; a run that does not know the engine says what is to be named."""

    def fails(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr("hdmm.publication.folder.write_csv", fails)
        assert run([*RELEASE, "--engine-folder", "kept here", "--scheduler", "tcp://there:8786"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    command = shlex.split(said.split("run hdmm ")[1].removesuffix("."))
    expected = [
        "--engine-folder",
        str(tmp_path / "kept here" / "chunks"),
        "--scheduler",
        "tcp://there:8786",
        "--resume",
    ]
    assert command == ["release", "people.toml", "--engine", "dask", *expected]
    assert run(["release", "people.toml", "--yes"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "--engine dask --engine-folder FOLDER --resume. FOLDER is where its chunks are." in said
    command[command.index("--engine-folder") + 1] = "kept here"  # here() adds the folder of chunks itself
    assert run(command) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (RELEASE, "Name a new one with --engine-folder"),
        (["release", "people.toml", "--yes", *FOLDER], "Add --engine dask"),
        (["release", "people.toml", "--yes", "--engine", "gpu", "--scheduler", "tcp://there:1"], "Add --engine dask"),
    ],
)
def test_options_that_do_not_belong_together(
    chunks: list[Any], arguments: list[str], message: str, capsys: Any
) -> None:
    assert run(arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert chunks == []


def test_counts_that_are_not_computed_in_chunks_cost_nothing(chunks: list[Any], capsys: Any) -> None:
    text = Path("people.toml").read_text()
    Path("people.toml").write_text(text.replace("[output]", '[output]\ncounts = "nonnegative"'))
    assert run([*RELEASE, *FOLDER]) == 1
    assert "nonnegative counts, which are not computed in chunks" in " ".join(capsys.readouterr().err.split())
    assert not load_spec("people.toml").ledger.path.exists()
