"""SQL as text: errors that point into it, what to write in place of what is not supported, and SQL that is written."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from sqlglot.expressions.core import Expr
from sqlglot.tokenizer_core import Token, TokenType

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.describe.attribute import Attribute

_T = TokenType

SUPPORTED = (
    "SELECT [columns,] COUNT(*), SUM(…), AVG(…), MEDIAN(…), QUANTILE(…, q) FROM t [WHERE …] "
    "[GROUP BY columns, GROUPING SETS, CUBE, ROLLUP] [UNION ALL SELECT …] [ORDER BY …]"
)
_SHOWN_CHARACTERS = 100  # characters of a line in a message

ONE_TABLE: Final = (
    "Tables are counted from the rows of one table. Join the tables where they are, such as in a view of the database, "
    "and give the result as the source in [data]"
)
NO_INNER_SELECT: Final = (
    "A SELECT inside another is not supported. Write its condition itself into WHERE, or make a view in the database "
    "and give it as the source in [data]"
)
NO_STAR: Final = (
    "Rows are never published, only counts of them. Name columns and count them: SELECT sex, COUNT(*) FROM t GROUP BY "
    "sex"
)
UNION_ALL: Final = "Write UNION ALL: each SELECT keeps all its rows"
_LISTED: Final = (
    "Patterns are not compared with the data. List the declared values that fit, as in sex IN ('M', 'F'), or declare a "
    "level that groups them"
)
_ALL_ROWS: Final = (
    "A table has a row for each combination of declared values, and all of them are published. Leave it out; hdmm show "
    "--rows 10 shows the first rows"
)
_AGGREGATED: Final = "Write the condition as WHERE, or as SUM(CASE WHEN … THEN 1 ELSE 0 END)"
_TYPED: Final = "Values have the types that the domain declares. Leave out the conversion"

INSTEAD: Final[dict[TokenType, str]] = {
    **dict.fromkeys((_T.JOIN, _T.LEFT, _T.RIGHT, _T.FULL, _T.INNER, _T.OUTER, _T.CROSS, _T.NATURAL), ONE_TABLE),
    **dict.fromkeys((_T.LIKE, _T.ILIKE, _T.RLIKE, _T.GLOB, _T.SIMILAR_TO), _LISTED),
    **dict.fromkeys((_T.LIMIT, _T.OFFSET, _T.FETCH), _ALL_ROWS),
    **dict.fromkeys((_T.EXISTS, _T.WITH), NO_INNER_SELECT),
    _T.HAVING: (
        "Which groups are shown must not depend on the data: all are published. Leave it out; suppress in [output] "
        "leaves out counts whose margin of error is too large for their size"
    ),
    _T.DISTINCT: (
        "Count the rows of each value: SELECT sex, COUNT(*) FROM t GROUP BY sex. If one person has several rows, give "
        "id and max_rows_per_id in [data]"
    ),
    _T.FILTER: _AGGREGATED,
    _T.OVER: 'For percentages of a total, give the table percent = "row", "column" or "total"',
    _T.DCOLON: _TYPED,
}
"""By the word at which reading ends: the end of a sentence without its full stop."""

INSTEAD_OF_FUNCTIONS: Final = {
    **dict.fromkeys(
        ("Max", "Min"), "It would show the value of one person. Ask for a quantile, such as QUANTILE(age, 0.99)"
    ),
    "Round": "Numbers are published with their margin of error. Leave out the rounding",
    **dict.fromkeys(("Cast", "TryCast"), _TYPED),
    **dict.fromkeys(("Like", "ILike"), _LISTED),
    "Coalesce": "Use CASE WHEN … IS NULL THEN … ELSE … END",
}
"""The same by the name of a function's node."""


@final
@dataclass(frozen=True, slots=True)
class SqlText:
    """SQL text; makes the errors about its parts."""

    text: str

    def error(self, start: int, stop: int, message: str) -> SqlError:
        """An error that shows the line and its position, with carets under the characters from start up to stop."""
        line = self.text.count("\n", 0, start) + 1
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        end = len(self.text) if end < 0 else end
        left = max(begin, min(start - _SHOWN_CHARACTERS // 2, end - _SHOWN_CHARACTERS))
        shown = "".join(c if c.isprintable() else " " for c in self.text[left : left + _SHOWN_CHARACTERS][: end - left])
        carets = "^" * max(1, min(stop, end, left + _SHOWN_CHARACTERS) - start)
        place = f"SQL, line {line}, column {start - begin + 1}"
        return SqlError(
            f"{place}: {message}\n  {shown}\n  {' ' * (start - left)}{carets}", line=line, column=start - begin + 1
        )

    def token(self, token: Token, message: str) -> SqlError:
        """An error about a token."""
        return self.error(token.start, token.end + 1, message)

    def at(self, node: Expr, message: str) -> SqlError:
        """An error about a node, which points at its text."""
        where: Expr | None = node
        while where is not None:
            places = [(n.meta["start"], n.meta["end"]) for n in where.walk() if "start" in n.meta]
            if places:
                return self.error(min(s for s, _ in places), max(e for _, e in places) + 1, message)
            where = where.parent  # NULL, TRUE and FALSE have no position, so their parent's is used
        return self.error(0, 0, message)


def quoted(name: str) -> str:
    """A name as SQL writes it.

    >>> quoted('say "age"')
    '"say ""age""\"'
    """
    return '"{}"'.format(name.replace('"', '""'))


def select_sql(by: Sequence[str], aggregates: Sequence[str]) -> str:
    """The statement that has these aggregates by columns of these names.

    >>> select_sql(["sex"], ["COUNT(*)"])
    'SELECT "sex", COUNT(*) FROM t GROUP BY "sex"'
    """
    groups = ", ".join(map(quoted, by))
    columns = ", ".join([*map(quoted, by), *aggregates])
    return " ".join(["SELECT", columns, "FROM t", *(["GROUP BY", groups] if by else [])])


def quantile_sql(attribute: Attribute, q: Sequence[float], of: str = "") -> list[str]:
    """One column per quantile; WorkloadError if the values have no order, or a number is not between 0 and 1.

    >>> from hdmm import Integers
    >>> quantile_sql(Attribute("age", Integers(0, 114)), [0.5], "of age")
    ['QUANTILE("age", 0.5) AS "quantile 0.5 of age"']
    """
    if not attribute.ordered:
        raise WorkloadError(f"{attribute.name} has no order, so it has no quantiles. Count its values instead.")
    if not len(q) or len(set(q)) < len(q):
        raise WorkloadError("The quantiles are not a list of different numbers. Give for example [0.25, 0.5, 0.75].")
    for each in q:
        if isinstance(each, bool) or not isinstance(each, numbers.Real) or not 0 < each < 1:
            raise WorkloadError(f"The quantile {each!r} is not between 0 and 1. Use for example 0.5 for the median.")
    name = quoted(attribute.name)
    return [f"QUANTILE({name}, {float(p):.17g}) AS {quoted(f'quantile {p} {of}'.strip())}" for p in q]
