"""What the pages show is run as a reader would: files are written and commands are run in order, in an empty folder.

A block says by its language what becomes of it. `sh` is commands; those of hdmm are run, and what they ask is answered
with yes if the page shows the question. `text` is what the command above it prints, up to its numbers; a line … stands
for any lines. `toml` and `csv` with a file name are files, and without one, parts of the specification that the page
goes on from. `python` is run with what the blocks above it have defined, unless it is a doctest, which pytest runs.
A section with a reader of its own in READERS is a page of its own.
Blocks and commands that are not run are listed in NOT_RUN with the reason.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

import hdmm
from hdmm.apps.cli import app, run
from hdmm.data.inspect import inspect_rows
from hdmm.publication import publish as publication_folder
from tests.support.pages import ROOT, Block, Play, blocks_of, commands, hurried, made_up, whole_specification
from tests.support.spec_cases import without_search

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

# The first line of a block, or a command without its comment: the reason why it is not run.
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "make demo"): "installs an environment; .ci/run runs it",
    ("README.md", "make test"): "runs these tests",
    ("README.md", ". .venv/bin/activate"): "the tests have an environment already",
    ("SECURITY.md", "git verify-commit HEAD"): "depends on the copy",
    ("SECURITY.md", "make clean test"): "runs these tests",
    ("SECURITY.md", ".venv/bin/python -m pip check"): "depends on the environment",
    (
        "SECURITY.md",
        ".venv/bin/python -m pip install --dry-run --require-hashes -r requirements/dev.txt",
    ): "needs a package index",
    (
        "docs/architecture.md",
        "tables.toml ── publication.spec ──▶ Domain, Workload ── select ──▶ Strategy ──▶ Plan",
    ): "a picture",
    (
        "docs/reference/cli.md",
        "hdmm init [SPEC] [--from DICTIONARY [--table NAME] | --suggest-from-data FILE] [--rows]",
    ): ("a synopsis; test_options_exist reads it"),
    (
        "docs/reference/cli.md",
        'eval "$(_HDMM_COMPLETE=bash_source hdmm)"',
    ): "test_terminal.py does it",
    ("docs/reference/cli.md", 'eval "$(_HDMM_COMPLETE=zsh_source hdmm)"'): "needs zsh; the same for bash is run",
    ("docs/reference/cli.md", "_HDMM_COMPLETE=fish_source hdmm | source"): "needs fish; the same for bash is run",
    ("docs/guide/scale.md", "import numpy as np"): "needs a cluster; test_chunked.py runs small ones",
    ("docs/guide/people-and-data.md", "pip install 'hdmm[postgres]'"): "needs a package index",
    ("docs/guide/people-and-data.md", "import ibis"): "needs a server; data/test_postgres.py starts one",
    ("docs/guide/scale.md", "engine = hdmm.engines.gpu()"): "needs a GPU; test_gpu.py uses one if there is one",
    ("docs/guide/notebooks.md", "pip install 'hdmm[plots]' jupyterlab pandas"): "needs a package index",
    ("docs/guide/studio.md", "pip install 'hdmm[studio]'"): "needs a package index",
    ("docs/guide/studio.md", "hdmm studio people.toml"): "serves until it is ended; studio/ has tests of it",
    ("docs/faq.md", "wsl --install"): "needs Windows",
    ("docs/faq.md", "sudo apt install python3-venv python3-pip git make"): "changes the machine",
    ("docs/faq.md", "git clone … && cd hdmm && make demo"): "needs the repository's URL",
    ("docs/reference/spec.md", "out/"): "a picture of a folder; test_publication.py has its files",
    (
        "docs/reference/sql.md",
        "statement   SELECT [column, …] aggregate [AS name], … FROM table [[AS] name]",
    ): "a grammar",
}


@dataclass(frozen=True)
class Reader:
    """What the reader of a page has before its first block: another page's specification, data, names of Python.

    `before` is what happens before the blocks that begin so, and `finds` what must hold at the end.
    """

    goes_on_from: str = ""
    released: bool = False
    has: Callable[[], dict[str, Any]] = dict
    before: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = field(default_factory=dict)
    finds: Callable[[], None] = lambda: None


def dictionary_and_people() -> dict[str, Any]:
    """The tutorial's dictionary and rows, for its shorter form in README.md."""
    for block in blocks_of(ROOT / "docs/tutorial.md"):
        if block.name == "dictionary.csv":
            Path(block.name).write_text(block.text)
        elif "people.csv" in block.text and block.kind == "python":
            exec(block.text, {})
    return {}


