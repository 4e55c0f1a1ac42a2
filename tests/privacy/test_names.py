"""Accounts under names that could be taken for one another: opened only if the user says so (security L4)."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import BudgetError, Ledger, PureDP, load_spec
from hdmm.apps import cli as app
from hdmm.apps.cli import run
from hdmm.privacy.audit import Audit, audit_of
from hdmm.privacy.names import near_names
from hdmm.publication.publish import publish
from tests.support.spec_cases import SPEC, planned, prepared

Captured = pytest.CaptureFixture[str]
DATASET = "people-2026"
SAME = {
    "case": "People-2026",
    "full width": "ｐｅｏｐｌｅ－２０２６",
    "bold": "𝐩𝐞𝐨𝐩𝐥𝐞-2026",
    "Cyrillic": "реорlе-2026",
    "Cyrillic capitals": "РЕОРLЕ-2026",
    "Greek": "ρεορle-2026",
    "Armenian": "peօple-2026",
    "small capitals": "ᴘᴇᴏᴘʟᴇ-2026",
    "capital I for l": "peopIe-2026",
    "1 for l": "peop1e-2026",
    "O for 0": "people-2O26",
    "accent": "péople-2026",
    "digits of another script": "people-٢٠٢٦",
    "a letter that shows nothing": "people-2026\u3164",
    "a selector that shows nothing": "people-2026\ufe0f",
    "a space": "people 2026",
    "spaces": "people   2026",
    "no separator": "people2026",
    "underscore": "people_2026",
    "en dash": "people–2026",
    "trailing point": "people-2026.",
    "brackets": "people (2026)",
    "a letter left out": "peple-2026",
    "a letter too many": "peoplee-2026",
    "a wrong letter": "peopla-2026",
    "letters swapped": "poeple-2026",
}
OTHER = [
    "people-2025",
    "people-2062",
    "people-20260",
    "people-20 26",
    "people-2026-2",
    "people-2026-b",
    "people",
    "firms-2026",
    "persons-2026",
    "население-2026",
    "人口-2026",
]


def found_in(path: Path) -> Audit:
    found = audit_of(path)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SAME.values(), ids=SAME)
def test_a_name_near_another_opens_no_account_unless_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / "budget.db"
    Ledger(path, dataset=DATASET, cap=PureDP(4)).debit(PureDP(1), "tables")
    with pytest.raises(BudgetError, match=r"its name is close to 'people-2026'.*new_dataset=True"):
        Ledger(path, dataset=name, cap=PureDP(4))
    assert found_in(path).near(name) == (DATASET,)
    assert Ledger(path, dataset=DATASET).verify() == 3
    assert Ledger(path, dataset=name, cap=PureDP(4), new_dataset=True).spent == 0
    assert Ledger(path, dataset=name, cap=PureDP(4)).spent == 0  # once opened it is an account like others
    assert found_in(path).near(name) == ()
    assert Ledger(path, dataset=DATASET).spent == Fraction(1)


def test_the_message_tells_look_alikes_apart(tmp_path: Path) -> None:
    Ledger(tmp_path / "budget.db", dataset=DATASET, cap=PureDP(4))
    with pytest.raises(BudgetError, match=r"'\\u0440eople-2026'"):
        Ledger(tmp_path / "budget.db", dataset="рeople-2026", cap=PureDP(4))


def test_names_that_differ_on_purpose_open_accounts(tmp_path: Path) -> None:
    """Years, waves and parts are told apart by numbers and single letters: nobody is asked about them."""
    for name in (DATASET, *OTHER):
        assert Ledger(tmp_path / "budget.db", dataset=name, cap=PureDP(4)).spent == 0
    assert near_names("cohort-a", ["cohort-b", "cohort-2", "cohort"]) == ()
    assert near_names("wave-1", ["wave-2", "wave-10", "wave-01"]) == ("wave-01",)
    assert near_names("men", ["women", "man", "MEN"]) == ("MEN",)
    assert near_names("east", ["west", "eest"]) == ("eest",)
    assert near_names("modern families", ["modem families", "modern firms"]) == ("modem families",)
    assert near_names("НАСЕЛЕНИЕ", ["население"]) == ("население",)
    assert near_names("ΗΛΙΚΙΑ", ["ηλικια"]) == ("ηλικια",)


@given(st.text(max_size=40), st.text(max_size=40))
def test_nearness_goes_both_ways_and_holds_for_a_name_itself(one: str, two: str) -> None:
    assert near_names(one, [one]) == (one,)
    assert bool(near_names(one, [two])) == bool(near_names(two, [one]))


# The command line


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification whose dataset is written with a Cyrillic р, beside the account that was meant."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, SPEC.replace('"people-2026"', '"рeople-2026"'))
    spec = load_spec("people.toml")
    planned(spec).save(spec.plan.folder)
    Ledger("budget.db", dataset=DATASET, cap=PureDP(4)).debit(PureDP("3.9"), "before")
    return tmp_path


def test_yes_alone_opens_no_account_near_another(ready: Path, capsys: Captured) -> None:
    assert run(["release", "people.toml", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "its name is like 'people-2026', which has one in the same ledger" in said
    assert "--new-dataset" in said
    assert Ledger("budget.db", dataset=DATASET).verify() == 3
    assert run(["release", "people.toml", "--yes", "--new-dataset", "people-2026"]) == 2  # Latin letters
    said = capsys.readouterr().err
    assert r"names 'рeople-2026' ('\u0440eople-2026'). Give that name exactly" in said.replace("\n", " ")
    assert run(["release", "people.toml", "--resume", "--new-dataset", "рeople-2026"]) == 2
    assert Ledger("budget.db", dataset=DATASET).verify() == 3
    assert run(["release", "people.toml", "--yes", "--new-dataset", "рeople-2026"]) == 0
    assert Ledger("budget.db", dataset="рeople-2026").spent == Fraction(1, 2)


def test_publishing_from_python_asks_too(ready: Path) -> None:
    spec = load_spec("people.toml")
    with pytest.raises(BudgetError, match="its name is close to"):
        publish(spec, planned(spec))
    assert not spec.output.folder.exists()
    publish(spec, planned(spec), new_dataset=True)


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(ready: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(app.click, "confirm", lambda text: asked.append(text) or answer)
    assert run(["release", "people.toml", "--yes"]) == (0 if answer else 1)
    assert asked == ["Is 'рeople-2026' about other people?"]
    assert "its name is like 'people-2026'" in capsys.readouterr().out
    assert (ready / "out").exists() == answer
    assert Ledger("budget.db", dataset=DATASET).verify() == (5 if answer else 3)


def test_check_and_budget_warn(ready: Path, capsys: Captured) -> None:
    for command in ("check", "budget"):
        assert run([command, "people.toml"]) == 0
        assert "its name is like 'people-2026'" in capsys.readouterr().out
    assert run(["check", "people.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["near"] == [DATASET]
    Path("people.toml").write_text(Path("people.toml").read_text().replace("рeople-2026", "firms-2026"))
    assert run(["check", "people.toml"]) == 0
    assert "its name is like" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "two", "near"),
    [
        ("hospital-1", "hosbitol-1", True),  # two slips in eight letters
        ("schools-1", "sxhoolz-1", False),  # two in seven
        ("schools-1", "schoolz-1", True),
        ("abc-2026", "abd-2026", False),  # one in three, which no number makes longer
        ("abc-x", "abd-x", False),  # nor a letter that stands alone
        ("plabq-1", "plbaq-1", True),  # neighbours that changed places are one slip
        ("plxbq-1", "plbcq-1", False),  # a letter that moved and one that is new are two
    ],
)
def test_longer_names_may_have_more_slips(one: str, two: str, near: bool) -> None:
    assert bool(near_names(one, [two])) is bool(near_names(two, [one])) is near
