"""What Gaussian noise guarantees exactly: μ-Gaussian differential privacy as (ε, δ), rounded to the safe side (S4).

Adding N(0, σ²) to answers of sensitivity Δ is as hard to see through as to distinguish N(0, 1) from N(μ, 1), μ = Δ/σ
(Dong, Roth and Su 2022), and (ε, δ)-differentially private for exactly the pairs with (Balle and Wang 2018, Theorem 8)

    δ ≥ δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ).

Blocks with μ_j are together one with μ² = Σ_j μ_j², for the most of Σ_j ‖Δ_j‖²/σ_j² over neighbours; k steps to a
neighbour make it kμ; and ρ = μ²/2 is the ρ of its zero-concentrated differential privacy. Whatever is computed from
the result, such as its rounding to integers, has no less privacy.

Releases may follow each other, each with a μ that depends on what those before it showed, as long as Σμ² stays below a
bound that was fixed before: all together then have that bound as their μ² (Smith and Thakurta 2022, "Fully adaptive
composition for Gaussian differential privacy", Theorem 1). The same holds for ρ-zCDP and Σρ (Feldman and Zrnic 2021).

Releases of pure ε_i, Σε_i ≤ E, may come between them. Let P be what all give on a table and Q on its neighbour, and let
R be what they give if the pure ones read the first table and the others its neighbour. P and R differ by the Gaussian
releases alone, among which the pure ones are steps of the analyst, so that P(S) ≤ e^(ε−E)·R(S) + δ(ε − E); and
R(S) ≤ e^E·Q(S), because the factors of the likelihood ratio multiply. Hence P(S) ≤ e^ε·Q(S) + δ(ε − E).

ε-differential privacy is μ-Gaussian, too, with a μ² that is at most π/2 times 2ρ = ε². If one table is distinguished
from its neighbour with errors α of the first type, those of the second are at least max(0, 1 − e^ε·α, e^−ε·(1 − α)) =:
f(α), or for μ at least G(α) = Φ(Φ⁻¹(1 − α) − μ) (Dong, Roth and Su 2022). f consists of the lines from (0, 1) to (c, c)
and from there to (1, 0), with c = 1/(1 + e^ε). G is convex and decreases from 1 to 0, and G(Φ(−μ/2)) = Φ(−μ/2). If
Φ(−μ/2) ≤ c, then G(c) ≤ c: G is not above f at these three points and, being convex, nowhere between them. So pure
releases may be among those whose μ² are added. As Φ(−x) ≤ e^(−x²/2)/2 and c ≥ e^−ε/2, μ² = 8ε is always enough.

δ(ε) is computed with MPFR, every step rounded in one direction, with more bits until it is above δ or not; where the
formula would overflow (ε above 2²⁰), the conversion of ρ-zCDP (conversion.py) is used, which is true and costs more.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from hdmm.base.rounding import BigFloat, Context, Direction, fraction, number, rounding
from hdmm.privacy.conversion import epsilon_up, rho_down

_PRECISIONS = (128, 256, 512, 1024, 2048, 4096)  # bits; δ from 2⁻⁵⁰⁰ to 1 − 2⁻⁵⁰⁰ and ε from 2⁻⁵⁰⁰
_LARGEST_EPSILON = 2**20  # e^ε stays within MPFR's exponents
_STEPS = 64  # bits of what is searched for
_PURE_STEPS = 32  # of the μ of a pure ε; a ledger may hold thousands


@lru_cache(maxsize=1024)
def mu_down(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ, rounded down, such that μ-GDP implies (ε, δ), for ε > 0 and 0 < δ < 1.

    >>> float(mu_down(Fraction(1), Fraction(1, 10**6)))
    0.2367043...
    """
    known = root(2 * rho_down(epsilon, delta), "down")
    unit = known / 2**_STEPS
    most = 2 ** (_STEPS + 1)
    while is_private(epsilon, delta, most * unit):
        most *= 2
    return unit * _largest(2**_STEPS, most, lambda n: is_private(epsilon, delta, n * unit))


