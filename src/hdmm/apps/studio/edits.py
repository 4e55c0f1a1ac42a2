"""Edits of a specification's text that leave comments, order and every other line as they are."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Literal, TypeAlias, cast

import msgspec
import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Item, Table, Whitespace

from hdmm.base.exceptions import FileError
from hdmm.io.strict_records import StrictRecord
from hdmm.publication.spec.keys import SpecLabel

_BREAKS = re.compile(r"\r\n?|\n")
FORM_KEYS = (
    *("name", "title", "sql", "marginals", "ranges", "sum", "mean", "quantiles", "percent", "weight", "margin"),
    "expected",
)
_BOM = b"\xef\xbb\xbf"


class TableForm(StrictRecord, frozen=True, kw_only=True):
    """A [[table]] as the page has it. What is None is left out of the file."""

    name: str
    title: str | None = None
    sql: str | None = None
    marginals: int | list[int | list[str]] | None = None
    ranges: list[str] | None = None
    sum: str | list[str] | None = None
    mean: str | list[str] | None = None
    quantiles: list[str] | dict[str, list[float]] | None = None
    percent: str | None = None
    weight: float | None = None
    margin: float | str | None = None
    expected: float | str | None = None


class AddTable(StrictRecord, frozen=True, tag="add"):
    """One more table, after the others."""

    table: TableForm


class ChangeTable(StrictRecord, frozen=True, tag="change"):
    """The table of this name, as the form has it; keys that the form does not know stay."""

    name: str
    table: TableForm


class RemoveTable(StrictRecord, frozen=True, tag="remove"):
    """All tables but this one."""

    name: str


class SetColumn(StrictRecord, frozen=True, tag="column"):
    """An attribute of [domain], or an amount of [amounts]: its name, and how it is declared; None removes it.

    `name` is what it was called before; None adds one. The declaration is a list of values or a table of keys, as the
    form has them, or text in TOML.
    """

    part: Literal["domain", "amounts"]
    name: str | None
    called: str
    declaration: str | list[SpecLabel] | dict[str, Any] | None


class SetGoals(StrictRecord, frozen=True, tag="goals"):
    """The budget (ε, ρ or μ as exact text), and the margins of tables by name; None takes a margin away."""

    budget: str | None
    margins: dict[str, float | None]


Edit: TypeAlias = AddTable | ChangeTable | RemoveTable | SetColumn | SetGoals


def edited(data: bytes, edit: Edit) -> bytes:
    """The bytes of a specification after an edit. Whether they make sense is for the reader of specifications to say.

    >>> text = b'[[table]]\\nname = "P1" # the first\\nmarginals = 1\\n'
    >>> print(edited(text, ChangeTable("P1", TableForm(name="P2", marginals=1))).decode(), end="")
    [[table]]
    name = "P2" # the first
    marginals = 1
    """
    text = data.removeprefix(_BOM).decode()
    plain = text.replace("\r\n", "\n")
    windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    document = _parsed(plain if windows else text)
    match edit:
        case AddTable(table=form):
            _add(document, form)
        case ChangeTable(name=name, table=form):
            tables = _tables(document)
            _fill(tables[_place(tables, name)], form)
        case RemoveTable(name=name):
            _remove(document, name)
        case SetColumn():
            _set_column(document, edit)
        case SetGoals():
            _set_goals(document, edit)
    if _asks_margins(edit):
        _leave_objective_out(document)
    made = tomlkit.dumps(document)
    made = made.replace("\n", "\r\n") if windows else made
    return (_BOM if data.startswith(_BOM) else b"") + made.encode()


def table_texts(data: bytes) -> list[dict[str, Any]]:
    """The [[table]]s of a file that can be read, as they are written: variables are not replaced."""
    return cast(list[dict[str, Any]], tomllib.loads(data.removeprefix(_BOM).decode().replace("\r\n", "\n"))["table"])


def _asks_margins(edit: Edit) -> bool:
    match edit:
        case AddTable(table=form) | ChangeTable(table=form):
            return form.margin is not None
        case SetGoals(margins=margins):
            return any(margin is not None for margin in margins.values())
        case RemoveTable() | SetColumn():
            return False


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        raise FileError("The file is not TOML. Correct it in an editor, and reload the page.") from None
    if tomlkit.dumps(document) != text:
        raise FileError("The file cannot be edited here without changing other lines of it. Use an editor.")
    return document


def _tables(document: tomlkit.TOMLDocument) -> AoT:
    found: object = document.get("table")
    if not isinstance(found, AoT):
        raise FileError("The tables are not written as one row of [[table]]s. Use an editor to change them.")
    return found


def _place(tables: AoT, name: str) -> int:
    for i, table in enumerate(tables):
        if table.get("name") == name:
            return i
    raise FileError(f"There is no table {name!r} in the file. Reload the page to see those that there are.")


def _add(document: tomlkit.TOMLDocument, form: TableForm) -> None:
    tables = _tables(document)
    last = tables[-1].value
    tail = _cut_tail(last)  # comments on what follows the tables stay before it
    if last.body and not last.as_string().endswith("\n"):
        last.add(tomlkit.ws("\n"))
    last.add(tomlkit.nl())
    made = tomlkit.table()
    _fill(made, form)
    for item in tail:
        made.value.add(item)
    tables.append(made)


def _remove(document: tomlkit.TOMLDocument, name: str) -> None:
    tables = _tables(document)
    if len(tables) == 1:
        raise FileError("A specification needs at least one table. Add another one before you remove this one.")
    i = _place(tables, name)
    tail = _cut_tail(tables[i].value, after_blank=False)  # a comment may be on what follows though no line is blank
    before = tables[i - 1].value if i else _before(document)
    if before is not None:
        _cut_blank(before)
        for item in tail:
            before.add(item)
    del tables[i]


def _before(document: tomlkit.TOMLDocument) -> Container | None:
    """The part of the file before the first table."""
    items = [item for _, item in document.body]
    at = next(k for k, item in enumerate(items) if isinstance(item, AoT))
    previous = items[at - 1] if at else None
    return previous.value if isinstance(previous, Table) else None


def _cut_tail(body: Container, *, after_blank: bool = True) -> list[Item]:
    """The blank lines and comments after the last key of a table, or from the first blank line on; they are cut off."""
    start = len(body.body)
    while start and body.body[start - 1][0] is None:
        start -= 1
    while after_blank and start < len(body.body) and not isinstance(body.body[start][1], Whitespace):
        start += 1
    tail = [item for _, item in body.body[start:]]
    del body.body[start:]
    return tail


def _cut_blank(body: Container) -> None:
    """Take away the blank lines at the end of a table, because those of the removed one take their place."""
    while body.body and isinstance(body.body[-1][1], Whitespace):
        del body.body[-1]


def _fill(table: Table, form: TableForm) -> None:
    _put(table, {key: getattr(form, key) for key in FORM_KEYS})


def _put(table: Table, values: dict[str, object]) -> None:
    """Write keys into a table, or take away those that are None; a new one stands before what follows the table."""
    tail = _cut_tail(table.value)
    for key, value in values.items():
        if value is None:
            table.pop(key, None)
        elif not _same(key, table.unwrap().get(key), value):
            table[key] = _written(key, value)
    for item in tail:
        table.value.add(item)


def _same(key: str, there: object, value: object) -> bool:
    """Whether a key need not be written again. A form ends lines as it likes."""
    if key == "sql" and isinstance(there, str):
        return there.strip() == _BREAKS.sub("\n", str(value)).strip()
    return there == value


def _written(key: str, value: object) -> Any:
    if key == "sql":
        text = _BREAKS.sub("\n", str(value)).strip()
        return _block(text) if "\n" in text else tomlkit.string(text)
    return int(value) if isinstance(value, float) and value.is_integer() and value < 2**53 else value


def _block(text: str) -> Item:
    """A text of several lines in three quotes, which begins on a line of its own."""
    escaped = text.replace("\\", "\\\\").replace('"""', '""\\"')
    return tomlkit.value(f'"""\n{escaped}\n"""')


