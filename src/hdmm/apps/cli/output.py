"""What commands print: tables for people, JSON for programs, and errors as one line with an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hdmm.apps.facts import to_json
from hdmm.base.exceptions import BudgetError, HdmmError, LedgerError

ERROR, USAGE, BUDGET, LEDGER, INTERRUPTED = 1, 2, 3, 4, 130
_PLAIN_WIDTH = 120  # if no terminal says how wide it is


@final
@dataclass(frozen=True, slots=True)
class Output:
    """Where a command prints: text unless quiet, or one JSON object at its end."""

    as_json: bool
    quiet: bool

    @property
    def speaks(self) -> bool:
        """Whether text is printed."""
        return not (self.as_json or self.quiet)

    def say(self, *lines: str, style: str = "") -> None:
        """Print lines, in a colour where the terminal has colours."""
        if self.speaks:
            for line in lines:
                _console().print(escape(line), soft_wrap=True, highlight=False, style=style)

    def table(self, title: str, columns: list[str], rows: list[list[str]], *, texts: int = 1) -> None:
        """Print a table: the first `texts` columns are aligned left, the numbers right."""
        if not self.speaks:
            return
        self.say(title, style="bold")
        shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for i, column in enumerate(columns):
            shown.add_column(escape(column), justify="left" if i < texts else "right", overflow="fold")
        for row in rows:
            shown.add_row(*map(escape, row))
        _console().print(shown)

    def result(self, facts: Mapping[str, object]) -> None:
        """Print the result for programs."""
        if self.as_json:
            print(json.dumps(to_json(facts), ensure_ascii=False, allow_nan=False, indent=2))


def failed(wrong: HdmmError, *, as_json: bool) -> int:
    """Print an error and return the exit code that stands for it."""
    code = BUDGET if isinstance(wrong, BudgetError) else LEDGER if isinstance(wrong, LedgerError) else ERROR
    refuse(str(wrong), type(wrong).__name__, code, as_json=as_json)
    return code


def refuse(message: str, kind: str, code: int, *, as_json: bool) -> None:
    """Print an error to standard error."""
    if as_json:
        print(json.dumps({"error": message, "kind": kind, "exit": code}, ensure_ascii=False), file=sys.stderr)
    else:
        _marked("error", "bold red", message)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    _marked("warning", "yellow", message)


def _marked(word: str, style: str, message: str) -> None:
    """Print a message to standard error after a word, which is coloured on a terminal that has colours."""
    text = Text.assemble((f"{word}:", style), f" {printable(message)}")
    Console(stderr=True).print(text, soft_wrap=True)


def printable(text: str) -> str:
    """Text without the characters by which names could control a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def number(value: float | None) -> str:
    """An error in four digits; – if there is none."""
    return "–" if value is None else f"{value:,.4g}" if value < 10_000 else f"{float(f'{value:.4g}'):,.0f}"


def _console() -> Console:
    """Standard output as it is now; Rich handles NO_COLOR and output that is not a terminal."""
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal or "COLUMNS" in os.environ else _PLAIN_WIDTH)
