"""What the page shows, and what a plan and a release do: the same as on the command line, and once."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from hdmm import PureDP, load_spec
from hdmm.apps.cli import run
from hdmm.apps.studio import work
from hdmm.measure.plan import load_plan
from hdmm.publication import publish as publication_folder
from hdmm.publication.budget import budget_of
from hdmm.publication.outlook import outlook
from hdmm.publication.unpublished import is_kept
from tests.apps.studio.conftest import COMMENTED, Page
from tests.support.spec_cases import SPEC, planned


def test_the_page_shows_what_the_specification_says(page: Page) -> None:
    found = page.look()
    assert found["title"] == "People"
    assert [each["name"] for each in found["attributes"]] == ["sex", "age", "smokes", "income"]
    assert found["attributes"][1] | {"values": None} == {
        "name": "age", "size": 20, "kind": "whole numbers", "ends": "0 to 19", "ordered": True, "values": None,
        "counted": True, "number": True, "levels": [],
    }  # fmt: skip
    assert found["attributes"][2]["values"] == ["0", "1", "other"]
    assert [(each["name"], each["rows"], each["count"]) for each in found["tables"]] == [
        ("P12", 40, 1),
        ("pairs", 2 * 20 + 2 * 3 + 2 * 3 + 20 * 3 + 20 * 3 + 3 * 3, 6),
        ("ages", 210, 1),
    ]
    assert found["budget"]["left"] == "ε = 4"
    assert found["budget"]["asked"] == "ε = 0.5"
    assert found["privacy"]["value"] == "0.5"


def test_nothing_of_the_data_is_opened_to_show_plan_and_edit(page: Page, in_threads: None) -> None:
    (page.path.parent / "people.parquet").unlink()
    page.look()
    page.post("plan")
    assert page.done("plan")["state"] == "done"
    assert page.get("outlook")["state"] == "ready"
    page.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})
    page.look()
    assert page.post("offer")["asked"] == "ε = 0.7"


def test_margins_are_those_of_hdmm_plan(releasable: Page) -> None:
    spec = load_spec(releasable.path)
    expected = outlook(spec, load_plan(spec.plan.folder)).tables
    found = releasable.get("outlook")
    assert found["state"] == "ready"
    assert [(t["table"], t["typical"], t["worst"], t["noise_on_every_cell"]) for t in found["tables"]] == [
        (t.table, t.typical, t.worst, t.noise_on_every_cell) for t in expected
    ]


@pytest.mark.parametrize(
    ("privacy", "cap"),
    [
        ('epsilon = "0.5"', 'epsilon = "4"'),
        ('rho = "0.5"', 'rho = "4"'),
        ('epsilon = "0.5"\ndelta = "1e-6"', 'rho = "4"'),
        ('epsilon = "0.5"', 'rho = "4"'),
    ],
)
def test_margins_at_a_step_of_the_slider_are_those_of_a_plan_there(
    served: Callable[..., Page], privacy: str, cap: str
) -> None:
    """The page multiplies by a factor; the same specification with that budget must say the same."""
    page = served(SPEC.replace('epsilon = "0.5"', privacy).replace('epsilon = "4"', cap))
    spec = load_spec(page.path)
    planned(spec).save(spec.plan.folder)
    before = page.get("outlook")["tables"]
    found = page.look()
    step = next(each for each in found["steps"] if each["number"] >= 0.75)
    assert page.get(f"step?value={step['value']}")["step"] == step
    assert ("δ = 10⁻⁹" in step["meaning"]) == privacy.startswith("rho")
    assert (found["budget"]["cap_in_epsilon"] is not None) == cap.startswith("rho")
    page.post("edit", {"type": "goals", "budget": step["value"], "margins": {}})
    after = page.get("outlook")["tables"]
    for old, new in zip(before, after, strict=True):
        assert new["worst"] == pytest.approx(step["factor"] * old["worst"], rel=2e-2)
        assert new["typical"] == pytest.approx(step["factor"] * old["typical"], rel=2e-2)
        assert new["noise_on_every_cell"] == pytest.approx(step["factor"] * old["noise_on_every_cell"])
    assert page.look()["budget"]["asked"] == step["asked"]
    assert page.look()["budget"]["after"] == step["after"]


def test_steps_are_payable_round_and_hold_the_file_s_own(served: Callable[..., Page]) -> None:
    page = served(SPEC.replace('"0.5"', '"1/3"'))
    steps = page.look()["steps"]
    assert "1/3" in [each["value"] for each in steps]
    assert steps[-1]["value"] == "4"
    numbers = [each["number"] for each in steps]
    assert numbers == sorted(numbers)
    factors = [each["factor"] for each in steps]
    assert factors == sorted(factors, reverse=True)


@pytest.mark.parametrize("value", ["", "0,5", "nan", "0", "-1", "1e999", "x" * 1000])
def test_what_is_no_budget_is_refused(page: Page, value: str) -> None:
    answer = page.client.get("/api/step", params={"value": value}, headers=page.headers())
    assert answer.status_code == 400
    assert "epsilon" in answer.json()["error"]


def test_a_plan_for_other_tables_says_what_it_still_can(releasable: Page) -> None:
    releasable.post("edit", {"type": "add", "table": {"name": "sexes", "marginals": [["sex"]]}})
    found = releasable.get("outlook")
    assert found["state"] == "stale"
    assert [each["table"] for each in found["tables"]] == ["P12", "pairs", "ages", "sexes"]
    releasable.look()
    releasable.post("edit", {"type": "goals", "budget": None, "margins": {"P12": 50}})
    assert releasable.get("outlook")["state"] == "stale"


def test_margins_make_another_goal_and_the_least_budget_is_told(releasable: Page, in_threads: None) -> None:
    releasable.post("edit", {"type": "goals", "budget": None, "margins": {"P12": 50}})
    found = releasable.get("outlook")
    assert found["state"] == "other-goal"
    assert found["least"].startswith("ε = ")
    releasable.look()
    releasable.post("release", releasable.order())
    assert "Plan again" in releasable.done("release")["message"]
    assert releasable.spent() == "ε = 0"


def test_a_plan_is_made_once_and_told(page: Page, in_threads: None) -> None:
    assert page.get("outlook") == {"state": "none"}
    assert page.post("plan")["plan"]["kind"] == "plan"
    run = page.done("plan")
    assert (run["state"], run["outcome"], run["interrupted"]) == ("done", "saved", False)
    assert page.get("outlook")["state"] == "ready"


def test_a_release_spends_what_was_confirmed_and_publishes(releasable: Page, in_threads: None) -> None:
    page = releasable
    assert page.look()["published"]["report"] is False
    offer = page.post("offer")
    assert (offer["asked"], offer["dataset"], offer["after"]) == ("ε = 0.5", "people-2026", "ε = 3.5")
    assert offer["ledger"] == str(page.path.parent / "budget.db")
    assert offer["source"] == "people.parquet"
    page.post("release", page.order())
    assert page.done("release") | {"seconds": 0} == {
        "kind": "release", "seconds": 0, "cancelled": False, "state": "done",
        "folder": str(page.path.parent / "out"), "tables": 8,
    }  # fmt: skip
    assert page.spent() == "ε = 0.5"
    found = page.look()
    assert found["published"]["report"]
    assert found["published"]["kept"] is found["published"]["lost"] is None
    assert "People" in page.client.get(found["published"]["link"]).text
    metadata = json.loads((page.path.parent / "out" / "metadata.json").read_text())
    assert metadata["specification"]["sha256"] == page.digest


def test_a_double_click_two_tabs_and_a_reload_spend_once(
    releasable: Page, served: Callable[..., Page], in_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, other = releasable, served()  # a second studio of the same file
    order, theirs = page.order(replace=True), other.order(replace=True)
    page.post("release", order)
    page.post("release", order)
    page.done("release")
    page.post("release", order)  # a page that was slow to hear of it
    assert page.spent() == "ε = 0.5"
    page.post("release", order | {"key": "2"})  # another tab that confirmed before
    assert "another record" in page.done("release")["message"]
    other.post("release", theirs)
    assert "another record" in other.done("release")["message"]
    assert page.spent() == "ε = 0.5"


def test_one_release_at_a_time(
    releasable: Page, served: Callable[..., Page], in_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    going, begun = threading.Event(), threading.Event()
    publish = work.publish_ready

    def slow(*given: object, **more: object) -> object:
        begun.set()
        assert going.wait(30)
        return publish(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "publish_ready", slow)
    monkeypatch.setattr("hdmm.apps.studio.spec_file._PAUSE", 0)
    page, other = releasable, served()
    order, theirs = page.order(), other.order()
    page.post("release", order)
    assert begun.wait(30)
    assert "running already" in page.post("release", order | {"key": "2"}, 409)["error"]
    assert "Another studio" in other.post("release", theirs, 409)["error"]
    assert "Another studio" in other.post("edit", {"type": "remove", "name": "ages"}, 409)["error"]
    going.set()
    assert page.done("release")["state"] == "done"
    assert page.spent() == "ε = 0.5"


@pytest.mark.parametrize("amount", ["", "0.4", "0,5", "1", "five", "0.5000001"])
def test_another_amount_than_the_one_confirmed_spends_nothing(releasable: Page, in_threads: None, amount: str) -> None:
    releasable.post("release", releasable.order(amount=amount))
    assert "not the one this release spends" in releasable.done("release")["message"]
    assert releasable.spent() == "ε = 0"


def test_a_file_that_changed_after_the_confirmation_spends_nothing(releasable: Page) -> None:
    order = releasable.order()
    releasable.path.write_text(releasable.path.read_text().replace('"0.5"', '"2"'))
    assert releasable.post("release", order, 409)["changed"]
    assert releasable.spent() == "ε = 0"


def test_a_budget_that_is_too_small_is_said_before_anything(served: Callable[..., Page]) -> None:
    page = served(SPEC.replace('"0.5"', '"5"'))
    assert "has ε = 4 left" in page.look()["budget"]["refused"]
    assert "has ε = 4 left" in page.post("offer", code=409)["error"]
    assert page.look()["budget"]["after"] is None


def test_an_earlier_publication_is_replaced_only_if_the_user_says_so(releasable: Page, in_threads: None) -> None:
    page = releasable
    page.post("release", page.order())
    page.done("release")
    page.look()
    offer = page.post("offer")
    assert offer["replaces"]
    page.post("release", page.order(key="2"))
    assert "earlier publication" in page.done("release")["message"]
    assert page.spent() == "ε = 0.5"
    page.post("release", page.order(key="3", replace=True))
    assert page.done("release")["state"] == "done"
    assert page.spent() == "ε = 1"


def test_a_name_near_another_needs_a_word_of_its_own(releasable: Page, in_threads: None) -> None:
    page = releasable
    page.post("release", page.order())
    page.done("release")
    page.path.write_text(page.path.read_text().replace("people-2026", "People-2026").replace('"out"', '"out2"'))
    page.look()
    assert "its name is like" in page.post("offer")["near"]
    page.post("release", page.order(key="2"))
    assert page.done("release")["state"] == "failed"
    assert page.spent() == "ε = 0"
    page.post("release", page.order(key="3", new_dataset=True))
    assert page.done("release")["state"] == "done"


def test_errors_of_a_release_hold_no_data(releasable: Page, in_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("sex=M, 17 rows")

    monkeypatch.setattr(work, "publish_ready", fail)
    releasable.post("release", releasable.order())
    said = releasable.done("release")["message"]
    assert "RuntimeError" in said
    assert "17" not in said


def test_a_release_that_was_not_written_is_published_without_spending(
    releasable: Page, in_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = releasable

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publication_folder, "answer_tables", full)
        page.post("release", page.order())
        assert "No space left" in page.done("release")["message"]
    assert page.spent() == "ε = 0.5"
    found = page.look()
    assert "paid for and kept" in found["published"]["kept"]
    assert "waits to be published" in page.post("offer", code=409)["error"]
    page.post("resume", {"replace": False})
    assert page.done("release")["state"] == "done"
    assert page.spent() == "ε = 0.5"
    assert page.look()["published"]["report"]


def test_rows_are_made_of_what_was_released(releasable: Page, in_threads: None) -> None:
    page = releasable
    page.post("rows", {})
    assert page.done("release")["state"] == "failed"  # nothing is there yet
    page.post("release", page.order())
    assert page.done("release")["state"] == "done"
    spent = page.spent()
    for _ in range(2):  # the second time in place of the first
        page.post("rows", {})
        told = page.done("release")
        assert (told["kind"], told["state"]) == ("rows", "done")
        assert told["rows"] == len((Path(told["folder"]) / "rows.csv").read_text().splitlines()) - 1
    assert page.spent() == spent


def test_a_debit_without_a_release_is_told(releasable: Page, in_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    page = releasable

    def lost(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("hdmm.measure.measure.exact_answers_of", lost)
        page.post("release", page.order())
        assert page.done("release")["state"] == "failed"
    spec = load_spec(page.path)
    assert budget_of(spec).spent == Fraction(1, 2)
    assert not is_kept(spec)
    said = page.look()["published"]["lost"]
    assert said.startswith("The ledger debited ε = 0.5 for these tables at ")
    assert "stays spent" in said
    page.post("release", page.order(key="2"))
    assert page.done("release")["state"] == "done"
    assert page.look()["published"]["lost"] is None


def test_the_data_is_asked_only_by_a_release(
    releasable: Page, in_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    preflight = work.preflight

    def noted(*given: object, **more: object) -> object:
        opened.append("release")
        return preflight(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "preflight", noted)
    monkeypatch.setattr("hdmm.data.table_like.from_table", lambda *_, **__: opened.append("elsewhere"))
    page = releasable
    page.look()
    page.get("outlook")
    page.post("offer")
    page.post("try", {"type": "add", "table": {"name": "x", "marginals": 1}})
    assert opened == []
    page.post("release", page.order())
    page.done("release")
    assert opened == ["release"]


def test_a_missing_extra_is_named(
    page: Page, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib

    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert run(["studio", str(page.path), "--no-browser"]) == 1
    assert "pip install 'hdmm[studio]'" in capsys.readouterr().err


def test_a_specification_that_cannot_be_read_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("[data]\n")
    assert run(["studio", str(tmp_path / "bad.toml"), "--no-browser"]) == 1
    assert "bad.toml, line 1" in capsys.readouterr().err
    assert run(["studio", str(tmp_path / "bad.toml"), "--only", "x"]) == 2
    assert run(["studio", str(tmp_path / "none.toml"), "--no-browser"]) == 1
    assert "create a file with hdmm init" in capsys.readouterr().err


def test_variables_are_given_on_the_command_line(served: Callable[..., Page]) -> None:
    from hdmm.apps.studio.server import application
    from hdmm.apps.studio.spec_file import StudioFile
    from tests.apps.studio.conftest import HOST, PORT, TOKEN, TestClient

    page = served(COMMENTED)
    text = COMMENTED.replace('"People"', '"People in ${MONTH}"').replace("people.csv", "people.parquet")
    text = text.replace('"P12"', '"P-${MONTH}"').replace('"Sex by age"', '"Sex by age in ${MONTH}"')
    page.path.write_text(text)
    app = application(StudioFile(page.path, {"MONTH": "May"}), token=TOKEN, port=PORT)
    given = Page(TestClient(app, base_url=f"http://{HOST}"), page.path)
    assert given.look()["title"] == "People in May"
    table = given.look()["tables"][0]
    assert (table["name"], table["asked"], table["heading"]) == ("P-${MONTH}", "P-May", "Sex by age in May")
    form = {"name": "P-${MONTH}", "title": "Sex", "marginals": [["sex"]]}
    assert given.post("try", {"type": "change", "name": "P-${MONTH}", "table": form})["rows"] == 2
    given.post("edit", {"type": "goals", "budget": "0.7", "margins": {}})
    assert "${MONTH}" in page.path.read_text()
    assert PureDP("0.7") == load_spec(page.path, variables={"MONTH": "x"}).privacy
