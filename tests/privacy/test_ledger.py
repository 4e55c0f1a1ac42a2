"""The ledger: durable, atomic, append-only, bound to the dataset, and fail-closed (security L1-L6, S4)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
import hdmm.privacy.ledger as ledger_module
import hdmm.privacy.store as store_module
from hdmm import ZCDP, BudgetError, HdmmError, Ledger, LedgerError, PrivacyError, PureDP
from hdmm.privacy.chain import Broken, Draft, Record, Verified, chained, follow
from hdmm.privacy.units import UNITS, account, charge
from tests.support.effort import examples

DATASET = "people-2026"


class Killed(BaseException):
    """A process ending at this very point."""


def opened(path: Path, cap: PureDP | ZCDP | None = None, **options: float) -> Ledger:
    return Ledger(path, dataset=DATASET, cap=cap, **options)


def head(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def copied(path: Path, target: Path) -> None:
    shutil.copy(path, target)
    shutil.copy(head(path), head(target))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture(scope="module")
def spent_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spent") / "budget.db"
    opened(path, PureDP(4)).debit(PureDP("0.5"), "first table")
    return path


@pytest.fixture
def ledger(spent_ledger: Path, path: Path) -> Ledger:
    """A cap of 4, of which 0.5 is spent; copied, since a debit waits for the disk."""
    copied(spent_ledger, path)
    return opened(path, PureDP(4))


def python(script: str, *arguments: object) -> str:
    """What a script prints; it must end well. One process forks the others, so that hdmm is imported once."""
    source = Path(hdmm.__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        printed, complaints = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the forked ones, too
        process.communicate()
        raise
    assert process.returncode == 0, complaints
    return printed


# What it does


def test_a_debit_is_recorded_with_a_receipt(ledger: Ledger, path: Path) -> None:
    receipt = ledger.debit(PureDP("1/3"), "second table")
    assert (receipt.dataset, receipt.parameter, receipt.amount) == (DATASET, "epsilon", Fraction(1, 3))
    assert receipt.balance == ledger.remaining == 4 - Fraction(1, 2) - Fraction(1, 3)
    assert ledger.spent + ledger.remaining == 4
    assert ledger.cap == PureDP(4)
    assert ledger.verify(receipt) == receipt.sequence == 4
    assert [(entry.kind, entry.text) for entry in ledger.entries()[1:]] == [
        ("declare", ""),
        ("debit", "first table"),
        ("debit", "second table"),
    ]
    assert ledger.entries()[-1].hash == receipt.hash
    assert opened(path, PureDP(4)).remaining == receipt.balance


def test_a_budget_can_be_spent_to_the_last_unit_and_no_further(path: Path) -> None:
    ledger = opened(path, PureDP(1))
    for _ in range(3):
        ledger.debit(PureDP("0.1"), "a tenth")
    for _ in range(2):
        ledger.debit(PureDP("1/3"), "a third")
    ledger.debit(PureDP(ledger.remaining), "the rest")
    assert ledger.remaining == 0
    with pytest.raises(
        BudgetError, match=r"'people-2026' has ε = 0 left of its cap ε = 1, but the debit is ε ≈ 1.43430094388E-61"
    ):
        ledger.debit(PureDP("1e-150"), "one unit: what is smaller is rounded up")
    assert ledger.spent == 1


def test_the_refusal_says_what_is_left_and_what_was_asked(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match=r"has ε = 3.5 left of its cap ε = 4, but the debit is ε = 3.6"):
        ledger.debit(PureDP("3.6"), "too much")
    assert ledger.spent == Fraction(1, 2)


def test_zcdp_accounts_take_rho_and_pure_epsilon(path: Path) -> None:
    ledger = opened(path, ZCDP(1))
    assert ledger.debit(ZCDP("0.25"), "gaussian").amount == Fraction(1, 4)
    assert ledger.debit(PureDP("0.5"), "laplace").amount == Fraction(1, 8)
    assert ledger.cap == ZCDP(1)
    with pytest.raises(BudgetError, match=r"ρ = 0.625 left of its cap ρ = 1, but the debit is ρ = 2"):
        ledger.debit(PureDP(2), "too much")


def test_pure_accounts_refuse_zcdp(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="cannot be charged to an account of pure"):
        ledger.debit(ZCDP("0.001"), "gaussian")
    assert ledger.spent == Fraction(1, 2)


def test_datasets_in_one_file_have_budgets_of_their_own(ledger: Ledger, path: Path) -> None:
    other = Ledger(path, dataset="firms-2026", cap=ZCDP(2))
    other.debit(ZCDP(1), "firms")
    ledger.debit(PureDP(1), "people")
    assert (ledger.spent, other.spent) == (Fraction(3, 2), 1)
    assert {entry.dataset for entry in other.entries()} == {"", "firms-2026"}


@pytest.mark.parametrize("name", ["People-2026", "PEOPLE-2026", "ｐeople-2026"])
def test_a_name_that_reads_like_another_is_not_a_new_budget(ledger: Ledger, path: Path, name: str) -> None:
    with pytest.raises(BudgetError, match="its name is close to 'people-2026'"):
        Ledger(path, dataset=name, cap=PureDP(4))
    assert ledger.verify() == 3


def test_the_cap_is_part_of_the_record(ledger: Ledger, path: Path) -> None:
    for cap in (PureDP(5), PureDP(3), ZCDP(4)):
        with pytest.raises(BudgetError, match="was declared with the cap ε = 4"):
            opened(path, cap)
    assert opened(path).cap == PureDP(4)
    with pytest.raises(BudgetError, match="has no account in this ledger; accounts: 'people-2026'"):
        Ledger(path, dataset="firms")
    assert ledger.verify() == 3


def test_raising_the_cap_is_a_record_of_its_own(ledger: Ledger, path: Path) -> None:
    for cap in (PureDP(4), PureDP(3), ZCDP(8)):
        with pytest.raises(BudgetError, match="can only be raised"):
            ledger.raise_cap(cap, reason="not larger")
    other = opened(path)
    entry = ledger.raise_cap(PureDP(8), reason="board decision 12")
    assert (entry.kind, entry.amount, entry.text) == ("raise", 8, "board decision 12")
    assert other.remaining == Fraction(15, 2)  # an open ledger sees it
    with pytest.raises(BudgetError):
        opened(path, PureDP(4))
    assert opened(path, PureDP(8)).entries()[-1] == entry


@pytest.mark.parametrize("text", ["", " x", "x ", "a\nb", "a\0b", "\ud800", "e\u0301", "x" * 501, None, 3, b"x"])
def test_texts_are_one_printable_line(ledger: Ledger, path: Path, text: str) -> None:
    with pytest.raises(LedgerError):
        ledger.debit(PureDP(1), text)
    with pytest.raises(LedgerError):
        ledger.raise_cap(PureDP(9), reason=text)
    with pytest.raises(LedgerError):
        Ledger(path, dataset=text, cap=PureDP(1))
    assert ledger.verify() == 3


def test_texts_of_any_language_survive(ledger: Ledger) -> None:
    for text in ("Ålder 性別 🔒", "'; DROP TABLE records; --", '"\\', "x" * 500):
        ledger.debit(PureDP("0.1"), text)
        assert ledger.entries()[-1].text == text
    assert ledger.verify() == 7


def test_there_is_no_way_to_give_back() -> None:
    public = {name for name in dir(Ledger) if not name.startswith("_")}
    assert public == {
        "adopt", "cap", "dataset", "debit", "entries", "epsilon_at",
        "path", "raise_cap", "remaining", "spent", "unit", "verify",
    }  # fmt: skip


def test_a_wrong_clock_is_harmless(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=400 * i) for i in range(20))
    monkeypatch.setattr(ledger_module, "_now", lambda: next(times).isoformat())
    receipts = [ledger.debit(PureDP("0.1"), "backwards") for _ in range(3)]
    assert receipts[0].timestamp > receipts[1].timestamp > receipts[2].timestamp
    assert opened(path, PureDP(4)).verify(*receipts) == 6


# S4: exact, or rounded to the safe side

amounts = st.fractions(min_value=Fraction(1, 2**80), max_value=2**80, max_denominator=10**40)


@given(amounts)
def test_s4_spends_round_up_and_caps_down_by_less_than_a_unit(amount: Fraction) -> None:
    assert 0 <= charge(PureDP(amount), "epsilon") - amount * UNITS < 1
    assert 0 <= charge(ZCDP(amount), "rho") - amount * UNITS < 1
    assert 0 <= charge(PureDP(amount), "rho") - amount**2 / 2 * UNITS < 1
    assert 0 <= amount * UNITS - account(PureDP(amount)).cap < 1


@given(st.lists(amounts, min_size=1, max_size=20))
def test_s4_the_sum_never_understates(spends: list[Fraction]) -> None:
    cap = account(PureDP(sum(spends))).cap
    total = sum(charge(PureDP(spend), "epsilon") for spend in spends)
    assert total >= floor(sum(spends) * UNITS) >= cap


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 12, 52, 60, 73, 97, 100, 365, 1000, 10**6])
def test_s4_equal_parts_of_a_decimal_are_whole_units(parts: int) -> None:
    share = Fraction("3.141592653589") / parts
    assert ceil(share * UNITS) * parts == account(PureDP("3.141592653589")).cap


def test_s4_a_cap_below_the_unit_is_refused(path: Path) -> None:
    with pytest.raises(PrivacyError, match="below"):
        opened(path, PureDP("1e-100"))
    assert not path.exists()


# L1: durable before it returns, and never taken back

KILL = """
import os, random, signal, sys, time
from hdmm import Ledger, PureDP
path, out, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
draw = random.Random(7)
for kill in range(20 * kills):
    if kill >= kills and os.path.getsize(out):  # a busy machine needs more and later ones for a debit to be made at all
        break
    child = os.fork()
    if child == 0:
        ledger = Ledger(path, dataset="people-2026", cap=PureDP(10**6))
        with open(out, "a") as released:
            while True:
                receipt = ledger.debit(PureDP(1), "table")
                print(receipt.sequence, receipt.hash, file=released, flush=True)
    time.sleep(draw.uniform(0.001, 0.15) * (1 + kill // kills))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    Ledger(path, dataset="people-2026", cap=PureDP(10**6)).verify()
"""


@pytest.mark.parametrize("kills", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_l1_kill_9_leaves_no_release_without_a_debit(tmp_path: Path, path: Path, kills: int) -> None:
    out = tmp_path / "released"
    out.touch()
    python(KILL, path, out, kills)
    ledger = opened(path, PureDP(10**6))
    debits = {f"{entry.sequence} {entry.hash}" for entry in ledger.entries() if entry.kind == "debit"}
    lines = out.read_text().split("\n")
    assert lines.pop() == ""
    assert lines
    assert set(lines) <= debits
    assert len(set(lines)) == len(lines)
    assert len(debits) - len(lines) <= kills  # a killed run stays charged, for one debit at most
    assert ledger.spent == len(debits)
    assert ledger.debit(PureDP(1), "after").sequence == ledger.verify()


def test_l1_a_failed_run_stays_charged(path: Path) -> None:
    ledger = opened(path, PureDP(4))

    def run() -> None:
        ledger.debit(PureDP(1), "table")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run()
    assert opened(path).spent == 1


@pytest.mark.parametrize("call", [1, 2, 3])
def test_l1_killed_between_commit_and_head(path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The first head is of the creation, the second of the declaration, the third of the debit."""
    killing(monkeypatch, store_module, "write_head", call)
    with pytest.raises(Killed):
        opened(path, PureDP(4)).debit(PureDP(1), "killed")
    monkeypatch.undo()
    ledger = opened(path, PureDP(4))
    assert ledger.spent == (1 if call == 3 else 0)
    assert ledger.debit(PureDP(1), "next").sequence == ledger.verify() == (4 if call == 3 else 3)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_l1_killed_between_writing_and_renaming_the_head(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    killing(monkeypatch, Path, "replace", call)
    with pytest.raises(Killed):
        opened(path, PureDP(4)).debit(PureDP(1), "killed")
    monkeypatch.undo()
    assert opened(path, PureDP(4)).debit(PureDP(1), "next").sequence == opened(path).verify()


@pytest.mark.parametrize("call", [1, 2, 3])
def test_l1_killed_before_the_commit(path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    killing(monkeypatch, store_module.Store, "_commit", call)
    with pytest.raises(Killed):
        opened(path, PureDP(4)).debit(PureDP(1), "killed")
    monkeypatch.undo()
    assert opened(path, PureDP(4)).spent == 0


def test_l1_killed_after_every_commit_in_turn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run catches the head up before it commits, so that the head never lags by two."""
    commit = store_module.Store._commit

    def killed(store: store_module.Store, db: sqlite3.Connection, record: Record) -> None:
        with pytest.MonkeyPatch.context() as inner:
            killing(inner, store_module, "write_head", 1)
            commit(store, db, record)

    monkeypatch.setattr(store_module.Store, "_commit", killed)
    for _ in range(4):  # the creation, the declaration, two debits
        with pytest.raises(Killed):
            opened(path, PureDP(4)).debit(PureDP(1), "killed")
    monkeypatch.undo()
    assert opened(path, PureDP(4)).spent == 2


def killing(monkeypatch: pytest.MonkeyPatch, place: object, name: str, call: int) -> None:
    """End the process, as it were, at the n-th call of a function."""
    calls, function = iter(range(1, 100)), getattr(place, name)

    def killed(*arguments: object) -> object:
        if next(calls) == call:
            raise Killed
        return function(*arguments)

    monkeypatch.setattr(place, name, killed)


def test_l1_the_connection_is_as_durable_as_promised(ledger: Ledger) -> None:
    with ledger._audit.store._connection() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA: FULL, and the folder
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_l1_the_head_and_its_folder_are_flushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []

    def fsync(file: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{file}")))

    monkeypatch.setattr(os, "fsync", fsync)
    ledger = opened(path, PureDP(4))
    assert flushed[0] == path.parent  # the name of the database, before anything is in it
    flushed.clear()
    ledger.debit(PureDP(1), "table")
    assert flushed == [head(path).with_name("budget.db.head.new"), path.parent]


# L2: atomic across processes, threads and forks

RACE = """
import os, sys
from hdmm import BudgetError, Ledger, PureDP
path, out, processes, debits, cap = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
for i in range(processes):
    if os.fork() == 0:
        ledger, done = Ledger(path, dataset="people-2026", cap=PureDP(cap), timeout=120), 0
        for _ in range(debits):
            try:
                ledger.debit(PureDP(1), f"process {i}")
                done += 1
            except BudgetError:
                pass
        with open(f"{out}{i}", "w") as file:
            print(done, file=file)
        os._exit(0)
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(processes)))
"""


@pytest.mark.parametrize(
    ("processes", "debits", "cap"), [(4, 60, 100), pytest.param(8, 300, 1000, marks=pytest.mark.slow)]
)
def test_l2_processes_share_one_cap(path: Path, tmp_path: Path, processes: int, debits: int, cap: int) -> None:
    python(RACE, path, tmp_path / "done", processes, debits, cap)
    done = [int((tmp_path / f"done{i}").read_text()) for i in range(processes)]
    ledger = opened(path, PureDP(cap))
    assert sum(done) == cap == ledger.spent
    assert [entry.kind for entry in ledger.entries()] == ["create", "declare"] + ["debit"] * cap


def test_l2_threads_share_one_ledger(ledger: Ledger) -> None:
    refused: list[BudgetError] = []
    sequences: list[int] = []

    def spend() -> None:
        for _ in range(5):
            try:
                sequences.append(ledger.debit(PureDP("0.25"), "thread").sequence)
            except BudgetError as error:
                refused.append(error)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(sequences), len(set(sequences)), len(refused)) == (14, 14, 6)
    assert ledger.remaining == 0


FORK = """
import os, sys, threading
from hdmm import Ledger, PureDP
ledger = Ledger(sys.argv[1], dataset="people-2026", cap=PureDP(100), timeout=60)
ending = threading.Event()
def spend():
    while not ending.is_set():
        ledger.debit(PureDP("0.001"), "thread of the parent")
        ending.wait(0.002)
thread = threading.Thread(target=spend)
thread.start()
children = []
for i in range(8):  # the thread has a connection open most of the time: a fork waits until it has not
    child = os.fork()
    if child == 0:
        ledger.debit(PureDP(1), f"child {i}")
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
ending.set()
thread.join()
ledger.verify()
print(codes, sum(entry.text.startswith("child") for entry in ledger.entries()))
"""


def test_l2_an_open_ledger_can_be_used_after_a_fork(path: Path) -> None:
    assert python(FORK, path).strip() == f"{[0] * 8} 8"


def test_l2_an_open_ledger_can_be_sent_to_another_process(ledger: Ledger) -> None:
    sent = pickle.loads(pickle.dumps(ledger))
    sent.debit(PureDP(1), "elsewhere")
    assert ledger.spent == sent.spent == Fraction(3, 2)


# L3: append-only

ROW = "kind, dataset, parameter, units, text, time"
TAMPERING = [
    "UPDATE records SET units = '1'",
    "UPDATE records SET text = 'other' WHERE sequence = 3",
    "DELETE FROM records",
    "DELETE FROM records WHERE sequence = 3",
    "INSERT OR REPLACE INTO records SELECT * FROM records WHERE sequence = 3",
    f"REPLACE INTO records SELECT 2, {ROW}, previous, hash FROM records WHERE sequence = 3",
    "INSERT INTO records SELECT * FROM records WHERE sequence = 3",
    f"INSERT INTO records SELECT 4, {ROW}, previous, hash FROM records WHERE sequence = 3",
    f"INSERT INTO records SELECT 9, {ROW}, hash, hash FROM records WHERE sequence = 3",
    f"INSERT INTO records SELECT NULL, {ROW}, hash, hash FROM records WHERE sequence = 3",
]


@pytest.mark.parametrize("statement", TAMPERING)
def test_l3_update_delete_and_replay_are_refused(ledger: Ledger, path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)
    assert ledger.verify() == 3


@pytest.mark.parametrize("statement", TAMPERING[:4])
@pytest.mark.parametrize("keep", ["live", "reopened"])
@pytest.mark.parametrize("repaired", [False, True])
def test_l3_tampering_past_the_triggers_is_noticed(
    ledger: Ledger, path: Path, statement: str, keep: str, repaired: bool
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(statement)
        for _, sql in triggers if repaired else ():
            db.execute(sql)
        db.commit()
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.verify() if keep == "live" else opened(path, PureDP(4))


def test_l3_a_replayed_record_breaks_the_chain(ledger: Ledger, path: Path) -> None:
    """A record copied to the end with a fitting previous hash passes the triggers, not the chain."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"INSERT INTO records SELECT 4, {ROW}, hash, hash FROM records WHERE sequence = 3")
        db.commit()
    for use in (lambda: ledger.debit(PureDP(1), "next"), lambda: ledger.spent, lambda: opened(path)):
        with pytest.raises(LedgerError, match="record 4 was altered"):
            use()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER no_update",
        "CREATE TRIGGER more AFTER INSERT ON records BEGIN SELECT 1; END",
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE INDEX more ON records (hash)",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 1",
    ],
)
def test_l3_a_changed_schema_is_refused(ledger: Ledger, path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    for use in (lambda: ledger.debit(PureDP(1), "next"), lambda: opened(path, PureDP(4))):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            use()


CREATE = Draft("create", "id", "now")
DECLARE = Draft("declare", "", "now", DATASET, "epsilon", 4)
DEBIT = Draft("debit", "table", "now", DATASET, "epsilon", 3)
UNLAWFUL = {
    "spends more than was left": (CREATE, DECLARE, DEBIT, DEBIT),
    "spends nothing": (CREATE, DECLARE, replace(DEBIT, units=0)),
    "gives back": (CREATE, DECLARE, DEBIT, replace(DEBIT, units=-3)),
    "lowers a cap": (CREATE, DECLARE, replace(DECLARE, kind="raise", units=3)),
    "declares again": (CREATE, DECLARE, DEBIT, replace(DECLARE, units=9)),
    "declares no parameter": (CREATE, replace(DECLARE, parameter="")),
    "declares no cap": (CREATE, replace(DECLARE, units=0)),
    "spends in no account": (CREATE, DECLARE, replace(DEBIT, dataset="others")),
    "spends rho of epsilon": (CREATE, DECLARE, replace(DEBIT, parameter="rho")),
    "creates twice": (CREATE, DECLARE, CREATE),
    "never creates": (DECLARE,),
}


@pytest.mark.parametrize("drafts", UNLAWFUL.values(), ids=UNLAWFUL)
def test_l3_records_with_true_hashes_must_be_lawful(drafts: tuple[Draft, ...]) -> None:
    verified = Verified()
    for draft in drafts[:-1]:
        verified = follow(verified, [chained(verified, draft)])
    with pytest.raises(Broken):
        follow(verified, [chained(verified, drafts[-1])])


def test_l3_a_spliced_chain_is_broken() -> None:
    """Records whose own hashes are true, put after another record than the one they name."""
    first = chained(Verified(), CREATE)
    one = follow(Verified(), [first])
    second = chained(one, DECLARE)
    third = chained(follow(one, [second]), DEBIT)
    assert follow(Verified(), [first, second, third]).accounts[DATASET].spent == 3
    other = chained(one, replace(DECLARE, units=1000))
    for records in ([first, other, third], [first, third], [second], [first, second, second], [first, third, second]):
        with pytest.raises(Broken):
            follow(Verified(), records)


# L4: the budget belongs to the dataset's declared name


def test_l4_rename_and_copy_keep_the_balance(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path / "copy.db")
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere" / "other.name")
    head(path).rename(tmp_path / "elsewhere" / "other.name.head")
    for place in (tmp_path / "copy.db", tmp_path / "elsewhere" / "other.name"):
        assert opened(place, PureDP(4)).spent == Fraction(1, 2)
        assert opened(place).debit(PureDP(1), "next").balance == Fraction(5, 2)
        with pytest.raises(BudgetError):
            opened(place, PureDP(5))


def test_l4_the_database_alone_is_not_a_ledger(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    """Without its head an old copy cannot be told from the newest: it takes a decision, which is recorded."""
    shutil.copy(path, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match=r"copy\.db\.head is missing, and the two belong together"):
        opened(tmp_path / "copy.db", PureDP(4))
    adopted = Ledger.adopt(tmp_path / "copy.db", dataset=DATASET, reason="head lost with the disk")
    assert adopted.spent == Fraction(1, 2)
    assert [(entry.kind, entry.text) for entry in adopted.entries()[-1:]] == [("adopt", "head lost with the disk")]
    assert adopted.debit(PureDP(1), "next").balance == Fraction(5, 2)
    with pytest.raises(LedgerError, match="nothing to adopt"):
        Ledger.adopt(tmp_path / "copy.db", dataset=DATASET, reason="again")


def test_l4_paths_may_be_relative_or_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a?mode=memory", "b#c", "100%41", "d e", ":memory:", "é", "file:x"):
        ledger = Ledger(name, dataset=DATASET, cap=PureDP(1))
        ledger.debit(PureDP(1), "all")
        assert (tmp_path / name).stat().st_size > 0
    monkeypatch.chdir("/")
    assert ledger.remaining == 0


# L5: what is no privacy parameter

BAD = [float("nan"), float("inf"), float("-inf"), 0, 0.0, -0.0, -1, "-0.5", True, False, np.True_, 5e-324, 2**-1074]
BAD += ["nan", "inf", "", "1e-400", None, np.float64("nan"), np.inf, 1j]


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("kind", [PureDP, ZCDP])
def test_l5_bad_parameters_are_refused_without_a_debit(
    ledger: Ledger, bad: float, kind: Callable[[float], PureDP]
) -> None:
    with pytest.raises(PrivacyError):
        ledger.debit(kind(bad), "bad")
    assert ledger.verify() == 3


@pytest.mark.parametrize("bad", [*BAD, 0.5, 1, "0.5", Fraction(1, 2), PureDP, (PureDP(1),)], ids=repr)
def test_l5_what_is_not_a_guarantee_is_refused_without_a_debit(ledger: Ledger, path: Path, bad: PureDP) -> None:
    with pytest.raises(PrivacyError, match="A ledger counts PureDP, ZCDP or GaussianDP, not"):
        ledger.debit(bad, "bad")
    with pytest.raises(PrivacyError):
        ledger.raise_cap(bad, reason="bad")
    if bad is not None:
        with pytest.raises(PrivacyError):
            opened(path, bad)
    assert ledger.verify() == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0, -1, Fraction(-1), True, 5e-324, None, "x"], ids=repr)
