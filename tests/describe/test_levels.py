"""Levels: groupings of an attribute's values, from Python, SQL and a specification, against rows written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import (
    Bins,
    Domain,
    DomainError,
    Groups,
    Identity,
    Integers,
    Labels,
    Noise,
    PureDP,
    SpecError,
    Total,
    Weighted,
    Workload,
    WorkloadError,
    load_spec,
)
from hdmm.apps.cli import run
from hdmm.io.codec import decode, encode
from hdmm.matrix import to_dense
from hdmm.sql import TableQuery, parse
from tests.support.effort import examples
from tests.support.spec_cases import without_search

TRACTS = Labels(
    ["T1", "T2", "T3", "T4"],
    levels={"county": ["Kent", "Essex", "Kent", "Surrey"], "state": ["N", "S", "N", "S"]},
)
PLACES = Domain({"tract": TRACTS, "sex": ["M", "F"]})


@st.composite
def leveled(draw: st.DrawFn, *, size: int = 7) -> Domain:
    """Two attributes, the first with two levels, nested or overlapping, some with a cell for others."""
    n = draw(st.integers(1, size))
    codes = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    lower = draw(codes)
    upper = draw(st.one_of(codes, st.just([code // 2 for code in lower])))
    levels = {"low": [f"L{code}" for code in lower], "up": [f"U{code}" for code in upper]}
    outside = draw(st.sampled_from(["drop", "other"]))
    return Domain({"place": Labels([f"P{i}" for i in range(n)], outside, levels=levels), "sex": ["M", "F"]})


def written_out(table: TableQuery) -> np.ndarray:
    """The rows of a table over all cells."""
    W = to_dense(table.workload.matrix)
    return W if table.combine is None else table.combine @ W


def cells(domain: Domain) -> list[dict[str, object]]:
    """Every cell as a row of a table, levels included."""
    found = []
    for index in range(domain.size):
        row: dict[str, object] = dict(zip(domain.names, domain.labels(index), strict=True))
        for attribute, code in zip(domain.attributes, domain.cell(index), strict=True):
            for level in attribute.values.levels:
                groups, codes = attribute.level(level.name)
                row[level.name] = groups.label(int(codes[code]))
        found.append(row)
    return found


@examples(60)
@given(leveled(), st.lists(st.sampled_from(["place", "low", "up", "sex"]), min_size=1, max_size=4, unique=True))
def test_group_by_gives_the_combinations_that_exist_and_no_others(domain: Domain, keys: list[str]) -> None:
    (table,) = parse(domain, f"SELECT {', '.join(keys)}, COUNT(*) FROM t GROUP BY {', '.join(keys)}")
    rows = cells(domain)
    expected = {tuple(row[key] for key in keys) for row in rows}
    labels = list(table.labels())
    assert len(labels) == len(set(labels))
    assert set(labels) == expected
    for label, row in zip(labels, written_out(table), strict=True):
        assert row.tolist() == [float(tuple(each[key] for key in keys) == label) for each in rows]


@examples(60)
@given(leveled(), st.data())
def test_where_compares_levels_as_columns(domain: Domain, data: st.DataObject) -> None:
    rows = cells(domain)
    low, up = (data.draw(st.sampled_from(domain["place"].level(name)[0].values)) for name in ("low", "up"))
    (table,) = parse(domain, f"SELECT sex, COUNT(*) FROM t WHERE low = '{low}' OR NOT up = '{up}' GROUP BY sex")
    for (sex,), row in zip(table.labels(), written_out(table), strict=True):
        holds = [each["low"] == low or each["up"] not in (up, "other") for each in rows]
        assert row.tolist() == [float(h and each["sex"] == sex) for h, each in zip(holds, rows, strict=True)]


@examples(40)
@given(leveled())
def test_groups_and_files_hold_levels(domain: Domain) -> None:
    n = domain.shape[0]
    weighted = Weighted(Groups("up"), np.arange(1.0, 1 + domain["place"].level("up")[0].size))
    w = Workload.product(domain, place=Groups("low") | weighted | Identity())
    codes = domain["place"].level("low")[1]
    rows = to_dense(w.products[0].predicates[0].matrix(n))
    np.testing.assert_array_equal(rows[: codes.max() + 1], np.arange(codes.max() + 1)[:, None] == codes)
    again = decode(Workload, *encode(w))
    assert again == w
    assert again.domain == domain
    np.testing.assert_array_equal(to_dense(again.matrix), to_dense(w.matrix))


def test_levels_of_integers_and_bins_and_merged_attributes() -> None:
    age = Integers(0, 5, outside="other", levels={"decade": [0, 0, 10, 10, 20, 20]})
    income = Bins([0, 10, 20, 50], levels={"band": ["low", "high", "high"]})
    domain = Domain({"age": age, "sex": ["M", "F"], "income": income}).merge(["age", "sex"], name="both")
    assert next(Workload.product(domain, both=Groups("decade")).labels()) == ("0",)
    (table,) = parse(domain, "SELECT band, decade, COUNT(*) FROM t WHERE decade >= 10 GROUP BY band, decade")
    counted = dict(zip(table.labels(), written_out(table).sum(axis=1).tolist(), strict=True))
    assert counted == {("low", 10): 4, ("high", 10): 8, ("low", 20): 4, ("high", 20): 8}


def test_levels_that_are_numbers_are_compared_with_columns() -> None:
    domain = Domain({"age": Integers(0, 5, outside="other", levels={"pair": [0, 0, 2, 2, 4, 4]})})
    for each in (domain, Domain({"age": domain["age"].values, "sex": ["M", "F"]}).merge(["age", "sex"], name="both")):
        (table,) = parse(each, "SELECT age, COUNT(*) FROM t WHERE pair < age GROUP BY age")
        assert list(table.labels()) == [(1,), (3,), (5,)]


def test_files_without_levels_have_no_key_for_them() -> None:
    assert "levels" not in json.dumps(encode(Domain({"age": 3, "sex": ["M"], "income": Bins([0, 1])}))[0])


WRONG = [
    (lambda: Labels(["a"], levels={"x": []}), "no group names"),
    (lambda: Labels(["a"], levels={"x": ["g", "h"]}), "2 group names for 1 values"),
    (lambda: Labels(["a", "b"], levels={"x": ["g", None]}), "is missing"),
    (lambda: Labels(["a"], levels={"x": [["g"]]}), "is a list"),
    (lambda: Labels(["a"], levels={"x": "g"}), "given as type str"),
    (lambda: Labels(["a"], levels={"": ["g"]}), "not empty"),
    (lambda: Labels(["a"], "other", levels={"x": ["other"]}), "a group 'other'"),
    (lambda: Domain({"a": Labels(["a"], levels={"b": ["g"]}), "b": 2}), "name of another attribute"),
    (lambda: Domain({"a": Labels(["a"], levels={"a": ["g"]})}), "name of another attribute"),
    (lambda: Workload.product(PLACES, tract=Groups("conty")), "Did you mean 'county'"),
    (lambda: Workload.product(PLACES, sex=Groups("county")), "it has no levels"),
    (lambda: Groups("county").count(4), "Workload.product"),
    (lambda: parse(PLACES, "SELECT COUNT(*) FROM t WHERE county = 'Kend'"), "not a value of county"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_no_level_is_refused(make: object, message: str) -> None:
    with pytest.raises((DomainError, WorkloadError), match=message):
        make()  # type: ignore[operator]


def test_tables_at_every_level_agree() -> None:
    text = "SELECT state, county, tract, sex, COUNT(*) FROM t GROUP BY ROLLUP(state, county, tract), sex"
    (table,) = parse(PLACES, text)
    plan = hdmm.optimize(table.workload, restarts=2)
    release = plan.measure(hdmm.from_array(PLACES, np.arange(8)), PureDP(1), ledger=None)
    answers = dict(zip(table.labels(), release.answer(table.workload).values, strict=True))
    kent = [answers["N", "Kent", tract, "F"] for tract in ("T1", "T3")]
    assert answers["N", "Kent", "(all)", "F"] == pytest.approx(sum(kent))
    south = [answers["S", county, "(all)", "M"] for county in ("Essex", "Surrey")]
    assert answers["S", "(all)", "(all)", "M"] == pytest.approx(sum(south))


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(Noise))
def test_intervals_of_groups_cover_the_truth(noise: Noise) -> None:
    domain = Domain({"tract": Labels(range(600), levels={"county": [i % 37 for i in range(600)]})})
    w = Workload.product(domain, tract=Groups("county") | Identity() | Total())
    plan = hdmm.optimize(w, noise=noise, restarts=2)
    x = np.arange(600)
    privacy = PureDP(1) if noise is Noise.LAPLACE else hdmm.ZCDP("0.5")
    runs, inside = 100, 0
    for _ in range(runs):
        answers = plan.measure(hdmm.from_array(domain, x), privacy, ledger=None).answer(w)
        lower, upper = answers.interval(0.9)
        truth = w.matrix @ x
        inside += int(((lower <= truth) & (truth <= upper))[:37].sum())
    assert inside / (runs * 37) > 0.87  # six standard deviations, as counts hardly depend on each other


@pytest.mark.slow
def test_a_hundred_thousand_tracts() -> None:
    """From labels to intervals; nothing of 100,000² numbers is ever made, because it would not fit."""
    n = 100_000
    county = np.random.default_rng(0).permutation(np.arange(n) ** 2 // (n * n // 3000))
    levels = {"county": [f"C{c}" for c in county], "state": [f"S{c // 60}" for c in county]}
    domain = Domain({"tract": Labels([f"T{i}" for i in range(n)], levels=levels)})
    (table,) = parse(domain, "SELECT state, county, tract, COUNT(*) FROM t GROUP BY ROLLUP(state, county, tract)")
    assert table.rows == n + len(set(county)) + len(set(county // 60)) + 1
    plan = hdmm.optimize(table.workload, restarts=2)
    assert hdmm.unit_error(table.workload, plan.strategy) < 0.85 * hdmm.unit_error(
        table.workload, hdmm.Strategy.identity(domain)
    )
    answers = plan.measure(hdmm.from_array(domain, np.full(n, 3)), PureDP(1), ledger=None).answer(table.workload)
    z = (answers.values - table.workload.matrix @ np.full(n, 3)) / answers.stddev
    assert 0.98 < z.std() < 1.02


SPEC = """\
[data]
dataset = "people-2026"
[domain]
sex = ["M", "F"]
tract = { %s }
[[table]]
name = "places"
sql = "SELECT state, county, sex, COUNT(*) FROM people GROUP BY ROLLUP(state, county), sex"
[[table]]
name = "counts"
marginals = [["county", "sex"], ["tract", "county"], []]
[privacy]
epsilon = "0.5"
[ledger]
path = "budget.db"
cap = { epsilon = "4" }
"""
INLINE = 'labels = ["T1", "T2"], levels = { county = ["Kent", "Essex"], state = ["N", "N"] }'


def specified(folder: Path, lookup: bytes | None, keys: str = 'levels = "tracts.csv"') -> hdmm.Spec:
    if lookup is not None:
        (folder / "tracts.csv").write_bytes(lookup)
    (folder / "places.toml").write_text(SPEC % keys)
    return load_spec(folder / "places.toml")


def test_levels_in_a_specification(tmp_path: Path) -> None:
    inline = specified(tmp_path, None, INLINE)
    lookup = specified(tmp_path, b"\xef\xbb\xbftract;county;state\r\nT1;Kent;N\r\n\r\nT2;Essex;N\r\n")
    assert inline.domain == lookup.domain
    assert [t.columns for t in lookup.tables] == [
        ("state", "county", "sex"),
        ("county", "sex"),
        ("tract", "county"),
        (),
    ]
    assert list(lookup.tables[2].labels()) == [("T1", "Kent"), ("T2", "Essex")]


def test_a_look_up_follows_the_order_of_declared_values(tmp_path: Path) -> None:
    found = specified(tmp_path, b"age,county,state\n2,b,y\n1,a,x\n", 'first = 1, last = 2, levels = "tracts.csv"')
    assert found.domain["tract"].level("county")[0].values == ("a", "b")
    found = specified(tmp_path, b"age,county,state\n10,b,y\n0,a,x\n", 'bins = [0, 10, 20], levels = "tracts.csv"')
    assert found.domain["tract"].level("state")[0].values == ("x", "y")


HOSTILE: list[tuple[bytes, str, int]] = [
    (b"", "empty", 1),
    (b"tract,county,state\n", "no rows", 1),
    (b"tract\nT1\n", "at least one level", 1),
    (b"tract,county,county\nT1,a,b\n", "different names", 1),
    (b"tract,county,\nT1,a,b\n", "at least one level", 1),
    (b"tract,county,state\nT1,a\n", "3 fields", 2),
    (b'tract,county,state\nT1,"a,b\nT2,c,d\n', "quote", 2),
    (b"tract,county,state\nT1,a,N\n\nT1,b,N\n", "'county' 'b' here and 'a' on line 2", 4),
    (b"tract,county,state\nT1,a,N\nT1,a,N\n", "on line 2, too", 3),
    (b"tract,county,state\nT1,,N\n", "no 'county'", 2),
    (b"tract,county,state\n,a,N\n", "first column is empty", 2),
    (b"tract,county,state\nT1,\xff,N\n", "UTF-8", 2),
    (b"tract,county,state\nT1,a\x00,N\n", "fields", 2),
]


@pytest.mark.parametrize(("lookup", "message", "line"), HOSTILE, ids=[m for _, m, _ in HOSTILE])
def test_a_look_up_that_is_no_function_is_refused_with_its_line(
    tmp_path: Path, lookup: bytes, message: str, line: int
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        specified(tmp_path, lookup)
    assert (Path(caught.value.file).name, caught.value.line) == ("tracts.csv", line)


def test_a_look_up_and_declared_values_must_agree(tmp_path: Path) -> None:
    keys = 'labels = ["T1", "T2"], levels = "tracts.csv"'
    with pytest.raises(SpecError, match="'T3' is not a value that is declared"):
        specified(tmp_path, b"tract,county,state\nT3,a,N\n", keys)
    with pytest.raises(SpecError, match="no line for 1 declared value, such as 'T2'"):
        specified(tmp_path, b"tract,county,state\nT1,a,N\n", keys)
    with pytest.raises(SpecError, match="no line for 999,999,999,999 declared values, such as 0"):
        specified(tmp_path, b"tract,county,state\n7,a,N\n", 'first = 0, last = 999_999_999_999, levels = "tracts.csv"')
    for path in ("nowhere.csv", "/dev/zero", "."):
        with pytest.raises(SpecError, match="no such"):
            specified(tmp_path, None, f'levels = "{path}"')


def test_places_as_attributes_are_answered_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_search(monkeypatch)
    text = SPEC.replace("tract = { %s }", 'tract = 90\ncounty = 9\nstate = ["a", "b"]').replace("ROLLUP", "CUBE")
    (tmp_path / "places.toml").write_text(text)
    assert run(["check", str(tmp_path / "places.toml"), "--json"]) == 0
    (advice,) = json.loads(capsys.readouterr().out)["advice"]
    assert "1,620 combinations" in advice
    assert "levels" in advice
    small = (
        text.replace("90", "3")
        .replace("county = 9", "county = 2")
        .replace("[privacy]", "[plan]\nrestarts = 1\n[privacy]")
    )
    (tmp_path / "places.toml").write_text(small)
    assert run(["plan", str(tmp_path / "places.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (planned,) = told["advice"]
    assert "12 combinations" in planned
    assert planned in hdmm.load_plan(told["plan"]).explain()
    (tmp_path / "places.toml").write_text(small.replace("restarts = 1", "restarts = 1\nadvice = false"))
    for command in (["check"], ["plan", "--verbose"]):
        assert run([*command, str(tmp_path / "places.toml")]) == 0
        assert "combinations" not in capsys.readouterr().out
    specified(tmp_path, None, INLINE)
    assert run(["check", str(tmp_path / "places.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"] == []


@pytest.mark.parametrize("key", ["mean", "quantiles", "ranges"])
def test_a_level_where_an_attribute_is_needed_is_named_as_such(tmp_path: Path, key: str) -> None:
    (tmp_path / "places.toml").write_text(
        (SPEC % INLINE).replace('marginals = [["county", "sex"], ["tract", "county"], []]', f'{key} = ["county"]')
    )
    with pytest.raises(SpecError, match="'county' is a level of tract"):
        load_spec(tmp_path / "places.toml")


@pytest.mark.parametrize("values", [(0, 10**7), (0, 10**12), (0, 10**30), (2**64, 2**64 + 5), (-(2**70), 0)])
def test_groups_that_cannot_be_listed_are_refused(values: tuple[int, int]) -> None:
    with pytest.raises(DomainError, match="can be grouped"):
        Integers(*values, groups={"d": 10})


def test_groups_are_levels_of_neighbouring_integers() -> None:
    values = Integers(5, 25, step=2, groups={"decade": 10, "stage": [16, 18]}, levels={"half": ["a"] * 5 + ["b"] * 6})
    assert [level.name for level in values.levels] == ["half", "decade", "stage"]
    assert values.levels[1].groups == ("5 to 9", "11 to 19", "21 to 25")
    assert values.levels[2].groups == ("5 to 15", "17", "19 to 25")
    for level, first in ((values.levels[1], [0, 10, 20]), (values.levels[2], [-99, 16, 18])):
        expected = [sum(5 + 2 * k >= each for each in first) - 1 for k in range(11)]
        assert level.codes.tolist() == expected
    assert Integers(-15, 4, groups={"d": 10}).levels[0].groups == ("-15 to -11", "-10 to -1", "0 to 4")
    assert Integers(0, 3, groups={"d": []}).levels[0].groups == ("0 to 3",)


@pytest.mark.parametrize("bad", [0, -1, True, "x", [5, 3], [3, 3], [1.5], 1.5, None, [True]])
def test_what_makes_no_groups_is_refused(bad: Any) -> None:
    with pytest.raises(DomainError, match=r"Groups 'd' are .* Give how many neighbouring integers"):
        Integers(0, 9, groups={"d": bad})


def test_groups_and_levels_have_names_of_their_own() -> None:
    with pytest.raises(DomainError, match="'d' names a level and groups"):
        Integers(0, 1, groups={"d": 1}, levels={"d": ["a", "b"]})
