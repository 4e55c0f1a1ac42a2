"""Edits leave comments and other lines as they are, and are saved only over the file that the page has seen."""

from __future__ import annotations

import copy
import difflib
import os
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import load_spec
from hdmm.apps.studio.edits import (
    AddTable,
    ChangeTable,
    Edit,
    RemoveTable,
    SetColumn,
    SetGoals,
    TableForm,
    declarations,
    edited,
)
from hdmm.base.exceptions import FileError
from tests.apps.studio.conftest import COMMENTED, Page
from tests.support.effort import examples


def changes(before: str, edit: Edit) -> list[str]:
    """The lines that an edit takes away and adds."""
    after = edited(before.encode(), edit).decode()
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]


P12 = TableForm(name="P12", title="Sex by age", sql="SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age")


def test_a_rename_changes_one_line_and_keeps_its_comment() -> None:
    form = TableForm(name="P13", title=P12.title, sql=P12.sql)
    assert changes(COMMENTED, ChangeTable("P12", form)) == [
        '- name = "P12"  # as in the census',
        '+ name = "P13"  # as in the census',
    ]


def test_what_is_saved_as_it_was_changes_nothing() -> None:
    assert changes(COMMENTED, ChangeTable("P12", P12)) == []
    assert changes(COMMENTED, SetGoals("0.5", {"P12": None})) == []


def test_the_budget_is_written_exactly() -> None:
    assert changes(COMMENTED, SetGoals("0.7", {})) == [
        '- epsilon = "0.5"  # half a unit',
        '+ epsilon = "0.7"  # half a unit',
    ]


def test_a_new_table_stands_after_the_others_and_before_the_comment_on_what_follows() -> None:
    sql = "SELECT sex, COUNT(*)\nFROM people\nWHERE sex <> '\"\"\"' AND sex <> '\\'\nGROUP BY sex"
    after = edited(COMMENTED.encode(), AddTable(TableForm(name="new", sql=sql, weight=2.0))).decode()
    assert tomllib.loads(after)["table"][-1] == {"name": "new", "sql": sql + "\n", "weight": 2}
    begin, end = after.index('name = "new"'), after.index("# Decided by the board on 12 March.\n[privacy]")
    assert after.index('name = "ages"') < begin < end
    lines = difflib.ndiff(COMMENTED.splitlines(), after.splitlines())
    assert [line for line in lines if line[0] == "-"] == []


@pytest.mark.parametrize("name", ["P12", "pairs", "ages"])
def test_a_table_that_is_removed_takes_nothing_else_along(name: str) -> None:
    after = edited(COMMENTED.encode(), RemoveTable(name)).decode()
    names = [table["name"] for table in tomllib.loads(COMMENTED)["table"]]
    assert [table["name"] for table in tomllib.loads(after)["table"]] == [each for each in names if each != name]
    for comment in (
        "# For the office of statistics.",
        "# Decided by the board on 12 March.\n[privacy]",
        "# half a unit",
    ):
        assert comment in after
    assert edited(after.encode(), SetGoals("0.7", {})).decode() == after.replace('"0.5"', '"0.7"')


WORDS = st.sampled_from(["a", "b", "c", "d"])
FORMS = st.builds(
    TableForm,
    name=WORDS,
    title=st.none() | st.sampled_from(["Title", 'with "quotes" and # no comment']),
    sql=st.none() | st.sampled_from(["SELECT 1", "SELECT 1\nFROM t", 'SELECT """\\x"""\n-- #']),
    marginals=st.none() | st.just([["a"], ["b", "c"]]) | st.integers(1, 3),
    ranges=st.none() | st.just(["age"]),
    weight=st.none() | st.sampled_from([0.5, 2.0]),
    margin=st.none() | st.sampled_from([50.0, 0.25]),
)
EDITS = st.lists(
    st.builds(AddTable, FORMS)
    | st.builds(ChangeTable, WORDS, FORMS)
    | st.builds(RemoveTable, WORDS)
    | st.builds(
        SetGoals, st.none() | st.just("0.7"), st.dictionaries(WORDS, st.none() | st.sampled_from([3.0]), max_size=2)
    ),
    max_size=6,
)
LAYOUTS = [
    """\
# first
title = "T"  # of the report

[data]  # inside
dataset = "x"
# last of data

# before a
[[table]]
# in a
name = "a"
marginals = 1  # every one
expected = 5  # stays
# last of a

# before b

[[table]]
name = "b"
margin = 9  # agreed
# last of b

# before privacy
[privacy]
epsilon = "1"  # decided
[plan]
seed = 3
# the end
""",
    '[privacy]\nepsilon = 1\n[[table]]\nname = "a"\n[[table]]\nname = "b"\n[[table]]\nname = "c"',
    '# only tables\n[[table]]\nname = "a"\n\n\n[[table]]\n  name = "b"\n  # last\n[privacy]\nrho = "1"\n\n# end',
]


