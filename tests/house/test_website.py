"""The site: its navigation has every page, and nothing on it comes from elsewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from docs import website

ROOT = Path(__file__).parents[2]


def test_the_navigation_has_every_page_once() -> None:
    home, *sections = website.navigation()
    assert home == {"Home": "index.md"}
    named = [uri for section in sections for items in section.values() for item in items for uri in item.values()]
    pages = {path.relative_to(website.DOCS).as_posix() for path in website.DOCS.rglob("*.md")}
    assert len(named) == len(set(named))
    assert pages | {"reference/api.md"} <= {*named, "index.md"}


def test_the_parts_come_in_the_order_of_learning() -> None:
    titles = [title for section in website.navigation() for title in section]
    assert titles == ["Home", "Start", "Guide", "Reference", "Trust", "Research", "Code"]


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
