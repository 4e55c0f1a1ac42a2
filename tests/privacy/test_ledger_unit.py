"""An account adds up losses of one unit of privacy; another is refused, or counts by its factor (security L8)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from fractions import Fraction
from itertools import permutations
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm.privacy.ledger as ledger_module
from hdmm import (
    ZCDP,
    BudgetError,
    Domain,
    Ledger,
    LedgerError,
    PrivacyError,
    PureDP,
    Strategy,
    Unit,
    from_array,
    load_spec,
)
from hdmm.apps.cli import run
from hdmm.apps.studio import work
from hdmm.apps.studio.server import Studio
from hdmm.apps.studio.spec_file import StudioFile
from hdmm.data import Data
from hdmm.data.table_like import from_table
from hdmm.measure.measure import measure, measure_prepared, unit_of
from hdmm.measure.prepare import prepare
from hdmm.measure.release import load_release
from hdmm.privacy.chain import Draft, Record, Verified, chained
from hdmm.privacy.hidden import hidden_text, read_hidden, shown_unit, steps
from hdmm.privacy.purpose import debit_text, read_debit
from hdmm.publication.budget import budget_of, unpayable
from hdmm.publication.publish import publish
from tests.support.spec_cases import SPEC, planned, prepared

Captured = pytest.CaptureFixture[str]
DATASET = "people-2026"
DOMAIN = Domain({"sex": ["M", "F"]})
UNITS = {
    "row": Unit(),
    "rows": Unit(3),
    "person": Unit(id="who"),
    "persons": Unit(3, id="who"),
    "household": Unit(id="home"),
    "replace": Unit(neighbours="replace"),
    "replace person": Unit(neighbours="replace", id="who"),
}
# What a spend of the second unit costs an account that the first one has bound: how many times ε, or None.
FACTORS: dict[tuple[str, str], int] = {
    **{(name, name): 1 for name in UNITS},
    ("row", "rows"): 1,
    ("rows", "row"): 3,
    ("person", "persons"): 1,
    ("persons", "person"): 1,
    ("replace", "row"): 2,
    ("replace", "rows"): 2,
    ("replace person", "person"): 2,
    ("replace person", "persons"): 2,
}
PAIRS = [(one, two) for one in UNITS for two in UNITS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def data(unit: Unit) -> Data:
    table = pa.table({"sex": ["M", "F", "F"], "who": [1, 2, 2], "home": [1, 1, 1]})
    rows = None if unit.id is None else unit.rows
    return from_table(DOMAIN, table, id=unit.id, max_rows_per_id=rows)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=map("-".join, PAIRS))
def test_l8_the_first_debit_binds_an_account(path: Path, first: str, second: str) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    assert ledger.unit is None
    ledger.debit(PureDP(1), "first", unit=UNITS[first])
    assert ledger.unit == UNITS[first]
    assert Ledger(path, dataset=DATASET).unit == UNITS[first]
    times = FACTORS.get((first, second))
    assert steps(UNITS[first], UNITS[second]) == times
    if times is None:
        with pytest.raises(BudgetError, match=r"such amounts do not add up\. Nothing was debited") as refused:
            ledger.debit(PureDP(1), "second", unit=UNITS[second])
        assert shown_unit(UNITS[first]) in str(refused.value)
        assert shown_unit(UNITS[second]) in str(refused.value)
        assert ledger.spent == 1
    else:
        assert ledger.debit(PureDP("0.5"), "second", unit=UNITS[second]).amount == Fraction(times, 2)
        assert ledger.spent == 1 + Fraction(times, 2)
    assert ledger.unit == UNITS[first]


def test_l8_what_to_do_is_said(path: Path) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    ledger.debit(PureDP(1), "first", unit=UNITS["person"])
    for other in ("row", "household"):
        with pytest.raises(BudgetError, match=r"give it the column 'who' as id \(with max_rows_per_id = 1"):
            ledger.debit(PureDP(1), "second", unit=UNITS[other])
    with pytest.raises(BudgetError, match="Declare the same neighbours as before"):
        ledger.debit(PureDP(1), "second", unit=UNITS["replace person"])
    rows = Ledger(path, dataset="visits", cap=PureDP(8))
    rows.debit(PureDP(1), "first", unit=UNITS["row"])
    with pytest.raises(BudgetError, match="Leave out id as before"):
        rows.debit(PureDP(1), "second", unit=UNITS["person"])


def test_l8_rho_counts_by_the_square(path: Path) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=ZCDP(8))
    ledger.debit(ZCDP("0.1"), "first", unit=UNITS["replace"])
    assert ledger.debit(ZCDP("0.1"), "rho", unit=UNITS["row"]).amount == Fraction(4, 10)
    assert ledger.debit(PureDP(1), "pure", unit=UNITS["row"]).amount == Fraction(4, 2)  # (2ε)²/2
    with pytest.raises(BudgetError, match="the debit is ρ = 8"):
        ledger.debit(ZCDP(2), "too much", unit=UNITS["row"])


def test_l8_accounts_of_one_file_have_units_of_their_own(path: Path) -> None:
    for name, unit in (("people", "person"), ("visits", "row"), ("homes", "household")):
        Ledger(path, dataset=name, cap=PureDP(1)).debit(PureDP(1), "all", unit=UNITS[unit])
    assert Ledger(path, dataset="visits").unit == UNITS["row"]


@pytest.mark.parametrize("order", list(permutations(["person", "row", "replace"])), ids="-".join)
def test_l8_releases_in_every_order(path: Path, order: tuple[str, ...]) -> None:
    """From Python: the first binds; of the others only one row in an account of replaced rows counts, twice."""
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    spent = Fraction(0)
    for name in order:
        times = 1 if name == order[0] else FACTORS.get((order[0], name))
        unit = UNITS[name]
        if times is None:
            with pytest.raises(BudgetError, match="do not add up"):
                measure(Strategy.identity(DOMAIN), data(unit), PureDP(1), ledger=ledger, unit=unit)
        else:
            release = measure(Strategy.identity(DOMAIN), data(unit), PureDP(1), ledger=ledger, unit=unit)
            assert release.unit == unit
            assert release.receipt is not None
            assert release.receipt.amount == times
            release.verify(ledger)
            spent += times
        assert ledger.spent == spent


def test_l8_charging_again_keeps_the_unit(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    unit = UNITS["persons"]
    release = measure(Strategy.identity(DOMAIN), data(unit), PureDP(1), ledger=ledger)
    again = load_release(release.save(tmp_path / "release"))
    assert again.unit == unit
    other = Ledger(tmp_path / "restored.db", dataset=DATASET, cap=PureDP(8))
    again.charged_again(other, "restored")
    assert other.unit == unit
    bound = Ledger(tmp_path / "rows.db", dataset=DATASET, cap=PureDP(8))
    bound.debit(PureDP(1), "rows", unit=UNITS["row"])
    with pytest.raises(BudgetError, match="do not add up"):
        again.charged_again(bound, "restored")


SPECS = {
    "row": SPEC,
    "person": SPEC.replace("dataset =", 'id = "who"\nmax_rows_per_id = 1\ndataset ='),
    "replace": SPEC.replace("dataset =", 'neighbours = "replace"\ndataset ='),
}


@pytest.mark.parametrize("order", list(permutations(SPECS)), ids="-".join)
def test_l8_the_command_line_in_every_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, order: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    spent = Fraction(0)
    for name in order:
        spec = load_spec(prepared(tmp_path, SPECS[name].replace('folder = "out"', f'folder = "{name}"')))
        planned(spec).save(spec.plan.folder)
        times = 1 if name == order[0] else FACTORS.get((order[0], name))
        capsys.readouterr()
        code = 3 if times is None else 0
        assert run(["check", "people.toml"]) == code
        if times is None:
            assert "do not add up" in capsys.readouterr().err
            assert "do not add up" in str(unpayable(spec, budget_of(spec)))
        elif times > 1:
            capsys.readouterr()
        assert run(["release", "people.toml", "--yes"]) == code
        said = capsys.readouterr()
        assert ("so that ε counts 2 times (ρ and μ² 4 times)" in said.out) == (times == 2)
        assert Path(name).exists() == (times is not None)
        spent += Fraction(times or 0, 2)
        assert budget_of(spec).spent == spent
    assert run(["budget", "people.toml"]) == 0
    assert f"The amounts hide {shown_unit(UNITS[order[0]])}" in " ".join(capsys.readouterr().out.split())
    assert run(["budget", "people.toml", "--json"]) == 0
    unit = UNITS[order[0]]
    stated = json.loads(capsys.readouterr().out)["unit"]
    assert stated == {"rows": unit.rows, "neighbours": unit.neighbours, "id": unit.id}


def test_l8_the_studio_is_bound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page says why, no offer is made, and the process that would spend refuses."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("budget.db", dataset=DATASET, cap=PureDP(4))
    ledger.debit(PureDP(1), "first", unit=UNITS["person"])
    spec = load_spec(prepared(tmp_path))
    planned(spec).save(spec.plan.folder)
    file = StudioFile(tmp_path / "people.toml", {})
    studio, seen = Studio(file), file.snapshot().digest
    state: Any = studio.state()
    assert "do not add up" in state["budget"]["refused"]
    with pytest.raises(BudgetError, match="do not add up"):
        studio.offer(seen)
    monkeypatch.setattr(work, "_finish_whatever_happens", lambda: None)
    heard, told = Pipe(duplex=False)
    order = work.ReleaseRequest(key="k", digest=seen, record=ledger.entries()[-1].hash, amount="0.5")
    work.spend(file, order, told)
    said = json.loads(heard.recv_bytes())
    assert said["state"] == "failed"
    assert "do not add up" in said["message"]
    assert ledger.spent == 1
    assert not Path("out").exists()


def test_l8_a_factor_counts_before_anything_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ε = 0.5 counts twice, so that of a cap of 4 no more than 1 may be missing."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("budget.db", dataset=DATASET, cap=PureDP(4))
    ledger.debit(PureDP("3.1"), "first", unit=UNITS["replace"])
    spec = load_spec(prepared(tmp_path))
    assert "the release would spend ε = 1. The account adds up" in str(unpayable(spec, budget_of(spec)))
    with pytest.raises(BudgetError, match=r"has ε = 0\.9 left"):
        publish(spec, planned(spec))
    assert ledger.spent == Fraction("3.1")


def test_l8_a_debit_that_names_no_unit_is_in_that_of_the_account(path: Path) -> None:
    """It binds nothing, as debits of early versions do not."""
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    ledger.debit(PureDP(1), "by hand")
    assert ledger.unit is None
    ledger.debit(PureDP(1), "bound", unit=UNITS["person"])
    ledger.debit(PureDP(1), "by hand again")
    assert ledger.unit == UNITS["person"]
    assert [entry.unit for entry in ledger.entries() if entry.kind == "debit"] == [None, UNITS["person"], None]
    assert [entry.text for entry in ledger.entries() if entry.kind == "debit"] == ["by hand", "bound", "by hand again"]


def test_l8_accounts_of_early_versions_are_bound_at_their_next_debit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "debit_text", lambda purpose, digest, *_: f"{purpose} [pays for release {digest}]")
        ledger.debit(PureDP(1), "early", pays_for="a" * 64, unit=UNITS["row"])
    assert ledger.unit is None
    assert ledger.entries()[-1].pays_for == "a" * 64
    ledger.debit(PureDP(1), "later", unit=UNITS["person"])
    assert ledger.unit == UNITS["person"]


def test_l8_a_purpose_cannot_name_a_unit(path: Path) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    purpose = f"tables [hides {hidden_text(UNITS['row'])}]"
    ledger.debit(PureDP(1), purpose)
    assert ledger.unit is None
    assert (ledger.entries()[-1].text, ledger.entries()[-1].unit) == (purpose, None)
    ledger.debit(PureDP(1), purpose, unit=UNITS["person"])
    assert (ledger.entries()[-1].text, ledger.unit) == (purpose, UNITS["person"])


def test_l8_a_record_of_another_unit_is_refused_though_its_hash_is_right(path: Path) -> None:
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    ledger.debit(PureDP(1), "first", unit=UNITS["person"])
    entry = ledger.entries()[-1]
    forged: Record = chained(
        Verified(entry.sequence, entry.hash),
        Draft("debit", debit_text("second", None, UNITS["row"], Fraction(1)), entry.timestamp, DATASET, "epsilon", 1),
    )
    draft = forged.draft
    with contextlib.closing(sqlite3.connect(path)) as db:
        row = (forged.sequence, draft.kind, draft.dataset, draft.parameter, "1", draft.text, draft.time)
        db.execute(f"INSERT INTO records VALUES ({', '.join('?' * 9)})", (*row, forged.previous, forged.hash))
        db.commit()
    with pytest.raises(LedgerError, match="record 4 is of another unit of privacy than its account"):
        Ledger(path, dataset=DATASET)


@given(
    rows=st.integers(1, 2**31 - 1),
    name=st.none() | st.text(min_size=1),
    neighbours=st.sampled_from(["add-remove", "replace"]),
    purpose=st.text(),
)
def test_l8_units_and_purposes_of_any_kind_are_read_back(
    rows: int, name: str | None, neighbours: str, purpose: str
) -> None:
    unit = Unit(rows, neighbours, name)  # type: ignore[arg-type]
    assert read_hidden(hidden_text(unit)) == unit
    assert hidden_text(unit).isascii()
    assert read_debit(debit_text(purpose, None, unit, "rho")) == (purpose, "", unit, "rho")
    assert read_debit(debit_text(purpose, "a" * 64, None, Fraction(2, 7))) == (purpose, "a" * 64, None, Fraction(2, 7))
    assert read_hidden(purpose) is None or hidden_text(read_hidden(purpose) or unit) == purpose


@pytest.mark.parametrize(
    "text",
    [
        "0 rows of anyone add-remove",
        "01 rows of anyone add-remove",
        "1 rows of anyone",
        "1 rows by who add-remove",
        '1 rows by "" add-remove',
        '1 rows by "a" "b" add-remove',
        '1 rows by "\\u0061" add-remove',
        "9999999999 rows of anyone replace",
    ],
)
def test_l8_what_is_no_unit_is_none(text: str) -> None:
    assert read_hidden(text) is None


def test_l8_the_unit_names_the_column_of_the_data() -> None:
    assert unit_of(data(UNITS["persons"]), None) == UNITS["persons"]
    assert unit_of(data(UNITS["persons"]), Unit(5)) == Unit(5, id="who")
    counts = from_array(DOMAIN, np.array([1, 2]))
    assert unit_of(counts, None) == Unit()
    assert unit_of(counts, UNITS["persons"]) == UNITS["persons"]  # counts that somebody has made of persons
    with pytest.raises(PrivacyError, match="a person by column 'home', but the data distinguishes persons by 'who'"):
        unit_of(data(UNITS["person"]), UNITS["household"])


def test_l8_what_was_prepared_without_a_column_gets_that_of_the_data(path: Path) -> None:
    made = prepare(Strategy.identity(DOMAIN), PureDP(1), unit=Unit(), rows_bound=2**33)
    ledger = Ledger(path, dataset=DATASET, cap=PureDP(8))
    release = measure_prepared(made, data(UNITS["person"]), ledger=ledger, purpose="test")
    assert release.unit == ledger.unit == UNITS["person"]
    release.verify(ledger)


def test_units_in_words() -> None:
    assert shown_unit(Unit(2, "replace")) == "any 2 rows replaced by others"
    assert shown_unit(Unit(2, "replace", "who")) == "one person by column 'who', replaced by another"
    assert shown_unit(Unit()) == "one row added or removed"
    assert len({shown_unit(unit) for unit in UNITS.values()}) == len(UNITS) - 1  # a person is a person
