"""The recipes of CONTRIBUTING.md suffice: what they say is to be changed is all there is to change."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from hdmm import Table, load_spec
from hdmm.apps.cli import run
from hdmm.base.numbers import LEVEL
from hdmm.publication import files
from tests.support.spec_cases import SPEC, planned, prepared

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "hdmm").rglob("*.py"))


def recipes() -> dict[str, str]:
    """The text of each recipe, by what it is for."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Recipes")[2].partition("\n## ")[0]
    return {
        name: " ".join(body.split()) for name, body in re.findall(r"- \*\*(.*?)\*\*(.*?)(?=\n- \*\*|\Z)", text, re.S)
    }


def test_a_recipe_counts_the_files_that_it_names() -> None:
    counts = {}
    for name, body in recipes().items():
        stated = re.match(r"\((\d+) files\)", body)
        if stated is not None:
            named = {path for path in re.findall(r"`([\w./-]+\.\w+)`", body) if "/" in path}
            counts[name] = (int(stated[1]), len(named))
    assert set(counts) >= {"A predicate set", "An output format", "The default level of confidence"}
    assert all(stated == named for stated, named in counts.values()), counts


def test_the_default_level_stands_in_one_place() -> None:
    """No argument or field for a level has a number as its default, and no text for a specification sets one."""
    places: list[str] = []
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            match node:
                case ast.arguments():
                    named = [*node.posonlyargs, *node.args]
                    pairs = [*zip(named[::-1], node.defaults[::-1], strict=False)]
                    pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
                    found = any(
                        arg.arg == "level" and isinstance(value, ast.Constant) and value.value for arg, value in pairs
                    )
                case ast.AnnAssign(target=ast.Name(id="level"), value=ast.Constant()):
                    found = True
                case ast.Constant(value=str(text)):
                    found = re.search(r"^level = [0-9]", text, re.MULTILINE) is not None
                case _:
                    found = False
            places += [str(source.relative_to(ROOT))] * found
    assert not places
    assert f"| `output.level` | {LEVEL} |" in (ROOT / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")


def test_a_format_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are written, described, listed and named, and an earlier publication with them is replaced."""

    def write(table: Table, file: BinaryIO, columns: Sequence[files.FileColumn]) -> None:
        file.write(f"{len(table)} rows of {len(columns)} columns".encode())

    added = files.Format("Counts of rows", "txt", write, "data-resource", lambda _, __: {"format": "txt"})
    monkeypatch.setattr(files, "FORMATS", (*files.FORMATS, added))
    spec = load_spec(prepared(tmp_path, SPEC))
    planned(spec).save(spec.plan.folder)
    for force in ([], ["--force"]):
        assert run(["release", str(spec.path), "--yes", *force]) == 0
        assert "CSV, Parquet and Counts of rows" in capsys.readouterr().out
    out = spec.output.folder
    names = [table["name"] for table in json.loads((out / "metadata.json").read_text())["tables"]]
    described = [each["path"] for each in json.loads((out / "datapackage.json").read_text())["resources"]]
    for name in names:
        with open(out / "tables" / f"{name}.csv", newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert (out / "tables" / f"{name}.txt").read_text() == f"{len(rows)} rows of {len(header)} columns"
        assert f"tables/{name}.txt" in described
    assert len(described) == 3 * len(names)
