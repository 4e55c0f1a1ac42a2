"""Words that a user reads: habits that make plain English harder to read are found and named.

These are the pages, the messages in the source, its docstrings and comments, and the templates of the report and the
studio.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HABITS = {
    r"\bshall\b": "must, or the present tense",
    r"(?<!all )(?<!best )(?<!both )(?<!each )(?<!one )(?<!some )\bof which\b": "whose",
    r"\b(?:that|which|what|who|it) is no\b(?! (?:better|larger|less|longer|lower|more|smaller|worse))": "is not a",
    r"\bsays? that it\b": "states the fact",
    r"\b(?:is|are|was|were|be) told\b": "is shown, is stated",
    r"\btells?\b(?! ?\()": "shows, says, distinguishes",
    r"\bkeepers?\b": "the operator, the owner",
    r"\bstands? in the (?:address|file|specification)\b": "is in",
    r"\bsimpler ways\b": "simpler mechanisms",
    r"\bquick plan\b": "quick search",
    r"\bhold from\b": "the smallest budget that meets",
    r"\bwhat other noise\b": "other guarantees",
}
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = sorted((ROOT / "src" / "hdmm").rglob("*.py"))
TEMPLATES = sorted(
    p for kind in ("html", "js", "css", "toml", "yaml") for p in (ROOT / "src" / "hdmm").rglob(f"*.{kind}")
)


def _prose(page: Path) -> str:
    """A page without its blocks and spans of code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _texts(source: Path) -> Iterator[str]:
    """The literal texts of a file, its docstrings among them."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _comments(source: Path) -> Iterator[str]:
    with tokenize.open(source) as lines:
        yield from (
            token.string for token in tokenize.generate_tokens(lines.readline) if token.type == tokenize.COMMENT
        )


def found(text: str) -> list[str]:
    """The habits in a text, each with what to write."""
    spaced = " ".join(text.split())
    return [
        f"…{spaced[max(m.start() - 40, 0) : m.end() + 40]}…: write {instead}"
        for habit, instead in HABITS.items()
        for m in re.finditer(habit, spaced, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_in_plain_english(page: Path) -> None:
    assert found(_prose(page)) == []


def test_messages_docstrings_and_comments_are_in_plain_english() -> None:
    texts = ((source, text) for source in SOURCES for text in (*_texts(source), *_comments(source)) if " " in text)
    assert [f"{source.relative_to(ROOT)}: {fault}" for source, text in texts for fault in found(text)] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_are_in_plain_english(template: Path) -> None:
    assert found(template.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", ["It shall hold.", "A file, of which nothing is known", "It is no file.", "He is told so."]
)
def test_a_habit_is_found(text: str) -> None:
    assert len(found(text)) == 1
