"""Mutants: every small change of a source file that this file knows how to make, each under a stable name.

A name is made of the file, the function and the words changed, never of a line number, and whether a mutant is in the
sample follows from its name alone. So an edit renames and resamples only the mutants of what it changes.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

_ENOUGH = 20  # characters of an expression that tell which one it is
_LONGEST = 90  # characters of an expression in a name
_T = TypeVar("_T")

_COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitXor: ast.BitOr,
}
_TWINS = "min max, floor ceil, floor rint, ceil rint, any all, minimum maximum, argmin argmax, up down"
_TWINS = [pair.split() for pair in f"{_TWINS}, ROUND_FLOOR ROUND_CEILING, LOCK_EX LOCK_SH".split(", ")]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file with one change: its name, its source, and the lines of the statement that is changed."""

    name: str
    source: str
    lines: range


def mutants(path: str, source: str, *, one_in: int = 1) -> Iterator[Mutant]:
    """The mutants of a file; if `one_in` is given, a sample of about one in so many, always the same.

    Numbers can be changed in many ways and few of them say much, so they come at a third of the rate.

    >>> for mutant in mutants("area.py", "def area(a, b):\\n    return a * b"):
    ...     print(mutant.name)
    area.py area: `return a * b` as `return a + b`
    """
    tree = ast.parse(source)
    words = {*dir(builtins), *(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))}
    seen = Counter[str]()
    for place in _places(tree, (), ()):
        for changed in _changes(place.node, words):
            change = f"{'.'.join(place.scope) or 'module'}: {_described(place, changed)}"
            seen[change] += 1
            if seen[change] > 1:
                change = f"{change} ({seen[change]})"
            rate = 3 * one_in if one_in > 1 and isinstance(changed, ast.Constant) else one_in
            if int(sha256(change.encode()).hexdigest(), 16) % rate == 0:  # a file that moves keeps its sample
                place.put(changed)
                yield Mutant(f"{path} {change}", ast.unparse(tree) + "\n", place.lines)
                place.put(place.node)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node, where it hangs in the tree, and the functions and classes around it."""

    node: ast.expr | ast.stmt
    above: tuple[ast.AST, ...]  # from the nearest outwards
    field: str
    index: int | None
    scope: tuple[str, ...]

    @property
    def lines(self) -> range:
        """The lines of the statement around it; of one that holds others only the lines before them."""
        statement = next(node for node in (self.node, *self.above) if isinstance(node, ast.stmt))
        inner: list[ast.stmt] = getattr(statement, "body", [])
        last = inner[0].lineno - 1 if inner else statement.end_lineno or 0
        return range(statement.lineno, max(statement.lineno, last) + 1)

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.above[0], self.field, node)
        else:
            getattr(self.above[0], self.field)[self.index] = node


def _places(parent: ast.AST, above: tuple[ast.AST, ...], scope: tuple[str, ...]) -> Iterator[_Place]:
    """Every expression and statement that decides anything, in the order of the source."""
    above = (parent, *above)
    if isinstance(parent, ast.FunctionDef | ast.ClassDef):
        scope = (*scope, parent.name)
    for field, value in ast.iter_fields(parent):
        if _decides_nothing(parent, field):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.expr | ast.stmt):
                yield _Place(node, above, field, index, scope)
            if isinstance(node, ast.AST):
                yield from _places(node, above, scope)


def _decides_nothing(parent: ast.AST, field: str) -> bool:
    """Types, decorators, the words of messages, and zip's strict, which only asserts."""
    match parent:
        case ast.JoinedStr() | ast.AnnAssign(annotation=ast.Name(id="TypeAlias")) | ast.keyword(arg="strict"):
            return True
        case ast.Call(func=ast.Name(id="cast")) | ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.Raise():
            return True
        case _:
            return field in ("annotation", "returns", "decorator_list", "bases")


def _changes(node: ast.expr | ast.stmt, words: set[str]) -> Iterator[ast.AST]:
    """What a node is changed to, one change at a time; `words` are the names that the file knows."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                yield ast.Compare(
                    node.left, [*node.ops[:i], _COMPARED[type(op)](), *node.ops[i + 1 :]], node.comparators
                )
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd(), right):  # flags, types and sets: each left out
            yield from (left, right)
        case ast.BinOp(left, op, right) if type(op) in _OPERATED:
            yield ast.BinOp(left, _OPERATED[type(op)](), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for some in _without_one(values):
                yield ast.BoolOp(op, some) if len(some) > 1 else some[0]
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(value):
            yield from map(ast.Constant, _constants(value))
        case ast.Name(name):
            yield from (ast.Name(other) for other in _twins(name) if other in words)
        case ast.Attribute(value, name):
            yield from (ast.Attribute(value, other) for other in _twins(name))
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Slice(lower, upper, step):
            if lower is not None:
                yield ast.Slice(None, upper, step)
            if upper is not None:
                yield ast.Slice(lower, None, step)
        case ast.Call(func, args, keywords) if not _text(func).split(".")[-1][0].isupper():  # a class needs its fields
            for some in _without_one([word for word in keywords if word.arg != "strict"]):
                yield ast.Call(func, args, some)
        case _:
            yield from _statements(node)


def _statements(node: ast.expr | ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()
        case ast.Raise(exc, cause):
            yield ast.Pass()
            if isinstance(cause, ast.Constant):  # from None: the cause may tell about the data
                yield ast.Raise(exc, None)
        case ast.If(ast.Name() | ast.Attribute() | ast.Call(), body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), body, orelse)
        case ast.With(items, body):
            for item, some in zip(items, _without_one(items), strict=True):
                if item.optional_vars is None:
                    yield ast.With(some, body, lineno=node.lineno) if some else ast.If(ast.Constant(True), body, [])
        case _:
            return


def _without_one(values: Sequence[_T]) -> list[list[_T]]:
    return [[*values[:i], *values[i + 1 :]] for i in range(len(values))]


def _constants(value: object) -> list[bool | int | float | str]:
    match value:
        case bool():
            return [not value]
        case int():
            return sorted({value + 1, value - 1, 2 * value} - {value})
        case float():
            return [2 * value] if value else [1.0]
        case str():
            return _twins(value)
        case _:
            return []


def _twins(word: str) -> list[str]:
    return [other for pair in _TWINS if word in pair for other in pair if other != word]


def _described(place: _Place, changed: ast.AST) -> str:
    """Before and after, with enough of what is around to be understood, and without the words of messages."""
    node: ast.AST = place.node
    before, after = _text(node), _text(changed)
    if isinstance(node, ast.Raise | ast.Break | ast.Continue) and isinstance(
        place.above[0], ast.If | ast.ExceptHandler
    ):
        before = f"{_text(place.above[0])} {before}"
    for outer in place.above:
        if isinstance(node, ast.stmt) or len(before) > _ENOUGH or not isinstance(outer, ast.expr | ast.stmt):
            break
        place.put(changed)
        wider = _text(outer)
        place.put(place.node)
        if len(wider) > _LONGEST:
            break
        node, before, after = outer, _text(outer), wider
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    return f"`{_cut(before, same)}` as `{_cut(after, same)}`"


def _text(node: ast.AST) -> str:
    """A node on one line: of a statement with a body the first line, of an exception its name."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        node = ast.Raise(ast.Call(node.exc.func, [ast.Constant(...)], []), node.cause)
    return " ".join(ast.unparse(node).split("\n")[0].split())


def _cut(text: str, same: int) -> str:
    """The text, cut to the place where it changes if it is long."""
    start = max(0, same - _LONGEST // 2) if len(text) > _LONGEST else 0
    end = start + _LONGEST
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
