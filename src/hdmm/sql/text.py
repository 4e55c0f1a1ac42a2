"""Source: SQL text, and errors that point into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sqlglot.expressions.core import Expr
from sqlglot.tokenizer_core import Token

from hdmm.base.exceptions import SqlError

SUPPORTED = (
    "SELECT [columns,] COUNT(*), SUM(…), AVG(…), MEDIAN(…), QUANTILE(…, q) FROM t [WHERE …] "
    "[GROUP BY columns, GROUPING SETS, CUBE, ROLLUP] [UNION ALL SELECT …] [ORDER BY …]"
)
_SHOWN_CHARACTERS = 100  # characters of a line in a message


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