def expected(content: dict[str, Any], edit: Edit) -> dict[str, Any] | None:
    """What an edit makes of a file, by its meaning; None if it is refused."""
    tables = content["table"]
    places = {table["name"]: i for i, table in reversed(list(enumerate(tables)))}
    goals = edit.margins if isinstance(edit, SetGoals) else {}
    named = [edit.name] if isinstance(edit, ChangeTable | RemoveTable) else [*goals]
    if not places.keys() >= set(named) or (isinstance(edit, RemoveTable) and len(tables) == 1):
        return None
    match edit:
        case AddTable(table=form):
            tables.append(_filled({}, form))
        case ChangeTable(name=name, table=form):
            tables[places[name]] = _filled(tables[places[name]], form)
        case RemoveTable(name=name):
            del tables[places[name]]
        case SetGoals(budget=budget, margins=margins):
            if budget is not None:
                content["privacy"]["rho" if "rho" in content["privacy"] else "epsilon"] = budget
            for name, margin in margins.items():
                tables[places[name]].pop("margin", None)
                tables[places[name]] |= {} if margin is None else {"margin": margin}
    return content


def _filled(there: dict[str, Any], form: TableForm) -> dict[str, Any]:
    keys = {key: getattr(form, key) for key in form.__struct_fields__}
    text = keys["sql"]
    if text is not None and "\n" in text:
        keys["sql"] = text + "\n" if there.get("sql", "").strip() != text else there["sql"]
    kept = {key: value for key, value in there.items() if key not in keys}
    return kept | {key: value for key, value in keys.items() if value is not None}


@given(layout=st.sampled_from(LAYOUTS), edits=EDITS)
@examples(60)
def test_any_edits_of_any_layout_mean_what_they_say_and_keep_comments(layout: str, edits: list[Edit]) -> None:
    text, content = layout, tomllib.loads(layout)
    for edit in edits:
        wanted = expected(copy.deepcopy(content), edit)
        if wanted is None:
            with pytest.raises(FileError):
                edited(text.encode(), edit)
            continue
        text, content = edited(text.encode(), edit).decode(), wanted
        assert tomllib.loads(text) == content
    # Of tables or keys that may be gone, or that a new key may have come after.
    inside = {"# in a", "# every one", "# stays", "# agreed", "# last of a", "# last of b", "# last"}
    for comment in set(re.findall("# [a-z ]+", layout)) - inside:
        assert comment in text
    assert ("\n\n# before privacy\n[privacy]\n" in text) == ("\n\n# before privacy\n[privacy]\n" in layout)


def test_comments_after_a_table_that_is_removed_stay() -> None:
    after = edited(LAYOUTS[0].encode(), RemoveTable("b")).decode()
    assert "# before b\n# last of b\n\n# before privacy\n[privacy]" in after
    assert "# last of data\n\n# before a\n# last of a\n" in edited(LAYOUTS[0].encode(), RemoveTable("a")).decode()


def test_a_new_margin_stands_before_the_comment_on_what_follows() -> None:
    assert changes(COMMENTED, SetGoals(None, {"ages": 80.0})) == ["+ margin = 80"]
    after = edited(COMMENTED.encode(), SetGoals(None, {"ages": 80.0})).decode()
    assert 'ranges = ["age"]\nmargin = 80\n\n# Decided by the board on 12 March.\n[privacy]' in after


