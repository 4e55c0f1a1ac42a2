"""Spending: what an account has spent, by the kinds of guarantees, and the least (ε, δ) of all of it together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, final

from hdmm.privacy.conversion import epsilon_up, rho_down
from hdmm.privacy.gdp import gaussian_epsilon_up, mu_of_pure_up
from hdmm.privacy.guarantee import ApproxDP, Privacy, PureDP

Parameter: TypeAlias = Literal["epsilon", "rho", "mu_squared"]
"""What an account adds up: ε, or ρ, or μ²."""


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
    pure_mu_squared: Fraction = Fraction(0)  # at least Σμ² of pure releases (gdp.py has the proof)

    @classmethod
    def of(cls, privacy: Privacy, *, gaussian: bool, times: int = 1) -> Spending:
        """What a release spends that is made in so many steps of privacy (hidden.py), which multiply ε and μ.

        `gaussian` says that its ρ is that of exact Gaussian noise; discrete noise was bought for the ρ that implies
        (ε, δ).
        """
        if isinstance(privacy, PureDP):
            return cls.of_pure(privacy.epsilon * times)
        if gaussian:
            return cls(gaussian=privacy.rho * times**2)
        rho = rho_down(privacy.epsilon, privacy.delta) if isinstance(privacy, ApproxDP) else privacy.rho
        return cls(zcdp=rho * times**2)

    @classmethod
    def of_pure(cls, epsilon: Fraction) -> Spending:
        """What a pure release spends, in each of the ways in which it may be counted."""
        return cls(pure=epsilon, pure_rho=epsilon**2 / 2, pure_mu_squared=mu_of_pure_up(epsilon) ** 2)

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.gaussian + other.gaussian,
            self.zcdp + other.zcdp,
            self.pure + other.pure,
            self.pure_rho + other.pure_rho,
            self.pure_mu_squared + other.pure_mu_squared,
        )

    def amount(self, parameter: Parameter) -> Fraction | None:
        """What it is in an account that adds up this parameter; None if the parameter does not bound it."""
        match parameter:
            case "epsilon":
                return None if self.gaussian or self.zcdp else self.pure
            case "rho":
                return self.gaussian + self.zcdp + self.pure_rho
            case "mu_squared":
                return None if self.zcdp else 2 * self.gaussian + self.pure_mu_squared

    def epsilon_at(self, delta: Fraction) -> Fraction:
        """The least ε, rounded up, with which all together are known to be (ε, δ)-differentially private.

        It is the least of three that are all true (gdp.py): everything counts as ρ-zCDP; the pure ε are added to the ε
        of the rest; or everything counts as Gaussian. The rest has the ε of Gaussian noise if nothing else is in it.

        The sums are taken as they are. If budgets were chosen by what earlier releases showed, sums that were bounded
        from the start are what is guaranteed: the cap of an account, and not what happened to be spent of it.
        """
        found = [self.pure] if not self.gaussian and not self.zcdp else []
        if together := self.amount("rho"):
            found.append(epsilon_up(together, delta))
        if self.zcdp:
            found.append(self.pure + epsilon_up(self.gaussian + self.zcdp, delta))
        elif self.gaussian:
            found.append(self.pure + gaussian_epsilon_up(self.gaussian, delta))
        if squares := self.amount("mu_squared"):
            found.append(gaussian_epsilon_up(squares / 2, delta))
        return min(found)


def least_epsilon(privacy: Privacy, delta: Fraction, *, gaussian: bool) -> Fraction:
    """The least ε, rounded up, with which one release has (ε, δ); of a stated (ε, δ), rounding does not exceed its ε.

    >>> 1 - 1e-9 < least_epsilon(ApproxDP(1, "1e-6"), Fraction(1, 10**6), gaussian=True) <= 1
    True
    """
    found = Spending.of(privacy, gaussian=gaussian).epsilon_at(delta)
    return min(found, privacy.epsilon) if isinstance(privacy, ApproxDP) and delta >= privacy.delta else found
