"""Every pair of five attributes of the UCI Adult data, released at ε = 1: the expected error and the actual error.

Run with `python -m examples.adult --data FOLDER`. The folder has `adult.csv.gz`, whose columns hold the codes 0 to
n − 1 of the attributes below, and `adult-domain.json`, whose "domain" gives the number of codes of each. Without
`--data`, the same number of synthetic rows is used. The data is public, so the example may compare the release with the
truth and print the actual error. For private data the actual error is itself private: only the expected error may be
published.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import hdmm
from hdmm import Answers, Data, Domain, Ledger, PureDP, Workload

SIZES = {"age": 75, "education": 16, "race": 5, "sex": 2, "hours": 20}
DOMAIN = Domain(SIZES)
ROWS = 48_842
EPSILON = PureDP(1)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with adult.csv.gz and adult-domain.json")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds to search for a strategy (default: 20)")
    arguments = parser.parse_args(given)
    data = made_up() if arguments.data is None else adult(arguments.data)
    workload = Workload.marginals(DOMAIN, k=2)
    print(f"{workload.queries:,} counts in {len(workload.products)} tables over {DOMAIN.size:,} cells, {EPSILON}")
    plan = hdmm.optimize(workload, time_limit=arguments.seconds, progress=False)
    by_cell = hdmm.rmse(workload, hdmm.baselines.identity(workload), EPSILON)
    print(f"noise on every cell   {by_cell:8.2f}  per count, expected")
    print(f"{plan.operator:<21} {plan.rmse(EPSILON):8.2f}  per count, expected: known before any data is read")
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "budget.db", dataset="adult", cap=PureDP(2))
        release = plan.measure(data, EPSILON, ledger=ledger, purpose="pairs of attributes")
        print(f"ε = {ledger.spent} spent, {ledger.remaining} left")
    answers = release.answer(workload)
    print(
        f"{'':<21} {actual_rmse(answers, data):8.2f}  per count, actual: compared with the truth (this data is public)"
    )
    print(next(table for table in answers.tables() if table.attributes == ("race", "sex")))


def adult(folder: Path) -> Data:
    """The rows of the folder's file. Its description must agree with the domain declared here."""
    described = json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))["domain"]
    if described != SIZES:
        sys.exit(f"{folder / 'adult-domain.json'} describes {described}, but this example declares {SIZES}.")
    return hdmm.from_table(DOMAIN, folder / "adult.csv.gz")


def made_up() -> Data:
    """Synthetic rows, as many as Adult has, in which every code is equally likely."""
    print("No --data FOLDER with adult.csv.gz and adult-domain.json was given, so synthetic rows are used.")
    rng = np.random.default_rng(0)
    return hdmm.from_table(DOMAIN, pa.table({name: rng.integers(0, n, ROWS) for name, n in SIZES.items()}))


def actual_rmse(answers: Answers, data: Data) -> float:
    """√(mean (estimate − truth)²): for public data only."""
    tables = answers.tables()
    truth = data.marginals([table.attributes for table in tables])
    errors = [table.estimate - counts.ravel() for table, counts in zip(tables, truth, strict=True)]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


if __name__ == "__main__":
    main()
