"""The studio in a real browser: a table is added, sliders move margins, a plan is made, a release is confirmed."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hdmm import load_spec
from hdmm.publication.budget import budget_of
from tests.apps.studio.serving import studio
from tests.support.spec_cases import SPEC, planned, prepared

pytestmark = pytest.mark.slow

SPEC_OF_BROWSER = SPEC.replace('epsilon = "0.5"', 'epsilon = "0.5"  # half a unit')


@contextmanager
def opened() -> Generator[Any]:
    """A headless browser; the test is skipped, with the reason, where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip(
            "no chromium on the PATH: install it (Debian: apt install chromium) to test the studio in a browser"
        )
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[dev]' has playwright")
    with playwright.sync_playwright() as browsers:
        found = browsers.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield found
        found.close()


def slide(view: Any, selector: str, value: int) -> None:
    """Move a slider as a mouse does."""
    view.eval_on_selector(
        selector,
        "(e, to) => { e.value = to; for (const n of ['input', 'change']) e.dispatchEvent(new Event(n)) }",
        value,
    )


def worst(view: Any, place: int = 0) -> float:
    """The margin of the worst row of a table, as it is shown."""
    text = view.locator("#table-list > li").nth(place).locator(".stat strong").nth(1).inner_text()
    return float(text.removeprefix("± ").replace(",", ""))


def test_from_a_specification_to_a_report(tmp_path: Path) -> None:
    path = prepared(tmp_path, SPEC_OF_BROWSER)
    with opened() as browser, studio(path) as served:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        view = context.new_page()
        view.set_default_timeout(60_000)
        asked: list[str] = []
        said: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda wrong: said.append(str(wrong)))
        view.goto(served.address)
        view.get_by_role("heading", name="Sex by age").wait_for()
        assert "token" not in view.url  # nobody reads it over a shoulder

        add_a_table_by_sql(view)
        assert [table.name for table in load_spec(path).tables][-1] == "adults"
        view.get_by_role("button", name="Plan", exact=True).click()
        view.locator(".margins").nth(3).wait_for()

        before = worst(view)
        slide(view, "#budget-slider", int(view.locator("#budget-slider").get_attribute("max") or 0))
        assert view.locator("#budget-now").inner_text() == "ε = 4"
        assert worst(view) == pytest.approx(before / 8, rel=0.02)
        assert view.get_by_role("button", name="Release…").is_disabled()  # until it is saved

        view.locator("#table-0-ask").check()
        slide(view, "#table-0-slider", 0)
        assert "Reached" in view.locator(".verdict").first.inner_text()
        slide(view, "#budget-slider", 0)
        assert "Not reached" in view.locator(".verdict").first.inner_text()
        view.locator("#use-least").click()
        assert "Reached" in view.locator(".verdict").first.inner_text()
        view.get_by_label("The budget follows the margins").check()
        reached = view.locator("#budget-now").inner_text()
        slide(view, "#table-0-slider", -20)
        assert "Reached" in view.locator(".verdict").first.inner_text()
        assert view.locator("#budget-now").inner_text() != reached
        view.get_by_role("button", name="Undo").click()
        view.locator("#budget-exact").fill("0.25")
        view.locator("#budget-exact").press("Tab")
        view.get_by_text("ε = 3.75").wait_for()
        view.get_by_role("button", name="Save to people.toml").click()
        view.locator("#goals").wait_for(state="hidden")
        assert 'epsilon = "0.25"  # half a unit' in path.read_text()

        release_by_typing(view, "0.25")
        assert budget_of(load_spec(path)).shown(budget_of(load_spec(path)).spent) == "ε = 0.25"
        with context.expect_page() as report:
            view.get_by_role("link", name="Open the report").click()
        report.value.get_by_role("heading", name="People", exact=True).wait_for()
        assert all(url.startswith((served.address.split("#")[0], "data:")) for url in asked)
        assert said == []  # neither errors nor a policy that was broken


