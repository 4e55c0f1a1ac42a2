"""Conditions on cells: the combinations of cells that a WHERE keeps, and their exact split into disjoint boxes.

SQL's logic has three values, but a WHERE keeps only what is true. Once every NOT has been moved down to the
comparisons, where "not true" and "false" are distinguished, only ANDs and ORs of sets of cells remain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias, cast, final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.matrix import Array
from hdmm.sql.cells import Cells, intersection, partition

MOST_BOXES = 2**14
MOST_JOINED = 2**10  # alternatives on several attributes in one condition
MOST_STEPS = 2**23  # sets visited to split the conditions of one statement: about ten seconds
_MOST_ORDERED = 4  # up to this many attributes, every order of splitting is tried: 24 orders


AxisOrPair: TypeAlias = int | tuple[int, int]
"""An attribute, or two whose cells, in row-major order, are seen together: those where x + y ≤ 5."""


@final
@dataclass(frozen=True, slots=True)
class On:
    """The cell of one attribute, or of two, is in a set that is neither empty nor full."""

    axis: AxisOrPair
    cells: Cells


@final
@dataclass(frozen=True, slots=True)
class And:
    """All parts hold. There is at most one On per attribute, and no part is an And."""

    parts: frozenset[On | Or]


@final
@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds. There is at most one On per attribute, and no part is an Or."""

    parts: frozenset[On | And]


Formula: TypeAlias = bool | On | And | Or
Box: TypeAlias = dict[AxisOrPair, Cells]
"""A product of sets of cells; attributes that are not listed are not restricted."""


def on(axis: AxisOrPair, cells: Cells) -> Formula:
    """`axis in cells` as a formula.

    >>> on(0, Cells.span(4, 0, 4)), on(0, Cells.span(4, 2, 2))
    (True, False)
    """
    return cells.full or (bool(cells) and On(axis, cells))


def conjunction(formulas: Iterable[Formula]) -> Formula:
    """The formula that all of these hold, with the sets of each attribute intersected."""
    cells: dict[AxisOrPair, list[Cells]] = {}
    rest: set[On | Or] = set()
    for f in formulas:
        for part in f.parts if isinstance(f, And) else (f,):
            if part is False:
                return False
            if isinstance(part, On):
                cells.setdefault(part.axis, []).append(part.cells)
            elif isinstance(part, Or):
                rest.add(part)
    literals = [on(axis, intersection(sets)) for axis, sets in cells.items()]
    if False in literals:
        return False
    if len(rest) > MOST_JOINED:
        raise WorkloadError(
            f"There are more than {MOST_JOINED:,} alternatives on several attributes at once. Merge these attributes "
            "with Domain.merge, or write fewer alternatives."
        )
    parts = rest | {x for x in literals if isinstance(x, On)}
    return True if not parts else next(iter(parts)) if len(parts) == 1 else And(frozenset(parts))


def disjunction(formulas: Iterable[Formula]) -> Formula:
    """The formula that at least one of these holds: the complement of the conjunction of complements.

    >>> disjunction([on(0, Cells.span(4, 0, 2)), on(0, Cells.span(4, 2, 4))])
    True
    """
    return complement(conjunction(map(complement, formulas)))


def complement(f: Formula) -> Formula:
    """The cells where a formula does not hold. O(size of the formula)."""
    match f:
        case On(axis, cells):
            return On(axis, ~cells)
        case And(parts):
            return Or(frozenset(_turned(part) for part in parts))  # pyright: ignore[reportArgumentType]
        case Or(parts):
            return And(frozenset(_turned(part) for part in parts))  # pyright: ignore[reportArgumentType]
        case _:
            return not f


def axes(f: Formula) -> set[int]:
    """The attributes on which a formula depends."""
    return {i for part in _literals(f) for i in attributes(part.axis)}


def attributes(place: AxisOrPair) -> tuple[int, ...]:
    """The attributes of a place."""
    return (place,) if isinstance(place, int) else place


def settled(f: Formula, grouped: Collection[int], shape: Sequence[int]) -> Formula:
    """The same formula, in which conditions on two attributes at once share no attribute with any other condition.

    Where nothing else but conditions on these two, or on one of them, touches the two, all of them become conditions
    on both together: x + y ≤ 5 AND x ≥ 2 is one set of cells. Else, or where rows are grouped by one of the two, the
    set is split by the cells of the first into disjoint boxes.
    """
    pairs = {part.axis for part in _literals(f) if isinstance(part.axis, tuple)}
    alone = {
        pair
        for pair in pairs
        if not set(pair) & set(grouped) and not any(set(pair) & set(other) for other in pairs - {pair})
    }
    over = {i: pair for pair in alone for i in pair}

    def moved(part: On) -> Formula:
        if isinstance(part.axis, tuple):
            return part if part.axis in alone else _unrolled(part, shape)
        return part if part.axis not in over else _lifted(part.axis, part.cells, over[part.axis], shape)

    return _mapped(f, moved) if pairs else f


def holds(f: Formula, codes: Sequence[Array], shape: Sequence[int]) -> Array:
    """Whether a formula holds in each row, given as one array of codes per attribute. O(rows · literals).

    >>> holds(on(1, Cells.span(4, 0, 2)), [np.array([0, 0]), np.array([1, 3])], [2, 4])
    array([ True, False])
    """
    match f:
        case On(axis, cells):
            inside = np.zeros(cells.n, dtype=bool)
            for low, high in cells.runs:
                inside[low : high + 1] = True
            places = np.zeros(len(codes[0]), np.int64)
            for i in attributes(axis):
                places = places * shape[i] + codes[i]
            return inside[places]
        case And(parts):
            return np.logical_and.reduce([holds(part, codes, shape) for part in parts])
        case Or(parts):
            return np.logical_or.reduce([holds(part, codes, shape) for part in parts])
        case _:
            return np.full(len(codes[0]), bool(f))


