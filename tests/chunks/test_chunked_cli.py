"""`hdmm release --engine dask`: the tables of a specification from a release in chunks."""

from __future__ import annotations

import csv
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hdmm import FileError, Ledger, load_release, load_spec
from hdmm.apps.cli import run
from hdmm.measure.chunked_release import load_chunked
from hdmm.publication.answered import answer_tables
from hdmm.publication.files import FORMATS
from tests.engines.test_engines import here
from tests.support.spec_cases import planned, prepared

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

    def dask(scheduler: str | None, folder: Path, *, unencrypted: bool) -> Any:
        asked.append((scheduler, folder, unencrypted))
        return here(tmp_path / folder, chunk_bytes=2**16, scheduler=scheduler, unencrypted=unencrypted)

    monkeypatch.setattr("hdmm.apps.cli.release_command.dask", dask)
    return asked


def shown(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_tables_are_published_from_chunks(chunks: list[Any], tmp_path: Path, capsys: Any) -> None:
    assert run([*RELEASE, *FOLDER, "--scheduler", "tls://there:8786"]) == 0
    assert chunks == [("tls://there:8786", Path("kept"), False)]
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
        patch.setattr("hdmm.publication.files.FORMATS", [replace(FORMATS[0], write=fails)])
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
        patch.setattr("hdmm.publication.files.FORMATS", [replace(FORMATS[0], write=fails)])
        options = ["--scheduler", "tcp://there:8786", "--unencrypted"]
        assert run([*RELEASE, "--engine-folder", "kept here", *options]) != 0
    said = " ".join(capsys.readouterr().err.split())
    command = shlex.split(said.split("run hdmm ")[1].removesuffix("."))
    expected = [
        "--engine-folder",
        str(tmp_path / "kept here" / "chunks"),
        "--scheduler",
        "tcp://there:8786",
        "--unencrypted",
        "--resume",
    ]
    assert command == ["release", "people.toml", "--engine", "dask", *expected]
    assert run(["release", "people.toml", "--yes"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "--engine dask --engine-folder FOLDER --resume. FOLDER is where its chunks are." in said
    command[command.index("--engine-folder") + 1] = "kept here"  # here() adds the folder of chunks itself
    assert run(command) == 0


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import hdmm.measure.chunked_release
import hdmm.apps.cli.release_command
from hdmm.apps.cli import main
from tests.engines.test_engines import here

hdmm.apps.cli.release_command.dask = lambda scheduler, folder, **options: here(Path(folder), chunk_bytes=2**16)
save, when = hdmm.measure.chunked_release.ChunkedRelease.save, sys.argv[1]

def saved(self, path=None):
    if path is None and when == "whole":
        save(self)
    os.kill(os.getpid(), signal.SIGKILL)  # before there is a record beside the output folder

hdmm.measure.chunked_release.ChunkedRelease.save = saved
sys.argv = ["hdmm", "release", "people.toml", "--yes", "--engine", "dask", "--engine-folder", "kept"]
main()
"""


def killed(when: str) -> None:
    """A release that is killed once its chunks are measured: when their record is written, too, or before it is."""
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", KILLED, when], env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == -signal.SIGKILL


def left() -> Any:
    spec = load_spec("people.toml")
    return Ledger(spec.ledger.path, dataset=spec.data.dataset).remaining


def test_a_release_that_is_whole_in_chunks_is_resumed_from_there(chunks: list[Any], capsys: Any) -> None:
    """The run is killed when all is measured, before the output folder's side knows of it. It is paid for once."""
    killed("whole")
    spent, spec = left(), load_spec("people.toml")
    assert run([*RELEASE, *FOLDER]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "holds a release. To publish that without spending anything, add --resume" in said
    assert run(["release", "people.toml", "--resume"]) == 1  # nothing says where the chunks are
    assert run([*RELEASE, *FOLDER, "--resume"]) == 0
    assert left() == spent
    release = load_chunked(here(Path("kept").absolute(), chunk_bytes=2**16))
    for table in answer_tables(spec, release, [None] * len(spec.tables)):  # type: ignore[list-item]
        published = pq.read_table(spec.output.folder / "tables" / f"{table.name}.parquet")
        assert published["estimate"].to_pylist() == pytest.approx(table.estimate.tolist(), abs=1e-6)
    assert not spec.output.folder.with_name(f"{spec.output.folder.name}.unpublished").exists()
    assert run([*RELEASE, *FOLDER, "--resume"]) == 1  # there is a publication, which stays
    assert run([*RELEASE, *FOLDER, "--resume", "--force"]) == 0
    assert left() == spent


def test_a_release_that_is_not_whole_in_chunks_is_not_resumed(chunks: list[Any], capsys: Any) -> None:
    killed("not whole")
    spent = left()
    assert run([*RELEASE, *FOLDER, "--resume"]) == 1
    assert "There is no release" in capsys.readouterr().err
    assert run([*RELEASE, *FOLDER]) == 1
    assert "Give each release a new folder" in " ".join(capsys.readouterr().err.split())
    assert left() == spent


def test_chunks_that_nobody_paid_for_are_not_published(chunks: list[Any], capsys: Any) -> None:
    """L7 holds for what is resumed from chunks: another ledger, dataset or budget, other rows, a flipped byte."""
    killed("whole")
    text = Path("people.toml").read_text()
    dataset = load_spec("people.toml").data.dataset
    for old, new in (
        (dataset, "others"),
        ('epsilon = "0.5"', 'epsilon = "0.25"'),
        ("budget.db", "other.db"),
        ("[data]\n", "[data]\nwhere = \"sex = 'M'\"\n"),
    ):
        assert old in text
        Path("people.toml").write_text(text.replace(old, new))
        assert run([*RELEASE, *FOLDER, "--resume"]) != 0
        assert not load_spec("people.toml").output.folder.exists()
        assert run(["release", "people.toml", "--resume"]) == 1  # and nothing of it is kept
    Path("people.toml").write_text(text)
    for path in sorted(Path("kept/chunks").rglob("*")):
        if path.is_file() and path.parent.name != "plan":
            content = path.read_bytes()
            middle = content.index(b'"scales":["') + 11 if path.suffix == ".json" else len(content) // 2
            for at in (0, middle, len(content) - 2):
                path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
                assert run([*RELEASE, *FOLDER, "--resume"]) != 0, (path, at)
            path.write_bytes(content)
    assert not load_spec("people.toml").output.folder.exists()
    assert run([*RELEASE, *FOLDER, "--resume"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (RELEASE, "Name a new one with --engine-folder"),
        (["release", "people.toml", "--yes", *FOLDER], "Add --engine dask"),
        (["release", "people.toml", "--yes", "--engine", "gpu", "--scheduler", "tcp://there:1"], "Add --engine dask"),
        ([*RELEASE, *FOLDER, "--unencrypted"], "Add --scheduler"),
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
