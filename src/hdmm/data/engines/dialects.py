"""What engines call the few functions that counting needs and Ibis does not offer: bytes and lengths of text, a hash.

Text is compared by its bytes, because a database may take 'm' for 'M' (a collation) and answer for both with either.
Its length is asked for before anything else, because patterns fail on very long text (security I9).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from hdmm.base.lazy import Lazy
from hdmm.describe.entries import LONGEST_TEXT

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

Expression: TypeAlias = Any  # of Ibis: what it offers depends on the type of a column, which is known at run time only

_ALL_ROWS = 2**62
_HEX_OF_INT64 = 15  # digits
KNOWN = ("duckdb", "postgres", "pyspark")  # engines whose text and hashes are known to be exact: tests run them


def bytes_of(engine: str, text: Expression) -> Expression:
    """The UTF-8 bytes of text; other engines than the known ones compare text as they will."""
    match engine:
        case "duckdb":
            return _call("encode", ("string",), "binary")(text)
        case "postgres":
            return _call("convert_to", ("string", "string"), "binary")(text, "UTF8")
        case "pyspark":
            return text.cast("binary")
        case _:
            return text


def text_of(engine: str, raw: Expression) -> Expression:
    """The text whose UTF-8 bytes these are."""
    match engine:
        case "duckdb":
            return _call("decode", ("binary",), "string")(raw)
        case "postgres":
            return _call("convert_from", ("binary", "string"), "string")(raw, "UTF8")
        case _:
            return raw.cast("string")


def readable(engine: str, column: Expression) -> Expression:
    """Text and bytes as they are, and NULL if they are longer than LONGEST_TEXT or are not UTF-8.

    The length is known without reading the text. PostgreSQL, which can keep a gigabyte of it elsewhere, does not fetch
    it. Only Spark holds text that is not UTF-8. Engines that are not known compare text with labels alone, and all
    labels are shorter.
    """
    kind = column.type()
    if engine not in KNOWN or not (kind.is_string() or kind.is_binary()):
        return column
    text = kind.is_string()
    length = _call("strlen" if engine == "duckdb" and text else "octet_length", (str(kind).strip("!"),), "int64")
    if engine == "postgres" and text:  # without padding, which is no part of it; and no enumeration
        column = _call("text", ("string",), "string")(column)
    valid = _call("try_validate_utf8", ("string",), "string")(column) if engine == "pyspark" and text else column
    return ibis.cases((length(column) <= LONGEST_TEXT, valid), else_=ibis.null(kind))


def sha256(engine: str, text: Expression) -> Expression:
    """The first 60 bits or more of the SHA-256 of text, in a form that can be sorted."""
    match engine:
        case "duckdb":  # which must sort in memory: an integer takes a quarter of what the text takes
            digest: Expression = _call("sha256", ("string",), "string")(text)
            return (ibis.literal("0x") + digest.substr(0, _HEX_OF_INT64)).cast("int64")
        case "postgres":
            return _call("sha256", ("binary",), "binary")(bytes_of(engine, text))
        case "pyspark":
            digest = _call("sha2", ("string", "int32"), "string")(text, 256)
            return digest.substr(0, 16)
        case _:
            raise ValueError(engine)


def digest_in_duckdb(text: Expression) -> Expression:
    """A number of 128 bits that stands for text of any length, if what it begins with is secret."""
    return _call("md5_number", ("string",), "decimal(38, 0)")(text)  # UHUGEINT, for which Ibis has no name


def least_in_duckdb(column: Expression, by: Expression, k: int) -> Expression:
    """The column's values in the k rows of a group with the least `by`. A group takes memory for k rows at most."""
    signature = (("int64", "int64", "int64"), "array<int64>")
    found = cast("Any", ibis.udf.agg.builtin)(lambda a, b, n: None, name="arg_min", signature=signature)  # pyright: ignore[reportUnknownLambdaType]
    return found(column, by, k)


def plain_text(text: Expression) -> Expression:
    """Text of PostgreSQL without the collation of its column, which patterns may not accept, and without padding."""
    return text_of("postgres", bytes_of("postgres", text))


def shortest_decimal(number: Expression) -> Expression:
    """A numeric of PostgreSQL without zeros at its end."""
    return _call("trim_scale", ("decimal",), "decimal")(number)


def setting(name: str) -> Expression:
    """A setting of the session in PostgreSQL."""
    return _call("current_setting", ("string",), "string")(name)


def full_match(engine: str, pattern: str) -> str:
    """A pattern that matches nothing but whole texts. In Java, $ also matches before the last line break."""
    return f"^{pattern}{'(?![^a]|a)' if engine == 'pyspark' else '$'}"


def computed(engine: str, rows: ibis.Table, **columns: Expression) -> ibis.Table:
    """The table with more columns, each of which is computed once per row however often it is referred to.

    PostgreSQL would write a column out wherever it is used, which is exponential in the depth; a limit prevents it.
    """
    more = rows.mutate(**columns)
    return more.limit(_ALL_ROWS) if engine == "postgres" else more


@contextmanager
def written_plainly() -> Generator[None]:
    """Inside the block, Ibis leaves nested queries as they are: merging them takes it seconds, and engines do it."""
    before = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = before


def _call(name: str, inputs: tuple[str, ...], output: str) -> Callable[..., Expression]:
    empty = (lambda a: None) if len(inputs) == 1 else (lambda a, b: None)  # pyright: ignore[reportUnknownLambdaType]
    return cast("Any", ibis.udf.scalar.builtin)(empty, name=name, signature=(inputs, output))
