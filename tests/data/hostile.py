"""Hostile values of every type, and the check that they decide nothing: neighbouring tables end in the same way."""

# What ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hdmm import Amount, Bins, DataError, Domain, Integers, Labels, from_table
from hdmm.data.records import TableData
from hdmm.describe.entries import LONGEST_TEXT

# How a column is used: by attributes of some kind, or as the column of ids beside an attribute "a".
ROLES: dict[str, Domain] = {
    "numbers": Domain(
        {
            "i": Integers(0, 3, outside="other"),
            "b": Bins([0, 1, 2**53], outside="other"),
            "n": Labels([1, 2.5, 2], outside="other"),
            "w": Amount(0, 1000, step=0.5),
            "large": Amount(0, 10**12, step=10**6),
            "small": Amount(-0.3, 0.3, step=0.1),
        }
    ),
    "labels": Domain({"l": Labels(["a", "1", "é" * (LONGEST_TEXT // 2)])}),
    "id": Domain({"a": 2}),
}
LONG = [
    "x" * LONGEST_TEXT,
    "x" * (LONGEST_TEXT + 1),
    "é" * (LONGEST_TEXT // 2),
    "é" * (LONGEST_TEXT // 2) + "x",
    "0" * (LONGEST_TEXT - 1) + "1",
    "0" * LONGEST_TEXT + "1",
    " " * LONGEST_TEXT + "1",
    "1" + "0" * 100_000,
    "1e" + "9" * 100_000,
    "0." + "9" * 100_000,
    "x" * 3_000_000,
]
TEXTS = [*LONG, "1e400", "1e-400", "-1e999999999999999999", "1e2000000000", "9" * 400, "\u2028", "NaN", "", " "]


def check_neighbours(
    without: Any,
    hostile: Any,
    column: str,
    capture: pytest.CaptureFixture[str],
    *,
    fetched: bool = True,
    **options: Any,
) -> int:
    """With hostile rows and without them: the same error before rows are read, or counts of one shape, and no word.

    Rows are counted where they are, and `fetched` as well. Returns in how many ways the table is accepted.
    """
    accepted = 0
    for role, domain in ROLES.items():
        for counts_there in (True, False) if fetched else (True,):
            with _counted_here(counts_there):
                before, after = (_outcome(domain, source, role, column, **options) for source in (without, hostile))
            assert before == after, (role, counts_there, before, after)
            assert "could not be read" not in before, (role, counts_there)
            accepted += before.startswith("counts")
    assert capture.readouterr() == ("", "")
    return accepted


def _outcome(domain: Domain, source: Any, role: str, column: str, **options: Any) -> str:
    columns = {"columns": dict.fromkeys(domain.names, column)}
    given = {"id": column, "max_rows_per_id": 2} if role == "id" else columns
    try:
        found = from_table(domain, source, **given, **options).marginal(domain.names)
    except DataError as error:
        return str(error)
    assert found.dtype == np.int64
    return f"counts of shape {found.shape}"


@contextmanager
def _counted_here(counts_there: bool) -> Iterator[None]:
    """Rows are fetched, even if the database could count them."""
    with pytest.MonkeyPatch.context() as patch:
        if not counts_there:
            patch.setattr(TableData, "_counts_there", lambda *_: False)
        yield
