"""Privacy parameters are exact, and everything else is refused (security S4, L5)."""

from __future__ import annotations

import copy
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.base.exceptions import HdmmError, PrivacyError, StrategyError
from hdmm.privacy import guarantee as privacy
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Noise, Privacy, PureDP, error_factor, guarantee, scaled
from hdmm.privacy.unit_of_privacy import Unit

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
    ("0." + "1" * 62, Fraction(int("1" * 62), 10**62)),  # 64 characters
    (Fraction(2**2047 + 1, 2**2047), 1 + Fraction(1, 2**2047)),  # 2048 bits each
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
    2**500 + 1,
    Fraction(1, 2**500 + 1),
    Fraction(2**2048 + 1, 2**2047),  # 2049 bits above
    Fraction(2**2047 + 1, 2**2048),  # and below
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


@given(st.floats(min_value=1e-150, max_value=1e150))
def test_float_is_taken_at_its_shortest_decimal(x: float) -> None:
    assert PureDP(x).epsilon == Fraction(repr(x))
    assert float(PureDP(x).epsilon) == x


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
        (Fraction(1, 25), "0.04"),
        (Fraction(3, 40), "0.075"),
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
        (Decimal("0e1000"), "epsilon is Decimal('0E+1000'); it must be above 0."),
        (Decimal("1e999"), "epsilon is Decimal('1E+999'); it must be from 2**-500 to 2**500."),
        (Decimal("1e1000"), "epsilon is Decimal('1E+1000'), not a finite number of ordinary length."),
        (Decimal("1e-999"), "epsilon is Decimal('1E-999'); it must be from 2**-500 to 2**500."),
        (Decimal("1e-1000"), "epsilon is Decimal('1E-1000'), not a finite number of ordinary length."),
        (Decimal("1" * 999 + "e-998"), "epsilon is a fraction of more than 2048 bits."),
        (Decimal("1" * 1000 + "e-999"), f"epsilon is Decimal('1.{'1' * 53}…, not a finite number of ordinary length."),
        (Fraction(-(2**128), 3), "epsilon is a number of more than 128 bits; it must be above 0."),
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


def test_a_text_of_64_characters_is_written_as_it_is() -> None:
    """Up to there it may be given again as a text; a longer one is written as a fraction."""
    text = "0." + "1" * 62
    assert repr(PureDP(text)) == f"PureDP('{text}')"
    assert repr(PureDP(Fraction(f"{text}1"))) == f"PureDP({Fraction(f'{text}1')!r})"


@pytest.mark.parametrize(
    ("unit", "added", "squared", "opposed", "text"),
    [
        (Unit(), 1, 1, 1, "one row added or removed"),
        (Unit(3), 3, 9, 9, "up to 3 rows of one person added or removed"),
        (Unit(1, "replace"), 2, 2, 4, "one row replaced by another"),
        (Unit(3, "replace"), 6, 18, 36, "up to 3 rows of one person replaced by others"),
    ],
)
def test_what_a_unit_multiplies_sensitivity_by(unit: Unit, added: int, squared: int, opposed: int, text: str) -> None:
    """S1: k rows move an answer k times as far, and replacing one moves it by a − b, which may point opposite ways."""
    for signed in (False, True):
        assert unit.factor(Noise.LAPLACE, signed=signed) == added
    assert unit.factor(Noise.GAUSSIAN, signed=False) == squared
    assert unit.factor(Noise.GAUSSIAN, signed=True) == opposed
    assert str(unit) == text