def test_attributes_levels_and_amounts_are_edited_in_their_lines() -> None:
    decades = "{ first = 0, last = 19, groups = { decade = 10 } }"
    after = edited(COMMENTED.encode(), SetColumn("domain", "age", "age", decades))
    assert tomllib.loads(after.decode())["domain"]["age"]["groups"] == {"decade": 10}
    lines = list(difflib.ndiff(COMMENTED.splitlines(), after.decode().splitlines()))
    assert all("age" in line for line in lines if line[0] in "-+")
    wage = SetColumn("amounts", None, "wage", "{ low = 0,\n high = 5_000 }")
    paid = edited(after, wage)
    written = {"part": "amounts", "name": "wage", "declaration": "{ low = 0, high = 5_000 }"}
    assert {**written, "keys": {"low": 0, "high": 5_000}} in declarations(paid)
    assert tomllib.loads(paid.decode())["amounts"] == {"wage": {"low": 0, "high": 5000}}
    renamed = edited(paid, SetColumn("amounts", "wage", "pay", "{ low = 0, high = 9 }"))
    assert tomllib.loads(renamed.decode())["amounts"] == {"pay": {"low": 0, "high": 9}}
    gone = edited(renamed, SetColumn("amounts", "pay", "pay", None))
    assert "amounts" not in tomllib.loads(gone.decode())
    assert [line for line in COMMENTED.splitlines() if "#" in line] == [
        line for line in gone.decode().splitlines() if "#" in line
    ]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (SetColumn("domain", "age", "age", "first = 0"), "not a declaration"),
        (SetColumn("domain", "age", "age", "1\n[data]\nsource = 'x'"), "not a declaration"),
        (SetColumn("domain", "age", "sex", "3"), "already"),
        (SetColumn("domain", "nobody", "nobody", "3"), "no 'nobody'"),
    ],
)
def test_what_is_no_column_is_refused(edit: Edit, message: str) -> None:
    with pytest.raises(FileError, match=message):
        edited(COMMENTED.encode(), edit)


def test_the_keys_of_a_form_stand_in_their_line_as_they_were_written() -> None:
    """What does not change is written as before; a list of labels is short, and what a form leaves out goes."""
    text = COMMENTED.replace("age = {", "pay = { bins = [0, 10_000, 20_000], values = [5_000, 15e3] }\nage = {")
    bins = {"bins": [0, 10_000, 20_000], "values": [5_000, 16_000], "outside": "other"}
    after = edited(text.encode(), SetColumn("domain", "pay", "pay", bins)).decode()
    assert 'pay = {bins = [0, 10_000, 20_000], values = [5000, 16000], outside = "other"}' in after
    assert tomllib.loads(after)["domain"]["pay"] == bins
    grouped = {"first": 0, "last": 19, "groups": {"decade": 10, "stage": [5, 15]}, "levels": {"half": ["a", "b"] * 10}}
    assert (
        tomllib.loads(edited(text.encode(), SetColumn("domain", "age", "age", grouped)).decode())["domain"]["age"]
        == grouped
    )
    labels = edited(text.encode(), SetColumn("domain", "pay", "job", ["nurse", "01", 1, True]))
    assert tomllib.loads(labels.decode())["domain"]["job"] == ["nurse", "01", 1, True]
    same = edited(
        text.encode(), SetColumn("domain", "pay", "pay", {"bins": [0, 10_000, 20_000], "values": [5_000, 15e3]})
    )
    assert same.decode() == text


@pytest.mark.parametrize(
    ("part", "called", "keys", "field"),
    [
        ("amounts", "wage", {"low": 10, "high": 0}, "high"),
        ("amounts", "wage", {"low": 0, "high": 10, "step": 3}, "step"),
        ("amounts", "wage", {"low": "x", "high": 10}, "low"),
        ("amounts", "age", {"low": 0, "high": 10}, "called"),
        ("domain", "age", {"first": 0, "last": -1, "groups": {"decade": 10}}, "last"),
        ("domain", "age", {"first": 0, "last": 19, "groups": {"decade": [5, 3]}}, "groups"),
        ("domain", "age", {"first": 0, "last": 19, "groups": {"decade": 0}}, "groups"),
        ("domain", "age", {"first": 0, "last": 19, "levels": {"half": ["a", "b"]}, "outside": "other"}, "levels"),
        ("domain", "age", {"levels": "nowhere.csv"}, "levels"),
        ("domain", "age", ["a", "a"], "labels"),
        ("domain", "age", {"labels": ["a", "other"], "outside": "other"}, "outside"),
        ("domain", "job", {"bins": [0, 10, 50], "values": [1]}, "values"),
        ("domain", "age", ["a", "b"], None),  # tables have ranges of it
    ],
)
def test_what_is_wrong_is_said_beside_its_field(page: Page, part: str, called: str, keys: object, field: str) -> None:
    there = called if part == "domain" and called != "job" else None
    edit = {"type": "column", "part": part, "name": there, "called": called, "declaration": keys}
    said = page.post("try", edit)
    assert (said["ok"], said["field"]) == (False, field)


