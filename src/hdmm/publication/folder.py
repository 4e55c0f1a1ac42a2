"""A publication: measure once, then write every table, the release, the plan, the metadata and the report.

The folder appears whole or not at all. What can be refused is refused before the ledger is debited, and data is read
only after that: see measure.py. What was measured is on disk before anything is made of it: see unpublished.py.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.data.table import TableLike
from hdmm.durable import sync_folder
from hdmm.exceptions import BudgetError, FileError, HdmmError, LedgerError, StrategyError
from hdmm.forecast import Forecast, as_measured, forecasts
from hdmm.io.folder import exchange, write_file
from hdmm.io.strict_json import MOST_BYTES, parse
from hdmm.ledger import Ledger
from hdmm.plan import Plan, load_plan
from hdmm.publication.metadata import FORMAT, metadata
from hdmm.publication.page import page
from hdmm.publication.planning import suits
from hdmm.publication.tables import PublishedTable
from hdmm.publication.unpublished import PARTS, clear, how_to_publish, is_kept, unpublished, workplace
from hdmm.release import Release, load_release
from hdmm.spec import Spec
from hdmm.spec.source import open_data
from hdmm.strategy.base import Strategy


@final
@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """What was published: where it is, the release, and the tables with their expected errors."""

    folder: Path
    release: Release
    tables: tuple[PublishedTable, ...]
    forecasts: tuple[Forecast, ...]

    def __repr__(self) -> str:
        return f"Publication({str(self.folder)!r}, {len(self.tables):,} tables)"


def publish(
    spec: Spec, plan: Plan, *, source: TableLike | None = None, force: bool = False, new_dataset: bool = False
) -> Publication:
    """Debit, measure, and write the output folder of a specification.

    `source` is a frame or table in place of the one the specification names. A folder of an earlier publication is
    replaced with `force`; anything else at its path is refused. Where writing fails, the release is kept, and the
    error says how to publish it. `new_dataset` is for a dataset whose name is near another's: see `Ledger`.
    """
    if not suits(plan, spec):
        raise StrategyError("The plan was made for other tables, another domain or other noise. Plan again.")
    expected = forecasts(spec, as_measured(spec, plan))
    for each in expected:
        if not math.isfinite(each.rmse):
            raise StrategyError(
                f"The plan has no answers to table {each.table.name!r}. Give it more weight; plan again."
            )
    data = open_data(spec, source)
    check_output(spec, force=force)
    with workplace(spec) as folder:
        check_output(spec, force=force)  # again: nobody else changes it now
        _check_space(folder, plan.strategy)
        plan.save(folder / "plan")
        ledger = Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap, new_dataset=new_dataset)
        purpose = f"tables {', '.join(table.name for table in spec.tables)}"[:200].rstrip(", ")
        release = plan.measure(data, spec.privacy, ledger=ledger, unit=spec.unit, purpose=purpose)
        try:
            release.save(folder / "release")
        except FileError as wrong:
            raise FileError(f"{wrong} The budget stays charged, and what was measured is lost.") from None
        return _finished(spec, release, plan, expected, folder, force=force)


def resume(spec: Spec, *, force: bool = False) -> Publication:
    """Write the output folder from the release that a failed run has kept. Reads no data, spends nothing.

    The ledger must hold the debit that paid for it.
    """
    if not is_kept(spec):
        raise FileError(f"There is no release in {unpublished(spec)}, so nothing to resume. Release without --resume.")
    _check_replaceable(spec, force=force)
    with workplace(spec) as folder:
        release, plan = _loaded(spec, folder)
        return _finished(spec, release, plan, forecasts(spec, release.form), folder, force=force)


def rewrite_report(spec: Spec) -> Path:
    """Write the report of a publication again, from its release; whole or not at all.

    The ledger must hold the debit that paid for the release.
    """
    folder = spec.output.folder
    if not os.path.lexists(folder):
        raise FileError(f"{folder} is not there: nothing was published from {spec.path} yet. First: hdmm release.")
    release, plan = _loaded(spec, folder)
    tables = [PublishedTable.of(table, release, spec.output.level) for table in spec.tables]
    text = page(spec, release, plan.operator, tables, forecasts(spec, release.form))
    target, temporary = folder / "report.html", folder / f".hdmm-{os.urandom(8).hex()}"
    try:
        _write_text(temporary, text)
        os.replace(temporary, target)
        sync_folder(folder)
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}. Check the permissions and the space.") from None
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _loaded(spec: Spec, folder: Path) -> tuple[Release, Plan]:
    """The release and the plan in a folder, where they are of this specification and paid from its ledger."""
    release, plan = load_release(folder / "release"), load_plan(folder / "plan")
    if not suits(plan, spec):
        raise FileError(f"{folder} was released for other tables than {spec.path} has now. Change them back.")
    if (release.privacy, release.unit) != (spec.privacy, spec.unit):
        raise FileError(
            f"{folder} was released at {release.privacy}, hiding {release.unit}, not as {spec.path} says now."
        )
    _check_paid(spec, release, folder)
    return release, plan


def _check_paid(spec: Spec, release: Release, folder: Path) -> None:
    """LedgerError unless the ledger of the specification holds the debit that paid for this release (security L7)."""
    path, dataset = spec.ledger.path, spec.data.dataset
    refused = f"Nothing is published from {folder / 'release'}, because it cannot be seen to be paid for."
    named = f"[ledger] of {spec.path} names {path}"
    if release.receipt is not None and release.receipt.dataset != dataset:
        raise LedgerError(
            f"{refused} Its receipt is of dataset {release.receipt.dataset!r}, and {spec.path} says {dataset!r}. Write "
            "the dataset that it was measured on."
        )
    if not os.path.lexists(path):
        raise LedgerError(
            f"{refused} {named}, and no file is there. If the ledger was moved, write its path there, or put both of "
            "its files back; if it is lost, restore it from a backup (docs/ledger.md)."
        )
    try:
        release.verify(Ledger(path, dataset=dataset))
    except BudgetError:
        raise LedgerError(
            f"{refused} {named}, and that ledger has no account of dataset {dataset!r}. Write the path of the ledger "
            "that paid for the release."
        ) from None
    except LedgerError as wrong:
        raise LedgerError(f"{refused} {wrong} ({named}.)") from None


def _finished(
    spec: Spec, release: Release, plan: Plan, expected: tuple[Forecast, ...], folder: Path, *, force: bool
) -> Publication:
    """The publication: everything but release and plan written into the folder, which becomes the output folder."""
    try:
        tables = tuple(PublishedTable.of(table, release, spec.output.level) for table in spec.tables)
        _write_tables(folder / "tables", tables)
        _write_text(folder / "metadata.json", json.dumps(metadata(spec, release, expected), indent=2, allow_nan=False))
        _write_text(folder / "report.html", page(spec, release, plan.operator, tables, expected))
        sync_folder(folder)
        exchange(folder, spec.output.folder, _check_replaceable(spec, force=force))
    except Exception as wrong:
        with suppress(OSError):
            clear(folder)
        raise FileError(f"{_reason(spec, wrong)} {how_to_publish(spec)}") from wrong
    return Publication(spec.output.folder, release, tables, expected)


def _reason(spec: Spec, wrong: Exception) -> str:
    """Why there is no publication: our own words, or the system's; of what is unexpected its type (security O3)."""
    if isinstance(wrong, HdmmError):
        return str(wrong)
    if isinstance(wrong, OSError) and wrong.strerror:
        return f"{spec.output.folder} cannot be written: {wrong.strerror}."
    return f"Something unexpected went wrong ({type(wrong).__name__})."


