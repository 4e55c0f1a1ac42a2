"""What all debits of an account guarantee together: every kind by the best that can be proved of it (S4)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from hdmm import ZCDP, ApproxDP, Domain, Ledger, LedgerError, PureDP, Strategy, Unit, from_array
from hdmm.base.numbers import up
from hdmm.measure.measure import measure
from hdmm.privacy import ledger as ledger_module
from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.spending import Spending
from hdmm.publication.budget import budgets_in

DELTA = Fraction(1, 10**8)
RHO = Fraction(1, 100)


def opened(path: Path, cap: PureDP | ZCDP = ZCDP(9)) -> Ledger:  # noqa: B008
    return Ledger(path / "budget.db", dataset="people", cap=cap)


def test_twelve_releases_of_gaussian_noise(tmp_path: Path) -> None:
    data, ledger = from_array(Domain({"age": 3}), [5, 6, 7]), opened(tmp_path)
    for _ in range(12):
        measure(Strategy.identity(data.domain), data, ApproxDP("0.3", "1e-9"), ledger=ledger)
    assert float(ledger.epsilon_at("1e-8")) == pytest.approx(1.0138, abs=1e-4)
    assert ledger.epsilon_at(DELTA) == opened(tmp_path).epsilon_at(DELTA) < ZCDP(ledger.spent).epsilon_at(DELTA)


def test_each_kind_counts_by_what_is_known_of_it(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert ledger.epsilon_at(DELTA) == 0
    ledger.debit(PureDP("0.1"), "laplace")
    assert ledger.epsilon_at(DELTA) == Fraction(1, 10)
    ledger.debit(ZCDP(RHO), "gaussian", gaussian=True)
    assert ledger.epsilon_at(DELTA) == Fraction(1, 10) + gaussian_epsilon_up(RHO, DELTA)
    ledger.debit(ZCDP(RHO), "another mechanism")
    both = Fraction(1, 10) + epsilon_up(2 * RHO, DELTA), epsilon_up(2 * RHO + Fraction(1, 200), DELTA)
    assert ledger.epsilon_at(DELTA) == min(both)


def test_many_small_pure_releases_count_by_their_rho(tmp_path: Path) -> None:
    for cap in (PureDP(9), ZCDP(9)):
        (folder := tmp_path / str(cap)[0]).mkdir()
        ledger = opened(folder, cap)
        for _ in range(40):
            ledger.debit(PureDP("0.05"), "laplace")
        rho = 40 * Fraction(1, 800)
        assert abs(ledger.epsilon_at("0.01") - epsilon_up(rho, Fraction(1, 100))) < Fraction(1, 10**30)
        assert ledger.epsilon_at("0.01") < ledger.epsilon_at("1e-12") == 2


def test_what_counts_several_times_does_so_in_every_part(tmp_path: Path) -> None:
    """An account of replaced rows, and debits of rows that are added or removed: twice the ε, four times the ρ."""
    ledger = opened(tmp_path)
    ledger.debit(ZCDP(RHO), "first", unit=Unit(neighbours="replace"), gaussian=True)
    ledger.debit(PureDP("0.1"), "second", unit=Unit())
    ledger.debit(ZCDP(RHO), "third", unit=Unit(), gaussian=True)
    assert ledger.epsilon_at(DELTA) == Fraction(2, 10) + gaussian_epsilon_up(5 * RHO, DELTA)


def test_debits_of_early_versions_count_as_zcdp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Gaussian noise was discrete, and their texts say nothing about the kind."""
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "debit_text", lambda purpose, *_: f"{purpose} [pays for no release]")
        opened(tmp_path).debit(ZCDP(RHO), "of an early version", gaussian=True)
        opened(tmp_path).debit(PureDP("0.1"), "of an early version")
    rho = RHO + Fraction(1, 200)
    assert abs(opened(tmp_path).epsilon_at(DELTA) - epsilon_up(rho, DELTA)) < Fraction(1, 10**30)


def test_an_epsilon_above_the_amount_of_its_debit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, ledger = ledger_module.debit_text, opened(tmp_path)
    monkeypatch.setattr(ledger_module, "debit_text", lambda *given: write(*given[:3], Fraction(3)))
    with pytest.raises(LedgerError, match="spends more than its amount"):
        ledger.debit(PureDP(2), "forged")


def test_the_order_of_parts_does_not_matter() -> None:
    one, other = Spending(gaussian=RHO, pure=Fraction(1)), Spending(zcdp=RHO, pure_rho=Fraction(1, 2))
    assert one + other == other + one == replace(one, zcdp=RHO, pure_rho=Fraction(1, 2))


def test_hdmm_budget_says_what_all_debits_guarantee(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert "together" not in budgets_in(ledger.path)[0].summary
    ledger.debit(ZCDP(RHO), "gaussian", gaussian=True)
    summary = budgets_in(ledger.path)[0].summary
    assert "All debits together have ε = 0.769 at δ = 10⁻⁹." in summary
    cap = up(float(epsilon_up(Fraction(9), Fraction(1, 10**9))), 3)  # its ρ may be of anything
    assert f"The cap has ε = {cap} at δ = 10⁻⁹." in summary