def sources() -> dict[str, Any]:
    """A domain, its counts, a file and a folder."""
    domain = hdmm.Domain({"sex": ["M", "F"], "age": 115})
    Path("domain.toml").write_text('[data]\nid = "patient"\n[domain]\nsex = ["M", "F"]\nage = 115\nAGE_YEARS = 115\n')
    made_up(Path("domain.toml"), "people.parquet")
    made_up(Path("domain.toml"), "stays/2026.parquet")
    return {"domain": domain, "x": [1] * domain.size}


def frame() -> dict[str, Any]:
    """The rows of the specification in a frame, as text."""
    Path("there.toml").write_text(whole_specification("docs/reference/spec.md").text)
    made_up(Path("there.toml"))
    return {"frame": pd.read_csv("people.csv", dtype="string")}


def adult_files() -> dict[str, Any]:
    """The two files of the original, with made-up values in the columns that the specification declares."""
    Path("there.toml").write_text(whole_specification("docs/tutorial.md", "adult.toml").text)
    made_up(Path("there.toml"), "made-up.csv")
    rows = pd.read_csv("made-up.csv", dtype="string").to_dict("records")
    columns = ["age", "-", "-", "education", "-", "marital", "-", "-", "race", "sex", "-", "-", "hours", "-", "income"]
    lines = [", ".join(row.get(column, "?") for column in columns) for row in rows]
    Path("adult.data").write_text("\n".join(lines[:200]) + "\n\n")
    Path("adult.test").write_text("|1x3 Cross validator\n" + "".join(f"{line}.\n" for line in lines[200:]) + "\n")
    return {}


