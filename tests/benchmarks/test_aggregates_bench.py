"""The comparison of aggregates runs without the other libraries, and says what is missing."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from benchmarks.aggregates import __main__ as bench

from tests.support.chance import fewest


def test_a_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(
        "#!/bin/sh\ncat > /dev/null\necho \"ModuleNotFoundError: No module named 'opendp'\" >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    found = bench.answered("opendp", str(broken), {})
    assert (
        found
        == "OpenDP is not installed here. Install opendp[polars] in an environment, and give its Python with --opendp."
    )
    assert "did not run" in str(bench.answered("tumult", sys.executable + "-nowhere", {}))


def test_answers_are_judged_against_the_truth() -> None:
    region, age = bench.made_up()
    truth = bench.true_answers(region, age)
    run = {name: {"estimate": (truth[name] + 2).tolist(), "margin": 3.0} for name in ("counts", "sums")}
    quantiles = truth["quantiles"].reshape(3, -1)
    run["quantiles"] = [{"estimate": (row - 1).tolist(), "margin": None} for row in quantiles]  # type: ignore[assignment]
    result = bench.judged({"library": "other", "runs": [run]}, truth)
    assert result.rmse["counts"] == result.rmse["sums"] == pytest.approx(2)
    assert result.rmse["quantiles"] == pytest.approx(1)
    assert result.coverage == {"counts": 1.0, "sums": 1.0, "means": None, "quantiles": None}
    text = bench.page([("rho", result)], {"tumult": "Tumult Analytics is not installed here."}, 1, 1)
    assert "**Missing:** Tumult Analytics is not installed here." in text
    assert "| ρ = 0.1 | other | 2 | 2 |" in text


@pytest.mark.slow
def test_our_intervals_cover_their_level() -> None:
    """Of one release, what covers may depend on each other, so that only releases count as trials."""
    region, age = bench.made_up()
    releases = 100
    result = bench.with_hdmm(region, age, bench.true_answers(region, age), "rho", "0.1", repeats=releases)
    for name, covered in result.coverage.items():
        assert covered is not None
        assert covered >= fewest(releases, 0.95, among=len(result.coverage)) / releases, name


def test_the_page_has_the_numbers_of_the_results() -> None:
    """docs/research/results.md holds what the command printed last, number by number."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "research" / "results.md").read_text()
    numbers = {
        tuple(cells[:2]): [float(cell.replace(",", "")) for cell in cells[2:]]
        for line in page.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 6 and cells[0][0] in "ρε"
    }
    lines = [line for line in page.splitlines() if line.startswith(("| ρ = 0.1 |", "| ε = 1 |"))]
    assert len(lines) == 12
    assert len(numbers) == 6  # the second table, of amounts, comes last
    wanted: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader((root / "benchmarks" / "results" / "amounts.csv").read_text().splitlines()):
        found = wanted.setdefault((row["guarantee"], row["library"]), [])
        found += [float(row["counts"]), float(row["sums"].replace(",", ""))]
    assert numbers == wanted
    every = csv.DictReader((root / "benchmarks" / "results" / "aggregates.csv").read_text().splitlines())
    errors = [row for row in every if row["section"] == "Root mean squared error"]
    for line, row in zip(lines[:6], errors, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == [row["guarantee"], row["library"]]
        measures = [float(row[name]) for name in ("counts", "sums", "means", "quantiles")]
        assert [float(cell) for cell in cells[2:]] == pytest.approx(measures, abs=0.005)