@lru_cache(maxsize=1024)
def gaussian_epsilon_up(rho: Fraction, delta: Fraction) -> Fraction:
    """The least ε, rounded up, such that Gaussian noise of this ρ = μ²/2 is (ε, δ)-differentially private.

    >>> float(gaussian_epsilon_up(Fraction(1, 2), Fraction(1, 10**6)))
    4.88655411...
    """
    known, mu = epsilon_up(rho, delta), root(2 * rho, "up")
    unit = known / 2**_STEPS
    return known - unit * _largest(0, 2**_STEPS + 1, lambda n: is_private(known - n * unit, delta, mu))


@lru_cache(maxsize=4096)
def mu_of_pure_up(epsilon: Fraction) -> Fraction:
    """The least μ, rounded up, such that ε-differential privacy implies μ-GDP.

    >>> float(mu_of_pure_up(Fraction(1)))
    1.23203538...
    """
    known, near = root(8 * epsilon, "up"), 2 * epsilon
    most = near if near < known and pure_is_gaussian(epsilon, near) else known
    unit = most / 2**_PURE_STEPS
    return most - unit * _largest(0, 2**_PURE_STEPS, lambda n: pure_is_gaussian(epsilon, most - n * unit))


def pure_is_gaussian(epsilon: Fraction, mu: Fraction) -> bool:
    """Whether Φ(−μ/2) ≤ 1/(1 + e^ε), by bounds, so that ε-DP implies μ-GDP; False also if that is not known."""
    if mu**2 >= 8 * epsilon:
        return True
    for precision in _PRECISIONS if epsilon <= _LARGEST_EPSILON else ():
        up, down = rounding("up", precision), rounding("down", precision)
        if _error_at(mu, up, down) <= _corner(epsilon, down, up):
            return True
        if _error_at(mu, down, up) > _corner(epsilon, up, down):
            return False
    return False


def _error_at(mu: Fraction, up: Context, down: Context) -> BigFloat:
    """Φ(−μ/2), rounded in the direction of `up`: both error types of the best test that has them equal."""
    return _normal(number(-mu / 2, up), up, down)


def _corner(epsilon: Fraction, up: Context, down: Context) -> BigFloat:
    """1/(1 + e^ε), rounded in the direction of `up`: the same for pure differential privacy."""
    return up.div(1, down.add(1, down.exp(number(epsilon, down))))


def is_private(epsilon: Fraction, delta: Fraction, mu: Fraction) -> bool:
    """Whether δ(ε) ≤ δ for this μ, by bounds; False also if that is not known."""
    if epsilon > _LARGEST_EPSILON:
        return False
    for precision in _PRECISIONS:
        up, down = rounding("up", precision), rounding("down", precision)
        if delta_of(epsilon, mu, up, down) <= number(delta, down):
            return True
        if delta_of(epsilon, mu, down, up) > number(delta, up):
            return False
    return False


def delta_of(epsilon: Fraction, mu: Fraction, up: Context, down: Context) -> BigFloat:
    """δ(ε), rounded in the direction of `up`; with the contexts exchanged, in that of `down`."""
    near = up.sub(number(mu / 2, up), down.div(number(epsilon, down), number(mu, up)))
    far = down.sub(number(-mu / 2, down), up.div(number(epsilon, up), number(mu, down)))
    return up.sub(_normal(near, up, down), down.mul(down.exp(number(epsilon, down)), _normal(far, down, up)))


def _normal(x: BigFloat, up: Context, down: Context) -> BigFloat:
    """Φ(x) = erfc(−x/√2)/2, rounded in the direction of `up`. erfc decreases, so that its argument is rounded down."""
    root = (down if x > 0 else up).sqrt(number(2, up))
    return up.mul_2exp(up.erfc(down.sub(0, up.div(x, root))), -1)


def root(square: Fraction, way: Direction, bits: int = _STEPS) -> Fraction:
    """√square; if it is not a fraction, rounded to so many bits.

    >>> root(Fraction(1, 9), "up"), float(root(Fraction(2), "down"))
    (Fraction(1, 3), 1.414213...)
    """
    exact = Fraction(isqrt(square.numerator), isqrt(square.denominator))
    if exact**2 == square:
        return exact
    context = rounding(way, bits)
    return fraction(context.sqrt(number(square, context)))


def _largest(low: int, high: int, true: Callable[[int], bool]) -> int:
    """The largest integer from `low` to `high` − 1 for which it holds, as it does for `low` and none after a first."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if true(middle) else (low, middle)
    return low
