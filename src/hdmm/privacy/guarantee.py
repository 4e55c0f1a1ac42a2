"""How much privacy a release spends: PureDP (ε), ZCDP (ρ), GaussianDP (μ) and ApproxDP (ε, δ), as exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Literal, TypeAlias, final

from hdmm.base.exceptions import PrivacyError, StrategyError
from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.exact_number import (
    MOST_EXPONENT,
    Exact,
    as_given,
    exact_delta,
    exact_number,
    expression,
    format_amount,
)
from hdmm.privacy.gdp import gaussian_epsilon_up, mu_down

Privacy: TypeAlias = "PureDP | ZCDP | GaussianDP | ApproxDP"


class Noise(StrEnum):
    """The two noise distributions; each compares equal to its name.

    Sensitivity is the largest column norm of this `order`, and the losses of several measurements add up as |θ|ᵒʳᵈᵉʳ.

    >>> Noise.of("gaussian").order, Noise.LAPLACE == "laplace"
    (2, True)
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"

    @classmethod
    def of(cls, given: str) -> Noise:
        """The noise of this name; StrategyError if the name is unknown."""
        if given not in tuple(cls):
            raise StrategyError(f"The noise {as_given(given)} is unknown. Use noise='laplace' or noise='gaussian'.")
        return cls(given)

    @property
    def order(self) -> Literal[1, 2]:
        """The order of the norm in which sensitivity is measured: 1 for L1, 2 for L2."""
        return 1 if self is Noise.LAPLACE else 2

    @property
    def convex(self) -> bool:
        """Whether selection is convex in the squared weights and grams, so that one descent finds the optimum."""
        return self is Noise.GAUSSIAN

    def norm(self, weights: Iterable[float]) -> float:
        """The norm of the weights of blocks: the sensitivity of their stack if every block has sensitivity 1.

        >>> Noise.LAPLACE.norm([3.0, 4.0]), Noise.GAUSSIAN.norm([3.0, 4.0])
        (7.0, 5.0)
        """
        total = math.fsum(abs(w) ** self.order for w in weights)
        return total if self.order == 1 else math.sqrt(total)

    def __repr__(self) -> str:
        return repr(self.value)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PureDP:
    """ε-differential privacy.

    >>> PureDP("0.5").epsilon, PureDP(0.1).epsilon
    (Fraction(1, 2), Fraction(1, 10))
    >>> PureDP("1/3"), str(PureDP(2))
    (PureDP('1/3'), 'ε = 2 (pure differential privacy)')
    """

    epsilon: Fraction

    def __init__(self, epsilon: Exact) -> None:
        object.__setattr__(self, "epsilon", exact_number(epsilon, "epsilon", "'0.5'"))

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> PureDP(1).noise
        'laplace'
        """
        return Noise.LAPLACE

    @property
    def variance_factor(self) -> Fraction:
        """2/ε²: the variance of Laplace noise at sensitivity 1, what plan.error is multiplied by.

        >>> PureDP("0.5").variance_factor
        Fraction(8, 1)
        """
        return 2 / self.epsilon**2

    def __repr__(self) -> str:
        return f"PureDP({expression(self.epsilon)})"

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)} (pure differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ZCDP:
    """ρ-zero-concentrated differential privacy.

    >>> ZCDP("0.125").rho, ZCDP(1e-3)
    (Fraction(1, 8), ZCDP('0.001'))
    >>> str(ZCDP("0.5"))
    'ρ = 0.5 (zero-concentrated differential privacy)'
    """

    rho: Fraction

    def __init__(self, rho: Exact) -> None:
        object.__setattr__(self, "rho", exact_number(rho, "rho", "'0.5'"))

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> ZCDP(1).noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/(2ρ): the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> ZCDP("0.125").variance_factor
        Fraction(4, 1)
        """
        return 1 / (2 * self.rho)

    def epsilon_at(self, delta: Exact) -> Fraction:
        """An ε, rounded up, such that ρ-zCDP implies (ε, δ)-differential privacy (conversion.py).

        >>> float(ZCDP("0.5").epsilon_at("1e-6"))
        5.22153444...
        """
        return epsilon_up(self.rho, exact_delta(delta))

    def __repr__(self) -> str:
        return f"ZCDP({expression(self.rho)})"

    def __str__(self) -> str:
        return f"ρ = {format_amount(self.rho)} (zero-concentrated differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class GaussianDP:
    """μ-Gaussian differential privacy: no more is revealed than by one draw from N(0, 1) or N(μ, 1).

    Gaussian noise has it exactly: each release with that noise is stated by its μ without loss.

    >>> GaussianDP("0.5").mu, GaussianDP("0.5").rho
    (Fraction(1, 2), Fraction(1, 8))
    >>> str(GaussianDP("0.5"))
    'μ = 0.5 (Gaussian differential privacy)'
    """

    mu: Fraction

    def __init__(self, mu: Exact) -> None:
        object.__setattr__(self, "mu", exact_number(mu, "mu", "'0.5'", power=2))

    @property
    def rho(self) -> Fraction:
        """μ²/2, the ρ of its zero-concentrated differential privacy.

        >>> GaussianDP(1).rho
        Fraction(1, 2)
        """
        return self.mu**2 / 2

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> GaussianDP(1).noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/μ²: the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> GaussianDP("0.5").variance_factor
        Fraction(4, 1)
        """
        return 1 / self.mu**2

    def epsilon_at(self, delta: Exact) -> Fraction:
        """The least ε, rounded up, such that μ-GDP implies (ε, δ)-differential privacy (gdp.py). It may be 0.

        >>> float(GaussianDP(1).epsilon_at("1e-6"))
        4.88655411...
        """
        return gaussian_epsilon_up(self.rho, exact_delta(delta))

    def __repr__(self) -> str:
        return f"GaussianDP({expression(self.mu)})"

    def __str__(self) -> str:
        return f"μ = {format_amount(self.mu)} (Gaussian differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ApproxDP:
    """(ε, δ)-differential privacy, reached by the least Gaussian noise that has it.

    >>> ApproxDP("0.5", "1e-9")
    ApproxDP('0.5', delta='0.000000001')
    >>> str(ApproxDP(1, delta="1e-6"))
    'ε = 1, δ = 0.000001 (approximate differential privacy)'
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Exact, delta: Exact) -> None:
        object.__setattr__(self, "epsilon", exact_number(epsilon, "epsilon", "'0.5'"))
        object.__setattr__(self, "delta", exact_delta(delta))
        if self.rho < Fraction(1, 2**MOST_EXPONENT):
            raise PrivacyError(
                f"epsilon is {as_given(epsilon)} and delta is {as_given(delta)}, which only a rho below 2**-500 "
                "implies. Give a larger epsilon, such as ApproxDP('0.5', '1e-9')."
            )

    @property
    def rho(self) -> Fraction:
        """μ²/2 for the largest μ, rounded down, with which Gaussian noise is (ε, δ)-differentially private (gdp.py).

        >>> float(ApproxDP(1, delta="1e-6").rho)
        0.0280144819...
        """
        return mu_down(self.epsilon, self.delta) ** 2 / 2

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> ApproxDP(1, delta="1e-6").noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/(2ρ): the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> float(ApproxDP(1, delta="1e-6").variance_factor)
        17.8479117...
        """
        return 1 / (2 * self.rho)

    def __repr__(self) -> str:
        return f"ApproxDP({expression(self.epsilon)}, delta={expression(self.delta)})"

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)}, δ = {format_amount(self.delta)} (approximate differential privacy)"


def guarantee(
    epsilon: Exact | None = None, delta: Exact | None = None, rho: Exact | None = None, mu: Exact | None = None
) -> Privacy:
    """What these parameters declare: pure, approximate, zero-concentrated or Gaussian differential privacy.

    >>> guarantee("0.5"), guarantee(rho="0.1"), guarantee(mu="0.5")
    (PureDP('0.5'), ZCDP('0.1'), GaussianDP('0.5'))
    """
    if (epsilon, rho, mu).count(None) == 2 and (delta is None or epsilon is not None):
        if epsilon is not None:
            return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)
        if rho is not None:
            return ZCDP(rho)
        if mu is not None:
            return GaussianDP(mu)
    raise PrivacyError("Give epsilon, or epsilon and delta, or rho, or mu.")


def scaled(privacy: Privacy, times: Fraction) -> Privacy:
    """The privacy with `times` its ε, ρ or μ; δ stays.

    >>> scaled(PureDP("0.5"), Fraction(4))
    PureDP('2')
    """
    match privacy:
        case PureDP():
            return PureDP(privacy.epsilon * times)
        case ZCDP():
            return ZCDP(privacy.rho * times)
        case GaussianDP():
            return GaussianDP(privacy.mu * times)
        case ApproxDP():
            return ApproxDP(privacy.epsilon * times, privacy.delta)


def error_factor(privacy: Privacy, other: Privacy) -> float:
    """The factor by which the error at one privacy changes at another.

    >>> error_factor(PureDP(1), PureDP(2))
    0.5
    """
    return math.sqrt(other.variance_factor / privacy.variance_factor)


def parameter(privacy: Privacy) -> tuple[str, float]:
    """The symbol of what may be scaled, as an axis names it, and its value.

    >>> parameter(ApproxDP(1, "1e-6"))
    ('ε (at δ = 0.000001)', 1.0)
    """
    match privacy:
        case PureDP():
            return "ε", float(privacy.epsilon)
        case ZCDP():
            return "ρ", float(privacy.rho)
        case GaussianDP():
            return "μ", float(privacy.mu)
        case ApproxDP():
            return f"ε (at δ = {format_amount(privacy.delta)})", float(privacy.epsilon)


def short_name(privacy: Privacy) -> str:
    """The parameters alone.

    >>> short_name(PureDP("0.5"))
    'ε = 0.5'
    """
    return str(privacy).partition(" (")[0]
