"""The questions of hdmm init in a terminal: names, values and tables, each asked again until the answer is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from hdmm.apps.cli.output import Output
from hdmm.apps.scaffold.dictionary import DescribedColumn, written_values
from hdmm.apps.scaffold.start import FirstChoices
from hdmm.base.exceptions import DomainError, HdmmError
from hdmm.base.hints import did_you_mean
from hdmm.data.engines.address import without_password
from hdmm.describe.domain import Domain
from hdmm.describe.values import Values

T = TypeVar("T")

_VALUES = "M|F, 0..114, 0..100/5 (in steps), bins 0|10|50, or true|false"


def ask_start(out: Output) -> tuple[list[DescribedColumn], FirstChoices]:
    """What a specification is to say, asked from its beginning. Nothing is read."""
    out.say(
        "Answer from public knowledge, never from the data: that a value occurs already says something about a person.",
        "Enter takes what is in brackets, or ends a list. Ctrl-C writes nothing.",
        "",
    )
    source: str = click.prompt("The data: a file, a folder or a database", default="people.csv")
    dataset: str = click.prompt("A name for these people, which their budget belongs to", default="people-2026")
    out.say("", f"Columns to count by, and the values each can hold: {_VALUES}.")
    columns: list[DescribedColumn] = []
    while name := _text("Column" if not columns else "Next column"):
        if any(column.name == name for column in columns):
            out.say(f"{name} is there already.", style="yellow")
            continue
        values = _answer(f"Values of {name}", lambda text, name=name: _values(name, text), out)
        if values is not None:
            columns.append(DescribedColumn(name, values))
    return columns, FirstChoices(without_password(source, hidden=""), None, dataset, ask_tables(columns, out))


def ask_values(columns: Sequence[DescribedColumn], out: Output) -> list[DescribedColumn]:
    """The columns, with values asked for where nothing declares them; a column without an answer stays undeclared."""
    if any(column.values is None for column in columns):
        out.say(f"Which values can these columns hold? {_VALUES}. Enter leaves a column out.", "")
    found: list[DescribedColumn] = []
    for column in columns:
        if column.values is None:
            kind = f" ({column.kind})" if column.kind else ""
            asked = f"Values of {column.name}{kind}"
            values = _answer(asked, lambda text, name=column.name: _values(name, text), out)
            found.append(replace(column, values=values))
        else:
            found.append(column)
    return found


def ask_tables(columns: Sequence[DescribedColumn], out: Output) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that tables are by; none for the usual tables."""
    known = {column.name: None for column in columns if column.values is not None}
    if not known:
        return ()
    example = ",".join(list(known)[:2])
    out.say("", f"Tables: columns that are counted together, such as {example}. Enter at once takes two to start from.")
    found: list[tuple[str, ...]] = []
    while names := _answer("Table" if not found else "Next table", lambda text: _names(text, known), out):
        found.append(names)
    return tuple(dict.fromkeys(found))


def _answer(question: str, read: Callable[[str], T], out: Output) -> T | None:
    """What an answer says, asked again until it says something; None for no answer."""
    while text := _text(question):
        try:
            return read(text)
        except HdmmError as wrong:
            out.say(str(wrong), style="yellow")
    return None


def _text(question: str) -> str:
    answer: str = click.prompt(question, default="", show_default=False)
    return answer.strip()


def _values(name: str, text: str) -> Values:
    """The values that an answer writes, by the way it is written."""
    word, _, rest = text.partition(" ")
    if word.lower() == "bins":
        found = written_values("bins", rest)
    elif text.lower().replace(" ", "") in ("true|false", "false|true", "boolean"):
        found = written_values("boolean", "")
    else:
        found = written_values("integers" if ".." in text else "labels", text)
    if found is None:
        raise DomainError(f"{text[:60]!r} is no list of values. Write {_VALUES}.")
    Domain({name: found})
    return found


def _names(text: str, known: Mapping[str, None]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise DomainError(f"{name!r} is not a column; there are {', '.join(known)}.{did_you_mean(name, known)}")
    return names
