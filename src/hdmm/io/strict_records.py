"""Records: what was read from a file, decoded by msgspec to exactly the keys and types declared.

Errors are put in our words here and nowhere else: the place, what stands there, and what is expected.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from hdmm.base.exceptions import FileError
from hdmm.base.hints import decimal_point, did_you_mean

Place: TypeAlias = tuple[str | int, ...]
"""The way to a value: keys of tables, and positions in lists."""
Hook: TypeAlias = Callable[[Any, Any], object]
"""How a value of a type that msgspec does not know is read: from (type, what stands there)."""

_MOST_SHOWN = 60
_MOST_TEXT = 500  # characters of an error, which may quote the file
_AT = re.compile(r" - at `\$([^`]*)`\Z")
_STEP = re.compile(r"\.(\w+)|\[([0-9]{1,18})\]|\[\.\.\.\]")
_PLAIN = re.compile(r"[\w-]{1,60}")
_WORDS: dict[object, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a list",
    dict: "a table of keys",
    np.ndarray: "the name of an array that the file lists",
    Fraction: "a fraction in quotes",
}


class StrictRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file holds at some place: these keys and no others, each of its type."""


class MisfitError(ValueError):
    """A value is not what belongs at its place; the place is relative to the value that is being decoded.

    >>> try:
    ...     convert({"ages": [3, "4"]}, dict[str, list[int]])
    ... except MisfitError as wrong:
    ...     written(wrong.place), str(wrong)
    ('ages[1]', "This is a text ('4'); a whole number is expected.")
    """

    def __init__(self, problem: str, place: Place = ()) -> None:
        super().__init__(problem if len(problem) <= _MOST_TEXT else f"{problem[:_MOST_TEXT]}…")
        self.place = place

    def in_file(self, file: str) -> FileError:
        """The same error about a file that hdmm wrote."""
        at = ": ".join(filter(None, (file, written(self.place))))
        return FileError(f"{at}: {self} The file is damaged or was edited; save it again.")


def convert(value: object, form: Any, hook: Hook | None = None) -> Any:
    """The value as a record, list or number of this form, without any coercion; MisfitError if it does not fit."""
    try:
        return msgspec.convert(value, form, dec_hook=hook)
    except msgspec.ValidationError as wrong:
        raise _misfit(wrong, value, form, hook) from None


def written(place: Place, *, first: int = 0) -> str:
    """A place as messages write it; items of lists count from `first`.

    >>> written(("table", 0, "sql"), first=1)
    'table[1].sql'
    """
    parts = [f"[{part + first}]" if isinstance(part, int) else f".{_key(part)}" for part in place]
    return "".join(parts).removeprefix(".")


def shown(value: object) -> str:
    """A value from a file as messages show it: short, quoted."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "of many digits"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def described(value: object) -> str:
    """What a value is, and the value if it is short.

    >>> described([1, 2]), described(True), described(1.5)
    ('a list of 2', 'true', 'a number (1.5)')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return f"a list of {len(cast(list[object], value))}"
        case int() | float() | str() if type(value) in _WORDS:
            return f"{_WORDS[type(value)]} ({shown(value)})"
        case datetime.date() | datetime.time():
            return "a date or time"
        case _:
            return _WORDS.get(type(value), f"a {type(value).__name__}")


def _misfit(wrong: msgspec.ValidationError, value: object, form: Any, hook: Hook | None) -> MisfitError:
    text, cause = str(wrong), wrong.__cause__
    path = _AT.search(text)
    place, value, form = _followed(path[1] if path else "", value, form, hook)
    if cause is not None:  # what a hook raised
        return MisfitError(str(cause), (*place, *(cause.place if isinstance(cause, MisfitError) else ())))
    if text.startswith("Object ") and isinstance(value, dict):
        keys = _keys(form, cast(dict[str, object], value))
        if text.startswith("Object missing"):
            missing = text.split("`")[1]
            return MisfitError(f"The key {missing!r} is missing and is required{_about(keys.get(missing))}.", place)
        unknown = next((key for key in cast(dict[str, object], value) if key not in keys), "")
        hint = did_you_mean(unknown[:_MOST_SHOWN], keys)  # which takes memory in proportion to the length
        return MisfitError(f"This key is unknown; keys: {', '.join(keys)}.{hint}", (*place, unknown))
    if text.startswith("Number out of range"):
        return MisfitError("This number is too large.", place)
    bounds = ", got `" not in text  # they matter only if the type is right
    comma = decimal_point(value)
    return MisfitError(f"This is {described(value)}; {_expected(form, bounds)} is expected.{comma}", place)


