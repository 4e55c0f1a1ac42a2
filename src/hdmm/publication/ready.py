"""Ready: what a release needs besides a plan, examined once before anything is spent."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.base.exceptions import FileError, HdmmError
from hdmm.data import Data
from hdmm.data.records import TableLike
from hdmm.io.folder import restore
from hdmm.io.strict_json import MOST_BYTES, parse
from hdmm.privacy.audit import check_writable
from hdmm.publication.budget import Budget, budget_of, check_payable
from hdmm.publication.intent import purpose_of
from hdmm.publication.metadata import PUBLICATION_FORMAT
from hdmm.publication.planning import check_parent
from hdmm.publication.spec import Spec
from hdmm.publication.spec.origin import open_data
from hdmm.publication.unpublished import MARK, PARTS, how_to_publish, is_kept


@final
@dataclass(frozen=True, slots=True, eq=False)
class Ready:
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


def make_ready(spec: Spec, source: TableLike | None = None, *, force: bool = False) -> Ready:
    """Refuse what can be refused without a plan. Reads no rows, writes nothing."""
    check_output(spec, force=force)
    return Ready(spec, open_data(spec, source), budget_of(spec), force, purpose_of(spec, source))


def refusals(spec: Spec, account: Budget) -> list[HdmmError]:
    """The errors with which a release would end at present, whatever its options. Leaves no trace."""
    checks: list[Callable[[], object]] = [
        lambda: check_writable(spec.ledger.path),
        lambda: check_payable(spec, account),
        lambda: check_output(spec, force=True),
        lambda: check_parent(spec.output.folder),
    ]
    return [wrong for check in checks if (wrong := _error(check)) is not None]


def replaced(spec: Spec) -> str | None:
    """What a release with --force would replace, in words; None if there is nothing, or if nothing may be replaced."""
    if _error(lambda: check_output(spec, force=True)) is not None:
        return None
    wrong = _error(lambda: check_output(spec, force=False))
    return None if wrong is None else str(wrong)


def _error(check: Callable[[], object]) -> HdmmError | None:
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
    if names and (names - PARTS or not _is_ours(target / "metadata.json")):
        raise FileError(f"{target} exists and holds files that hdmm did not publish. Choose another folder.")
    if names and not force:
        raise FileError(
            f"{target} holds an earlier publication. Choose another folder, or use --force (force=True) to replace it."
        )
    return there


def _is_ours(path: Path) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = parse(file.read(MOST_BYTES), str(path))
    except (OSError, FileError):
        return False
    return isinstance(found, dict) and found.get("format") == PUBLICATION_FORMAT
