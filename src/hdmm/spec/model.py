"""Spec: what a specification says, read and checked. Reads no data, spends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import scipy.sparse as sp

from hdmm.domain import Domain
from hdmm.privacy import ZCDP, Privacy, PureDP, Unit
from hdmm.spec.records import DataPart, OutputPart, PlanPart
from hdmm.spec.shorthand import Shorthand
from hdmm.sql import Statement
from hdmm.sql.blocks import Row
from hdmm.workload import Workload


@final
@dataclass(frozen=True, slots=True)
class TableRequest:
    """A table that is asked for. `weight` says how much it matters in planning; it does not change published counts."""

    name: str
    title: str
    weight: float
    counts: Statement | Shorthand

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the label columns."""
        return self.counts.columns

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return self.counts.rows

    @property
    def workload(self) -> Workload:
        """The queries of the table, of weight 1: its rows, or the parts that `combine` sums to rows."""
        return self.counts.workload

    @property
    def combine(self) -> sp.csr_array | None:
        """Which queries are summed into each row; None if each query is a row."""
        return self.counts.combine

    def labels(self) -> Iterator[Row]:
        """The labels of each row, in the order of `columns`."""
        return self.counts.labels()


@final
@dataclass(frozen=True, slots=True)
class LedgerPart:
    """[ledger]: the file that keeps the budget, and the most that may ever be spent."""

    path: Path
    cap: PureDP | ZCDP


@final
@dataclass(frozen=True, slots=True, repr=False)
class Spec:
    """A specification: the data, the tables asked for, and what they may cost.

    `domain` is the declared one, with attributes merged if a condition joins them by OR.
    """

    path: Path
    digest: str  # SHA-256 of the file
    title: str
    data: DataPart
    domain: Domain
    tables: tuple[TableRequest, ...]
    privacy: Privacy
    unit: Unit
    ledger: LedgerPart
    output: OutputPart
    plan: PlanPart

    @property
    def workload(self) -> Workload:
        """All tables, each times its weight: what a plan is made for."""
        products = (
            replace(p, weight=table.weight * p.weight) for table in self.tables for p in table.workload.products
        )
        return Workload(self.domain, tuple(products))

    def __repr__(self) -> str:
        return f"Spec({str(self.path)!r}, {len(self.tables)} tables over {self.domain.size:,} cells)"
