"""Spending: what an account has spent, by the kinds of guarantees, and the least (ε, δ) of all of it together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.gdp import gaussian_epsilon_up


@final
@dataclass(frozen=True, slots=True)
class Spending:
    """Sums over releases, whose budgets may have been chosen one after the other.

    >>> month = Spending(gaussian=Fraction(1, 200))
    >>> float((month + month).epsilon_at(Fraction(1, 10**9)))
    0.76821171...
    """

    gaussian: Fraction = Fraction(0)  # ρ = μ²/2 of exact Gaussian noise
    zcdp: Fraction = Fraction(0)  # ρ of what is known to be ρ-zCDP and no more, as early versions' discrete noise
    pure: Fraction = Fraction(0)  # ε
    pure_rho: Fraction = Fraction(0)  # at least Σε²/2, the ρ of pure releases (Bun and Steinke 2016, Proposition 1.4)

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.gaussian + other.gaussian,
            self.zcdp + other.zcdp,
            self.pure + other.pure,
            self.pure_rho + other.pure_rho,
        )

    def epsilon_at(self, delta: Fraction) -> Fraction:
        """The least ε, rounded up, with which all together are known to be (ε, δ)-differentially private.

        Either everything counts as ρ-zCDP, or the pure ε are added to the ε of the rest (gdp.py has the proof). The
        rest has the ε of Gaussian noise if nothing else is in it.
        """
        rest, together = self.gaussian + self.zcdp, self.gaussian + self.zcdp + self.pure_rho
        if not rest:
            return min(self.pure, epsilon_up(together, delta)) if together else self.pure
        apart = epsilon_up(rest, delta) if self.zcdp else gaussian_epsilon_up(rest, delta)
        return min(self.pure + apart, epsilon_up(together, delta))
