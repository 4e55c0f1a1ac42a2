"""Exact discrete Laplace noise, many draws at a time: P(Z = z) ∝ e^(−|z|/s) on the integers.

Z is the difference of two geometric numbers, P(G = g) = (1 − q)·qᵍ with q = e^(−1/s):

    P(Z = z) = Σ_g P(G = g + |z|)·P(G' = g) = (1 − q)²·q^|z|·Σ_g q^(2g) = (1 − q)/(1 + q)·q^|z|,   0 counted once.

The binary digits of a geometric number are independent, because qᵍ is a product over the digits of g:

    G = Σ_{k<K} b_k·2ᵏ + 2ᴷ·H,   P(b_k = 1) = q^(2ᵏ)/(1 + q^(2ᵏ)) = 1/(1 + e^(2ᵏ/s)),   H geometric with q^(2ᴷ),

and H ≥ j has probability p_H^j with p_H = e^(−2ᴷ/s): H is the number of coins with probability p_H that show heads
before the first one that does not. K affects only the speed; with 2ᴷ/s > 64·ln 2, p_H < 2⁻⁶⁴ and a second coin is
hardly ever tossed.

A coin shows heads if U < p, which is decided by the digits of U and p (probability.py): the first 8 for all coins of a
batch at once, the next 64 for those that tie (1 in 256), and for those that tie again (1 in 2⁷²) one coin at a time, to
the end. All of this is integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hdmm.mixing import Words
from hdmm.noise.bits import Bits, IntegerArray, Octets, drawn
from hdmm.noise.parameters import LARGEST_NOISE, exact_scale, exact_size
from hdmm.noise.probability import WORD, Exponential, Logistic, Probability, below

BATCH = 8192  # draws at a time: at scale 2²¹ their limbs take 448 KiB, which fit into a core's cache
_LIMB_BITS = 8  # bits of the first comparison
_CERTAIN = Fraction(89, 2)  # > 64·ln 2 = 44.36…


@dataclass(frozen=True, slots=True, eq=False)
class Coins:
    """The coins of one geometric number: those of its K digits, lowest first, and that of H.

    Each coin is given with the first 8 and the next 64 binary digits of its probability.
    """

    probabilities: tuple[Probability, ...]
    first: Octets
    second: Words

    @property
    def digits(self) -> int:
        """K, the number of digits; H has the weight 2ᴷ."""
        return len(self.probabilities) - 1


@dataclass(frozen=True, slots=True)
class Draws:
    """Differences of geometric numbers, low + 2ᴷ·tail; a tail that is not listed is 0."""

    low: IntegerArray
    tails: dict[int, int]
    digits: int

    def exact(self, i: int) -> int:
        """Draw i, exact at any size."""
        return int(self.low[i]) + (self.tails.get(i, 0) << self.digits)

    def saturated(self) -> IntegerArray:
        """All draws; those beyond ±LARGEST_NOISE are replaced by it."""
        noise = self.low.copy() if self.tails else self.low
        for i in self.tails:
            noise[i] = max(-LARGEST_NOISE, min(LARGEST_NOISE, self.exact(i)))
        return noise


def discrete_laplace(scale: Fraction | int, size: int) -> IntegerArray:
    """`size` independent draws with P(Z = z) = (e^(1/s) − 1)/(e^(1/s) + 1)·e^(−|z|/s), exactly, from OS entropy.

    The variance is 2·e^(1/s)/(e^(1/s) − 1)², a little below 2s². A draw beyond ±2⁶² is returned as ±2⁶², because no
    release can distinguish the two (parameters.py). O(size·log s).

    >>> noise = discrete_laplace(Fraction(37, 10), 1000)
    >>> noise.dtype, noise.shape
    (dtype('int64'), (1000,))
    """
    coins, size = coins_of(exact_scale(scale)), exact_size(size)
    return drawn(lambda bits: laplace(bits, coins, size))


def laplace(bits: Bits, coins: Coins, size: int) -> IntegerArray:
    """`size` draws, from the given bits."""
    noise = np.empty(size, dtype=np.int64)
    for start in range(0, size, BATCH):
        noise[start : start + BATCH] = differences(bits, coins, min(BATCH, size - start)).saturated()
    return noise


@lru_cache(maxsize=1024)
def coins_of(scale: Fraction) -> Coins:
    """The coins of a geometric number with q = e^(−1/s), by O(log s) exponentials."""
    K = 0
    while 2**K / scale <= _CERTAIN:
        K += 1
    probabilities = (*(Logistic(2**k / scale) for k in range(K)), Exponential(2**K / scale))
    digits = [p.digits(_LIMB_BITS + WORD) for p in probabilities]
    first = np.array([d >> WORD for d in digits], dtype=np.uint8)
    second = np.array([d % 2**WORD for d in digits], dtype=np.uint64)
    first.flags.writeable = second.flags.writeable = False
    return Coins(probabilities, first, second)


def differences(bits: Bits, coins: Coins, count: int) -> Draws:
    """`count` differences, each of two geometric numbers."""
    heads = _tossed(bits, coins, count)
    sides = heads.view(np.int8)
    low = _binary(sides[0, :-1] - sides[1, :-1])
    tails: dict[int, int] = {}
    for side, i in _each(heads[:, -1]):
        tails[i] = tails.get(i, 0) + (-1 if side else 1) * _run(bits, coins.probabilities[-1])
    return Draws(low, tails, coins.digits)


def _tossed(bits: Bits, coins: Coins, count: int) -> NDArray[np.bool]:
    """The results of tossing every coin 2·count times: heads[side, coin, i]."""
    shape = (2, len(coins.first), count)
    limbs = bits.octets(2 * len(coins.first) * count).reshape(shape)
    first = coins.first[:, None]
    heads = (limbs < first).reshape(-1)
    ties = np.flatnonzero(limbs == first)
    heads[ties] = _tied(bits, coins, ties // count % len(coins.first))
    return heads.reshape(shape)


def _tied(bits: Bits, coins: Coins, which: NDArray[np.intp]) -> NDArray[np.bool]:
    """The results of the coins whose uniform number begins with the first digits of their probability."""
    words, second = bits.words(len(which)), coins.second[which]
    heads = words < second
    for i in np.flatnonzero(words == second):
        probability = coins.probabilities[which[i]]
        known = _LIMB_BITS + WORD
        heads[i] = below(bits, probability, uniform=probability.digits(known), places=known)
    return heads


def _run(bits: Bits, probability: Probability) -> int:
    """H, given that its first coin shows heads."""
    length = 1
    while below(bits, probability):
        length += 1
    return length


def _each(heads: NDArray[np.bool]) -> Iterator[tuple[int, int]]:
    if heads.any():  # much faster than nonzero, and almost always False (all but once in 2⁶³ draws)
        for side, i in zip(*np.nonzero(heads), strict=True):
            yield int(side), int(i)


def _binary(digits: NDArray[np.int8]) -> IntegerArray:
    """Σ_k d_k·2ᵏ for rows d_k of −1, 0 and 1; four rows are added in one byte (at most ±15) before widening."""
    rows, count = digits.shape
    padded = np.zeros((max(4, -(-rows // 4) * 4), count), dtype=np.int8)
    padded[:rows] = digits
    pairs = padded[0::2] + 2 * padded[1::2]
    fours = pairs[0::2] + 4 * pairs[1::2]
    total = fours[-1].astype(np.int64)
    for row in fours[-2::-1]:
        total <<= 4
        total += row
    return total
