"""Dialect: what an engine calls the few functions that counting needs and Ibis does not offer.

Text is compared by its bytes, because a database may take 'm' for 'M' (a collation) and answer for both with either.
Its length is asked for before anything else, because patterns fail on very long text (security I9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

from hdmm.base.lazy import Lazy
from hdmm.describe.entries import LONGEST_TEXT

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

Expression: TypeAlias = Any  # of Ibis: what it offers depends on the type of a column, which is known at run time only
Rewrite: TypeAlias = Callable[[Expression], Expression]

ALL_ROWS = 2**62  # more than any engine counts


def unchanged(column: Expression) -> Expression:
    """The column itself."""
    return column


@final
@dataclass(frozen=True, slots=True)
class Dialect:
    """What an engine calls what Ibis does not offer. One that tests do not run has none: it may not be exact."""

    bytes_of: Rewrite  # the UTF-8 bytes of text
    text_of: Rewrite  # the text whose UTF-8 bytes these are
    digest: Rewrite  # the first 60 bits or more of the SHA-256 of text, in a form that can be sorted
    name_of: Rewrite  # the name of a person whose id is not text, NULL if it is nobody; None if it cannot be exact
    with_key: Callable[[ibis.Table, bytes], ibis.Table]  # the rows with the key as a column hdmm_key
    least: Callable[[ibis.Table, Sequence[str], int, bytes, Dialect], ibis.Table]  # the k least rows of each person
    length_of: str = "octet_length"  # of text, in bytes, known without reading it
    text: Rewrite = unchanged  # text as it is compared
    valid: Rewrite = unchanged  # text that is UTF-8, NULL if it is not
    end: str = "$"  # of a pattern: where nothing may follow
    writes_out: bool = False  # whether a column is written out wherever it is used, which is exponential in the depth
    wide_integers: bool = False  # whether what Ibis takes for an integer of 38 digits may have 39

    def readable(self, column: Expression) -> Expression:
        """Text and bytes as they are, and NULL if they are longer than LONGEST_TEXT or are not UTF-8."""
        kind = column.type()
        if not (kind.is_string() or kind.is_binary()):
            return column
        text = kind.is_string()
        length = sql_function(self.length_of if text else "octet_length", str(kind).strip("!"), "int64")
        column = self.text(column) if text else column
        valid = self.valid(column) if text else column
        return ibis.cases((length(column) <= LONGEST_TEXT, valid), else_=ibis.null(kind))

    def full_match(self, pattern: str) -> str:
        """A pattern that matches nothing but whole texts."""
        return f"^{pattern}{self.end}"

    def computed(self, rows: ibis.Table, **columns: Expression) -> ibis.Table:
        """The table with more columns, each of which is computed once per row however often it is referred to."""
        more = rows.mutate(**columns)
        return more.limit(ALL_ROWS) if self.writes_out else more  # a limit prevents it


def sql_function(name: str, *types: str) -> Callable[..., Expression]:
    """A function of an engine by its name, the types of its arguments and that of its result."""

    def call(*given: Expression) -> Expression:
        empty = (lambda a: None) if len(given) == 1 else (lambda a, b: None)  # pyright: ignore[reportUnknownLambdaType]
        made = cast("Any", ibis.udf.scalar.builtin)(empty, name=name, signature=(types[:-1], types[-1]))
        return made(*given)

    return call
