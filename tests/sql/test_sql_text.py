"""What SQL becomes (structured sets, labelled tables), and how what is not supported is refused."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import Bins, Domain, HdmmError, Identity, Integers, Labels, Ranges, Sets, SqlError, Total, Workload
from hdmm.matrix import to_dense
from hdmm.sql import merged_domain, parse
from hdmm.sql.cells import Cells, partition, predicates
from tests.support.sql_table import DOMAIN, MERGED

REFUSED = [
    ("", 1, "no statement"),
    (" ; ;", 1, "no statement"),
    ("-- name: x", 1, "no statement"),
    ("DROP TABLE t", 1, "must begin with SELECT"),
    ("(SELECT COUNT(*) FROM t)", 1, "must begin with SELECT"),
    ("WITH a AS (SELECT 1) SELECT COUNT(*) FROM a", 1, "SELECT inside another.*make a view"),
    ("SELECT DISTINCT sex FROM t", 8, r"DISTINCT is not supported\. Count the rows of each value"),
    ("SELECT COUNT(DISTINCT sex) FROM t", 14, "DISTINCT is not supported.*max_rows_per_id"),
    ("SELECT COUNT(*) FROM t LIMIT 3", 24, "LIMIT is not supported.*hdmm show"),
    ("SELECT COUNT(*) FROM t ORDER BY 2", 33, "ORDER BY may name what is selected.*from 1 to 1"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY age", 51, "ORDER BY may name what is selected"),
    ("SELECT COUNT(*) FROM t ORDER BY 1 UNION ALL SELECT COUNT(*) FROM t", 33, "ORDER BY belongs at the end"),
    ("SELECT COUNT(*) FROM t HAVING COUNT(*) > 1", 24, r"HAVING is not supported.*suppress in \[output\]"),
    ("SELECT COUNT(*) FROM t, u", 25, "JOINS.*one table. Join the tables where they are"),
    ("SELECT COUNT(*) FROM t JOIN u", 24, "JOIN is not supported.*one table"),
    ("SELECT COUNT(*) FROM t LEFT JOIN u ON a = b", 24, "LEFT is not supported.*one table"),
    ("SELECT COUNT(*) FROM (SELECT 1)", 22, "cannot follow FROM.*make a view"),
    ("SELECT COUNT(*) FROM read_csv('secret')", 22, "READ CSV is not supported"),
    ("SELECT COUNT(*) FROM 'secret.csv'", 22, "cannot follow FROM"),
    ("SELECT COUNT(*) FROM t WHERE age IN (SELECT 1)", 38, "cannot follow"),
    ("SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)", 30, "EXISTS.*SELECT inside another"),
    ("SELECT COUNT(*) FROM t WHERE age LIKE 'a'", 34, "LIKE is not supported.*List the declared values"),
    ("SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t", 30, "SELECT cannot follow UNION.*UNION ALL"),
    ("SELECT age, COUNT(*) FROM t GROUP BY ALL", 38, "ALL cannot follow GROUP BY"),
    ("SELECT COUNT(*) OVER () FROM t", 17, "OVER is not supported"),
    ("SELECT COUNT(*) FROM t WHERE age ! IN (1, 3)", 34, "! is not supported"),
    ("SELECT age, COUNT(*) FROM t GROUP BY 1, -3", 42, "count from 1"),
    ("SELECT age < 5 AS g, COUNT(*) FROM t AS g GROUP BY g", 52, "names both the table and an expression"),
    ("SELECT age, COUNT(*) FROM t GROUP BY 1, - -3", 44, "count from 1"),
    ("SELECT COUNT(age) FROM t", 8, r"Only COUNT\(\*\) is supported"),
    ("SELECT SUM(sex) FROM t", 12, "'M' is not a number"),
    ("SELECT AVG(sex) FROM t", 12, r"no sum or mean.*AVG\(CASE WHEN … = 'M' THEN 1 ELSE 0 END\)"),
    ("SELECT MAX(age) FROM t", 8, "MAX is not supported.*QUANTILE"),
    ("SELECT *, COUNT(*) FROM t", 8, "cannot follow SELECT.*only counts"),
    ("SELECT CAST(age AS INT), COUNT(*) FROM t GROUP BY 1", 13, "CAST is not supported.*declares"),
    ("SELECT COUNT(*) dec FROM t", 17, 'DEC is not supported .*quoted: "dec"'),
    ("SELECT sex FROM t", 8, "this one has none"),
    ("SELECT COUNT(*), COUNT(*) FROM t", 18, "more than once"),
    ("SELECT COUNT(*) * 2 FROM t", 8, "this one has none"),
    ("SELECT COUNT(*)", 8, "reads from no table"),
    ("SELECT COUNT(*) FROM t WHERE agee = 1", 30, "'agee' is not in the domain.*Did you mean 'age'"),
    ("SELECT COUNT(*) FROM t WHERE x.age = 1", 30, "Table 'x' is not 't', the table after FROM"),
    ('SELECT COUNT(*) FROM t WHERE "Age" = 1', 30, "'Age' is not in the domain"),
    ("SELECT COUNT(*) FROM t;\nSELECT COUNT(*) FROM u", 22, "'t' and 'u'.*one table"),
    ("SELECT COUNT(*) FROM t WHERE sex = 'X'", 30, "'X' is not a value of sex.*'M', 'F'"),
    ("SELECT COUNT(*) FROM t WHERE sex = 1", 30, "1 is not a value of sex"),
    ("SELECT COUNT(*) FROM t WHERE sex < 'M'", 30, "sex has no order"),
    ("SELECT COUNT(*) FROM t WHERE employed = 1", 30, "1 is not a value of employed"),
    ("SELECT COUNT(*) FROM t WHERE level = TRUE", 30, "TRUE is not a value of level"),
    ("SELECT COUNT(*) FROM t WHERE level = '1'", 30, "'1' is not a value of level"),
    ("SELECT COUNT(*) FROM t WHERE employed = 'true'", 30, "'true' is not a value of employed"),
    ("SELECT COUNT(*) FROM t WHERE employed > 0", 30, "employed has no order"),
    ("SELECT COUNT(*) FROM t WHERE age = 'x'", 30, "age holds numbers"),
    ("SELECT COUNT(*) FROM t WHERE age = 12", 30, "12 is not a value of age.*0 to 11"),
    ("SELECT COUNT(*) FROM t WHERE age = 1.5", 30, "1.5 is not a value of age"),
    ("SELECT COUNT(*) FROM t WHERE score = 1", 30, "-6 to 9 in steps of 3"),
    ("SELECT COUNT(*) FROM t WHERE age", 30, "age holds numbers, but TRUE is not a number"),
    ("SELECT COUNT(*) FROM t WHERE 1", 30, "condition is not supported"),
    ("SELECT COUNT(*) FROM t WHERE age = NULL", 30, "never true. Write IS NULL"),
    ("SELECT COUNT(*) FROM t WHERE age IN (1, NULL)", 30, "never true. Write IS NULL"),
    ("SELECT COUNT(*) FROM t WHERE age = level", 30, "level does not hold whole numbers"),
    ("SELECT COUNT(*) FROM t WHERE age + income <= 2", 30, "income does not hold whole numbers"),
    ("SELECT COUNT(*) FROM t WHERE age * score <= 2", 30, "cannot be multiplied"),
    ("SELECT COUNT(*) FROM t WHERE ABS(age) + score <= 2", 30, "ABS stands alone"),
    ("SELECT COUNT(*) FROM t WHERE ABS(age - score) <= score", 30, "ABS stands alone"),
    ("SELECT COUNT(*) FROM t WHERE age + score <= 'x'", 45, "number is expected"),
    ("SELECT COUNT(*) FROM t WHERE 1 + 1 <= 2", 30, "0 attributes"),
    ("SELECT COUNT(*) FROM t WHERE age IN (score, 1)", 38, "literal is expected"),
    ("SELECT COUNT(*) FROM t WHERE age BETWEEN 1 AND level", 30, "level does not hold whole numbers"),
    ("SELECT COUNT(*) FROM t WHERE income = 10", 30, "counted in bins.*>= and < at edges"),
    ("SELECT COUNT(*) FROM t WHERE income > 10", 30, r"cuts the bin \[10, 25.5\).*10 and 25.5"),
    ("SELECT COUNT(*) FROM t WHERE income <= 10", 30, r"cuts the bin \[10, 25.5\)"),
    ("SELECT COUNT(*) FROM t WHERE income >= 12", 30, "nearest are 10 and 25.5"),
    ("SELECT COUNT(*) FROM t WHERE income BETWEEN 0 AND 9", 30, r"cuts the bin \[0, 10\)"),
    ("SELECT COUNT(*) FROM t WHERE age = 1_000", 36, "followed by letters"),
    ("SELECT COUNT(*) FROM t WHERE age = 0x1F", 36, "followed by letters"),
    ("SELECT COUNT(*) FROM t WHERE age = .5", 36, "5 cannot follow|. cannot follow"),
    ("SELECT COUNT(*) FROM t WHERE age = 1e9999", 36, "more than 300 digits"),
    ("SELECT COUNT(*) FROM t WHERE age = 'abc", 36, "' is opened here and never closed"),
    ("SELECT COUNT(*) FROM t /* abc", 24, "/\\* is opened here"),
    ("SELECT COUNT(*) FROM t WHERE (age = 1", 30, r"\( is never closed"),
    ("SELECT COUNT(*) FROM t WHERE age = 1)", 37, "closes nothing"),
    ("SELECT COUNT(*) FROM t WHERE age =", 34, "missing after this"),
    ("SELECT COUNT(*) FROM t WHERE age = = 1", 36, "cannot follow ="),
    ("SELECT sex,, COUNT(*) FROM t", 12, "cannot follow ,"),
    ("SELECT sex, COUNT(*) FROM t", 8, "sex is selected but not in GROUP BY"),
    ("SELECT FLOOR(age / 5), COUNT(*) FROM t GROUP BY age", 14, "not in GROUP BY"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY 2", 38, "no group column at place 2"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY 0", 38, "no group column at place 0"),
    ("SELECT FLOOR(age / 5) AS age, COUNT(*) FROM t GROUP BY age", 56, "names both a column and another"),
    ("SELECT sex, COUNT(*) AS n FROM t GROUP BY n", 43, "does not name exactly one group column"),
    ("SELECT age / 5, COUNT(*) FROM t GROUP BY 1", 8, r"Write FLOOR\(column / n\)"),
    ("SELECT FLOOR(age / 0), COUNT(*) FROM t GROUP BY 1", 20, "integer of at least 1"),
    ("SELECT FLOOR(age / 2.5), COUNT(*) FROM t GROUP BY 1", 20, "integer of at least 1"),
    ("SELECT FLOOR(sex), COUNT(*) FROM t GROUP BY 1", 14, "'M', which is not a number"),
    ("SELECT FLOOR(income / 7), COUNT(*) FROM t GROUP BY 1", 14, r"splits the bin \[0, 10\).*0 to 1"),
    ("SELECT income + 1, COUNT(*) FROM t GROUP BY 1", 8, r"several values within the bin \[0, 10\) of income"),
    ("SELECT FLOOR(10 - income), COUNT(*) FROM t GROUP BY 1", 14, "order cannot be reversed"),
    ("SELECT age + level, COUNT(*) FROM t GROUP BY 1", 8, "cannot be grouped by"),
    ("SELECT CASE WHEN age < 3 THEN 'a' ELSE 1 END, COUNT(*) FROM t GROUP BY 1", 18, "numbers and text"),
    ("SELECT CASE WHEN age < 3 'a' END, COUNT(*) FROM t GROUP BY 1", 26, "literal is not allowed here"),
    ("SELECT CASE WHEN age < 3 END, COUNT(*) FROM t GROUP BY 1", 13, "WHEN has no THEN"),
    ("SELECT CASE age THEN 3 END, COUNT(*) FROM t GROUP BY 1", 17, "THEN has no WHEN"),
    ("SELECT level + 'x', COUNT(*) FROM t GROUP BY 1", 8, "number is expected"),
    ("SELECT FLOOR(-age), COUNT(*) FROM t GROUP BY 1", 15, "cannot be grouped by"),
    ("SELECT CASE age + 1 WHEN 1 THEN 2 END, COUNT(*) FROM t GROUP BY 1", 13, "a column or by WHEN"),
    ("SELECT sex, COUNT(*) FROM t WHERE age < 0 GROUP BY sex", 8, "never true, so the table has no rows"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY sex, ROLLUP()", 38, "need at least one column"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY ROLLUP(CUBE(sex))", 49, "cannot be read here"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY sex UNION ALL SELECT COUNT(*) FROM t", 59, "the same number of columns"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY 1 UNION ALL SELECT COUNT(*), sex FROM t GROUP BY 2", 57, "same place"),
    ("SELECT /*+ index(a) */ COUNT(*) FROM t", 8, r"only hint is /\*\+ weight"),
    ("SELECT /*+ weight(-1) */ COUNT(*) FROM t", 8, "'-1' is not a finite number"),
    ("SELECT /*+ weight(nan) */ COUNT(*) FROM t", 8, "'nan' is not a finite number"),
    ("-- weight: 2\nSELECT /*+ weight(2) */ COUNT(*) FROM t", 8, "second weight"),
    ("-- name: a\nSELECT COUNT(*) FROM t;\n-- name: a\nSELECT COUNT(*) FROM t", 8, "Two statements are named 'a'"),
    ("SELECT COUNT(*) FROM t WHERE age = ٣", 36, "neither a name nor a number"),
    ('SELECT COUNT(*) AS "" FROM t', 20, "neither a name nor a number"),
    ("SELECT COUNT(*) group FROM t", 17, "'group' is not a name"),
    ("SELECT COUNT(*) FROM t\x00", 23, "control character"),
]


@pytest.mark.parametrize(("text", "column", "message"), REFUSED)
def test_what_is_refused_is_pointed_at(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){message}") as caught:
        parse(DOMAIN, text)
    assert caught.value.column == column
    assert isinstance(caught.value, HdmmError)
    *_, line, carets = str(caught.value).splitlines()
    assert carets.strip(" ^") == ""
    shown = text.splitlines()[caught.value.line - 1] if text.splitlines() else ""
    assert line[2:].rstrip() == shown.replace("\x00", " ").rstrip()
    assert carets.index("^") == column + 1


def test_the_caret_is_found_in_long_lines() -> None:
    text = "SELECT COUNT(*) FROM t WHERE " + " OR ".join(["age = 1"] * 200) + " OR aged = 1 OR " + "age = 2 OR " * 90
    with pytest.raises(SqlError) as caught:
        parse(DOMAIN, text + " age = 3")
    *_, line, carets = str(caught.value).splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == "aged"
    assert len(line) <= 102


def _factors(domain: Domain, text: str) -> list[dict[int, object]]:
    return [dict(p.factors) for p in Workload.sql(domain, text).products]


def test_conditions_become_structured_sets() -> None:
    domain = Domain({"sex": ["M", "F"], "age": 115, "state": 51})
    count = "SELECT COUNT(*) FROM t WHERE"
    assert _factors(domain, "SELECT COUNT(*) FROM t") == [{}]
    assert _factors(domain, f"{count} age >= 0 AND sex IN ('F', 'M')") == [{}]
    assert _factors(domain, f"{count} age >= 18") == [{1: Ranges([(18, 114)])}]
    assert _factors(domain, f"{count} age <> 0 AND age <> 114") == [{1: Ranges([(1, 113)])}]
    assert _factors(domain, f"{count} age IN (1, 3)") == [{1: Sets([[1, 3]])}]
    assert _factors(domain, "SELECT age, state, COUNT(*) FROM t GROUP BY age, state") == [
        {1: Identity(), 2: Identity()}
    ]
    assert _factors(domain, "SELECT FLOOR(age / 100), COUNT(*) FROM t GROUP BY 1") == [
        {1: Ranges([(0, 99), (100, 114)])}
    ]
    cube = Workload.sql(domain, "SELECT sex, age, COUNT(*) FROM t GROUP BY CUBE(sex, age)").compact()
    assert [dict(p.factors) for p in cube.products] == [{0: Identity() | Total(), 1: Identity() | Total()}]


def test_a_conjunction_in_disguise_is_one_product() -> None:
    text = "SELECT COUNT(*) FROM t WHERE (sex = 'F' AND age = 1) OR (sex = 'F' AND age = 2) OR (sex = 'F' AND age > 5)"
    (statement,) = parse(DOMAIN, text)
    assert statement.combine is None
    assert len(statement.workload.products) == 1


def test_groups_are_split_before_other_attributes() -> None:
    (statement,) = parse(DOMAIN, "SELECT sex, COUNT(*) FROM t WHERE sex = 'M' OR age < 5 GROUP BY sex")
    assert len(statement.workload.products) == 2
    assert statement.combine is None  # one query per row


def test_size_does_not_matter() -> None:
    domain = Domain({"id": 10**18, **{f"a{i}": 10 for i in range(100)}})
    anywhere = " OR ".join(f"a{i} = 3" for i in range(100))
    (statement,) = parse(domain, f"SELECT COUNT(*) FROM t WHERE id < 123456789 AND ({anywhere})")
    assert len(statement.workload.products) == 100
    assert statement.workload.products[0].predicates[0] == Ranges([(0, 123456788)])
    (statement,) = parse(domain, "SELECT COUNT(*) FROM t GROUP BY CUBE(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11)")
    assert statement.rows == statement.workload.queries == 11**11
    with pytest.raises(SqlError, match="too many to group by"):
        parse(domain, "SELECT id, COUNT(*) FROM t GROUP BY id")
    with pytest.raises(SqlError, match="not ranges have 999,999,999,999,999,999 cells"):
        parse(domain, "SELECT COUNT(*) FROM t WHERE id <> 5")
    parity = " OR ".join(f"(a{i} = 1 AND a{i + 1} = 2 AND a{i + 2} <> 7)" for i in range(0, 99, 3))
    with pytest.raises(SqlError, match="more than 16,384 disjoint products"):
        parse(domain, f"SELECT COUNT(*) FROM t WHERE NOT ({parity})")


def test_names_and_weights() -> None:
    text = """
    -- name: first one
    SELECT COUNT(*) FROM t; -- weight: 3
    SELECT /*+ WEIGHT( 2.5 ) */ COUNT(*) AS people FROM t -- not a mark: weight
    ; ;
    /* name: third */ SELECT sex, COUNT(*) FROM t GROUP BY sex -- weight: 0
    """
    tables = parse(DOMAIN, text)
    assert [t.name for t in tables] == ["first one", "table_2", "third"]
    assert [t.weight for t in tables] == [3, 2.5, 0]
    assert [t.count for t in tables] == ["count", "people", "count"]
    assert [p.weight for p in Workload.sql(DOMAIN, text).products] == [3, 2.5, 0]
    assert all(p.weight == 1 for t in tables for p in t.workload.products)
    assert tables[2].text.startswith("SELECT sex")


def test_names_that_look_like_keywords() -> None:
    domain = Domain({"date": 3, "index": 2, "Case": 2, "über": 2, "two words": 2, "select": 2, "order": 2})
    where = 'date = 1 AND index = 0 AND "Case" = 1 AND ÜBER = 1 AND "two words" = 0 AND "select" = 1 AND order = 1'
    (product,) = Workload.sql(domain, f"SELECT COUNT(*) FROM t WHERE {where}").products
    assert len(product.factors) == 7


def test_names_of_types_name_columns_after_as() -> None:
    (table,) = parse(DOMAIN, "SELECT FLOOR(age / 10) AS dec, sex AS Text, COUNT(*) AS int FROM t GROUP BY dec, text")
    assert (table.columns, table.count) == (("dec", "Text"), "int")
    assert table.rows == 4


@pytest.mark.parametrize(
    "order",
    [
        "sex",
        "2 DESC, age ASC NULLS LAST",
        "COUNT(*) DESC",
        "n",
        "FLOOR(age / 5)",
        "decade",
    ],
)
def test_order_by_is_read_and_rows_keep_the_order_of_the_domain(order: str) -> None:
    columns = "sex, FLOOR(age / 5) AS decade, age, COUNT(*) AS n"
    text = f"SELECT {columns} FROM t GROUP BY sex, decade, age"
    (plain,), (ordered,) = parse(DOMAIN, text), parse(DOMAIN, f"{text} ORDER BY {order}")
    assert list(plain.labels()) == list(ordered.labels())
    assert plain.workload == ordered.workload
    united = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex UNION ALL SELECT 'all', COUNT(*) FROM t ORDER BY n, 1"
    assert [row for (row,) in parse(DOMAIN, united)[0].labels()] == ["M", "F", "all"]


def test_a_column_may_be_named_as_an_order() -> None:
    domain = Domain({"desc": 3, "asc": 2})
    (table,) = parse(domain, "SELECT desc, COUNT(*) FROM t WHERE asc = 1 GROUP BY desc ORDER BY desc DESC")
    assert table.rows == 3


def test_columns_are_labelled_in_the_order_of_the_select() -> None:
    domain = Domain({"sex": ["M", "F"], "age": Integers(0, 1, outside="other")})
    (table,) = parse(domain, "SELECT age AS years, 'all' AS x, COUNT(*), sex FROM t GROUP BY sex, age")
    assert table.columns == ("years", "x", "sex")
    assert list(table.labels())[:3] == [(0, "all", "M"), (1, "all", "M"), ("other", "all", "M")]
    (table,) = parse(domain, "SELECT COUNT(*) FROM t GROUP BY ROLLUP(age, CASE WHEN sex = 'M' THEN 1 END)")
    assert table.columns == ("age", "CASE WHEN sex = 'M' THEN 1 END")
    assert list(table.labels())[:2] == [(0, 1), (1, 1)]
    assert list(table.labels())[-2:] == [("other", "(all)"), ("(all)", "(all)")]


def test_what_labels_are_follows_from_the_domain_and_not_from_their_text() -> None:
    domain = Domain({"income": Bins([0, 10, 50]), "code": ["[0, 10)", "[10, 50)"]})
    columns = "code, income AS a_to, CASE WHEN income < 10 THEN '[0, 10)' END AS c, FLOOR(income / 50) AS f"
    (table,) = parse(domain, f"SELECT {columns}, COUNT(*) FROM t GROUP BY 1, 2, 3, 4")
    assert [column.kind for column in table.label_columns] == ["labels", "bins", "labels", "labels"]
    ends = [dict(column.ends()) for column in table.label_columns]
    assert ends == [{}, {"[0, 10)": (0, 10), "[10, 50)": (10, 50)}, {}, {"0": (0, 0)}]
    united = "SELECT income, COUNT(*) FROM t GROUP BY 1 UNION ALL SELECT {}, COUNT(*) FROM t GROUP BY 1"
    kinds = [parse(domain, united.format(other))[0].label_columns[0].kind for other in ("income", "code")]
    assert kinds == ["bins", "labels"]


def test_merged_domain_leaves_large_attributes_alone() -> None:
    domain = Domain({"a": 1000, "b": 1000, "c": bool, "d": bool})
    text = "SELECT COUNT(*) FROM t WHERE a < 5 OR b < 5; SELECT COUNT(*) FROM t WHERE c OR d"
    assert merged_domain(domain, text).names == ("a", "b", "c+d")
    assert merged_domain(domain, "SELECT COUNT(*) FROM t WHERE a < 5 AND b < 5") == domain


@given(st.data(), st.integers(1, 12))
def test_sets_of_cells(data: st.DataObject, n: int) -> None:
    subsets = st.sets(st.integers(0, n - 1))
    a, b = data.draw(subsets), data.draw(subsets)
    x, y = (Cells.of(n, ((i, i) for i in s)) for s in (a, b))
    assert set(x & y) == a & b
    assert set(x | y) == a | b
    assert set(~x) == set(range(n)) - a
    assert x.count == len(a)
    assert {i for i in range(n) if i in x} == a
    assert (x == y) == (a == b)
    classes = [set(c) for c in partition([x, y], n)]
    assert sum(map(len, classes)) == n
    assert {frozenset(c) for c in classes} == {
        s for s in map(frozenset, (a & b, a - b, b - a, set(range(n)) - a - b)) if s
    }


@given(st.integers(-3, 3), st.integers(0, 9), st.integers(1, 4), st.integers(-10, 40), st.sampled_from([1, 2, 3]))
def test_every_comparison_with_integers(first: int, width: int, step: int, number: int, divisor: int) -> None:
    domain = Domain({"a": Integers(first, first + width, step=step)})
    labels = np.array([float(label) for label in domain["a"].labels])
    literal = f"{number / divisor:.6f}"
    for op, holds in {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}.items():
        w = Workload.sql(domain, f"SELECT COUNT(*) FROM t WHERE a {op} {literal}")
        np.testing.assert_array_equal(to_dense(w.matrix)[0], holds(labels, float(literal)))


def test_floats_are_compared_as_engines_do() -> None:
    domain = Domain({"a": Labels([0.1, 0.2, 0.30000000000000004]), "b": Bins([0.1, 0.2, 0.7])})
    for where, kept in {"a = 0.1": [0], "a > 0.1": [1, 2], "a <= 0.2": [0, 1]}.items():
        row = to_dense(Workload.sql(domain, f"SELECT COUNT(*) FROM t WHERE {where}").matrix).reshape(3, 2)
        assert np.flatnonzero(row[:, 0]).tolist() == kept
    assert _factors(domain, "SELECT COUNT(*) FROM t WHERE b >= 0.2") == [{1: Ranges([(1, 1)])}]


def test_one_predicate_on_all_cells_is_the_total() -> None:
    assert predicates([Cells.span(3, 0, 3)], 3) == Total()


CASE = "CASE WHEN sex = 'M' AND age < 3 THEN"


@pytest.mark.parametrize(
    ("limit", "text", "message"),
    [
        (
            "products.MOST_LISTED",
            "SELECT COUNT(*) FROM t GROUP BY age, FLOOR(age / 5)",
            "One attribute has more than 3 groups",
        ),
        (
            "products.MOST_LISTED",
            "SELECT COUNT(*) FROM t WHERE age < 3 OR employed GROUP BY sex",
            "sums of more than 3",
        ),
        ("products.MOST_BOXES", f"SELECT COUNT(*) FROM t GROUP BY {CASE} 1 END, {CASE} 2 END", "several attributes at"),
        ("comparison.MOST_LISTED", "SELECT COUNT(*) FROM t WHERE wealth < 0", "more than 3 ranges of cells"),
        ("selection.MOST_SETS", "SELECT COUNT(*) FROM t GROUP BY ROLLUP(sex), ROLLUP(age)", "4 grouping sets"),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, limit: str, text: str, message: str) -> None:
    monkeypatch.setattr(f"hdmm.sql.{limit}", 3)
    domain = MERGED if limit.startswith("comparison") else DOMAIN
    with pytest.raises(SqlError, match=message):
        parse(domain, text)


def test_a_caller_with_little_stack_left_is_told() -> None:
    text = "SELECT COUNT(*) FROM t WHERE " + "(" * 29 + "age = 1" + ")" * 29
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 250)
    try:
        with pytest.raises(SqlError, match="nested too deep"):
            parse(DOMAIN, text)
    finally:
        sys.setrecursionlimit(before)
