"""Statements as syntax trees of allowed nodes, with the names and weights in their comments.

sqlglot parses the text; nothing is ever sent to an engine. What may appear is listed twice (security F6): the words,
and which of them may follow each other, so that an error points at the word that is not allowed; and the nodes and
their parts, so that whatever sqlglot makes of allowed words is refused unless it is known. sqlglot accepts more than
SQL allows (a missing THEN, a sign without an operand, an unclosed FLOOR): such texts are refused before it sees them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.expressions.core import Expr
from sqlglot.tokenizer_core import Token, TokenType

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.describe.predicates import check_weight
from hdmm.sql.text import (
    INSTEAD,
    INSTEAD_OF_FUNCTIONS,
    NO_INNER_SELECT,
    NO_STAR,
    ONE_TABLE,
    SUPPORTED,
    UNION_ALL,
    SqlText,
)

MOST_CHARACTERS = 2**20
MOST_NESTED = 30  # sqlglot takes about 20 of Python's 1,000 frames per level
MOST_LEVELS = 100  # nodes of the tree on the way to a leaf, such as terms of a sum; each takes 5 frames


@final
@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One statement of a text: its tree, and the name and weight that its comments give."""

    source: SqlText
    tree: Expr
    text: str
    name: str | None
    weight: float

    @property
    def selects(self) -> list[Expr]:
        """The SELECTs; those of a UNION ALL are in order."""
        tree, last = self.tree, list[Expr]()
        while isinstance(tree, exp.Union):
            last.append(tree.expression)
            tree = tree.this
        return [tree, *reversed(last)]

    def error(self, message: str) -> SqlError:
        """An error about the whole statement."""
        return self.source.at(self.tree, message)


def statements(source: SqlText, *, names: Collection[str]) -> tuple[ParsedStatement, ...]:
    """The statements of a text. `names` are the names of columns, which may look like keywords."""
    declared = {name.casefold() for name in names}
    found: list[ParsedStatement] = []
    for words, comments in _split(source, _tokens(source)):
        names = declared | _alias_names(words)
        _check_words(source, words, names)
        name, weight = _marks(source, comments)
        plain = [token for token in words if token.token_type != TokenType.HINT]
        tree = _parse(source, plain)
        _check_tree(source, tree)
        _check_depth(source, tree)
        _check_names(source, tree, plain, names)
        text = source.text[words[0].start : words[-1].end + 1]
        found.append(ParsedStatement(source, tree, text, name, weight))
    return tuple(found)


def _tokens(source: SqlText) -> list[Token]:
    """The tokens of a text, including comments."""
    text = source.text
    if len(text) > MOST_CHARACTERS:
        raise source.error(
            0, 0, f"The text has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}. Give the text in parts."
        )
    control = _CONTROL.search(text)
    if control is not None:
        raise source.error(control.start(), control.end(), "The text has a control character here. Remove it.")
    try:
        return Dialect.get_or_raise(None).tokenize(text)
    except TokenError:
        pass
    for found in _QUOTED.finditer(text):
        if found["open"]:
            raise source.error(found.start(), found.end(), f"{found['open']} is opened here and never closed.")
    raise source.error(0, 0, "The text cannot be read as SQL.")


def _check_words(source: SqlText, words: list[Token], names: Collection[str]) -> None:
    """Raise SqlError at the first token that is not allowed in its place; `names` may look like keywords."""
    kinds = [
        _PLAIN_NAME if t.token_type not in _ALLOWED - _SORTS and t.text.casefold() in names else t.token_type
        for t in words
    ]
    if kinds[0] != _T.SELECT:
        advice = f"{NO_INNER_SELECT}." if kinds[0] == _T.WITH else f"Write {SUPPORTED}."
        raise source.token(words[0], f"A statement must begin with SELECT. {advice}")
    for i, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        if kind not in _ALLOWED:
            hint = f' (a name is quoted: "{word.text}")' if word.text.isidentifier() and kind not in INSTEAD else ""
            advice = INSTEAD.get(kind, f"Supported: {SUPPORTED}")
            raise source.token(word, f"{word.text.upper()} is not supported{hint}. {advice}.")
        if kind == _T.NOT and word.text == "!":
            raise source.token(word, "! is not supported, because engines disagree about it. Write NOT.")
        if word.token_type in _FORMS and not _FORMS[word.token_type].fullmatch(word.text):
            raise source.token(
                word, "This is neither a name nor a number. Names are words, or any characters in double quotes."
            )
        if i > 0:
            _check_pair(source, words[i - 1], word, before=kinds[i - 1], kind=kind)
    if kinds[-1] in _NEXT:
        raise source.token(words[-1], "Something is missing after this.")
    _check_nesting(source, words, kinds)


