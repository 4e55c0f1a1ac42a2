"""What a database declares about a table: the types of its columns, enumerations, and CHECK constraints.

Only catalogues are asked, never the table: no privilege to read its rows is needed, and none is used. A constraint is
text that somebody wrote; it is parsed and never run, and what is not understood is left to the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.expressions.core import Expr

from hdmm.apps.scaffold.dictionary import DescribedColumn, described_column
from hdmm.base.exceptions import DataError
from hdmm.base.hints import did_you_mean, first_of
from hdmm.base.lazy import Lazy
from hdmm.data.engines.address import why_closed
from hdmm.data.engines.duckdb import open_duckdb
from hdmm.data.sources.listing import require_readable_file

if TYPE_CHECKING:
    import duckdb
    import psycopg
else:
    duckdb, psycopg = Lazy("duckdb"), Lazy("psycopg")

_ENUM = re.compile(r"ENUM\((.*)\)", re.DOTALL)
_SIDES: dict[type[Expr], tuple[bool, int]] = {
    exp.GTE: (True, 0),
    exp.GT: (True, 1),
    exp.LTE: (False, 0),
    exp.LT: (False, -1),
}  # whether the constant is the least, and what the whole numbers begin or end after it
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
# A release finds tables in the schema in which DuckDB looks first; another schema may have one of the same name.
_DUCKDB_TABLES = (
    "SELECT table_name FROM duckdb_tables() "
    "WHERE (database_name, schema_name) = (current_database(), current_schema()) UNION ALL "
    "SELECT view_name FROM duckdb_views() WHERE (database_name, schema_name) = (current_database(), current_schema())"
)
_DUCKDB_COLUMNS = (
    "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
    "AND (database_name, schema_name) = (current_database(), current_schema()) ORDER BY column_index"
)
_DUCKDB_CHECKS = (
    "SELECT expression FROM duckdb_constraints() WHERE table_name = ? AND constraint_type = 'CHECK' "
    "AND (database_name, schema_name) = (current_database(), current_schema())"
)
_POSTGRES_TABLES = (
    "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_catalog.pg_table_is_visible(c.oid) "
    "AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
)
_POSTGRES_COLUMNS = (
    "SELECT a.attname, pg_catalog.format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE a.atttypid END, NULL), "
    "ARRAY(SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid IN (t.oid, t.typbasetype) "
    "ORDER BY e.enumsortorder)::text[], "
    "ARRAY(SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k "
    "WHERE k.contype = 'c' AND k.contypid = t.oid)::text[] "
    "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = pg_catalog.to_regclass(pg_catalog.quote_ident(%s)) AND a.attnum > 0 AND NOT a.attisdropped "
    "ORDER BY a.attnum"
)
_POSTGRES_CHECKS = (
    "SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k WHERE k.contype = 'c' AND "
    "k.conrelid = pg_catalog.to_regclass(pg_catalog.quote_ident(%s))"
)


def read_duckdb_catalogue(file: Path, table: str | None) -> tuple[tuple[DescribedColumn, ...], str]:
    """The columns of a table of a DuckDB database, by its catalogue, and the name of the table."""
    require_readable_file(file)
    try:
        with closing(open_duckdb(file)) as connection:
            name = _chosen(str(file), [each for (each,) in connection.execute(_DUCKDB_TABLES).fetchall()], table)
            columns = connection.execute(_DUCKDB_COLUMNS, [name]).fetchall()
            checks = connection.execute(_DUCKDB_CHECKS, [name]).fetchall()
    except duckdb.Error:
        raise DataError(
            f"{file} cannot be read as a DuckDB database. Check the path, and close the programs that write to it."
        ) from None
    found = {name.casefold(): each for name, each in _conditions((text for (text,) in checks), "duckdb").items()}
    described = (_column(each, kind, _labels(kind), found.get(each.casefold(), [])) for each, kind in columns)
    return tuple(described), name


def read_postgres_catalogue(url: str, table: str | None) -> tuple[tuple[DescribedColumn, ...], str]:
    """The same of a PostgreSQL database. Needs no privilege on the table."""
    try:
        opened = psycopg.connect(url)
    except ImportError:
        raise DataError("PostgreSQL needs its driver. Install it: pip install 'hdmm[postgres]'.") from None
    except Exception as wrong:
        raise DataError(f"The database cannot be opened: {why_closed(url, wrong)}") from None
    try:
        with closing(opened), opened.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            name = _chosen("The database", [each for (each,) in cursor.execute(_POSTGRES_TABLES).fetchall()], table)
            columns: Sequence[Any] = cursor.execute(_POSTGRES_COLUMNS, [name]).fetchall()
            checks = cursor.execute(_POSTGRES_CHECKS, [name]).fetchall()
    except psycopg.Error as wrong:
        raise DataError(
            f"The catalogue of the database cannot be read ({type(wrong).__name__}). Ask its owner, or give a data "
            "dictionary."
        ) from None
    found = _conditions((text for (text,) in checks), "postgres")
    described = (
        _column(each, kind, labels or None, [*found.get(each, []), *_conditions(own, "postgres").get("VALUE", [])])
        for each, kind, labels, own in columns
    )
    return tuple(described), name


def _chosen(place: str, tables: Sequence[str], asked: str | None) -> str:
    """The table that is asked for, or the only one."""
    if asked is not None and asked in tables:
        return asked
    if asked is None and len(tables) == 1:
        return tables[0]
    hint = "" if asked is None else did_you_mean(asked, tables)
    named = first_of(tables) or "none"
    what = "several tables" if asked is None else f"no table {asked!r}"
    raise DataError(f"{place} has {what}; its tables are {named}.{hint} Name one of them with --table.")


def _labels(kind: str) -> list[str] | None:
    """The values of an enumeration of DuckDB, which the name of its type lists."""
    found = _ENUM.fullmatch(kind)
    return None if found is None else [text.replace("''", "'") for text in _QUOTED.findall(found[1])]


def _column(name: str, kind: str, labels: Sequence[str] | None, conditions: Sequence[Expr]) -> DescribedColumn:
    """A column with the values that its type or the conditions on it alone allow."""
    low: int | None = None
    high: int | None = None
    listed: Sequence[object] | None = labels
    for condition in conditions:
        listed = listed or _listed(condition)
        for least, bound in _bounds(condition):
            if least:
                low = bound if low is None else max(low, bound)
            else:
                high = bound if high is None else min(high, bound)
    return described_column(name, listed, low, high, _ENUM.sub("ENUM", kind))


def _conditions(texts: Iterable[str], dialect: str) -> Mapping[str, list[Expr]]:
    """The conditions that CHECK constraints put on single columns, by column; VALUE is what a domain constrains."""
    found: dict[str, list[Expr]] = {}
    for text in texts:
        try:
            tree = _bare(sqlglot.parse_one(re.sub(r"^CHECK\s*|\s+NOT VALID$", "", text), dialect=dialect))
        except (SqlglotError, RecursionError):
            continue
        for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
            names = {column.name for column in part.find_all(exp.Column)}
            if len(names) == 1:
                found.setdefault(names.pop(), []).append(part)
    return found


def _bare(tree: Expr) -> Expr:
    """A condition without parentheses and conversions."""
    whole = exp.Paren(this=tree)
    for node in reversed(list(whole.find_all(exp.Paren, exp.Cast))):  # from inside out
        if node is not whole:
            node.replace(node.this)
    return whole.this


def _listed(condition: Expr) -> Sequence[object] | None:
    """The values of x IN (…), x = ANY (ARRAY[…]) or x = … OR x = …; None if there is anything else in it."""
    parts = list(condition.flatten()) if isinstance(condition, exp.Or) else [condition]
    if not all(isinstance(part, exp.In | exp.EQ) and isinstance(part.this, exp.Column) for part in parts):
        return None
    nodes: list[Expr] = []
    for part in parts:
        right = part.args.get("expression")
        nodes += (
            [*part.expressions] if right is None else right.this.expressions if isinstance(right, exp.Any) else [right]
        )
    values = [_constant(node) for node in nodes]
    return None if None in values else values


def _bounds(condition: Expr) -> list[tuple[bool, int]]:
    """(whether it is a lower bound, the whole number) for each comparison with a constant."""
    if isinstance(condition, exp.Between) and isinstance(condition.this, exp.Column):
        ends = [(True, condition.args["low"], 0), (False, condition.args["high"], 0)]
    else:
        least, more = _SIDES.get(type(condition), (None, 0))
        if least is None:
            return []
        if isinstance(condition.this, exp.Column):
            ends = [(least, condition.expression, more)]
        elif isinstance(condition.expression, exp.Column):
            ends = [(not least, condition.this, -more)]
        else:
            return []
    texts = [(least, str(_constant(node)), more) for least, node, more in ends]  # PostgreSQL writes -3 as '-3'
    return [(least, int(text) + more) for least, text, more in texts if re.fullmatch("-?[0-9]{1,18}", text)]


def _constant(node: Expr) -> str | int | None:
    """A text or a whole number; None for anything else."""
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return -inner if isinstance(inner, int) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name
    return int(node.name) if node.name.isdecimal() and len(node.name) < 19 else None
