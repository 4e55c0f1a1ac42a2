"""Report: what the page is about. Everything in it is public: estimates, margins, and the strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.exceptions import ReportError
from hdmm.ledger import Receipt
from hdmm.matrix import Array
from hdmm.privacy import Privacy, Unit
from hdmm.strategy.base import Strategy


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """One table: a row per count, labelled by `columns`, with its interval; and what error was to be expected.

    `name` is the name of its CSV file, without the ending. The errors are root mean squares over the rows: of this
    release, of noise on every cell, of noise on every answer, and below which no strategy comes. `definition` is the
    SQL that says what is counted.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    labels: Sequence[tuple[str, ...]]
    estimate: Array
    stddev: Array
    lower: Array
    upper: Array
    predicted_rmse: float
    identity_rmse: float | None
    laplace_rmse: float | None
    bound_rmse: float | None
    definition: str | None = None

    def __post_init__(self) -> None:
        rows = len(self.labels)
        for what in ("estimate", "stddev", "lower", "upper"):
            array = np.asarray(getattr(self, what), dtype=np.float64)
            if array.shape != (rows,):
                raise ReportError(
                    f"Table {self.name!r} has {rows:,} rows of labels, but its {what} has shape {array.shape}. "
                    "Give one number a row."
                )
            if not np.isfinite(array).all():
                raise ReportError(f"The {what} of table {self.name!r} has entries that are not finite numbers.")
            object.__setattr__(self, what, array)
        if any(len(label) != len(self.columns) for label in self.labels):
            raise ReportError(
                f"Table {self.name!r} has rows without one label for each of {len(self.columns)} columns."
            )
        if not ((self.stddev >= 0) & (self.lower <= self.estimate) & (self.estimate <= self.upper)).all():
            raise ReportError(
                f"Table {self.name!r} has a standard deviation below 0, or an estimate outside its interval."
            )
        for error in (self.predicted_rmse, self.identity_rmse, self.laplace_rmse, self.bound_rmse):
            if error is not None and not (np.isfinite(error) and error >= 0):
                raise ReportError(f"Table {self.name!r} has an expected error of {error}. Leave out what is unknown.")

    @property
    def margin(self) -> Array:
        """How far the interval reaches from the estimate, on the longer side."""
        return np.maximum(self.upper - self.estimate, self.estimate - self.lower)

    @property
    def may_be_zero(self) -> Array:
        """Whether the interval includes 0."""
        return (self.lower <= 0) & (self.upper >= 0)

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One release, as its readers are told about it. `level` is that of the intervals in the tables."""

    title: str
    dataset: str
    created: str
    privacy: Privacy
    unit: Unit
    receipt: Receipt | None
    level: float
    tables: tuple[ReportTable, ...]
    strategy: Strategy
    operator: str
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ReportError(f"A confidence level of {self.level!r} is not between 0 and 1. Use for example 0.95.")

    @property
    def counts(self) -> int:
        """The rows of all tables."""
        return sum(map(len, self.tables))
