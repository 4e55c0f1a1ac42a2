"""How two publications differ: their tables, the estimates that noise alone does not explain, and what they spent.

Only what was published is read. Noise of different releases is independent, so variances add. Where two releases share
measurements it is not: then standard errors add, which is the most that the error of a difference can be, and a release
differs from itself by no noise at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.answers.margins import half_width
from hdmm.answers.table import Table
from hdmm.matrix import Array
from hdmm.measure.combine import composed, share_measurements
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.publication.ask import Published, shown_table

Relation: TypeAlias = Literal["same", "shared", "independent"]
_RowKey: TypeAlias = tuple[tuple[str | None, ...], int]
_ROUNDING = 1e-9  # relative: files hold all digits, but a table may be computed in another order


@final
@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row whose two estimates are further apart than `margin`."""

    labels: tuple[str | None, ...]
    first: float
    second: float
    margin: float

    @property
    def excess(self) -> float:
        """How many margins the estimates are apart."""
        return abs(self.second - self.first) / self.margin if self.margin else float("inf")


@final
@dataclass(frozen=True, slots=True)
class TableDifference:
    """A table that both have: how many rows were compared, which differ (by most first), and what was not compared.

    `columns_differ` says that the tables have other columns, so that nothing was compared.
    """

    name: str
    rows: int
    differing: tuple[RowDifference, ...]
    only_first: int
    only_second: int
    without_margin: int
    columns_differ: bool = False


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """Two publications beside each other. `together` is the guarantee of both, if both are of one dataset."""

    relation: Relation
    level: float
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    tables: tuple[TableDifference, ...]
    together: Privacy | None


def difference(first: Published, second: Published, *, level: float | None = None) -> Difference:
    """How the tables of two publications differ, at a confidence level or at the larger of those they have."""
    relation, at = _relation(first, second), level or max(first.level, second.level)
    both = [name for name in first.tables if name in second.tables]
    found = (_table(first, second, name, relation, at) for name in both)
    return Difference(
        relation,
        at,
        tuple(name for name in first.tables if name not in second.tables),
        tuple(name for name in second.tables if name not in first.tables),
        tuple(found),
        _together(first, second, relation),
    )


def _relation(first: Published, second: Published) -> Relation:
    one, two = first.release, second.release
    receipts = [each.receipt.hash for each in (one, two) if each.receipt is not None]
    same = len(one.measurements) == len(two.measurements) and all(
        map(np.array_equal, one.measurements, two.measurements)
    )
    if same or len(receipts) == 2 > len(set(receipts)):
        return "same"
    return "shared" if share_measurements([one, two]) else "independent"


def _together(first: Published, second: Published, relation: Relation) -> Privacy | None:
    receipts = [each.release.receipt for each in (first, second)]
    names = {None if receipt is None else receipt.dataset for receipt in receipts}
    kinds = {each.release.privacy.noise for each in (first, second)}
    if relation != "independent" or len(names) > 1 or names == {None} or len(kinds) > 1:
        return None
    return composed([first.release.privacy, second.release.privacy])


def _table(first: Published, second: Published, name: str, relation: Relation, level: float) -> TableDifference:
    one, two = (shown_table(each, name, level=None) for each in (first, second))
    if one.attributes != two.attributes:
        return TableDifference(name, 0, (), len(one), len(two), 0, columns_differ=True)
    places = dict(_numbered(two))
    pairs = [(i, places[key], key[0]) for key, i in _numbered(one) if key in places]
    left, right = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    a, b = one.estimate[left], two.estimate[right]
    margin = _margin(one.stddev[left], two.stddev[right], relation, level, _noise(first, second))
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(margin)
    beyond = known & (np.abs(b - a) > margin + _ROUNDING * np.maximum(1, np.abs(a)))
    rows = [
        RowDifference(pairs[k][2], float(a[k]), float(b[k]), float(margin[k])) for k in np.flatnonzero(beyond).tolist()
    ]
    rows.sort(key=lambda row: (row.excess, abs(row.second - row.first)), reverse=True)
    return TableDifference(
        name,
        int(known.sum()),
        tuple(rows),
        len(one) - len(pairs),
        len(two) - len(pairs),
        len(pairs) - int(known.sum()),
    )


def _margin(one: Array, two: Array, relation: Relation, level: float, noise: Noise) -> Array:
    """How far two estimates of one number may be apart by noise."""
    match relation:
        case "same":
            return np.zeros(len(one))
        case "shared":
            return half_width(one + two, level, noise)
        case "independent":
            return half_width(np.hypot(one, two), level, noise)


def _noise(first: Published, second: Published) -> Noise:
    """Gaussian if both are: the quantiles of Laplace noise are the larger ones, also for sums of both."""
    kinds = {each.release.privacy.noise for each in (first, second)}
    return Noise.GAUSSIAN if kinds == {Noise.GAUSSIAN} else Noise.LAPLACE


def _numbered(table: Table) -> Iterator[tuple[_RowKey, int]]:
    """The rows by their labels; rows with equal labels are told apart by their order."""
    seen: Counter[tuple[str | None, ...]] = Counter()
    for place, labels in enumerate(table.labels()):
        yield (labels, seen[labels]), place
        seen[labels] += 1
