"""μ-Gaussian differential privacy: as a guarantee, as what pure ε implies, and as what an account adds up (S4, L3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import (
    ZCDP,
    ApproxDP,
    BudgetError,
    Domain,
    GaussianDP,
    Ledger,
    LedgerError,
    PrivacyError,
    PureDP,
    Strategy,
    Unit,
    from_array,
)
from hdmm.measure.measure import measure
from hdmm.measure.release import load_release
from hdmm.privacy import gdp
from hdmm.privacy import ledger as ledger_module
from hdmm.privacy.chain import Broken, Draft, Verified, chained, spent_by
from hdmm.privacy.gdp import gaussian_epsilon_up, is_private, mu_down, mu_of_pure_up, pure_is_gaussian, root
from hdmm.privacy.guarantee import Privacy, error_factor, parameter, scaled
from hdmm.privacy.purpose import debit_text
from hdmm.privacy.spending import Spending
from hdmm.privacy.units import UNITS, account, charge
from hdmm.privacy.units import guarantee as of_units
from hdmm.publication.budget import budget_of, budgets_in, unpayable
from hdmm.publication.spec import load_spec
from tests.support.effort import examples
from tests.support.spec_cases import SPEC, prepared

DELTA = Fraction(1, 10**8)
EPSILONS = [
    Fraction(1, 2**500),
    Fraction(1, 10**30),
    Fraction(1, 10**6),
    Fraction(1, 3),
    Fraction(1),
    Fraction(2),
    Fraction(201, 100),
    Fraction(10),
    Fraction(700),
    Fraction(10**5),
]


def exact(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def opened(path: Path, cap: Privacy, dataset: str = "people") -> Ledger:
    return Ledger(path / "budget.db", dataset=dataset, cap=cap)


# The guarantee


def test_mu_is_the_fraction_it_says() -> None:
    assert [GaussianDP(given).mu for given in ("0.5", 0.1, "1/3", 2)] == [
        Fraction(n, d) for n, d in [(1, 2), (1, 10), (1, 3), (2, 1)]
    ]
    assert GaussianDP("1/3").rho == Fraction(1, 18)
    assert (GaussianDP("0.1").noise, GaussianDP("0.1").variance_factor) == ("gaussian", 100)
    assert eval(repr(GaussianDP("0.30"))) == GaussianDP("0.3")
    assert (scaled(GaussianDP(1), Fraction(3)), parameter(GaussianDP(2))) == (GaussianDP(3), ("μ", 2.0))
    assert error_factor(GaussianDP(1), GaussianDP(2)) == 0.5
    assert GaussianDP(1).epsilon_at(DELTA) == gaussian_epsilon_up(Fraction(1, 2), DELTA)


@pytest.mark.parametrize(
    "given",
    [0, "0", -1, "-0.5", "nan", "inf", float("nan"), True, None, "", "0,5", "half", "1/0", b"1", 2**250,
     Fraction(1, 2**250), "1e-200", Fraction(2**1023 + 1, 2**1023), [0.5]],
)  # fmt: skip
def test_what_is_no_mu_is_refused(given: object) -> None:
    with pytest.raises(PrivacyError, match=r"^mu is "):
        GaussianDP(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("extreme", [Fraction(1, 2**249), Fraction(2**249), Fraction(2**1022 + 1, 2**1022)])
def test_every_mu_can_be_charged_and_released(extreme: Fraction) -> None:
    """Its ρ is one that ZCDP accepts, so that nothing that follows is refused after a debit."""
    mu = GaussianDP(extreme)
    assert ZCDP(mu.rho).rho == extreme**2 / 2
    assert charge(mu, "mu_squared") >= extreme**2 * UNITS
    assert 0 < float(mu.variance_factor) < float("inf")


# Pure ε as μ


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_of_pure_is_the_least_but_for_a_little(epsilon: Fraction) -> None:
    """Where both types of error are equal, μ has no larger errors than ε, and those of less have."""
    mu = mu_of_pure_up(epsilon)
    with mpmath.workprec(3000):
        corner = 1 / (1 + mpmath.exp(exact(epsilon)))
        assert mpmath.ncdf(-exact(mu) / 2) <= corner < mpmath.ncdf(-exact(mu * (1 - Fraction(1, 2**30))) / 2)


def test_pure_is_gaussian_nowhere_below_the_trade_off() -> None:
    """f(α) ≥ G(α) on a grid of false alarms, and equal to it at 1/(1 + e^ε)."""
    with mpmath.workprec(200):
        for epsilon in (Fraction(1, 50), Fraction(1), Fraction(5)):
            e, mu = exact(epsilon), exact(mu_of_pure_up(epsilon))
            corner = 1 / (1 + mpmath.exp(e))
            for alpha in [*(mpmath.mpf(k) / 997 for k in range(1, 997)), corner]:
                least = max(1 - mpmath.exp(e) * alpha, mpmath.exp(-e) * (1 - alpha))
                normal = mpmath.ncdf(-mpmath.sqrt(2) * mpmath.erfinv(2 * alpha - 1) - mu)
                assert normal <= least
                assert alpha != corner or least - normal < mpmath.mpf(2) ** -30


@pytest.mark.parametrize("epsilon", [Fraction(2**20 + 1), Fraction(2**500)])
def test_a_large_epsilon_has_the_square_that_is_always_enough(epsilon: Fraction) -> None:
    mu = mu_of_pure_up(epsilon)
    assert 8 * epsilon <= mu**2 <= 8 * epsilon * (1 + Fraction(1, 2**60))
    assert not pure_is_gaussian(epsilon, mu * Fraction(99, 100))


def test_a_precision_that_does_not_decide_is_not_gaussian(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = {epsilon: mu_of_pure_up(epsilon) for epsilon in (Fraction(1), Fraction(1, 10**9))}
    monkeypatch.setattr(gdp, "_PRECISIONS", (24,))
    for epsilon, mu in decided.items():
        assert mu < mu_of_pure_up.__wrapped__(epsilon) <= root(8 * epsilon, "up")


@pytest.mark.parametrize("precision", [20, 53])
def test_the_corner_and_the_error_are_rounded_to_their_sides(precision: int) -> None:
    up, down = gdp.rounding("up", precision), gdp.rounding("down", precision)
    with mpmath.workprec(300):
        for x in (Fraction(1, 7), Fraction(1), Fraction(19, 3)):
            corner, error = 1 / (1 + mpmath.exp(exact(x))), mpmath.ncdf(-exact(x) / 2)
            for found, least, most in (
                (corner, gdp._corner(x, down, up), gdp._corner(x, up, down)),
                (error, gdp._error_at(x, down, up), gdp._error_at(x, up, down)),
            ):
                assert exact(gdp.fraction(least)) < found < exact(gdp.fraction(most))


# What an account adds up


def test_an_account_in_mu_adds_squares(tmp_path: Path) -> None:
    ledger = opened(tmp_path, GaussianDP("0.5"))
    ledger.debit(GaussianDP("0.3"), "first")
    receipt = ledger.debit(GaussianDP("0.4"), "second")
    assert (receipt.parameter, receipt.amount, receipt.balance) == ("mu_squared", Fraction(16, 100), 0)
    assert (ledger.cap, ledger.spent, ledger.remaining) == (GaussianDP("0.5"), Fraction(1, 4), 0)
    assert ledger.epsilon_at(DELTA) == GaussianDP("0.5").epsilon_at(DELTA)
    with pytest.raises(BudgetError, match=r"μ² = 0 left of its cap μ² = 0.25"):
        ledger.debit(GaussianDP("1e-40"), "third")
    assert opened(tmp_path, GaussianDP("0.5")).remaining == 0


@pytest.mark.parametrize("cap", [GaussianDP("0.0866025403784439"), PureDP("1/101"), ZCDP("0.12345678901234567890123")])
def test_a_refusal_for_less_than_a_unit_says_so(cap: Privacy, tmp_path: Path) -> None:
    """Both amounts look the same, and are but for the rounding to units."""
    with pytest.raises(BudgetError, match=r"They differ by less than a part in 10\*\*10, because .* 11 decimal places"):
        opened(tmp_path, cap).debit(cap, "all of it")
    with pytest.raises(BudgetError, match=r"^((?!They differ).)*$"):
        opened(tmp_path, cap).debit(scaled(cap, Fraction(1000001, 1000000)), "a little more")


def test_a_release_that_is_refused_for_less_than_a_unit_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mu = 'mu = "0.0866025403784439"'
    prepared(tmp_path, SPEC.replace('epsilon = "0.5"', mu).replace('{ epsilon = "4" }', f"{{ {mu} }}"))
    spec = load_spec("people.toml")
    assert "They differ by less than" in str(unpayable(spec, budget_of(spec)))
    prepared(tmp_path, SPEC.replace('epsilon = "0.5"', 'mu = "0.5"').replace('{ epsilon = "4" }', '{ mu = "0.4" }'))
    spec = load_spec("people.toml")
    assert "They differ" not in str(unpayable(spec, budget_of(spec)))


def test_an_account_in_mu_takes_pure_epsilon_by_its_mu(tmp_path: Path) -> None:
    ledger = opened(tmp_path, GaussianDP(2))
    receipt = ledger.debit(PureDP("0.1"), "laplace")
    assert 0 <= receipt.amount - mu_of_pure_up(Fraction(1, 10)) ** 2 < Fraction(1, UNITS)
    assert ledger.epsilon_at(DELTA) == Fraction(1, 10)
    ledger.debit(ZCDP("0.5"), "gaussian", gaussian=True)
    together = receipt.amount + 1
    assert ledger.spent == together
    assert ledger.epsilon_at(DELTA) == gaussian_epsilon_up(together / 2, DELTA)
    with pytest.raises(BudgetError, match="no μ² bounds it"):
        ledger.debit(ZCDP("0.01"), "of another mechanism")
    assert Ledger(ledger.path, dataset="people").spent == together


def test_an_account_in_epsilon_counts_many_small_ones_by_their_rho(tmp_path: Path) -> None:
    """Ten times ε = 0.1 and once ε = 1 have ρ = 0.55 together, and at this δ less ε than 2."""
    ledger = opened(tmp_path, PureDP(3))
    for text in "abcdefghij":
        ledger.debit(PureDP("0.1"), text)
    ledger.debit(PureDP(1), "one")
    for delta in (Fraction(1, 10), Fraction(1, 100)):
        assert ledger.epsilon_at(delta) == min(2, gdp.epsilon_up(Fraction(11, 20), delta))
    assert ledger.epsilon_at(Fraction(1, 10)) < 2


def test_steps_multiply_mu(tmp_path: Path) -> None:
    """Group privacy: k steps make kμ, and of a pure ε the μ of kε."""
    ledger = opened(tmp_path, GaussianDP(9))
    first = ledger.debit(GaussianDP(1), "replaced", unit=Unit(neighbours="replace"))
    second = ledger.debit(GaussianDP(1), "added or removed", unit=Unit())
    third = ledger.debit(PureDP(1), "pure, added or removed", unit=Unit())
    assert (first.amount, second.amount) == (1, 4)
    assert 0 <= third.amount - mu_of_pure_up(Fraction(2)) ** 2 < Fraction(1, UNITS)
    assert Ledger(ledger.path, dataset="people").epsilon_at(DELTA) == Spending(
        gaussian=Fraction(5, 2), pure=Fraction(2), pure_rho=Fraction(2), pure_mu_squared=third.amount
    ).epsilon_at(DELTA)


@pytest.mark.parametrize(
    "cap", [ApproxDP(1, "1e-6"), ApproxDP("0.3", "1e-9"), ApproxDP(20, "0.5"), ApproxDP("1e-3", "1e-12")]
)
def test_a_cap_in_epsilon_and_delta_pays_for_one_release_with_it(cap: ApproxDP, tmp_path: Path) -> None:
    ledger = opened(tmp_path, cap)
    assert is_private(cap.epsilon, cap.delta, root(Fraction(account(cap).cap, UNITS), "up", 512))
    data = from_array(Domain({"age": 3}), [5, 6, 7])
    release = measure(Strategy.identity(data.domain), data, cap, ledger=ledger)
    assert ledger.remaining == 0
    assert load_release(release.save(tmp_path / "release")).receipt == release.receipt
    assert opened(tmp_path, cap).cap == ledger.cap
    assert ledger.cap.mu <= mu_down(cap.epsilon, cap.delta) * (1 + Fraction(1, 10**15))  # type: ignore[union-attr]


@examples(50)
@given(
    st.fractions(Fraction(1, 10**4), 30, max_denominator=10**6), st.integers(1, 30).map(lambda k: Fraction(1, 10**k))
)
def test_a_cap_in_epsilon_and_delta_implies_them(epsilon: Fraction, delta: Fraction) -> None:
    cap = account(ApproxDP(epsilon, delta)).cap
    assert is_private(epsilon, delta, root(Fraction(cap, UNITS), "up", 512))
    assert cap in {charge(ApproxDP(epsilon, delta), "mu_squared", gaussian=True) - down for down in (0, 1)}


def test_a_cap_that_would_be_rounded_up_too_far_is_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = ApproxDP(1, "1e-6")
    monkeypatch.setattr("hdmm.privacy.units.is_private", lambda *_: False)
    assert (
        account(cap).cap == charge(cap, "mu_squared", gaussian=True) - 1 < mu_down(cap.epsilon, cap.delta) ** 2 * UNITS
    )


def test_caps_are_compared_and_raised_in_their_own_parameter(tmp_path: Path) -> None:
    ledger = opened(tmp_path, GaussianDP(1))
    for other in (ZCDP("0.5"), PureDP(1), GaussianDP("1.1"), ApproxDP(1, "1e-6")):
        with pytest.raises(BudgetError, match="was declared with the cap μ² = 1, not"):
            opened(tmp_path, other)
    for smaller in (GaussianDP("0.9"), GaussianDP(1), ZCDP(9), PureDP(9)):
        with pytest.raises(BudgetError, match="can only be raised"):
            ledger.raise_cap(smaller, reason="a decision")
    ledger.raise_cap(GaussianDP("1.5"), reason="a decision")
    assert opened(tmp_path, GaussianDP("1.5")).cap == GaussianDP("1.5")


def test_other_accounts_take_gaussian_dp_by_its_rho(tmp_path: Path) -> None:
    """As exact Gaussian noise; an account in ε takes none."""
    ledger = opened(tmp_path, ZCDP(1))
    ledger.debit(GaussianDP("0.5"), "gaussian")
    assert ledger.spent == Fraction(1, 8)
    assert ledger.epsilon_at(DELTA) == GaussianDP("0.5").epsilon_at(DELTA)
    with pytest.raises(BudgetError, match="because no ε bounds it"):
        opened(tmp_path, PureDP(1), "others").debit(GaussianDP("0.5"), "gaussian")


def test_epsilon_with_delta_is_debited_as_gaussian_noise_only(tmp_path: Path) -> None:
    ledger = opened(tmp_path, ZCDP(1))
    with pytest.raises(PrivacyError, match="is not charged by itself"):
        ledger.debit(ApproxDP(1, "1e-6"), "of any mechanism")
    ledger.debit(ApproxDP(1, "1e-6"), "gaussian", gaussian=True)
    assert 0 <= ledger.spent - ApproxDP(1, "1e-6").rho < Fraction(1, UNITS)


def forged(spends: object) -> Callable[..., str]:
    write = ledger_module.debit_text
    return lambda *given: write(*given[:3], spends)  # type: ignore[arg-type]


@pytest.mark.parametrize(("spends", "message"), [(Fraction(3), "more than its amount"), ("rho", "which no μ bounds")])
def test_a_forged_kind_of_debit_is_refused(
    spends: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path, GaussianDP(9))
    monkeypatch.setattr(ledger_module, "debit_text", forged(spends))
    with pytest.raises(LedgerError, match=message):
        ledger.debit(PureDP(2), "forged")


def test_a_debit_by_another_bound_on_mu_is_read_if_it_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers outlive versions: a μ² that a better or worse search found pays, as long as it is enough."""
    ledger, least = opened(tmp_path, GaussianDP(9)), mu_of_pure_up(Fraction(1))
    with monkeypatch.context() as patch:
        patch.setattr("hdmm.privacy.spending.mu_of_pure_up", lambda _: least * Fraction(11, 10))
        ledger.debit(PureDP(1), "by a worse search")
    assert Ledger(ledger.path, dataset="people").spent > least**2 * Fraction(12, 10)
    monkeypatch.setattr("hdmm.privacy.spending.mu_of_pure_up", lambda _: least * Fraction(9, 10))
    with pytest.raises(LedgerError, match="more than its amount"):
        ledger.debit(PureDP(1), "by a wrong one")