def _followed(path: str, value: Any, form: Any, hook: Hook | None) -> tuple[Place, Any, Any]:
    """The place that msgspec names, the value that stands there, and what it should be.

    A key that the file chose may look like the end of msgspec's text, so the path ends at a step that leads nowhere.
    """
    place: Place = ()
    for step in _STEP.finditer(path):
        key = step[1] or (int(step[2]) if step[2] else _failing(value, form, hook))
        inner = _inner(form, value, key)
        if inner is None:
            break
        place, value, form = (*place, key), value[key], inner
    return place, value, form


def _failing(value: Any, form: Any, hook: Hook | None) -> str:
    """The key of a dictionary whose value does not fit, which msgspec does not name."""
    for key, each in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.convert(each, _inner(form, value, key), dec_hook=hook)
        except msgspec.ValidationError:
            return key
    return ""


def _inner(form: Any, value: Any, key: str | int) -> Any:
    """What is expected below a form at a key or position; None if nothing is."""
    options = [option for option, _ in _options(form)]
    if isinstance(value, dict) and key in value:
        tables = [get_args(option)[1] for option in options if get_origin(option) is dict]
        return tables[0] if tables else _keys(form, cast(dict[str, object], value)).get(str(key))
    if isinstance(value, list) and isinstance(key, int) and key < len(cast(list[object], value)):
        lists = [get_args(option) for option in options if get_origin(option) in (list, tuple)]
        return lists[0][min(key, len(lists[0]) - 1)] if lists else None
    return None


def _keys(form: Any, value: dict[str, object]) -> dict[str, Any]:
    """The keys of the record that a table of keys stands for, with their forms; the tag decides among a union."""
    records = [
        option for option, _ in _options(form) if isinstance(option, type) and issubclass(option, msgspec.Struct)
    ]
    keys: dict[str, Any] = {}
    for record in records:
        config = record.__struct_config__
        if config.tag_field is not None:
            keys[config.tag_field] = Literal[tuple(each.__struct_config__.tag for each in records)]
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            keys |= get_type_hints(record, include_extras=True)
    return keys


def _options(form: Any, metas: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The forms that a union allows, each with its own metadata."""
    if get_origin(form) is Annotated:
        inner, *more = get_args(form)
        yield from _options(inner, (*metas, *more))
    elif get_origin(form) in (Union, UnionType):
        for each in get_args(form):
            yield from _options(each)
    else:
        yield form, metas


def _expected(form: Any, bounds: bool) -> str:
    """What belongs there: the words that the form gives, or else its types; and the bounds if asked for."""
    match get_origin(form), get_args(form):
        case (origin, (inner, last)) if origin in (Union, UnionType) and last is type(None):
            return _expected(inner, bounds)
        case _:
            pass
    for meta in getattr(form, "__metadata__", ()):
        if meta.extra:
            return str(meta.extra["expected"])
    words = {_word(option): "".join(map(_bounds, metas)) if bounds else "" for option, metas in _options(form)}
    if "a number" in words:
        words.pop("a whole number", None)
    if len(words) > 1:
        words.pop("null", None)
    return " or ".join(word + condition for word, condition in words.items())


def _word(option: Any) -> str:
    origin = get_origin(option) or option
    if origin is Literal:
        return f"one of {_choices(get_args(option))}"
    if origin is tuple:
        return f"a list of {len(get_args(option))}"
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return f"one of {_choices(each.value for each in origin)}"
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return _WORDS[dict]
    return _WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")


def _choices(values: Any) -> str:
    return ", ".join(f'"{each}"' for each in values)


def _bounds(meta: msgspec.Meta) -> str:
    """A condition, such as " from 1 to 10"."""
    if meta.ge is not None:
        return f" from {meta.ge}" + (f" to {meta.le}" if meta.le is not None else "")
    if meta.gt is not None:
        return f" above {meta.gt:g}" if meta.lt is None else f" between {meta.gt:g} and {meta.lt:g}"
    if meta.max_length is not None:
        return f" of {meta.min_length or 0} to {meta.max_length:,} items"
    return " that is not empty" if meta.min_length or meta.pattern else ""


def _about(form: Any) -> str:
    """What a key is for, as a clause."""
    found = next((meta.description for meta in getattr(form, "__metadata__", ()) if meta.description), None)
    return f": {found[0].lower()}{found[1:].removesuffix('.')}" if found else ""


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else shown(key)
