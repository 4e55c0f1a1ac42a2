"""Preflight: what must hold before anything is spent, and before a release that was kept is published.

For a new release, the output folder, the data's columns and the ledger are examined once. One that was measured already
is read for publishing only if the ledger paid for it (security L7).
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.base.exceptions import FileError, HdmmError, LedgerError
from hdmm.data import Data
from hdmm.data.engines.address import is_address
from hdmm.data.table_like import TableLike
from hdmm.engines import Workers
from hdmm.io.folder import restore
from hdmm.measure.chunked_release import AnyRelease, load_chunked
from hdmm.measure.measurement import given_receipts, verify_paid
from hdmm.measure.plan import Plan, load_plan
from hdmm.measure.release import Release, load_release
from hdmm.privacy.audit import Audit, audit_of, check_writable
from hdmm.publication.budget import Budget, budget_in, budget_of, check_payable
from hdmm.publication.metadata import PUBLICATION_FORMAT, read_metadata
from hdmm.publication.planning import answers, check_parent
from hdmm.publication.spec import Spec
from hdmm.publication.spec.keys import is_url
from hdmm.publication.spec.origin import open_data, rows_of
from hdmm.publication.unpublished import MARK, PARTS, how_to_publish, is_kept

_UNPAID = "Nothing is published from {}, because nothing shows that it was paid for."
_MOST = 120  # characters of each part of a purpose; a ledger has room for 500


@final
@dataclass(frozen=True, slots=True, eq=False)
class Preflight:
    """A specification whose output folder is free, whose data has the columns it needs, and whose ledger was audited.

    Only what another process may change before the debit is checked again then: the folder, under its lock
    (`publish_ready`); files that were written since, and databases (`Data.check`); and records that were added since
    (`Ledger.debit`).
    """

    spec: Spec
    data: Data
    account: Budget
    force: bool
    purpose: str  # of the debit


def preflight(spec: Spec, source: TableLike | None = None, *, force: bool = False) -> Preflight:
    """Refuse what can be refused without a plan. Reads no rows, writes nothing."""
    check_output(spec, force=force)
    return Preflight(spec, open_data(spec, source), budget_of(spec), force, purpose_of(spec, source))


def refusals(spec: Spec, account: Budget) -> list[HdmmError]:
    """The errors with which a release would end at present, whatever its options. Leaves no trace."""
    checks: list[Callable[[], object]] = [
        lambda: check_writable(spec.ledger.path),
        lambda: check_payable(spec, account),
        lambda: check_output(spec, force=True),
        lambda: check_parent(spec.output.folder),
    ]
    return [wrong for check in checks if (wrong := error_of(check)) is not None]


def secret_warning(spec: Spec) -> str | None:
    """What to do about a password in a specification; None if there is none."""
    if not spec.tells_secret:
        return None
    return (
        f"A password, token or key is written into source in {spec.path}, where everybody who reads the file sees it. "
        "Take it out: put it into ~/.pgpass or PGPASSWORD, or write ${PASSWORD} in its place."
    )


def replaced(spec: Spec) -> str | None:
    """What a release with --force would replace, in words; None if there is nothing, or if nothing may be replaced."""
    if error_of(lambda: check_output(spec, force=True)) is not None:
        return None
    wrong = error_of(lambda: check_output(spec, force=False))
    return None if wrong is None else str(wrong)


def error_of(check: Callable[[], object]) -> HdmmError | None:
    """The error with which a check ends, if it ends with one."""
    try:
        check()
    except HdmmError as wrong:
        return wrong
    return None


def check_output(spec: Spec, *, force: bool) -> None:
    """Raise FileError if something must stay: an earlier publication, or a release that waits to be published."""
    if is_kept(spec):
        raise FileError(
            f"An earlier release of {spec.path} was not published. {how_to_publish(spec)} Nothing was spent now. "
            "To give that release up, remove the folder."
        )
    check_replaceable(spec, force=force)


def check_replaceable(spec: Spec, *, force: bool) -> os.stat_result | None:
    """The earlier publication that exists and may be replaced, if there is one; FileError if something must stay."""
    target = spec.output.folder
    try:
        restore(target)
        there = os.lstat(target)
        if not stat.S_ISDIR(there.st_mode):
            raise FileError(f"{target} exists and is not a folder (links are not followed). Choose another folder.")
        names = set(os.listdir(target)) - {MARK}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}. Choose another folder.") from None
    if names and (names - PARTS or not _is_ours(target)):
        raise FileError(f"{target} exists and holds files that hdmm did not publish. Choose another folder.")
    if names and not force:
        raise FileError(
            f"{target} holds an earlier publication. Choose another folder, or use --force (force=True) to replace it."
        )
    return there


def _is_ours(folder: Path) -> bool:
    with suppress(FileError):
        return (read_metadata(folder, links=False) or {}).get("format") == PUBLICATION_FORMAT
    return False


def load_verified(spec: Spec, folder: Path, engine: Workers | None = None) -> tuple[AnyRelease, Plan, Budget]:
    """The release and the plan in a folder, if they are of this specification and paid for from its budget.

    Of a release in chunks, the folder holds a record, and the engine's folder the chunks.
    """
    release = load_release(folder / "release") if engine is None else load_chunked(engine, folder / "release")
    plan = load_plan(folder / "plan")
    if not answers(plan, spec):
        raise FileError(f"{folder} was released for other tables than {spec.path} has now. Change them back.")
    if release.privacy != spec.privacy or release.unit != spec.unit:
        raise FileError(
            f"{folder} was released at {release.privacy}, hiding {release.unit}; {spec.path} now says otherwise. "
            "Change it back."
        )
    if [(k.product, k.counts.tolist()) for k in release.known] != [(k.product, k.counts.tolist()) for k in spec.known]:
        raise FileError(f"{folder} was released beside other known counts than {spec.path} has now. Change them back.")
    if not _of_these_rows(spec, release):
        raise FileError(
            f"{folder} was released of other rows than {spec.path} names now: its filter, its columns or its variables "
            "(--set) differ. Change them back."
        )
    return release, plan, _paying(spec, release, folder)


def _of_these_rows(spec: Spec, release: AnyRelease) -> bool:
    """Whether filter, columns and variables are those of the release, as far as it says; the data may have moved."""
    now = rows_of(spec)
    then = [part.rows for part in release.parts] if isinstance(release, Release) else [release.rows]
    return all(rows.columns in (None, now.columns) and rows.period in (None, now.period) for rows in then)


def _paying(spec: Spec, release: AnyRelease, folder: Path) -> Budget:
    """The budget that paid for this release; LedgerError unless its ledger holds the debit (security L7)."""
    dataset, paid_on = spec.data.dataset, "" if release.receipt is None else release.receipt.dataset
    if paid_on not in ("", dataset):
        raise LedgerError(
            f"{_UNPAID.format(folder / 'release')} Its receipt is for dataset {paid_on!r}, but {spec.path} says "
            f"{dataset!r}. Write the dataset that it was measured on."
        )
    return budget_in(require_paid(release, folder / "release", *ledger_of(spec)), dataset)


def ledger_of(spec: Spec) -> tuple[Path, str]:
    """The ledger of a specification, and what names it."""
    return spec.ledger.path, f"[ledger] of {spec.path}"


def require_paid(release: AnyRelease, place: Path, ledger: Path, named_by: str) -> Audit:
    """The audit of the ledger that paid for the release at a place; LedgerError unless it did (security L7).

    Whatever publishes from a release that lies on disk asks this first.
    """
    refused, named = _UNPAID.format(place), f"{named_by} names {ledger}"
    try:
        dataset = given_receipts(release.receipts)[0].dataset
        found = audit_of(ledger)
        if found is not None and found.account(dataset) is not None:
            verify_paid(release, release.receipts, found, dataset)
            return found
    except LedgerError as wrong:
        raise LedgerError(f"{refused} {wrong} ({named}.)") from None
    if found is None:
        raise LedgerError(
            f"{refused} {named}, which does not exist. If the ledger was moved, write its path there, or put both of "
            "its files back; if it is lost, restore it from a backup (docs/reference/ledger.md)."
        )
    raise LedgerError(
        f"{refused} {named}, but that ledger has no account for dataset {dataset!r}. Write the path of the ledger "
        "that paid for the release."
    )


def purpose_of(spec: Spec, source: TableLike | None) -> str:
    """One line that distinguishes this release from those of other months. A database is named without its URL.

    A URL may hold a password, and the ledger keeps what it is given.
    """
    tables = f"tables {', '.join(spec.groups)}"
    made = ", ".join([spec.path.name, *(f"{name}={value}" for name, value in spec.recorded.items())])
    rows = source_name(spec, source) + ("" if spec.data.where is None else f" where {spec.data.where}")
    parts = (_short(spec.title), _short(tables), f"from {_short(rows)}", f"by {_short(made)}")
    return f"{parts[0]}: {' '.join(parts[1:])}"


def source_name(spec: Spec, source: TableLike | None = None) -> str:
    """What the data is called, without the folder of a file and without what a URL may hold."""
    named = spec.data.source if source is None else source
    if isinstance(named, str) and is_address(named):
        kind = spec.masked(named.partition("://")[0]) if is_url(named) else "database"
        return f"{kind} table {spec.data.table}"
    if isinstance(named, str | os.PathLike):
        return os.path.basename(os.path.normpath(named))
    return "a table given in Python"


def _short(text: str) -> str:
    """One printable line in Unicode NFC of at most so many characters."""
    line = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", text))
    line = " ".join(line.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1].rstrip(' ,')}…"
