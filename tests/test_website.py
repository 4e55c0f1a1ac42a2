"""The site: its navigation has every page, nothing on it comes from elsewhere, and its example runs."""

from __future__ import annotations

import random
import re
import tomllib
from pathlib import Path

import pytest
from docs import website

from hdmm.cli import run

ROOT = Path(__file__).parents[1]


def test_the_navigation_has_every_page_once() -> None:
    home, *sections = website.navigation()
    assert home == {"Home": "index.md"}
    named = [uri for section in sections for items in section.values() for item in items for uri in item.values()]
    pages = {path.relative_to(website.DOCS).as_posix() for path in website.DOCS.rglob("*.md")}
    assert len(named) == len(set(named))
    assert pages - {"index.md"} <= set(named)


def test_the_parts_come_in_the_order_of_learning() -> None:
    titles = [title for section in website.navigation() for title in section]
    assert [title for title in titles if title in ("Start", "How to", "Reference", "Theory", "Results")] == [
        "Start", "How to", "Reference", "Theory", "Results",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://cdn.example.org/x.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.example.org/css">'),
        ("a.html", '<link href="https://fonts.example.org" rel="preconnect">'),
        ("a.html", '<img alt="" src="http://example.org/x.png">'),
        ("a.html", '<p style="background: url(https://example.org/x.png)">'),
        ("a.css", "@font-face { src: url('https://example.org/x.woff2') }"),
        ("a.css", '@import "https://example.org/x.css";'),
    ],
)
def test_what_is_fetched_from_elsewhere_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(website.remote_assets(tmp_path))) == 1


def test_links_and_own_files_are_not_taken_for_fetching(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">there</a> <script src="assets/x.js"></script> <img src="data:image/png;base64,">'
        '<link rel="canonical" href="https://example.org/a.html"> <link rel="stylesheet" href="../a.css">'
    )
    (tmp_path / "a.css").write_text("a { background: url(x.svg) }")
    assert list(website.remote_assets(tmp_path)) == []


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [version]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version


@pytest.mark.slow
def test_the_real_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's Python, specification and commands, in order, on rows that are written as the originals are."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "adult.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (specification,) = (block for _, name, block in blocks if name == "adult.toml")
    for name, before, after in (("adult.data", "", ""), ("adult.test", "|1x3 Cross validator\n", ".")):
        Path(name).write_text(before + "".join(f"{row}{after}\n" for row in made_up(specification)) + "\n")
    for kind, name, block in blocks:
        if name:
            Path(name).write_text(block.replace("time_limit = 20", "time_limit = 2"))
        elif kind == "python":
            exec(block, {})
        elif kind == "sh":
            assert all(run(command.split()[1:]) == 0 for command in block.splitlines()), capsys.readouterr().err
    assert len(Path("adult.csv").read_text().splitlines()) == 401
    assert {path.stem for path in Path("out/tables").glob("*.csv")} >= {"education", "high", "ages", "hours"}
    capsys.readouterr()
    assert run(["check", "adult.toml", "--look-at-data", "--yes"]) == 0
    assert "400 of 400 rows are counted" in capsys.readouterr().out


def made_up(specification: str) -> list[str]:
    """200 lines of 15 fields, of which those that the specification declares hold values from it."""
    draw = random.Random(0)
    domain = tomllib.loads(specification)["domain"]

    def value(name: str) -> object:
        return draw.choice(domain[name]) if isinstance(domain[name], list) else draw.randint(18, 60)

    columns = ["age", "-", "-", "education", "-", "marital", "-", "-", "race", "sex", "-", "-", "hours", "-", "income"]
    return [", ".join(str("?" if name == "-" else value(name)) for name in columns) for _ in range(200)]
