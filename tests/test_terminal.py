"""The picture of the terminal shows what commands print, and nothing about the machine that drew it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from examples.terminal import COMMANDS, picture

DOCS = Path(__file__).parents[1] / "docs"


def shown(svg: str) -> str:
    return "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")


def test_commands_and_what_they_print_are_shown(tmp_path: Path) -> None:
    svg = picture([["init", "people.toml"], ["--help"]], tmp_path)
    assert (tmp_path / "people.toml").exists()
    text = shown(svg)
    assert "$ hdmm init people.toml" in text
    assert "Usage: " in text
    assert str(tmp_path) not in svg
    assert "url(http" not in svg


def test_the_picture_in_the_documentation() -> None:
    text = shown((DOCS / "img" / "terminal.svg").read_text(encoding="utf-8"))
    assert all(f"$ hdmm {' '.join(command)}" in text for command in COMMANDS)
    assert "Nothing was spent." in text
    assert not any(place in text for place in ("/home", "/root", "/tmp", "/work"))
    assert "(img/terminal.svg)" in (DOCS / "cli.md").read_text(encoding="utf-8")
