"""SQL text as syntax trees of allowed nodes, and errors that point into the text.

sqlglot reads; nothing is ever sent to an engine. What may appear is listed twice (security F6): the tokens, so that
an error points at the word that is not allowed, and the nodes with their parts, so that whatever sqlglot makes of
allowed words is refused unless it is known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from hdmm.exceptions import SqlError, WorkloadError
from hdmm.predicates import check_weight

SUPPORTED = (
    "SELECT [columns,] COUNT(*) FROM t [WHERE …] [GROUP BY columns, GROUPING SETS, CUBE, ROLLUP] [UNION ALL SELECT …]"
)
MOST_CHARACTERS = 2**20
MOST_NESTED = 60
_SHOWN = 100  # characters of a line in a message


@final
@dataclass(frozen=True, slots=True)
class Source:
    """The text that is read; makes the errors about parts of it."""

    text: str

    def error(self, start: int, stop: int, message: str) -> SqlError:
        """An error with the line, its place and a caret under the characters from start up to stop."""
        line = self.text.count("\n", 0, start) + 1
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        end = len(self.text) if end < 0 else end
        left = max(begin, min(start - _SHOWN // 2, end - _SHOWN))
        shown = "".join(c if c.isprintable() else " " for c in self.text[left : left + _SHOWN][: end - left])
        carets = "^" * max(1, min(stop, end, left + _SHOWN) - start)
        place = f"SQL, line {line}, column {start - begin + 1}"
        return SqlError(
            f"{place}: {message}\n  {shown}\n  {' ' * (start - left)}{carets}", line=line, column=start - begin + 1
        )

    def at(self, node: exp.Expression, message: str) -> SqlError:
        """An error about a node, pointing at its text."""
        where: exp.Expression | None = node
        while where is not None:
            places = [(n.meta["start"], n.meta["end"]) for n in where.walk() if "start" in n.meta]
            if places:
                return self.error(min(s for s, _ in places), max(e for _, e in places) + 1, message)
            where = where.parent  # NULL, TRUE and FALSE have no place of their own
        return self.error(0, 0, message)


@final
@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its tree, and what its comments say."""

    tree: exp.Expression
    text: str
    name: str | None
    weight: float


def statements(source: Source, *, names: Collection[str]) -> Iterator[Parsed]:
    """The statements of a text. `names` are those of columns, which may look like keywords."""
    if len(source.text) > MOST_CHARACTERS:
        raise source.error(
            0, 0, f"The text has {len(source.text):,} characters; {MOST_CHARACTERS:,} are the limit. Give it in parts."
        )
    for tokens, comments in _split(source, _tokens(source)):
        _check_tokens(source, tokens, {name.casefold() for name in names})
        name, weight = _marks(source, comments)
        plain = [token for token in tokens if token.token_type != TokenType.HINT]
        if not plain:
            raise source.error(tokens[0].start, tokens[0].end + 1, f"A hint without a statement. Write {SUPPORTED}.")
        tree = _parse(source, plain)
        _check_tree(source, tree)
        yield Parsed(tree, source.text[tokens[0].start : tokens[-1].end + 1], name, weight)


def _tokens(source: Source) -> list[Token]:
    try:
        return _DIALECT.tokenize(source.text)
    except TokenError:
        pass
    for found in _QUOTED.finditer(source.text):
        if found["open"]:
            raise source.error(found.start(), found.end(), f"{found['open']} is opened here and never closed.")
    raise source.error(0, 0, "The text cannot be read as SQL.")


def _split(source: Source, tokens: list[Token]) -> Iterator[tuple[list[Token], list[tuple[Token, str]]]]:
    """The tokens of each statement, and the comments of each with the tokens they stand at."""
    held: list[Token] = []
    comments: list[tuple[Token, str]] = []
    found = False
    for token in tokens:
        if token.token_type == TokenType.HINT:
            comments.append((token, _hint(source, token)))
        else:
            comments.extend((token, comment) for comment in token.comments)
        if token.token_type != TokenType.SEMICOLON:
            held.append(token)
        elif held:
            found = True
            yield held, comments
            held, comments = [], []
    if held:
        yield held, comments
    elif not found:
        raise source.error(0, 0, f"The text has no statement. Write {SUPPORTED}.")


def _hint(source: Source, token: Token) -> str:
    """`/*+ weight(2) */` as the comment `weight: 2`."""
    found = _HINT.fullmatch(token.text)
    if found is None:
        raise source.error(token.start, token.end + 1, "The only hint is /*+ weight(n) */ with a number n >= 0.")
    return f"weight: {found['weight']}"


def _marks(source: Source, comments: list[tuple[Token, str]]) -> tuple[str | None, float]:
    """The name and the weight that comments give a statement."""
    marks: dict[str, str] = {}
    weight = 1.0
    for token, comment in comments:
        found = _MARK.fullmatch(comment)
        if found is None:
            continue
        kind, value = found["kind"].lower(), found["value"]
        if kind in marks:
            raise source.error(token.start, token.end + 1, f"The statement has a second {kind}, {value!r}. Give one.")
        marks[kind] = value
        if kind == "weight":
            try:
                weight = check_weight(float(value))
            except (ValueError, WorkloadError):
                raise source.error(
                    token.start, token.end + 1, f"The weight {value!r} is not a finite number >= 0."
                ) from None
    return marks.get("name"), weight