def _check_space(folder: Path, strategy: Strategy) -> None:
    """Refuse, before the debit, a disk on which the release has no room."""
    needed = 8 * sum(block.rows for block in strategy.blocks)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FileError(f"The release takes {needed:,} bytes, and {free:,} are free at {folder}. Make room.")


def _write_tables(folder: Path, tables: Sequence[PublishedTable]) -> None:
    os.mkdir(folder)
    for table in tables:
        write_file(folder / f"{table.table.name}.csv", table.write_csv)
        write_file(folder / f"{table.table.name}.parquet", table.write_parquet)
    sync_folder(folder)


def _write_text(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(text.encode()))


def check_output(spec: Spec, *, force: bool) -> None:
    """FileError where something must stay: an earlier publication, or a release that waits to be published."""
    if is_kept(spec):
        raise FileError(
            f"An earlier release of {spec.path} was not published. {how_to_publish(spec)} Nothing was spent now. "
            "Remove the folder to give that release up."
        )
    _check_replaceable(spec, force=force)


def _check_replaceable(spec: Spec, *, force: bool) -> bool:
    """Whether an earlier publication is there that may be replaced; FileError where something must stay."""
    target = spec.output.folder
    try:
        if not stat.S_ISDIR(os.lstat(target).st_mode):
            raise FileError(f"{target} is there and is not a folder (links are not followed). Choose another folder.")
        names = set(os.listdir(target))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}. Choose another folder.") from None
    if names and (names - PARTS or not _is_ours(target / "metadata.json")):
        raise FileError(f"{target} is there and holds what hdmm did not publish. Choose another folder.")
    if names and not force:
        raise FileError(
            f"{target} holds an earlier publication. Choose another folder, or say --force (force=True) to replace it."
        )
    return True


def _is_ours(path: Path) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = parse(file.read(MOST_BYTES), str(path))
    except (OSError, FileError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT
