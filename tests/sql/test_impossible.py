"""Impossible cells: in no count, and 0 without noise where a table has a row of nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import Domain, PureDP, SpecError, WorkloadError, load_spec
from hdmm.describe.attribute import columns
from hdmm.matrix import to_dense
from hdmm.sql import TableQuery, merged_domain, parse
from tests.support.chance import fewest
from tests.support.effort import examples
from tests.support.spec_cases import planned

PEOPLE = Domain({"age": 5, "marital": ["single", "married"], "sex": ["M", "F"]})
CELLS = np.indices(PEOPLE.shape).reshape(3, -1)
CONDITIONS = {
    "age < 2 AND marital = 'married'": (CELLS[0] < 2) & (CELLS[1] == 1),
    "age = 4 OR sex = 'F' AND age = 3": (CELLS[0] == 4) | ((CELLS[2] == 1) & (CELLS[0] == 3)),
    "sex = 'M' AND marital = 'married' AND age = 2": (CELLS[2] == 0) & (CELLS[1] == 1) & (CELLS[0] == 2),
}
QUERIES = [
    "SELECT COUNT(*) FROM t",
    "SELECT age, marital, COUNT(*) FROM t GROUP BY age, marital",
    "SELECT age, marital, sex, COUNT(*) FROM t GROUP BY CUBE(age, marital, sex)",
    "SELECT FLOOR(age / 2) AS pair, COUNT(*) FROM t WHERE sex = 'F' OR marital = 'married' GROUP BY pair",
    "SELECT CASE WHEN age < 3 AND sex = 'F' THEN 'x' ELSE 'y' END AS k, marital, COUNT(*) FROM t GROUP BY k, marital",
]


def written_out(table: TableQuery) -> np.ndarray:
    W = to_dense(table.workload.matrix)
    return W if table.combine is None else table.combine @ W


@examples(40)
@given(st.sets(st.sampled_from(list(CONDITIONS)), min_size=1), st.sampled_from(QUERIES))
def test_counts_are_those_of_possible_cells(conditions: set[str], query: str) -> None:
    (plain,) = parse(PEOPLE, query)
    left = ~np.any([CONDITIONS[c] for c in conditions], axis=0)
    merged = PEOPLE.merge(["age", "marital", "sex"], name="all")
    for domain in (PEOPLE, merged, merged_domain(PEOPLE, query, impossible=sorted(conditions))):
        (table,) = parse(domain, query, impossible=sorted(conditions))
        assert list(table.labels()) == list(plain.labels())
        assert table.columns == plain.columns
        rows = written_out(table)
        if domain.names == PEOPLE.names or domain is merged:
            np.testing.assert_array_equal(rows, written_out(plain) * left)
        assert (to_dense(table.workload.matrix).sum(axis=1) > 0).all()  # nothing is paid for that is always 0


SPEC = """\
impossible = ["age < 2 AND marital = 'married'"]
[data]
source = "people.csv"
dataset = "people-2026"
[domain]
age = 5
marital = ["single", "married"]
[[table]]
name = "both"
sql = "SELECT age, marital, COUNT(*) FROM people GROUP BY age, marital"
[[table]]
name = "sums"
marginals = [0, 1]
[privacy]
epsilon = "1"
[ledger]
path = "budget.db"
cap = { epsilon = "4" }
"""


def test_a_specification_publishes_zeros_without_noise(tmp_path: Path) -> None:
    (tmp_path / "people.toml").write_text(SPEC)
    # One row is in an impossible cell: like a row outside the domain, it is in no table.
    (tmp_path / "people.csv").write_text("age,marital\n" + "0,married\n" * 500 + "0,single\n3,married\n")
    spec = load_spec(tmp_path / "people.toml")
    published = hdmm.publish(spec, planned(spec))
    both, total, ages, marital = (table.columns() for table in published.tables)
    assert [table.name for table in published.tables] == ["both", "sums_total", "sums_age", "sums_marital"]
    known = (both["age"].astype(int) < 2) & (both["marital"] == "married")
    for name in ("estimate", "stddev", "lower", "upper"):
        assert (both[name][known] == 0).all()
    assert (both["stddev"][~known] > 0).all()
    assert abs(total["estimate"][0] - 2) < 250  # half way to 500, at 25 standard deviations
    for age in range(5):  # tables agree
        at = both["age"].astype(int) == age
        assert ages["estimate"][age] == pytest.approx(both["estimate"][at].sum())
    assert marital["estimate"].sum() == pytest.approx(total["estimate"][0])


@pytest.mark.slow
def test_intervals_cover_the_possible_count() -> None:
    (table,) = parse(PEOPLE, "SELECT age, COUNT(*) FROM t GROUP BY ROLLUP(age)", impossible=list(CONDITIONS)[:1])
    assert table.combine is not None
    plan = hdmm.optimize(table.workload, restarts=2)
    x = np.arange(20)
    truth = written_out(table) @ x
    runs, inside = 600, np.zeros(table.rows)
    for _ in range(runs):
        answers = plan.measure(hdmm.from_array(PEOPLE, x), PureDP(1), ledger=None).answer(table.workload)
        _, centre, stddev = answers.sums(table.combine)
        lower, upper = hdmm.answers.margins.interval(centre, stddev, 0.9, answers.noise)
        inside += (lower <= truth) & (truth <= upper)
    assert inside.min() >= fewest(runs, 0.9, among=table.rows)


WRONG = [
    ('["age <"]', "Something is missing"),
    ('["agee < 2"]', "Did you mean 'age'"),
    ('["age < 2 GROUP BY age"]', "Write one condition"),
    ('["age < 2 ORDER BY age"]', "Write one condition"),
    ('["age < 2; SELECT COUNT(*) FROM t"]', "Write one condition"),
    ('["age >= 0"]', "leave no cell"),
    ('["age < 3", "age > 2"]', "leave no cell"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[m for _, m in WRONG])
def test_conditions_that_cannot_be_followed_are_refused(tmp_path: Path, given: str, message: str) -> None:
    (tmp_path / "people.toml").write_text(SPEC.replace("[\"age < 2 AND marital = 'married'\"]", given))
    with pytest.raises(SpecError, match=message) as caught:
        load_spec(tmp_path / "people.toml")
    assert caught.value.line == 1


RANGED = SPEC.replace("marginals = [0, 1]", "ranges = %s\nmarginals = %s").replace(
    'marital = ["single', 'sex = ["M", "F"]\nchildren = 3\nmarital = ["single'
)


@pytest.mark.parametrize("ranges", ['["age"]', '["age", "children"]', '["children"]'])
@pytest.mark.parametrize("marginals", ['[["age", "children"]]', '[["sex", "age", "marital", "children"]]', "[1, 2]"])
@pytest.mark.parametrize("cells", ["age < 2 AND marital = 'married'", "age = 3 OR children > age", "children = 1"])
def test_ranges_count_possible_cells(tmp_path: Path, ranges: str, marginals: str, cells: str) -> None:
    """By brute force over all cells: a row counts those in its ranges and groups that are possible."""
    text = (RANGED % (ranges, marginals)).replace("age < 2 AND marital = 'married'", cells)
    (tmp_path / "people.toml").write_text(text)
    spec = load_spec(tmp_path / "people.toml")
    (left,) = parse(spec.domain, "SELECT COUNT(*) FROM t", impossible=[cells])
    possible = np.asarray(written_out(left)).reshape(-1)
    places = np.indices(spec.domain.shape).reshape(len(spec.domain), -1)
    held = {
        name: np.array([column.values.label(code) for code in column.codes[places[column.axis]]], dtype=object)
        for name, column in columns(spec.domain.attributes).items()
    }
    for table in spec.tables[1:]:
        W = to_dense(table.workload.matrix)
        rows = W if table.combine is None else table.combine @ W
        for labels, row in zip(table.labels(), rows, strict=True):
            said = dict(zip(table.columns, labels, strict=True))
            inside = possible > 0
            for name, label in said.items():
                own = held[name.removesuffix("_from").removesuffix("_to")]
                inside &= (own >= label if "_from" in name else own <= label if "_to" in name else own == label).astype(
                    bool
                )
            np.testing.assert_array_equal(row, inside)
        assert (W.sum(axis=1) > 0).all()


def test_tables_of_nothing_else_are_refused() -> None:
    with pytest.raises(WorkloadError, match="Every cell of this table is impossible"):
        parse(PEOPLE, "SELECT sex, COUNT(*) FROM t WHERE age = 0 GROUP BY sex", impossible=["age < 2"])
    with pytest.raises(WorkloadError, match="Give a list"):
        parse(PEOPLE, "SELECT COUNT(*) FROM t", impossible="age < 2")
