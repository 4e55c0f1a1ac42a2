"""The report of a publication: gathers what readers see."""

from __future__ import annotations

from datetime import UTC, datetime

from hdmm.answers.table import Table
from hdmm.measure.chunked_release import AnyRelease
from hdmm.publication.report import Report
from hdmm.publication.spec import Spec


def report_of(spec: Spec, release: AnyRelease, operator: str, tables: tuple[Table, ...]) -> Report:
    """What the page and the workbook are about."""
    return Report(
        title=spec.title,
        dataset=spec.data.dataset,
        created=measured_at(release),
        privacy=release.privacy,
        unit=release.unit,
        receipt=release.receipt,
        level=spec.output.level,
        tables=tables,
        strategy=release.strategy,
        operator=operator,
        kind=spec.output.counts,
        most_rows=spec.data.max_rows_per_id,
        impossible=spec.impossible,
    )


def measured_at(release: AnyRelease) -> str:
    """When the data was measured: the time of the receipt, or now if there is none."""
    return datetime.now(UTC).isoformat(timespec="seconds") if release.receipt is None else release.receipt.timestamp
