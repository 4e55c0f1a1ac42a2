"""Questions to what was published: tables answered from what was measured. No data is read, and nothing is spent."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from hdmm.answers.margins import PLAIN, Reliability
from hdmm.answers.table import NUMBER_COLUMNS, BinBounds, Table
from hdmm.base.exceptions import DomainError, FileError, StrategyError
from hdmm.base.hints import did_you_mean, first_of
from hdmm.base.lazy import Lazy
from hdmm.base.numbers import LEVEL
from hdmm.describe.attribute import columns
from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.describe.table_column import TableColumn
from hdmm.describe.table_query import TableQuery
from hdmm.io.folder import restore
from hdmm.io.strict_json import Json
from hdmm.measure.release import Release, load_release
from hdmm.publication.answered import answer_table
from hdmm.publication.files import BIN_COLUMNS
from hdmm.publication.metadata import read_metadata
from hdmm.sql import parse, select_sql

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")


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
        end = found.schema.names.index(NUMBER_COLUMNS[-1]) + 1
        binned = tuple(found.schema.names[end : end + len(BIN_COLUMNS)]) == BIN_COLUMNS
        names = (*NUMBER_COLUMNS, *BIN_COLUMNS) if binned else NUMBER_COLUMNS
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
