"""Privacy parameters are exact, and everything else is refused (security S4, L5)."""

from __future__ import annotations

import copy
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdmm.exceptions import HdmmError, PrivacyError
from hdmm.privacy import ZCDP, PureDP, Unit

KINDS = [(PureDP, "epsilon"), (ZCDP, "rho")]

ACCEPTED = [
    (1, Fraction(1)),
    (Fraction(1, 3), Fraction(1, 3)),
    (Decimal("0.10"), Fraction(1, 10)),
    ("0.5", Fraction(1, 2)),
    ("1e-3", Fraction(1, 1000)),
    ("2.5E2", Fraction(250)),
    (".5", Fraction(1, 2)),
    ("5.", Fraction(5)),
    ("+4", Fraction(4)),
    ("1/3", Fraction(1, 3)),
    (0.1, Fraction(1, 10)),
    (1e-16, Fraction(1, 10**16)),
    (1e22, Fraction(10**22)),
    (np.float64(0.1), Fraction(1, 10)),
    (np.float32(0.1), Fraction(1, 10)),
    (np.int8(3), Fraction(3)),
    (np.uint64(2**64 - 1), Fraction(2**64 - 1)),
    (2**500, Fraction(2**500)),
    (Fraction(1, 2**500), Fraction(1, 2**500)),
]

REFUSED = [
    0,
    0.0,
    -0.0,
    "0",
    "0/5",
    Decimal(0),
    Decimal("0e999999999"),
    Decimal("-0"),
    -1,
    -0.5,
    "-0.5",
    "-1/3",
    Fraction(-1, 2),
    float("nan"),
    float("inf"),
    float("-inf"),
    np.float32("nan"),
    np.float64("inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    "nan",
    "inf",
    True,
    False,
    np.True_,
    np.timedelta64(1),
    1j,
    None,
    [1],
    b"1",
    np.array([1.0]),
    "",
    " ",
    "abc",
    "0.5 ",
    "1_000",
    "٣",
    "0x10",
    "1/0",
    "1/2/3",
    "0.5/2",
    "1e",
    "e5",
    "5e-324",
    5e-324,
    sys.float_info.min / 2,
    sys.float_info.min,
    1e300,
    "1e-999",
    "1e999",
    "1e999999999",
    "1e-999999999",
    Decimal("1e999999"),
    Decimal("1e-999999"),
    "0." + "1" * 63,
    "9" * 100_000,
    10**5000,
    Fraction(1, 10**5000),
    Fraction(10**5000 + 1, 10**5000),
    Decimal("1." + "1" * 900),
]


@pytest.mark.parametrize(("kind", "name"), KINDS)
@pytest.mark.parametrize(("given", "exact"), ACCEPTED)
def test_parameter_is_the_fraction_it_says(kind: type, name: str, given: object, exact: Fraction) -> None:
    value = getattr(kind(given), name)
    assert type(value) is Fraction
    assert value == exact


@pytest.mark.parametrize(("kind", "name"), KINDS)
@pytest.mark.parametrize("given", REFUSED, ids=lambda v: f"{type(v).__name__}")
def test_what_is_no_parameter_is_refused_with_advice(kind: type, name: str, given: object) -> None:
    with pytest.raises(PrivacyError, match=rf"^{name} is .*such as '0.5'\.$") as error:
        kind(given)
    assert isinstance(error.value, HdmmError)
    assert len(str(error.value)) < 250


@settings(deadline=None)
@given(st.floats(min_value=1e-150, max_value=1e150))
def test_float_is_taken_at_its_shortest_decimal(x: float) -> None:
    assert PureDP(x).epsilon == Fraction(repr(x))
    assert float(PureDP(x).epsilon) == x


@settings(deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9), st.sampled_from([PureDP, ZCDP]))
def test_repr_makes_the_same_again(fraction: Fraction, kind: type) -> None:
    value = kind(fraction)
    assert eval(repr(value), {"PureDP": PureDP, "ZCDP": ZCDP, "Fraction": Fraction}) == value


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0.50", "0.5"),
        (100, "100"),
        ("1/3", "1/3"),
        ("1/8", "0.125"),
        (1e-100, "1E-100"),
        (10**100, "1E+100"),
        (Fraction(1, 2**70), "8.470329472543003390683225006796419620513916015625E-22"),
    ],
)
def test_text_is_readable(given: str, text: str) -> None:
    assert repr(PureDP(given)) == f"PureDP('{text}')"
    assert str(PureDP(given)) == f"ε = {text} (pure differential privacy)"
    assert str(ZCDP(given)) == f"ρ = {text} (zero-concentrated differential privacy)"
    assert PureDP(text) == PureDP(given)


def test_repr_of_a_long_fraction_is_that_fraction() -> None:
    value = PureDP(Fraction(1, 2**300))
    assert eval(repr(value), {"PureDP": PureDP, "Fraction": Fraction}) == value