def test_a_form_that_makes_sense_says_what_it_declares(page: Page) -> None:
    keys = {"first": 0, "last": 19, "groups": {"decade": 10}}
    edit = {"type": "column", "part": "domain", "name": "age", "called": "age", "declaration": keys}
    said = page.post("try", edit)["column"]
    assert (said["size"], said["kind"], said["levels"]) == (20, "whole numbers", ["decade"])


def test_a_column_that_makes_no_sense_is_not_saved(page: Page) -> None:
    before = page.path.read_bytes()
    for part, name, declaration in (
        ("amounts", "wage", "{ low = 5, high = 0 }"),
        ("amounts", "wage", "{ low = 0, high = 10, step = 3 }"),
        ("amounts", "age", "{ low = 0, high = 10 }"),
        ("domain", "job", "[]"),
    ):
        edit = {"type": "column", "part": part, "name": None, "called": name, "declaration": declaration}
        assert page.post("edit", edit, 400)["error"].endswith((".", "?"))
    drop = {"type": "column", "part": "domain", "name": "age", "called": "age", "declaration": None}
    assert "age" in page.post("edit", drop, 400)["error"]  # tables are by it
    assert page.path.read_bytes() == before


def test_measures_are_edited(page: Page) -> None:
    wage = {"type": "column", "part": "amounts", "name": None, "called": "wage", "declaration": "{ low = 0, high = 9 }"}
    page.post("edit", wage)
    page.look()
    table = {"name": "wages", "marginals": [["sex"]], "mean": ["wage"], "expected": 300, "margin": 2}
    state = page.post("edit", {"type": "add", "table": table})
    shown = state["tables"][-1]
    assert (shown["kind"], shown["mean"], shown["exact"], shown["expected"]) == ("measures", ["wage"], True, 300)
    del table["margin"], table["mean"]
    page.look()
    state = page.post("edit", {"type": "change", "name": "wages", "table": {**table, "quantiles": ["age"]}})
    assert tomllib.loads(page.path.read_text())["table"][-1] == {**table, "quantiles": ["age"]}


def test_the_last_table_stays(page: Page) -> None:
    page.post("edit", {"type": "remove", "name": "pairs"})
    page.look()
    page.post("edit", {"type": "remove", "name": "ages"})
    page.look()
    assert "at least one table" in page.post("edit", {"type": "remove", "name": "P12"}, 400)["error"]


def test_lines_end_as_they_did_and_a_mark_at_the_beginning_stays() -> None:
    before = b"\xef\xbb\xbf" + COMMENTED.replace("\n", "\r\n").encode()
    after = edited(before, SetGoals("0.7", {}))
    assert after == before.replace(b'"0.5"', b'"0.7"')


def test_margins_take_the_place_of_the_objective(served: Callable[..., Page]) -> None:
    page = served(COMMENTED.replace("[plan]\n", '[plan]\nobjective = "tables"\n'))
    said = page.post("edit", {"type": "goals", "budget": None, "margins": {"P12": 50, "ages": 80.5}})
    assert "objective was left out" in said["told"]
    spec = load_spec(page.path)
    assert {t.group: t.margin for t in spec.tables} == {"P12": 50, "pairs": None, "ages": 80.5}
    page.look()
    page.post("edit", {"type": "goals", "budget": None, "margins": {"P12": None, "ages": None}})
    assert not any(t.margin for t in load_spec(page.path).tables)


def test_an_edit_that_makes_no_sense_is_not_saved(page: Page) -> None:
    before = page.path.read_bytes()
    for edit in (
        {"type": "add", "table": {"name": "P12", "marginals": 1}},
        {"type": "add", "table": {"name": "a b", "marginals": 1}},
        {"type": "add", "table": {"name": "x", "marginals": [["nobody"]]}},
        {"type": "add", "table": {"name": "x", "sql": "DROP TABLE people"}},
        {"type": "add", "table": {"name": "x"}},
        {"type": "change", "name": "gone", "table": {"name": "x", "marginals": 1}},
        {"type": "goals", "budget": "0,5", "margins": {}},
        {"type": "goals", "budget": "-1", "margins": {}},
        {"type": "goals", "budget": None, "margins": {"P12": -3}},
    ):
        said = page.post("edit", edit, 400)["error"]
        assert said.endswith((".", "?")), said
        assert "people.toml" not in said  # whose lines are not those that were tried
    assert page.path.read_bytes() == before


