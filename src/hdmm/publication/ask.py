"""Questions to a publication: tables answered from what was measured. Reads no data, spends nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import DomainError, FileError, StrategyError
from hdmm.hints import did_you_mean
from hdmm.io.strict_json import MOST_BYTES, Json
from hdmm.io.strict_json import parse as parse_json
from hdmm.lazy import Lazy
from hdmm.publication.tables import NUMBER_COLUMNS, answer_table
from hdmm.release import Release, load_release
from hdmm.spec import TableRequest
from hdmm.spec.shorthand import Shorthand
from hdmm.sql import parse
from hdmm.sql.columns import columns
from hdmm.table import Table
from hdmm.workload import Product

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = Lazy("pyarrow.parquet")

_LEVEL = 0.95
_MOST_NAMED = 8  # sets of attributes in one message


@final
@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """The release in a folder, and the tables that were published beside it, if it is an output folder."""

    folder: Path
    release: Release
    level: float
    tables: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that questions may name."""
        return tuple(columns(self.release.domain))


def open_published(folder: Path) -> Published:
    """What lies in an output folder, or in a folder that `Release.save` wrote."""
    if (folder / "release.json").exists():
        return Published(folder, load_release(folder), _LEVEL, ())
    if not os.path.lexists(folder / "release"):
        raise FileError(f"There is no release in {folder}. Give the output folder of a release, such as out.")
    level, tables = _stated(folder / "metadata.json")
    return Published(folder, load_release(folder / "release"), level, tables)


def asked_tables(release: Release, sql: str, *, level: float) -> Iterator[Table]:
    """The table of each SELECT of a text, with its margins; StrategyError that says what was not measured."""
    for statement in parse(release.domain, sql):
        yield _answered(release, TableRequest(statement.name, statement.name, statement.name, 1.0, statement), level)


def shown_table(published: Published, name: str, *, level: float | None) -> Table:
    """A published table by its name, as it was published; or counts by columns, such as "sex,age", or "total"."""
    if name in published.tables:
        if level is not None and level != published.level:
            raise StrategyError(
                f"Table {name!r} was published with intervals of {published.level:g}. Leave out the level, or ask for "
                "its columns."
            )
        return _read(published, name)
    domain, known = published.release.domain, published.columns
    wanted = [] if name == "total" and name not in known else [part.strip() for part in name.split(",")]
    for part in wanted:
        if part not in known:
            there = ", ".join(published.tables) or "none"
            hint = did_you_mean(part, [*published.tables, *known])
            raise DomainError(
                f"{name!r} is neither a published table nor a list of columns, such as {','.join(known[:2])}. Tables: "
                f"{there}; columns: {', '.join(known)}.{hint}"
            )
    (counts,) = Shorthand.each(domain, [tuple(wanted)], ranges=())
    return _answered(published.release, TableRequest(name, name, name, 1.0, counts), level or published.level)


def _answered(release: Release, asked: TableRequest, level: float) -> Table:
    unsupported = [p for p in asked.workload.products if math.isinf(release.form.total_variance([p]))]
    if unsupported:
        raise StrategyError(_missing(release, unsupported[0]))
    return answer_table(release, level, asked)


def _missing(release: Release, product: Product) -> str:
    """What a product asks for that was not measured, in words."""
    domain = release.domain
    asked = frozenset(product.axes)
    sets = {frozenset(block.axes) for block in release.strategy.blocks}
    largest = sorted((s for s in sets if not any(s < other for other in sets)), key=lambda s: (-len(s & asked), len(s)))
    listed = "; ".join(_names(domain, s) for s in largest[:_MOST_NAMED])
    more = f"; and {len(largest) - _MOST_NAMED:,} more" if len(largest) > _MOST_NAMED else ""
    unseen = asked.difference(*sets)
    if unseen:
        what = f"nothing was measured about {_names(domain, unseen, ' or ')}"
    elif any(asked <= s for s in sets):
        what = f"what was measured of {_names(domain, asked)} does not tell these counts apart"
    else:
        what = f"{_names(domain, asked)} were not measured together"
    return (
        f"The release has no answer: {what}. It measured {listed}{more}. Ask for columns that were measured together, "
        "or release a table of these."
    )


def _names(domain: Domain, axes: frozenset[int], joint: str = " × ") -> str:
    return joint.join(domain.names[i] for i in sorted(axes)) or "the total"


def _stated(path: Path) -> tuple[float, tuple[str, ...]]:
    """The level and the names of the tables that a publication states; the defaults if nothing is published yet."""
    try:
        with open(path, "rb") as file:
            found = parse_json(file.read(MOST_BYTES), str(path))
    except FileNotFoundError:
        return _LEVEL, ()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}. Check the folder.") from None
    level: Json = found.get("level") if isinstance(found, dict) else None
    tables: Json = found.get("tables") if isinstance(found, dict) else None
    if not isinstance(level, float) or not 0 < level < 1 or not isinstance(tables, list):
        raise FileError(f"{path} is not the metadata of a publication. Give the output folder of a release.")
    names = [table.get("name") for table in tables if isinstance(table, dict)]
    return level, tuple(name for name in names if isinstance(name, str))


def _read(published: Published, name: str) -> Table:
    """A table from the file that was published."""
    path = published.folder / "tables" / f"{Path(name).name}.parquet"
    try:
        found = pq.read_table(path)
        numbers = [np.array(found.column(column).to_pylist(), dtype=np.float64) for column in NUMBER_COLUMNS]
    except (OSError, KeyError, ValueError) as wrong:
        raise FileError(f"{path} cannot be read ({type(wrong).__name__}). Run hdmm report, or publish again.") from None
    attributes = tuple(found.schema.names[: -len(NUMBER_COLUMNS)])
    words = [[None if word is None else str(word) for word in found.column(each).to_pylist()] for each in attributes]
    labels: list[tuple[str | None, ...]] = list(zip(*words, strict=True)) if words else [()] * len(numbers[0])
    estimate, stddev, lower, upper = numbers
    return Table(name, name, attributes, lambda: labels, estimate, stddev, lower, upper, published.level)
