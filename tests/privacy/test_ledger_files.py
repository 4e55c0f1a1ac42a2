"""The files of a ledger byte by byte: faults that only a damaged, planted or raced file reveals (L1-L3, L6)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hdmm.privacy.store as store_module
from hdmm import BudgetError, Ledger, LedgerError, PureDP
from hdmm.privacy.chain import Draft, Record, Verified, chained
from tests.privacy.test_ledger import DATASET, ROW, head, opened

# A ledger of format 1 as it was first written, to the letter: user_version, application_id, schema and hashes.
GOLDEN = """
CREATE TABLE records (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, parameter TEXT NOT NULL,
    units TEXT NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER no_update BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER only_next BEFORE INSERT ON records
    WHEN NEW.sequence IS NOT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM records)
      OR EXISTS (SELECT 1 FROM records WHERE sequence = NEW.sequence - 1 AND hash IS NOT NEW.previous)
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
PRAGMA application_id = 1751412077;
PRAGMA user_version = 1;
"""
UNITS = "6972037522971247716453380893531230355680000000000000000000000"  # in 1
RECORDS = [
    ("create", "", "", "0", "0" * 63 + "1"),
    ("declare", DATASET, "epsilon", str(4 * int(UNITS)), ""),
    ("debit", DATASET, "epsilon", str(int(UNITS) // 2), "ages by sex"),
]
HASHES = [
    "ccd80fe816539a31e7152c3187eccf71d9a91ea895e1b32ffd1ea3a43c2e888e",
    "8aa837953b64f92049a436a62a91f338e5a53cfb221e9146a6b466a82629bc80",
    "eaa11a8e401c6162d4e32db5ff964faaeac1159fcb14f54ac8bf386f4dda3236",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    ledger = opened(path, PureDP(4))
    ledger.debit(PureDP("0.5"), "first table")
    return ledger


@pytest.fixture
def soon() -> Iterator[None]:
    """A call that waits for ever is a failure, not a test run that never ends."""

    def waited(*_: object) -> None:
        raise TimeoutError("waited for a file that nobody writes")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(10)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_l6_a_ledger_of_the_first_format_still_opens(path: Path) -> None:
    """Whatever changes, what is on people's disks is read; and no version but 1 is taken for it."""
    previous = "0" * 64
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(GOLDEN)
        for sequence, (row, digest) in enumerate(zip(RECORDS, HASHES, strict=True), start=1):
            values = (sequence, *row, "2026-01-01T00:00:00+00:00", previous, digest)
            db.execute(f"INSERT INTO records VALUES ({', '.join('?' * 9)})", values)
            previous = digest
        db.commit()
    head(path).write_text(f"hdmm-ledger-head 1 3 {previous}\n")
    found = opened(path, PureDP(4))
    assert found.spent == Fraction(1, 2)
    assert [entry.hash for entry in found.entries()] == HASHES
    assert found.entries()[-1].pays_for is None
    assert found.debit(PureDP(1), "next", pays_for="a" * 64).sequence == 4
    assert opened(path).entries()[-1].pays_for == "a" * 64


def test_l6_a_new_ledger_is_of_the_first_format(ledger: Ledger, path: Path) -> None:
    """Other versions of hdmm, and auditors, read it by these numbers."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA application_id").fetchone() == (0x68646D6D,)


def test_l6_a_copy_without_its_head_is_refused_before_anything_is_spent(path: Path) -> None:
    """With create and declare alone it would open with the full budget, whatever the other copy has spent."""
    opened(path, PureDP(4))
    head(path).unlink()
    for cap in (PureDP(4), None):
        with pytest.raises(LedgerError, match="head is missing, and the two belong together"):
            opened(path, cap)


def test_l6_damage_that_no_record_shows_is_refused(ledger: Ledger, path: Path) -> None:
    """A page that nothing uses: every record reads as before, and only SQLite's own check tells."""
    whole = path.read_bytes()
    pages = int.from_bytes(whole[28:32], "big")
    path.write_bytes(whole[:28] + (pages + 1).to_bytes(4, "big") + whole[32:] + bytes(4096))
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT COUNT(*) FROM records").fetchone() == (3,)
    for use in (lambda: opened(path, PureDP(4)), ledger.verify, ledger.entries):
        with pytest.raises(LedgerError, match="SQLite reports that the file is damaged"):
            use()


def test_l1_every_connection_has_the_settings_that_promises_rest_on(ledger: Ledger) -> None:
    expected = {"trusted_schema": 0, "cell_size_check": 1, "synchronous": 3, "fullfsync": 1}
    with ledger._audit.store._connection() as db:
        assert {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in expected} == expected
        assert db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == 100_000


