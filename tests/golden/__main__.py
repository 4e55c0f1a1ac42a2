"""Record golden files again, after a look at README.md: python -m tests.golden [fixed searched outputs plans kinds]."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hdmm import load_spec, optimize
from tests.golden.cases import CASES
from tests.golden.numbers import NOISES, fixed_numbers, kinds, searched_numbers
from tests.golden.outputs import DEMO, SPECS, outputs

HERE = Path(__file__).parent


def write(name: str, lines: dict[str, Any]) -> None:
    """A JSON object with one line per key, so that differences are seen by case."""
    body = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in lines.items())
    (HERE / f"{name}.json").write_text(f"{{\n{body}\n}}\n")


def record(wanted: set[str]) -> None:
    pairs = [(f"{name}, {noise}", case, noise) for name, case in CASES.items() for noise in NOISES]
    if "fixed" in wanted:
        given = [(key, case, noise) for key, case, noise in pairs if case.strategy is not None]
        write("fixed", {key: fixed_numbers(case, noise, None) for key, case, noise in given})
    if "searched" in wanted:
        write("searched", {key: searched_numbers(case, noise) for key, case, noise in pairs if case.search})
    if "plans" in wanted:  # with which releases are made for the outputs; that of the demo is one that it saved
        (HERE / "plans").mkdir(exist_ok=True)
        for spec in SPECS:
            found = load_spec(
                HERE / "specs" / f"{spec}.toml", variables={"MONTH": "2026-01"} if spec == "monthly" else {}
            )
            options = {"restarts": found.plan.restarts, "time_limit": None, "progress": False}
            optimize(found.goal, noise=found.privacy.noise, known=found.known, **options).save(HERE / "plans" / spec)
    if "outputs" in wanted:
        shutil.rmtree(HERE / "outputs", ignore_errors=True)
        for spec in (*SPECS, DEMO):
            with TemporaryDirectory() as folder:
                for name, text in outputs(spec, Path(folder)).items():
                    (HERE / "outputs" / name).parent.mkdir(parents=True, exist_ok=True)
                    (HERE / "outputs" / name).write_text(text)
    if "kinds" in wanted:
        write("kinds", {key: kinds(case, noise) for key, case, noise in pairs if case.strategy})


if __name__ == "__main__":
    record(set(sys.argv[1:]) or {"fixed", "searched", "outputs"})
