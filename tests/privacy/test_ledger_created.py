"""A ledger whose creation was interrupted is created anew; one that was emptied or removed is refused (L1, L6)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from hdmm import Ledger, LedgerError, PureDP, load_release, load_spec
from hdmm.apps.cli import run
from hdmm.privacy.audit import audit_of
from hdmm.publication.budget import budget_of
from tests.measure.test_faults import ended, forked
from tests.support.spec_cases import SPEC, planned, prepared
from tests.support.stopped import killed_at

Captured = pytest.CaptureFixture[str]
DATASET = "people-2026"
SMALL = SPEC.replace('[[table]]\nname = "pairs"\nmarginals = 2\nweight = 2\n', "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification that is ready to be released, in the current folder, without a ledger."""
    monkeypatch.chdir(tmp_path)
    spec = load_spec(prepared(tmp_path, SMALL))
    planned(spec).save(spec.plan.folder)
    return tmp_path


def create() -> None:
    Ledger("budget.db", dataset=DATASET, cap=PureDP(4))


def remove() -> None:
    for name in Path().glob("budget.db*"):
        name.unlink()
    shutil.rmtree("out", ignore_errors=True)


def works(capsys: Captured) -> None:
    """All commands work, one release is published, and exactly that is paid for."""
    assert run(["check", "people.toml", "--quiet"]) == 0
    assert run(["budget", "people.toml", "--quiet"]) == 0
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["budget", "people.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spent"] == "1/2"
    load_release("out/release").verify(Ledger("budget.db", dataset=DATASET))


def refused(capsys: Captured, words: str) -> None:
    """Nothing works, with the exit code of a ledger that cannot be trusted, and nothing is written."""
    before = {path.name: path.read_bytes() for path in Path().glob("budget.db*")}
    for command in (["check", "people.toml"], ["budget", "people.toml"], ["release", "people.toml", "--yes"]):
        assert run(command) == 4, command
        assert words in capsys.readouterr().err
    assert run(["budget", "--ledger", "budget.db"]) == 4
    assert words in capsys.readouterr().err
    assert not Path("out").exists()
    assert {path.name: path.read_bytes() for path in Path().glob("budget.db*")} == before


def test_l6_an_empty_file_without_a_head_is_no_ledger_yet(folder: Path, capsys: Captured) -> None:
    Path("budget.db").touch()
    assert audit_of("budget.db") is None
    assert budget_of(load_spec("people.toml")).audit is None
    with pytest.raises(LedgerError, match="missing"):
        Ledger("budget.db", dataset=DATASET)
    assert Path("budget.db").read_bytes() == b""
    assert run(["budget", "--ledger", "budget.db"]) == 4
    assert "There is no ledger" in capsys.readouterr().err
    works(capsys)


def test_l6_an_emptied_ledger_whose_head_is_left_is_refused(folder: Path, capsys: Captured) -> None:
    create()
    Path("budget.db").write_bytes(b"")
    refused(capsys, "the database is empty, though its head file is at record 2")


def test_l6_a_removed_ledger_whose_head_is_left_is_refused(folder: Path, capsys: Captured) -> None:
    create()
    Path("budget.db").unlink()
    refused(capsys, "the database is missing, though its head file is at record 2")


@pytest.mark.parametrize("content", [b"\0", b"\0" * 4096, b"SQLite format 3\0", b"\n"])
def test_l6_a_file_that_holds_anything_is_not_taken_for_an_empty_one(
    folder: Path, capsys: Captured, content: bytes
) -> None:
    Path("budget.db").write_bytes(content)
    for command in (["check", "people.toml"], ["budget", "people.toml"], ["release", "people.toml", "--yes"]):
        assert run(command) == 4, command
    assert Path("budget.db").read_bytes() == content


@pytest.mark.parametrize("limit", [0, 1, 100, 512, 4096, 8192, 16384, 20480])
def test_l6_a_disk_that_is_full_while_a_ledger_is_created(folder: Path, capsys: Captured, limit: int) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            create()
        except LedgerError:
            os._exit(10)

    assert ended(forked(work)) in (0, 10)
    works(capsys)


def test_l6_killed_at_some_moments_of_the_creation(folder: Path, capsys: Captured) -> None:
    """The slow test takes every moment."""
    for stop in (60, 121):  # an empty file; a journal that SQLite rolls back
        assert killed_at(stop, create)
        works(capsys)
        remove()


@pytest.mark.slow
def test_l6_killed_at_every_system_call_of_the_creation(folder: Path, capsys: Captured) -> None:
    """Whatever is left, commands work, and the budget is whole. They are run for every state that is left."""
    stop, before = 0, None
    while True:
        stop += 1
        remove()
        if not killed_at(stop, create):
            break
        left = [(path.name, path.stat().st_size) for path in sorted(Path().glob("budget.db*"))]
        if left != before:
            works(capsys)
        before = left
    assert stop > 200