def _alias_names(words: list[Token]) -> set[str]:
    """The words after AS that are names of types, in lower case: they name columns, as in FLOOR(age / 10) AS dec."""
    types = Dialect.get_or_raise(None).parser_class.TYPE_TOKENS
    return {b.text.casefold() for a, b in pairwise(words) if a.token_type == _T.ALIAS and b.token_type in types}


def _check_pair(source: SqlText, last: Token, word: Token, *, before: TokenType, kind: TokenType) -> None:
    if kind not in _NEXT.get(before, _ALLOWED):
        advice = _ADVICE.get((before, kind))
        more = "" if advice is None else f" {advice}."
        raise source.token(word, f"{word.text or word.token_type.name} cannot follow {last.text.upper()} here.{more}")
    if before in _OPERAND_ENDS and kind in _LITERALS:
        raise source.token(word, "A literal is not allowed here. Is a comma, a THEN or an operator missing before it?")
    if before == _T.NUMBER and last.end + 1 == word.start and kind in (_PLAIN_NAME, *_LITERALS):
        raise source.error(last.start, word.end + 1, "A number is followed by letters. Write decimal numbers.")


def _check_nesting(source: SqlText, words: list[Token], kinds: list[TokenType]) -> None:
    """Check that parentheses and CASE … END are balanced, that every WHEN has its THEN, and the depth of nesting."""
    opened: list[Token] = []
    signs = 0  # consecutive NOTs and minus signs
    branch: list[Token] = []
    for word, kind in zip(words, kinds, strict=True):
        signs = signs + 1 if kind in (_T.NOT, _T.DASH) else 0
        if kind in _CLOSES:
            opened.append(word)
        elif kind in _CLOSES.values():
            if not opened or _CLOSES[opened.pop().token_type] != kind:
                raise source.token(word, f"{word.text.upper()} closes nothing. Remove it, or open what it closes.")
        elif kind == _T.WHEN:
            branch.append(word)
        elif kind == _T.THEN and branch:
            branch.pop()
        elif kind == _T.THEN:
            raise source.token(word, "This THEN has no WHEN before it.")
        if len(opened) + signs > MOST_NESTED:
            raise source.token(
                word, f"The statement is nested deeper than {MOST_NESTED} levels. Use fewer nested parentheses."
            )
    for word, missing in ((branch, "has no THEN"), (opened, "is never closed")):
        if word:
            raise source.token(word[-1], f"{word[-1].text.upper()} {missing}.")


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


def _check_depth(source: SqlText, tree: Expr) -> None:
    """Refuse trees too deep for functions that call themselves; chains of AND, OR or UNION may be of any length."""
    nodes = [(tree, 0)]
    while nodes:
        node, depth = nodes.pop()
        if depth > MOST_LEVELS:
            raise source.at(node, f"The expression has more than {MOST_LEVELS} levels. Use fewer terms.")
        for inner in node.iter_expressions():
            chained = type(inner) is type(node) and isinstance(inner, exp.And | exp.Or | exp.Union)
            nodes.append((inner, depth + (not chained)))


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

_OPERATORS = (exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Add, exp.Sub, exp.Mul)
_CLAUSES = (exp.From, exp.TableAlias, exp.Where, exp.Paren, exp.Boolean, exp.Neg, exp.Not)
_FUNCTIONS = (exp.Sum, exp.Avg, exp.Median, exp.Floor, exp.Abs)
_LISTS = (exp.Order, exp.Group, exp.GroupingSets, exp.Cube, exp.Rollup, exp.Tuple)
_NODES: dict[type[Any], set[str]] = {
    exp.Select: {"expressions", "from_", "where", "group", "order"},
    exp.Union: {"this", "expression", "order"},  # distinct, which is not ALL, is not allowed
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Table: {"this", "db", "catalog", "alias"},
    exp.Identifier: {"this", "quoted"},
    exp.Alias: {"this", "alias"},
    exp.Column: {"this", "table"},
    exp.Literal: {"this", "is_string"},
    exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions"},
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true"},
    exp.Div: {"this", "expression", "typed", "safe"},
    exp.Count: {"this", "big_int"},
    exp.Quantile: {"this", "quantile"},
    exp.Star: set(),
    exp.Null: set(),
    **{node: {"this", "expression"} for node in _OPERATORS},
    **{node: {"this"} for node in (*_CLAUSES, *_FUNCTIONS)},
    **{node: {"expressions"} for node in _LISTS},
}
"""The parts that each node may have."""

