"""Aggregates by group with OpenDP: reads a job from standard input, and writes answers to standard output.

It runs in an interpreter that has OpenDP with Polars (`pip install 'opendp[polars]'`), and imports nothing of hdmm. Of
the budget, counts take a third, sums a third, and the quantiles a third together; means are quotients, which are free.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")


def main() -> None:
    job = json.load(sys.stdin)
    if "tables" in job:
        runs = [amounts(job) for _ in range(job["repeats"])]
        json.dump({"library": f"OpenDP {version('opendp')}", "runs": runs}, sys.stdout)
        return
    rows = pl.LazyFrame({"region": job["region"], "age": job["age"]})
    runs = [release(rows, job) for _ in range(job["repeats"])]
    json.dump({"library": f"OpenDP {version('opendp')}", "runs": runs}, sys.stdout)


def release(rows: pl.LazyFrame, job: dict) -> dict:
    q = job["quantiles"]
    context = dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**job["loss"]),
        split_by_weights=[len(q), len(q), *[1] * len(q)],
        margins=[dp.polars.Margin(by=["region"], invariant="keys", max_length=job["most"])],
    )
    bounds = (0, job["ages"] - 1)
    found = {"counts": asked(context, dp.len(), job), "sums": asked(context, age().dp.sum(bounds), job)}
    candidates = list(range(job["ages"]))
    found["quantiles"] = [asked(context, age().dp.quantile(p, candidates), job) for p in q]
    return found


def amounts(job: dict) -> list[dict]:
    """Counts and sums of a wage for every table, each with an even share of the budget."""
    tables = job["tables"]
    context = dp.Context.compositor(
        data=pl.LazyFrame(job["rows"]),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**job["loss"]),
        split_evenly_over=2 * len(tables),
        margins=[dp.polars.Margin(by=by, invariant="keys", max_length=job["most"]) for by in tables],
    )
    found: list[dict] = []
    for by in tables:
        asked = {"counts": dp.len(), "sums": pl.col("wage").fill_null(0).dp.sum((0, job["high"]))}
        results = {
            name: context.query().group_by(by).agg(each).release().collect().sort(by) for name, each in asked.items()
        }
        found.append({name: each[each.columns[-1]].to_list() for name, each in results.items()})
    return found


def age() -> pl.Expr:
    return pl.col("age").fill_null(0)


def asked(context: dp.Context, expression: pl.Expr, job: dict) -> dict:
    """The estimates of all regions, in order, and the margin of error that the library states, if it states one."""
    query = context.query().group_by("region").agg(expression)
    accuracy = query.summarize(alpha=1 - job["level"])["accuracy"][0]
    table = query.release().collect().sort("region")
    return {"estimate": table[table.columns[-1]].to_list(), "margin": accuracy}


if __name__ == "__main__":
    main()
