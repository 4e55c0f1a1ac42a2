"""Aggregates by group with Tumult Analytics: reads a job from standard input, and writes answers to standard output.

It runs in an interpreter that has Tumult Analytics (`pip install tmlt.analytics`) on a machine with Java, and imports
nothing of hdmm. Of the budget, counts take a third, sums a third, and the quantiles a third together; means are
quotients, and cost nothing. Its public interface states no margins of error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from fractions import Fraction
from importlib.metadata import version

import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, RhoZCDPBudget, Session


def main() -> None:
    job = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr  # Spark's workers may print
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="warehouse-"))  # not the folder here
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    if "tables" in job:
        rows = spark.createDataFrame(pd.DataFrame(job["rows"]))
        runs = [amounts(rows, job) for _ in range(job["repeats"])]
        spark.stop()
        json.dump({"library": f"Tumult Analytics {version('tmlt.analytics')}", "runs": runs}, answers)
        return
    rows = spark.createDataFrame(pd.DataFrame({"region": job["region"], "age": job["age"]}))
    runs = [release(rows, job) for _ in range(job["repeats"])]
    spark.stop()
    json.dump({"library": f"Tumult Analytics {version('tmlt.analytics')}", "runs": runs}, answers)


def release(rows: object, job: dict) -> dict:
    q = job["quantiles"]
    ((kind, loss),) = job["loss"].items()
    budget = RhoZCDPBudget if kind == "rho" else PureDPBudget
    total = Fraction(str(loss))
    session = Session.from_dataframe(
        privacy_budget=budget(float(total)), source_id="rows", dataframe=rows, protected_change=AddOneRow()
    )
    groups = QueryBuilder("rows").groupby(KeySet.from_dict({"region": list(range(job["regions"]))}))
    top = job["ages"] - 1

    def asked(query: object, share: Fraction) -> dict:
        table = session.evaluate(query, privacy_budget=budget(float(share * total))).toPandas().sort_values("region")
        return {"estimate": table.iloc[:, -1].tolist(), "margin": None}

    third = Fraction(333, 1000)  # a little less, because floats add up to a little more
    return {
        "counts": asked(groups.count(), third),
        "sums": asked(groups.sum("age", 0, top), third),
        "quantiles": [asked(groups.quantile("age", p, 0, top), third / len(q)) for p in q],
    }


def amounts(rows: object, job: dict) -> list[dict]:
    """Counts and sums of a wage for every table, each with an even share of the budget."""
    tables = job["tables"]
    ((kind, loss),) = job["loss"].items()
    budget = RhoZCDPBudget if kind == "rho" else PureDPBudget
    total = Fraction(str(loss))
    session = Session.from_dataframe(
        privacy_budget=budget(float(total)), source_id="rows", dataframe=rows, protected_change=AddOneRow()
    )
    share = budget(float(Fraction(999, 1000) * total / (2 * len(tables))))
    found: list[dict] = []
    for by in tables:
        keys = KeySet.from_dict({name: list(range(job["sizes"][name])) for name in by})
        groups = QueryBuilder("rows").groupby(keys)
        asked = {"counts": groups.count(), "sums": groups.sum("wage", 0, job["high"])}
        frames = {
            name: session.evaluate(each, privacy_budget=share).toPandas().sort_values(by)
            for name, each in asked.items()
        }
        found.append({name: each.iloc[:, -1].tolist() for name, each in frames.items()})
    return found


if __name__ == "__main__":
    main()
