"""Counts, sums, means and quantiles of one table by group, with hdmm and with other libraries at the same guarantee.

Run with `python -m benchmarks.aggregates`, or with `--amounts` for counts and sums of a wage in one table and in five
that share margins. Another library usually lives in an environment of its own: name its
interpreter with `--opendp PYTHON` and `--tumult PYTHON`. Without it, what is missing is printed. The errors and the
coverage of 95 % intervals go to benchmarks/results/aggregates.csv.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hdmm
from benchmarks.aggregates import amounts
from benchmarks.aggregates.others import answered
from benchmarks.csv_tables import as_csv
from hdmm import PureDP
from hdmm.matrix import Array
from hdmm.privacy.guarantee import ZCDP
from hdmm.publication.answered import answer_table

RESULTS = Path(__file__).parents[1] / "results" / "aggregates.csv"
REGIONS, AGES, ROWS, LEVEL = 40, 100, 20_000, 0.95
QUANTILES = (0.25, 0.5, 0.75)
MEASURES = ("counts", "sums", "means", "quantiles")
GUARANTEES = {"rho": "0.1", "epsilon": "1"}

SPEC = f"""
[data]
dataset = "aggregates"
[domain]
region = {REGIONS}
age = {AGES}
[[table]]
name = "counts"
marginals = [["region"]]
[[table]]
name = "sums"
sum = ["age"]
marginals = [["region"]]
[[table]]
name = "means"
mean = ["age"]
marginals = [["region"]]
[[table]]
name = "quantiles"
quantiles = {{ age = {list(QUANTILES)} }}
marginals = [["region"]]
[privacy]
%s
[ledger]
path = "budget.db"
cap = {{ %s }}
"""


@dataclass(frozen=True)
class Result:
    """Errors and covered intervals of one library, by measure; coverage is None where it states no intervals."""

    library: str
    rmse: dict[str, float]
    coverage: dict[str, float | None]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--opendp", default=sys.executable, metavar="PYTHON", help="an interpreter that has OpenDP")
    asked.add_argument("--tumult", default=sys.executable, metavar="PYTHON", help="one that has Tumult Analytics")
    asked.add_argument("--repeats", type=int, default=30, help="releases by hdmm")
    asked.add_argument("--others", type=int, default=2, help="releases by each other library, which take a minute each")
    asked.add_argument("--amounts", action="store_true", help="compare counts and sums of a wage instead")
    asked.add_argument("--output", type=Path)
    given = asked.parse_args()
    if given.amounts:
        text = amounts.page({"opendp": given.opendp, "tumult": given.tumult}, given.repeats, given.others)
        (given.output or amounts.RESULTS).write_text(as_csv(text), encoding="utf-8")
        print(text)
        return
    region, age = made_up()
    truth = true_answers(region, age)
    results: list[tuple[str, Result]] = []
    missing: dict[str, str] = {}
    for kind, loss in GUARANTEES.items():
        results.append((kind, with_hdmm(region, age, truth, kind, loss, given.repeats)))
        for name, python in (("opendp", given.opendp), ("tumult", given.tumult)):
            job = {
                "region": region.tolist(),
                "age": age.tolist(),
                "regions": REGIONS,
                "ages": AGES,
                "most": ROWS,
                "quantiles": QUANTILES,
                "loss": {kind: float(loss)},
                "level": LEVEL,
                "repeats": given.others,
            }
            found = missing.get(name) or answered(name, python, job)
            if isinstance(found, str):
                missing[name] = found
            else:
                results.append((kind, judged(found, truth)))
    text = page(results, missing, given.repeats, given.others)
    (given.output or RESULTS).write_text(as_csv(text), encoding="utf-8")
    print(text)


def made_up() -> tuple[Array, Array]:
    """Regions of different sizes, and ages that differ between them."""
    rng = np.random.default_rng(14)
    region = rng.choice(REGIONS, ROWS, p=rng.dirichlet(np.full(REGIONS, 3.0)))
    middle = rng.uniform(25, 60, REGIONS)
    return region, np.clip(np.rint(rng.normal(middle[region], 18)), 0, AGES - 1).astype(np.int64)


def true_answers(region: Array, age: Array) -> dict[str, Array]:
    groups = [age[region == r] for r in range(REGIONS)]
    return {
        "counts": np.array([len(each) for each in groups], dtype=np.float64),
        "sums": np.array([each.sum() for each in groups], dtype=np.float64),
        "means": np.array([each.mean() for each in groups]),
        "quantiles": np.array([np.quantile(g, p, method="inverted_cdf") for p in QUANTILES for g in groups]),
    }


def with_hdmm(region: Array, age: Array, truth: dict[str, Array], kind: str, loss: str, repeats: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.toml"
        path.write_text(SPEC % (f'{kind} = "{loss}"', f'{kind} = "{loss}"'))
        spec = hdmm.load_spec(path)
    plan = hdmm.optimize(spec.goal, noise=spec.privacy.noise, restarts=3, time_limit=60, progress=False)
    counts = np.zeros(spec.domain.shape, dtype=np.int64)
    np.add.at(counts, (region, age), 1)
    data = hdmm.from_array(spec.domain, counts)
    off: dict[str, list[Array]] = {name: [] for name in MEASURES}
    covered: dict[str, list[Array]] = {name: [] for name in MEASURES}
    for _ in range(repeats):
        release = plan.measure(data, PureDP(loss) if kind == "epsilon" else ZCDP(loss), ledger=None)
        for asked in spec.tables:
            table = answer_table(release, LEVEL, asked)
            off[asked.name].append(table.estimate - truth[asked.name])
            covered[asked.name].append((table.lower <= truth[asked.name]) & (truth[asked.name] <= table.upper))
    return Result(
        f"hdmm {hdmm.__version__}",
        {name: _rms(np.concatenate(each)) for name, each in off.items()},
        {name: float(np.mean(each)) for name, each in covered.items()},
    )


def judged(found: dict[str, object], truth: dict[str, Array]) -> Result:
    """Errors of the answers of another library; its means are quotients of its sums and counts."""
    off: dict[str, list[Array]] = {name: [] for name in MEASURES}
    covered: dict[str, list[Array]] = {name: [] for name in MEASURES}
    runs: list[dict] = found["runs"]  # type: ignore[assignment]
    for run in runs:
        for name in ("counts", "sums"):
            estimate, margin = np.array(run[name]["estimate"], dtype=np.float64), run[name]["margin"]
            off[name].append(estimate - truth[name])
            if margin is not None:
                covered[name].append(np.abs(off[name][-1]) <= margin)
        sums, counts = (np.array(run[name]["estimate"], dtype=np.float64) for name in ("sums", "counts"))
        off["means"].append(sums / np.maximum(counts, 1) - truth["means"])
        found_quantiles = np.concatenate([np.array(each["estimate"], dtype=np.float64) for each in run["quantiles"]])
        off["quantiles"].append(found_quantiles - truth["quantiles"])
    return Result(
        str(found["library"]),
        {name: _rms(np.concatenate(each)) for name, each in off.items()},
        {name: float(np.mean(each)) if each else None for name, each in covered.items()},
    )


def _rms(errors: Array) -> float:
    """Root mean square of errors; NaN if a number has no estimate, which no library may hide."""
    return math.sqrt(float(np.mean(errors**2)))


def page(results: list[tuple[str, Result]], missing: dict[str, str], repeats: int, others: int) -> str:
    symbols = {"rho": "ρ", "epsilon": "ε"}
    head = "| guarantee | library | " + " | ".join(MEASURES) + " |\n|---|---|" + "---|" * len(MEASURES) + "\n"
    errors, covered = head, head
    for kind, each in results:
        start = f"| {symbols[kind]} = {GUARANTEES[kind]} | {each.library} | "
        errors += start + " | ".join(f"{each.rmse[name]:.3g}" for name in MEASURES) + " |\n"
        shown = ("–" if (c := each.coverage[name]) is None else f"{c:.1%}" for name in MEASURES)
        covered += start + " | ".join(shown) + " |\n"
    said = "\n".join(f"\n**Missing:** {why}" for why in missing.values())
    return f"""# Counts, sums, means and quantiles by group

{ROWS:,} made-up rows of {REGIONS} regions; ages from 0 to {AGES - 1}.
One row is hidden (added or removed), and bounds and regions are public for every library. Each number is over all
regions, and over {repeats} releases by hdmm and {others} by each other library. The whole budget is spent on all four
tables.

hdmm plans the four tables together. The others are given a third of the budget for counts, a third for sums and a third
for the quartiles; their means are quotients of sums and counts, which cost nothing.{said}

## Root mean squared error

In rows, in years times rows, and in years.

{errors}
## Intervals of {100 * LEVEL:g} % that hold the true number

"–" where the public interface of a library states no interval.

{covered}"""


if __name__ == "__main__":
    main()
