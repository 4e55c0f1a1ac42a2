"""Exact discrete Laplace noise that can be computed again: draw i of a stream under a key is always the same number.

A worker that runs a task twice, or a GPU whose threads draw in any order, must give the numbers that one processor
would give. So every draw has blocks of ChaCha20 of its own (chacha.py), and is made of them as laplace.py makes its
draws of a sequence of bits, with 11 digits tossed for every draw where that file tosses 13:

    lane 0, words 0 … 13    the first 32 binary digits of U for the 14 coins: 11 digits, H′ > 0, H > 0, the sign
    lane 0, words 14, 15    64 fair digits; the m lowest are the number to accept or to replace
    lanes 1 to 8            32 digits of U for the m coins of D′, then for the m coins of the number in its place
    lanes from 2³¹ on       in sequence, what decides coins that tie on 32 digits, in that order, and then H

Of the last two hardly any draw needs any: 1 in 23 has H′ = 0 at most, and 1 in 2²⁸ a tie. Such ties are decided one
draw at a time, to the end, by Python's integers (`exact_draw`). H > 0 has a probability below 2⁻⁶⁴, so that it begins
with a tie. All of this is integer arithmetic, and each draw has exactly the distribution that laplace.py derives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hdmm.base.mixing import Words
from hdmm.noise.bits import IntegerArray
from hdmm.noise.chacha import BLOCK, HalfWords, Lanes, Stream
from hdmm.noise.parameters import LARGEST_NOISE
from hdmm.noise.probability import Exponential, Logistic, Probability, Uniform

DIGITS = 11  # tossed for every draw
BEYOND, TAIL, SIGN = 11, 12, 13  # the coins after them
HIGH = 14  # all coins that are tossed for every draw
_PLACES = 32  # binary digits that are compared first
_EXACT_LANE = 2**31
_CERTAIN = Fraction(89, 2)  # > 64·ln 2 = 44.36…
_BATCH = 16384  # draws at a time: their blocks take 1 MiB


@dataclass(frozen=True, slots=True, eq=False)
class NumberedCoins:
    """The coins of the m lowest digits and the 14 of every draw, with the first 32 digits of their probabilities."""

    low: tuple[Probability, ...]
    high: tuple[Probability, ...]
    low_first: HalfWords
    high_first: HalfWords

    @property
    def digits(self) -> int:
        """K, the number of digits; H has the weight 2ᴷ."""
        return len(self.low) + DIGITS


@lru_cache(maxsize=1024)
def numbered_coins(scale: Fraction) -> NumberedCoins:
    """The coins of a draw with q = e^(−1/s), by O(log s) exponentials."""
    m = 0
    while 2 ** (m + DIGITS) / scale <= _CERTAIN:
        m += 1
    digits = [Logistic(2**k / scale) for k in range(m + DIGITS)]
    rest = Exponential(2**m / scale), Exponential(2 ** (m + DIGITS) / scale), Logistic(1 / scale)
    low, high = tuple(digits[:m]), (*digits[m:], *rest)
    return NumberedCoins(low, high, _first(low), _first(high))


def numbered_laplace(stream: Stream, coins: NumberedCoins, start: int, size: int) -> IntegerArray:
    """Draws start … start + size − 1 of the stream. Any part of it is the same whenever it is asked for.

    >>> coins, stream = numbered_coins(Fraction(37, 10)), Stream(bytes(32), 0)
    >>> bool((numbered_laplace(stream, coins, 5, 3) == numbered_laplace(stream, coins, 0, 8)[5:]).all())
    True
    """
    noise = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        count = min(_BATCH, size - done, 2**32 - (start + done) % 2**32)
        noise[done : done + count] = _draws(stream, coins, start + done, count)
        done += count
    return noise


def exact_draw(stream: Stream, coins: NumberedCoins, number: int) -> int:
    """One draw by Python's integers, with all ties decided; beyond ±LARGEST_NOISE it is that (parameters.py)."""
    at = np.array([number], dtype=np.uint64)
    words = stream.blocks(at, 0)[0]
    more = Lanes(stream, number, _EXACT_LANE)

    def tossed(probabilities: Sequence[Probability], uniform: HalfWords) -> list[bool]:
        pairs = zip(probabilities, uniform.tolist(), strict=True)
        return [Uniform(more, u, _PLACES).below(p) for p, u in pairs]

    m = len(coins.low)
    heads = tossed(coins.high, words[:HIGH])
    D = int(_fair(words[None], m)[0])
    if m and not heads[BEYOND]:
        further = _further(stream, at, m)[0]
        reached, other = _number(tossed(coins.low, further[:m])), _number(tossed(coins.low, further[m:]))
        D = D if reached >= D else other
    G = _number(heads[:DIGITS]) << m | D
    if heads[TAIL]:
        G += 1 << coins.digits
        while Uniform(more).below(coins.high[TAIL]):
            G += 1 << coins.digits
    return max(-LARGEST_NOISE, -1 - G) if heads[SIGN] else min(LARGEST_NOISE, G)


def _draws(stream: Stream, coins: NumberedCoins, start: int, count: int) -> IntegerArray:
    words = stream.run(start, count)
    m = len(coins.low)
    heads = words[:, :HIGH] < coins.high_first
    ties = set(np.flatnonzero((words[:, :HIGH] == coins.high_first).any(axis=1)).tolist())
    D = _fair(words, m)
    unsure = np.flatnonzero(~heads[:, BEYOND]) if m else np.empty(0, dtype=np.intp)
    if unsure.size:
        further = _further(stream, np.uint64(start) + unsure.astype(np.uint64), m).reshape(-1, 2, m)
        reached, other = _packed(further < coins.low_first).T
        ties.update(unsure[(further == coins.low_first).any(axis=(1, 2))].tolist())
        D[unsure] = np.where(D[unsure] <= reached, D[unsure], other)
    noise = (_packed(heads[:, :DIGITS]) << np.uint64(m) | D).view(np.int64)
    noise ^= -heads[:, SIGN].astype(np.int64)  # −1 ^ G is −1 − G
    for i in ties:
        noise[i] = exact_draw(stream, coins, start + i)
    return noise


def _fair(words: HalfWords, m: int) -> Words:
    """The m lowest of the 64 fair digits at the end of a draw's first block."""
    pairs = words[:, HIGH:].astype(np.uint64)
    return (pairs[:, 0] | pairs[:, 1] << np.uint64(32)) & np.uint64(2**m - 1)


def _further(stream: Stream, numbers: Words, m: int) -> HalfWords:
    """The 2m words of the coins of the lowest digits, of the lanes from 1 on."""
    lanes = [stream.blocks(numbers, lane) for lane in range(1, 1 - (-2 * m // BLOCK))]
    return np.concatenate(lanes, axis=1)[:, : 2 * m]


def _packed(heads: NDArray[np.bool]) -> Words:
    """Σ_k heads[…, k]·2ᵏ."""
    weights = np.uint64(1) << np.arange(heads.shape[-1], dtype=np.uint64)
    return (heads * weights).sum(axis=-1, dtype=np.uint64)


def _number(heads: Sequence[bool]) -> int:
    return sum(1 << k for k, head in enumerate(heads) if head)


def _first(probabilities: Sequence[Probability]) -> HalfWords:
    first = np.array([p.digits(_PLACES) for p in probabilities], dtype=np.uint32)
    first.flags.writeable = False
    return first