def test_l5_a_forged_guarantee_is_refused_without_a_debit(ledger: Ledger, bad: object) -> None:
    forged = PureDP(1)
    object.__setattr__(forged, "epsilon", bad)
    with pytest.raises(PrivacyError):
        ledger.debit(forged, "forged")
    assert ledger.verify() == 3


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), 1e9])
def test_l5_bad_timeouts_are_refused(path: Path, timeout: float) -> None:
    with pytest.raises(LedgerError, match="timeout"):
        opened(path, PureDP(1), timeout=timeout)


# L6: missing, corrupt, locked or rolled back fails closed


def test_l6_a_database_missing_beside_its_head(ledger: Ledger, path: Path) -> None:
    path.unlink()
    with pytest.raises(LedgerError, match="missing"):
        ledger.debit(PureDP(1), "next")
    for cap in (PureDP(4), None):
        with pytest.raises(LedgerError, match="the database is missing"):
            opened(path, cap)
    assert not path.exists()


def test_l6_an_emptied_database_beside_its_head(ledger: Ledger, path: Path) -> None:
    path.write_bytes(b"")
    for use in (lambda: ledger.debit(PureDP(1), "x"), lambda: opened(path, PureDP(4)), lambda: opened(path)):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            use()


def test_l6_opening_without_a_cap_creates_nothing(path: Path) -> None:
    with pytest.raises(LedgerError, match="missing"):
        opened(path)
    assert not path.exists()


