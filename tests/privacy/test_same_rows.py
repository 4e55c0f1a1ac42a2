"""A combination keeps what its parts are of and what paid for them; a part counts once; other rows are refused (O7)."""

from __future__ import annotations

import json
import re
import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import (
    Domain,
    FileError,
    Ledger,
    PureDP,
    Strategy,
    StrategyError,
    Unit,
    combine,
    from_array,
    from_table,
    load_release,
    load_spec,
)
from hdmm.apps.cli import run
from hdmm.data.engines.address import place_of, public_address
from hdmm.measure.measure import measure
from hdmm.measure.release import Release
from hdmm.privacy.rows_of import RowsOf, new_mark
from hdmm.publication.spec import read_spec
from hdmm.publication.spec.origin import rows_of
from tests.support.spec_cases import SPEC, people, planned, prepared, write_spec

Captured = pytest.CaptureFixture[str]
DOMAIN = Domain({"sex": ["M", "F"]})
MONTHLY = SPEC.replace("people.csv", "people.parquet").replace('folder = "out"', 'folder = "out-${MONTH}"')
TABLE = pa.table({"sex": ["M", "F", "F"], "gender": ["F", "F", "F"], "who": [1, 2, 2], "home": [1, 1, 1]})


def released(data: object, ledger: Ledger | None = None, unit: Unit | None = None) -> Release:
    return measure(Strategy.identity(DOMAIN), data, PureDP(1), ledger=ledger, unit=unit)  # type: ignore[arg-type]


def three(ledger: Ledger | None = None) -> list[Release]:
    data = from_array(DOMAIN, np.array([5, 7]))
    return [released(data, ledger) for _ in range(3)]


@pytest.mark.parametrize("paid", [True, False])
@pytest.mark.parametrize("saved", [True, False])
def test_o7_a_part_counts_once_however_it_is_nested(tmp_path: Path, paid: bool, saved: bool) -> None:
    """Two numbers each: too few for equal noise to show that a measurement is there twice."""
    ledger = Ledger(tmp_path / "b.db", dataset="people", cap=PureDP(9)) if paid else None
    a, b, c = three(ledger)
    count = 0

    def kept(release: Release) -> Release:
        nonlocal count
        count += 1
        return load_release(release.save(tmp_path / str(count))) if saved else release

    both, all_three = kept(combine([a, b])), kept(combine([kept(combine([a, b])), c]))
    assert both.parts == (*a.parts, *b.parts)
    assert all_three.parts == (*a.parts, *b.parts, *c.parts)
    assert all_three.privacy == PureDP(3)
    assert all_three.receipt is None
    for given in ([both, a], [both, kept(b)], [a, kept(a)], [both, both], [all_three, c], [all_three, both]):
        for order in permutations(given):
            for same_rows in (False, True):
                with pytest.raises(StrategyError, match="given twice"):
                    combine(order, same_rows=same_rows)
    for order in permutations([both, kept(c)]):
        assert combine(order).privacy == PureDP(3)


def test_o7_a_release_that_was_charged_again_is_the_same_release(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "b.db", dataset="people", cap=PureDP(9))
    a, b, _ = three(ledger)
    again = a.charged_again(ledger, "restored")
    assert again.receipt != a.receipt
    for given in ([a, again], [combine([a, b]), again]):
        with pytest.raises(StrategyError, match="given twice"):
            combine(given)


