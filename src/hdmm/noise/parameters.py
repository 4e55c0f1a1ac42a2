"""The parameters that the samplers accept, and the largest noise that they return."""

from __future__ import annotations

from fractions import Fraction

from hdmm.base.exceptions import NoiseError

LARGEST_SCALE = 2**52
"""The largest scale of Laplace noise, and twice the largest standard deviation of Gaussian noise.

Up to these, P(|Z| ≥ 2⁶²) < 2⁻¹⁰⁰⁰.
"""

LARGEST_NOISE = 2**62
"""The value that is returned in place of any noise at least this large.

For Laplace noise, P(|Z| ≥ 2⁶²) ≤ 2·exp(−2⁶²/2⁵²) = 2·e⁻¹⁰²⁴ < 2⁻¹⁰⁰⁰. And no release depends on it: measure adds Z to
an answer of at most 2⁶⁰ in size and clamps the sum to ±2⁶¹; for |Z| ≥ 2⁶² the result is ±2⁶¹ both with Z and with ±2⁶².
"""

_LEAST_PARAMETER = Fraction(1, 2**510)  # its square is a normal float, as gaussian.py needs; ε and ρ are at most 2⁵⁰⁰


def exact_scale(scale: Fraction | int) -> Fraction:
    """The scale of Laplace noise as a fraction; NoiseError if it is not allowed."""
    return _exact(scale, "The scale", Fraction(LARGEST_SCALE), f"2**{LARGEST_SCALE.bit_length() - 1}")


def exact_variance(sigma_squared: Fraction | int) -> Fraction:
    """σ² of Gaussian noise as a fraction; NoiseError if it is not allowed."""
    most = (LARGEST_SCALE // 2) ** 2
    return _exact(sigma_squared, "σ²", Fraction(most), f"2**{most.bit_length() - 1}")


def exact_size(size: int) -> int:
    """The number of draws; NoiseError if it is not allowed."""
    if isinstance(size, bool) or not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoiseError(f"The number of draws is of type {type(size).__name__}. Give an int.")
    if size < 0:
        raise NoiseError(f"The number of draws is {size}. Give a number of at least 0.")
    return size


def _exact(number: Fraction | int, name: str, most: Fraction, most_text: str) -> Fraction:
    advice = "Give an exact number, such as Fraction(37, 10)."
    if isinstance(number, bool) or not isinstance(number, Fraction | int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoiseError(f"{name} of the noise is of type {type(number).__name__}. {advice}")
    if number <= 0:
        raise NoiseError(f"{name} of the noise is not above 0. {advice}")
    if not _LEAST_PARAMETER <= number <= most:
        raise NoiseError(
            f"{name} of the noise must be from 2**-510 to {most_text}. "
            "For less noise, spend more privacy; for smaller numbers, round the strategy to fewer bits."
        )
    return Fraction(number)