def test_l6_a_missing_head(ledger: Ledger, path: Path) -> None:
    head(path).unlink()
    for use in (lambda: ledger.debit(PureDP(1), "x"), lambda: ledger.spent, lambda: opened(path, PureDP(4))):
        with pytest.raises(LedgerError, match="head is missing"):
            use()


def test_l6_a_rolled_back_database(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    old = path.read_bytes()
    receipt = ledger.debit(PureDP(3), "most of it")
    path.write_bytes(old)
    for use in (lambda: ledger.debit(PureDP(3), "twice"), lambda: ledger.remaining):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            use()
    with pytest.raises(LedgerError, match="rolled back: it ends at record 3, its head at 4"):
        opened(path, PureDP(4))
    assert receipt.balance == Fraction(1, 2)


def test_l6_a_rolled_back_database_that_went_on(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    """An older copy spent elsewhere is another chain, even where it is longer."""
    copied(path, tmp_path / "copy.db")
    ledger.debit(PureDP(3), "here")
    for _ in range(3):
        opened(tmp_path / "copy.db").debit(PureDP("0.001"), "there")
    shutil.copy(tmp_path / "copy.db", path)
    with pytest.raises(LedgerError, match="record 4 is not the one that its head file names"):
        opened(path, PureDP(4))
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        ledger.debit(PureDP("0.1"), "next")


def test_l6_both_files_put_back_is_noticed_by_who_saw_more(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    """The files alone cannot tell (docs/reference/ledger.md); an open ledger and a kept receipt can."""
    copied(path, tmp_path / "backup.db")
    receipt = ledger.debit(PureDP(3), "most of it")
    copied(tmp_path / "backup.db", path)
    with pytest.raises(LedgerError, match="rolled back"):
        ledger.debit(PureDP(3), "twice")
    with pytest.raises(LedgerError, match="does not hold the debit of receipt 4"):
        opened(path, PureDP(4)).verify(receipt)


def test_l6_a_head_that_is_behind_is_caught_up(ledger: Ledger, path: Path) -> None:
    """As after a kill, or from a backup: the records beyond it continue the chain."""
    old = head(path).read_bytes()
    ledger.debit(PureDP(1), "next")
    newest = ledger.debit(PureDP(1), "next")
    head(path).write_bytes(old)
    assert opened(path, PureDP(4)).debit(PureDP(1), "next").sequence == newest.sequence + 1
    assert head(path).read_text().split()[2] == "6"


def test_l6_a_backup_head_first_can_be_restored_and_charged_again(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    """The procedure of docs/reference/ledger.md, with a debit between the two copies and a release after them."""
    backup = tmp_path / "backup.db"
    shutil.copy(head(path), head(backup))
    before = ledger.debit(PureDP(1), "between the copies")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    after = ledger.debit(PureDP(1), "after the backup")
    copied(backup, path)
    restored = opened(path, PureDP(4))
    assert restored.verify(before) == 4
    with pytest.raises(LedgerError, match=f"receipt {after.sequence}"):
        restored.verify(before, after)
    assert restored.debit(PureDP(after.amount), "restored: after the backup").balance == after.balance


def test_l6_another_ledger_under_the_same_head(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    other = opened(tmp_path / "other.db", PureDP(4))
    for _ in range(3):
        other.debit(PureDP("0.001"), "little")
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="is not the one that its head file names"):
        opened(path, PureDP(4))


@pytest.mark.parametrize("content", [b"", b"x", b"not a database" * 1000, b"SQLite format 3\0" + bytes(4096)])
def test_l6_a_file_that_is_no_ledger_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    if not content:
        assert opened(path, PureDP(4)).spent == 0  # a creation cut short, with no head: nothing was ever in it
        return
    with pytest.raises(LedgerError):
        opened(path, PureDP(4))
    assert path.read_bytes() == content


def test_l6_a_database_of_something_else_is_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE records (sequence INTEGER PRIMARY KEY)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not an hdmm ledger"):
        opened(path, PureDP(4))
    assert path.read_bytes() == before


def test_l6_links_folders_and_places_that_are_not_there(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    (tmp_path / "soft.db").symlink_to(path)
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere.db")
    (tmp_path / "folder.db").mkdir()
    for name in ("soft.db", "dangling.db", "folder.db", "no/such/folder.db", "..", "", "a\0b", "x" * 300):
        with pytest.raises(LedgerError):
            Ledger(os.path.join(tmp_path, name), dataset=DATASET, cap=PureDP(4))
    assert not (tmp_path / "nowhere.db").exists()
    (tmp_path / "hard.db").hardlink_to(path)
    for place in (path, tmp_path / "hard.db"):
        with pytest.raises(LedgerError, match="second name"):
            opened(place, PureDP(4))
    (tmp_path / "hard.db").unlink()
    assert opened(path, PureDP(4)).spent == Fraction(1, 2)


def test_l6_a_head_that_is_a_link(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    head(path).rename(tmp_path / "real")
    head(path).symlink_to(tmp_path / "real")
    with pytest.raises(LedgerError):
        opened(path, PureDP(4))


def test_l6_files_are_the_owners_alone(ledger: Ledger, path: Path) -> None:
    assert [file.stat().st_mode & 0o777 for file in (path, head(path))] == [0o600, 0o600]
    assert sorted(file.name for file in path.parent.iterdir()) == ["budget.db", "budget.db.head"]


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of several pages, an interior one among them."""
    path = tmp_path_factory.mktemp("long") / "budget.db"
    ledger = opened(path, PureDP(1000))
    for i in range(40):
        ledger.debit(PureDP(1), f"{i} " + "x" * 490)
    return path


def damages(size: int) -> Iterator[tuple[int, int]]:
    """Positions and masks: the file's header, the header of every page, and anywhere."""
    draw = random.Random(20260401)
    page = 4096
    for start in range(0, size, page):
        for position in [*range(start, start + (116 if start == 0 else 16))]:
            yield position, draw.choice([0xFF, 1 << draw.randrange(8)])
    for _ in range(200):
        yield draw.randrange(size), draw.randrange(1, 256)


def test_l6_flipped_bytes_fail_closed(long_ledger: Path, path: Path) -> None:
    """Nothing but LedgerError, or nothing lost: some bytes of a database mean nothing."""
    whole = long_ledger.read_bytes()
    entries = opened(long_ledger).entries()
    refused = 0
    for position, mask in damages(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        shutil.copy(head(long_ledger), head(path))
        try:
            assert opened(path, PureDP(1000)).entries() == entries, (position, mask)
        except LedgerError:
            refused += 1
    assert refused > 150


def test_l6_truncated_files_fail_closed(long_ledger: Path, path: Path) -> None:
    whole = long_ledger.read_bytes()
    for size in (1, 15, 16, 99, 100, 101, 4095, 4096, 4097, 8192, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        shutil.copy(head(long_ledger), head(path))
        with pytest.raises(LedgerError):
            opened(path, PureDP(1000))


def test_l6_damage_under_an_open_ledger_stops_the_next_debit_or_loses_nothing(long_ledger: Path, path: Path) -> None:
    whole = long_ledger.read_bytes()
    draw = random.Random(5)
    for _ in range(40):
        copied(long_ledger, path)
        ledger = opened(path, PureDP(1000))
        damaged = bytearray(whole)
        start = draw.randrange(len(whole) - 64)
        damaged[start : start + 64] = draw.randbytes(64)
        path.write_bytes(damaged)
        try:
            assert ledger.debit(PureDP(1), "next").balance == 959
        except LedgerError:
            continue
        with contextlib.suppress(LedgerError):  # the next opening reads every page
            assert opened(path).spent == 41


def test_l6_every_flipped_byte_of_the_head_fails_closed(ledger: Ledger, path: Path) -> None:
    whole = head(path).read_bytes()
    for position in range(len(whole)):
        for mask in (0x01, 0x20, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= mask
            head(path).write_bytes(damaged)
            with pytest.raises(LedgerError):
                ledger.verify()
    for content in (b"", whole[:-1], whole + b"\n", whole * 2, bytes(10**6)):
        head(path).write_bytes(content)
        with pytest.raises(LedgerError, match="is not in the format of a head file"):
            ledger.verify()


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN " + sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_l6_a_locked_database(ledger: Ledger, path: Path, lock: str) -> None:
    hasty = opened(path, PureDP(4), timeout=0.05)
    holding = [sys.executable, "-c", HOLD, str(path), lock]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LedgerError, match=r"was locked by another process for 0.05 s. Nothing was debited"):
            hasty.debit(PureDP(1), "next")
        if lock == "EXCLUSIVE":
            with pytest.raises(LedgerError, match="was locked"):
                opened(path, PureDP(4), timeout=0.05)
        holder.communicate()
    assert hasty.debit(PureDP(1), "next").balance == Fraction(5, 2)


def test_l6_a_head_that_cannot_be_written_stays_charged(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "write_head", full)
    with pytest.raises(LedgerError, match=r"Record 4 .* stays charged, but its head file .*No space left"):
        ledger.debit(PureDP(1), "next")
    monkeypatch.undo()
    assert opened(path).spent == ledger.spent == Fraction(3, 2)
    assert ledger.debit(PureDP(1), "next").sequence == 5


FULL = """
import resource, sys
from pathlib import Path
from hdmm import Ledger, LedgerError, PureDP
path, limit = Path(sys.argv[1]), int(sys.argv[2])
ledger = Ledger(path, dataset="people-2026", cap=PureDP(1000))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
done = 0
try:
    while True:
        ledger.debit(PureDP(1), "x" * 500)
        done += 1
except LedgerError as error:
    print(done, error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on file sizes here")
@pytest.mark.parametrize("limit", [0, 50, 600, 5000, 13000, 20000])
def test_l6_a_full_disk(path: Path, limit: int) -> None:
    opened(path, PureDP(1000))
    done, message = python(FULL, path, limit).split(" ", 1)
    assert "could not be written" in message or "cannot be" in message
    ledger = opened(path, PureDP(1000))
    assert ledger.spent in (int(done), int(done) + 1)
    assert ledger.debit(PureDP(1), "room again").sequence == ledger.verify()


READONLY = """
import os, sys
from hdmm import Ledger, LedgerError, PureDP
folder = sys.argv[1]
if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere
print(Ledger(folder + "/budget.db", dataset="people-2026", cap=PureDP(4)).spent)
for use in (
    lambda: Ledger(folder + "/budget.db", dataset="people-2026").debit(PureDP(1), "x"),
    lambda: Ledger(folder + "/budget.db", dataset="others", cap=PureDP(1)),
    lambda: Ledger(folder + "/new.db", dataset="people-2026", cap=PureDP(4)),
):
    try:
        use()
    except LedgerError as error:
        print("refused", "writ" in str(error))
"""


@pytest.mark.parametrize("file_mode", [0o444, 0o666])
def test_l6_a_read_only_folder(file_mode: int) -> None:
    with tempfile.TemporaryDirectory() as made:  # not tmp_path, which others may not enter
        folder = Path(made) / "ledger"
        folder.mkdir()
        path = folder / "budget.db"
        opened(path, PureDP(4)).debit(PureDP(1), "before")
        for place, mode in ((path, file_mode), (head(path), 0o444), (folder, 0o555), (Path(made), 0o755)):
            place.chmod(mode)
        assert python(READONLY, folder).split("\n") == ["1", *["refused True"] * 3, ""]
        folder.chmod(0o755)
        assert opened(path).spent == 1


@examples(60)
@given(data=st.binary(max_size=300))
def test_l6_any_head_is_refused_or_right(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-head.db"
    if not path.exists():
        opened(path, PureDP(4))
    before = head(path).read_bytes()
    try:
        head(path).write_bytes(data)
        with pytest.raises(LedgerError):
            opened(path)
    finally:
        head(path).write_bytes(before)


def test_errors_are_of_the_family() -> None:
    assert issubclass(BudgetError, HdmmError)
    assert issubclass(LedgerError, HdmmError)
    assert not issubclass(LedgerError, BudgetError)


def test_l3_the_hash_of_a_record_is_what_docs_ledger_says(path: Path) -> None:
    """Anyone can check a ledger with SHA-256 and JSON alone: the bytes that are hashed are written down."""
    Ledger(path, dataset="Zürich", cap=PureDP(4)).debit(PureDP("0.5"), 'by "sex"')
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT * FROM records ORDER BY sequence").fetchall()
    assert len(rows) == 3
    previous = "0" * 64
    for sequence, kind, dataset, parameter, units, text, time, before, digest in rows:
        assert before == previous
        fields = [f"hdmm-ledger-1 {UNITS}", previous, sequence, kind, dataset, parameter, units, text, time]
        quoted = [f"{field}".replace("ü", "\\u00fc").replace('"', '\\"') for field in fields]
        message = "[" + ",".join(f'"{field}"' for field in quoted) + "]"
        assert hashlib.sha256(message.encode("ascii")).hexdigest() == digest
        previous = digest


def test_a_receipt_of_a_number_that_no_record_has_is_refused(ledger: Ledger) -> None:
    receipt = ledger.debit(PureDP(1), "next")
    assert ledger.verify(receipt) == receipt.sequence
    for sequence in (0, -1, receipt.sequence + 1, 10**9):
        with pytest.raises(LedgerError, match="does not hold the debit"):
            ledger.verify(replace(receipt, sequence=sequence))


def test_a_receipt_of_another_dataset_is_refused(ledger: Ledger, path: Path) -> None:
    """L7: though the same file holds its debit."""
    other = Ledger(path, dataset="firms", cap=PureDP(1))
    receipt = other.debit(PureDP(1), "first")
    assert other.verify(receipt) == receipt.sequence
    with pytest.raises(LedgerError, match=f"is for dataset 'firms', not for '{DATASET}'"):
        ledger.verify(receipt)


def test_a_ledger_without_a_dataset_says_what_is_missing(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"has no name here.*dataset='people-2026', cap=PureDP\(4\)"):
        Ledger(path)
    assert not path.exists()
