"""Exact discrete Laplace noise, many draws at a time: P(Z = z) ∝ e^(−|z|/s) on the integers.

Z is a geometric number G, P(G = g) = (1 − q)·qᵍ with q = e^(−1/s), or −1 − G; that has the probability q/(1 + q):

    P(Z = z) = (1 − q)·q^z/(1 + q) for z ≥ 0,   P(Z = −1 − g) = q/(1 + q)·(1 − q)·qᵍ = (1 − q)·q^|−1 − g|/(1 + q).

The binary digits of a geometric number are independent, because qᵍ is a product over the digits of g:

    G = Σ_{k<K} b_k·2ᵏ + 2ᴷ·H,   P(b_k = 1) = q^(2ᵏ)/(1 + q^(2ᵏ)) = 1/(1 + e^(2ᵏ/s)),   H geometric with q^(2ᴷ),

and H ≥ j has probability p_H^j with p_H = e^(−2ᴷ/s): H is the number of coins with probability p_H that show heads
before the first one that does not. K affects only the speed; with 2ᴷ/s > 64·ln 2, p_H < 2⁻⁶⁴ and a second coin is
hardly ever tossed.

The m = K − 13 lowest digits are nearly fair and are drawn together: D = Σ_{k<m} b_k·2ᵏ has P(D = d) ∝ q^d. A number U
of m fair digits is accepted with probability q^U = P(G′ ≥ U) for another geometric number G′ = D′ + 2ᵐ·H′. One coin
of probability e^(−2ᵐ/s) says whether H′ > 0, so that G′ ≥ U whatever D′ is; that is so for all but 1 in 92 draws. For
the others D′ is drawn digit by digit and compared, and a U that is not accepted is replaced by a D that is drawn digit
by digit. With a = Σ_u 2⁻ᵐ·qᵘ the probability of acceptance, d results with probability 2⁻ᵐ·q^d + (1 − a)·P(D = d),
which is P(D = d), because 2⁻ᵐ·q^d = a·P(D = d).

A coin shows heads if U < p, which is decided by the digits of U and p (probability.py): the first 8 for all coins of a
batch at once, the next 64 for those that tie (1 in 256), and for those that tie again (1 in 2⁷²) one coin at a time, to
the end. All of this is integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hdmm.base.mixing import Words
from hdmm.noise.bits import Bits, IntegerArray, Octets, drawn
from hdmm.noise.parameters import LARGEST_NOISE, exact_scale, exact_size
from hdmm.noise.probability import WORD, Exponential, Logistic, Probability, Uniform

_BATCH = 16384  # draws at a time: their limbs take 256 KiB, which fit into a core's cache
_LIMB_BITS = 8  # bits of the first comparison
_CERTAIN = Fraction(89, 2)  # > 64·ln 2 = 44.36…
_DIGITS = 13  # tossed for every draw; with three more coins, the results fill a word of 16 bits:
_BEYOND, _TAIL = 1 << 13, 1 << 14  # whether H′ > 0, whether H > 0, and the sign in the highest bit


@dataclass(frozen=True, slots=True, eq=False)
class Coins:
    """Coins that are tossed together, each with the first 8 and the next 64 binary digits of its probability."""

    probabilities: tuple[Probability, ...]
    first: Octets
    second: Words


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceCoins:
    """What a draw is made of: the coins of its m lowest digits, and the 16 that are tossed for every draw.

    These are 13 digits from the lowest to the highest, then those of H′, of H, and of the sign.
    """

    low: Coins
    high: Coins

    @property
    def digits(self) -> int:
        """K, the number of digits; H has the weight 2ᴷ."""
        return len(self.low.probabilities) + _DIGITS


def discrete_laplace(scale: Fraction | int, size: int) -> IntegerArray:
    """`size` independent draws with P(Z = z) = (e^(1/s) − 1)/(e^(1/s) + 1)·e^(−|z|/s), exactly, from OS entropy.

    The variance is 2·e^(1/s)/(e^(1/s) − 1)², a little below 2s². A draw beyond ±2⁶² is returned as ±2⁶², because no
    release can distinguish the two (parameters.py). O(size), at all scales.

    >>> noise = discrete_laplace(Fraction(37, 10), 1000)
    >>> noise.dtype, noise.shape
    (dtype('int64'), (1000,))
    """
    coins, size = coins_of(exact_scale(scale)), exact_size(size)
    return drawn(lambda bits: laplace(bits, coins, size))


def laplace(bits: Bits, coins: LaplaceCoins, size: int) -> IntegerArray:
    """`size` draws, from the given bits."""
    noise = np.empty(size, dtype=np.int64)
    for start in range(0, size, _BATCH):
        noise[start : start + _BATCH] = draws_of(bits, coins, min(_BATCH, size - start))
    return noise


@lru_cache(maxsize=1024)
def coins_of(scale: Fraction) -> LaplaceCoins:
    """The coins of a draw with q = e^(−1/s), by O(log s) exponentials."""
    m = 0
    while 2 ** (m + _DIGITS) / scale <= _CERTAIN:
        m += 1
    K = m + _DIGITS
    digits = [Logistic(2**k / scale) for k in range(K)]
    beyond, tail, sign = Exponential(2**m / scale), Exponential(2**K / scale), Logistic(1 / scale)
    return LaplaceCoins(_coins(digits[:m]), _coins([*digits[m:], beyond, tail, sign]))


def draws_of(bits: Bits, coins: LaplaceCoins, count: int) -> IntegerArray:
    """`count` draws, from the given bits; those beyond ±LARGEST_NOISE are replaced by it."""
    heads = np.packbits(_tossed(bits, coins.high, count), bitorder="little").view("<u2")
    low = (heads & (2**_DIGITS - 1)).astype(np.int64)
    if coins.low.probabilities:
        low <<= len(coins.low.probabilities)
        low |= _lowest(bits, coins.low, heads & _BEYOND != 0).astype(np.int64)
    sign = heads.view("<i2") >> 15  # −1 or 0, and −1 ^ G is −1 − G
    low ^= sign
    for i in np.flatnonzero(heads & _TAIL):
        H = _run(bits, coins.high.probabilities[_TAIL.bit_length() - 1])
        exact = int(low[i]) + ((-H if sign[i] else H) << coins.digits)
        low[i] = max(-LARGEST_NOISE, min(LARGEST_NOISE, exact))
    return low


def _lowest(bits: Bits, coins: Coins, beyond: NDArray[np.bool]) -> NDArray[np.unsignedinteger]:
    """D for every draw, given whether H′ > 0."""
    D = bits.numbers(len(coins.probabilities), len(beyond))
    unsure = np.flatnonzero(~beyond)
    if unsure.size:
        reached, other = _numbers(_tossed(bits, coins, 2 * unsure.size)).reshape(2, -1)
        D[unsure] = np.where(D[unsure] <= reached, D[unsure], other)
    return D


def _tossed(bits: Bits, coins: Coins, count: int) -> NDArray[np.bool]:
    """The results of tossing every coin `count` times: heads[i, coin]."""
    limbs = bits.octets(count * len(coins.first))
    first = np.tile(coins.first, count)  # comparing rows of 16 with one row would take 6 times as long
    heads = limbs < first
    ties = np.flatnonzero(limbs == first)
    heads[ties] = _tied(bits, coins, ties % len(coins.first))
    return heads.reshape(count, -1)


def _tied(bits: Bits, coins: Coins, which: NDArray[np.intp]) -> NDArray[np.bool]:
    """The results of the coins whose uniform number begins with the first digits of their probability."""
    words, second = bits.words(len(which)), coins.second[which]
    heads = words < second
    for i in np.flatnonzero(words == second):
        probability = coins.probabilities[which[i]]
        known = _LIMB_BITS + WORD
        heads[i] = Uniform(bits, probability.digits(known), known).below(probability)
    return heads


def _run(bits: Bits, probability: Probability) -> int:
    """H, given that its first coin shows heads."""
    length = 1
    while Uniform(bits).below(probability):
        length += 1
    return length


def _numbers(heads: NDArray[np.bool]) -> Words:
    """Σ_k heads[i, k]·2ᵏ for every i."""
    digits = np.zeros((len(heads), 64), dtype=np.bool)
    digits[:, : heads.shape[1]] = heads
    return np.packbits(digits, bitorder="little").view("<u8")


def _coins(probabilities: Sequence[Probability]) -> Coins:
    digits = [p.digits(_LIMB_BITS + WORD) for p in probabilities]
    first = np.array([d >> WORD for d in digits], dtype=np.uint8)
    second = np.array([d % 2**WORD for d in digits], dtype=np.uint64)
    first.flags.writeable = second.flags.writeable = False
    return Coins(tuple(probabilities), first, second)
