"""Counts of people by state, county and tract, which add up: levels of one attribute, from a look-up file.

Run with `python -m examples.places`. The specification and its look-up file are in `examples/geography`; people are
made up. The program prints a county and its tracts from the published tables.
"""

from __future__ import annotations

import csv
import random
import shutil
import tempfile
from pathlib import Path

import hdmm

HERE = Path(__file__).parent / "geography"
PEOPLE = 20_000


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("places.toml", "tracts.csv"):
            shutil.copy(HERE / file, folder)
        made_up(folder / "people.csv")
        spec = hdmm.load_spec(folder / "places.toml")
        plan = hdmm.optimize(spec.goal, restarts=spec.plan.restarts, time_limit=spec.plan.time_limit, progress=False)
        places, ages = (table.columns() for table in hdmm.publish(spec, plan).tables)
    print(f"{len(places['tract'])} counts of places; {spec.domain['tract'].size} tracts")
    rows = list(zip(places["county"], places["tract"], places["estimate"], places["stddev"], strict=True))
    county = next((estimate, error) for c, t, estimate, error in rows if (c, t) == ("Alder", "(all)"))
    tracts = [estimate for c, t, estimate, _ in rows if c == "Alder" and t != "(all)"]
    print(f"Alder: {county[0]:,.1f} with a standard deviation of {county[1]:.1f}")
    print(f"its {len(tracts)} tracts together: {sum(tracts):,.1f}")
    known = (ages["age"] == "[0, 15)") & (ages["married"] == "True")
    print(f"married children: {ages['estimate'][known].sum():g}, {int(known.sum())} counts without noise")


def made_up(path: Path) -> None:
    """Write people of random tracts, ages and marriages."""
    with open(HERE / "tracts.csv", newline="") as file:
        tracts = [row["tract"] for row in csv.DictReader(file)]
    draw = random.Random(1)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tract", "age", "married"])
        for _ in range(PEOPLE):
            age = draw.randrange(100)
            writer.writerow([draw.choice(tracts), age, "true" if age > 20 and draw.random() < 0.5 else "false"])


if __name__ == "__main__":
    main()
