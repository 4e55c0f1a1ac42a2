"""Options that many commands share, and the question that some ask before they go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, final

import click

from hdmm.apps.cli.output import ERROR, INTERRUPTED, Output
from hdmm.base.hints import decimal_point
from hdmm.publication.spec import Spec, load_spec
from hdmm.publication.spec.document import account_variables
from hdmm.publication.spec.origin import open_data

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


@final
class ConfidenceLevel(click.FloatRange):
    """A confidence level, which is between 0 and 1."""

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if comma := decimal_point(value):
            self.fail(f"{value!r} is not a number.{comma}", param, ctx)
        return super().convert(value, param, ctx)


def common(command: Command) -> Command:
    """The command with --json and --quiet, which reach it as one argument `out`."""

    @wraps(command)
    def called(*args: Any, as_json: bool, quiet: bool, **more: Any) -> Any:
        return command(*args, out=Output(as_json, quiet), **more)

    added: Any = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")(called)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(added)


@final
@dataclass(frozen=True, slots=True)
class SpecOverrides:
    """What a command line gives in place of values of the specification."""

    variables: dict[str, str]
    source: str | None
    output: Path | None
    only: tuple[str, ...] = ()

    def load(self, path: Path) -> Spec:
        """The specification in a file, with what was given."""
        found = load_spec(path, variables=self.variables, source=self.source, output=self.output)
        return found.only(self.only) if self.only else found

    def load_account(self, path: Path) -> Spec:
        """The same for a command about the account alone: variables that decide nothing about it need no value."""
        given = self
        with suppress(OSError):  # which loading explains
            given = replace(self, variables=account_variables(path.read_bytes(), self.variables))
        return given.load_without_data(path)

    def load_without_data(self, path: Path) -> Spec:
        """The same for a command that needs no data: a source that was given must still have the columns."""
        found = self.load(path)
        if self.source is not None:
            open_data(found)
        return found


def specified(command: Command) -> Command:
    """The command with --set, --source, --output and --only, which reach it as one argument `given`."""

    @wraps(command)
    def called(
        *args: Any,
        variables: Mapping[str, str] | tuple[()],
        source: str | None,
        output: Path | None,
        only: tuple[str, ...],
        **more: Any,
    ) -> Any:
        # A command that another one invokes, as demo does, gets () for no variables.
        return command(*args, given=SpecOverrides(dict(variables), source, output, only), **more)

    added: Any = click.option(
        "--only", multiple=True, metavar="TABLE", help="This table of the specification alone. May be repeated."
    )(called)
    added = click.option("--output", type=FILE, help="Publish into this folder, not the specification's.")(added)
    added = click.option("--source", help="Read this file, folder or database, not the specification's.")(added)
    return set_variables(added)


def set_variables(command: Command) -> Command:
    """The command with --set, which reaches it as `variables`."""
    return click.option(
        "--set",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_variables,
        help="The value of ${NAME} in the specification. May be repeated.",
    )(command)


def _variables(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """The values of --set NAME=VALUE, by name; whether they are used is checked later."""
    return by_name((text.partition("=") for text in given), ("variable", "value"), "MONTH=2026-01")


def by_name(given: Iterable[tuple[str, str, str]], words: tuple[str, str], example: str) -> dict[str, str]:
    """The values of an option NAME=VALUE that may be repeated, cut at their =; each name has one. `words` name both."""
    found: dict[str, str] = {}
    for name, equals, value in given:
        if not equals or not name:
            # The text itself is not repeated, because it may hold a password.
            raise click.BadParameter(f"This option names no {' and '.join(words)}. Write it as {example}.")
        if name in found:
            raise click.BadParameter(f"There are two {words[1]}s for {name!r}. Give one.")
        found[name] = value
    return found


def confirm(question: str, matter: str, out: Output, *, yes: bool) -> None:
    """Ask unless the answer was given; end the command if the user does not agree."""
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
