"""The pages are consistent: the reference matches the code, every link has a target, and the index is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs import api, website

import hdmm

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_reference_has_every_public_name_once() -> None:
    headings = re.findall(r"^### (.*)$", api.page(), re.MULTILINE)
    assert sorted(headings) == sorted(hdmm.__all__), "Give each name a chapter in docs/api.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _links(page):
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists() or there == website.API, f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(there), f"{page.name} links to {target}; there are {_anchors(there)}"


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / target.partition("#")[0]).resolve() for target in _links(index)}
    assert {page.resolve() for page in ROOT.glob("docs/**/*.md")} - named <= {index.resolve()}


def test_the_files_that_recipes_name_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {path for path in re.findall(r"`([\w./-]+/[\w./-]*)`", text) if not path.startswith(".")}
    assert "src/hdmm/select/operators.py" in named
    assert {path for path in named if not (ROOT / path).exists()} == set()


def _links(page: Path) -> list[str]:
    """Targets within the repository; what is in blocks or spans of code is no link."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]


def _anchors(page: Path) -> set[str]:
    text = api.page() if page == website.API else page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
