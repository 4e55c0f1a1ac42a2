"""Cells of a table: what each is, the results on disk, and running those that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.paper.limits import Limits, Outcome, limited

Published: TypeAlias = float | str | None  # a ratio, the paper's "*" or "-", or nothing

_FINAL = ("done", "not applicable", "too large", "refused")  # the same whenever they are run again
_LIMITED = ("timed out", "out of memory")
HALF_HOUR = Limits(1800.0, 16 << 30)  # as in the paper


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure: a method on a row of a table, the job that computes it, and what the paper has."""

    table: str
    row: str
    method: str
    job: str
    arguments: Mapping[str, Any]
    paper: Published = None
    limits: Limits = HALF_HOUR
    skip: str = ""  # why it is not run this time

    @property
    def key(self) -> tuple[str, str, str]:
        return self.table, self.row, self.method


@dataclass(frozen=True, slots=True)
class Result:
    """What was found for a cell, with which arguments and under which limits."""

    cell: Cell
    outcome: Outcome

    @property
    def rmse(self) -> float | None:
        """Root mean squared error a query at unit noise."""
        return self.outcome.figures.get("rmse")


class Store:
    """Results as lines of JSON, the last of a cell counts. Every line is written when its cell is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[tuple[str, str, str], dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                self.records[record["table"], record["row"], record["method"]] = record

    def found(self, cell: Cell) -> Result | None:
        """The result on disk, whatever it was run with."""
        record = self.records.get(cell.key)
        if record is None:
            return None
        return Result(cell, Outcome(record["status"], record["figures"], record["seconds"], record["note"]))

    def settled(self, cell: Cell) -> Result | None:
        """The result on disk where running the cell again would give the same."""
        record = self.records.get(cell.key)
        if record is None or record["arguments"] != _plain(cell.arguments):
            return None
        gave_up = record["status"] in _LIMITED and (
            record["limits"]["seconds"] >= cell.limits.seconds and record["limits"]["memory"] >= cell.limits.memory
        )
        return self.found(cell) if record["status"] in _FINAL or gave_up else None

    def add(self, cell: Cell, outcome: Outcome) -> Result:
        record = {
            "table": cell.table,
            "row": cell.row,
            "method": cell.method,
            "status": outcome.status,
            "figures": outcome.figures,
            "seconds": round(outcome.seconds, 3),
            "note": outcome.note,
            "arguments": _plain(cell.arguments),
            "limits": {"seconds": cell.limits.seconds, "memory": cell.limits.memory},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.records[cell.key] = record
        return Result(cell, outcome)


def run(cells: Iterable[Cell], store: Store, tell: Callable[[Result, bool], None]) -> list[Result]:
    """Every cell's result: from disk where it is settled, else run now and kept. `tell` hears each, and if it ran."""
    results: list[Result] = []
    for cell in cells:
        known = store.settled(cell)
        if known is not None:
            result = known
        elif cell.skip:
            result = Result(cell, Outcome("skipped", {}, 0.0, cell.skip))
        else:
            result = store.add(cell, limited(cell.job, cell.arguments, cell.limits))
        tell(result, known is None and not cell.skip)
        results.append(result)
    return results


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives them back. Where the data lie is not part of what a result is."""
    return json.loads(json.dumps({key: value for key, value in arguments.items() if key != "data"}))
