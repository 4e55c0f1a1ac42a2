"""What to write instead of SQL that is not supported, in plain words."""

from __future__ import annotations

from typing import Final

from sqlglot.tokenizer_core import TokenType

_T = TokenType

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
