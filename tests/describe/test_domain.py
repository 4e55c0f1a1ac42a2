"""Domains: index arithmetic, encoding of whatever a column may hold, merging, and what is refused."""

# Wrong arguments are the subject of many tests.
# pyright: reportArgumentType=false, reportCallIssue=false, reportUnknownLambdaType=false

from __future__ import annotations

import copy
import itertools
import math
import pickle
from datetime import date
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hdmm.base.exceptions import DomainError
from hdmm.describe.amount import Amount
from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=5)
WIDE = Domain({f"a{i}": 10 for i in range(100)})
CENSUS = Domain({"sex": ["M", "F"], "age": 115, "income": Bins([0, 10_000, 50_000, 250_000])})


def plain(sizes: list[int]) -> Domain:
    return Domain({f"a{i}": n for i, n in enumerate(sizes)})


# Shape and index arithmetic.


def test_a_domain_says_its_names_shape_and_size() -> None:
    assert CENSUS.names == ("sex", "age", "income")
    assert CENSUS.shape == (2, 115, 3)
    assert CENSUS.size == 690
    assert len(CENSUS) == 3
    assert list(CENSUS) == ["sex", "age", "income"]
    assert "age" in CENSUS
    assert "agee" not in CENSUS
    assert CENSUS.axis("income") == 2
    assert CENSUS["age"] is CENSUS.attributes[1]
    assert [a.ordered for a in CENSUS.attributes] == [False, True, True]


@given(SIZES)
def test_index_and_cell_agree_with_itertools_product(sizes: list[int]) -> None:
    domain = plain(sizes)
    cells = list(itertools.product(*map(range, sizes)))
    assert domain.size == len(cells)
    assert [domain.index(cell) for cell in cells] == list(range(len(cells)))
    assert [domain.cell(i) for i in range(len(cells))] == cells
    every = domain.index(np.array(cells))
    assert every.dtype == np.int64
    np.testing.assert_array_equal(every, np.arange(len(cells)))
    np.testing.assert_array_equal(domain.index(cells), every)
    np.testing.assert_array_equal(domain.cell(every), cells)


def test_index_keeps_the_leading_axes() -> None:
    codes = np.arange(6 * 4, dtype=np.int8).reshape(2, 3, 4) % 2
    domain = plain([2, 2, 2, 2])
    assert domain.index(codes).shape == (2, 3)
    np.testing.assert_array_equal(domain.cell(domain.index(codes)), codes)
    no_cells: list[tuple[int, ...]] = []
    assert domain.index(no_cells).shape == (0,)
    assert domain.index(np.zeros((0, 4), np.int64)).shape == (0,)
    assert domain.cell([]).shape == (0, 4)
    assert np.shape(domain.index(codes[0, 0])) == ()
    assert type(domain.index(tuple(codes[0, 0].tolist()))) is int
    assert all(type(code) is int for code in domain.cell(7))


@given(st.lists(st.integers(0, 10**100 - 1), min_size=1, max_size=5))
def test_a_hundred_attributes_have_exact_indices(indices: list[int]) -> None:
    assert WIDE.size == 10**100
    digits = [tuple(map(int, f"{i:0100d}")) for i in indices]
    assert [WIDE.cell(i) for i in indices] == digits
    assert [WIDE.index(cell) for cell in digits] == indices
    assert WIDE.index(digits).dtype == object
    assert WIDE.index(digits).tolist() == indices
    assert WIDE.index(np.array(digits)).tolist() == indices
    np.testing.assert_array_equal(WIDE.cell(indices), digits)
    np.testing.assert_array_equal(WIDE.cell(np.array(indices, dtype=object)), digits)


@pytest.mark.parametrize("size", [2**62, 2**63 - 1])
def test_indices_near_the_end_of_int64(size: int) -> None:
    for domain in (Domain({"a": size}), Domain({"a": 1, "b": size}), Domain({"a": size, "b": 3})):
        last = domain.size - 1
        assert domain.cell(last) == tuple(n - 1 for n in domain.shape)
        assert domain.index(domain.cell(last)) == last
        assert domain.index([domain.cell(last)]).tolist() == [last]
        assert domain.cell([last, 0]).tolist() == [list(domain.cell(last)), [0] * len(domain)]
        assert domain.index([domain.cell(0)]).dtype == (np.int64 if domain.size < 2**63 else object)


def test_more_attributes_than_numpy_has_dimensions() -> None:
    domain = plain([1] * 99 + [3])
    assert domain.cell(2) == (0,) * 99 + (2,)
    assert domain.index([domain.cell(2)]).tolist() == [2]


def test_labels_of_a_cell() -> None:
    assert CENSUS.labels(0) == ("M", 0, "[0, 10000)")
    assert CENSUS.labels(689) == CENSUS.labels((1, 114, 2)) == ("F", 114, "[50000, 250000)")


# Declarations.


@pytest.mark.parametrize(
    ("declaration", "labels", "ordered"),
    [
        (3, (0, 1, 2), True),
        (np.int64(2), (0, 1), True),
        (1, (0,), True),
        (range(18, 21), (18, 19, 20), True),
        (range(0, 10, 4), (0, 4, 8), True),
        (bool, (False, True), False),
        (["b", "a"], ("b", "a"), False),
        (("x", 1, 2.5, date(2020, 1, 1)), ("x", 1, 2.5, date(2020, 1, 1)), False),
        (np.array(["u", "v"]), ("u", "v"), False),
        (Labels(["a"], outside="other"), ("a", "other"), False),
        (Integers(-1, 1), (-1, 0, 1), True),
        (Integers(0, 5, step=2, outside="other"), (0, 2, 4, "other"), True),
        (Bins([0, 10_000, 50_000]), ("[0, 10000)", "[10000, 50000)"), True),
        (Bins([-0.5, 2.0, 1e300], outside="other"), ("[-0.5, 2)", "[2, 1e+300)", "other"), True),
        (Bins(np.array([0.0, 1.0])), ("[0, 1)",), True),
    ],
)
def test_declared_values(declaration: object, labels: tuple[object, ...], ordered: bool) -> None:
    attribute = Domain({"a": declaration})["a"]
    assert attribute.labels == labels
    assert [type(x) for x in attribute.labels] == [type(x) for x in labels]
    assert attribute.size == len(labels)
    assert attribute.ordered is ordered
    assert attribute.label(len(labels) - 1) == labels[-1]


def test_domains_are_values() -> None:
    same = Domain({"sex": ("M", "F"), "age": range(115), "income": Bins([0.0, 1e4, 5e4, 250_000])})
    assert same == CENSUS
    assert hash(same) == hash(CENSUS)
    assert Domain(CENSUS.attributes) == CENSUS
    assert eval(repr(CENSUS), {"Domain": Domain, "Labels": Labels, "Integers": Integers, "Bins": Bins}) == CENSUS
    assert copy.deepcopy(CENSUS) == pickle.loads(pickle.dumps(CENSUS)) == CENSUS
    assert Domain({"a": bool}) != Domain({"a": [0, 1]})
    assert Domain({"a": [0, 1]}) != Domain({"a": 2})
    assert Domain({"a": 2, "b": 3}) != Domain({"b": 3, "a": 2})
    assert Domain({"a": 2}) != Domain({"a": Integers(0, 1, outside="other")})
    with pytest.raises(AttributeError):
        CENSUS.names = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_labels_of_a_huge_attribute_are_written_one_by_one() -> None:
    attribute = Domain({"id": 10**18})["id"]
    assert attribute.label(10**18 - 1) == 10**18 - 1
    with pytest.raises(DomainError, match=r"'id' has 1000000000000000000 labels.*label\(code\)"):
        _ = attribute.labels


BAD = {
    "empty": (lambda: Domain({}), "The domain has no attributes. Declare at least one"),
    "size 0": (lambda: Domain({"a": 0}), "Attribute 'a': the size is 0."),
    "size -1": (lambda: Domain({"a": -1}), "Attribute 'a': the size is -1."),
    "size 2**63": (lambda: Domain({"a": 2**63}), "has 9223372036854775808 cells; an attribute must have fewer"),
    "float size": (lambda: Domain({"a": 2.0}), "Attribute 'a': it is declared with a value of type float. Use a size"),
    "None": (lambda: Domain({"a": None}), "Attribute 'a': it is declared with a value of type NoneType."),
    "text": (lambda: Domain({"a": "MF"}), "Attribute 'a': it is declared with a value of type str."),
    "set": (lambda: Domain({"a": {"M", "F"}}), "Attribute 'a': it is declared with a value of type set."),
    "True": (lambda: Domain({"a": True}), "Attribute 'a': it is declared with the value True. Use the type bool"),
    "type int": (lambda: Domain({"a": int}), "Attribute 'a': it is declared with a value of type type."),
    "no labels": (lambda: Domain({"a": []}), "Attribute 'a': The list of labels is empty."),
    "twice": (lambda: Domain({"a": ["M", "F", "M"]}), "Labels 'M' and 'M' are equal."),
    "1 and True": (lambda: Labels([1, True]), "Labels 1 and True are equal."),
    "1 and 1.0": (lambda: Labels([1, "1", 1.0]), "Labels 1 and 1.0 are equal."),
    "None label": (lambda: Labels(["a", None]), "The label None stands for a missing value."),
    "NaN label": (lambda: Labels([1.0, math.nan]), "The label nan stands for a missing value."),
    "list label": (lambda: Labels([["a"]]), "A label is of type list, which cannot be hashed."),
    "array label": (lambda: Labels([np.zeros(2)]), "A label is of type ndarray, which cannot be hashed."),
    "duration label": (
        lambda: Labels([np.timedelta64(1)]),
        "A label is of type timedelta64, which cannot be hashed.",
    ),
    "text of labels": (lambda: Labels("MF"), "Labels are given as type str. Give a list"),
    "other twice": (lambda: Labels(["other"], outside="other"), "The label 'other' is declared"),
    "outside": (lambda: Labels(["a"], outside="raise"), "is 'raise'. Use outside='drop' or outside='other'."),
    "empty range": (lambda: Domain({"a": range(5, 5)}), "Attribute 'a': range(5, 5) is empty."),
    "step": (lambda: Domain({"a": range(5, 0, -1)}), "The step of Integers is -1. Use a positive step."),
    "reversed": (lambda: Integers(5, 4), "There are no integers from 5 to 4."),
    "float ends": (lambda: Integers(0, 4.0), "Integers were given 4.0."),
    "bool ends": (lambda: Integers(False, 4), "Integers were given False."),
    "one edge": (lambda: Bins([0]), "The number of edges of Bins is 1. Give at least two"),
    "edges fall": (lambda: Bins([0, 5, 3]), "the edge 5 before 3. Edges must increase strictly."),
    "edges equal": (lambda: Bins([0, 0.0]), "the edge 0 before 0."),
    "NaN edge": (lambda: Bins([0, math.nan]), "the edge nan. Use finite integers or floats"),
    "inf edge": (lambda: Bins([0, math.inf]), "the edge inf. Use finite integers or floats"),
    "text edge": (lambda: Bins([0, "1"]), "the edge '1'. Use finite integers or floats"),
    "bool edge": (lambda: Bins([False, True]), "the edge False. Use finite integers or floats"),
    "long edge": (lambda: Bins([0, 2**53 + 1]), "the edge 9007199254740993, which no float equals."),
    "huge edge": (lambda: Bins([0, 10**400]), "Bins were given the edge 1000"),
    "edges as a number": (lambda: Bins(3), "Edges of bins are given as type int. Give a list"),
    "name 3": (lambda: Domain({3: 3}), "An attribute has the name 3. Use a text"),
    "name ''": (lambda: Domain({"": 3}), "An attribute has the name ''. Use a text"),
    "not attributes": (lambda: Domain(["a"]), "A domain was given an object of type str. Give a mapping"),
    "not values": (
        lambda: Attribute("a", 3),
        "Attribute 'a' is declared with a value of type int. Use Labels, Integers",
    ),
    "names twice": (lambda: Domain([CENSUS["age"]] * 2), "Attribute 'age' occurs twice in the domain."),
    "amount twice": (
        lambda: Domain({"wage": 3}, amounts={"wage": Amount(0, 5)}),
        "Amount 'wage': An attribute has this name. Give the amount another",
    ),
    "amount as a level": (
        lambda: Domain({"age": Integers(0, 9, groups={"five": 5})}, amounts={"five": Amount(0, 5)}),
        "Amount 'five': A level has this name.",
    ),
    "amounts listed": (lambda: Domain({"a": 3}, amounts=["wage"]), "The amounts are given as type list."),
    "amount as a pair": (lambda: Domain({}, amounts={"wage": (0, 5)}), "Give its bounds, as in Amount(0, 200_000)."),
    "unknown": (
        lambda: CENSUS["agee"],
        "Attribute 'agee' is not in the domain; attributes: sex, age, income.",
    ),
    "hint": (lambda: CENSUS.axis("incme"), "sex, age, income. Did you mean 'income'?"),
    "unknown 0": (lambda: CENSUS[0], "Attribute 0 is not in the domain; attributes: sex, age, income."),
    "project ?": (lambda: CENSUS.project(["sex", "x"]), "Attribute 'x' is not in the domain"),
    "project twice": (
        lambda: CENSUS.project(["sex", "sex"]),
        "'sex' occurs twice among the attributes to project on.",
    ),
    "project text": (lambda: CENSUS.project("sex"), "given as the text 'sex'. Give a list: ['sex']."),
    "project none": (lambda: CENSUS.project([]), "The domain has no attributes."),
    "merge one": (lambda: CENSUS.merge(["sex"], name="s"), "Merging needs at least two attributes."),
    "merge ?": (lambda: CENSUS.merge(["sex", "ag"], name="s"), "Did you mean 'age'?"),
    "merge twice": (
        lambda: CENSUS.merge(["sex", "sex"], name="s"),
        "'sex' occurs twice among the attributes to merge.",
    ),
    "merge name": (
        lambda: CENSUS.merge(["sex", "age"], name="income"),
        "Attribute 'income' occurs twice in the domain.",
    ),
    "merge all": (lambda: WIDE.merge(WIDE.names, name="all"), "an attribute must have fewer than 2**63"),
    "code": (lambda: CENSUS["sex"].label(2), "Attribute 'sex': Code 2 has no label. Use a code from 0 to 1."),
    "code -1": (lambda: CENSUS["sex"].label(-1), "Attribute 'sex': Code -1 has no label."),
    "cell range": (lambda: CENSUS.index((0, 115, 0)), "A code of attribute 'age' is not between 0 and 114."),
    "cell -1": (lambda: CENSUS.index([(0, 0, -1)]), "A code of attribute 'income' is not between 0 and 2."),
    "cell 2**64": (lambda: CENSUS.index((2**64, 0, 0)), "A code of attribute 'sex' is not between 0 and 1."),
    "cell length": (
        lambda: CENSUS.index((0, 0)),
        "A cell of this domain has 3 codes, one for each of sex, age, income",
    ),
    "cell float": (lambda: CENSUS.index((0, 0, 1.0)), "Cells must be integers, but something else was given."),
    "cell floats": (lambda: CENSUS.index(np.zeros((1, 3))), "Cells must be integers, but something else was given."),
    "cell bool": (lambda: CENSUS.index((0, 0, True)), "Cells must be integers, but something else was given."),
    "ragged": (lambda: CENSUS.index([(0, 0, 0), (0, 0)]), "Cells must be integers, but something else was given."),
    "index range": (lambda: CENSUS.cell(690), "A cell index is not between 0 and 689."),
    "index -1": (lambda: CENSUS.cell([-1]), "A cell index is not between 0 and 689."),
    "index float": (lambda: CENSUS.cell(1.0), "Indices must be integers, but something else was given."),
    "wide index": (lambda: WIDE.cell(10**100), "A cell index is not between 0 and 999"),
    "column": (
        lambda: CENSUS.encode({"age": [], "Sex": []}),
        "Column 'sex' is not in the data; columns: age, Sex.",
    ),
    "no columns": (lambda: CENSUS.encode({}), "Column 'sex' is not in the data; columns: none."),
    "count": (lambda: WIDE.count({}), "A histogram over 100 attributes and 1000"),
    "count 2**31 + 1": (
        lambda: Domain({"a": 2**31 + 1}).count({}),
        "the limits are 64 attributes and 2147483648 cells",
    ),
    "count 65": (lambda: plain([1] * 65).count({}), "A histogram over 65 attributes and 1 cells"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_declarations_are_refused_with_a_reason(call: object, message: str) -> None:
    with pytest.raises(DomainError) as error:
        call()
    assert message in str(error.value)


# Encoding, against a plain reading of the rules, one value at a time.


class Hostile:
    """A value that raises whatever is asked of it, and says a secret each time."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret")

    def __hash__(self) -> int:
        raise RuntimeError("secret")

    __bool__ = __len__ = __int__ = __float__ = __index__ = __array__ = __hash__


class Missing:
    """Like pandas.NA: hashable, and its comparisons have no truth value."""

    def __eq__(self, other: object) -> Missing:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self

    def __hash__(self) -> int:
        return hash("M")

    def __bool__(self) -> bool:
        raise TypeError("secret")


def number(value: object) -> Fraction | float | None:
    """The exact number a value is, if it is one."""
    if isinstance(value, np.timedelta64 | np.datetime64):
        return None
    if isinstance(value, np.bool | np.integer | bool):
        return Fraction(int(value))
    if isinstance(value, float | np.floating | Decimal):
        try:
            return Fraction(*value.as_integer_ratio())
        except OverflowError:
            return float(value)
        except ValueError:
            return None
    return Fraction(value) if isinstance(value, int | Fraction) else None


def spelled(value: object) -> Fraction | float | None:
    """The same, where text may spell the number as a file of text does."""
    if not isinstance(value, str):
        return number(value)
    value = value.strip(" \t\n\v\f\r")
    if not value.isascii() or set(value) - set("0123456789+-.eE"):
        return None
    try:
        return Fraction(int(value))
    except ValueError:
        try:
            spelled_out = float(value)
        except ValueError:
            return None
        return number(spelled_out) if math.isfinite(spelled_out) else None


def reference(values: Values, value: object) -> int:
    declared = values.size - (values.outside == "other")
    outside = declared if values.outside == "other" else -1
    if isinstance(values, Labels):
        for code, label in enumerate(values.values):
            if isinstance(label, str | bytes):
                if isinstance(value, type(label)) and value == label:
                    return code
            elif number(value) is not None and number(value) == number(label):
                return code
        for code, label in enumerate(values.values):
            if isinstance(value, str) and not isinstance(label, str | bytes):
                words = {False: ["false", "False", "FALSE"], True: ["true", "True", "TRUE"]}
                if isinstance(label, bool) and value in words[label]:
                    return code
                if spelled(value) is not None and spelled(value) == number(label):
                    return code
        return outside
    x = spelled(value)
    if not isinstance(x, Fraction):
        return outside
    if isinstance(values, Integers):
        codes = [c for c in ((x - values.first) / values.step,) if c.denominator == 1 and 0 <= c < declared]
        return int(codes[0]) if codes else outside
    assert isinstance(values, Bins)
    edges = [Fraction(e) for e in values.edges]
    return next((i for i in range(declared) if edges[i] <= x < edges[i + 1]), outside)


KINDS = [
    Labels(["M", "F", "", "18", "é", "a\0", b"M", "\ud800"]),
    Labels(["M", "F"], outside="other"),
    Labels([1, "1", 0, 2.5, -3, 2**53 + 1, 2**63, 10**30, Decimal("0.1"), Fraction(1, 2), math.inf]),
    Labels([False, True]),
    Labels(["true", True, "0", False, "F"], outside="other"),
    Labels([18, 2**63 - 1, -(2**63), 2**64 - 1, 0.1], outside="other"),
    Labels([1e300]),
    Integers(0, 114),
    Integers(18, 99, outside="other"),
    Integers(-5, 30, step=7),
    Integers(0, 0),
    Integers(-(2**63), -(2**63) + 3),
    Integers(2**63 - 3, 2**63 - 1),
    Integers(2**63 - 2, 2**63 + 2),
    Integers(2**64 - 3, 2**64 + 3, outside="other"),
    Integers(-(10**30), 10**30, step=10**29),
    Integers(-(2**62), 2**62 - 2),
    Bins([0, 10, 18.5, 115]),
    Bins([-(2.0**70), -1.5, 0.1, 0.2, 2**53, 2.0**63, 2.0**64], outside="other"),
    Bins([2.0**63, 2.0**64, 2.0**65]),
    Bins([-1e308, -5e-324, 5e-324, 1e308]),
]

NUMBERS = st.one_of(
    st.integers(-6, 130),
    st.sampled_from([2**k + j for k in (31, 53, 62, 63, 64, 100) for j in (-2, -1, 0, 1, 2)]),
    st.sampled_from([-(2**k) + j for k in (31, 53, 62, 63, 64, 100) for j in (-2, -1, 0, 1, 2)]),
    st.sampled_from([10**29, -(10**30), 10**30, 10**30 + 1, 10**4000]),
)
AWKWARD = st.one_of(
    NUMBERS,
    NUMBERS.filter(lambda n: abs(n) < 10**300).map(float),
    NUMBERS.map(Decimal),
    NUMBERS.map(lambda n: Fraction(n, 2)),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.booleans(),
    st.sampled_from(["M", "F", "m", " M", "18", "1", "1.0", "1e1", "+5", "-3", "٣", "1_0", "1e999", "0x1", "nan"]),
    st.sampled_from(["true", "True", "TRUE", "tRUE", "t", "yes", "false", "False", "FALSE", "01", "0.0", " 1"]),
    st.sampled_from(["", ".", "e", "a\0", "a", "é", "é", "\ud800", "9" * 5000, "18.", ".5", b"M", b"18"]),
    st.sampled_from([None, math.nan, math.inf, -math.inf, -0.0, 0.1, 0.5, 2.5, 1j, 1 + 0j, 18.5, 1e300]),
    st.sampled_from([Decimal("NaN"), Decimal("sNaN"), Decimal("1e9999"), Decimal("0.1"), Decimal("-Infinity")]),
    st.sampled_from([np.float64(18), np.int8(1), np.uint64(2**64 - 1), np.True_, np.longdouble("0.1"), np.str_("M")]),
    st.sampled_from([np.datetime64("2020-01-01"), np.datetime64(1, "ns"), np.timedelta64(1, "s")]),
    st.builds(np.timedelta64, st.just(1)),  # cannot be hashed
    st.sampled_from([(), (1,), date(2020, 1, 1), object(), int, frozenset()]),
    st.builds(list),
    st.builds(lambda: {"M": 1}),
    st.builds(lambda: np.zeros(3)),
    st.builds(lambda: np.array("M")),
    st.builds(Hostile),
    st.builds(Missing),
)


@pytest.mark.parametrize("text", ["9" * 5000, "1e999", "-1e999", "9" * 400 + "."])
def test_digits_never_spell_infinity(text: str) -> None:
    assert Labels([1, math.inf, -math.inf]).encode([text]).tolist() == [-1]


@pytest.mark.parametrize("values", KINDS, ids=repr)
@given(column=st.lists(AWKWARD, max_size=8))
def test_any_list_or_object_column_is_encoded_as_by_the_rules(values: Values, column: list[object]) -> None:
    expected = [reference(values, value) for value in column]
    objects = np.fromiter(column, dtype=object, count=len(column))
    for given_column in (column, tuple(column), objects):
        codes = values.encode(given_column)
        assert codes.dtype == np.int64
        assert codes.tolist() == expected


TYPED = st.sampled_from(
    ["?", "i1", "i2", "i4", "i8", ">i8", "u1", "u2", "u4", "u8", ">u4", "f2", "f4", "f8", ">f8", "g", "c16"]
)


def elements(dtype: np.dtype[np.generic]) -> st.SearchStrategy[object]:
    if dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return st.one_of(NUMBERS.filter(lambda n: low <= n <= high), st.integers(low, high))
    if dtype == np.float64:
        near = NUMBERS.filter(lambda n: abs(n) < 10**300).map(float)
        return st.one_of(near, near.map(lambda x: math.nextafter(x, math.inf)), st.floats())
    return hnp.from_dtype(dtype)


@pytest.mark.parametrize("values", KINDS, ids=repr)
@given(data=st.data())
def test_any_typed_column_is_encoded_as_by_the_rules(values: Values, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(TYPED))
    column = data.draw(hnp.arrays(dtype, st.integers(0, 6), elements=elements(dtype)))
    assert values.encode(column).tolist() == [reference(values, value) for value in column]


@pytest.mark.parametrize("values", KINDS, ids=repr)
@pytest.mark.parametrize(
    "column",
    [
        np.array(["M", "F", "", "18", "a", "é", "18.0", "long text that is no label"]),
        np.array([b"M", b"F", b""]),
        np.array(["M", "x", "18"], dtype=np.dtypes.StringDType()),
        np.array(["2020-01-01", "NaT"], dtype="M8[ns]"),
        np.array([1, 18], dtype="m8[s]"),
        np.array([(1, 2)], dtype="i4,i4"),
        np.arange(4)[::-2],
        range(17, 20),
        np.array([], dtype=object),
        [],
    ],
    ids=lambda c: str(getattr(c, "dtype", "list")),
)
def test_other_columns_are_encoded_as_by_the_rules(values: Values, column: np.ndarray) -> None:
    assert values.encode(column).tolist() == [reference(values, value) for value in column]


@pytest.mark.parametrize("column", [[1 + 0j, 1, None], [1, 1 + 0j, None][::-1]])
def test_equal_values_of_other_types_are_not_taken_for_a_label(column: list[object]) -> None:
    assert Labels([1]).encode(column).tolist() == [0 if type(value) is int else -1 for value in column]


def test_long_doubles_are_not_rounded() -> None:
    eighteen = np.longdouble(18)
    column = np.array([eighteen, np.nextafter(eighteen, np.longdouble(19))])
    assert Integers(0, 99).encode(column).tolist() == [18, -1]


def test_masked_entries_are_missing() -> None:
    column = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    assert Integers(0, 9).encode(column).tolist() == [1, -1, 3]
    assert Integers(0, 9, outside="other").encode(column).tolist() == [1, 10, 3]


def test_columns_of_other_libraries() -> None:
    assert CENSUS["sex"].encode(pa.array(["F", None, "M"])).tolist() == [1, -1, 0]
    assert CENSUS["age"].encode(pa.chunked_array([[3, None], [114]])).tolist() == [3, -1, 114]
    assert CENSUS["income"].encode(pa.array([0.5, None])).tolist() == [0, -1]
    assert Labels([False, True]).encode(pa.array([True, None, False])).tolist() == [1, -1, 0]


@pytest.mark.parametrize("column", ["text", 5, None, np.zeros((2, 2)), {"a": 1}, Hostile()])
def test_what_is_no_column_is_refused_without_its_values(column: object) -> None:
    with pytest.raises(DomainError, match=r"^Attribute 'age': the column (is not|cannot)") as error:
        CENSUS["age"].encode(column)
    assert error.value.__suppress_context__
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("outside", ["drop", "other"])
def test_a_million_rows(outside: str) -> None:
    rng = np.random.default_rng(0)
    rows = 1_100_000  # more than one chunk
    text = np.array(["M", "F", "x"])[rng.integers(0, 3, rows)]
    age = rng.integers(-5, 130, rows)
    income = rng.normal(20_000, 30_000, rows)
    income[::7] = np.nan
    domain = Domain(
        {
            "sex": Labels(["F", "M"], outside=outside),
            "age": Integers(0, 114, outside=outside),
            "income": Bins([0, 10_000, 50_000], outside=outside),
        }
    )
    drop = outside == "drop"
    sex_code = np.select([text == "F", text == "M"], [0, 1], -1 if drop else 2)
    age_code = np.where((age >= 0) & (age < 115), age, -1 if drop else 115)
    income_code = np.select(
        [(income >= 0) & (income < 10_000), (income >= 10_000) & (income < 50_000)], [0, 1], -1 if drop else 2
    )
    expected = np.stack([sex_code, age_code, income_code], axis=1)
    expected = expected[(expected >= 0).all(axis=1)]
    np.testing.assert_array_equal(domain.encode({"sex": text, "age": age, "income": income}), expected)
    objects = {"sex": text.astype(object), "age": age.tolist(), "income": income.astype(object)}
    np.testing.assert_array_equal(domain.encode(objects), expected)
    counts = domain.count(objects)
    assert counts.shape == domain.shape
    assert counts.dtype == np.int64
    by_hand = np.zeros(domain.shape, np.int64)
    np.add.at(by_hand, tuple(expected.T), 1)
    np.testing.assert_array_equal(counts, by_hand)


def test_encode_ignores_other_columns_and_keeps_no_row_with_a_value_outside() -> None:
    columns = {"x": [Hostile()] * 3, "income": [1, 2, 3], "age": [1, 200, 3], "sex": ["M", "M", "F"]}
    assert CENSUS.encode(columns).tolist() == [[0, 1, 0], [1, 3, 0]]
    nothing = CENSUS.encode({"sex": [], "age": [], "income": []})
    assert nothing.shape == (0, 3)
    assert nothing.dtype == np.int64


def test_columns_of_different_length_are_refused_without_telling_lengths() -> None:
    with pytest.raises(DomainError) as error:
        CENSUS.encode({"sex": ["M"] * 77, "age": [1] * 78, "income": [1] * 77})
    assert str(error.value) == "The columns have different lengths. Give the columns of one table."


def test_a_new_category_changes_no_code() -> None:
    column = ["b", "a", "b"]
    labels = Labels(["b", "a"])
    np.testing.assert_array_equal(labels.encode([*column, "0", "zzz"])[:3], labels.encode(column))


# Project and merge.


def test_project_keeps_attributes_in_the_order_given() -> None:
    small = CENSUS.project(["income", "sex"])
    assert small.names == ("income", "sex")
    assert small.attributes == (CENSUS["income"], CENSUS["sex"])
    assert CENSUS.project(iter(CENSUS.names)) == CENSUS


@given(SIZES.filter(lambda sizes: len(sizes) > 1), st.randoms(use_true_random=False))
def test_merge_is_row_major_over_the_names_given(sizes: list[int], random: Random) -> None:
    domain = plain(sizes)
    chosen = random.sample(domain.names, random.randint(2, len(sizes)))
    merged = domain.merge(chosen, name="m")
    kept = [n for n in domain.names if n not in chosen]
    place = min(domain.axis(n) for n in chosen)
    assert merged.names == tuple(
        "m" if i == place else n for i, n in enumerate(domain.names) if i == place or n in kept
    )
    assert merged.size == domain.size
    assert merged["m"].labels == tuple(itertools.product(*(domain[n].labels for n in chosen)))
    assert merged["m"].ordered is False
    cells = np.array(list(itertools.product(*map(range, sizes))))
    codes = merged.encode({n: cells[:, i] for i, n in enumerate(domain.names)})
    inner = domain.project(chosen).index(cells[:, [domain.axis(n) for n in chosen]])
    np.testing.assert_array_equal(codes[:, merged.axis("m")], inner)
    for n in kept:
        np.testing.assert_array_equal(codes[:, merged.axis(n)], cells[:, domain.axis(n)])


def test_six_race_flags_are_one_attribute_of_64() -> None:
    flags = [f"race{i}" for i in range(6)]
    domain = Domain({"sex": ["M", "F"], **dict.fromkeys(flags, bool), "age": 115}).merge(flags, name="race")
    assert domain.names == ("sex", "race", "age")
    assert domain.shape == (2, 64, 115)
    columns = {name: [i == 0, True] for i, name in enumerate(flags)} | {"sex": ["M", "F"], "age": [0, 1]}
    assert domain.encode(columns).tolist() == [[0, 32, 0], [1, 63, 1]]
    assert domain["race"].label(32) == (True, False, False, False, False, False)
    assert domain["race"].columns == tuple(flags)


def test_merged_attributes_merge_again() -> None:
    domain = Domain({"a": 2, "b": ["x", "y", "z"], "c": Integers(0, 1, outside="other")})
    twice = domain.merge(["c", "a"], name="ca").merge(["ca", "b"], name="a")
    assert twice.names == ("a",)
    assert twice.shape == (18,)
    assert twice["a"].label(17) == (("other", 1), "z")
    columns = {"a": [0, 1, 5, 1], "b": ["y", "z", "x", "?"], "c": [1, None, 0, 0]}
    assert twice.encode(columns).tolist() == [[(1 * 2 + 0) * 3 + 1], [(2 * 2 + 1) * 3 + 2]]
    labels = twice["a"].labels
    assert twice["a"].encode(
        [((0, 0), "x"), ((1, 0), "y"), (("?", 1), "z"), ((0, 9), "x"), None, (1,), [1, 2]]
    ).tolist() == [labels.index(((0, 0), "x")), labels.index(((1, 0), "y")), 17, -1, -1, -1, -1]
    assert twice["a"].encode(np.arange(3)).tolist() == [-1, -1, -1]
    assert twice == domain.merge(["c", "a"], name="ca").merge(["ca", "b"], name="a")
    assert hash(twice) == hash(copy.deepcopy(twice))


def test_merged_data_need_the_columns_of_the_parts() -> None:
    domain = CENSUS.merge(["sex", "age"], name="who")
    with pytest.raises(DomainError, match="Column 'age' is not in the data; columns: sex, who, income"):
        domain.encode({"sex": ["M"], "who": [1], "income": [1]})
    with pytest.raises(DomainError, match="different lengths"):
        domain.encode({"sex": ["M"], "age": [1, 2], "income": [1]})