# What is shown of all parts together


@examples(40)
@given(
    *(st.sampled_from([Fraction(0), Fraction(1, 1000), Fraction(1, 10), Fraction(2)]) for _ in range(2)),
    st.lists(st.sampled_from([Fraction(1, 100), Fraction(1, 2), Fraction(6)]), max_size=3),
)
def test_all_parts_together_have_the_least_of_three_true_ways(
    gaussian: Fraction, zcdp: Fraction, pure: list[Fraction]
) -> None:
    spent = sum(map(Spending.of_pure, pure), start=Spending(gaussian=gaussian, zcdp=zcdp))
    rest, rho = gaussian + zcdp, gaussian + zcdp + sum(e**2 / 2 for e in pure)
    mus = sum((mu_of_pure_up(e) ** 2 for e in pure), start=Fraction(0))
    apart = 0 if not rest else gdp.epsilon_up(rest, DELTA) if zcdp else gaussian_epsilon_up(gaussian, DELTA)
    ways = [sum(pure) + apart, *([gdp.epsilon_up(rho, DELTA)] if rho else [])]
    if not zcdp and gaussian + mus:
        ways.append(gaussian_epsilon_up(gaussian + mus / 2, DELTA))
    assert spent.epsilon_at(DELTA) == min(ways)


def test_a_little_pure_epsilon_beside_much_gaussian_noise_counts_by_its_mu() -> None:
    both = Spending(gaussian=Fraction(1, 2)) + Spending.of_pure(Fraction(1, 10))
    assert both.epsilon_at(DELTA) == gaussian_epsilon_up((1 + mu_of_pure_up(Fraction(1, 10)) ** 2) / 2, DELTA)
    alone = gaussian_epsilon_up(Fraction(1, 2), DELTA)
    assert alone < both.epsilon_at(DELTA) < alone + Fraction(6, 100)
    assert replace(both, zcdp=Fraction(1, 10**9)).epsilon_at(DELTA) > both.epsilon_at(DELTA)


