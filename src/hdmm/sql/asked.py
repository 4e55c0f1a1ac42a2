"""AskedMeasures: what the aggregates of a SELECT count, sum or rank, each thing once; how rows follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

import numpy as np
import scipy.sparse as sp
from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.describe.aggregates import Aggregate, Linear, Quantiles, Quotient
from hdmm.matrix import Array
from hdmm.sql.conditions import constant
from hdmm.sql.products import GroupedProduct
from hdmm.sql.selection import SelectParts
from hdmm.sql.sums import COUNTED, Counted, Ordering, Valuation, limits, ordered, summed


@final
@dataclass(frozen=True, slots=True)
class AskedMeasures:
    """What is counted, and for each aggregate its header and the places among `counted` of what it is made of.

    `q` has the quantiles that are asked for, and None for other aggregates.
    """

    counted: tuple[Counted, ...]
    made_of: tuple[tuple[str, tuple[int, ...]], ...]
    q: tuple[float | None, ...]

    @property
    def linear(self) -> bool:
        """Whether every aggregate is a count or a sum."""
        return all(q is None and len(places) == 1 for q, (_, places) in zip(self.q, self.made_of, strict=True))

    @classmethod
    def of(cls, selection: SelectParts) -> AskedMeasures:
        """AVG is a sum and a count; whatever two aggregates share is asked for once."""
        numbers: dict[Counted, int] = {}
        made_of: list[tuple[str, tuple[int, ...]]] = []
        q: list[float | None] = []
        for each in selection.aggregates:
            needed: tuple[Counted, ...]
            match each.node:
                case exp.Sum():
                    needed = summed(selection.scope, each.node.this)[:1]
                case exp.Avg():
                    needed = summed(selection.scope, each.node.this)
                case exp.Median() | exp.Quantile():
                    needed = (ordered(selection.scope, each.node.this),)
                case _:
                    needed = (COUNTED,)
            made_of.append((each.header, tuple(numbers.setdefault(one, len(numbers)) for one in needed)))
            q.append(_probability(selection, each.node))
        return cls(tuple(numbers), tuple(made_of), tuple(q))


def at_ends(selections: Sequence[SelectParts]) -> tuple[tuple[int, ...], tuple[AskedMeasures, ...]] | None:
    """The sums and means of values of which only the bin is known, with every value at the ends of its bin.

    (their places among the aggregates, and for each SELECT all of them at the lower ends, then all at the upper ends);
    None if there are none.
    """
    found = [[_ends(one, each.node) for each in one.aggregates] for one in selections]
    which = tuple(k for k, each in enumerate(zip(*found, strict=True)) if any(e and e[0] != e[1] for e in each))
    asked: list[AskedMeasures] = []
    for one, ends in zip(selections, found, strict=True):
        numbers: dict[Counted, int] = {}
        wanted = [(k, (each[end], *each[2:])) for end in (0, 1) for k in which if (each := ends[k])]
        made_of = [
            (one.aggregates[k].header, tuple(numbers.setdefault(part, len(numbers)) for part in needed))
            for k, needed in wanted
        ]
        asked.append(AskedMeasures(tuple(numbers), tuple(made_of), (None,) * len(made_of)))
    return (which, tuple(asked)) if which else None


def _ends(selection: SelectParts, node: Expr) -> tuple[Valuation, ...]:
    """What a SUM adds up at the lower and at the upper ends of bins, and for AVG what it is divided by."""
    if not isinstance(node, exp.Sum | exp.Avg):
        return ()
    lower, upper = (summed(selection.scope, node.this, end)[0] for end in ("lower", "upper"))
    return (lower, upper, *summed(selection.scope, node.this)[1:]) if isinstance(node, exp.Avg) else (lower, upper)


def aggregates(asked: Sequence[AskedMeasures], found: Sequence[GroupedProduct]) -> tuple[Aggregate, ...]:
    """How the rows of all SELECTs follow from their queries: block after block, and in each, thing after thing."""
    starts = _starts(found)
    made: list[Aggregate] = []
    for k, (header, places) in enumerate(asked[0].made_of):
        last, q = made[-1] if made else None, asked[0].q[k]
        if (
            q is not None
            and isinstance(last, Quantiles)
            and all(one.made_of[k][1] == one.made_of[k - 1][1] for one in asked)
        ):
            made[-1] = replace(last, names=(*last.names, header), q=(*last.q, q))  # of one column: one after the other
            continue
        matrices = [_matrix(asked, found, starts, k, part) for part in range(len(places))]
        first = asked[0].counted[places[0]]
        if isinstance(first, Ordering) and q is not None:
            made.append(Quantiles((header,), matrices[0], (q,), *limits(first.values)))
        elif len(matrices) == 2:
            made.append(Quotient(header, matrices[0], matrices[1]))
        else:
            made.append(Linear(header, matrices[0]))
    return tuple(made)


def _probability(selection: SelectParts, node: Expr) -> float | None:
    """The q of a quantile; ½ for a median."""
    if not isinstance(node, exp.Quantile):
        return 0.5 if isinstance(node, exp.Median) else None
    given = node.args.get("quantile")
    q = None if given is None else constant(selection.scope, given)
    if not isinstance(q, Fraction) or not 0 < q < 1:
        raise selection.scope.source.at(node, "A quantile needs a number between 0 and 1, such as QUANTILE(age, 0.25).")
    return float(q)


def _starts(found: Sequence[GroupedProduct]) -> list[list[int]]:
    """The number of the first query of each thing that is counted, by block, and last the number of all queries."""
    sizes = [[sum(summand.queries for summand in each) for each in block.summands] for block in found]
    ends = list(itertools.accumulate(itertools.chain.from_iterable(sizes), initial=0))
    at = itertools.accumulate((len(each) for each in sizes), initial=0)
    return [ends[start : start + len(each)] for start, each in zip(at, sizes, strict=False)] + [ends[-1:]]


def _matrix(
    asked: Sequence[AskedMeasures],
    found: Sequence[GroupedProduct],
    starts: Sequence[Sequence[int]],
    k: int,
    part: int,
) -> sp.csr_array:
    """The coefficients of aggregate k (of its numerator or denominator): a row per row, or per prefix of one."""
    rows, queries, amounts = list[Array](), list[Array](), list[Array]()
    row = 0
    for block, start in zip(found, starts, strict=False):
        one = asked[block.select]
        place = one.made_of[k][1][part]
        of, to, amount = block.entries(place)
        rows.append(row + of)
        queries.append(start[place] + to)
        amounts.append(amount)
        counted = one.counted[place]
        row += block.rows * (len(counted.cells) if isinstance(counted, Ordering) else 1)
    entries = np.concatenate(amounts), (np.concatenate(rows), np.concatenate(queries))
    return sp.csr_array(entries, shape=(row, starts[-1][0]))