def test_errors_of_sql_say_where(page: Page) -> None:
    sql = "SELECT sex, COUNT(*)\nFROM people\nWHERE agee < 5\nGROUP BY sex"
    said = page.post("try", {"type": "add", "table": {"name": "x", "sql": sql}})
    assert (said["ok"], said["line"], said["column"], said["length"]) == (False, 3, 7, 4)
    assert said["error"].startswith("Column 'agee' is not in the domain")
    assert "\n" not in said["error"]
    fine = page.post("try", {"type": "add", "table": {"name": "x", "sql": sql.replace("agee", "age")}})
    assert fine == {"ok": True, "rows": 2, "count": 1, "columns": ["sex"]}
    other = page.post("try", {"type": "add", "table": {"name": "P12", "sql": sql.replace("agee", "age")}})
    assert not other["ok"]
    assert "Rename one" in other["error"]


def test_a_file_that_changed_is_not_overwritten(page: Page) -> None:
    theirs = page.path.read_text() + "# written in an editor\n"
    page.path.write_text(theirs)
    said = page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}}, 409)
    assert said["changed"]
    assert "was changed elsewhere" in said["error"]
    assert page.path.read_text() == theirs
    page.look()
    sent = page.client.get("/api/state", headers=page.headers())
    assert sent.headers["etag"] == f'"{load_spec(page.path).digest}"'
    page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})
    assert page.path.read_text() == theirs.replace('"0.5"', '"0.7"')


def test_of_two_tabs_the_second_is_told(served: Callable[..., Page]) -> None:
    """Also of two studios of one file: each sees the file, not what the other has in memory."""
    first, second = served(), served()
    first.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})
    assert second.post("edit", {"type": "remove", "name": "ages"}, 409)["changed"]
    assert second.post("plan", code=409)["changed"]
    assert second.post("offer", code=409)["changed"]
    second.look()
    second.post("edit", {"type": "remove", "name": "ages"})
    assert 'epsilon = "0.7"  # half a unit' in first.path.read_text()


def test_while_another_studio_holds_the_file_nothing_is_saved(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    from hdmm.apps.studio import spec_file as file

    monkeypatch.setattr(file, "_PAUSE", 0)
    with file.StudioFile(page.path, {}).locked(page.digest):
        said = page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}}, 409)
    assert "Another studio" in said["error"]
    page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})


def test_a_save_that_fails_leaves_the_file(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = page.path.read_bytes()
    monkeypatch.setattr(os, "replace", full)
    said = page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}}, 400)
    assert "No space left" in said["error"]
    assert page.path.read_bytes() == before
    assert [each.name for each in page.path.parent.iterdir() if each.name.startswith(".hdmm")] == []


def test_a_link_stays_a_link_and_permissions_stay(page: Page, served: Callable[..., Page]) -> None:
    real = page.path.rename(page.path.with_name("real.toml"))
    real.chmod(0o640)
    page.path.symlink_to(real)
    page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})
    assert page.path.is_symlink()
    assert '"0.7"' in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_read_is_shown_as_its_error(page: Page) -> None:
    page.path.write_text("[data\n")
    found = page.look()
    assert found["line"] == 1
    assert "people.toml, line 1: This is not TOML" in found["error"]
    assert page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}}, 400)
    page.path.unlink()
    assert "No such file" in page.client.get("/api/state", headers=page.headers()).json()["error"]


def test_tables_that_are_scattered_are_shown_and_left_to_an_editor(page: Page) -> None:
    text = page.path.read_text()
    tables, rest = text.split("# Decided by the board")
    first, last = tables.rsplit("[[table]]", 1)
    page.path.write_text(f"{first}# Decided by the board{rest}\n[[table]]{last}")
    assert [table["name"] for table in page.look()["tables"]] == ["P12", "pairs", "ages"]
    before = page.path.read_bytes()
    assert "Use an editor" in page.post("edit", {"type": "remove", "name": "ages"}, 400)["error"]
    assert page.path.read_bytes() == before
