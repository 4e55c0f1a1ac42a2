"""The exponential mechanism, exact: an index drawn with probability ∝ e^(score/scale).

An index drawn uniformly is kept with probability e^(−a), a = (largest score − its score)/scale, and drawn again where
it is not: what is kept has the distribution above, exactly, for the coin is exact (probability.py). With K scores
it takes K rounds at most, on average; how many, and so how long, depends on the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hdmm.exceptions import NoiseError
from hdmm.noise.bits import Bits, drawn
from hdmm.noise.parameters import exact_scale
from hdmm.noise.probability import WORD, Exponential, below


def exponential_choice(scores: Sequence[Fraction | int], scale: Fraction | int) -> int:
    """i with probability e^(scores[i]/scale) / Σ_j e^(scores[j]/scale), exactly, from OS entropy.

    With scores of sensitivity Δ, a scale of 2Δ/ε makes the choice ε-differentially private.

    >>> exponential_choice([0, 10**6, 3], 1)
    1
    """
    if not scores:
        raise NoiseError("There is nothing to choose from. Give at least one score.")
    top, scale = max(scores), exact_scale(scale)
    gaps = [Fraction(top - score) / scale for score in scores]
    return int(drawn(lambda bits: np.array([chosen(bits, gaps)]))[0])


def chosen(bits: Bits, gaps: Sequence[Fraction]) -> int:
    """i with probability ∝ e^(−gaps[i]), the least gap being 0, from the bits given."""
    while True:
        i = _uniform(bits, len(gaps))
        if gaps[i] == 0 or below(bits, Exponential(gaps[i])):
            return i


def _uniform(bits: Bits, count: int) -> int:
    """A number below `count`, all equally likely: words beyond the last whole round of it are not used."""
    while True:
        word = bits.word()
        if word < 2**WORD - 2**WORD % count:
            return word % count
