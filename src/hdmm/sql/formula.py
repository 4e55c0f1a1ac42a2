"""Conditions on cells: the combinations of cells that a WHERE keeps, and their exact split into disjoint boxes.

SQL's logic has three values, but a WHERE keeps only what is true. Once every NOT has been moved down to the
comparisons, where "not true" and "false" are distinguished, only ANDs and ORs of sets of cells remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias, cast, final

from hdmm.exceptions import WorkloadError
from hdmm.sql.cells import Cells, intersection, partition

MOST_BOXES = 2**14
MOST_JOINED = 2**10  # alternatives on several attributes in one condition
MOST_STEPS = 2**23  # sets visited to split the conditions of one statement: about ten seconds
_MOST_ORDERED = 4  # up to this many attributes, every order of splitting is tried: 24 orders


@final
@dataclass(frozen=True, slots=True)
class On:
    """The cell of one attribute is in a set that is neither empty nor full."""

    axis: int
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
Box: TypeAlias = dict[int, Cells]
"""A product of sets of cells; attributes that are not listed are not restricted."""


def on(axis: int, cells: Cells) -> Formula:
    """`axis in cells` as a formula.

    >>> on(0, Cells.span(4, 0, 4)), on(0, Cells.span(4, 2, 2))
    (True, False)
    """
    return cells.full or (bool(cells) and On(axis, cells))


def conjunction(formulas: Iterable[Formula]) -> Formula:
    """The formula that all of these hold, with the sets of each attribute intersected."""
    cells: dict[int, list[Cells]] = {}
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
    return {part.axis for part in _literals(f)}


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
    used = axes(f)
    head = sorted(used & set(first))
    tail = sorted(used - set(first))
    if len(used) > _MOST_ORDERED:
        return list(_split(f, head + tail, steps))
    orders = [h + t for h in permutations(head) for t in permutations(tail)]
    return min((list(_split(f, order, steps)) for order in orders), key=len)


def _split(f: Formula, order: Sequence[int], steps: Steps) -> Iterator[Box]:
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


def _branches(f: Formula, axis: int, steps: Steps) -> Mapping[Formula, Cells]:
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
        rest = _known(f, axis, alike.runs[0][0])
        found[rest] = found[rest] | alike if rest in found else alike
    return found


def _known(f: Formula, axis: int, cell: int) -> Formula:
    match f:
        case On():
            return cell in f.cells if f.axis == axis else f
        case And(parts):
            return conjunction(_known(part, axis, cell) for part in parts)
        case Or(parts):
            return disjunction(_known(part, axis, cell) for part in parts)
        case _:
            return f


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
