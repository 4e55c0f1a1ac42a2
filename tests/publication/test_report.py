"""The report: all is escaped, nothing is fetched, numbers are exact; it reads well on screen, aloud and on paper."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import yaml
from examples.report import sample
from hypothesis import given
from hypothesis import strategies as st

from hdmm import ZCDP, ApproxDP, Domain, Integers, Labels, Prefix, PureDP, Receipt, Unit, Workload
from hdmm.answers.table import Forecast, Table
from hdmm.base.exceptions import ReportError
from hdmm.base.numbers import number, up
from hdmm.base.templates import templates
from hdmm.baselines import identity, laplace
from hdmm.describe.table_column import named_columns
from hdmm.matrix import Dense, ExtendedDiagonal, Eye, PIdentity, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.publication.registry import record_of
from hdmm.publication.report import Report, render
from hdmm.publication.report.page import MOST_SHOWN_ROWS
from hdmm.publication.report.pictures import MOST_BASES, MOST_BLOCKS, base_picture, measured
from hdmm.publication.report.plots import MOST_DOTS, MOST_POINTS, Scale, level_paths
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from tests.house.test_layering import imports, modules
from tests.support.labels import labelled

EVIL = (
    "<script>alert('1')</script>{{ 7*7 }}{% raw %}{#javascript:alert(1)&amp;\"'><img src=x onerror=\"alert(1)\">]]>-->"
    "<!--\x00\x1b\ud800\u202e"
)
STYLE = Path(__file__).parents[2] / "src/hdmm/publication/report/templates/style.css"
SCRIPT = STYLE.with_name("script.js")
HASH = "0123456789abcdef" * 4
RECEIPT = Receipt(7, "people", "epsilon", Fraction(1, 2), Fraction(7, 2), HASH, "2026-01-01T00:00:00+00:00")


def table(
    labels: list[tuple[str, ...]],
    estimate: object = None,
    stddev: object = 1.0,
    columns: tuple[str, ...] | None = None,
    title: str = "A table",
) -> Table:
    value = np.arange(len(labels), dtype=float) if estimate is None else np.asarray(estimate, dtype=float)
    spread = np.broadcast_to(np.asarray(stddev, dtype=float), value.shape)
    names = tuple(f"c{k}" for k in range(len(labels[0]) if labels else 1)) if columns is None else columns
    lower, upper = value - 2 * spread, value + 2 * spread
    expected = Forecast("a-table", len(labels), 1.5, 3.25, 7.5, 1.125)
    heads = labelled(names, labels)
    return Table("a-table", title, heads, lambda: labels, value, spread, lower, upper, 0.95, forecast=expected)


def ages(n: int) -> list[tuple[str, ...]]:
    return [(str(k),) for k in range(n)]


def report(*tables: Table, **changes: object) -> Report:
    strategy = Strategy.identity(Domain({"sex": ["M", "F"], "age": 3}))
    made = Report(
        "A report", "people", "2026-01-01", PureDP("0.5"), Unit(), (RECEIPT,), 0.95, tables, strategy, "OPT_M"
    )
    return replace(made, **changes)


def parsed(html: str) -> ET.Element:
    """The page as XML, which is stricter than any browser."""
    return ET.fromstring(html)


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def figure(table: Table) -> ET.Element:
    """The plot of a table with its caption, as it stands on a page."""
    found = parsed(render(report(table))).find(".//section[@class='table']/figure")
    assert found is not None
    return found


def everything() -> Report:
    """A report with every kind of plot, and a strategy with several blocks and a base."""
    grid = list(product("ABCDE", "uvwxyz"))
    totals = [*((a, "(all)") for a in "ABCDE"), *(("(all)", b) for b in "uvwxyz"), ("(all)", "(all)")]
    domain = Domain({"sex": ["M", "F"], "age": 8})
    base = PIdentity(np.arange(16.0).reshape(2, 8))
    blocks = (Block(0.5, ((0, Eye(2)), (1, base))), Block(0.25, ((0, Eye(2)),)), Block(0.25, ()))
    return report(
        table([()], [12_345.6], 14.3, title="Total"),
        table([("M",), ("F",)], [-3.2, 1234.5], 1.414, title="Dots"),
        table(ages(100), title="Line"),
        table(list(product("ABCD", ages(20)[0], map(str, range(20)))), title="Points"),
        replace(
            table(grid, title="Heat map"), totals=table(totals), shares=table([*grid, *totals[5:]]), note="A note."
        ),
        table([], columns=("age",), title="Empty"),
        strategy=Strategy(domain, blocks),
    )


# Escaping, and nothing from elsewhere (security O1)


def hostile() -> Report:
    """A report in which every text that a user may choose is hostile, in every kind of plot."""
    plain = EVIL.replace("\ud800", "")  # which no domain may hold
    domain = Domain({plain: 4, "x": Labels([plain, "b"]), "y": Labels([plain, "c"], outside="other")})
    evil = [
        table([(EVIL, EVIL)], columns=(EVIL, EVIL), title=EVIL),
        table([(EVIL,), *ages(99)], columns=(EVIL,), title=EVIL),
        table([(f"{k} {EVIL}",) for k in range(99)], columns=(EVIL,), title=EVIL),
        table([(EVIL, *a) for a in ages(70)], columns=(EVIL, "b"), title=EVIL),
        table(list(product([EVIL, "b", "c", "d"], ["x", EVIL, "y", "z", "w"])), columns=(EVIL, EVIL), title=EVIL),
        table([], columns=(EVIL,), title=EVIL),
    ]
    return report(
        *(replace(each, name=EVIL, definition=EVIL) for each in evil),
        title=EVIL,
        dataset=EVIL,
        created=EVIL,
        operator=EVIL,
        strategy=Strategy(domain, (Block(1.0, ((0, PIdentity(np.ones((1, 4)))), (1, Eye(2)))),)),
        receipts=(replace(RECEIPT, dataset=EVIL, hash=EVIL, timestamp=EVIL),),
    )


def test_everything_is_escaped() -> None:
    html = render(hostile())
    html.encode("utf-8")
    root = parsed(html)
    names = {element.tag for element in root.iter()}
    assert not names & {"img", "iframe", "object", "embed", "form", "base"}
    assert ["".join(each.itertext()) for each in root.iter("script")] == [SCRIPT.read_text()]
    assert not any(key.lower().startswith("on") for element in root.iter() for key in element.attrib)
    assert all(element.get("href", "#").startswith(("#", "data:,")) for element in root.iter())
    assert html.count("<script") == 1
    assert "\x00" not in html


def test_hostile_text_is_shown_as_it_is() -> None:
    """Nothing of it is markup, a template or an end of something, and all of it can be read."""
    root = parsed(render(hostile()))
    shown = EVIL[: EVIL.index("\x00")]
    places = [".//h1", ".//title", ".//header//bdi", ".//time", ".//footer//bdi", ".//caption", ".//h3/bdi"]
    places += [".//thead/tr/th", ".//tbody/tr/th", ".//code", ".//svg/title", ".//svg/desc", ".//dd", ".//p"]
    for place in places:
        found = ["".join(each.itertext()) for each in root.iterfind(place)]
        assert any(shown in each for each in found), place
    links = ["".join(link.itertext()) for link in root.iter("a")]
    assert links[2:] == [re.sub("[\x00\x1b\ud800]", "\ufffd", EVIL)] * 12


def test_nothing_turns_escaping_off() -> None:
    """O1: every value is escaped where it is shown, and no text of a report becomes a template."""
    folder = STYLE.parent
    files = {"page.html", "table.html", "figures.html", "rows.html", "style.css", "script.js"}
    assert {path.name for path in folder.iterdir()} == files
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function|fetch|[<&]", SCRIPT.read_text()
    )
    escaped = templates("hdmm.publication.report").autoescape
    assert callable(escaped)
    for path in folder.iterdir():
        assert escaped(path.name)
        assert not re.search(r"\|\s*safe|autoescape|Markup", path.read_text()), path.name
        assert not re.search(r"=\{\{", path.read_text()), path.name  # attributes are in quotes
    for path in folder.parent.glob("*.py"):
        assert not re.search(r"Markup|from_string|Template\(", path.read_text()), path.name


def test_every_text_of_a_report_is_shown() -> None:
    page = words(parsed(render(everything())))
    for expected in ("A report", "people", "1 January 2026", "OPT_M", HASH, "ε = 0.5", "3.5 is left"):
        assert expected in page


@given(st.text())
def test_text_survives_the_page(given: str) -> None:
    root = parsed(render(report(title=given)))
    allowed = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", given)
    assert (root.findtext(".//h1") or "") == allowed.replace("\r\n", "\n").replace("\r", "\n")


def test_nothing_is_fetched() -> None:
    html = render(everything())
    root = parsed(html)
    policy = [m.get("content") for m in root.iter("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.read_bytes()).digest()).decode()
    allowed = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
    assert policy == [f"{allowed}base-uri 'none'; form-action 'none'"]
    assert not re.search(r"https?:|//[a-z]|javascript|@import|url\(", html)
    for element in root.iter():
        assert "src" not in element.attrib
        assert element.get("href", "#").startswith(("#", "data:,"))


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    root = parsed(render(everything()))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        targets = element.get("aria-labelledby", "").split()
        if element.get("href", "").startswith("#"):
            targets.append(element.get("href", "")[1:])
        assert set(targets) <= set(ids)


def test_a_report_cannot_reach_data_or_noise() -> None:
    for name, path in modules().items():
        if name.startswith("hdmm.publication.report"):
            assert not any(
                used.startswith(("hdmm.data", "hdmm.noise", "hdmm.measure.measure")) for used in imports(path)
            ), name


# Accessibility


def test_headings_and_landmarks() -> None:
    root = parsed(render(everything()))
    assert root.get("lang") == "en"
    levels = [int(e.tag[1]) for e in root.iter() if re.fullmatch("h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert [len(list(root.iter(name))) for name in ("header", "main", "footer")] == [1, 1, 1]
    assert root.find(".//body/a[@href='#main']") is not None


def test_tables_have_captions_and_scopes() -> None:
    root = parsed(render(everything()))
    tables = list(root.iter("table"))
    assert len(tables) == 7  # summary, contents, and the five that are not empty
    for each in tables:
        assert words(each.find("caption"))
        assert {th.get("scope") for th in each.iter("th")} - {"colgroup"} == {"col", "row"}
        widths = {sum(int(cell.get("colspan", 1)) for cell in row) for row in each.findall("tbody/tr")}
        assert len(widths) == 1
        first = each.find("thead/tr")
        assert sum(int(cell.get("colspan", 1)) for cell in first) in widths
        assert all(words(th) for th in each.iter("th"))


def test_pictures_say_what_they_show() -> None:
    root = parsed(render(everything()))
    top = [svg for parent in root.iter() if parent.tag != "svg" for svg in parent.findall("svg")]
    for svg in top:
        if svg.get("aria-hidden") != "true":
            assert svg.get("role") == "img"
            assert words(svg.find("title"))
            assert words(svg.find("desc"))


def palette() -> list[dict[str, str]]:
    """The colours of light and dark."""
    blocks = re.findall(r":root \{([^}]*)\}", STYLE.read_text())
    light, dark = (dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks[:2])
    assert set(light) == set(dark)
    return [light, dark]


def contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("colours", palette(), ids=["light", "dark"])
def test_colours_have_contrast(colours: dict[str, str]) -> None:
    text = [(ink, page) for ink in ("ink", "muted", "accent") for page in ("page", "surface")]
    text += [(grade, f"{grade}-page") for grade in ("good", "fair", "rough", "zero")]
    for a, b in text:
        assert contrast(colours[a], colours[b]) >= 4.5, (a, b)
    for mark in ("accent", "cells", "answers", "mark", "muted"):
        assert contrast(colours[mark], colours["page"]) >= 3, mark
    assert contrast(colours["accent"], colours["soft"]) >= 3  # the line in its band
    assert contrast(colours["muted"], colours["q0"]) >= 3  # the slash of what may be 0
    ramp = [contrast(colours[f"q{k}"], colours["page"]) for k in range(7)]
    assert ramp == sorted(ramp)  # larger counts stand out more, in light and in dark


# Numbers


def test_numbers_of_a_table() -> None:
    html = render(report(table([("M",), ("F",)], [-3.26, 1234.5], 1.414)))
    cells = [[words(cell) for cell in row] for row in parsed(html).findall(".//section[@class='table']//tbody/tr")]
    assert cells == [
        ["M", "−3.3", "± 2.9", "−6.2", "−0.4", "rough"],
        ["F", "1,234.5", "± 2.9", "1,231.6", "1,237.4", "good"],
    ]


def test_contents_has_the_expected_errors() -> None:
    row = parsed(render(report(table(ages(3))))).find(".//table[@class='contents']/tbody/tr")
    assert [words(cell) for cell in row][:6] == ["A table", "3", "1.50", "3.25", "7.50", "1.12"]
    unknown = replace(table(ages(3)), forecast=Forecast("a-table", 3, 1.5))
    row = parsed(render(report(unknown))).find(".//table[@class='contents']/tbody/tr")
    assert [words(cell) for cell in row][2:6] == ["1.50", "–", "–", "–"]
    assert len(list(row.iter("rect"))) == 1
    row = parsed(render(report(replace(unknown, forecast=None)))).find(".//table[@class='contents']/tbody/tr")
    assert [words(cell) for cell in row][2:6] == ["–"] * 4


@given(st.floats(-1e14, 1e14), st.integers(0, 6))
def test_shown_intervals_are_never_narrower(value: float, digits: int) -> None:
    middle, high = (Fraction(f(value, digits).replace("−", "-").replace(",", "")) for f in (number, up))
    assert Fraction(repr(value)) <= high
    assert middle <= high
    assert high - Fraction(repr(value)) <= Fraction(1, 10**digits)


@given(st.floats(-1, 1), st.integers(0, 6))
def test_no_negative_zero(value: float, digits: int) -> None:
    for shown in (number(value, digits), up(value, digits)):
        assert not re.fullmatch("−0(\\.0*)?", shown)


@pytest.mark.parametrize(
    ("estimate", "stddev", "grade"),
    [
        (100, 4.9, "good"),
        (100, 5.1, "fair"),
        (100, 15.1, "rough"),
        (-100, 5.1, "fair"),
        (1, 5, "may be 0"),
        (0, 0, "may be 0"),
    ],
)
def test_grades(estimate: float, stddev: float, grade: str) -> None:
    root = parsed(render(report(table([("a",)], [estimate], stddev))))
    assert words(root.find(".//section[@class='table']//tbody/tr")[-1]) == grade


def test_margins_may_be_one_sided() -> None:
    lifted = replace(table([("a",)], [5.0]), lower=np.array([0.0]), upper=np.array([6.0]))
    assert lifted.margin.tolist() == [5.0]


# Plots


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([()], "dots"),
        (ages(1), "dots"),
        (ages(MOST_DOTS), "dots"),
        (ages(MOST_DOTS + 1), "long"),
        (list(product("AB", "xyz")), "dots"),
        (list(product("ABCDEF", "uvwxyz")), "heat"),
        (list(product("AB", map(str, range(50)))), "long"),
        (list(product("ABCDE", map(str, range(50)))), "heat"),
        (list(product(map(str, range(200)), map(str, range(70)))), "long"),
        ([*product("ABCDEF", "uvwxy"), ("A", "z")], "dots"),
    ],
)
def test_kind_of_plot(labels: list[tuple[str, ...]], kind: str) -> None:
    assert figure(table(labels)).find("svg").get("class") == f"plot {kind}"


def test_ordered_rows_make_a_line_and_others_points() -> None:
    rising = figure(table([(f"≤ {k:,}",) for k in range(0, 9000, 90)]))
    assert [path.get("class") for path in rising.iter("path")] == ["band", "estimate"]
    for labels in ([(str(-k),) for k in range(99)], [(f"n{k % 7}",) for k in range(99)], [("x",)] * 99):
        assert [path.get("class") for path in figure(table(labels)).iter("path")] == ["thin whisker", "mark"]


def test_dots_stand_where_the_numbers_are() -> None:
    svg = figure(table(ages(3), [-10.0, 0.0, 30.0], 5.0))
    axis = Scale(-20.0, 40.0)
    assert [c.get("cx") for c in svg.iter("circle")] == [f"{axis.at(v)}%" for v in (-10.0, 0.0, 30.0)]
    assert [c.get("class") for c in svg.iter("circle")] == ["dot faint", "dot faint", "dot"]
    ends = [(c.get("x1"), c.get("x2")) for c in svg.iter("line") if c.get("class") == "whisker"]
    assert ends[2] == (f"{axis.at(20.0)}%", "100.0%")


def test_long_plots_are_thinned_and_say_so() -> None:
    made = figure(table(ages(5 * MOST_POINTS)))
    assert f"One in 5 of 3,000 rows is drawn, {MOST_POINTS:,} in all" in words(made)
    (line,) = (path.get("d", "") for path in made.iter("path") if path.get("class") == "estimate")
    assert len(re.findall("[ML]", line)) == MOST_POINTS


def test_a_line_and_its_band_stand_where_the_numbers_are() -> None:
    rows = MOST_DOTS + 1
    band, line = figure(table(ages(rows), np.full(rows, 30.0), 5.0)).iter("path")
    assert re.findall(r"[\d.]+", line.get("d", ""))[:4] == ["0.0", "250", "16.7", "250"]  # 30 on a scale up to 40
    edge = re.findall(r"[\d.]+", band.get("d", ""))[1::2]
    assert edge == ["0"] * rows + ["500"] * rows


@given(st.lists(st.lists(st.integers(0, 6), min_size=4, max_size=4), min_size=1, max_size=5))
def test_paths_cover_every_cell_once(levels: list[list[int]]) -> None:
    drawn = np.full((len(levels), 4), -1)
    for colour, path in level_paths(np.array(levels)):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1", path):
            at = drawn[int(y), int(x) : int(x) + int(width)]
            assert (at == -1).all()
            at[:] = int(colour[1:])
    assert drawn.tolist() == levels


@given(st.floats(-1e300, 1e300), st.floats(0, 1e300), st.integers(1, 80))
def test_any_finite_numbers_render(value: float, spread: float, rows: int) -> None:
    parsed(render(report(table(ages(rows), np.full(rows, value), spread))))


def test_ticks_are_few_and_round() -> None:
    for high in 10.0 ** np.arange(-8, 12, 0.37):
        for low in (0.0, -high / 3, -5 * high):
            ticks = Scale(low, high).ticks()
            assert 2 <= len(ticks) <= 7
            assert 0 in ticks


# Refusals


@pytest.mark.parametrize("what", ["estimate", "stddev", "lower", "upper"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(what: str, bad: float) -> None:
    with pytest.raises(ReportError, match=f"The {what} of table 'a-table'"):
        report(replace(table(ages(2)), **{what: np.array([1.0, bad])}))


def test_what_does_not_fit_is_refused() -> None:
    good = table(ages(2))
    with pytest.raises(ReportError, match="2 rows, but its stddev has shape"):
        report(replace(good, stddev=np.ones(3)))
    with pytest.raises(ReportError, match="one label for each of its 2 columns"):
        render(report(replace(good, label_columns=named_columns("a", "b"))))
    with pytest.raises(ReportError, match="has 2 rows, but some row does not have one label"):
        render(report(replace(good, labels=lambda: ages(3))))
    with pytest.raises(ReportError, match="outside its interval"):
        report(replace(good, lower=good.estimate + 1))
    with pytest.raises(ReportError, match="below 0"):
        report(replace(good, stddev=-good.stddev))
    with pytest.raises(ReportError, match="expected error of nan"):
        report(replace(good, forecast=Forecast("a-table", 2, float("nan"))))
    with pytest.raises(ReportError, match=r"intervals of level 0\.9"):
        report(replace(good, level=0.9))
    with pytest.raises(ReportError, match="biased estimates"):
        report(replace(good, biased=True))
    with pytest.raises(ReportError, match="between 0 and 1"):
        report(level=1.0)


# Whole pages


def test_no_tables_no_rows_no_ledger() -> None:
    page = words(parsed(render(report(receipts=()))))
    assert "This release has no tables." in page
    assert "no ledger was debited" in page
    assert "This table has no rows." in words(parsed(render(report(table([], columns=("age",))))))


@pytest.mark.parametrize(
    ("privacy", "sentence"),
    [
        (PureDP(1), "a factor of at most 2.72."),
        (PureDP(50), "a factor of at most e^50.0."),
        (ZCDP("0.5"), "a factor of at most 186, plus at most one in a million."),
        (ApproxDP(1, "1e-9"), "a factor of at most 2.72, plus at most 1e-09."),
    ],
)
def test_the_guarantee_in_words(privacy: PureDP | ZCDP | ApproxDP, sentence: str) -> None:
    assert sentence in words(parsed(render(report(privacy=privacy))))


@pytest.mark.parametrize(
    ("unit", "sentence"),
    [
        (Unit(), "Adding or removing any one row changes"),
        (Unit(rows=3), "Adding or removing the rows of any one person (up to 3) changes"),
        (Unit(neighbours="replace"), "Changing the values of any one row changes"),
    ],
)
def test_the_unit_in_words(unit: Unit, sentence: str) -> None:
    assert sentence in words(parsed(render(report(unit=unit))))


def test_long_tables_are_cut_and_say_so() -> None:
    root = parsed(render(report(table(ages(MOST_SHOWN_ROWS + 50)))))
    assert len(root.findall(".//section[@class='table']//tbody/tr")) == MOST_SHOWN_ROWS
    assert f"Rows 1 to {MOST_SHOWN_ROWS} of {MOST_SHOWN_ROWS + 50}. All rows are in a-table.csv" in words(root)


def test_large_releases_stay_small() -> None:
    html = render(report(*[table(ages(1000)) for _ in range(100)]))
    assert len(html.encode()) < 20e6


# The strategy


def test_shares_are_the_privacy_of_each_block() -> None:
    domain = Domain({"sex": 2, "age": 3})
    blocks = (Block(3.0, ((0, Dense(2 * np.eye(2))),)), Block(2.0, ((1, PIdentity(np.ones((1, 3)))),)))
    strategy = Strategy(domain, blocks)
    for noise, order in ((Noise.LAPLACE, 1), (Noise.GAUSSIAN, 2)):
        each = [Strategy(domain, (block,)).sensitivity(noise) ** order for block in blocks]
        found = measured(strategy, noise)[1]
        assert [block.share for block in found] == pytest.approx(sorted(each, reverse=True) / np.sum(each))


def test_every_strategy_has_a_picture() -> None:
    domain = Domain({"sex": 2, "age": 3})
    w = Workload.marginals(domain, k=range(3))
    merged = Strategy(domain, (Block(1.0, [((0, 1), Eye(6))]),))
    for strategy in (identity(w), laplace(w), laplace(Workload.product(domain, age=Prefix())), merged):
        assert "What was measured, block by block" in words(parsed(render(report(strategy=strategy))))
    assert "measured by itself" in words(parsed(render(report(strategy=laplace(w)))))


def test_many_blocks_and_bases_are_cut_and_say_so() -> None:
    domain = Domain({f"a{k}": 4 for k in range(60)})
    blocks = tuple(Block(1.0, ((k, PIdentity(np.ones((1, 4)))),)) for k in range(60))
    page = words(parsed(render(report(strategy=Strategy(domain, blocks)))))
    assert f"The {MOST_BLOCKS} largest of 60 blocks are shown." in page
    assert f"{MOST_BASES} of 60 such sets of sums are shown." in page


def test_bases_show_the_sums_and_not_the_values() -> None:
    theta = np.array([[1.0, 1, 1, 1], [0, 0, 1, 1]])
    for A in (PIdentity(theta), ExtendedDiagonal(Dense(theta), np.ones(4))):
        strategy = Strategy(Domain({"age": 4}), (Block(1.0, ((0, A),)),))
        (made,) = parsed(render(report(strategy=strategy))).findall(".//svg[@class='plot base']")
        assert "2 weighted sums over 4 values" in words(made)
        cells = sum(int(width) for path in made.iter("path") for width in re.findall(r"h(\d+)v1", path.get("d", "")))
        assert cells == np.count_nonzero(to_dense(A)[4:]) == 6
    assert base_picture("age", PIdentity(np.zeros((1, 4)))) is None


@pytest.mark.slow
def test_a_release_becomes_a_report() -> None:
    """The whole way of the example: plan, ledger, measurement, answers, page."""
    made = sample()
    root = parsed(render(made))
    assert made.counts == sum(len(each) for each in made.tables) == 1021
    for each in made.tables:
        assert np.sqrt(np.mean(each.stddev**2)) == pytest.approx(each.forecast.rmse)
        assert each.forecast.rmse >= each.forecast.bound
    shown = root.findall(".//section[@class='table']")
    assert [words(each.find("h2/bdi")) for each in shown] == [each.title for each in made.tables]
    assert "ε = 1 spent" in words(root)
    (receipt,) = made.receipts
    assert receipt.hash in words(root)


@pytest.mark.slow
def test_in_a_browser(tmp_path: Path) -> None:
    """axe finds nothing in light, dark, narrow and print; nothing is fetched, nothing too wide; it can be printed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip(
            "no chromium on the PATH: install it (Debian: apt install chromium) to test the report in a browser"
        )
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[dev]' has axe")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[dev]' has playwright")
    page = tmp_path / "report.html"
    page.write_text(render(everything()), encoding="utf-8")
    with playwright.sync_playwright() as browsers:
        opened = browsers.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for width, scheme, media in (
            (1100, "light", "screen"),
            (1100, "dark", "screen"),
            (390, "dark", "screen"),
            (800, "dark", "print"),
        ):
            # The policy forbids scripts, axe's too: it is lifted for axe alone, and what it reports is collected.
            context = opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
            view = context.new_page()
            view.emulate_media(media=media, color_scheme=scheme)
            asked: list[str] = []
            said: list[str] = []
            view.on("request", lambda request, asked=asked: asked.append(request.url))
            view.on("console", lambda message, said=said: said.append(message.text))
            view.goto(page.as_uri())
            assert view.evaluate("document.documentElement.scrollWidth") <= width
            found = axe.Axe().run(view)
            assert found.violations_count == 0, found.generate_report()
            assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
            assert said == []
            view.screenshot(path=tmp_path / f"{scheme}-{width}.png")
            context.close()
        strict = opened.new_page()
        said = []
        strict.on("console", lambda message: said.append(message.text))
        strict.goto(page.as_uri())
        assert said == []  # the policy stands in nobody's way
        assert len(strict.pdf(format="A4")) > 10_000
        opened.close()