def test_l6_a_text_of_megabytes_is_refused_unread(ledger: Ledger, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        row = ROW.replace("text", "?")
        db.execute(
            f"INSERT INTO records SELECT 4, {row}, hash, hash FROM records WHERE sequence = 3", ["x" * 2_000_000]
        )
        db.commit()
    with pytest.raises(LedgerError, match="too big"):
        ledger.entries()


def test_l6_a_head_that_is_a_pipe_is_refused_without_waiting(ledger: Ledger, path: Path, soon: None) -> None:
    head(path).unlink()
    os.mkfifo(head(path))
    for use in (lambda: opened(path, PureDP(4)), lambda: ledger.debit(PureDP(1), "next")):
        with pytest.raises(LedgerError, match="is not in the format of a head file"):
            use()


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_l6_a_head_is_never_written_through_what_was_planted(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch, plant: object
) -> None:
    """Someone puts a link where the new head is about to be made, after the old one of that name was removed."""
    victim = path.with_name("victim")
    victim.write_text("mine")
    unlink = Path.unlink

    def unlink_and_plant(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok=missing_ok)
        if self.name == "budget.db.head.new":
            plant(victim, self)  # type: ignore[operator]

    monkeypatch.setattr(Path, "unlink", unlink_and_plant)
    with pytest.raises(LedgerError, match=r"Record 4 .* stays charged, but its head file could not be written"):
        ledger.debit(PureDP(1), "next")
    assert victim.read_text() == "mine"
    monkeypatch.undo()
    assert opened(path).spent == Fraction(3, 2)


def test_l2_two_declarations_at_once_are_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process declares the same dataset after this one has looked and before it has the lock."""
    opened(path, PureDP(4))
    audit = store_module.Store.audit
    others: list[Ledger] = []

    def raced(store: store_module.Store) -> tuple[Verified, tuple[Record, ...]]:
        seen = audit(store)
        monkeypatch.setattr(store_module.Store, "audit", audit)
        others.append(Ledger(path, dataset="firms", cap=PureDP(2)))
        return seen

    monkeypatch.setattr(store_module.Store, "audit", raced)
    late = Ledger(path, dataset="firms", cap=PureDP(2))
    assert [entry.kind for entry in late.entries()] == ["create", "declare"]
    others[0].debit(PureDP(1), "theirs")
    assert late.debit(PureDP(1), "ours").balance == 0


def test_l2_a_declaration_that_lost_the_race_keeps_the_first_cap(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = store_module.Store.append

    def raced(store: store_module.Store, since: Verified, draft: object) -> tuple[Verified, Record]:
        monkeypatch.setattr(store_module.Store, "append", append)
        Ledger(path, dataset=DATASET, cap=PureDP(4))
        return append(store, since, draft)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module.Store, "append", raced)
    with pytest.raises(BudgetError, match="was declared with the cap ε = 4, not ε = 9"):
        opened(path, PureDP(9))
    assert opened(path).cap == PureDP(4)
    assert opened(path).verify() == 2


NO_RECORD: dict[str, tuple[str, object]] = {
    "a parameter that is none": ("parameter", "delta"),
    "a kind that is none": ("kind", "refund"),
    "bytes for a dataset": ("dataset", b"other"),
    "bytes for a number of units": ("units", b"1"),
    "units below 0": ("units", "-1"),
    "bytes for a hash": ("hash", b"0" * 64),
    "capitals in a hash": ("hash", "A" * 64),
    "bytes for the hash before": ("previous", b"0" * 64),
}


@pytest.mark.parametrize(("column", "value"), NO_RECORD.values(), ids=NO_RECORD)
def test_l3_a_row_that_does_not_read_as_a_record_is_refused(
    ledger: Ledger, path: Path, column: str, value: object
) -> None:
    """Whatever its hash says: SQLite puts any type into any column."""
    verified, _ = store_module.Store(path, 30.0).audit()
    draft = Draft("declare", "", "2026-01-01T00:00:00+00:00", "other", "epsilon", 1)
    if column in ("parameter", "kind"):
        draft = replace(draft, **{column: value})
    record = chained(verified, draft)
    row = {"sequence": record.sequence, **{k: getattr(draft, k) for k in ROW.split(", ")}}
    row |= {"units": "1", "previous": record.previous, "hash": record.hash, column: value}
    with contextlib.closing(sqlite3.connect(path)) as db:
        (trigger,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'only_next'").fetchone()
        db.execute("DROP TRIGGER only_next")
        db.execute(f"INSERT INTO records ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()])
        db.execute(trigger)
        db.commit()
    for use in (lambda: ledger.remaining, lambda: opened(path)):
        with pytest.raises(LedgerError, match="the record after record 3 is not in the format of a record"):
            use()


def test_l6_nothing_is_appended_while_a_ledger_is_read(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a head could pass the records that were read, and a sound ledger would look rolled back."""
    seen: list[str] = []
    read = store_module.read_head

    def meanwhile(place: Path) -> object:
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                seen.append(str(error))
        return read(place)

    monkeypatch.setattr(store_module, "read_head", meanwhile)
    assert ledger.remaining == Fraction(7, 2)
    assert len(ledger.entries()) == 3
    assert seen == ["database is locked"] * 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_BUSY, r"was locked by another process for 7 s\. Nothing was debited; run again"),
        (sqlite3.SQLITE_LOCKED, "was locked by another process for 7 s"),
        (sqlite3.SQLITE_READONLY, "cannot be written .* Make its file and folder readable and writable"),
        (sqlite3.SQLITE_PERM, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be written"),
        (sqlite3.SQLITE_FULL, "count it as spent"),
        (sqlite3.SQLITE_IOERR_FSYNC, "count it as spent"),
        (sqlite3.SQLITE_CORRUPT, "cannot be trusted.*Restore the database and the head file"),
        (sqlite3.SQLITE_NOTADB, "cannot be trusted.*Restore the database and the head file"),
    ],
)
def test_l6_what_sqlite_says_is_explained(ledger: Ledger, code: int, words: str, path: Path) -> None:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = code
    store = store_module.Store(path, 7.0)
    with pytest.raises(LedgerError, match=words), store._translated():
        raise error