def _set_goals(document: tomlkit.TOMLDocument, goals: SetGoals) -> None:
    if goals.budget is not None:
        privacy = cast(Table, document["privacy"])
        key = next(key for key in ("rho", "mu", "epsilon") if key in privacy)
        if str(privacy[key]) != goals.budget:
            privacy[key] = goals.budget  # in quotes, because it is exact
    for name, margin in goals.margins.items():
        tables = _tables(document)
        _put(tables[_place(tables, name)], {"margin": margin})


def _set_column(document: tomlkit.TOMLDocument, edit: SetColumn) -> None:
    part = document.get(edit.part)
    if part is None and edit.part == "amounts":
        document.add("amounts", part := tomlkit.table())
    if not isinstance(part, Table):
        raise FileError(f"[{edit.part}] is not written as a table of its own. Use an editor to change it.")
    taken = edit.called in part and edit.called != edit.name
    if taken and edit.declaration is not None:
        raise FileError(f"There is {edit.called!r} in [{edit.part}] already. Choose another name.")
    if edit.name is not None and edit.name not in part:
        raise FileError(f"There is no {edit.name!r} in [{edit.part}] any more. Reload the page to see what there is.")
    if edit.declaration is None:
        part.pop(edit.name or edit.called, None)
        if not part and edit.part == "amounts":
            document.pop("amounts")
        return
    value = _declaration(edit.declaration, part.get(edit.name or edit.called))
    if edit.name == edit.called:
        part[edit.called] = value
        return
    tail = _cut_tail(part.value)
    if edit.name is not None:
        part.pop(edit.name)
    part[edit.called] = value
    for item in tail:
        part.value.add(item)


