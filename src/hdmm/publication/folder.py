"""A publication: measure once, then write every table, the release, the plan, the metadata and the report.

The folder appears whole or not at all. What can be refused is refused before the ledger is debited, and data is read
only after that: see measure.py.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import final

from hdmm.data.table import TableLike
from hdmm.exceptions import FileError, StrategyError
from hdmm.forecast import Forecast, forecasts
from hdmm.io.folder import sync_folder, whole_folder, write_file
from hdmm.io.strict_json import MOST_BYTES, Json, parse
from hdmm.ledger import Ledger
from hdmm.plan import Plan
from hdmm.privacy import ApproxDP, Privacy, PureDP
from hdmm.publication.page import measured_at, page
from hdmm.publication.planning import suits
from hdmm.publication.tables import PublishedTable
from hdmm.release import Release
from hdmm.spec import Spec
from hdmm.spec.source import open_data

FORMAT = "hdmm publication"
PARTS = frozenset({"metadata.json", "report.html", "tables", "release", "plan"})
Listener = Callable[[str], None]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """What was published: where it is, the release, and the tables with their expected errors."""

    folder: Path
    release: Release
    tables: tuple[PublishedTable, ...]
    forecasts: tuple[Forecast, ...]


def publish(
    spec: Spec,
    plan: Plan,
    *,
    source: TableLike | None = None,
    force: bool = False,
    listener: Listener = lambda stage: None,
) -> Publication:
    """Debit, measure, and write the output folder of a specification.

    `source` is a frame or table in place of the one the specification names. A folder of an earlier publication is
    replaced with `force`; anything else at its path is refused. `listener` hears what is being done.
    """
    if not suits(plan, spec):
        raise StrategyError("The plan was made for other tables, another domain or other noise. Plan again.")
    data = open_data(spec, source)
    with whole_folder(spec.output.folder, lambda: check_output(spec, force=force)) as folder:
        ledger = Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap)
        listener("counting")
        purpose = f"tables {', '.join(table.name for table in spec.tables)}"[:200].rstrip(", ")
        release = plan.measure(data, spec.privacy, ledger=ledger, unit=spec.unit, purpose=purpose)
        release.save(folder / "release")
        plan.save(folder / "plan")
        listener("writing")
        found = described(spec, release, folder)
        _write_text(folder / "report.html", page(spec, release, plan.operator, found.tables, found.forecasts))
    return Publication(spec.output.folder, found.release, found.tables, found.forecasts)


def described(spec: Spec, release: Release, folder: Path) -> Publication:
    """Write the tables and the metadata of a release into a folder that does not have them."""
    tables = tuple(PublishedTable.of(table, release, spec.output.level) for table in spec.tables)
    expected = forecasts(spec, release.strategy)
    os.mkdir(folder / "tables")
    for table in tables:
        write_file(folder / "tables" / f"{table.table.name}.csv", table.write_csv)
        write_file(folder / "tables" / f"{table.table.name}.parquet", table.write_parquet)
    sync_folder(folder / "tables")
    _write_text(folder / "metadata.json", json.dumps(metadata(spec, release, expected), indent=2, allow_nan=False))
    return Publication(folder, release, tables, expected)


def metadata(spec: Spec, release: Release, expected: Sequence[Forecast]) -> dict[str, Json]:
    """What a reader of the tables must know, as JSON: guarantee, unit, receipt, versions, errors."""
    receipt = release.receipt
    return {
        "format": FORMAT,
        "version": 1,
        "title": spec.title,
        "dataset": spec.data.dataset,
        "created": measured_at(release),
        "privacy": told_privacy(release.privacy),
        "unit": {"rows": release.unit.rows, "neighbours": release.unit.neighbours, "meaning": str(release.unit)},
        "receipt": None
        if receipt is None
        else {
            "sequence": receipt.sequence,
            "parameter": receipt.parameter,
            "amount": str(receipt.amount),
            "balance": str(receipt.balance),
            "hash": receipt.hash,
            "timestamp": receipt.timestamp,
        },
        "level": spec.output.level,
        "specification": {"file": spec.path.name, "sha256": spec.digest},
        "versions": {name: version(name) for name in ("hdmm", "numpy", "scipy", "pyarrow", "duckdb")},
        "tables": [
            {
                "name": each.table.name,
                "title": each.table.title,
                "rows": each.table.rows,
                "columns": list(each.table.columns),
                "rmse": each.rmse,
                "standard_error": "at most" if each.at_most else "exact",
                "rmse_identity": each.identity,
                "rmse_direct": each.direct,
                "rmse_bound": each.bound,
            }
            for each in expected
        ],
    }


def told_privacy(privacy: Privacy) -> dict[str, Json]:
    """A guarantee as JSON: exact parameters as texts, and the sentence."""
    parameters: dict[str, Json] = (
        {"epsilon": str(privacy.epsilon)}
        if isinstance(privacy, PureDP)
        else {"epsilon": str(privacy.epsilon), "delta": str(privacy.delta)}
        if isinstance(privacy, ApproxDP)
        else {"rho": str(privacy.rho)}
    )
    return {**parameters, "meaning": str(privacy)}


def replace_report(folder: Path, text: str) -> Path:
    """Put a report in the place of the one in a folder, whole or not at all."""
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
        raise FileError(f"{target} holds an earlier publication. Choose another folder, or say --force to replace it.")
    return True


def _is_ours(path: Path) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = parse(file.read(MOST_BYTES), str(path))
    except (OSError, FileError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT
