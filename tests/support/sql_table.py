"""A small table in DuckDB and the same table as a data vector: an engine says what SQL means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np

from hdmm import Bins, Domain, Integers, Labels
from hdmm.describe.attribute import Column, columns
from hdmm.sql import TableQuery, parse

DOMAIN = Domain(
    {
        "sex": ["M", "F"],
        "region": Labels(["N", "it's", "S"], outside="other"),
        "age": 12,
        "score": Integers(-6, 9, step=3, outside="other"),
        "income": Bins([0, 10, 25.5, 40]),
        "wealth": Bins([-5, 0, 20], outside="other"),
        "employed": bool,
        "level": Labels([3, 1, 2.5], outside="other"),
    }
)
MERGED = DOMAIN.merge(["sex", "age"], name="sexage").merge(["employed", "region", "wealth"], name="erw")

_TYPES = {"sex": "VARCHAR", "region": "VARCHAR", "age": "INTEGER", "score": "INTEGER", "employed": "BOOLEAN"}


class Table:
    """Rows drawn over the cells of a domain, "other" as NULL and bins as one number inside each."""

    def __init__(self, *, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.held: dict[str, list[Any]] = {}
        self.shown: dict[str, dict[Any, Any]] = {}
        self.vectors: dict[tuple[str, ...], np.ndarray] = {}
        for name, column in columns(DOMAIN.attributes).items():
            values = [_held(column, code, rng) for code in range(column.values.size)]
            self.shown[name] = {column.values.label(code): value for code, value in enumerate(values)}
            self.held[name] = [values[code] for code in rng.integers(column.values.size, size=rows)]
        self.connection = duckdb.connect(config={"python_enable_replacements": False})
        declared = ", ".join(f"{name} {_TYPES.get(name, 'DOUBLE')}" for name in self.held)
        self.connection.execute(f"CREATE TABLE t ({declared})")
        marks = ", ".join("?" for _ in self.held)
        self.connection.executemany(f"INSERT INTO t VALUES ({marks})", list(zip(*self.held.values(), strict=True)))

    def engine(self, text: str, *, count_at: int = -1) -> Counter[tuple[Any, ...]]:
        """The rows that DuckDB gives, those that count nothing left out."""
        found: Counter[tuple[Any, ...]] = Counter()
        for row in self.connection.execute(text).fetchall():
            *labels, count = [*row[:count_at], *row[count_at:][1:], row[count_at]]
            if count:
                found[*labels, count] += 1
        return found

    def ours(self, domain: Domain, statement: TableQuery) -> Counter[tuple[Any, ...]]:
        """The rows of a statement's workload on the same table, in an engine's words."""
        if domain.names not in self.vectors:
            self.vectors[domain.names] = domain.count(self.held).reshape(-1, 1)
        counts = statement.workload.matrix.matmat(self.vectors[domain.names])[:, 0]
        if statement.combine is not None:
            counts = statement.combine @ counts
        labels = list(statement.labels())
        assert len(labels) == len(counts) == statement.rows
        found: Counter[tuple[Any, ...]] = Counter()
        for row, count in zip(labels, counts.tolist(), strict=True):
            if count:
                found[*map(self._said, statement.columns, row), count] += 1
        return found

    def check(self, text: str, domain: Domain = DOMAIN, *, count_at: int = -1) -> TableQuery:
        """Our answers are the engine's."""
        (statement,) = parse(domain, text)
        assert self.ours(domain, statement) == self.engine(text, count_at=count_at), text
        return statement

    def _said(self, name: str, label: Any) -> Any:
        if label == "(all)" or (label == "other" and name in self.shown):
            return None
        return self.shown[name].get(label, label) if name in self.shown else label


def _held(column: Column, code: int, rng: np.random.Generator) -> Any:
    if code >= column.declared:
        return None
    if isinstance(column.values, Bins):
        low, high = column.values.edges[code : code + 2]
        return rng.choice([low, low + (high - low) * rng.random()]).item()
    return column.values.label(code)