def _check_tokens(source: Source, tokens: list[Token], names: Collection[str]) -> None:
    depth = 0
    signs = 0  # NOT and minus, one after the other
    for i, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.CASE)) - (kind in (TokenType.R_PAREN, TokenType.END))
        signs = signs + 1 if kind in (TokenType.NOT, TokenType.DASH) else 0
        if depth + signs > MOST_NESTED:
            raise source.error(token.start, token.end + 1, f"Nested deeper than {MOST_NESTED}. Write it flatter.")
        if kind not in _TOKENS and token.text.casefold() not in names:
            raise source.error(
                token.start,
                token.end + 1,
                f'{token.text.upper()} is not supported (a name is quoted: "{token.text}"). Supported: {SUPPORTED}.',
            )
        before = tokens[i - 1].token_type if i > 0 else None
        if (before == TokenType.UNION) != (kind == TokenType.ALL):
            raise source.error(token.start, token.end + 1, "UNION and ALL go together: UNION ALL SELECT … .")
        glued = before == TokenType.NUMBER and tokens[i - 1].end + 1 == token.start
        if glued and kind not in _AFTER_NUMBER:
            raise source.error(tokens[i - 1].start, token.end + 1, "A number runs into a word. Write decimal numbers.")


def _parse(source: Source, tokens: list[Token]) -> exp.Expression:
    try:
        trees = _DIALECT.parser().parse(tokens, source.text)
    except ParseError as error:
        first = error.errors[0]
        at = next((t for t in tokens if (t.line, t.col) == (first["line"], first["col"])), tokens[-1])
        reason = str(first["description"])
        reason = "something is missing" if "<" in reason else reason  # it names classes then
        raise source.error(
            at.start, at.end + 1, f"The statement cannot be read here ({reason}). Supported: {SUPPORTED}."
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise source.error(tokens[0].start, tokens[-1].end + 1, f"This is not a statement. Write {SUPPORTED}.")
    return trees[0]


def _check_tree(source: Source, tree: exp.Expression) -> None:
    for node in tree.walk():
        allowed = _NODES.get(type(node))
        if allowed is None:
            raise source.at(node, f"{_words(type(node).__name__)} is not supported. Supported: {SUPPORTED}.")
        for part, value in node.args.items():
            if value not in (None, False, []) and part not in allowed:
                words = f"{_words(part)} in {_words(type(node).__name__)}"
                inner = value[0] if isinstance(value, list) else value
                raise source.at(
                    inner if isinstance(inner, exp.Expression) else node,
                    f"{words} is not supported. Supported: {SUPPORTED}.",
                )


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_+", " ", name).strip().upper()


_DIALECT = Dialect.get_or_raise(None)
_QUOTED = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | (?P<open>['"]|/\*) | .""", re.VERBOSE | re.DOTALL
)
_HINT = re.compile(r"/\*\+\s*weight\s*\(\s*(?P<weight>[^()\s]+)\s*\)\s*\*/", re.IGNORECASE)
_MARK = re.compile(r"\s*(?P<kind>name|weight)\s*:\s*(?P<value>\S|\S[^\n]*\S)\s*", re.IGNORECASE)

_T = TokenType
_TOKENS = frozenset(
    (
        *(_T.SELECT, _T.FROM, _T.WHERE, _T.GROUP_BY, _T.GROUPING_SETS, _T.CUBE, _T.ROLLUP, _T.UNION, _T.ALL),
        *(_T.CASE, _T.WHEN, _T.THEN, _T.ELSE, _T.END, _T.AND, _T.OR, _T.NOT, _T.IN, _T.BETWEEN, _T.IS, _T.NULL),
        *(_T.TRUE, _T.FALSE, _T.ALIAS, _T.VAR, _T.IDENTIFIER, _T.NUMBER, _T.STRING, _T.HINT, _T.SEMICOLON),
        *(_T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.PLUS, _T.DASH, _T.STAR, _T.SLASH),
        *(_T.L_PAREN, _T.R_PAREN, _T.COMMA, _T.DOT),
    )
)
_AFTER_NUMBER = _TOKENS - {_T.VAR, _T.IDENTIFIER, _T.NUMBER, _T.STRING, _T.DOT}

_BINARY = {"this", "expression"}
_NODES: dict[type[Any], set[str]] = {
    exp.Select: {"expressions", "from_", "where", "group"},
    exp.Union: {"this", "expression"},  # distinct, which is not ALL, is not allowed
    exp.From: {"this"},
    exp.Table: {"this", "db", "catalog", "alias"},
    exp.TableAlias: {"this"},
    exp.Identifier: {"this", "quoted"},
    exp.Where: {"this"},
    exp.Group: {"expressions"},
    exp.GroupingSets: {"expressions"},
    exp.Cube: {"expressions"},
    exp.Rollup: {"expressions"},
    exp.Tuple: {"expressions"},
    exp.Paren: {"this"},
    exp.Alias: {"this", "alias"},
    exp.Column: {"this", "table"},
    exp.Count: {"this", "big_int"},
    exp.Star: set(),
    exp.Literal: {"this", "is_string"},
    exp.Boolean: {"this"},
    exp.Null: set(),
    exp.Neg: {"this"},
    exp.Not: {"this"},
    exp.And: _BINARY,
    exp.Or: _BINARY,
    exp.EQ: _BINARY,
    exp.NEQ: _BINARY,
    exp.LT: _BINARY,
    exp.LTE: _BINARY,
    exp.GT: _BINARY,
    exp.GTE: _BINARY,
    exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions"},
    exp.Is: _BINARY,
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true"},
    exp.Add: _BINARY,
    exp.Sub: _BINARY,
    exp.Mul: _BINARY,
    exp.Div: _BINARY | {"typed", "safe"},
    exp.Floor: {"this"},
}
