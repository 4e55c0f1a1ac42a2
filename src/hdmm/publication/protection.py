"""Protection: what a release guarantees, stated in all ways that hold at once, and as the errors of whoever attacks it.

An attacker who knows all rows but those of one unit of privacy, and the release, guesses whether these are there. The
numbers here are for readers, and nothing is decided by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING
from fractions import Fraction
from typing import Final, final

from scipy.special import log_ndtr, ndtr, ndtri

from hdmm.base.numbers import figure
from hdmm.privacy.gdp import mu_of_pure_up, root
from hdmm.privacy.guarantee import ApproxDP, Privacy, PureDP, short_name
from hdmm.privacy.spending import Spending, least_epsilon

_STEEPEST = 700.0  # ε from which on the trade-off falls to 0 at once: the next would overflow
DELTAS: Final = tuple(Fraction(1, 10**k) for k in (3, 6, 9, 12))
DELTA: Final = Fraction(1, 10**9)
"""The δ at which ε is stated where none is declared."""


@final
@dataclass(frozen=True, slots=True)
class Protection:
    """What a release is known to guarantee: all of it at once, each number rounded up.

    `mu` is None if the release is ρ-zero-concentrated and no more is known; then nothing else is known, either, of how
    often a guess is right. `pairs` are (ε, δ).
    """

    mu: float | None
    rho: float
    pairs: tuple[tuple[float, float], ...]
    guess: float | None
    pure: float | None  # ε

    @classmethod
    def of(cls, privacy: Privacy, *, gaussian: bool) -> Protection:
        """What one release guarantees; `gaussian` says that its noise is known to be Gaussian, rounded."""
        spent = Spending.of(privacy, gaussian=gaussian)
        rho, square = (spent.amount(each) for each in ("rho", "mu_squared"))
        mu = None if square is None else float_up(root(square, "up"))
        pure = float_up(spent.pure) if spent.pure else None
        epsilons = {d: least_epsilon(privacy, d, gaussian=gaussian) for d in (DELTAS if pure is None else ())}
        pairs = tuple((float_up(epsilon), float(delta)) for delta, epsilon in epsilons.items())
        return cls(mu, float_up(rho or Fraction(0)), pairs, None if mu is None else _right(mu), pure)

    def misses(self, false_alarms: float) -> float:
        """The least probability of a miss, of an attack with so many false alarms: the trade-off of both errors.

        >>> [round(Protection.of(PureDP(1), gaussian=False).misses(each), 3) for each in (0.0, 0.1, 0.5, 1.0)]
        [1.0, 0.728, 0.184, 0.0]
        """
        if self.pure is not None:
            return max(
                0.0, 1 - math.exp(min(self.pure, _STEEPEST)) * false_alarms, math.exp(-self.pure) * (1 - false_alarms)
            )
        return 1.0 - false_alarms if self.mu is None else float(ndtr(-ndtri(false_alarms) - self.mu))


def epsilon_at_delta(privacy: Privacy, *, gaussian: bool = True) -> float:
    """The least ε at δ = 10⁻⁹, rounded up; of pure privacy, its own. Releases that are made now have Gaussian noise.

    >>> from hdmm import ZCDP
    >>> round(epsilon_at_delta(ZCDP("0.5")), 3), epsilon_at_delta(PureDP(2))
    (6.174, 2.0)
    """
    return float_up(
        privacy.epsilon if isinstance(privacy, PureDP) else least_epsilon(privacy, DELTA, gaussian=gaussian)
    )


def in_epsilon(privacy: Privacy, *, gaussian: bool = True) -> str:
    """The ε at δ = 10⁻⁹ of a guarantee that does not state one, in words; else nothing.

    >>> from hdmm import ZCDP
    >>> in_epsilon(ZCDP("0.5")), in_epsilon(ZCDP("0.5"), gaussian=False), in_epsilon(PureDP(1))
    ('ε = 6.18 at δ = 10⁻⁹', 'ε = 6.48 at δ = 10⁻⁹', '')
    """
    if isinstance(privacy, PureDP | ApproxDP):
        return ""
    return f"ε = {shown_up(epsilon_at_delta(privacy, gaussian=gaussian))} at δ = 10⁻⁹"


def stated(privacy: Privacy) -> str:
    """The parameters, and what they mean as ε where they do not state it.

    >>> from hdmm import ZCDP
    >>> stated(ZCDP("0.5")), stated(PureDP(1))
    ('ρ = 0.5 (ε = 6.18 at δ = 10⁻⁹)', 'ε = 1')
    """
    meaning = in_epsilon(privacy)
    return f"{short_name(privacy)} ({meaning})" if meaning else short_name(privacy)


def in_full(privacy: Privacy, *, gaussian: bool = True) -> str:
    """The parameters, the kind of guarantee, and what they mean as ε where they do not state it.

    >>> from hdmm import ZCDP
    >>> in_full(ZCDP("0.5"))
    'ρ = 0.5 (zero-concentrated differential privacy; ε = 6.18 at δ = 10⁻⁹)'
    """
    meaning = in_epsilon(privacy, gaussian=gaussian)
    return f"{str(privacy).removesuffix(')')}; {meaning})" if meaning else str(privacy)


def best_guess(privacy: Privacy) -> float:
    """The largest probability with which a guess at even odds is right, of a release with this guarantee.

    >>> from hdmm import GaussianDP
    >>> round(best_guess(PureDP(1)), 3), round(best_guess(GaussianDP("1.2321")), 3)
    (0.731, 0.731)
    """
    return 1 / (1 + math.exp(-privacy.epsilon)) if isinstance(privacy, PureDP) else _right(math.sqrt(2 * privacy.rho))


def as_protective(privacy: Privacy) -> float:
    """The μ at which a guess is right as often as at a pure ε; of Gaussian noise, the pure ε of that kind.

    >>> from hdmm import GaussianDP
    >>> round(as_protective(PureDP(1)), 4), round(as_protective(GaussianDP("1.23203538")), 4)
    (1.232, 1.0)
    """
    if isinstance(privacy, PureDP):
        return float(mu_of_pure_up(privacy.epsilon))
    half = math.sqrt(privacy.rho / 2)
    return float(log_ndtr(half) - log_ndtr(-half)) if half > 1e-6 else 2 * half * math.sqrt(2 / math.pi)


def shown_guess(probability: float) -> str:
    """In percent, rounded up, as a probability that is reached at most and always above 1/2.

    >>> shown_guess(0.7310586), shown_guess(0.5), shown_guess(1.0)
    ('73.2\xa0%', '50.1\xa0%', '100.0\xa0%')
    """
    return f"{min(math.ceil(1000 * probability * (1 + 2.0**-48)) / 10, 100):.1f}\xa0%"


def _right(mu: float) -> float:
    return float(ndtr(mu / 2))


def float_up(exact: Fraction) -> float:
    """The least float whose shortest decimal, by which it is shown and stored, is not below.

    >>> float_up(Fraction(3, 10)), float_up(Fraction(1, 3))
    (0.3, 0.33333333333333337)
    """
    near = float(exact)
    return near if Fraction(repr(near)) >= exact else math.nextafter(near, math.inf)


def shown_up(value: float) -> str:
    """Three significant digits, rounded up."""
    return figure(value, ROUND_CEILING)