def test_a_ledger_without_accounts_says_so(path: Path) -> None:
    store_module.Store(path, 30.0).create("2026-01-01T00:00:00+00:00")
    with pytest.raises(BudgetError, match="has no account in this ledger; accounts: none"):
        opened(path)


def test_a_day_is_the_longest_to_wait_and_times_are_whole_seconds(path: Path) -> None:
    ledger = opened(path, PureDP(4), timeout=86_400)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", ledger.debit(PureDP(1), "first").timestamp)
    opened(path, timeout=0)
    for timeout in (86_401, -1, float("nan"), float("inf")):
        with pytest.raises(LedgerError, match="seconds from 0 to 86400"):
            opened(path, timeout=timeout)


def test_l2_no_process_is_forked_while_a_connection_is_open(tmp_path: Path) -> None:
    """SQLite's locks do not survive a fork: it waits for the lock that every open connection holds."""
    account = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    account.debit(PureDP("0.5"), "a release")
    free: list[bool] = []

    def look() -> None:
        free.append(store_module._CONNECTED.acquire(blocking=False))
        if free[-1]:
            store_module._CONNECTED.release()

    def looked() -> None:
        thread = Thread(target=look)
        thread.start()
        thread.join()

    with account._audit.store._connection():
        looked()
    looked()
    assert free == [False, True]


def test_no_ledger_is_created_where_a_link_points_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by one that was planted after it was seen that nothing is there."""
    path = tmp_path / "budget.db"
    path.symlink_to(tmp_path / "elsewhere.db")
    monkeypatch.setattr(store_module.Store, "is_there", lambda self: False)
    with pytest.raises(LedgerError, match="is a link"):
        store_module.Store.at(path, 1.0).create("2026-01-01T00:00:00Z")
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_ledger_is_never_written_through_another_journal(tmp_path: Path) -> None:
    """A debit in a file of its own beside the ledger would be lost with that file, and to whoever copies the ledger."""
    path = tmp_path / "budget.db"
    ledger = opened(path, PureDP(4))
    ledger.debit(PureDP(1), "before")
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    assert path.read_bytes()[18:20] == b"\2\2"  # how the file is written and read
    ledger.debit(PureDP(1), "tables")
    assert path.read_bytes()[18:20] == b"\1\1"


class Stubborn(sqlite3.Connection):
    """A connection that keeps the journal there is."""

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA journal_mode" if "journal_mode" in sql else sql, *given)


def test_a_journal_that_stays_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "budget.db"
    ledger = opened(path, PureDP(4))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Stubborn))
    with pytest.raises(LedgerError, match="its journal mode cannot be set"):
        ledger.debit(PureDP(1), "tables")
