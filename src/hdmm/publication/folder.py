"""A publication: measure once, then write every table, the release, the plan, the metadata and the report.

The folder appears whole or not at all. What can be refused is refused before the ledger is debited, and data is read
only after that: see measure.py.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.data.table import TableLike
from hdmm.exceptions import FileError, StrategyError
from hdmm.forecast import Forecast, as_measured, forecasts
from hdmm.io.folder import sync_folder, whole_folder, write_file
from hdmm.io.strict_json import MOST_BYTES, parse
from hdmm.ledger import Ledger
from hdmm.plan import Plan, load_plan
from hdmm.publication.metadata import FORMAT, metadata
from hdmm.publication.page import page
from hdmm.publication.planning import suits
from hdmm.publication.tables import PublishedTable
from hdmm.release import Release, load_release
from hdmm.spec import Spec
from hdmm.spec.source import open_data

PARTS = frozenset({"metadata.json", "report.html", "tables", "release", "plan"})


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


def publish(spec: Spec, plan: Plan, *, source: TableLike | None = None, force: bool = False) -> Publication:
    """Debit, measure, and write the output folder of a specification.

    `source` is a frame or table in place of the one the specification names. A folder of an earlier publication is
    replaced with `force`; anything else at its path is refused.
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
    with whole_folder(spec.output.folder, lambda: check_output(spec, force=force)) as folder:
        ledger = Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap)
        purpose = f"tables {', '.join(table.name for table in spec.tables)}"[:200].rstrip(", ")
        release = plan.measure(data, spec.privacy, ledger=ledger, unit=spec.unit, purpose=purpose)
        release.save(folder / "release")
        plan.save(folder / "plan")
        tables = tuple(PublishedTable.of(table, release, spec.output.level) for table in spec.tables)
        _write_tables(folder / "tables", tables)
        _write_text(folder / "metadata.json", json.dumps(metadata(spec, release, expected), indent=2, allow_nan=False))
        _write_text(folder / "report.html", page(spec, release, plan.operator, tables, expected))
    return Publication(spec.output.folder, release, tables, expected)


def rewrite_report(spec: Spec) -> Path:
    """Write the report of a publication again, from its release; whole or not at all."""
    folder = spec.output.folder
    if not os.path.lexists(folder):
        raise FileError(f"{folder} is not there: nothing was published from {spec.path} yet. First: hdmm release.")
    release, plan = load_release(folder / "release"), load_plan(folder / "plan")
    if not suits(plan, spec):
        raise FileError(f"{folder} was published from other tables than {spec.path} has now. Release again.")
    tables = [PublishedTable.of(table, release, spec.output.level) for table in spec.tables]
    text = page(spec, release, plan.operator, tables, forecasts(spec, release.strategy))
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


def _write_tables(folder: Path, tables: Sequence[PublishedTable]) -> None:
    os.mkdir(folder)
    for table in tables:
        write_file(folder / f"{table.table.name}.csv", table.write_csv)
        write_file(folder / f"{table.table.name}.parquet", table.write_parquet)
    sync_folder(folder)


def _write_text(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(text.encode()))


def check_output(spec: Spec, *, force: bool) -> bool:
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