def add_a_table_by_sql(view: Any) -> None:
    view.get_by_role("button", name="Add a table").click()
    view.get_by_label("Name").fill("adults")
    view.get_by_label("By SQL").check()
    sql = "SELECT sex, COUNT(*)\nFROM people\nWHERE agee >= 18\nGROUP BY sex"
    area = view.get_by_role("textbox", name="SQL")
    area.fill(sql)
    view.get_by_text(re.compile("Line 3, column 7: Column 'agee' is not in the domain")).wait_for()
    assert view.locator("#sql-marks mark").inner_text() == "agee"
    assert area.get_attribute("aria-invalid") == "true"
    area.fill(sql.replace("agee", "age"))
    view.get_by_text("2 rows by sex.").wait_for()
    assert view.locator("#sql-marks mark").count() == 0
    view.locator("#table-save").click()
    view.get_by_role("heading", name="adults").wait_for()


def release_by_typing(view: Any, amount: str) -> None:
    view.get_by_role("button", name="Release…").click()
    dialog = view.get_by_role("dialog", name=re.compile("Release"))
    assert "This spends ε = 0.25 of the budget of dataset people-2026" in dialog.inner_text()
    assert "budget.db" in dialog.inner_text()
    spend = dialog.get_by_role("button", name="Spend ε = 0.25 and release")
    assert spend.is_disabled()
    dialog.get_by_label("Type the amount to confirm").fill("0.2")
    assert spend.is_disabled()
    dialog.get_by_label("Type the amount to confirm").fill(amount)
    spend.dblclick()
    view.locator("#release-text", has_text="Published 9 tables in").wait_for()