def test_noise_and_variance_follow_the_guarantee() -> None:
    assert (PureDP("0.1").noise, ZCDP("0.1").noise) == ("laplace", "gaussian")
    assert PureDP("0.1").variance_factor == 200
    assert ZCDP("0.1").variance_factor == 5
    for kind, _ in KINDS:
        for extreme in (Fraction(1, 2**500), 2**500):
            assert 0 < float(kind(extreme).variance_factor) < float("inf")


def test_values_compare_hash_copy_and_cannot_change() -> None:
    assert PureDP(0.5) == PureDP("1/2")
    assert hash(PureDP(0.5)) == hash(PureDP("1/2"))
    assert PureDP(1) != ZCDP(1)
    assert copy.deepcopy(PureDP(1)) == pickle.loads(pickle.dumps(PureDP(1))) == PureDP(1)
    with pytest.raises(AttributeError):
        PureDP(1).epsilon = Fraction(2)  # type: ignore[misc]


def test_a_unit_is_a_whole_number_of_rows() -> None:
    assert [Unit(rows).rows for rows in (1, 2, 2**31 - 1)] == [1, 2, 2**31 - 1]
    for rows in (0, -1, 2**31, True, 1.0, "1", None):
        with pytest.raises(PrivacyError, match=r"Give an integer from 1 to 2\*\*31 - 1\.$"):
            Unit(rows)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="neighbours 'add' are unknown"):
        Unit(neighbours="add")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "epsilon is 0; it must be above 0."),
        (Fraction(-1, 2), "epsilon is Fraction(-1, 2); it must be above 0."),
        (Decimal("-0.5"), "epsilon is Decimal('-0.5'); it must be above 0."),
        (-0.5, "epsilon is -0.5; it must be above 0."),
        ("0.0", "epsilon is '0.0'; it must be above 0."),
        (np.int64(0), f"epsilon is {np.int64(0)!r}; it must be above 0."),
        (np.float32(-2), f"epsilon is {np.float32(-2)!r}; it must be above 0."),
        (2**127 * Fraction(1, 2**1000), "epsilon is a number of more than 128 bits; it must be from 2**-500 to"),
        ("1e-200", "epsilon is '1e-200'; it must be from 2**-500 to 2**500."),
        (-(2**128), "epsilon is a number of more than 128 bits; it must be above 0."),
        (-(2**128) + 1, f"epsilon is -{2**128 - 1}; it must be above 0."),
        ("0,1", "epsilon is '0,1'. Write 0.1, with a point in place of the comma."),
        (True, "epsilon is True, not a finite number of ordinary length."),
        (np.True_, f"epsilon is {np.True_!r}, not a finite number of ordinary length."),
        (float("nan"), "epsilon is nan, not a finite number of ordinary length."),
        ([1], "epsilon is of type list, not a finite number of ordinary length."),
        (np.timedelta64(1, "s"), f"epsilon is {np.timedelta64(1, 's')!r}, not a finite number of ordinary length."),
        ("half", "epsilon is 'half', not a finite number of ordinary length."),
        ("x" * 62, f"epsilon is '{'x' * 62}', not a finite number of ordinary length."),
        ("x" * 63, f"epsilon is '{'x' * 63}…, not a finite number of ordinary length."),
        ("x" * 64 + "'", f"epsilon is '{'x' * 63}…, not a finite number of ordinary length."),
        ("x" * 5000, f"epsilon is '{'x' * 63}…, not a finite number of ordinary length."),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_message_says_what_was_given_and_what_is_wrong(given: Any, message: str) -> None:
    with pytest.raises(PrivacyError) as error:
        PureDP(given)
    assert str(error.value).startswith(message)


def test_a_decimal_is_written_out_up_to_20_characters() -> None:
    assert str(PureDP("1e-18")).startswith("ε = 0.000000000000000001 (")
    assert str(PureDP("1e-19")).startswith("ε = 1E-19 (")


def test_a_unit_may_name_the_column_of_ids() -> None:
    assert Unit(id="who").id == "who"
    assert Unit().id is None
    assert Unit(2, id="who") != Unit(2)
    assert str(Unit()) == "one row added or removed"
    assert str(Unit(id="who")) == "one row of one person added or removed"
    assert str(Unit(2, id="who")) == str(Unit(2)) == "up to 2 rows of one person added or removed"
    assert str(Unit(neighbours="replace", id="who")) == "one row of one person replaced by another"
    assert str(Unit(2, "replace", "who")) == "up to 2 rows of one person replaced by others"
    for bad, shown in (("", "''"), (3, "3"), (b"who", "of type bytes")):
        with pytest.raises(PrivacyError, match=f"The column of ids is {shown}. Give the name of a column, or None"):
            Unit(id=bad)  # type: ignore[arg-type]
