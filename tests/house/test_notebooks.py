"""The notebooks of examples/ run from the first cell to the last, show what they promise, and hold no outputs."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type in ("stream", "error")]  # no noise and no warnings
    shown = [output.data for output in outputs if "data" in output]
    pieces = [data.get("text/html", "") for data in shown]
    assert sum("<table>" in html for html in pieces) >= 2
    assert sum("vega" in html for html in pieces) >= 2
    assert any(data.get("text/plain") == "" for data in shown)  # the line of progress, empty in the end


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"accuracy_first", "first_release", "percentages_and_quantiles"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    nbformat.validate(json.loads(text))
    for cell in json.loads(text)["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert not any(place in text for place in ("/home", "/root", "/tmp", "/work"))
