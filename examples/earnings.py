"""Sums, means, quartiles and percentages of earnings, each with its interval.

Run with `python -m examples.earnings`. The specification is in `examples/payroll`; people are made up. The program
prints the published tables beside the true means, which a user would not have.
"""

from __future__ import annotations

import csv
import random
import shutil
import tempfile
from pathlib import Path

import hdmm

HERE = Path(__file__).parent / "payroll"
PEOPLE = 10_000
MIDDLES = {"farming": 22, "industry": 35, "trade": 28, "public": 33}  # of pay, in hundreds


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / "earnings.toml", folder)
        truth = made_up(folder / "people.csv")
        spec = hdmm.load_spec(folder / "earnings.toml")
        plan = hdmm.optimize(spec.goal, restarts=spec.plan.restarts, time_limit=spec.plan.time_limit, progress=False)
        pay, quartiles, shares = hdmm.publish(spec, plan).tables
    for table in (pay, quartiles, shares):
        print(f"{table.title}\n{table}\n")
    found = pay.columns()
    for sector, mean in truth.items():
        (row,) = ((found["sector"] == sector) & (found["measure"] == "mean of pay")).nonzero()[0]
        inside = found["lower"][row] <= mean <= found["upper"][row]
        print(f"{sector}: the true mean, {mean:.2f}, is {'inside' if inside else 'outside'} its interval")


def made_up(path: Path) -> dict[str, float]:
    """Write people of random sectors and pay; returns the true mean of each sector."""
    draw = random.Random(14)
    sums = dict.fromkeys(MIDDLES, (0, 0))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sector", "sex", "pay"])
        for _ in range(PEOPLE):
            sector, sex = draw.choice(list(MIDDLES)), draw.choice("MF")
            pay = min(max(round(draw.gauss(MIDDLES[sector] + (sex == "M") * 2, 9)), 0), 99)
            writer.writerow([sector, sex, pay])
            total, people = sums[sector]
            sums[sector] = total + pay, people + 1
    return {sector: total / people for sector, (total, people) in sums.items()}


if __name__ == "__main__":
    main()
