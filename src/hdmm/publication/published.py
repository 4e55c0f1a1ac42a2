"""Questions to what was published: tables answered from what was measured, and how two publications differ.

No data is read, and nothing is spent. Noise of different releases is independent, so variances add. Where two releases
share measurements it is not: then standard errors add, which is the most that the error of a difference can be, and a
release differs from itself by no noise at all.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import numpy as np

from hdmm.answers.margins import PLAIN, Reliability, half_width
from hdmm.answers.table import BinBounds, Table
from hdmm.base.exceptions import DomainError, FileError, StrategyError
from hdmm.base.hints import did_you_mean, first_of
from hdmm.base.lazy import Lazy
from hdmm.base.numbers import LEVEL
from hdmm.base.tolerances import SAME_COUNT
from hdmm.describe.column import columns
from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.describe.table_column import TableColumn
from hdmm.describe.table_query import TableQuery
from hdmm.io.folder import restore
from hdmm.io.strict_json import Json
from hdmm.matrix import Array
from hdmm.measure.combine import share_measurements
from hdmm.measure.release import Release, charged, load_release
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.publication.answered import answer_table
from hdmm.publication.files import BIN_COLUMNS, NUMBER_COLUMNS
from hdmm.publication.metadata import read_metadata
from hdmm.sql import parse, select_sql

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

Relation: TypeAlias = Literal["same", "shared", "independent"]
_RowKey: TypeAlias = tuple[tuple[str | None, ...], int]

_EARLIER = {"stddev": "standard_error"}  # what columns were called in files of earlier versions
_MOST_NAMED = 8  # sets of attributes in one message


@final
@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """The release in a folder, and the tables that were published beside it, if it is an output folder."""

    folder: Path
    release: Release
    level: float = LEVEL
    tables: tuple[str, ...] = ()
    kind: str = "unbiased"
    """What the counts of the published tables are: unbiased, nonnegative or integers."""
    reliability: Reliability = PLAIN
    """By which rule numbers are graded."""
    titles: tuple[str, ...] = ()
    """What the published tables are about."""
    impossible: tuple[str, ...] = ()
    """Conditions that no record fulfils, so that answers leave such cells out."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that questions may name."""
        return tuple(columns(self.release.domain.attributes))


def open_published(folder: Path) -> Published:
    """What lies in an output folder, or in a folder that `Release.save` wrote."""
    restore(folder)
    if (folder / "release.json").exists():
        return Published(folder, load_release(folder))
    if not os.path.lexists(folder / "release"):
        raise FileError(f"There is no release in {folder}. Give the output folder of a release, such as out.")
    return _stated(Published(folder, load_release(folder / "release")))


def asked_tables(published: Published, sql: str, *, level: float | None) -> Iterator[Table]:
    """The table of each SELECT of a text, with its margins; StrategyError that says what was not measured."""
    release = published.release
    for query in parse(release.domain, sql, impossible=published.impossible):
        yield _answered(published, query, level or published.level)


def shown_table(published: Published, name: str, *, level: float | None) -> Table:
    """A published table by its name, as it was published; or counts by columns, such as "sex,age", or "total"."""
    if name in published.tables:
        if level is not None and level != published.level:
            raise StrategyError(
                f"Table {name!r} was published with intervals of {published.level:g}. Leave out the level, or ask for "
                "its columns."
            )
        return _read(published, name)
    known = published.columns
    wanted = [] if name == "total" and name not in known else [part.strip() for part in name.split(",")]
    for part in wanted:
        if part not in known:
            there = ", ".join(published.tables) or "none"
            hint = did_you_mean(part, [*published.tables, *known])
            raise DomainError(
                f"{name!r} is neither a published table nor a list of columns, such as {','.join(known[:2])}. Tables: "
                f"{there}; columns: {', '.join(known)}.{hint}"
            )
    (table,) = asked_tables(published, select_sql(list(dict.fromkeys(wanted)), ["COUNT(*)"]), level=level)
    return replace(table, name=name, title=name)