def test_a_unit_is_one_row_added_or_removed_unless_it_says_otherwise() -> None:
    assert Unit() == Unit(1, "add-remove")


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("entries", [(0, 1, 2), (-1, 0, 2), (-2, -1)])
def test_no_move_of_a_unit_is_larger_than_its_factor_says(rows: int, entries: tuple[int, ...]) -> None:
    """By trying all: columns of two entries each, one person with k rows, added or replaced by k others."""
    columns = [np.array(c) for c in product(entries, repeat=2)]
    people = [sum(chosen) for chosen in combinations_with_replacement(columns, rows)]
    replaced = [a - b for a in people for b in people]
    for moves, neighbours in ((people, "add-remove"), (replaced, "replace")):
        unit = Unit(rows, neighbours)  # type: ignore[arg-type]
        for noise in Noise:
            most = max((np.abs(move) ** noise.order).sum() for move in moves)
            one = max((np.abs(column) ** noise.order).sum() for column in columns)
            factor = unit.factor(noise, signed=min(entries) < 0)
            assert most <= factor * one
            if neighbours == "add-remove":
                assert most == factor * one


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"epsilon": "0.5"}, PureDP("0.5")),
        ({"epsilon": "0.5", "delta": "1e-6"}, ApproxDP("0.5", "1e-6")),
        ({"rho": "0.5"}, ZCDP("0.5")),
        ({}, None),
        ({"delta": "1e-6"}, None),
        ({"rho": "0.5", "delta": "1e-6"}, None),
        ({"rho": "0.5", "epsilon": "1"}, None),
        ({"rho": "0.5", "epsilon": "1", "delta": "1e-6"}, None),
        ({"mu": "0.5"}, GaussianDP("0.5")),
        ({"mu": "0.5", "epsilon": "1"}, None),
        ({"mu": "0.5", "rho": "1"}, None),
        ({"mu": "0.5", "delta": "1e-6"}, None),
        ({"mu": "0.5", "rho": "0.125", "epsilon": "1", "delta": "1e-6"}, None),
    ],
)
def test_a_guarantee_is_declared_in_one_way(given: dict[str, str], expected: Privacy | None) -> None:
    if expected is None:
        with pytest.raises(PrivacyError, match=r"^Give epsilon, or epsilon and delta, or rho, or mu\.$"):
            guarantee(**given)
    else:
        assert guarantee(**given) == expected


def test_a_guarantee_is_scaled_in_the_parameter_it_is_named_by() -> None:
    assert scaled(PureDP("0.5"), Fraction(4)) == PureDP(2)
    assert scaled(ZCDP("0.5"), Fraction(1, 4)) == ZCDP("1/8")
    assert scaled(ApproxDP("0.5", "1e-6"), Fraction(4)) == ApproxDP(2, "1e-6")
    assert error_factor(ZCDP(1), ZCDP(4)) == 0.5  # σ goes as 1/√ρ
    assert error_factor(PureDP(2), PureDP(1)) == 2


def test_noises_are_two() -> None:
    assert [(noise, noise.order, noise.convex) for noise in Noise] == [("laplace", 1, False), ("gaussian", 2, True)]
    assert Noise.of("laplace") is Noise.LAPLACE
    with pytest.raises(StrategyError, match="The noise 'cauchy' is unknown"):
        Noise.of("cauchy")


@pytest.mark.parametrize(("implied", "allowed"), [(Fraction(1, 2**249), True), (Fraction(1, 2**250), False)])
def test_what_only_less_than_the_least_rho_implies_is_refused(
    implied: Fraction, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy, "mu_down", lambda epsilon, delta: implied)
    if allowed:
        assert ApproxDP(1, "1e-6").rho == implied**2 / 2
    else:
        with pytest.raises(PrivacyError, match=r"only a rho below 2\*\*-500 implies"):
            ApproxDP(1, "1e-6")


@pytest.mark.parametrize("delta", ["1", 1, 2, Fraction(2**200 + 1, 2**200)])
def test_a_delta_of_1_or_more_is_refused(delta: Any) -> None:
    with pytest.raises(PrivacyError, match="it must be below 1"):
        ApproxDP(1, delta)
    assert ApproxDP(1, 1 - Fraction(1, 2**200)).delta == 1 - Fraction(1, 2**200)


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
