"""The API reference: the public names with their signatures and docstrings. `make docs` makes a page of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType

import hdmm
from hdmm.describe.predicates import PREDICATE_SETS

SETS = [each.__name__ for each in PREDICATE_SETS if each.__name__ in hdmm.__all__]
CHAPTERS = {
    "What the table can contain": "Domain Attribute Labels Integers Bins Amount",
    "Which counts matter": f"Workload Product PredicateSet {' '.join(SETS)} sql",
    "What to measure": "optimize Plan load_plan Strategy baselines matrix",
    "Error before any data": "expected_error rmse query_variance unit_error supports lower_bound",
    "What it may cost": "PureDP ZCDP GaussianDP ApproxDP Noise Unit Ledger Receipt",
    "Data": "from_table from_array from_chunks Data",
    "Past one machine": "engines",
    "Releases and answers": "Release ChunkedRelease load_release load_chunked combine Known Answers Table",
    "Specifications": "load_spec Spec publish Publication",
    "Errors": " ".join([*sorted(name for name in hdmm.__all__ if name.endswith("Error")), "Interrupted"]),
}
START = """\
# API reference

This page lists the names of `import hdmm`, from their docstrings. The docstrings also have examples: see, for example,
`help(hdmm.optimize)`. Every exception except `Interrupted` is an `HdmmError`.
"""


def page() -> str:
    """The whole page."""
    parts = [START]
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        for name in names.split():
            parts.extend(_entry(name, getattr(hdmm, name)))
    return "\n".join(parts)


def _entry(name: str, thing: object) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(thing, ModuleType):
        yield f"{_text(thing)}\n"
        members = ((f"{name}.{each}", getattr(thing, each)) for each in thing.__all__)
        yield from _list(
            (name, member) for name, member in members if getattr(member, "__module__", "").startswith("hdmm")
        )
        return
    if (signature := _signature(thing)) is not None:
        yield f"```python\n{name}{signature}\n```\n"
    yield f"{_text(thing)}\n"
    if isinstance(thing, type):
        yield from _list(_members(thing))


def _members(of: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties with their own docstring; one that overrides is described where it is declared."""
    for name, member in vars(of).items():
        plain = member.__func__ if isinstance(member, classmethod) else member
        described = isinstance(plain, property | cached_property) or inspect.isfunction(plain)
        if not name.startswith("_") and described and plain.__doc__:
            yield (f"{of.__name__}.{name}" if isinstance(member, classmethod) else name), plain


def _list(members: Iterator[tuple[str, object]]) -> Iterator[str]:
    lines = [f"- `{name}{_signature(member) or ''}`: {' '.join(_text(member).split())}" for name, member in members]
    if lines:
        yield "\n".join(lines) + "\n"


def _signature(thing: object) -> str | None:
    """(name: type = default, …) -> type, as in the source; None if there is nothing of ours to call."""
    plain = isinstance(thing, type) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    if plain or inspect.isabstract(thing) or not callable(thing):
        return None
    signature = inspect.signature(thing)
    given: list[str] = []
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in given):
            given.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        given.append(f"{stars}{name}{_annotation(': ', parameter.annotation)}{default}")
    returned = "" if isinstance(thing, type) else _annotation(" -> ", signature.return_annotation)
    return f"({', '.join(given)}){returned}"


def _annotation(before: str, annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return before + (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation)))


def _text(thing: object) -> str:
    """The docstring up to its first example."""
    return re.split(r"\n*^>>> ", inspect.getdoc(thing) or "", maxsplit=1, flags=re.MULTILINE)[0].strip()
