"""Exact Gaussian noise, many draws at a time: round(σZ) for a real standard normal Z.

Answers are integers, so that x + round(σZ) = round(x + σZ) but for ties, which have probability 0: what is published is
a function of the continuous mechanism's result and has all of its privacy (privacy/gdp.py). The variance is σ² +
1/12, up to a part that is below every float for σ ≥ 3.

|Z| is drawn in two steps, both exact. It falls into the cell c = ⌊16·|Z|⌋ with the right probability: c is the number
of k ≥ 1 with P(|Z| < k/16) = erf(k/(16√2)) ≤ U. Within it, |Z| = (c + F)/16, where F has a density proportional to

    e^(−(c + F)²/512),   which is   e^(−c²/512)·e^(−a)   with   a = F·(2c + F)/512,

so that a uniform F is kept with probability e^(−a), that is if V < e^(−a), and otherwise F and V are drawn again. Then
N = ⌊σ·(c + F)/16 + ½⌋, and a sign. U, V and F are real numbers; as many of their binary digits are drawn as a decision
needs: at first 31, 32 and 64, which with the sign make 128 bits per draw. A decision that these leave in doubt is
made by exact bounds (MPFR, or integers), one draw at a time, with further digits of the same numbers: those of F that
acceptance asked for are then digits of the F that is rounded. Any number of further digits is needed with probability
0 only; nothing is assumed about erf, whose values could be dyadic (probability.py).

- Cells. If low_k ≤ 2³¹·erf(k/(16√2)) < low_k + 2, the first 31 digits u of U decide unless u is low_k or low_k + 1 for
  some k, as for 1 draw in 10⁷; then MPFR does. low_k is ⌊2³¹·p − 2⁻⁸⌋ for the float p of erf, so that p may be off by
  2⁻³⁹; it is by 2⁻⁵⁰ (a test compares it with 600 bits). Of all k beyond the table low_k would be 2³¹ − 1, as in its
  last place. A guide has the cell by the first 15 digits of U where these suffice, for all but 1 draw in 300.
- Acceptance. a < (2c + 1)/512. If the first 32 digits v of V are below a certified lower bound on 2³²·e^(−(2c+1)/512),
  V < e^(−a): so are 95 of 100. Of the others, floats decide if they are far enough apart. With η = 2⁻⁵³, the float of
  F is within 2η of it and a is computed within 3η, since a < ½ for c < 128 (in the table c is below 110). So e^(−a) is
  off by 3η and by the error of NumPy's exp, a few η (a test compares it with 200 bits; 2⁻⁴⁴ is allowed). v·2⁻³² is at
  most 2⁻³² below V, and the difference is rounded by η: in sum less than 2⁻³¹, where the margin is 2⁻²⁸. A draw in 10⁹
  falls within it.
- Rounding. For e = 63 − b with b = max(0, ⌊log₂σ⌋), let s = ⌊2ᵉσ⌋ and y = ⌊2⁵⁶(c + F)⌋, both below 2⁶⁴. Then
  R = 2^(e−4)·σ(c + F)/16 satisfies sy ≤ 2⁶⁴R < (s + 1)(y + 1) ≤ sy + 2⁶⁵. The sum H of the high words of three of the
  four products of halves satisfies H ≤ sy/2⁶⁴ < H + 3. So ⌊R⌋ is one of H … H + 4, and R is below 2⁶³ for c < 128. If
  ⌊(H + 2^(e−5))/2^(e−4)⌋ is the same number for all five, it is N: it is not for 5 draws in 2^(e−4), which is 1 in
  10⁵ at σ = 2⁴⁰. Else N is found by integer square roots, because σ² is rational.

If σ is below 128 and many draws are made, a table has the cells of N itself, P(N < k) = erf((2k − 1)/(2√2·σ)), and a
draw takes 32 bits: those of U and the sign.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from hdmm.base.mixing import Words
from hdmm.noise.bits import Bits, IntegerArray, drawn
from hdmm.noise.chacha import HalfWords
from hdmm.noise.parameters import LARGEST_NOISE, exact_size, exact_variance
from hdmm.noise.probability import Exponential, HalfNormal, Uniform

_BATCH: Final = 16384  # draws at a time: their words take 256 KiB, which fit into a core's cache
U_PLACES: Final = 31
V_PLACES: Final = 32
F_PLACES: Final = 64
MARGIN: Final = 2.0**-28
_GUIDE_PLACES: Final = 15
_OPEN: Final = 2**16 - 1  # in a guide, where its places do not determine the cell
_FARTHEST: Final = 4.7  # 1 − erf of it is below 2⁻³³
_LARGEST_IN_TABLE: Final = 128  # σ
_TABLE_PAYS: Final = 2**15  # draws


@final
@dataclass(frozen=True, slots=True, eq=False)
class CellTable:
    """Cells of |Z|: cell 0 ends at (1 − offset)·width, and each cell after it is as wide as `width`."""

    offset: Fraction
    width_squared: Fraction
    low: NDArray[np.int64]  # for the ends of cells 0, 1, …: ≤ 2³¹·P(|Z| < end) < low + 2
    guide: NDArray[np.uint16]  # the cell by the first 15 digits of U, or _OPEN

    @classmethod
    def of(cls, offset: Fraction, width_squared: Fraction) -> CellTable:
        """The cells with their table, up to an end whose 31 digits are all 1. O(1/width)."""
        halved = math.sqrt(width_squared / 2)
        ends = (np.arange(1, 3 + math.ceil(_FARTHEST / halved)) - float(offset)) * halved
        low = np.floor(erf(ends) * 2.0**U_PLACES - 2.0**-8).astype(np.int64)
        step = 2 ** (U_PLACES - _GUIDE_PLACES)
        first = np.arange(0, 2**U_PLACES, step)
        certainly = np.searchsorted(low + 2, first, "right")
        possibly = np.searchsorted(low, first + (step - 1), "right")
        guide = np.where(certainly == possibly, certainly, _OPEN).astype(np.uint16)
        return cls(offset, width_squared, low, guide)

    def end(self, cell: int) -> HalfNormal:
        """The probability that |Z| is below the end of a cell."""
        return HalfNormal((cell + 1 - self.offset) ** 2 * self.width_squared / 2)

    def found(self, U: HalfWords) -> tuple[NDArray[np.uint16], NDArray[np.intp]]:
        """The cells by 31 digits of U, and where these do not decide; there, a cell from which `exactly` may start."""
        cell = self.guide.take(U >> (U_PLACES - _GUIDE_PLACES))
        further = np.flatnonzero(cell == _OPEN)
        u = U[further].astype(np.int64)
        cell[further] = certainly = np.searchsorted(self.low + 2, u, "right")
        return cell, further[certainly < np.searchsorted(self.low, u, "right")]

    def exactly(self, U: Uniform, start: int) -> int:
        """The cell of U, which is known to be `start` or a later one."""
        cell = start
        while not U.below(self.end(cell)):
            cell += 1
        return cell


class Supply(ABC):
    """Where the words of draws come from. Of a draw, no word is given twice for a purpose that matters."""

    @abstractmethod
    def first(self, count: int) -> HalfWords:
        """count × 4 words: the sign and 31 digits of U, 32 digits of V, and 64 of F, the lower half first."""

    @abstractmethod
    def again(self, draws: NDArray[np.intp], attempt: int) -> HalfWords:
        """len(draws) × 3 words, V and F of another attempt; the first is 1."""

    @abstractmethod
    def rest(self, draw: int) -> Bits:
        """Further bits of one draw, the same at every call or new ones."""


@final
class Sequence(Supply):
    """Words in the order in which they are asked for."""

    __slots__ = ("_bits",)

    def __init__(self, bits: Bits) -> None:
        self._bits = bits

    def first(self, count: int) -> HalfWords:
        return self._bits.octets(16 * count).view("<u4").reshape(count, 4)

    def again(self, draws: NDArray[np.intp], attempt: int) -> HalfWords:
        return self._bits.octets(12 * len(draws)).view("<u4").reshape(-1, 3)

    def rest(self, draw: int) -> Bits:
        return self._bits


@final
@dataclass(frozen=True, slots=True)
class Bell:
    """σ², and the integers by which draws are rounded."""

    sigma_squared: Fraction
    s: int  # ⌊2ᵉσ⌋
    shift: int  # e − 4


def rounded_gaussian(sigma_squared: Fraction | int, size: int) -> IntegerArray:
    """`size` independent draws of round(σZ) for a standard normal Z, exactly, from OS entropy. O(size).

    A draw beyond ±2⁶² is returned as ±2⁶², because no release can distinguish the two (parameters.py).

    >>> noise = rounded_gaussian(Fraction(37, 10), 1000)
    >>> noise.dtype, noise.shape
    (dtype('int64'), (1000,))
    """
    variance, size = exact_variance(sigma_squared), exact_size(size)
    return drawn(lambda bits: gaussian(bits, variance, size))


def gaussian(bits: Bits, sigma_squared: Fraction, size: int) -> IntegerArray:
    """`size` draws, from the given bits."""
    noise = np.empty(size, dtype=np.int64)
    tabled = sigma_squared < _LARGEST_IN_TABLE**2 and size >= _TABLE_PAYS
    source = table_of(sigma_squared) if tabled else bell_of(sigma_squared)
    for start in range(0, size, _BATCH):
        count = min(_BATCH, size - start)
        found = (
            tabulated(bits, source, count) if isinstance(source, CellTable) else draws(Sequence(bits), source, count)
        )
        noise[start : start + count] = found
    return noise


def bell_of(sigma_squared: Fraction) -> Bell:
    """s = ⌊√⌊4ᵉσ²⌋⌋ and e − 4."""
    e = 63 - max(0, isqrt(sigma_squared.numerator // sigma_squared.denominator).bit_length() - 1)
    return Bell(sigma_squared, isqrt((sigma_squared.numerator << 2 * e) // sigma_squared.denominator), e - 4)


@lru_cache(maxsize=1)
def sixteenths() -> tuple[CellTable, HalfWords]:
    """The cells [c/16, (c + 1)/16) of |Z|, and for each c of the table a lower bound on 2³²·e^(−(2c+1)/512)."""
    cells = CellTable.of(Fraction(0), Fraction(1, 256))
    least = [Exponential(Fraction(2 * c + 1, 512)).around(V_PLACES)[0] for c in range(len(cells.low) + 1)]
    return cells, np.array(least, dtype=np.uint32)


@lru_cache(maxsize=16)
def table_of(sigma_squared: Fraction) -> CellTable:
    """The cells of N = ⌊σ|Z| + ½⌋, as wide as 1/σ but for the first. O(σ)."""
    return CellTable.of(Fraction(1, 2), 1 / sigma_squared)


def tabulated(bits: Bits, table: CellTable, count: int) -> IntegerArray:
    """`count` draws by the table of their σ."""
    words = bits.octets(4 * count).view("<u4")
    U = words & np.uint32(2**U_PLACES - 1)
    cell, tied = table.found(U)
    noise = cell.astype(np.int64)
    for i in tied.tolist():
        noise[i] = min(table.exactly(Uniform(bits, int(U[i]), U_PLACES), int(noise[i])), LARGEST_NOISE)
    return _signed(noise, words)


def draws(supply: Supply, bell: Bell, count: int) -> IntegerArray:
    """`count` draws; draw i depends on nothing but its own words of the supply."""
    words = supply.first(count)
    head, V, F = words[:, 0], words[:, 1], words.view("<u8")[:, 1].copy()
    cells, least = sixteenths()
    U = head & np.uint32(2**U_PLACES - 1)
    cell, tied = cells.found(U)
    exact = {i: _from_cell(supply, bell, i, U, V, F, int(cell[i])) for i in tied.tolist()}
    waiting, attempt = np.flatnonzero(least.take(cell) <= V), 0
    V = V[waiting]
    while waiting.size:
        gap = _probability(cell[waiting], F[waiting])
        gap -= V * 2.0**-V_PLACES
        for at in np.flatnonzero(np.abs(gap) <= MARGIN).tolist():
            i = int(waiting[at])
            c, more = int(cell[i]), supply.rest(i)
            exact.setdefault(i, _from_attempt(supply, bell, i, c, attempt, int(V[at]), int(F[i]), more))
        waiting, attempt = waiting[gap < -MARGIN], attempt + 1
        further = supply.again(waiting, attempt)
        V, F[waiting] = further[:, 0], _joined(further[:, 1:])
    noise, unsure = _rounded(bell, cell, F)
    for i in unsure.tolist():
        if i not in exact:
            exact[i] = rounded_exactly(bell, int(cell[i]), Uniform(supply.rest(i), int(F[i]), F_PLACES))
    for i, N in exact.items():
        noise[i] = min(N, LARGEST_NOISE)
    return _signed(noise, head)


def accepted_exactly(c: int, F: Uniform, V: Uniform) -> bool:
    """Whether V < e^(−a), by as many digits of both as it takes."""
    while True:
        low, _ = Exponential(_loss(c, F.known + 1, F.places)).around(V.places)
        _, high = Exponential(_loss(c, F.known, F.places)).around(V.places)
        if V.known < low or V.known >= high:
            return V.known < low
        F.extend()
        V.extend()


def rounded_exactly(bell: Bell, c: int, F: Uniform) -> int:
    """N, by as many digits of F as it takes."""
    while True:
        least, most = (_nearest(bell.sigma_squared, c, f, F.places) for f in (F.known, F.known + 1))
        if least == most:
            return least
        F.extend()


def _from_cell(supply: Supply, bell: Bell, i: int, U: HalfWords, V: NDArray[np.uint32], F: Words, start: int) -> int:
    """N of draw i, whose U ties with the end of a cell."""
    more = supply.rest(i)
    c = sixteenths()[0].exactly(Uniform(more, int(U[i]), U_PLACES), start)
    return _from_attempt(supply, bell, i, c, 0, int(V[i]), int(F[i]), more)


def _from_attempt(supply: Supply, bell: Bell, i: int, c: int, attempt: int, v: int, f: int, more: Bits) -> int:
    """N of draw i, all of whose attempts before this one were rejected; v and f are the digits of this one."""
    while True:
        F = Uniform(more, f, F_PLACES)
        if accepted_exactly(c, F, Uniform(more, v, V_PLACES)):
            return rounded_exactly(bell, c, F)
        attempt += 1
        further = supply.again(np.array([i]), attempt)
        v, f = int(further[0, 0]), int(_joined(further[:, 1:])[0])


def _loss(c: int, f: int, places: int) -> Fraction:
    """a at F = f/2ᵖˡᵃᶜᵉˢ."""
    return Fraction(f * ((c << places + 1) + f), 512 << 2 * places)


def _nearest(sigma_squared: Fraction, c: int, f: int, places: int) -> int:
    """⌊σ(c + F)/16 + ½⌋ at F = f/2ᵖˡᵃᶜᵉˢ: ⌊x + ½⌋ = ⌊(⌊√(4x²)⌋ + 1)/2⌋."""
    square = ((c << places) + f) ** 2 * sigma_squared.numerator
    return (isqrt(square // (sigma_squared.denominator << 2 * places + 6)) + 1) // 2


def _probability(c: NDArray[np.uint16], F: Words) -> NDArray[np.float64]:
    """e^(−a), within 2⁻⁴³."""
    near = F * 2.0**-F_PLACES
    return np.exp(near * (2.0 * c + near) * (-1 / 512))


def _rounded(bell: Bell, c: NDArray[np.uint16], F: Words) -> tuple[IntegerArray, NDArray[np.intp]]:
    """N of every draw, and where the bounds on it leave two numbers."""
    y = c.astype(np.uint64)
    y <<= np.uint64(56)
    y |= F >> np.uint64(8)
    half, s_high, s_low = np.uint64(32), np.uint64(bell.s >> 32), np.uint64(bell.s & (2**32 - 1))
    y_high = y >> half
    y &= np.uint64(2**32 - 1)
    y *= s_high
    y >>= half
    y += y_high * s_low >> half
    y_high *= s_high
    y += y_high
    y += np.uint64(1 << bell.shift - 1)
    ending = y & np.uint64((1 << bell.shift) - 1)
    unsure = np.flatnonzero(ending >= np.uint64((1 << bell.shift) - 4))
    y >>= np.uint64(bell.shift)
    return y.view(np.int64), unsure


def _joined(halves: HalfWords) -> Words:
    """Two words as one of 64 bits, the lower first."""
    return halves[:, 0] | halves[:, 1].astype(np.uint64) << np.uint64(32)


def _signed(noise: IntegerArray, heads: HalfWords) -> IntegerArray:
    """The noise, negative where the highest bit of a draw's head is set."""
    negative = heads.view(np.int32) >> 31  # −1 or 0
    noise ^= negative
    noise -= negative
    return noise
