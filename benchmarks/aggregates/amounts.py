"""Counts and sums of a wage beside other libraries: in one table, and in five tables that share margins."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import hdmm
from benchmarks.aggregates.others import answered
from hdmm import PureDP
from hdmm.matrix import Array
from hdmm.privacy.guarantee import ZCDP
from hdmm.publication.answered import answer_table

RESULTS = Path(__file__).parents[1] / "results" / "amounts.csv"
ROWS, HIGH = 20_000, 200_000
SIZES = {"region": 40, "sex": 2, "band": 10}
GUARANTEES = {"rho": "0.1", "epsilon": "1"}
TABLES = {
    "one table": [["region"]],
    "five tables": [["region"], ["sex"], ["band"], ["region", "sex"], ["band", "sex"]],
}


def page(pythons: dict[str, str], repeats: int, others: int) -> str:
    """The errors as a page. The others give every count and every sum an even share of the budget."""
    rows = made_up()
    lines: list[str] = []
    missing: dict[str, str] = {}
    for kind, loss in GUARANTEES.items():
        for name, tables in TABLES.items():
            truth = true_answers(rows, tables)
            found = {f"hdmm {hdmm.__version__}": with_hdmm(rows, tables, truth, kind, loss, repeats)}
            for other, python in pythons.items():
                job = {
                    "rows": {column: values.tolist() for column, values in rows.items()},
                    "tables": tables,
                    "sizes": SIZES,
                    "high": HIGH,
                    "most": ROWS,
                    "loss": {kind: float(loss)},
                    "repeats": others,
                }
                answers = missing.get(other) or answered(other, python, job)
                if isinstance(answers, str):
                    missing[other] = answers
                else:
                    found[str(answers["library"])] = judged(answers["runs"], truth)  # type: ignore[arg-type]
            symbol = {"rho": "ρ", "epsilon": "ε"}[kind]
            for library, (counts, sums) in found.items():
                lines.append(f"| {symbol} = {loss} | {name} | {library} | {counts:.3g} | {sums:,.0f} |")
    said = "\n".join(f"\n**Missing:** {why}" for why in missing.values())
    head = "| guarantee | tables | library | counts | sums |\n|---|---|---|---|---|\n"
    return f"""# Counts and sums of a wage by group

{ROWS:,} made-up rows with wages from 0 to {HIGH:,}, which are public bounds for every library. One row is hidden
(added or removed). One table is by region; the five are by region, sex, band of ages, region and sex, band and sex,
each of counts and sums. hdmm plans them together; the others give each of the counts and sums an even share. Over
{repeats} releases by hdmm and {others} by each other library.{said}

## Root mean squared error, mean over the tables

{head}{chr(10).join(lines)}
"""


def made_up() -> dict[str, Array]:
    """Rows of regions of different sizes, and wages with a long tail."""
    rng = np.random.default_rng(28)
    rows = {"region": rng.choice(SIZES["region"], ROWS, p=rng.dirichlet(np.full(SIZES["region"], 3.0)))}
    rows |= {name: rng.integers(0, SIZES[name], ROWS) for name in ("sex", "band")}
    wages = np.exp(rng.normal(10.3, 0.6, ROWS))
    return rows | {"wage": np.clip(np.rint(wages), 0, HIGH).astype(np.int64)}


def true_answers(rows: dict[str, Array], tables: list[list[str]]) -> list[dict[str, Array]]:
    found: list[dict[str, Array]] = []
    for by in tables:
        shape = [SIZES[name] for name in by]
        cells = np.ravel_multi_index([rows[name] for name in by], shape)
        weights = {"counts": np.ones(ROWS), "sums": rows["wage"].astype(np.float64)}
        found.append({name: np.bincount(cells, each, int(np.prod(shape))) for name, each in weights.items()})
    return found


def with_hdmm(
    rows: dict[str, Array], tables: list[list[str]], truth: list[dict[str, Array]], kind: str, loss: str, repeats: int
) -> tuple[float, float]:
    asked = "".join(
        f'[[table]]\nname = "c{k}"\nmarginals = [{by}]\n[[table]]\nname = "s{k}"\nmarginals = [{by}]\nsum = "wage"\n'
        for k, by in enumerate(tables)
    )
    text = f"""
[data]
dataset = "amounts"
[domain]
region = 40
sex = 2
band = 10
[amounts]
wage = {{ low = 0, high = {HIGH} }}
{asked}
[privacy]
{kind} = "{loss}"
[ledger]
path = "budget.db"
cap = {{ {kind} = "{loss}" }}
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.toml"
        path.write_text(text)
        spec = hdmm.load_spec(path)
    plan = hdmm.optimize(spec.goal, noise=spec.privacy.noise, restarts=3, time_limit=60, progress=False)
    data = hdmm.from_table(spec.domain, pa.table(rows), declared_types=True)
    runs: list[list[dict[str, object]]] = []
    for _ in range(repeats):
        release = plan.measure(data, PureDP(loss) if kind == "epsilon" else ZCDP(loss), ledger=None)
        answers = {query.name: answer_table(release, spec.output.level, query).estimate for query in spec.tables}
        runs.append([{"counts": answers[f"c{k}"], "sums": answers[f"s{k}"]} for k in range(len(tables))])
    return judged(runs, truth)


def judged(runs: list[list[dict[str, object]]], truth: list[dict[str, Array]]) -> tuple[float, float]:
    """The root mean squared errors of counts and of sums, each the mean over the tables."""

    def rmse(name: str, k: int) -> float:
        off = [np.asarray(run[k][name], dtype=np.float64) - truth[k][name] for run in runs]
        return float(np.sqrt(np.mean(np.square(off))))

    return tuple(float(np.mean([rmse(name, k) for k in range(len(truth))])) for name in ("counts", "sums"))  # type: ignore[return-value]
