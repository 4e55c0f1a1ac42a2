"""Releases on a bad day: killed, crowded, out of disk, with a broken ledger or table (L1, L2, L6, F5, O3)."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hdmm import (
    BudgetError,
    DataError,
    Domain,
    FileError,
    Ledger,
    LedgerError,
    PureDP,
    Strategy,
    Workload,
    from_array,
    from_table,
    load_release,
)
from hdmm.measure.measure import measure
from tests.support.families import FAMILIES, PLANE

X = np.arange(12).reshape(4, 3)
CANARY = "Jane-Doe-4711"


def forked(work: Callable[[], None]) -> int:
    """The id of a child that does the work and ends without cleaning up after the parent."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def release_all(ledger_path: Path, folder: Path, most: int) -> None:
    """Releases until the budget is spent."""
    ledger = Ledger(ledger_path, dataset="people", cap=PureDP(1000))
    for number in range(most):
        try:
            release = measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
        except BudgetError:
            return
        release.save(folder / f"{os.getpid()}-{number}")


def saved(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".hdmm-")]


@pytest.mark.parametrize("kills", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_kill_9_leaves_no_release_without_a_debit(kills: int, tmp_path: Path) -> None:
    """L1: at any moment. Debits without a release may be left, never the other way round."""
    ledger_path, folder = tmp_path / "budget.db", tmp_path / "releases"
    folder.mkdir()
    Ledger(ledger_path, dataset="people", cap=PureDP(1000))
    moments, seen = random.Random(5), set[Path]()
    for kill in range(20 * kills):
        if kill >= kills and seen:  # a busy machine needs more and later ones for a release to be made at all
            break
        child = forked(lambda: release_all(ledger_path, folder, 1000))
        time.sleep(moments.uniform(0.0, 0.15) * (1 + kill // kills))
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
        ledger = Ledger(ledger_path, dataset="people")  # opens, and verifies its chain
        for path in set(saved(folder)) - seen:
            receipt = load_release(path).receipt
            assert receipt is not None
            ledger.verify(receipt)
            seen.add(path)
    assert len(seen) <= Ledger(ledger_path, dataset="people").spent
    assert seen
    receipts = [load_release(path).receipt for path in seen]
    assert len({receipt.sequence for receipt in receipts if receipt}) == len(seen)


def test_processes_share_one_cap(tmp_path: Path) -> None:
    """L2: eight processes, a budget for thirty releases: thirty releases, each with a debit of its own."""
    path, folder = tmp_path / "budget.db", tmp_path / "releases"
    folder.mkdir()
    Ledger(path, dataset="people", cap=PureDP(30))

    def work() -> None:
        ledger = Ledger(path, dataset="people")
        for number in range(30):
            try:
                release = measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
            except BudgetError:
                return
            release.save(folder / f"{os.getpid()}-{number}")

    children = [forked(work) for _ in range(8)]
    assert [ended(child) for child in children] == [0] * 8
    ledger = Ledger(path, dataset="people")
    receipts = [load_release(each).receipt for each in saved(folder)]
    assert len(receipts) == ledger.spent == 30
    assert len({receipt.hash for receipt in receipts if receipt}) == 30
    ledger.verify(*[receipt for receipt in receipts if receipt])


@pytest.mark.parametrize("limit", [0, 100, 2000, 20_000])
def test_a_full_disk(limit: int, tmp_path: Path) -> None:
    """F5, L1: no part of a release is left, and what was debited stays debited."""
    domain = Domain({"x": 10_000})
    w = Workload.marginals(domain, k=1)
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        outcome = "saved"
        try:
            release = measure(
                Strategy.identity(domain), from_array(domain, np.zeros(10_000, int)), PureDP(1), ledger=ledger
            )
            release.answer(w)
            release.save(tmp_path / "release")
        except LedgerError:
            outcome = "refused"
        except FileError:
            outcome = "not saved"
        os._exit({"saved": 10, "refused": 11, "not saved": 12}[outcome])

    code = ended(forked(work))
    assert code in (11, 12)
    assert not (tmp_path / "release").exists()
    assert not list(tmp_path.glob(".hdmm-*"))
    spent = Ledger(tmp_path / "budget.db", dataset="people").spent
    assert spent == 1 if code == 12 else spent in (0, 1)


@pytest.mark.parametrize("damage", ["garbage", "empty", "gone", "head gone"])
def test_a_broken_ledger_keeps_data_unread(damage: str, tmp_path: Path) -> None:
    """L6: no debit, no data."""
    path = tmp_path / "budget.db"
    ledger = Ledger(path, dataset="people", cap=PureDP(10))
    measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
    match damage:
        case "garbage":
            path.write_bytes(b"no database" * 1000)
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case _:
            path.with_name("budget.db.head").unlink()
    frame = tmp_path / "people.csv"
    frame.write_text("x,y\n0,0\n")
    data = from_table(PLANE, frame)
    frame.write_text("x,y\n" + f"{CANARY},1\n")
    with pytest.raises(LedgerError) as caught:
        measure(FAMILIES["product"], data, PureDP(1), ledger=ledger)
    assert CANARY not in str(caught.value)
    with pytest.raises(LedgerError):
        Ledger(path, dataset="people")


def test_a_missing_column_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    path = tmp_path / "people.csv"
    path.write_text(f"x,z\n0,{CANARY}\n")
    with pytest.raises(DataError, match="'y'") as caught:
        measure(FAMILIES["product"], from_table(PLANE, path), PureDP(1), ledger=ledger)
    assert CANARY not in str(caught.value)
    assert ledger.spent == 0


def test_a_table_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    path = tmp_path / "people.csv"
    path.write_text("x,y\n0,0\n")
    data = from_table(PLANE, path)
    path.unlink()
    with pytest.raises(DataError):
        measure(FAMILIES["product"], data, PureDP(1), ledger=ledger)
    assert ledger.spent == 0


def test_a_broken_row_is_no_event(tmp_path: Path) -> None:
    """I1, O3: a row that is none is dropped; the release looks as without it."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1000))
    path = tmp_path / "people.csv"
    shapes = set()
    for row in ("", f'"{CANARY},1\n', f"{CANARY}\n", f"1,2,{CANARY}\n", "\xff\n", f"{CANARY},{CANARY}\n", ",\n"):
        path.write_text("x,y\n" + "0,0\n" * 500 + row, encoding="latin-1")
        release = measure(FAMILIES["product"], from_table(PLANE, path), PureDP(100), ledger=ledger)
        total = release.answer(Workload.marginals(PLANE, k=0)).values[0]
        assert total == pytest.approx(500, abs=3)
        shapes.add((repr(release), tuple(y.shape for y in release.measurements)))
    assert len(shapes) == 1


def test_a_folder_that_cannot_be_written_leaves_the_release_in_memory(tmp_path: Path) -> None:
    """F5: the budget is spent, the release is not lost: it can be saved elsewhere."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    release = measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "no" / "such" / "release", tmp_path / "file", tmp_path / "file" / "release"):
        with pytest.raises(FileError):
            release.save(path)
    assert (tmp_path / "file").read_text() == "not a folder"
    back = load_release(release.save(tmp_path / "release"))
    assert back.receipt == release.receipt


def test_nothing_of_the_data_is_left_on_disk(tmp_path: Path) -> None:
    """O4: after a release, and after a kill amid one, no file holds a true count."""
    counts = 60_000_000_000 + np.arange(12).reshape(4, 3)
    folder = tmp_path / "out"
    folder.mkdir()

    def work() -> None:
        os.chdir(folder)
        data = from_array(PLANE, counts, rows_bound=2**36)
        ledger = Ledger(folder / "budget.db", dataset="people", cap=PureDP(1000))
        for number in range(1000):
            measure(FAMILIES["product"], data, PureDP("0.001"), ledger=ledger).save(folder / f"{number}")

    child = forked(work)
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    ended(child)
    needles = [int(v).to_bytes(8, "little") for v in counts.ravel()]
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(needle in content for needle in needles)
            assert not any(str(int(v)).encode() in content for v in counts.ravel())


def test_a_release_says_what_was_spent_and_nothing_else(tmp_path: Path) -> None:
    """The keys of the file: a true count would need one of its own."""
    release = measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=None)
    content = json.loads((release.save(tmp_path / "release") / "release.json").read_text())["content"]
    assert set(content) == {"strategy", "scales", "privacy", "unit", "receipt", "mark", "rows"}
    assert len(content["mark"]) == 32  # random
    assert {len(digest) for digest in content["rows"].values()} == {64}  # of public facts (security O7)
