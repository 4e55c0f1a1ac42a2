"""The report of a publication: what report.py shows, gathered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hdmm.forecast import Forecast
from hdmm.publication.tables import PublishedTable
from hdmm.release import Release
from hdmm.report import Report, ReportTable, render
from hdmm.spec import Spec
from hdmm.sql import Statement


def page(
    spec: Spec, release: Release, operator: str, tables: Sequence[PublishedTable], expected: Sequence[Forecast]
) -> str:
    """The HTML of the report."""
    return render(
        Report(
            title=spec.title,
            dataset=spec.data.dataset,
            created=measured_at(release),
            privacy=release.privacy,
            unit=release.unit,
            receipt=release.receipt,
            level=spec.output.level,
            tables=tuple(map(_table, tables, expected)),
            strategy=release.strategy,
            operator=operator,
            notes=(),
        )
    )


def measured_at(release: Release) -> str:
    """When the data was measured: the time of the receipt, or now where there is none."""
    return datetime.now(UTC).isoformat(timespec="seconds") if release.receipt is None else release.receipt.timestamp


def _table(published: PublishedTable, expected: Forecast) -> ReportTable:
    return ReportTable(
        name=published.table.name,
        title=published.table.title,
        columns=published.table.columns,
        labels=[tuple(label or "" for label in row) for row in published.labels()],
        estimate=published.estimate,
        stddev=published.standard_error,
        lower=published.lower,
        upper=published.upper,
        predicted_rmse=expected.rmse,
        identity_rmse=expected.identity,
        laplace_rmse=expected.direct,
        bound_rmse=expected.bound,
        definition=counts.text if isinstance(counts := published.table.counts, Statement) else None,
    )
