"""Requirement F6: any text is read as counts that an engine would also give, or refused with an SqlError.

Texts are random words, statements with words changed, and noise. What is accepted is run on DuckDB: a word that
slipped by without its meaning would show in the counts.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import duckdb
import pytest

from hdmm import SqlError
from hdmm.sql import parse
from hdmm.sql.syntax import MOST_CHARACTERS, MOST_LEVELS, MOST_NESTED
from tests.sql.test_sql import CONDITIONS, GROUPINGS
from tests.support.sql_table import DOMAIN, Table

TABLE = Table(rows=500, seed=2)

_VOCABULARY = """
SELECT SELECT COUNT(*) COUNT(*) COUNT ( ) * FROM FROM t t WHERE GROUP BY , ; GROUPING SETS CUBE ROLLUP UNION ALL
AND OR NOT IN BETWEEN IS NULL TRUE FALSE CASE WHEN THEN ELSE END AS + - * / = <> != < <= > >= . FLOOR
FLOOR(age/5) sex age region score income wealth employed level 'M' 'F' 'N' 0 1 2.5 3 10 -1 1e3 g n "age" "g"
t.age HAVING ORDER LIMIT DISTINCT JOIN ON WITH RECURSIVE INTO VALUES INSERT DELETE DROP TABLE UPDATE SET COPY
ATTACH PRAGMA EXISTS ANY LIKE ILIKE SIMILAR COLLATE OVER PARTITION WINDOW QUALIFY FILTER LATERAL UNNEST
TABLESAMPLE PIVOT CAST EXCEPT INTERSECT OFFSET FETCH FOR INTERVAL DATE ARRAY STRUCT :: || -> ->> @ # $ ? : [ ] {
} % ^ & | ~ ` \\ ! := => ** SUM MAX(age) ABS(age) read_csv('x') pg_sleep(1) current_user random() ROW EXTRACT IF
ASC DESC dec date COALESCE NULLIF IIF
-- /* */ /*+ /*+weight(2)*/ x'00' e'a' n'a' $$ 0x1F 1_000 1e999 '' "" ' " \x00 é 😀 \u202e
"""
WORDS = _VOCABULARY.split()
VALID = [f"SELECT COUNT(*) FROM t WHERE {c}" for c in CONDITIONS] + GROUPINGS
VALID += [f"{text} ORDER BY 1 DESC, COUNT(*)" for text in GROUPINGS if "UNION" not in text]


KINDS = [
    ["sex", "age", "region", "score", "income", "wealth", "employed", "level", "t.age", '"score"', "Level"],
    ["'M'", "'F'", "'N'", "'S'", "0", "1", "2", "3", "5", "-3", "2.5", "10", "25.5", "40", "TRUE", "FALSE", "NULL"],
    ["=", "<>", "!=", "<", "<=", ">", ">="],
    ["AND", "OR"],
    ["CUBE", "ROLLUP", "GROUPING SETS"],
    ["+", "-", "*"],
]


def soup(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 25)))


def changed(rng: random.Random) -> str:
    words = rng.choice(VALID).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                words[at] = rng.choice(WORDS)
            case 1:
                words.insert(at, rng.choice(WORDS))
            case 2:
                del words[at : at + rng.randint(1, 3)]
                words = words or [""]
            case _:
                words[at:at] = rng.choice(VALID).split(" ")[: rng.randint(1, 8)]
    return " ".join(words)


def garbled(rng: random.Random) -> str:
    text = list(rng.choice(VALID))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text))
        text[at] = chr(rng.choice([rng.randrange(128), rng.randrange(0x110000)]))
    return "".join(text)


def swapped(rng: random.Random) -> str:
    """A statement with words in the places of others of their kind."""
    words = re.findall(r"'(?:[^']|'')*'|[\w.]+|<>|[<>!]=|.", rng.choice(VALID))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(words))
        for kind in KINDS:
            if words[at] in kind:
                words[at] = rng.choice(kind)
    return "".join(words)


def judge(text: str) -> bool:
    """Whether a text is accepted; then an engine agrees on every statement of it, but for the name of the table."""
    try:
        tables = parse(DOMAIN, text)
    except SqlError as error:
        return _pointing(error)
    for table in tables:
        try:
            found = TABLE.connection.execute(table.text).fetchall()
        except duckdb.CatalogException:
            continue
        ours = sorted(row[-1] for row in TABLE.ours(DOMAIN, table).elements())
        columns = [[value for value in column if value] for column in zip(*found, strict=True)] or [[]]
        assert any(len(column) == len(ours) and Counter(column) == Counter(ours) for column in columns), table.text
    return True


def _pointing(error: SqlError) -> bool:
    assert error.line >= 1
    assert error.column >= 1
    assert "^" in str(error)
    return False


def fuzz(cases: int, seed: int) -> int:
    rng = random.Random(seed)
    return sum(judge(rng.choice([soup, changed, swapped, garbled])(rng)) for _ in range(cases))


def test_any_text_is_read_rightly_or_refused() -> None:
    assert fuzz(4_000, seed=0) > 100  # so many are accepted, and compared


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_any_text_is_read_rightly_or_refused_at_length(seed: int) -> None:
    fuzz(10_000, seed)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t WHERE " + "(" * 5000 + "age = 1" + ")" * 5000,
        "SELECT COUNT(*) FROM t WHERE " + "NOT " * 5000 + "age = 1",
        "SELECT " + "-" * 3000 + "1, COUNT(*) FROM t",
        "SELECT " + "- " * 3000 + "1, COUNT(*) FROM t",
        "SELECT " + "CASE WHEN age = 1 THEN " * 3000 + "1" + " END" * 3000 + ", COUNT(*) FROM t",
        "SELECT COUNT(*) FROM t" + " " * MOST_CHARACTERS,
        "SELECT COUNT(*) FROM t WHERE age = 1e999999999",
        "SELECT COUNT(*) FROM t WHERE age = " + "9" * 5000,
        "SELECT COUNT(*) FROM t GROUP BY CUBE(" + ", ".join(f"age + {i}" for i in range(40)) + ")",
        "SELECT COUNT(*) FROM t WHERE age" + " + 1" * 5000 + " < 7",
        "SELECT age" + " + 1" * 5000 + ", COUNT(*) FROM t GROUP BY 1",
        "SELECT SUM(age" + " - 1 * 1" * MOST_LEVELS + ") FROM t",
        "SELECT COUNT(*) FROM t WHERE " + "(" * MOST_NESTED + "age = 1" + ")" * (MOST_NESTED + 1),
    ],
)
def test_what_is_too_much_is_refused(text: str) -> None:
    with pytest.raises(SqlError):
        parse(DOMAIN, text)


def test_long_chains_are_read() -> None:
    ors = " OR ".join(f"age = {i % 12}" for i in range(2_000))
    ands = " AND ".join(f"age <> {i % 11}" for i in range(2_000))
    unions = " UNION ALL ".join(["SELECT COUNT(*) FROM t"] * 500)
    assert parse(DOMAIN, f"SELECT COUNT(*) FROM t WHERE {ors}")[0].workload.products[0].factors == ()
    assert parse(DOMAIN, f"SELECT COUNT(*) FROM t WHERE {ands}")[0].rows == 1
    assert parse(DOMAIN, unions)[0].rows == 500
    terms = " + 1 - 1" * (MOST_LEVELS // 2 - 5)
    assert parse(DOMAIN, f"SELECT age{terms}, SUM(age{terms}) FROM t WHERE age{terms} = 3 GROUP BY 1")[0].rows == 1
    deep = "(" * MOST_NESTED + "age = 1" + ")" * MOST_NESTED
    assert parse(DOMAIN, f"SELECT COUNT(*) FROM t WHERE {deep}")[0].rows == 1
