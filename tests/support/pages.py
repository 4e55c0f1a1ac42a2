"""The blocks of a page, and what a reader does with them: write files, run commands, compare what is printed."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomlkit

import hdmm
from hdmm.apps.cli import run

ROOT = Path(__file__).parents[2]
_BY_THE_SHELL = ("cp", "mkdir", "Rscript")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    section: str  # the heading of second level above it
    line: int
    kind: str
    name: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0].rstrip()


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in order, without those that are doctests; indented as in a list, too."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    found = re.finditer(r"^## ([^\n]*)$|^( *)```(\S*) ?(\S*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    blocks, section = list[Block](), ""
    for m in found:
        if m[1] is not None:
            section = m[1]
            continue
        line, body = text.count("\n", 0, m.start()) + 1, re.sub(f"^{m[2]}", "", m[5], flags=re.MULTILINE)
        blocks.append(Block(name, section, line, m[3], m[4], body))
    return [block for block in blocks if ">>>" not in block.text]


def commands(block: Block) -> Iterator[str]:
    """The commands of a block of `sh`, without comments; a line that ends in \\ goes on."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield re.sub(r"\s+# .*$", "", line)


@dataclass
class Play:
    """A page that is being played."""

    page: Path
    capsys: pytest.CaptureFixture[str]
    names: dict[str, Any]
    specification: str = ""
    printed: str = ""
    code: int = 0

    def write(self, block: Block) -> None:
        assert block.name in self.page.read_text().replace(f"```{block.kind} {block.name}", ""), (
            f"{block.place} is the file {block.name}, but the page does not say so."
        )
        text = hurried(block.text) if block.kind == "toml" else block.text
        Path(block.name).write_text(text)
        if block.kind == "toml":
            self.specification = block.name

    def merge(self, block: Block) -> None:
        """Put a part into the specification: its keys take the place of those there, lists and [domain] as a whole."""
        assert self.specification, f"{block.place} is a part of a specification; say of which, or give it a file name."
        whole, parts = tomlkit.parse(Path(self.specification).read_text()), tomlkit.parse(block.text)
        if "domain" in parts:
            whole["table"] = [{"name": "each", "marginals": 1}]  # those that are there are of another domain
        for key, part in parts.items():
            if key in ("data", "output"):
                whole.setdefault(key, {}).update(part)
            else:
                whole[key] = part
        Path(self.specification).write_text(tomlkit.dumps(whole))
        if "://" in whole["data"]["source"]:
            hdmm.load_spec(self.specification)  # there is no server
        else:
            made_up(Path(self.specification))
            assert run(["check", self.specification, "--quiet"]) == 0, f"{block.place}: {self.capsys.readouterr().err}"

    def command(self, block: Block, command: str) -> None:
        first, *arguments = shlex.split(command)
        if first == "Rscript" and shutil.which(first) is None:
            pytest.skip("no Rscript on the PATH: install R (Debian: apt install r-base-core) to run the example in R")
        if first in _BY_THE_SHELL:
            subprocess.run(["sh", "-ec", command], check=True)
            return
        assert first == "hdmm", f"{block.place}: {command!r} is neither run nor listed as not run."
        self.capsys.readouterr()
        self.code = run(arguments)
        printed = self.capsys.readouterr()
        self.printed = printed.out + printed.err
        if arguments[0] == "init":
            Path(arguments[1]).write_text(hurried(Path(arguments[1]).read_text()))

    def shown(self, block: Block) -> None:
        """The printed text is the shown one, up to its numbers and line breaks."""
        at = 0
        there = masked(self.printed)
        for part in re.split(r"^…$", block.text, flags=re.MULTILINE):
            found = there.find(masked(part), at)
            assert found >= 0, f"{block.place} shows\n{part}\nbut what is printed is\n{self.printed}"
            at = found + len(masked(part))


def masked(text: str) -> str:
    """Text without the numbers that noise changes, and with one space for any."""
    return " ".join(re.sub(r"[−-]?\d[\d,]*(\.\d+)?|good|fair|rough|may be 0", "#", text).split())


def hurried(text: str) -> str:
    """A specification with a short search, which changes margins and nothing else, also on a machine that is busy."""
    short = "time_limit = 100\nrestarts = 1"
    return (
        re.sub(r"^time_limit = \d+", short, text, flags=re.MULTILINE)
        if "[plan]" in text
        else f"{text}\n[plan]\n{short}\n"
    )


def made_up(specification: Path, file: str | None = None, rows: int = 400) -> None:
    """A file of made-up rows that fit a specification, where it expects them or elsewhere."""
    content = tomllib.loads(specification.read_text())
    draw = random.Random(0)

    def value(declared: Any) -> object:
        match declared:
            case int():
                return draw.randrange(declared)
            case [*labels] | {"labels": [*labels]}:
                return draw.choice(labels)
            case {"first": first, "last": last}:
                return draw.randint(first, last)
            case {"bins": [first, *_, last]}:
                return draw.randrange(first, last)
            case {"low": low, "high": high}:
                return draw.randint(low, high)
            case {"levels": str(file)}:
                return draw.choice([line.partition(",")[0] for line in Path(file).read_text().splitlines()[1:]])
            case _:
                raise AssertionError(f"No values are made up for {declared}.")

    declared = content["domain"] | content.get("amounts", {})
    frame = pd.DataFrame({name: [value(d) for _ in range(rows)] for name, d in declared.items()})
    if "id" in content["data"]:
        frame[content["data"]["id"]] = range(rows)
    path = Path(file or content["data"]["source"])
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def whole_specification(page: str, name: str = "") -> Block:
    """The specification of this name that a page shows whole, or the first one."""
    found = (block for block in blocks_of(ROOT / page) if block.kind == "toml" and block.name)
    return next(block for block in found if name in ("", block.name))
