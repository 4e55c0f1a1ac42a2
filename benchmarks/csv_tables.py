"""Tables of benchmarks/results as CSV: `python -m benchmarks.csv_tables FILE …` prints them as Markdown.

A file holds the tables of one benchmark one after the other. The first column, `section`, has the heading of each; the
other columns are those of all its tables, and are empty where a table lacks them.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_CELL = re.compile(r"(?<!\\)\|")


def as_csv(text: str) -> str:
    """The tables of a Markdown text, without its prose and its emphasis."""
    columns, rows = ["section"], list[dict[str, str]]()
    section, head = "", list[str]()
    for line in text.splitlines():
        if line.startswith("#"):
            section, head = line.lstrip("# "), []
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip().replace("\\", "").replace("**", "") for cell in _CELL.split(line)[1:-1]]
        if not head:
            head = [name or "verdict" for name in cells]
            columns += [name for name in head if name not in columns]
        elif not all(re.fullmatch("-+", cell) for cell in cells):
            rows.append({"section": section, **dict(zip(head, cells, strict=True))})
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_markdown(text: str) -> str:
    """The tables of a CSV text, each below its heading and without columns that are empty in all its rows."""
    lines = list[str]()
    for section, group in itertools.groupby(csv.DictReader(io.StringIO(text)), lambda row: row.get("section", "")):
        rows = list(group)
        columns = [name for name in rows[0] if name != "section" and any(row[name] for row in rows)]
        lines += [f"## {section}", ""] if section else []
        lines += [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(row[name].replace("|", "\\|") for name in columns) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def main(files: Sequence[str]) -> None:
    for file in files:
        print(as_markdown(Path(file).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])