def _answered(published: Published, query: TableQuery, level: float) -> Table:
    release = published.release
    unsupported = [p for p in query.workload.products if math.isinf(release.form.total_variance([p]))]
    if unsupported:
        raise StrategyError(_missing(release, unsupported[0]))
    return answer_table(release, level, query, reliability=replace(published.reliability, suppress=None))


def _missing(release: Release, product: Product) -> str:
    """What a product asks for that was not measured, in words."""
    domain = release.domain
    asked = frozenset(product.axes)
    sets = {frozenset(block.axes) for block in release.strategy.blocks}
    largest = sorted((s for s in sets if not any(s < other for other in sets)), key=lambda s: (-len(s & asked), len(s)))
    listed = first_of([_names(domain, s) for s in largest], _MOST_NAMED, "; ")
    unseen = asked.difference(*sets)
    if unseen:
        what = f"nothing was measured about {_names(domain, unseen, ' or ')}"
    elif any(asked <= s for s in sets):
        what = f"what was measured of {_names(domain, asked)} does not distinguish these counts"
    else:
        what = f"{_names(domain, asked)} were not measured together"
    return (
        f"The release has no answer: {what}. It measured {listed}. Ask for columns that were measured together, "
        "or release a table of these."
    )


def _names(domain: Domain, axes: frozenset[int], joint: str = " × ") -> str:
    return joint.join(domain.names[i] for i in sorted(axes)) or "the total"


def _stated(found: Published) -> Published:
    """With what the metadata of the publication states; the defaults if nothing is published yet."""
    facts = read_metadata(found.folder)
    if facts is None:
        return found
    level, tables, counts = facts.get("level"), facts.get("tables"), facts.get("counts")
    if not isinstance(level, float) or not 0 < level < 1 or not isinstance(tables, list):
        path = found.folder / "metadata.json"
        raise FileError(f"{path} is not the metadata of a publication. Give the output folder of a release.")
    names, titles = ([each.get(key) for each in tables if isinstance(each, dict)] for key in ("name", "title"))
    kind = counts.get("kind") if isinstance(counts, dict) else None
    return replace(
        found,
        level=level,
        tables=_texts(names),
        titles=_texts(titles),
        kind=kind if isinstance(kind, str) else found.kind,
        impossible=_texts(facts.get("impossible")),
        reliability=_rule(facts.get("reliability")),
    )


def _rule(given: Json) -> Reliability:
    """The rule by which a publication grades numbers; the plain one if an earlier version did not state it."""
    fair = given.get("fair") if isinstance(given, dict) else None
    return Reliability(fair) if isinstance(fair, float) and fair > 0 else PLAIN


def _texts(given: Json) -> tuple[str, ...]:
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()


