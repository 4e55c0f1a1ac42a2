"""A sample of persons and a specification of tables about them: what `hdmm demo` runs.

The persons are synthetic, with census-like structure: ages by sex and origin, races by state, relationships by age.
They are the same every time, because the uniform numbers are hashes of a counter and nothing is drawn (security N1).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import FileError
from hdmm.base.lazy import Lazy
from hdmm.base.mixing import mixed
from hdmm.describe.entries import Codes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

PERSONS = 100_000
_SPEC = Path(__file__).parent / "people.toml"

Numbers = npt.NDArray[np.float64]

RACES = ("white", "black", "native", "asian", "pacific", "other_race")
RELATIONSHIPS = (
    "householder",
    "spouse",
    "partner",
    "child",
    "grandchild",
    "parent",
    "other relative",
    "other",
    "group",
)
# State, persons per 100,000, the share of each race in percent, and the share of Hispanic origin.
_STATES = {
    "CA": (394, 41, 6, 2, 16, 1, 34, 40),
    "TX": (294, 50, 13, 1, 6, 1, 29, 40),
    "FL": (217, 58, 16, 1, 3, 1, 21, 27),
    "NY": (201, 55, 16, 1, 10, 1, 17, 20),
    "PA": (130, 75, 12, 1, 4, 1, 7, 8),
    "GA": (108, 52, 32, 1, 5, 1, 9, 11),
    "AZ": (73, 60, 5, 5, 4, 1, 25, 31),
    "AK": (7, 59, 4, 20, 7, 3, 7, 8),
    "HI": (14, 23, 2, 1, 47, 20, 7, 10),
    "VT": (6, 92, 2, 1, 2, 1, 2, 3),
}
STATES = tuple(_STATES)


def write_demo(folder: Path, *, persons: int = PERSONS) -> Path:
    """Write people.parquet and people.toml into a new or empty folder, and return the path of the latter."""
    try:
        os.makedirs(folder, exist_ok=True)
        if any(folder.iterdir()):
            raise FileError(f"{folder} is not empty. Name a new folder: hdmm demo FOLDER.")
        with open(folder / "people.parquet", "xb") as file:
            pq.write_table(people(persons), file)
        spec = folder / "people.toml"
        spec.write_text(_SPEC.read_text())
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {error.strerror}. Choose another folder.") from None
    return spec


def people(count: int) -> pa.Table:
    """A table of `count` persons.

    >>> table = people(1000)
    >>> table.schema.names[:4], len(set(table.column("state").to_pylist()))
    (['state', 'sex', 'age', 'hispanic'], 10)
    """
    facts = np.array(list(_STATES.values()), dtype=np.float64)
    state = _chosen(_uniform(count, 0), np.tile(facts[:, 0], (1, 1)), np.zeros(count, np.int64))
    hispanic = _uniform(count, 1) < facts[state, 7] / 100
    first = _chosen(_uniform(count, 2), facts[:, 1:7] * (1, 1, 1, 1, 1, 0.3), state)
    first = np.where(hispanic & (_uniform(count, 3) < 0.45), 5, first)  # many of Hispanic origin mark "some other"
    second = _chosen(_uniform(count, 4), facts[:, 1:7], state)
    several = _uniform(count, 5) < np.where(hispanic, 0.25, 0.06)
    age = _ages(_uniform(count, 6), younger=hispanic | several)
    # Women live longer than men: of 100 newborns 49 are girls, and of 100 persons aged 90, 68 are women.
    female = _uniform(count, 7) < 0.49 + 0.19 * np.clip((age - 40) / 50, 0, 1)
    relationship = _relationships(_uniform(count, 8), age)
    columns: dict[str, object] = {
        "state": np.array(STATES)[state],
        "sex": np.where(female, "female", "male"),
        "age": age,
        "hispanic": hispanic,
        "relationship": np.array(RELATIONSHIPS)[relationship],
    }
    for i, race in enumerate(RACES):
        columns[race] = (first == i) | (several & (second == i))
    return pa.table(columns)


def _ages(u: Numbers, *, younger: npt.NDArray[np.bool]) -> Codes:
    """Ages from a population pyramid: level up to about age 60, then falling; younger groups fall from birth."""
    years = np.arange(115)
    alive = 1 / (1 + np.exp((years - 79) / 7.5))
    pyramids = np.stack([alive, alive * np.exp(-years / 45)])
    return _chosen(u, pyramids, younger.astype(np.int64))


def _relationships(u: Numbers, age: Codes) -> Codes:
    """Relationships to the householder, by stage of life: child, young, grown, old."""
    stages = np.array(
        [
            [0, 0, 0, 88, 8, 0, 3, 0.8, 0.2],
            [20, 8, 9, 38, 2, 0, 6, 11, 6],
            [48, 31, 6, 4, 0, 2, 3, 4, 2],
            [58, 26, 2, 0, 0, 6, 2, 2, 4],
        ]
    )
    return _chosen(u, stages, np.digitize(age, [18, 30, 65]))


def _chosen(u: Numbers, weights: Numbers, row: Codes) -> Codes:
    """For each person, the index at which u falls among the cumulative weights of their row."""
    ends = np.cumsum(weights, axis=1)
    ends /= ends[:, -1:]
    found = np.empty(len(u), np.int64)
    for i in range(len(ends)):
        here = row == i
        found[here] = np.minimum(np.searchsorted(ends[i], u[here], side="right"), ends.shape[1] - 1)
    return found


def _uniform(count: int, stream: int) -> Numbers:
    """Numbers in [0, 1), which are hashes of a counter."""
    counter = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 40)
    z = mixed(counter * np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53
