"""I1 and I9 on PostgreSQL: no value and no number of rows of one person decides whether counting succeeds."""

# What ibis and psycopg return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnusedImport=false

from __future__ import annotations

from typing import Any

import pytest

from hdmm import Domain, Integers, Labels, from_table
from tests.data.hostile import TEXTS, check_neighbours
from tests.data.test_hostile import AROUND, check_lengths
from tests.data.test_postgres import backend, url  # noqa: F401 (fixtures)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The ids in column .* are floats")]

TYPES = """
    CREATE TYPE mood AS ENUM ('glad', 'a');
    CREATE DOMAIN whole AS numeric(9, 0);
    CREATE DOMAIN words AS text;
    CREATE DOMAIN instant AS timestamptz;
    CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
"""
KINDS: dict[str, list[str]] = {
    **{f"numeric({digits}, 0)": ["NaN", "9" * digits, "-" + "9" * digits] for digits in (1, 9, 18, 19, 38, 39)},
    "whole": ["NaN", "999999999"],
    "numeric": ["NaN", "Infinity", "-Infinity", "9" * 131_000, "-1e131071", "1e-16383", "0." + "9" * 16_000],
    "numeric(6, 2)": ["NaN", "-9999.99"],
    "numeric(1000, 500)": ["NaN", "9" * 500],
    "numeric(3, -2)": ["NaN", "99900"],
    "smallint": ["-32768"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["NaN", "Infinity", "3.4e38", "1e-45"],
    "double precision": ["NaN", "-Infinity", "1.7976931348623157e308", "5e-324"],
    "boolean": ["true"],
    "date": ["infinity", "-infinity", "5874897-12-31", "4714-11-24 BC", "9999-12-31", "0001-12-31 BC"],
    "timestamp": [
        "infinity",
        "-infinity",
        "294276-12-31 23:59:59.999999",
        "4714-11-24 BC",
        "9999-12-31 23:59:59.999999",
    ],
    "timestamptz": ["infinity", "9999-12-31 23:59:59+00", "0001-01-01 00:00:00+14", "4714-11-25 BC", "294276-12-31"],
    "instant": ["infinity", "9999-12-31 23:59:59+00"],
    "time": ["24:00:00"],
    "uuid": ["ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "bytea": ["\\x" + "ff" * 5000, "\\x"],
    "mood": ["a"],
    "name": ["a" * 63],
    "text": TEXTS,
    "words": TEXTS,
    "text COLLATE blind": TEXTS,
    "varchar": TEXTS,
    "character(9)": ["", "1", "a", "1e400"],
    "character(5000)": ["a", "1", "x" * 5000, "é" * 5000, "0" * 4097 + "1"],
}
REFUSED: dict[str, list[str]] = {
    '"char"': ["a"],
    "oid": ["4294967295"],
    "interval": ["-178000000 years"],
    "money": ["-92233720368547758.08"],
    "bit(3)": ["101"],
    "bit varying": ["1" * 5000],
    "integer[]": ["{1}"],
    "timetz": ["24:00:00-15:59"],
    "json": ["1"],
    "int4range": ["[1,)"],
    "inet": ["::1"],
    "xml": ["<a/>"],
    "tsvector": ["a"],
    "point": ["(NaN,Infinity)"],
}
ALL = KINDS | REFUSED


@pytest.fixture(scope="module")
def typed(backend: Any) -> Any:  # noqa: F811 (the fixture)
    """The server with tables "plain" and "hostile", which have a column of each type."""
    backend.con.execute(TYPES)
    backend.con.execute("SET TIME ZONE 'Pacific/Kiritimati'")  # where the year 9999 ends 14 hours earlier
    columns = ", ".join(f"{_quoted(kind)} {kind}" for kind in ALL)
    for table in ("plain", "hostile"):
        backend.con.execute(f"CREATE TABLE {table} ({columns}, a integer DEFAULT 1)")
        backend.con.execute(f"INSERT INTO {table} (a) VALUES (1)")
    for kind, texts in ALL.items():
        plain = kind.removesuffix(" COLLATE blind")
        for text in texts:
            insert = f"INSERT INTO hostile ({_quoted(kind)}) VALUES (CAST(%s::text AS {plain}))"
            backend.con.execute(insert, [text])
    return backend


def _quoted(kind: str) -> str:
    return f'"{kind.strip(chr(34))}"'


@pytest.mark.parametrize("kind", ALL)
def test_hostile_values_of_postgres_decide_nothing(typed: Any, kind: str, capfd: Any) -> None:
    accepted = check_neighbours(typed.table("plain"), typed.table("hostile"), kind.strip('"'), capfd)
    assert bool(accepted) == (kind in KINDS)


def test_text_is_inside_up_to_a_public_length(typed: Any) -> None:
    for kind in ("text", "varchar", "text COLLATE blind"):
        typed.con.execute(f"DROP TABLE IF EXISTS lengths; CREATE TABLE lengths (x {kind}, a integer)")
        with typed.con.cursor() as cursor:
            cursor.executemany("INSERT INTO lengths VALUES (%s, 1)", [(text,) for text, _ in AROUND])
        check_lengths(typed.table("lengths"))


def test_padding_does_not_make_text_long(typed: Any) -> None:
    typed.con.execute("DROP TABLE IF EXISTS padded; CREATE TABLE padded (x character(5000), a integer)")
    typed.con.execute("INSERT INTO padded VALUES ('a', 1), (repeat('a', 5000), 1), ('a ', 0)")
    domain = Domain({"x": Labels(["a"], outside="other")})
    assert from_table(domain, typed.table("padded")).marginal(["x"]).tolist() == [2, 1]
    data = from_table(Domain({"a": 2}), typed.table("padded"), id="x", max_rows_per_id=1)
    assert data.marginal(["a"]).sum() == 1


def test_hundreds_of_megabytes_of_text_are_outside(typed: Any) -> None:
    """The server fails if it matches a pattern with 270 million characters, or sends more than a gigabyte."""
    typed.con.execute("CREATE TABLE large (x text, raw bytea, a integer); INSERT INTO large VALUES ('1', '1', 1)")
    typed.con.execute("ALTER TABLE large ALTER x SET STORAGE EXTENDED, ALTER raw SET STORAGE EXTENDED")
    typed.con.execute("INSERT INTO large SELECT repeat('1', 270000000), convert_to(repeat('1', 600000000), 'UTF8'), 1")
    domain = Domain({"x": Integers(0, 1, outside="other"), "y": Labels(["1", 1], outside="other")})
    data = from_table(domain, typed.table("large"), columns={"y": "x"})
    assert data.marginal(["x", "y"]).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert from_table(Domain({"a": 2}), typed.table("large"), id="x", max_rows_per_id=1).marginal(["a"]).sum() == 1
    fetched = Domain({"x": Integers(0, 1, outside="other"), "raw": Labels([b"1"], outside="other")})
    assert from_table(fetched, typed.table("large"), fetch=True).marginal(["x", "raw"]).tolist() == [
        [0, 0],
        [1, 0],
        [0, 1],
    ]
    typed.con.execute("DROP TABLE large")


@pytest.mark.parametrize("cells", [4, 10**6])
def test_a_person_with_many_rows_is_counted(typed: Any, cells: int) -> None:
    rows, k = 300_000, 3
    typed.con.execute(
        f"DROP TABLE IF EXISTS many; CREATE TABLE many AS SELECT i * 7919::bigint % {cells} AS a, "
        f"greatest(1000 - i, 0) AS who FROM generate_series(0, {rows - 1}) AS i"
    )
    data = from_table(Domain({"a": cells}), typed.table("many"), id="who", max_rows_per_id=k)
    assert data.marginal(["a"]).sum() == 1000 + k
