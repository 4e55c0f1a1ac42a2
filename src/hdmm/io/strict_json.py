"""JSON without its loopholes: no NaN, no infinity, no repeated key, no deep nesting, no text that is not Unicode."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

from hdmm.base.exceptions import FileError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

MOST_BYTES = 2**28  # of one JSON file
_MOST_DEPTH = 64
_MOST_DIGITS = 1000
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # possessive, the end optional: one pass, O(bytes)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")


def parse(data: bytes, name: str) -> Json:
    """The value that `data` spells; FileError, which names `name`, if it spells none or is not safe. O(bytes).

    >>> parse(b'{"a": [1, 2.5, true]}', "x.json")
    {'a': [1, 2.5, True]}
    >>> parse(b'{"a": NaN}', "x.json")
    Traceback (most recent call last):
    hdmm.base.exceptions.FileError: x.json holds NaN, which is not a JSON number. Write finite numbers.
    """
    if len(data) > MOST_BYTES:
        raise FileError(f"{name} has {len(data):,} bytes of JSON; at most {MOST_BYTES:,} are read. Save less in it.")
    _refuse_deep(data, name)
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=lambda pairs: _once(pairs, name),
            parse_int=lambda digits: _integer(digits, name),
            parse_float=lambda digits: _finite(digits, name),
            parse_constant=lambda constant: _refuse_constant(constant, name),
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise FileError(f"{name} is not Unicode text in UTF-8. It is damaged; save it again.") from None
    except json.JSONDecodeError as error:
        raise FileError(
            f"{name} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}. Save it again."
        ) from None
    return value


def dump(value: Json, name: str) -> bytes:
    """`value` as JSON that `parse` reads back; FileError if it would not.

    >>> dump({"a": [1, 2.5, True]}, "x.json")
    b'{"a":[1,2.5,true]}'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode("utf-8")
    except UnicodeError:
        raise FileError(f"{name} cannot be written: a text in it is not Unicode. Correct the text.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{name} cannot be written: {error}. Use finite numbers, texts, lists and mappings.") from None
    parse(data, name)
    return data


def _refuse_deep(data: bytes, name: str) -> None:
    """Refuse deep nesting before parsing, which recurses: peel off one level of brackets at a time."""
    brackets = _TEXT.sub(b"", data).translate(_ONE_BRACKET, _NOT_BRACKETS)
    for _ in range(_MOST_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise FileError(
            f"{name} nests lists and objects more than {_MOST_DEPTH} deep, or its brackets do not match. Save it again."
        )


def _once(pairs: list[tuple[str, Json]], name: str) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise FileError(f"{name} has the key {twice[:60]!r} twice in one object. Remove one of them.")
    return found


def _integer(digits: str, name: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise FileError(f"{name} holds an integer of {len(digits):,} digits; at most {_MOST_DIGITS:,} are read.")
    return int(digits)


def _finite(digits: str, name: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise FileError(f"{name} holds {digits[:60]}, which is beyond the largest float. Write finite numbers.")
    return number


def _refuse_constant(constant: str, name: str) -> NoReturn:
    raise FileError(f"{name} holds {constant}, which is not a JSON number. Write finite numbers.")
