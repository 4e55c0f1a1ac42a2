"""Statements as syntax trees of allowed nodes, with the names and weights in their comments.

sqlglot parses the text; nothing is ever sent to an engine. What may appear is listed twice (security F6): the words
are listed in tokens.py, so that an error points at the word that is not allowed; the nodes and their parts are listed
here, so that whatever sqlglot makes of allowed words is refused unless it is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.expressions.core import Expr
from sqlglot.tokenizer_core import Token, TokenType

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.predicates import check_weight
from hdmm.sql.instead import INSTEAD_OF_FUNCTIONS, ONE_TABLE
from hdmm.sql.text import SUPPORTED, SqlText
from hdmm.sql.tokens import alias_names, check, tokens


@final
@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its tree, and the name and weight that its comments give."""

    tree: Expr
    text: str
    name: str | None
    weight: float


def statements(source: SqlText, *, names: Collection[str]) -> Iterator[Parsed]:
    """The statements of a text. `names` are the names of columns, which may look like keywords."""
    declared = {name.casefold() for name in names}
    for words, comments in _split(source, tokens(source)):
        names = declared | alias_names(words)
        check(source, words, names)
        name, weight = _marks(source, comments)
        plain = [token for token in words if token.token_type != TokenType.HINT]
        tree = _parse(source, plain)
        _check_tree(source, tree)
        _check_names(source, tree, plain, names)
        yield Parsed(tree, source.text[words[0].start : words[-1].end + 1], name, weight)


def _split(source: SqlText, words: list[Token]) -> Iterator[tuple[list[Token], list[tuple[Token, str]]]]:
    """The tokens of each statement, and its comments with the tokens to which they belong."""
    held: list[Token] = []
    comments: list[tuple[Token, str]] = []
    found = False
    for token in words:
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
        raise source.error(0, 0, f"The text holds no statement. Write {SUPPORTED}.")


def _hint(source: SqlText, token: Token) -> str:
    """`/*+ weight(2) */` as the comment `weight: 2`."""
    found = _HINT.fullmatch(token.text)
    if found is None:
        raise source.token(token, "This hint is not supported. The only hint is /*+ weight(n) */ with a number n >= 0.")
    return f"weight: {found['weight']}"


def _marks(source: SqlText, comments: list[tuple[Token, str]]) -> tuple[str | None, float]:
    """The name and the weight that comments give a statement."""
    marks: dict[str, str] = {}
    weight = 1.0
    for token, comment in comments:
        found = _MARK.fullmatch(comment)
        if found is None:
            continue
        kind, value = found["kind"].lower(), found["value"]
        if kind in marks:
            raise source.token(token, f"The statement has a second {kind}, {value!r}. Give only one.")
        marks[kind] = value
        if kind == "weight":
            try:
                weight = check_weight(float(value))
            except (ValueError, WorkloadError):
                raise source.token(token, f"The weight {value!r} is not a finite number >= 0.") from None
    return marks.get("name"), weight


def _parse(source: SqlText, tokens: list[Token]) -> Expr:
    try:
        trees = Dialect.get_or_raise(None).parser().parse(tokens, source.text)
    except ParseError as error:
        first = error.errors[0]
        at = next((t for t in tokens if (t.line, t.col) == (first["line"], first["col"])), tokens[-1])
        reason = str(first["description"])
        reason = "something is missing" if "<" in reason else reason  # such a reason names classes of sqlglot
        raise source.token(at, f"The statement cannot be read here ({reason}). Supported: {SUPPORTED}.") from None
    except RecursionError:  # the caller has left too little of the stack
        raise source.token(tokens[0], "The statement is nested too deeply. Use fewer nested parentheses.") from None
    if len(trees) != 1 or trees[0] is None:
        raise source.error(tokens[0].start, tokens[-1].end + 1, f"This is not a statement. Write {SUPPORTED}.")
    return trees[0]


def _check_tree(source: SqlText, tree: Expr) -> None:
    for node in tree.walk():
        allowed = _NODES.get(type(node))
        if allowed is None:
            kind = type(node).__name__
            advice = INSTEAD_OF_FUNCTIONS.get(kind, f"Supported: {SUPPORTED}")
            raise source.at(node, f"{_words(kind)} is not supported. {advice}.")
        for part, value in node.args.items():
            if value not in (None, False, []) and part not in allowed:
                words = f"{_words(part)} in {_words(type(node).__name__)}"
                inner = value[0] if isinstance(value, list) else value
                advice = ONE_TABLE if part == "joins" else f"Supported: {SUPPORTED}"
                raise source.at(inner if isinstance(inner, Expr) else node, f"{words} is not supported. {advice}.")


def _check_names(source: SqlText, tree: Expr, tokens: list[Token], names: Collection[str]) -> None:
    """Check that names are plain or quoted words, not keywords or texts that the parser took for names."""
    kinds = {token.start: token.token_type for token in tokens}
    for node in tree.find_all(exp.Identifier):
        kind = kinds.get(node.meta.get("start", -1))
        reserved = kind == TokenType.VAR and node.name.upper() in _RESERVED
        if (kind not in (TokenType.VAR, TokenType.IDENTIFIER) or reserved) and node.name.casefold() not in names:
            raise source.at(node, f'{node.name!r} is not a name here. Put names in double quotes: "{node.name}".')


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_+", " ", name).strip().upper()


_HINT = re.compile(r"/\*\+\s*weight\s*\(\s*(?P<weight>[^()\s]+)\s*\)\s*\*/", re.IGNORECASE)
_MARK = re.compile(r"\s*(?P<kind>name|weight)\s*:\s*(?P<value>\S|\S[^\n]*\S)\s*", re.IGNORECASE)

_BINARY = {"this", "expression"}
_NODES: dict[type[Any], set[str]] = {
    exp.Select: {"expressions", "from_", "where", "group", "order"},
    exp.Union: {"this", "expression", "order"},  # distinct, which is not ALL, is not allowed
    exp.Order: {"expressions"},
    exp.Ordered: {"this", "desc", "nulls_first"},
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
    exp.Sum: {"this"},
    exp.Avg: {"this"},
    exp.Median: {"this"},
    exp.Quantile: {"this", "quantile"},
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
    exp.Abs: {"this"},
}
_RESERVED = {
    *("ANALYSE", "ASYMMETRIC", "BOTH", "BY", "CAST", "CHECK", "DEFERRABLE", "DO", "FOREIGN", "GROUP", "GROUPING"),
    *("INITIALLY", "LAMBDA", "LEADING", "ONLY", "ORDER", "PARTITION", "PLACING", "PRIMARY", "SETS", "SIMILAR"),
    *("SYMMETRIC", "TO", "TRAILING", "VARIADIC"),
}
