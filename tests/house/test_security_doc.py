"""docs/trust/security.md names a test for every requirement; here it is checked that they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "trust" / "security.md").read_text()
NAMED = set(re.findall(r"`(tests/[a-z_0-9/]+\.py)::(\w+)`", TEXT))
IDS = [*(f"N{i}" for i in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)), *(f"S{i}" for i in range(1, 6))]
IDS += [
    *(f"L{i}" for i in range(1, 9)),
    *(f"I{i}" for i in range(1, 10)),
    "F1",
    "F2",
    "F4",
    "F5",
    "F6",
    *(f"O{i}" for i in range(1, 8)),
    "O4+",
    "I5+",
    "I6+",
    "I7+",
    "R1",
    *(f"W{i}" for i in range(1, 5)),
    "C1",
]


def test_every_test_that_is_named_exists() -> None:
    for file in {file for file, _ in NAMED}:
        functions = {
            node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert {name for named, name in NAMED if named == file} <= functions, file


def test_every_requirement_has_a_row() -> None:
    rows = re.findall(r"^\| ([A-Z][0-9]+\+?) \| (.+?) \| (.+?) \|$", TEXT, flags=re.MULTILINE)
    assert sorted(row[0] for row in rows) == sorted(IDS)
    without = [row[0] for row in rows if "::" not in row[2]]
    assert without == ["N5"]  # a benchmark


def test_requirements_named_in_the_source_are_in_the_table() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for group in re.findall(r"security ((?:[A-Z][0-9](?:, |/| and )?)+)", path.read_text()):
            assert set(re.findall(r"[A-Z][0-9]", group)) <= set(IDS), path