def stopped_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release whose report could not be written."""

    def broken(*_: object) -> str:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(publication_folder, "render", broken)
        assert run(["release", "people.toml", "--yes"]) == 1


def restored_ledger(_: pytest.MonkeyPatch) -> None:
    """A release after the backup, and then the backup in its place."""
    domain = hdmm.Domain({"sex": ["M", "F"]})
    plan = hdmm.optimize(hdmm.Workload.marginals(domain, 1))
    ledger = hdmm.Ledger("budget.db", dataset="people-2026")
    Path("out").mkdir()
    plan.measure(hdmm.from_array(domain, [1, 2]), hdmm.PureDP(1), ledger=ledger).save("out/release")
    for file in ("budget.db", "budget.db.head"):
        shutil.copy(f"backup/{file}", file)


def lost_head(_: pytest.MonkeyPatch) -> None:
    Path("budget.db.head").unlink()


def tables_of_the_tutorial() -> None:
    assert Path("out/tables/districts.csv").read_text().startswith("district,sex,estimate,")


def all_adults() -> None:
    assert len(Path("adult.csv").read_text().splitlines()) == 401
    assert {path.stem for path in Path("out/tables").glob("*.csv")} >= {"education", "high", "ages", "hours"}
    look = inspect_rows(hdmm.from_table(hdmm.load_spec("adult.toml").domain, "adult.csv"))
    assert (look.counted, look.rows) == (400, 400)


def margins_drawn() -> None:
    assert Path("districts.png").read_bytes().startswith(b"\x89PNG")


def three_months() -> None:
    assert sorted(path.name for path in Path("out").iterdir()) == ["2026-01", "2026-02", "2026-03-late"]


TUTORIAL, SPECIFICATION = "docs/tutorial.md", "docs/reference/spec.md"
ADULT = "docs/tutorial.md#A real example: Adult"
READERS: dict[str, Reader] = {
    "README.md": Reader(has=dictionary_and_people),
    "docs/guide/accuracy.md": Reader(TUTORIAL),
    "docs/guide/known-counts.md": Reader(TUTORIAL),
    "docs/guide/measures.md": Reader(TUTORIAL),
    "docs/guide/over-time.md#Ask a release": Reader(SPECIFICATION, released=True),
    "docs/guide/over-time.md#Combine releases": Reader(TUTORIAL, released=True),
    "docs/guide/over-time.md#Release every month": Reader(finds=three_months),
    "docs/guide/other-programs.md": Reader(TUTORIAL, released=True, finds=margins_drawn),
    "docs/guide/people-and-data.md": Reader(SPECIFICATION),
    "docs/guide/rows.md": Reader(TUTORIAL, released=True),
    "docs/guide/tables.md": Reader(TUTORIAL),
    "docs/guide/whole-numbers.md": Reader(TUTORIAL),
    "docs/reference/cli.md": Reader(SPECIFICATION, before={"hdmm release people.toml --resume": stopped_release}),
    "docs/reference/data.md": Reader(TUTORIAL, has=sources),
    "docs/reference/ledger.md": Reader(before={"import hdmm": restored_ledger, "Ledger.adopt(": lost_head}),
    "docs/reference/spec.md": Reader(has=frame),
    "docs/tutorial.md": Reader(finds=tables_of_the_tutorial),
    ADULT: Reader(has=adult_files, finds=all_adults),
}
SLOW = {ADULT}


def played() -> list[Any]:
    """The pages that have blocks, and sections with readers of their own."""
    names = [page.relative_to(ROOT).as_posix() for page in PAGES if blocks_of(page)]
    names = [name for name in names if read_by(name)] + [name for name in READERS if "#" in name]
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [], id=name) for name in names]


def read_by(name: str) -> list[Block]:
    """The blocks of a section, or those of a page outside the sections that have readers of their own."""
    page, _, section = name.partition("#")
    own = {section} if section else {key.partition("#")[2] for key in READERS if key.startswith(f"{page}#")}
    return [block for block in blocks_of(ROOT / page) if (block.section in own) == bool(section)]


def sit_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without colours, and short searches."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(hdmm, "optimize", partial(hdmm.optimize, time_limit=1, restarts=1))


@pytest.mark.parametrize("name", played())
def test_a_page_runs_as_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sit_down(monkeypatch)
    without_search(monkeypatch)
    page, reader = ROOT / name.partition("#")[0], READERS.get(name, Reader())
    text = page.read_text(encoding="utf-8")

    def asked(question: str) -> bool:
        assert question in text, f"{name} does not show the question {question!r}."
        return True

    monkeypatch.setattr(click, "confirm", asked)
    play = Play(page, capsys, reader.has())
    if reader.goes_on_from:
        whole = whole_specification(reader.goes_on_from)
        runs = any(block.kind == "sh" for block in read_by(name))
        assert not runs or f"{Path(reader.goes_on_from).name})" in text, f"{name} links to no specification."
        play.specification = whole.name
        Path(whole.name).write_text(hurried(whole.text))
        made_up(Path(whole.name))
    if reader.released:
        assert run(["release", play.specification, "--yes"]) == 0
    blocks = read_by(name)
    for block in blocks:
        if block.kind == "csv":
            play.write(block)  # files are there before the parts of a specification that name them
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.kind == "sh" or (block.page, block.first_line) not in NOT_RUN:
            fails = following is not None and following.text.startswith("error:")
            play_block(play, block, reader, monkeypatch, fails=fails)
    reader.finds()


def play_block(play: Play, block: Block, reader: Reader, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    for beginning, hook in reader.before.items():
        if block.text.startswith(beginning):
            hook(monkeypatch)
    match block.kind:
        case "toml" | "r" if block.name:
            play.write(block)
        case "toml":
            play.merge(block)
        case "python":
            exec(block.text, play.names)
        case "sh":
            lines = list(commands(block))
            for command in lines:
                if (block.page, command) in NOT_RUN:
                    continue
                play.command(block, command)
                wanted = fails and command == lines[-1]
                assert (play.code != 0) == wanted, f"{block.place}: {command} ends with {play.code}: {play.printed}"
        case "text":
            play.shown(block)
        case "csv":
            pass
        case _:
            raise AssertionError(
                f"{block.place} has no language by which it could be run: sh, text, toml, csv, python."
            )


@pytest.mark.parametrize(("page", "line"), NOT_RUN)
def test_what_is_not_run_is_still_there(page: str, line: str) -> None:
    blocks = blocks_of(ROOT / page)
    assert any(line in commands(block) if block.kind == "sh" else line == block.first_line for block in blocks), (
        f"{page} does not have {line!r} any more. Remove it from NOT_RUN."
    )


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_options_exist(page: Path) -> None:
    """Of every command in the text and in blocks, also in synopses."""
    spans = re.findall(r"`(hdmm [^`]+)`", page.read_text(encoding="utf-8"))
    lines = [line for block in blocks_of(page) for line in block.text.splitlines() if line.startswith("hdmm ")]
    for span in spans + lines:
        name, *words = re.split(r"[\s\[\]|=]+", span.removeprefix("hdmm "))
        if name.startswith("--") or not re.fullmatch(r"[a-z]+", name):
            continue
        command = app.commands.get(name)
        assert command is not None, f"{page.name} has {span!r}; there is no such command."
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, f"{page.name}: {span}"


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for name, command in app.commands.items():
        assert re.search(rf"^hdmm {name}\b", text, re.MULTILINE), f"The page lacks hdmm {name}."
        options = {opt for parameter in command.params for opt in parameter.opts if opt.startswith("--")}
        missing = {option for option in options if not re.search(rf"{option}(?![\w-])", text)}
        assert not missing, f"The page lacks {missing} of hdmm {name}."
