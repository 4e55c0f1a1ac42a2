"""The words of SQL that may appear, and which words may follow each other.

sqlglot accepts more than SQL allows (a missing THEN, a sign without an operand, an unclosed FLOOR). Such texts are
refused here, before sqlglot sees them, with an error that points at the wrong word.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from hdmm.sql.text import SUPPORTED, SqlText

MOST_CHARACTERS = 2**20
MOST_NESTED = 30  # sqlglot takes about 20 of Python's 1,000 frames per level


def tokens(source: SqlText) -> list[Token]:
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


def check(source: SqlText, words: list[Token], names: Collection[str]) -> None:
    """Raise SqlError at the first token that is not allowed in its place; `names` may look like keywords."""
    kinds = [
        _PLAIN_NAME if t.token_type not in _ALLOWED and t.text.casefold() in names else t.token_type for t in words
    ]
    if kinds[0] != _T.SELECT:
        raise source.token(words[0], f"A statement must begin with SELECT. Write {SUPPORTED}.")
    for i, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        if kind not in _ALLOWED:
            hint = f' (a name is quoted: "{word.text}")' if word.text.isidentifier() else ""
            raise source.token(word, f"{word.text.upper()} is not supported{hint}. Supported: {SUPPORTED}.")
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


def _check_pair(source: SqlText, last: Token, word: Token, *, before: TokenType, kind: TokenType) -> None:
    if kind not in _NEXT.get(before, _ALLOWED):
        raise source.token(word, f"{word.text or word.token_type.name} cannot follow {last.text.upper()} here.")
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
_EXPECTING = {*_OPERATOR_TOKENS, _T.WHERE, _T.AND, _T.OR, _T.WHEN, _T.THEN, _T.ELSE, _T.BETWEEN}

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
_ALLOWED = {*_NEXT, *_STARTS, _T.R_PAREN, _T.END}