def test_everyone_can_use_it(tmp_path: Path) -> None:
    """axe finds nothing in light and dark and on a phone, with dialogs too; nothing is too wide; keys suffice."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[dev]' has axe")
    text = SPEC_OF_BROWSER.replace('name = "P12"\n', 'name = "P12"\nmargin = 50\n')
    path = prepared(tmp_path, text)
    spec = load_spec(path)
    planned(spec).save(spec.plan.folder)
    with opened() as browser, studio(path) as served:
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light")):
            # The policy forbids scripts that are not the studio's, axe's too: it is lifted for axe alone.
            context = browser.new_context(
                viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
            )
            view = context.new_page()
            view.set_default_timeout(60_000)
            view.goto(served.address)
            view.locator(".margins").first.wait_for()

            def check(view: Any = view, width: int = width) -> None:
                assert view.evaluate("document.documentElement.scrollWidth") <= width
                found = axe.Axe().run(view)
                assert found.violations_count == 0, found.generate_report()

            slide(view, "#budget-slider", 3)
            check()
            view.screenshot(path=tmp_path / f"studio-{scheme}-{width}.png", full_page=True)
            view.get_by_role("button", name="Undo").click()
            view.get_by_role("button", name="Add a table").press("Enter")
            view.get_by_label("By SQL").check()
            view.get_by_role("textbox", name="SQL").fill("SELECT sx")
            view.locator("#sql-marks mark").wait_for()
            check()
            for kind in ("By attributes", "Over ranges"):
                view.get_by_label(kind).check()
                check()
            view.keyboard.press("Escape")
            assert view.evaluate("document.activeElement.id") == "add"
            view.get_by_role("button", name="Release…").press("Enter")
            view.locator("#release-dialog[open]").wait_for()
            assert view.evaluate("document.activeElement.id") == "offer-amount"
            check()
            context.close()


def test_two_tabs_an_editor_and_an_ended_server_lose_nothing(tmp_path: Path) -> None:
    path = prepared(tmp_path, SPEC_OF_BROWSER)
    with opened() as browser, studio(path) as served:
        context = browser.new_context()
        first, second = context.new_page(), context.new_page()
        for view in (first, second):
            view.set_default_timeout(60_000)
            view.goto(served.address)
            view.get_by_role("heading", name="Sex by age").wait_for()
        first.get_by_role("button", name="Add a table").click()
        first.get_by_label("Name").fill("mine")
        first.locator("#marginals-attributes").get_by_label("sex").check()
        first.get_by_text("2 rows by sex.").wait_for()
        slide(second, "#budget-slider", 30)
        path.write_text(path.read_text() + "# from an editor\n")
        second.get_by_text("The file was changed elsewhere").wait_for()
        first.locator("#table-save").click()
        first.get_by_text(re.compile("was changed elsewhere since this page read it")).wait_for()
        first.get_by_role("button", name="Load the file as it is now").last.click()
        first.get_by_text("2 rows by sex.").wait_for()
        first.locator("#table-save").click()
        first.get_by_role("heading", name="mine").wait_for()
        kept = second.locator("#budget-now").inner_text()
        second.get_by_role("button", name="Load the file as it is now").first.click()
        second.get_by_role("heading", name="mine").wait_for()
        assert second.locator("#budget-now").inner_text() == kept
        second.get_by_role("button", name="Save to people.toml").click()
        second.locator("#goals").wait_for(state="hidden")
        text = path.read_text()
        assert 'name = "mine"' in text
        assert text.endswith("# from an editor\n")
        assert kept.removeprefix("ε = ") in text
        first.reload()
        first.get_by_role("heading", name="mine").wait_for()  # the tab has its token still
        stranger = browser.new_context().new_page()
        stranger.goto(served.address.split("#")[0])
        stranger.get_by_text("Open the address that the terminal shows").wait_for()
        served.process.terminate()
        first.get_by_text("The studio does not answer").wait_for()


def test_large_sums_are_not_printed_over_each_other(tmp_path: Path) -> None:
    text = SPEC.replace(
        "income = { bins = [0, 10, 50, 100] }", "income = { bins = [0, 10, 50, 100], values = [0, 3e12, 9e15] }"
    )
    table = '[[table]]\nname = "assets"\nmarginals = [["sex"]]\nsum = "income"\n\n[privacy]'
    path = prepared(tmp_path, text.replace("[privacy]", table))
    plan = planned(load_spec(path))
    plan.save(load_spec(path).plan.folder)
    with opened() as browser, studio(path) as served:
        for width in (1280, 700, 390):
            view = browser.new_page(viewport={"width": width, "height": 900})
            view.goto(served.address)
            view.locator(".margins").nth(3).wait_for()
            for shown in view.locator(".margins").all():
                texts = [*shown.locator(".stat strong").all(), *shown.locator(".bars .number").all()]
                boxes = [text.bounding_box() for text in texts]
                assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i]), width
                wide = [text.evaluate("e => e.scrollWidth > e.clientWidth + 1") for text in texts]
                assert not any(wide), width
            view.close()


def test_attributes_amounts_and_measures_are_edited(tmp_path: Path) -> None:
    """A wage is declared and its mean asked for, on a wide page and on a phone."""
    path = prepared(tmp_path, SPEC)
    with opened() as browser, studio(path) as served:
        for width, name in ((1280, "wage"), (390, "cost")):
            view = browser.new_page(viewport={"width": width, "height": 900})
            view.set_default_timeout(60_000)
            view.goto(served.address)
            view.click("#add-column")
            view.click("text=An amount, which is added up")
            view.fill("#column-name", name)
            view.fill("#column-low", "10")
            view.fill("#column-high", "0")
            view.click("#column-save")
            beside(view, "high").get_by_text("Give a low that is below high").wait_for()
            view.fill("#column-low", "ten")
            view.click("#column-save")
            beside(view, "low").get_by_text("Write a number").wait_for()
            view.fill("#column-low", "0")
            view.fill("#column-high", "5_000")
            view.fill("#column-amount-step", "3")
            beside(view, "step").get_by_text("do not divide").wait_for()
            view.fill("#column-amount-step", "0.5")
            view.locator("#column-said", has_text="0 to 5,000").wait_for()
            view.screenshot(path=tmp_path / f"column-{width}.png")
            view.click("#column-save")
            view.locator("#attribute-list h3", has_text=name).wait_for()
            view.click("#add")
            view.click("text=Sums, means and percentages")
            view.fill("#table-name", f"mean-{name}")
            view.check(f"#measure-of >> text={name}")
            view.check("#measure-by >> text=sex")
            view.fill("#table-expected", "200")
            view.locator("#table-said", has_text="2 rows").wait_for()
            view.screenshot(path=tmp_path / f"measure-{width}.png")
            view.click("#table-save")
            view.locator("#table-list", has_text=f"mean of {name} by sex").wait_for()
            assert view.evaluate("document.documentElement.scrollWidth") <= width
            view.screenshot(path=tmp_path / f"page-{width}.png", full_page=True)
            view.close()
    asked = {table.name: table.expected for table in load_spec(path).tables}
    assert asked["mean-wage"] == asked["mean-cost"] == 200


def beside(view: Any, field: str) -> Any:
    """What is said beside a field of the form for attributes and amounts that is shown."""
    return view.locator(f'[data-field="{field}"]:visible .error')


DECLARED = """
[domain]
sex = ["M", "F"]
age = { first = 0, last = 19 }
district = { labels = ["01", "02", 3, "a, b"], levels = { side = ["North", "North", "South", "South, too"] } }
income = { bins = [0, 10, 50_000, 100_000], values = [5, 30, 75_000] }
tract = { levels = "tracts.csv", outside = "other" }
school = { first = 1, last = 4, levels = "schools.csv" }  # no form has a file beside other keys
"""


def test_every_kind_of_attribute_has_a_form(tmp_path: Path) -> None:
    """What a form shows and saves again is what was declared; each kind is declared, with its errors beside fields."""
    head, _, rest = SPEC.partition("[domain]")
    text = f"{head}{DECLARED}{rest[rest.index('[[table]]') :]}"
    (tmp_path / "tracts.csv").write_text("tract,county\nT1,Kent\nT2,Essex\n")
    (tmp_path / "schools.csv").write_text("school,kind\n1,a\n2,a\n3,b\n4,b\n")
    path = tmp_path / "people.toml"
    path.write_text(text)
    load_spec(path)
    with opened() as browser, studio(path) as served:
        for width in (1280, 390):
            view = browser.new_page(viewport={"width": width, "height": 900})
            view.set_default_timeout(60_000)
            view.goto(served.address)
            for name in ("sex", "age", "district", "income", "tract", "school"):
                view.click(f"[aria-label='Change {name}']")
                view.screenshot(path=tmp_path / f"{name}-{width}.png")
                assert view.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('dialog[open]'))")
                view.click("#column-save")
                view.locator("#column-dialog").wait_for(state="hidden")
            assert path.read_text() == text
            fields = view.locator("#attribute-list li").all()
            boxes = [each.bounding_box() for each in fields]
            assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
            view.close()
        view = browser.new_page()
        view.set_default_timeout(60_000)
        view.goto(served.address)
        view.click("[aria-label='Change age']")
        view.fill("#column-groups", "decade = 10\nstage = 6, 12")
        view.locator("#column-said", has_text="levels: decade, stage").wait_for()
        view.fill("#column-levels", "half = young, old")
        beside(view, "levels").get_by_text("2 group names for 20 values").wait_for()
        view.fill("#column-levels", "")
        view.fill("#column-groups", "decade = 0")
        beside(view, "groups").get_by_text("a whole number from 1").wait_for()
        view.fill("#column-groups", "decade = 10\nstage = 6, 12")
        view.fill("#column-last", "-1")
        beside(view, "last").get_by_text("a last that is not below").wait_for()
        view.fill("#column-last", "24")
        view.click("#column-save")
        view.locator("#attribute-list", has_text="decade, stage").wait_for()
        view.click("[aria-label='Change income']")
        view.fill("#column-values", "5, 30")
        beside(view, "values").get_by_text("Give one value per bin").wait_for()
        view.fill("#column-bins", "0, 50, 10")
        view.fill("#column-values", "")
        beside(view, "bins").get_by_text("Edges must increase").wait_for()
        view.fill("#column-bins", "0, 10, 50_000, 100_000")
        view.fill("#column-values", "5, 30, 75_000.5")
        view.locator("#column-said", has_text="3 values, bins").wait_for()
        view.click("#column-save")
        view.locator("#column-dialog").wait_for(state="hidden")
        view.click("#add-column")
        view.fill("#column-name", "job")
        view.fill("#column-labels", 'nurse\n"true"\ntrue\n"007"\n7')
        view.locator("#column-said", has_text="5 values").wait_for()
        view.select_option("#column-outside", "other")
        view.locator("#column-said", has_text="6 values").wait_for()
        view.click("#column-save")
        view.locator("#attribute-list h3", has_text="job").wait_for()
    domain = tomllib.loads(path.read_text())["domain"]
    assert domain["age"] == {"first": 0, "last": 24, "groups": {"decade": 10, "stage": [6, 12]}}
    assert domain["income"] == {"bins": [0, 10, 50_000, 100_000], "values": [5, 30, 75_000.5]}
    assert domain["job"] == {"labels": ["nurse", "true", True, "007", 7], "outside": "other"}
    assert "bins = [0, 10, 50_000, 100_000]" in path.read_text()  # as it was written


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    """Whether two boxes on a page share some of it."""
    beside = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
    return not (beside or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"])
