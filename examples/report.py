"""A sample report: an invented town of 20,000 people, released at ε = 1 and shown as one HTML page.

Run with `python -m examples.report OUT.html`. With Chromium on the PATH, `--screenshots FOLDER` also takes pictures of
the page in light and dark.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import hdmm
from hdmm import AllRange, Bins, Domain, Identity, Ledger, Prefix, PureDP, Unit, Workload
from hdmm.answers.table import Forecast
from hdmm.baselines import identity, laplace
from hdmm.publication.report import Report, render

EPSILON = PureDP(1)
REGIONS = ["Harbour", "Old Town", "Mill Quarter", "Station", "Hillside", "University", "Meadows", "Airport"]
DOMAIN = Domain(
    {
        "region": REGIONS,
        "sex": ["female", "male"],
        "age": 100,
        "income": Bins([0, 10_000, 20_000, 30_000, 45_000, 60_000, 90_000, 150_000]),
    }
)
TABLES = {
    "people": ("All residents", Workload.marginals(DOMAIN, k=0)),
    "by-region": ("Residents by region", Workload.product(DOMAIN, region=Identity())),
    "by-age": ("Residents by year of age", Workload.product(DOMAIN, age=Identity())),
    "age-up-to": ("Residents up to an age", Workload.product(DOMAIN, age=Prefix())),
    "region-income": ("Region by income", Workload.product(DOMAIN, region=Identity(), income=Identity())),
    "age-income": ("Year of age by income", Workload.product(DOMAIN, age=Identity(), income=Identity())),
    "income-ranges": ("Ranges of income by sex", Workload.product(DOMAIN, sex=Identity(), income=AllRange())),
}


def sample(seed: int = 0) -> Report:
    """A release of the invented town, ready to render."""
    workload = sum((w for _, w in list(TABLES.values())[1:]), start=TABLES["people"][1])
    plan = hdmm.optimize(workload, restarts=2, seed=seed, time_limit=20, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "budget.db", dataset="town-2026", cap=PureDP(4))
        release = plan.measure(hdmm.from_array(DOMAIN, _town(seed)), EPSILON, ledger=ledger, unit=Unit())
    shown = []
    for (name, (title, asked)), table in zip(TABLES.items(), release.answer(workload).tables(), strict=True):
        expected = Forecast(
            name,
            rows=asked.queries,
            rmse=(release.error(asked) / asked.queries) ** 0.5,
            identity=hdmm.rmse(asked, identity(workload), EPSILON),
            direct=hdmm.rmse(asked, laplace(workload), EPSILON),
            bound=(hdmm.lower_bound(asked, EPSILON) / asked.queries) ** 0.5,
        )
        shown.append(replace(table, name=name, title=title, forecast=expected))
    return Report(
        title="A town in numbers, 2026",
        dataset="town-2026",
        created="1 July 2026",
        privacy=release.privacy,
        unit=release.unit,
        receipts=tuple(
            replace(each, timestamp="2026-07-01T09:00:00+00:00") for each in filter(None, [release.receipt])
        ),
        level=0.95,
        tables=tuple(shown),
        strategy=release.strategy,
        operator=plan.operator,
    )


def _town(seed: int) -> np.ndarray:
    """20,000 people by region, sex, age and income: a random town with a typical structure."""
    rng = np.random.default_rng(seed)
    n = 20_000
    region = rng.choice(8, n, p=np.array([9, 6, 14, 11, 17, 12, 26, 5]) / 100)
    sex = rng.choice(2, n)
    age = np.where(region == 5, 17 + 60 * rng.beta(1, 4, n), 99 * rng.beta(1.3, 1.9, n)).astype(int)
    income = rng.lognormal(10.1 + 0.006 * np.minimum(age, 60) + 0.12 * (region == 4), 0.55)
    income[age < 18] = 0
    cell = np.digitize(np.minimum(income, 149_999), [10_000, 20_000, 30_000, 45_000, 60_000, 90_000])
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(x, (region, sex, age, cell), 1)
    return x


def _screenshots(page: Path, folder: Path) -> None:
    """Take pictures of the top of the page, light and dark, with a headless Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("There is no chromium on the PATH. Install it (Debian: apt install chromium) to take screenshots.")
    folder.mkdir(parents=True, exist_ok=True)
    for scheme, setting in (("dark", 0), ("light", 1)):
        shot = folder / f"report-{scheme}.png"
        options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1500"]
        options += [f"--blink-settings=preferredColorScheme={setting}", f"--screenshot={shot.resolve()}"]
        subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True)
        print(shot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    arguments.out.write_text(render(sample()), encoding="utf-8")
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")
    if arguments.screenshots:
        _screenshots(arguments.out, arguments.screenshots)


if __name__ == "__main__":
    main()
