"""A ledger's records in SQLite: durable, atomic across processes, append-only, refused when in doubt (L1-L3, L6).

The journal mode is DELETE, so that at rest the database is one file and a plain copy of it holds every record. (A
write-ahead log would keep the newest records in a second file and needs shared memory, which network file systems do
not have.) In this mode a commit is the removal of the journal. synchronous=EXTRA, unlike FULL, also flushes the folder
afterwards; without that, a loss of power could bring the journal back and undo a debit that had been reported.

Every operation opens its own connection and closes it, so that no connection is carried over a fork, and a database
that was removed or replaced meanwhile is noticed.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import sqlite3
import stat
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import RLock
from typing import TYPE_CHECKING, Final, cast, final, get_args
from urllib.parse import quote

from hdmm.base.durable import require_posix, sync_folder
from hdmm.base.exceptions import LedgerError
from hdmm.base.lazy import Lazy
from hdmm.privacy.chain import Broken, Draft, Record, RecordKind, Verified, chained, follow
from hdmm.privacy.head import Head, head_path, read_head, write_head
from hdmm.privacy.spending import Parameter

if TYPE_CHECKING:
    import fcntl
else:
    fcntl = Lazy("fcntl")  # which Windows has not

_APPLICATION: Final = 0x68646D6D  # "hdmm": marks the file as ours
_LEDGER_VERSION: Final = 1
_SCHEMA: Final = {
    "records": """CREATE TABLE records (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, parameter TEXT NOT NULL,
    units TEXT NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "no_update": """CREATE TRIGGER no_update BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    "no_delete": """CREATE TRIGGER no_delete BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    # This trigger also stops INSERT OR REPLACE, which removes rows without running no_delete.
    "only_next": """CREATE TRIGGER only_next BEFORE INSERT ON records
    WHEN NEW.sequence IS NOT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM records)
      OR EXISTS (SELECT 1 FROM records WHERE sequence = NEW.sequence - 1 AND hash IS NOT NEW.previous)
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
}
_INSERT: Final = (
    "INSERT INTO records (sequence, kind, dataset, parameter, units, text, time, previous, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT: Final = (
    "SELECT sequence, kind, dataset, parameter, units, text, time, previous, hash "
    "FROM records WHERE sequence > ? ORDER BY sequence"
)
_UNITS = re.compile(r"0|[1-9][0-9]{0,399}")
_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST_TEXT = 100_000  # bytes of a text or statement: a damaged length must not ask for gigabytes

# SQLite's locks do not survive a fork, so a fork waits until this process has no open connection.
_CONNECTED = RLock()
if sys.platform != "win32":
    os.register_at_fork(
        before=_CONNECTED.acquire, after_in_parent=_CONNECTED.release, after_in_child=_CONNECTED.release
    )


@final
@dataclass(frozen=True, slots=True)
class Store:
    """The database and the head file of a ledger; `timeout` is the number of seconds to wait for other processes."""

    path: Path
    timeout: float

    @classmethod
    def at(cls, path: str | os.PathLike[str], timeout: float) -> Store:
        """The store at a path; the folder's links are followed once, here, the file's own never."""
        require_posix("A ledger", LedgerError)
        if not (math.isfinite(timeout) and 0 <= timeout <= 86_400):
            raise LedgerError(f"The timeout is {timeout}. Give a number of seconds from 0 to 86400.")
        given = Path(path)
        if given.name in ("", "..") or "\0" in os.fspath(given):
            raise LedgerError(f"{os.fspath(given)!r} is not the path of a file. Give one, such as 'budget.db'.")
        return cls(Path(os.path.realpath(given.parent)) / given.name, float(timeout))

    def is_there(self) -> bool:
        """Whether there is a ledger. A file that is missing, or empty because its creation was interrupted, is none.

        LedgerError if it is missing or empty though its head file is there: then records were lost (security L6).
        """
        with self._if_there() as db:
            return db is not None

    def audit_if_there(self) -> tuple[Verified, tuple[Record, ...]] | None:
        """The chain and all its records, verified from the first one; None if `is_there` says no."""
        with self._if_there() as db:
            return None if db is None else self._audited(db)

    @contextmanager
    def _if_there(self) -> Generator[sqlite3.Connection | None]:
        """A connection for reading, if there is a ledger."""
        with _CONNECTED, self._translated():
            head = read_head(self.path)  # before the database: another process may be creating both
            missing = not os.path.lexists(self.path)
            if missing:
                _refuse_head(head, "missing")
        if missing:
            yield None
            return
        with self._reading() as db:
            empty = self._is_empty(db)
            if empty:
                _refuse_head(read_head(self.path), "empty")
            yield None if empty else db

    def create(self, time: str) -> None:
        """Create the ledger if it does not exist; leave an existing one unchanged."""
        if self.is_there():
            return
        with _CONNECTED, self._translated():
            self._create_file()
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            if not self._is_empty(db):
                return  # another process has filled it
            _refuse_head(read_head(self.path), "empty")
            for statement in _SCHEMA.values():
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_LEDGER_VERSION}")
            record = chained(Verified(), Draft("create", secrets.token_hex(32), time))
            self._commit(db, record)

    def verify(self, since: Verified) -> tuple[Verified, tuple[Record, ...]]:
        """The present state of the chain, and the records after `since`; they and the head have been verified."""
        with self._reading() as db:
            verified, records, _ = self._verified(db, since)
            return verified, records

    def audit(self) -> tuple[Verified, tuple[Record, ...]]:
        """The chain and all its records, verified from the first one."""
        with self._reading() as db:
            if self._is_empty(db):
                raise Broken("the database is missing; there is only an empty file")
            return self._audited(db)

    def _audited(self, db: sqlite3.Connection) -> tuple[Verified, tuple[Record, ...]]:
        if db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise Broken("SQLite reports that the file is damaged")
        verified, records, _ = self._verified(db, Verified())
        return verified, records

    def check_writable(self) -> None:
        """Raise LedgerError if no record could be added here. Leaves no trace: nothing is written, created or kept.

        The folder must take files (a journal, a new head), and they must be lockable, which some network file systems
        refuse. A file without a name shows both; a ledger that is there is locked as for a record, and released.
        """
        with self._translated(), TemporaryFile(dir=self.path.parent) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.lexists(self.path):
            with self._connection() as db:
                db.execute("BEGIN IMMEDIATE")

    def append(self, since: Verified, draft: Callable[[Verified], Draft]) -> tuple[Verified, tuple[Record, ...]]:
        """Verify the chain and append the record that `draft` returns; the chain then, and the records after `since`.

        This is one transaction, and it is on disk before the method returns.
        """
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            before, records, head = self._verified(db, since)
            last = Head(before.sequence, before.hash)
            if head != last:  # a process was killed before it could write this
                write_head(self.path, last)
            record = chained(before, draft(before))
            after = follow(before, [record])
            self._commit(db, record)
        return after, (*records, record)

    def adopt(self, draft: Draft) -> None:
        """Append a record and write the head of a ledger that has none."""
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            if read_head(self.path) is not None:
                raise LedgerError(
                    f"The ledger {self.path} has its head file {head_path(self.path).name}, so there is nothing to "
                    "adopt. If the two do not match, restore both from the same backup (docs/reference/ledger.md)."
                )
            self._commit(db, chained(_whole(db, Verified())[0], draft))

    def _verified(self, db: sqlite3.Connection, since: Verified) -> tuple[Verified, tuple[Record, ...], Head | None]:
        """The chain, verified to its end and compared with the head, with the records after `since` and the head.

        The caller holds a lock.
        """
        verified, records = _whole(db, since)
        head = read_head(self.path)
        if head is None:
            if verified.sequence > 1:  # if only its creation is recorded, a process was killed in between
                raise Broken(f"its head file {head_path(self.path).name} is missing, and the two belong together")
            return verified, records, None
        if head.sequence > verified.sequence:
            raise Broken(f"it was rolled back: it ends at record {verified.sequence}, its head at {head.sequence}")
        if _hash(db, head.sequence) != head.hash:
            raise Broken(f"record {head.sequence} is not the one that its head file names: another or an older copy")
        return verified, records, head

    def _commit(self, db: sqlite3.Connection, record: Record) -> None:
        """Insert and commit a record, then update the head under the lock, so that the head never moves back."""
        draft = record.draft
        row = (record.sequence, draft.kind, draft.dataset, draft.parameter, str(draft.units), draft.text, draft.time)
        db.execute(_INSERT, (*row, record.previous, record.hash))
        db.execute("COMMIT")
        try:
            db.execute("BEGIN IMMEDIATE")
            head = read_head(self.path)
            if head is None or head.sequence < record.sequence:
                write_head(self.path, Head(record.sequence, record.hash))
            db.execute("ROLLBACK")
        except (sqlite3.Error, OSError, Broken) as error:
            charged = " and stays charged" if draft.kind == "debit" else ""
            raise LedgerError(
                f"Record {record.sequence} is in the ledger {self.path}{charged}, but its head file could "
                f"not be written ({error}). Release nothing on it; free disk space or fix the permissions, and run "
                "again."
            ) from error

    def _create_file(self) -> None:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return  # another process created it first; the lock decides which one fills it
        sync_folder(self.path.parent)

    def _is_empty(self, db: sqlite3.Connection) -> bool:
        """Whether the file is empty, which happens only if its creation was interrupted and SQLite has undone it."""
        tables = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return tables == (0,) and os.lstat(self.path).st_size == 0

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """A connection with a shared lock; while it is held, nothing is appended and the head does not move ahead."""
        with self._connection() as db:
            db.execute("BEGIN")
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            yield db

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """A new connection; whatever was not committed is rolled back when it closes."""
        with _CONNECTED, self._translated():
            self._check_file()
            uri = f"file:{quote(os.fspath(self.path))}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=self.timeout, isolation_level=None)) as db:
                db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA cell_size_check = ON")
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("PRAGMA fullfsync = ON")  # macOS: flush the drive as well
                if db.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
                    raise Broken("its journal mode cannot be set")
                yield db

    def _check_file(self) -> None:
        """Refuse anything but a regular file with one name.

        A link could be pointed at an older copy, and SQLite names the journal after the link, so that two names would
        mean two journals.
        """
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            raise Broken("the database is missing") from None
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise LedgerError(
                f"The ledger {self.path} is a link, has a second name, or is not a regular file. Give the path of the "
                "file itself, and remove other hard links to it."
            )

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Turn every error of the records, of SQLite and of the file system into LedgerError."""
        try:
            yield
        except Broken as error:
            raise LedgerError(f"The ledger {self.path} cannot be trusted: {error}. {_RESTORE}") from None
        except sqlite3.Error as error:
            raise LedgerError(f"The ledger {self.path} {_explained(error, self.timeout)}") from error
        except (MemoryError, UnicodeError) as error:  # from SQLite's binding, if a file is damaged
            raise LedgerError(f"The ledger {self.path} cannot be read ({type(error).__name__}). {_RESTORE}") from error
        except OSError as error:
            raise LedgerError(
                f"The ledger {self.path} cannot be used: {error.strerror or error}. Its folder must exist and be "
                "writable. Do not release anything that was not recorded."
            ) from error


_RESTORE = (
    "Nothing was debited. Restore the database and the head file from the same backup (docs/reference/ledger.md)."
)


def _refuse_head(head: Head | None, state: str) -> None:
    """Refuse a head file whose database has no records."""
    if head is not None:
        raise Broken(f"the database is {state}, though its head file is at record {head.sequence}")


def _explained(error: sqlite3.Error, timeout: float) -> str:
    """The end of a sentence about an error of SQLite, and what to do."""
    code = cast("int", getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"was locked by another process for {timeout:g} s. Nothing was debited; run again when it is free."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return f"cannot be written ({error}). Nothing was debited. Make its file and folder readable and writable."
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"could not be written completely ({error}); the disk may be full. The debit may or may not be recorded: "
            "count it as spent, release nothing on it, free disk space, and run again."
        )
    return f"cannot be trusted: {error}. {_RESTORE}"


def _whole(db: sqlite3.Connection, since: Verified) -> tuple[Verified, tuple[Record, ...]]:
    """The chain to its end, and the records after `since`, which must be unchanged; the head is not checked."""
    _check_schema(db)
    if since.sequence and _hash(db, since.sequence) != since.hash:
        raise Broken(f"record {since.sequence} has changed since it was last read: it was rolled back or replaced")
    records = tuple(_records(db, since.sequence))
    return follow(since, records), records


def _check_schema(db: sqlite3.Connection) -> None:
    """Check that the tables and triggers are exactly ours, so that a removed or added trigger is found."""
    if db.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
        raise Broken("the file is not an hdmm ledger")
    if db.execute("PRAGMA user_version").fetchone() != (_LEDGER_VERSION,):
        raise Broken(f"it is not of version {_LEDGER_VERSION}, and may be from a newer version of hdmm")
    if dict(db.execute("SELECT name, sql FROM sqlite_master")) != _SCHEMA:
        raise Broken("its tables and triggers were changed")


def _hash(db: sqlite3.Connection, sequence: int) -> object:
    row = db.execute("SELECT hash FROM records WHERE sequence = ?", (sequence,)).fetchone()
    return None if row is None else row[0]


def _records(db: sqlite3.Connection, after: int) -> Iterable[Record]:
    """The records after a sequence number, as they are stored; only their types are checked."""
    for row in db.execute(_SELECT, (after,)):
        sequence, kind, dataset, parameter, units, text, time, previous, digest = cast("tuple[object, ...]", row)
        fits = (
            isinstance(sequence, int)
            and all(isinstance(value, str) for value in (dataset, text, time))
            and kind in get_args(RecordKind)
            and parameter in (*get_args(Parameter), "")
            and isinstance(units, str)
            and _UNITS.fullmatch(units)
            and isinstance(previous, str)
            and _HASH.fullmatch(previous)
            and isinstance(digest, str)
            and _HASH.fullmatch(digest)
        )
        if not fits:
            raise Broken(f"the record after record {after} is not in the format of a record")
        after = cast("int", sequence)
        draft = Draft(
            kind=cast("RecordKind", kind),
            text=cast("str", text),
            time=cast("str", time),
            dataset=cast("str", dataset),
            parameter=cast("Parameter", parameter),
            units=int(cast("str", units)),
        )
        yield Record(after, draft, cast("str", previous), cast("str", digest))