def test_hdmm_budget_shows_squares_and_what_they_guarantee(tmp_path: Path) -> None:
    ledger = opened(tmp_path, GaussianDP(1))
    ledger.debit(GaussianDP("0.5"), "gaussian")
    (found,) = budgets_in(ledger.path)
    assert "μ² = 0.75 left of μ² = 1; μ² = 0.25 spent." in found.summary
    assert "All debits together have ε = " in found.summary
    assert "The cap has ε = " in found.summary


@pytest.mark.parametrize("square", [Fraction(1, 4), Fraction(1, 9), Fraction(2, 100), Fraction(1, UNITS)])
def test_the_root_of_a_cap_is_exact_or_rounded_down(square: Fraction) -> None:
    found = of_units("mu_squared", int(square * UNITS))
    assert isinstance(found, GaussianDP)
    assert found.mu**2 <= square < (found.mu + Fraction(1, 10**40)) ** 2
    assert (found.mu**2 == square) == (square in (Fraction(1, 4), Fraction(1, 9)))


def test_what_a_debit_of_a_pure_release_was_charged_is_what_it_spends() -> None:
    """Another version may have charged more than the least μ² of this one, and less is refused."""
    units, text = charge(PureDP(2), "mu_squared"), debit_text("tables", None, None, Fraction(2))
    for more in (0, 7):
        record = chained(Verified(), Draft("debit", text, "now", "people", "mu_squared", units + more))
        assert spent_by(record).pure_mu_squared == Fraction(units + more, UNITS)
        assert spent_by(record).pure == 2
    with pytest.raises(Broken, match="spends more than its amount"):
        spent_by(chained(Verified(), Draft("debit", text, "now", "people", "mu_squared", units // 2)))
