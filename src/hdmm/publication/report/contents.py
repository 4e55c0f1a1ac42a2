"""Report: what the page is about. Everything in it is public: estimates, margins, and the strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from hdmm.answers.table import Table
from hdmm.base.exceptions import ReportError
from hdmm.privacy.guarantee import Privacy, Unit
from hdmm.privacy.ledger import Receipt
from hdmm.strategy.strategy import Strategy


@final
@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One release, as its readers see it. `level` is the confidence level of the intervals in the tables.

    `most_rows` is how many rows of each person were counted at most, if rows say whose they are, and `impossible` has
    the conditions under which no row was counted.
    """

    title: str
    dataset: str
    created: str
    privacy: Privacy
    unit: Unit
    receipt: Receipt | None
    level: float
    tables: tuple[Table, ...]
    strategy: Strategy
    operator: str
    kind: Literal["unbiased", "nonnegative", "integers"] = "unbiased"
    most_rows: int | None = None
    impossible: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ReportError(f"A confidence level of {self.level!r} is not between 0 and 1. Use for example 0.95.")
        for table in self.tables:
            if table.biased and self.kind == "unbiased":
                raise ReportError(
                    f"Table {table.name!r} has biased estimates, but the page says that no count was raised to 0. "
                    'Answer without nonnegative=True, or give the report the kind "nonnegative" or "integers".'
                )
            _check(table, self.level)

    @property
    def counts(self) -> int:
        """The rows of all tables."""
        return sum(map(len, self.tables))


def _check(table: Table, level: float) -> None:
    """Refuse a table that the page would misrepresent."""
    if table.level != level:
        raise ReportError(
            f"Table {table.name!r} has intervals of level {table.level}, but the report says {level}. Use one level."
        )
    sizes = {array.shape for array in table.numbers}
    unknown = table.unknown & np.isneginf(table.lower) & np.isposinf(table.upper) if len(sizes) == 1 else False
    for what, array in zip(("estimate", "stddev", "lower", "upper"), table.numbers, strict=True):
        if array.shape != (len(table),):
            raise ReportError(
                f"Table {table.name!r} has {len(table):,} rows, but its {what} has shape {array.shape}. "
                "Give one number per row."
            )
        if not (np.isfinite(array) | unknown).all():
            raise ReportError(f"The {what} of table {table.name!r} has entries that are not finite numbers.")
    inside = (table.stddev >= 0) & (table.lower <= table.estimate) & (table.estimate <= table.upper)
    if not (inside | unknown).all():
        raise ReportError(
            f"Table {table.name!r} has a standard deviation below 0, or an estimate outside its interval."
        )
    expected = table.forecast
    if expected is not None:
        for error in (expected.rmse, expected.identity, expected.direct, expected.bound):
            if error is not None and not (np.isfinite(error) and error >= 0):
                raise ReportError(f"Table {table.name!r} has an expected error of {error}. Leave out what is unknown.")