def test_o7_a_copied_folder_is_the_same_release(tmp_path: Path) -> None:
    a, b, _ = three()
    a.save(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    one, copy = load_release(tmp_path / "one"), load_release(tmp_path / "copy")
    with pytest.raises(StrategyError, match="given twice"):
        combine([combine([one, b]), copy])


def test_o7_a_combination_is_of_one_dataset_in_every_order(tmp_path: Path) -> None:
    data = from_array(DOMAIN, np.array([5, 7]))
    ledgers = [Ledger(tmp_path / "b.db", dataset=name, cap=PureDP(9)) for name in ("people", "firms")]
    a, b, other = released(data, ledgers[0]), released(data, ledgers[0]), released(data, ledgers[1])
    for given in ([a, other], [combine([a, b]), other]):
        for order in permutations(given):
            for same_rows in (False, True):
                with pytest.raises(StrategyError, match="different datasets: 'firms', 'people'"):
                    combine(order, same_rows=same_rows)


def refused(one: Release, two: Release, words: str) -> None:
    """Alone and within combinations, in both orders; and allowed if somebody states it."""
    for order in ([one, two], [two, one]):
        with pytest.raises(StrategyError, match=words):
            combine(order)
        assert combine(order, same_rows=True).privacy == PureDP(2)


def test_o7_objects_in_memory_are_the_same_rows_only_if_they_are_one_object() -> None:
    data, other = from_array(DOMAIN, np.array([5, 7])), from_array(DOMAIN, np.array([5, 7]))
    combine([released(data), released(data)])
    refused(released(data), released(other), "their source or table may differ")
    frame, again = from_table(DOMAIN, TABLE), from_table(DOMAIN, TABLE)
    combine([released(frame), released(frame)])
    refused(released(frame), released(again), "their source or table may differ")


def test_o7_files_are_known_by_their_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for month in ("jan", "feb"):
        Path(month).mkdir()
        pq.write_table(TABLE, f"{month}/people.parquet")
    Path("link").symlink_to("jan")
    jan = from_table(DOMAIN, "jan/people.parquet")
    for other in (tmp_path / "jan" / "people.parquet", "link/people.parquet", "feb/../jan/people.parquet"):
        combine([released(jan), released(from_table(DOMAIN, other))])
    refused(released(jan), released(from_table(DOMAIN, "feb/people.parquet")), "source or table may differ")
    renamed = from_table(DOMAIN, "jan/people.parquet", columns={"sex": "gender"})
    refused(released(jan), released(renamed), "their columns or filter may differ")


def test_o7_rows_of_persons_are_chosen_anew_for_each_data_object(tmp_path: Path) -> None:
    """At most k rows of each person: of two choices nobody knows whether they are the same."""
    pq.write_table(TABLE, tmp_path / "people.parquet")
    first, second = (from_table(DOMAIN, tmp_path / "people.parquet", id="who", max_rows_per_id=1) for _ in range(2))
    combine([released(first), released(first)])
    refused(released(first), released(second), "which rows of a person are counted may differ")
    more = from_table(DOMAIN, tmp_path / "people.parquet", id="who", max_rows_per_id=2)
    with pytest.raises(StrategyError, match="no one guarantee"):
        combine([released(first), released(more)], same_rows=True)
    refused(released(first, unit=Unit(2)), released(more), "which rows of a person")
    homes = from_table(DOMAIN, tmp_path / "people.parquet", id="home", max_rows_per_id=1)
    with pytest.raises(StrategyError, match="The columns of ids differ"):
        combine([released(first), released(homes)], same_rows=True)
    whole = from_table(DOMAIN, tmp_path / "people.parquet")
    with pytest.raises(StrategyError, match="The columns of ids differ"):
        combine([released(first), released(whole)], same_rows=True)


@pytest.mark.parametrize(
    "change",
    [
        {"mark": "x"},
        {"mark": 5},
        {"rows": {"source": "x"}},
        {"rows": {"other": "0" * 64}},
        {"parts": [{"mark": "0" * 31}]},
        {"parts": [{"mark": "0" * 32, "receipt": {}}]},
    ],
)
def test_o7_a_damaged_record_of_rows_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = three()[0].save(tmp_path / "one") / "release.json"
    envelope = json.loads(path.read_text())
    envelope["content"].update(change)
    path.write_text(json.dumps(envelope))
    with pytest.raises(FileError):
        load_release(tmp_path / "one")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of two months in the current folder."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    pq.write_table(people(seed=1), "people-2.parquet")
    return tmp_path


def publish(text: str, *options: str) -> Release:
    """The release of a specification by the command line."""
    spec = load_spec(write_spec(Path(), text), variables={"MONTH": "x"} if "${MONTH}" in text else None)
    planned(spec).save(spec.plan.folder)
    assert run(["release", "people.toml", "--yes", "--force", "--quiet", *options]) == 0
    name = next((word[6:] for word in options if word.startswith("MONTH=")), None)
    return load_release(f"out-{name}/release" if name else "out/release")


PLAIN = SPEC.replace("people.csv", "people.parquet")
# Another month in each way: by the file, by --source, by the columns, and by a variable that only the title has.
OTHERS = {
    "file": (PLAIN.replace("people.parquet", "people-2.parquet"), [], "source or table"),
    "source": (PLAIN, ["--source", "people-2.parquet"], "source or table"),
    "columns": (PLAIN.replace("[domain]", '[data.columns]\nage = "income"\n[domain]'), [], "columns"),
    "variable": (PLAIN.replace('"People"', '"People in ${MONTH}"'), ["--set", "MONTH=2"], "variables"),
}


@pytest.mark.parametrize("way", OTHERS)
def test_o7_another_month_is_refused_in_every_way(folder: Path, capsys: Captured, way: str) -> None:
    text, options, words = OTHERS[way]
    first = publish(PLAIN)
    shutil.move("out", "first")
    again = publish(PLAIN)
    combine([first, again])
    other = publish(text.replace('folder = "out"', 'folder = "out-2"') if "MONTH" in text else text, *options)
    for given in ([first, other], [combine([first, again]), other], [other, combine([first, again])]):
        with pytest.raises(StrategyError, match=f"same rows: their {words}.* may differ"):
            combine(given)
    capsys.readouterr()
    assert run(["plan", "people.toml", "--with", "first", *options]) == 1
    assert "same_rows=True, or --same-rows" in capsys.readouterr().err
    assert run(["plan", "people.toml", "--with", "first", "--same-rows", *options]) == 0
    assert "hdmm.combine with same_rows=True" in " ".join(capsys.readouterr().out.split())


def test_o7_a_plan_with_what_is_no_earlier_release(folder: Path, capsys: Captured) -> None:
    write_spec(folder, PLAIN)
    assert run(["plan", "people.toml", "--same-rows"]) == 2
    assert "Name them with --with" in capsys.readouterr().err


def test_o7_a_plan_for_another_unit_is_refused(folder: Path, capsys: Captured) -> None:
    publish(PLAIN)
    write_spec(folder, PLAIN.replace("dataset =", 'id = "who"\nmax_rows_per_id = 1\ndataset ='))
    assert run(["plan", "people.toml", "--with", "out", "--same-rows"]) == 1
    assert "The columns of ids differ" in capsys.readouterr().err


def test_o7_what_is_recorded_of_rows_holds_no_name(folder: Path) -> None:
    """Neither a path nor a variable: only digests."""
    publish(PLAIN.replace('"People"', '"People in ${MONTH}"').replace('"out"', '"out-${MONTH}"'), "--set", "MONTH=5")
    written = json.loads(Path("out-5/release/release.json").read_text())["content"]
    assert set(written["rows"]) == {"source", "columns", "kept", "period"}
    assert all(len(digest) == 64 for digest in written["rows"].values())
    assert b"parquet" not in Path("out-5/release/release.json").read_bytes()


def test_o7_of_a_specification_and_of_its_data_the_rows_are_the_same(folder: Path) -> None:
    release = publish(PLAIN)
    assert rows_of(load_spec("people.toml")) == release.parts[0].rows
    assert from_table(load_spec("people.toml").domain, "people.parquet").rows_of == release.parts[0].rows


def test_o7_databases_are_known_by_what_decides_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by a password, a port that is the usual one, or a setting; unknown options equal nothing."""
    same = [
        "postgres://me:one@db/town",
        "postgresql://me:two@DB:5432/town",
        "postgres://me@db/town?sslmode=require&connect_timeout=5",
        "postgres://me@db/town?password=three",
    ]
    assert len({place_of(url, "people") for url in same} - {None}) == 1
    other = [
        "postgres://you@db/town",
        "postgres://me@db2/town",
        "postgres://me@db:5433/town",
        "postgres://me@db/village",
        "postgres://me@db/town?options=-csearch_path%3Djan",
        "mysql://db/town",
    ]
    assert len({place_of(url, "people") for url in [same[0], *other]} - {None}) == len(other) + 1
    assert place_of(same[0], "people") != place_of(same[0], "people_2")
    before = public_address("postgres:///town")
    monkeypatch.setenv("PGHOST", "elsewhere")
    assert public_address("postgres:///town") != before
    for unknown in (
        "postgres://me@db/town?new=1",
        "postgres://me:a/b@db/town",
        "snowflake://me@x/a/b",
        "mysql://me@db/town",
    ):
        assert place_of(unknown, "people") is None


def test_o7_a_file_is_known_by_its_path_also_in_a_url(folder: Path) -> None:
    assert (
        place_of("duckdb://people.db", "a")
        == place_of(folder / "people.db", "a")
        == place_of("sqlite://people.db", "a")
    )
    named = SPEC.replace("people.csv", "postgres://me:${PW}@db/town").replace("dataset =", 'table = "a"\ndataset =')
    one, two = (rows_of(read_spec(named.encode(), Path("people.toml"), {"PW": pw})) for pw in ("x", "y"))
    assert one == two
    assert one.source is not None


def test_o7_a_mark_has_128_bits_and_another_one_others() -> None:
    marks = {new_mark() for _ in range(100)}
    assert len(marks) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", mark) for mark in marks)


def test_o7_what_is_not_known_equals_nothing() -> None:
    unknown = RowsOf.of(None, {}, ("who", 1, None))
    assert unknown.differences(unknown) == ["their source or table", "which rows of a person are counted"]
    known = RowsOf.of("a", {"x": "x"}, ("who", 1, "mark"), {})
    assert known.differences(known) == []
    assert known == RowsOf.of("a", {}, ("who", 1, "mark"))
    for other in (
        RowsOf.of("b", {}, ("who", 1, "mark")),
        RowsOf.of("a", {"x": "y"}, ("who", 1, "mark")),
        RowsOf.of("a", {}, ("who", 2, "mark")),
        RowsOf.of("a", {}, ("home", 1, "mark")),
        RowsOf.of("a", {}, ("who", 1, "other")),
        RowsOf.of("a", {}),
        RowsOf.of("a", {}, ("who", 1, "mark"), {"MONTH": "1"}),
    ):
        assert len(known.differences(other)) == 1