_RESERVED = {
    *("ANALYSE", "ASYMMETRIC", "BOTH", "BY", "CAST", "CHECK", "DEFERRABLE", "DO", "FOREIGN", "GROUP", "GROUPING"),
    *("INITIALLY", "LAMBDA", "LEADING", "ONLY", "ORDER", "PARTITION", "PLACING", "PRIMARY", "SETS", "SIMILAR"),
    *("SYMMETRIC", "TO", "TRAILING", "VARIADIC"),
}

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTED = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | (?P<open>['"]|/\*) | .""", re.VERBOSE | re.DOTALL
)

_T = TokenType
_PLAIN_NAME = _T.VAR
_FORMS = {
    _T.VAR: re.compile(r"[^\W\d]\w*"),
    _T.IDENTIFIER: re.compile(r".+", re.DOTALL),
    _T.NUMBER: re.compile(r"[0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?"),
}
_CLOSES = {_T.L_PAREN: _T.R_PAREN, _T.CASE: _T.END}
_LITERALS = {_T.NUMBER, _T.STRING, _T.NULL, _T.TRUE, _T.FALSE}
_NAME_TOKENS = {_PLAIN_NAME, _T.IDENTIFIER}
_STARTS = {*_NAME_TOKENS, *_LITERALS, _T.L_PAREN, _T.DASH, _T.NOT, _T.CASE}  # tokens that may begin an expression
_OPERAND_ENDS = {*_NAME_TOKENS, *_LITERALS, _T.R_PAREN, _T.END}
_SETS = {_T.GROUPING_SETS, _T.CUBE, _T.ROLLUP}
_OPERATOR_TOKENS = {_T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.PLUS, _T.DASH, _T.SLASH}
_SORTS = {_T.ASC, _T.DESC}
_EXPECTING = {*_OPERATOR_TOKENS, _T.WHERE, _T.ORDER_BY, _T.AND, _T.OR, _T.WHEN, _T.THEN, _T.ELSE, _T.BETWEEN}

# The tokens that may follow a token that cannot end a statement; any token, or the end, may follow the others.
_NEXT: dict[TokenType, set[TokenType]] = {
    **dict.fromkeys(_EXPECTING, _STARTS),
    _T.SELECT: _STARTS | {_T.HINT},
    _T.HINT: _STARTS,
    _T.COMMA: _STARTS | _SETS,
    _T.GROUP_BY: _STARTS | _SETS,
    _T.L_PAREN: _STARTS | _SETS | {_T.R_PAREN, _T.STAR},
    _T.STAR: _STARTS | {_T.R_PAREN},
    _T.NOT: _STARTS | {_T.IN, _T.BETWEEN},
    _T.IS: {_T.NULL, _T.NOT},
    _T.IN: {_T.L_PAREN},
    **{kind: {_T.L_PAREN} for kind in _SETS},
    **dict.fromkeys((_T.FROM, _T.ALIAS, _T.DOT), _NAME_TOKENS),
    _T.CASE: _STARTS | {_T.WHEN},
    _T.UNION: {_T.ALL},
    _T.ALL: {_T.SELECT},
}
_ALLOWED = {*_NEXT, *_STARTS, *_SORTS, _T.R_PAREN, _T.END}
_ADVICE = {
    (_T.SELECT, _T.STAR): NO_STAR,
    (_T.FROM, _T.L_PAREN): NO_INNER_SELECT,
    (_T.L_PAREN, _T.SELECT): NO_INNER_SELECT,
    (_T.UNION, _T.SELECT): UNION_ALL,
}
"""What is possible where two tokens meet that must not; the end of a sentence."""
