"""The exponential mechanism, exact: an index drawn with probability ∝ e^(score/scale), in a fixed number of steps.

Let aᵢ = (largest score − scoreᵢ)/scale be the gaps, Cᵢ = e^(−a₀) + … + e^(−aᵢ), and S the last Cᵢ. For a uniform U, the
choice is the number of Cᵢ that are at most U·S, which is i with probability e^(−aᵢ)/S. U is known to B binary places,
and every e^(−aᵢ) lies between two multiples of 2⁻ᴮ that are at most 2·2⁻ᴮ apart (probability.py), so that U·S and the
Cᵢ also lie between exact bounds. If these bounds determine the choice, it is returned; if not, more places are drawn
and computed. Nothing is approximated: the probabilities are exactly those above.

With K scores, U·S is within 2⁻ᴮ·(S + 2K) of its bounds and Cᵢ within 2⁻ᴮ·2K, and S ≥ 1 because the largest score's term
is 1. So the bounds leave the choice open with probability below 2⁻ᴮ·5K², which is below 2⁻¹⁴⁹ for B = 192 and a million
scores. Each further draw of places is as unlikely to leave it open, so that drawing ends with probability 1. Apart
from that, every choice among K scores draws the same number of bits, computes the same number of exponentials and
makes the same number of comparisons, whatever the scores (security N9).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np

from hdmm.base.exceptions import NoiseError
from hdmm.noise.bits import Bits, drawn
from hdmm.noise.parameters import exact_scale
from hdmm.noise.probability import WORD, Exponential

_WORDS = 3  # words of U that are drawn at a time


def exponential_choice(scores: Sequence[Fraction | int], scale: Fraction | int) -> int:
    """i with probability e^(scores[i]/scale) / Σ_j e^(scores[j]/scale), exactly, from OS entropy. O(scores).

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
    """i with probability ∝ e^(−gaps[i]), from the given bits; the least gap must be 0."""
    uniform, places = 0, 0
    while True:
        for _ in range(_WORDS):
            uniform = uniform << WORD | bits.word()
        places += _WORDS * WORD
        least, most = _reached(gaps, uniform, places)
        if least == most:
            return least


def _reached(gaps: Sequence[Fraction], uniform: int, places: int) -> tuple[int, int]:
    """The numbers of Cᵢ that are certainly and possibly at most U·S, if 2ᵖˡᵃᶜᵉˢ·U is in [uniform, uniform + 1).

    The last Cᵢ is S itself, which U·S never reaches.
    """
    lows, highs = zip(*(Exponential(gap).around(places) for gap in gaps), strict=True)
    first, last = uniform * sum(lows), (uniform + 1) * sum(highs)
    certainly = sum(c << places <= first for c in accumulate(highs[:-1]))
    possibly = sum(c << places < last for c in accumulate(lows[:-1]))
    return certainly, possibly
