"""Published figures and proven optima beside ours: `python -m benchmarks.referee [--rows PART …] [--output FILE]`.

Gaussian figures are under ZCDP("0.5"), privacy cost 1, where noise has variance 1 at sensitivity 1. Every row is one
call of hdmm.optimize in a process of its own, under a limit of time and one of memory; a row that fails says so and
the others go on. Exits non-zero when a row that is not open falls short or does not run.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from benchmarks.csv_tables import as_csv
from benchmarks.paper.limits import Limits, Outcome, limited
from benchmarks.referee.rows import ROWS, SECTIONS, Row
from benchmarks.targets import half_digit

Verdict: TypeAlias = Literal["reached", "short", "below the optimum", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
JOB = "benchmarks.referee.measure:measured"
GIGABYTE = 1 << 30
SAME = 1e-3  # how far below an optimum a figure may be for the digits of both
NOT_ASKED = "not run: not asked for"
HEAD = ["| row | figure | ours | to reach | published | seconds | operator | gap | |", "|" + "---|" * 9]


@dataclass(frozen=True, slots=True)
class Line:
    """A row and what it came to; without an outcome it was not asked for."""

    row: Row
    optimal: bool
    outcome: Outcome | None

    @property
    def verdict(self) -> Verdict:
        if self.outcome is None or self.outcome.status != "done":
            return "not run"
        value, reach, digit = self.outcome.figures["value"], float(self.row.reach), half_digit(self.row.reach)
        if self.optimal and value < (reach - digit) * (1 - SAME):
            return "below the optimum"
        return "reached" if value <= reach * (1 + self.row.slack) + digit else "short"

    @property
    def falls_short(self) -> bool:
        """Whether a row that was asked for, and is not open, is not reached."""
        return self.outcome is not None and not self.row.open and self.verdict != "reached"

    @property
    def markdown(self) -> str:
        row = self.row
        ours = seconds = operator = gap = ""
        if self.outcome is not None and self.outcome.status == "done":
            found = self.outcome.figures
            ours, seconds, operator = f"{found['value']:.4f}", f"{found['seconds']:.2f}", found["operator"]
            seconds += "" if row.within is None else f" (of {row.within:g})"
            gap = "" if found["gap"] is None else f"{100 * found['gap']:.2g} %"
        reach = row.reach + (" ?" if row.open else "")
        cells = (row.name, row.figure, ours, reach, row.published, seconds, operator, gap, self.said)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    @property
    def said(self) -> str:
        """The verdict in words, and why a row did not run."""
        if self.outcome is None:
            return NOT_ASKED
        if self.verdict == "not run":
            return f"{self.outcome.status}: {self.outcome.note}".replace("\n", " ")
        if self.verdict == "reached":
            return "reached"
        apart = f"{100 * abs(self.outcome.figures['value'] / float(self.row.reach) - 1):.2g} %"
        return f"{self.verdict.upper()} by {apart}{' (open)' if self.row.open else ''}"


def main(given: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(given)
    parts: list[str] = arguments.rows
    chosen = {name for name in ROWS if not parts or any(part in name for part in parts)}
    if not chosen:
        sys.exit(f"No row is named like {', '.join(parts)}. Rows: {', '.join(ROWS)}.")
    text, done = list[str](), list[Line]()
    for section in SECTIONS:
        shown = [n for n, row in ROWS.items() if row in section.rows and (n in chosen or arguments.output)]
        if not shown:
            continue
        head = [f"## {section.title}", "", section.text, "", *HEAD]
        print("\n".join(head), flush=True)
        lines: list[Line] = []
        for name in shown:
            outcome = _outcome(name, arguments) if name in chosen else None
            lines.append(Line(ROWS[name], section.optimal, outcome))
            print(lines[-1].markdown, flush=True)
        print()
        done += lines
        text += [*head, *(line.markdown for line in lines), ""]
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(_kept(as_csv("\n".join(text)), arguments.output))
    counted = ", ".join(f"{sum(line.verdict == verdict for line in done)} {verdict}" for verdict in VERDICTS)
    print(f"{len(done)} rows: {counted}.")
    short = sum(line.falls_short for line in done)
    sys.exit(f"{short} of {len(chosen)} rows are not reached." if short else 0)


def _kept(text: str, output: Path) -> str:
    """The table, in which rows that were not asked for are as the file has them from an earlier run."""
    if not output.exists():
        return text
    earlier = {tuple(row[:3]): row for row in csv.reader(output.read_text().splitlines())}
    made = io.StringIO()
    rows = (row if row[-1] != NOT_ASKED else earlier.get(tuple(row[:3]), row) for row in csv.reader(text.splitlines()))
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()


def _outcome(name: str, arguments: argparse.Namespace) -> Outcome:
    limits = Limits(arguments.row_seconds, int(arguments.memory * GIGABYTE))
    return limited(JOB, {"row": name, "seed": arguments.seed, "time_limit": arguments.time_limit}, limits)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.referee", description=__doc__)
    parser.add_argument("--rows", nargs="+", default=[], metavar="PART", help="parts of names of rows; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of hdmm.optimize (60)")
    parser.add_argument("--row-seconds", type=float, default=300.0, help="seconds after which a row is stopped (300)")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of address space for a row (8)")
    parser.add_argument(
        "--output", type=Path, help="also write the tables here, as CSV; other rows stay as they are there"
    )
    return parser


if __name__ == "__main__":
    main()