def test_the_rows_that_are_counted_are_told() -> None:
    domain = Domain({"sex": ["M", "F"], "age": Integers(0, 104), "land": Labels(["A", "B"], outside="other")})
    page = words(parsed(render(report(strategy=Strategy.identity(domain.merge(["sex", "age"], name="both"))))))
    assert "Rows are counted by sex (M, F), age (0 … 104, 105 values) and land (A, B)." in page
    assert (
        "no value, in land are counted as “other”. A row with another value, or no value, in any of the others is in"
        in page
    )


def test_a_table_shows_its_definition() -> None:
    sql = "SELECT COUNT(*) FROM t WHERE age < 18 AND land = '<b>'"
    html = render(report(replace(table(ages(3)), definition=sql), table(ages(3))))
    (shown,) = parsed(html).iter("details")
    assert words(shown).endswith(sql)


def test_a_bar_far_longer_than_the_others_has_a_gap() -> None:
    far = replace(table(ages(3)), forecast=Forecast("a-table", 3, 5.0, 10.0, 4000.0, 1.0))
    html = render(report(far))
    assert 'class="gap"' in html
    assert 'width="33.33%"' in html  # of the cells, on the scale of three times theirs
    assert 'class="gap"' not in render(report(replace(far, forecast=Forecast("a-table", 3, 5.0, 10.0, 20.0, 1.0))))


