"""What a terminal shows: progress on one line, colour where it has any, completion in a shell, and its picture."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from examples.terminal import COMMANDS, picture
from rich.console import Console

from hdmm import Domain, Workload, optimize
from hdmm.apps.cli.output import Output, refuse, warn
from hdmm.measure.optimize import Reporter
from hdmm.select.opt_hdmm import Candidate

DOCS = Path(__file__).parents[2] / "docs"


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
    assert "(../img/terminal.svg)" in (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("time_limit", [None, 60, 3600])
def test_progress_is_one_line_of_80_columns(time_limit: float | None) -> None:
    heard: list[tuple[Candidate, Candidate]] = []
    workload = Workload.marginals(Domain({"a": 4, "b": 5}), k=2)
    optimize(workload, restarts=1, progress=False, listener=lambda *pair: heard.append(pair))
    reporter = Reporter(shown=True, time_limit=time_limit, listener=None)
    for candidate, best in heard:
        reporter(candidate, best)
        reporter.first *= 1e6  # a gain of thousands is as long as gains are
        console = Console(width=80, file=io.StringIO(), force_terminal=True, legacy_windows=False)
        console.print(reporter.progress.get_renderable())
        lines = console.file.getvalue().rstrip("\n").split("\n")  # type: ignore[attr-defined]
        assert len(lines) == 1
        assert "Ctrl-C" in lines[0]


def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> str:
        refuse("wrong [red]", "Kind", 1, as_json=False)
        warn("careful")
        Output(as_json=False, quiet=False).say("said", style="yellow")
        return "".join(capsys.readouterr())

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in shown()
    assert shown() == "said\nerror: wrong [red]\nwarning: careful\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    assert "\x1b[1;31merror:" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    (tmp_path / "hdmm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hdmm "$@"\n')
    (tmp_path / "hdmm").chmod(0o755)
    script = """
    eval "$(_HDMM_COMPLETE=bash_source hdmm)"
    COMP_WORDS=(hdmm bu); COMP_CWORD=1; _hdmm_completion hdmm bu hdmm; echo "${COMPREPLY[@]}"
    COMP_WORDS=(hdmm check --st); COMP_CWORD=2; COMPREPLY=(); _hdmm_completion hdmm --st check; echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout.split() == ["budget", "--strict"]
    assert "_HDMM_COMPLETE=bash_source hdmm" in (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