def _mapped(f: Formula, moved: Callable[[On], Formula]) -> Formula:
    """The formula with another one in the place of every set of cells."""
    match f:
        case On():
            return moved(f)
        case And(parts):
            return conjunction(_mapped(part, moved) for part in parts)
        case Or(parts):
            return disjunction(_mapped(part, moved) for part in parts)
        case _:
            return f


def _unrolled(part: On, shape: Sequence[int]) -> Formula:
    """A condition on two attributes as alternatives of a set of each."""
    first, second = attributes(part.axis)
    rows: dict[Cells, list[tuple[int, int]]] = {}
    n = shape[second]
    for i in range(shape[first]):
        row = part.cells & Cells.span(part.cells.n, i * n, (i + 1) * n)
        rows.setdefault(Cells(n, tuple((lo - i * n, hi - i * n) for lo, hi in row.runs)), []).append((i, i))
    return disjunction(
        conjunction([on(first, Cells.of(shape[first], runs)), on(second, cells)]) for cells, runs in rows.items()
    )


def _lifted(axis: int, cells: Cells, pair: tuple[int, int], shape: Sequence[int]) -> Formula:
    """A condition on one of two attributes as one on both."""
    m, n = shape[pair[0]], shape[pair[1]]
    if axis == pair[0]:
        return on(pair, Cells.of(m * n, ((lo * n, (hi + 1) * n - 1) for lo, hi in cells.runs)))
    return on(pair, Cells.of(m * n, ((i * n + lo, i * n + hi) for i in range(m) for lo, hi in cells.runs)))


@final
@dataclass(slots=True)
class Steps:
    """The number of sets visited so far for all conditions of one statement."""

    taken: int = 0

    def take(self, count: int) -> None:
        """Add to the count; WorkloadError if it exceeds the limit (security R1)."""
        self.taken += count
        if self.taken > MOST_STEPS:
            raise WorkloadError(
                "The conditions on several attributes at once take too long to split into products. Merge these "
                "attributes with Domain.merge, or write fewer alternatives."
            )


def boxes(f: Formula, *, first: Iterable[int] = (), steps: Steps | None = None) -> list[Box]:
    """Disjoint boxes whose union is the set where the formula holds; a conjunction is one box.

    Attributes are split one after the other, those in `first` before the others. Cells of an attribute that leave the
    same formula on the remaining attributes stay together. With up to four attributes, the best order is chosen.

    >>> either = disjunction([on(0, Cells.span(2, 0, 1)), on(1, Cells.span(9, 5, 9))])
    >>> [{axis: list(cells) for axis, cells in box.items()} for box in boxes(either)]
    [{0: [0]}, {0: [1], 1: [5, 6, 7, 8]}]
    """
    steps = Steps() if steps is None else steps
    used = {part.axis for part in _literals(f)}
    head = sorted(used & set(first), key=attributes)
    tail = sorted(used - set(first), key=attributes)
    if len(used) > _MOST_ORDERED:
        return list(_split(f, head + tail, steps))
    orders = [h + t for h in permutations(head) for t in permutations(tail)]
    return min((list(_split(f, order, steps)) for order in orders), key=len)


def _split(f: Formula, order: Sequence[AxisOrPair], steps: Steps) -> Iterator[Box]:
    found = 0
    stack: list[tuple[Formula, int, Box]] = [(f, 0, {})]
    while stack:
        rest, at, box = stack.pop()
        if rest is True:
            found += 1
            if found > MOST_BOXES:
                raise WorkloadError(
                    f"The condition splits into more than {MOST_BOXES:,} disjoint products. Merge the attributes that "
                    "OR joins with Domain.merge, or write fewer alternatives."
                )
            yield box
        elif rest is not False:
            axis = order[at]
            branches = _branches(rest, axis, steps)
            stack.extend((g, at + 1, box if c.full else {**box, axis: c}) for g, c in reversed(list(branches.items())))


def _branches(f: Formula, axis: AxisOrPair, steps: Steps) -> Mapping[Formula, Cells]:
    """Each formula that remains once the cell of one attribute is known, with the cells that lead to it."""
    literals = list(_literals(f))
    steps.take(len(literals))
    sets = {part.cells for part in literals if part.axis == axis}
    if not sets:
        return {f: Cells(1, ((0, 0),))}  # the formula does not depend on the attribute
    n = next(iter(sets)).n
    found: dict[Formula, Cells] = {}
    for alike in partition(sets, n):
        steps.take(len(literals))
        cell = alike.runs[0][0]
        rest = _mapped(f, lambda part, cell=cell: cell in part.cells if part.axis == axis else part)
        found[rest] = found[rest] | alike if rest in found else alike
    return found


def _turned(part: On | And | Or) -> On | And | Or:
    return cast("On | And | Or", complement(part))  # never a bool, because the set of a part is neither empty nor full


def _literals(f: Formula) -> Iterator[On]:
    match f:
        case On():
            yield f
        case And(parts) | Or(parts):
            for part in parts:
                yield from _literals(part)
        case _:
            return