def _declaration(given: str | list[SpecLabel] | dict[str, Any], there: object) -> Item:
    """One value of TOML, with what is declared already as it is written; FileError if a text is not one."""
    if not isinstance(given, str):
        return _inline(given, there)
    try:
        document = tomlkit.parse(f"value = {_BREAKS.sub(' ', given).strip()}\n")
    except TOMLKitError:
        document = {}
    if set(document) != {"value"}:
        raise FileError(
            'This is not a declaration. Write ["M", "F"], { first = 0, last = 114, groups = { decade = 10 } } or '
            "{ bins = [0, 10, 50] }; or of an amount { low = 0, high = 5_000 }."
        )
    return cast(Item, document["value"])


def _inline(given: object, there: object) -> Item:
    """A value on one line, the parts of it that do not change as they are written, such as 200_000."""
    if isinstance(there, Item) and json.dumps(there.unwrap()) == json.dumps(given):
        return there
    if not isinstance(given, dict):
        return tomlkit.item(given)
    made = tomlkit.inline_table()
    for key, value in cast(dict[str, object], given).items():
        made.append(key, _inline(value, there.get(key) if isinstance(there, InlineTable) else None))
    return made


def declarations(data: bytes) -> list[dict[str, Any]]:
    """The attributes and amounts of a file that can be read, each with its declaration as it is written, and read."""
    document = tomlkit.parse(data.removeprefix(_BOM).decode().replace("\r\n", "\n"))
    found: list[dict[str, Any]] = []
    for part in ("domain", "amounts"):
        held = document.get(part)
        if isinstance(held, Table):
            for name, value in held.items():
                if isinstance(value, Item) and not isinstance(value, Table):
                    text = " ".join(value.as_string().split())
                    found.append({"part": part, "name": name, "declaration": text, "keys": value.unwrap()})
    return found


def _leave_objective_out(document: tomlkit.TOMLDocument) -> None:
    """Margins are what a plan aims at, and a specification says so in one way only."""
    plan = document.get("plan")
    if isinstance(plan, Table):
        plan.pop("objective", None)


def decoded(body: bytes, form: Any) -> Any:
    """A request as a record; FileError if it is not one."""
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FileError("The studio does not understand this request. Reload the page and try again.") from None