def _read(published: Published, name: str) -> Table:
    """A table from the file that was published."""
    path = published.folder / "tables" / f"{Path(name).name}.parquet"
    try:
        found = pq.read_table(path)
        names = [name if name in found.schema.names else _EARLIER.get(name, name) for name in NUMBER_COLUMNS]
        end = found.schema.names.index(names[-1]) + 1
        names += BIN_COLUMNS if tuple(found.schema.names[end : end + len(BIN_COLUMNS)]) == BIN_COLUMNS else ()
        numbers = [np.array(found.column(column).to_pylist(), dtype=np.float64) for column in names]
    except (OSError, KeyError, ValueError) as wrong:
        raise FileError(f"{path} cannot be read ({type(wrong).__name__}). Run hdmm report, or publish again.") from None
    before = map(found.schema.field, found.schema.names[: found.schema.names.index(NUMBER_COLUMNS[0])])
    fields = [field for field in before if not pa.types.is_floating(field.type)]  # others are ends of bins
    heads = tuple(TableColumn(each.name, (each.metadata or {}).get(b"title", b"").decode()) for each in fields)
    words = [[None if word is None else str(word) for word in found.column(each.name).to_pylist()] for each in heads]
    labels: list[tuple[str | None, ...]] = list(zip(*words, strict=True)) if words else [()] * len(numbers[0])
    estimate, stddev, lower, upper, *bounds = numbers
    biased = published.kind != "unbiased"
    title = dict(zip(published.tables, published.titles, strict=False)).get(name, name)
    table = Table(name, title, heads, lambda: labels, estimate, stddev, lower, upper, published.level, biased)
    return replace(table, reliability=published.reliability, bins=BinBounds(*bounds) if bounds else None)


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

    If `columns_differ`, nothing was compared. `by_chance` is how many rows are beyond their margin on average, at most,
    if nothing but noise differs; None where it is not known, as of means, percentages, quantiles and biased counts.
    """

    table: str
    columns_differ: bool
    rows: int
    only_first: int
    only_second: int
    without_margin: int
    by_chance: float | None
    differing: tuple[RowDifference, ...]


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """Two publications beside each other. `together` is the guarantee of both, if both are of one dataset."""

    relation: Relation
    level: float
    together: Privacy | None
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    tables: tuple[TableDifference, ...]


def difference(first: Published, second: Published, *, level: float | None = None) -> Difference:
    """How the tables of two publications differ, at a confidence level or at the larger of those they have."""
    relation, at = _relation(first, second), level or max(first.level, second.level)
    both = [name for name in first.tables if name in second.tables]
    return Difference(
        relation,
        at,
        _together(first, second, relation),
        tuple(name for name in first.tables if name not in second.tables),
        tuple(name for name in second.tables if name not in first.tables),
        tuple(_table(first, second, name, relation, at) for name in both),
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
    return charged(first.release.spending, second.release.spending)


def _table(first: Published, second: Published, name: str, relation: Relation, level: float) -> TableDifference:
    one, two = (shown_table(each, name, level=None) for each in (first, second))
    if one.attributes != two.attributes:
        return TableDifference(name, True, 0, len(one), len(two), 0, None, ())
    places = dict(_numbered(two))
    pairs = [(i, places[key], key[0]) for key, i in _numbered(one) if key in places]
    left, right = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    a, b = one.estimate[left], two.estimate[right]
    margin = _margin(one.stddev[left], two.stddev[right], relation, level, _noise(first, second))
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(margin)
    beyond = known & (np.abs(b - a) > margin + SAME_COUNT * np.maximum(1, np.abs(a)))
    rows = [
        RowDifference(pairs[k][2], float(a[k]), float(b[k]), float(margin[k])) for k in np.flatnonzero(beyond).tolist()
    ]
    rows.sort(key=lambda row: (row.excess, abs(row.second - row.first)), reverse=True)
    return TableDifference(
        name,
        False,
        int(known.sum()),
        len(one) - len(pairs),
        len(two) - len(pairs),
        len(pairs) - int(known.sum()),
        (1 - level) * int(known.sum()) if _has_margins(one, first) and _has_margins(two, second) else None,
        tuple(rows),
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


def _has_margins(table: Table, published: Published) -> bool:
    """Whether every interval is the one of an unbiased count or sum: as far to both sides as its deviation says."""
    half = half_width(table.stddev, table.level, published.release.privacy.noise)
    near = SAME_COUNT * np.maximum(np.abs(table.estimate), half)
    ends = np.abs(table.upper - table.estimate - half), np.abs(table.estimate - table.lower - half)
    return not table.biased and bool((np.maximum(*ends) <= near)[~table.suppressed].all())


def _noise(first: Published, second: Published) -> Noise:
    """Gaussian if both are: the quantiles of Laplace noise are the larger ones, also for sums of both."""
    kinds = {each.release.privacy.noise for each in (first, second)}
    return Noise.GAUSSIAN if kinds == {Noise.GAUSSIAN} else Noise.LAPLACE


def _numbered(table: Table) -> Iterator[tuple[_RowKey, int]]:
    """The rows by their labels; rows with equal labels differ by their order."""
    seen: Counter[tuple[str | None, ...]] = Counter()
    for place, labels in enumerate(table.labels()):
        yield (labels, seen[labels]), place
        seen[labels] += 1
