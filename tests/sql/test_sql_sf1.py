"""The 34 tables of SF1 as SQL are the queries of benchmarks/paper/sf1.toml, each as often as published."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
from benchmarks.workloads import sf1, sf1_domain, sf1_single_queries

from hdmm import Workload
from hdmm.sql import parse
from tests.support import brute

TEXT = (Path(__file__).parents[2] / "examples" / "sf1.sql").read_text()
DOMAIN = sf1_domain()


def _single_queries(workload: Workload) -> Iterator[tuple[tuple[int, ...], ...]]:
    shape = workload.domain.shape
    for product in workload.products:
        assert product.weight == 1
        sets = [
            [tuple(np.flatnonzero(row).tolist()) for row in brute.rows(p, n)]
            for p, n in zip(product.predicates, shape, strict=True)
        ]
        yield from itertools.product(*sets)


def test_the_queries_are_those_published() -> None:
    w = Workload.sql(DOMAIN, TEXT)
    assert w.queries == 4151
    assert Counter(_single_queries(w)) == Counter(sf1_single_queries())


def test_they_compact_to_few_products() -> None:
    found = Workload.sql(DOMAIN, TEXT).compact()
    assert len(found.products) <= 40
    x = np.random.default_rng(0).random((DOMAIN.size, 1))
    np.testing.assert_allclose(found.gram.matmat(x), sf1().gram.matmat(x), rtol=1e-9)


def test_each_table_has_its_rows() -> None:
    tables = {table.name: table for table in parse(DOMAIN, TEXT)}
    assert len(tables) == 34
    assert all(table.combine is None and table.rows == table.workload.queries for table in tables.values())
    sizes = {"P1": 1, "P3": 8, "P4": 3, "P5": 17, "P8": 71, "P9": 73, "P10": 71, "P11": 73, "P12": 49, "PCT12": 209}
    for name, table in tables.items():
        assert table.rows == sizes.get(name, 49 if name.startswith("P12") else 209), name
        assert len(set(table.labels())) == table.rows, name
    assert list(tables["P4"].labels()) == [("hispanic or latino",), ("not hispanic or latino",), ("(all)",)]
    assert list(tables["PCT12"].labels())[102:104] == [("male", 110), ("female", 0)]


def test_an_engine_counts_the_same() -> None:
    rng = np.random.default_rng(5)
    codes = {name: rng.integers(n, size=400) for name, n in zip(DOMAIN.names, DOMAIN.shape, strict=True)}
    held = {name: [DOMAIN[name].label(c) for c in column.tolist()] for name, column in codes.items()}
    x = DOMAIN.count(held).reshape(-1, 1)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE person (sex VARCHAR, hispanic VARCHAR, race INTEGER, relationship VARCHAR, age INTEGER)"
    )
    connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?)", list(zip(*held.values(), strict=True)))
    for table in parse(DOMAIN, TEXT):
        engine = {row[:-1]: row[-1] for row in connection.execute(table.text).fetchall() if row[-1]}
        counts = table.workload.matrix.matmat(x)[:, 0].tolist()
        ours = {
            tuple(None if label == "(all)" else label for label in labels): count
            for labels, count in zip(table.labels(), counts, strict=True)
            if count
        }
        assert ours == engine, table.name
