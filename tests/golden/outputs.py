"""What users get, as text: the --json of every command and every published file, under fixed noise.

Releases are made from the plans in plans/, so that no search decides the numbers. What depends on the day, on the
machine or on versions is masked.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import openpyxl
import pyarrow.parquet as pq

from hdmm.__main__ import main
from tests.golden.numbers import fixed_noise

HERE = Path(__file__).parent
SPECS = sorted(path.stem for path in (HERE / "specs").glob("*.toml"))
SEARCHED = ("ranges", "monthly")  # of which the search is short enough
DEMO = "demo"  # it searches for some seconds, so its own numbers are masked; then a release from a plan that is kept
MOST = 80_000  # characters of a file that are kept: the reports of the specifications whole, that of the demo by digest
LONG = ("ranges", DEMO)  # of which the test is slow
SQL = "SELECT sex, COUNT(*) FROM people GROUP BY sex"
JANUARY, FEBRUARY = ("--set", "MONTH=2026-01"), ("--set", "MONTH=2026-02")
MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "<time>"),
    (r"\d{1,2} [A-Z][a-z]{2,8} 20\d\d(, \d\d:\d\d UTC)?", "<date>"),
    (r"\b[0-9a-f]{32,64}\b", "<hex>"),
    (r'"(hdmm|numpy|scipy|pyarrow|duckdb)": "[\d.]+\w*"', r'"\1": "<version>"'),
    (r"hdmm \d+\.\d+\.\d+\w*", "hdmm <version>"),
    (r'"bytes": \d+', '"bytes": "<size>"'),
]


def steps(spec: str) -> dict[str, Sequence[str]]:
    """The commands that are run for a specification, in this order, by the name of their output."""
    if spec == DEMO:
        kept = ("--plan", "plans/demo", "--output", "out", "--yes", "--json")
        return {"demo": ("demo", "people"), "release": ("release", "people/people.toml", *kept)}
    file, plan = f"{spec}.toml", ("--plan", f"plans/{spec}")
    month = JANUARY if spec == "monthly" else ()
    folder = "out-2026-01" if spec == "monthly" else "out"
    found: dict[str, Sequence[str]] = {
        "check": ("check", file, *month),
        "release": ("release", file, *plan, "--yes", *month),
        "again": ("release", file, *plan, "--yes", *month),  # refused, because the folder is there
        "budget": ("budget", file, *month),
        **({"plan": ("plan", file, *month)} if spec in SEARCHED else {}),
        "report": ("report", file, "--xlsx", *month),
        "show": ("show", folder),
        "query": ("query", folder, SQL),
    }
    if spec == "monthly":
        found["release-2"] = ("release", file, *plan, "--yes", *FEBRUARY)
        found["diff"] = ("diff", folder, "out-2026-02")
        found["plan-with"] = ("plan", file, "--with", folder, "--same-rows", *JANUARY)
        found["ledger"] = ("budget", "--ledger", "budget.db")
        found["init"] = ("init", "new.toml")
        found["wrong"] = ("check", "missing.toml")
    return {name: (*command, "--json") for name, command in found.items()}


def outputs(spec: str, folder: Path) -> dict[str, str]:
    """All that the commands print and write in an empty folder, by name, masked."""
    shutil.copytree(HERE / "plans", folder / "plans")
    if spec != DEMO:
        shutil.copyfile(HERE / "specs" / f"{spec}.toml", folder / f"{spec}.toml")
        (folder / "people.csv").write_text(people())
    found: dict[str, str] = {}
    with chdir(folder):
        for name, command in steps(spec).items():
            with fixed_noise(name):
                found[f"{name}.json"] = run(*command)
        for path in sorted(Path().glob("out*/**/*")):
            if path.is_file() and path.parts[1] not in ("plan", "release"):
                found[re.sub("[/]", "-", str(path))] = written(path)
    return {f"{spec}/{name}.txt": masked(text.replace(str(folder), "<folder>")) for name, text in found.items()}


def run(*command: str) -> str:
    """What a command prints, and its exit code if that is not 0; numbers as rounding of other machines leaves them."""
    out, wrong = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["hdmm", *command]), redirect_stdout(out), redirect_stderr(wrong):
        try:
            main()
        except SystemExit as end:
            code = end.code

    def shown(text: str) -> str:
        if "--json" in command:
            return json.dumps(rounded(json.loads(text or "null")), ensure_ascii=False, indent=1)
        return re.sub(r"[ \d.,%–]+", " ", masked(text))

    return "\n".join([f"$ hdmm {' '.join(command)}", shown(out.getvalue()), shown(wrong.getvalue()), f"exit {code}"])


def rounded(value: Any) -> Any:
    """Numbers of eight digits: what is below depends on the order of additions."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def written(path: Path) -> str:
    """A published file as text: a workbook by its cells and their formats, Parquet by its columns."""
    if path.suffix == ".json":
        return json.dumps(rounded(json.loads(path.read_text())), ensure_ascii=False, indent=1)
    if path.suffix == ".parquet":
        return str(pq.read_schema(path).remove_metadata())
    if path.suffix != ".xlsx":
        return path.read_bytes().decode()
    lines: list[str] = []
    for sheet in openpyxl.load_workbook(path).worksheets:
        lines += [f"== {sheet.title}"]
        cells = [cell for row in sheet.iter_rows() for cell in row if cell.value is not None]
        lines += [f"{cell.coordinate} {rounded(cell.value)!r} {cell.number_format}" for cell in cells]
    return "\n".join(lines)


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    text = text.replace("\r", "␍").rstrip("\n") + "\n"
    return text if len(text) <= MOST else f"{text[:MOST]}\n… sha256 {sha256(text.encode()).hexdigest()}\n"


def people(n: int = 600) -> str:
    """Rows as CSV, some of them outside the domain."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, n // 2, n), rng.integers(0, 9, n), rng.integers(1, 5, n), rng.integers(-5, 110, n)]
    lines = [
        f"{who},{sex},{age},D{district},{income}"
        for sex, who, age, district, income in zip(
            rng.choice(["M", "F", "?"], n, p=[0.45, 0.45, 0.1]), *columns, strict=True
        )
    ]
    return "\n".join(["who,sex,age,district,income", *lines]) + "\n"
