"""How many buckets DAWA's first stage makes: `python -m benchmarks.paper.buckets --data DIR [--rows 1000]`.

For each data set of DPBench, on a sample of rows and with half of ε = √2 for each stage: with its noise, and without.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

from benchmarks.competitors.dawa import COST_SENSITIVITY, costs_of, least_cost, longest, noisy_partition
from benchmarks.paper.jobs import sampled
from benchmarks.paper.tables import PUBLISHED, ROOT_TWO
from hdmm.noise import discrete_laplace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    share = Fraction(ROOT_TWO) / 2
    print("data set    cells  with noise  without")
    for row in PUBLISHED["table_dawa"]["rows"]:
        for dataset in PUBLISHED["table_dawa"]["datasets"]:
            x = sampled(dataset, row["domain"], given.rows, str(given.data))
            scale = 2 * COST_SENSITIVITY * longest(len(x)) / share
            noisy = noisy_partition(x, lambda costs, s=scale: costs + discrete_laplace(s, costs.size), price=1 / share)
            price = round(longest(len(x)) / share)
            exact = least_cost([(costs + price).tolist() for costs in costs_of(x)])
            print(f"{dataset:<11} {len(x):5}  {len(noisy):10}  {len(exact):7}", flush=True)


if __name__ == "__main__":
    main()