def test_totals_do_not_dwarf_what_they_are_of() -> None:
    found = figure(table([("M",), ("F",), ("(all)",)], [10, 12, 22]))
    assert len(list(found.iter("circle"))) == 2
    assert words(found).endswith("Totals are not drawn.")
    marginals = figure(table([("M", "(all)"), ("(all)", "old")], [10, 12]))
    assert len(list(marginals.iter("circle"))) == 2  # where every row is a total of something, all are
    assert "(all)" not in words(marginals[1])


@pytest.mark.parametrize("privacy", [PureDP("1e-20"), ApproxDP("0.1", "1e-9"), ZCDP("1e-7"), ZCDP("123456789.5")])
def test_parameters_in_the_registry_are_numbers(privacy: PureDP | ApproxDP | ZCDP) -> None:
    record = yaml.safe_load(record_of(report(table(ages(3)), privacy=privacy)))
    found = record["deployment"]["privacy_loss"]["privacy_parameters"]
    assert all(isinstance(value, float) for value in found.values())
    assert {name: Fraction(repr(value)) for name, value in found.items()} == asdict(privacy)


def test_every_paper_says_which_rows_are_impossible() -> None:
    about = report(table(ages(3)), impossible=("age = 0",), where="month = 1", most_rows=2)
    for said in about.counted():
        assert said in record_of(about)
        assert said in words(parsed(render(about)))
