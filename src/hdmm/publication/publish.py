"""A publication: measure once, then write every table, the release, the plan, the metadata and the report.

The folder appears whole or not at all. What can be refused is refused before the ledger is debited, and data is read
only after that: see measure.py. What was measured is on disk before anything is made from it: see unpublished.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, final

from hdmm.answers.table import Forecast, Table, named_table
from hdmm.base.durable import sync_folder
from hdmm.base.exceptions import FileError, HdmmError, Interrupted, StrategyError
from hdmm.base.numbers import many
from hdmm.base.signals import finishing
from hdmm.data.table_like import TableLike
from hdmm.describe.workload import Workload
from hdmm.engines import Device, Workers
from hdmm.io.folder import replace_file, restore, whole_folder, write_file
from hdmm.io.strict_json import Json
from hdmm.measure.chunked_release import AnyRelease, ChunkedRelease, free_folder, is_whole
from hdmm.measure.combine import combine
from hdmm.measure.measure import measure_prepared
from hdmm.measure.plan import Plan
from hdmm.measure.release import Release
from hdmm.privacy.ledger import seen_by
from hdmm.publication.answered import answer_tables, report_of
from hdmm.publication.budget import Budget, budget_in, paying_ledger
from hdmm.publication.difference import changes_since
from hdmm.publication.files import write_table
from hdmm.publication.forecast import as_measured, forecasts
from hdmm.publication.metadata import data_package, metadata
from hdmm.publication.outlook import combined_for
from hdmm.publication.planning import answers
from hdmm.publication.preflight import (
    Preflight,
    check_output,
    check_replaceable,
    ledger_of,
    load_verified,
    preflight,
    require_paid,
)
from hdmm.publication.published import Published, open_published
from hdmm.publication.registry import record_of
from hdmm.publication.report import render, write_workbook
from hdmm.publication.spec import Spec
from hdmm.publication.unpublished import (
    ROOM,
    clear,
    how_to_publish,
    is_kept,
    put_in_place,
    release_sizes,
    take_room,
    unpublished,
    workplace,
)
from hdmm.reconstruct.nonnegative import check_nonnegative

_FILES = {"report": "report.html", "workbook": "report.xlsx", "registry": "registry.yaml"}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """What was published: where it is, the release, the tables with their expected errors, and the budget then."""

    folder: Path
    release: AnyRelease
    tables: tuple[Table, ...]
    forecasts: tuple[Forecast, ...]
    budget: Budget

    def __repr__(self) -> str:
        return f"Publication({str(self.folder)!r}, {many(len(self.tables), 'table')})"

    def __getitem__(self, name: str) -> Table:
        """The table of this name."""
        return named_table(self.tables, name)


def publish(
    spec: Spec,
    plan: Plan,
    *,
    source: TableLike | None = None,
    force: bool = False,
    new_dataset: bool = False,
    engine: Device | Workers | None = None,
) -> Publication:
    """Debit, measure, and write the output folder of a specification.

    `source` is a frame or table in place of the one the specification names. A folder of an earlier publication is
    replaced with `force`; anything else at its path is refused. If writing fails, the release is kept, and the
    error says how to publish it. `new_dataset` is for a dataset whose name is near another's: see `Ledger`.
    The engine is `hdmm.engines.gpu()`, or `hdmm.engines.dask(…)`, which keeps the chunks of the release in its folder,
    or None for this machine's processor and memory.
    """
    return publish_ready(preflight(spec, source, force=force), plan, new_dataset=new_dataset, engine=engine)


def publish_ready(
    ready: Preflight, plan: Plan, *, new_dataset: bool = False, engine: Device | Workers | None = None
) -> Publication:
    """The same, from what was examined before the plan was made."""
    spec, force = ready.spec, ready.force
    if not answers(plan, spec):
        raise StrategyError("The plan was made for other tables, another domain or other noise. Plan again.")
    prepared = as_measured(spec, plan, in_chunks=isinstance(engine, Workers))
    expected = forecasts(spec, prepared.form)
    for each in expected:
        if not each.answered:
            raise StrategyError(f"The plan has no answers to table {each.name!r}. Give it more weight, and plan again.")
    if spec.output.counts != "unbiased":
        if isinstance(engine, Workers):
            raise StrategyError(
                f"{spec.path} asks for {spec.output.counts} counts, which are not computed in chunks. Ask for unbiased "
                "counts, or release without --engine dask."
            )
        check_nonnegative(prepared.form, integers=spec.output.counts == "integers")
    options = engine.options if isinstance(engine, Workers) else ()
    with _explaining_interrupt(spec, options), workplace(spec) as folder:
        check_output(spec, force=force)  # again: under the lock nobody else changes it
        plan.save(folder / "plan")
        room = folder / ROOM
        take_room(room, {} if isinstance(engine, Workers) else release_sizes(prepared, spec.data.dataset))
        if isinstance(engine, Workers):
            plan.save(free_folder(engine) / "plan")  # with the chunks, from which the release can be resumed
        ledger = paying_ledger(spec, ready.account, new_dataset=new_dataset)
        with finishing():
            release = measure_prepared(prepared, ready.data, ledger=ledger, purpose=ready.purpose, engine=engine)
            _keep(spec, release, folder, room)
        paid_by = budget_in(seen_by(ledger), ledger.dataset)
        return _finished(spec, release, plan, expected, paid_by, folder, force=force)


def resume(spec: Spec, *, force: bool = False, engine: Workers | None = None) -> Publication:
    """Write the output folder from the release that a failed run has kept. Reads no data, spends nothing.

    The ledger must hold the debit that paid for it. Of a release in chunks, the engine's folder holds the chunks.
    """
    if not is_kept(spec) and (engine is None or not is_whole(engine)):
        raise FileError(f"There is no release in {unpublished(spec)} to resume. Release without --resume.")
    check_replaceable(spec, force=force)
    with _explaining_interrupt(spec, () if engine is None else engine.options), workplace(spec) as folder:
        if engine is None or is_kept(spec):
            release, plan, paid_by = load_verified(spec, folder, engine)
        else:  # the run was stopped when all chunks were measured, before their record was here
            release, plan, paid_by = load_verified(spec, engine.folder, engine)
            plan.save(folder / "plan")
            release.save(folder / "release")
        return _finished(spec, release, plan, forecasts(spec, release.form), paid_by, folder, force=force)


def rewrite_report(
    spec: Spec, *, xlsx: bool = False, since: Path | None = None, registry: bool = False
) -> dict[str, Path]:
    """Write the report of a publication again, from its release; the files by what they are.

    With `since`, it has the changes since an earlier publication. `xlsx` also writes it as an Excel workbook, and
    `registry` a record for the registry of deployments. Each file is written whole or not at all. The ledger must hold
    the debits that paid for both releases.
    """
    folder = spec.output.folder
    restore(folder)
    if not os.path.lexists(folder):
        raise FileError(f"{folder} does not exist: nothing was published from {spec.path} yet. Run hdmm release first.")
    release, plan, _ = load_verified(spec, folder)
    tables = answer_tables(spec, release, forecasts(spec, release.form))
    report = report_of(spec, release, plan.operator, tables)
    if since is not None:
        earlier = open_published(since)
        require_paid(earlier.release, since, *ledger_of(spec))
        report = replace(report, changes=changes_since(earlier, open_published(folder)))
    texts = {"report": render(report), **({"registry": record_of(report, _units(release))} if registry else {})}
    found = {kind: _replaced(folder / _FILES[kind], partial(_write, text.encode())) for kind, text in texts.items()}
    if xlsx:
        found["workbook"] = _replaced(folder / _FILES["workbook"], partial(write_workbook, report))
    return found


def combine_publications(
    found: Sequence[Published],
    target: Path,
    ledger: tuple[Path, str],
    spec: Spec | None = None,
    *,
    same_rows: bool = False,
    force: bool = False,
) -> Release:
    """Write what several publications measured as one release; with a specification, also its tables and a report.

    Reads no data, spends nothing. The ledger, which is its path and what names it, must have paid for every release.
    """
    releases = [each.release for each in found]
    for each in found:
        require_paid(each.release, each.folder, *ledger)
    if spec is None:
        both = combine(releases, same_rows=same_rows)
        with whole_folder(target, partial(_refuse_existing, target)) as folder:
            both.save(folder / "release")
        return both
    both = combined_for(spec, releases, same_rows=same_rows)
    spec = replace(spec.redirected(None, target), privacy=both.privacy)
    expected = forecasts(spec, both.form)
    with whole_folder(target, partial(check_replaceable, spec, force=force)) as folder:
        both.save(folder / "release")
        write_files(spec, both, f"Combination of {many(len(both.parts), 'release')}", expected, folder)
    return both


def _units(release: AnyRelease) -> int | None:
    """About how many rows, or persons of one row each, were counted; None if the release does not say."""
    with suppress(StrategyError):
        if release.unit.rows == 1:
            total = float(release.answer(Workload.marginals(release.domain, k=0)).values[0])
            return max(round(total), 0)
    return None


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileError(f"{target} exists. Choose another folder with --output.")


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _replaced(target: Path, write: Callable[[BinaryIO], object]) -> Path:
    """The path of a file that was written whole in the place of the one there."""
    try:
        replace_file(target, write)
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}. Check the permissions and the space.") from None
    return target


def _finished(
    spec: Spec,
    release: AnyRelease,
    plan: Plan,
    expected: tuple[Forecast, ...],
    paid_by: Budget,
    folder: Path,
    *,
    force: bool,
) -> Publication:
    """The publication: all but release and plan is written into the folder, which becomes the output folder."""
    try:
        tables = write_files(spec, release, plan.operator, expected, folder)
        done = Publication(spec.output.folder, release, tables, expected, paid_by)
        _put_in_place(spec, folder, force=force)
    except Exception as wrong:
        with suppress(OSError):
            clear(folder)
        options = release.engine.options if isinstance(release, ChunkedRelease) else ()
        raise FileError(f"{_reason(spec, wrong)} {how_to_publish(spec, options)}") from wrong
    return done


def write_files(
    spec: Spec, release: AnyRelease, operator: str, expected: Sequence[Forecast], folder: Path
) -> tuple[Table, ...]:
    """The tables of a release, written into a folder with their metadata and the report."""
    tables = answer_tables(spec, release, expected)
    os.mkdir(folder / "tables")
    files = [described for table in tables for described in write_table(table, folder)]
    sync_folder(folder / "tables")
    _write_json(folder / "metadata.json", metadata(spec, release, expected))
    _write_json(folder / "datapackage.json", data_package(spec, release, files))
    _write_text(folder / "report.html", render(report_of(spec, release, operator, tables)))
    return tables


def _keep(spec: Spec, release: AnyRelease, folder: Path, room: Path) -> None:
    """Write what was measured into the room that was taken for it; every error says what it has cost.

    The chunks of a release by workers are on disk by then, whole, and it can be resumed from these.
    """
    try:
        shutil.rmtree(room, ignore_errors=True)
        release.save(folder / "release")
    except Exception as wrong:
        said = str(wrong) if isinstance(wrong, HdmmError) else f"The release cannot be saved ({type(wrong).__name__})."
        if isinstance(release, ChunkedRelease):
            raise FileError(f"{said} {how_to_publish(spec, release.engine.options)}") from None
        raise FileError(
            f"{said} The budget was debited and stays charged, and what was measured is lost; to run again debits it "
            "again."
        ) from None


def _put_in_place(spec: Spec, folder: Path, *, force: bool) -> None:
    """Give the finished folder its name; whoever interrupts that learns that the tables are published."""
    published = False
    try:
        with finishing():
            put_in_place(spec, folder, check_replaceable(spec, force=force))
            published = True
    except KeyboardInterrupt:
        if not published:
            raise
        raise Interrupted(f"The tables are published in {spec.output.folder}.") from None


@contextmanager
def _explaining_interrupt(spec: Spec, options: Sequence[str]) -> Generator[None]:
    """Say to whoever interrupts a release that is paid for and kept, how to publish it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interrupted) or not is_kept(spec):
            raise
        raise Interrupted(how_to_publish(spec, options)) from None


def _reason(spec: Spec, wrong: Exception) -> str:
    """Why there is no publication: our words or the system's; only the type of an unexpected error (security O3)."""
    if isinstance(wrong, HdmmError):
        return str(wrong)
    if isinstance(wrong, OSError) and wrong.strerror:
        return f"{spec.output.folder} cannot be written: {wrong.strerror}."
    return f"Something unexpected went wrong ({type(wrong).__name__})."


def _write_json(path: Path, content: Mapping[str, Json]) -> None:
    _write_text(path, json.dumps(content, indent=2, allow_nan=False))


def _write_text(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(text.encode()))
