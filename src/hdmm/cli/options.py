"""Options that many commands share, and the question that some ask before they go on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hdmm.cli.output import ERROR, INTERRUPTED, Output

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


def common(command: Command) -> Command:
    """The command with --json and --quiet."""
    command = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def agreed(question: str, matter: str, out: Output, *, yes: bool) -> None:
    """Ask unless the answer was given; the command ends here if the user does not agree."""
    if yes:
        return
    if not sys.stdin.isatty() or not out.speaks:
        raise click.UsageError(f"{matter} Add --yes if nobody can be asked.")
    try:
        agreed, code = click.confirm(question), ERROR
    except click.Abort:
        agreed, code = False, INTERRUPTED
    if not agreed:
        out.say("Nothing was done. Nothing was spent.")
        raise click.exceptions.Exit(code)
