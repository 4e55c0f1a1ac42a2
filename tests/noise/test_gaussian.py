"""Gaussian noise is exact: its tables (N2), its ties and tails (N4), and that draws depend on their own words (N10).

Bits are injected, which no release can do.
"""

from __future__ import annotations

import ctypes
import math
import os
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from hdmm.noise import LARGEST_NOISE, gaussian, probability
from hdmm.noise import device_noise as device
from hdmm.noise.bits import ChaCha20Bits
from hdmm.noise.chacha import Stream
from hdmm.noise.device_noise import gaussian_in, gaussian_parameters
from hdmm.noise.gaussian import CellTable, Supply, bell_of, draws, rounded_exactly, sixteenths, table_of
from hdmm.noise.numbered_gaussian import Numbered, numbered_gaussian
from hdmm.noise.probability import Exponential, Uniform
from tests.noise.exact import edges, gaussian_below, p_value
from tests.noise.kernels import Held, OnHost, compiled_kernel
from tests.noise.sources import Scripted, Small
from tests.support.devices import namespaces, on_host

STREAM = Stream(bytes(range(32)), 7)
STARTS = [0, 4 * 2**32 - 701, 2**40 + 3]
VARIANCES = [Fraction(1, 3), Fraction(37, 10), Fraction(2**13 + 1), Fraction(2**42), Fraction(2**81), Fraction(2**102)]
ONES = 2**64 - 1


def tables() -> list[CellTable]:
    return [sixteenths()[0], *(table_of(Fraction(v)) for v in (Fraction(1, 2**510), Fraction(1, 9), 50, 127**2))]


@pytest.mark.parametrize("which", range(5))
def test_ends_of_cells_are_certified(which: int) -> None:
    """N2: low ≤ 2³¹·p < low + 2 at 600 bits; the last place is all ones, as all after it would be."""
    table = tables()[which]
    with mpmath.workprec(600):
        for cell, low in enumerate(table.low.tolist()):
            a = table.end(cell).exponent
            p = 2**31 * mpmath.erf(mpmath.sqrt(mpmath.mpf(a.numerator) / a.denominator)) if a < 10**6 else 2**31
            assert low <= p < low + 2 or low == p - 1
            assert abs(p - low - (p - low) % 1) <= 1
    assert table.low[-1] == 2**31 - 1


def test_ends_are_those_of_sixteenths_and_of_half_integers() -> None:
    """P(|Z| < x) = erf(√(x²/2))."""
    assert [sixteenths()[0].end(c).exponent for c in (0, 15, 200)] == [Fraction(k * k, 512) for k in (1, 16, 201)]
    assert [table_of(Fraction(50)).end(c).exponent for c in (0, 3)] == [Fraction(k * k, 400) for k in (1, 7)]


def test_the_least_acceptance_is_certified() -> None:
    cells, least = sixteenths()
    assert len(cells.low) < 128  # as the argument needs
    assert len(least) == len(cells.low) + 1
    with mpmath.workprec(600):
        for c, word in enumerate(least.tolist()):
            assert word <= 2**32 * mpmath.exp(mpmath.mpf(-(2 * c + 1)) / 512) < word + 2


@pytest.mark.parametrize("which", range(5))
def test_every_cell_is_found_at_its_ends(which: int) -> None:
    """A guide and a search agree with the bounds: words next to an end are ties, and others are decided rightly."""
    table = tables()[which]
    near = (table.low[:, None] + np.arange(-3, 5)).ravel()
    u = np.unique(np.concatenate([near, np.random.default_rng(3).integers(0, 2**31, 5000), [0, 2**31 - 1]]))
    u = u[(u >= 0) & (u < 2**31)]
    cell, tied = table.found(u.astype(np.uint32))
    possibly, certainly = (np.searchsorted(table.low + more, u, "right") for more in (0, 2))
    assert np.array_equal(cell, certainly)
    assert np.array_equal(tied, np.flatnonzero(possibly != certainly))
    assert 2**31 - 1 in u[tied]


def test_the_exponential_of_numpy_is_good_to_far_more_than_the_proof_allows() -> None:
    """e^(−a) by floats against 200 bits: the proof says 2⁻⁴³, and the margin is 2⁻²⁸."""
    F = np.concatenate([np.arange(0, 2**64, 2**57, dtype=np.uint64), np.array([1, 2**11, ONES], dtype=np.uint64)])
    with mpmath.workprec(200):
        for c in (0, 1, 15, 64, 127):
            floats = gaussian._probability(np.full(len(F), c, dtype=np.uint16), F)
            for f, p in zip(F.tolist(), floats.tolist(), strict=True):
                at = mpmath.ldexp(f, -64)
                assert abs(mpmath.exp(-at * (2 * c + at) / 512) - p) < mpmath.mpf(2) ** -49


def one_by_one(supply: Supply, variance: Fraction, count: int) -> list[int]:
    """Draws by exact decisions alone."""
    words, bell = supply.first(count), bell_of(variance)
    U, V, F = words[:, 0] & np.uint32(2**31 - 1), words[:, 1], words.view("<u8")[:, 1]
    exact = [gaussian._from_cell(supply, bell, i, U, V, F, 0) for i in range(count)]
    return [-N if head >> 31 else N for head, N in zip(words[:, 0].tolist(), exact, strict=True)]


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_draws_together_are_the_exact_draws_one_by_one(variance: Fraction) -> None:
    for start in STARTS:
        noise = numbered_gaussian(STREAM, bell_of(variance), start, 1000)
        assert noise[:60].tolist() == one_by_one(Numbered(STREAM, start), variance, 60)
        assert np.array_equal(noise[300:750], numbered_gaussian(STREAM, bell_of(variance), start + 300, 450))


def test_filters_and_exact_decisions_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = numbered_gaussian(STREAM, bell_of(VARIANCES[3]), 0, 2000)
    monkeypatch.setattr(gaussian, "MARGIN", 2.0)
    monkeypatch.setattr(gaussian, "_rounded", lambda bell, c, F: (np.zeros(len(F), dtype=np.int64), np.arange(len(F))))
    assert np.array_equal(quick, numbered_gaussian(STREAM, bell_of(VARIANCES[3]), 0, 2000))


class Words(Supply):
    """Words that are written down, and bits after them that are all 0 or all 1, or real ones."""

    def __init__(self, first: Any, rest: int | None = None, again: Any = None) -> None:
        self.words, self.after, self.more = np.array(first, dtype=np.uint32), rest, again

    def first(self, count: int) -> Any:
        return self.words

    def again(self, draws: Any, attempt: int) -> Any:
        return np.array([self.more(attempt) for _ in draws], dtype=np.uint32).reshape(-1, 3)

    def rest(self, draw: int) -> Any:
        return ChaCha20Bits() if self.after is None else Scripted(*[self.after] * 50)


def words(u: int, v: int, f: int) -> list[int]:
    return [u, v, f & 2**32 - 1, f >> 32]


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_numbers_next_to_a_half_are_rounded_by_all_their_digits(variance: Fraction) -> None:
    """F such that σ(c + F)/16 is next to N + ½: by the last of 64 digits, and as far as bounds leave two numbers."""
    cells, _ = sixteenths()
    bell, given, exact = bell_of(variance), [], []
    for c in (0, 7, 30, 77):
        u = int(cells.low[c - 1]) + 10 if c else 5
        for share in (0.1, 0.5, 0.9):
            N = isqrt(int(variance * Fraction(c + share) ** 2)) // 16
            at = (isqrt((2 * N + 1) ** 2 * 64 * 4**80 * variance.denominator // variance.numerator) - (c << 80)) >> 16
            for off in (0, -1, 1, -(2**8), 2**8, -(2**13), 2**13):
                if 0 <= at + off < 2**64:
                    given.append(words(u, 0, at + off))
                    exact.append((c, at + off))
    assert variance < 100 or len(given) > 50
    for rest in (0, ONES):
        found = draws(Words(given, rest), bell, len(given)).tolist() if given else []
        for N, (c, f) in zip(found, exact, strict=True):
            F = f << 640 | (2**640 - 1 if rest else 0)
            assert variance * ((c << 704) + F) ** 2 >= (2 * N - 1) ** 2 * 64 * 4**704 or N == 0
            assert variance * ((c << 704) + F) ** 2 < (2 * N + 1) ** 2 * 64 * 4**704


def test_rounding_is_sure_only_where_all_five_bounds_are_one_number() -> None:
    """The proof leaves ⌊R⌋ five numbers from H on, and every draw of which they make two numbers is decided exactly."""
    bell = bell_of(Fraction(2**102))
    F = STREAM.run(0, 1000).reshape(-1).view("<u8")
    cell = np.arange(len(F), dtype=np.uint16) % 110
    noise, unsure = gaussian._rounded(bell, cell, F)
    s_high, s_low = divmod(bell.s, 2**32)
    doubtful = []
    for i, (c, f) in enumerate(zip(cell.tolist(), F.tolist(), strict=True)):
        high, low = divmod(c << 56 | f >> 8, 2**32)
        H = s_high * high + (s_high * low >> 32) + (s_low * high >> 32) + 2 ** (bell.shift - 1)
        bounds = {H + k >> bell.shift for k in range(5)}
        assert noise[i] in bounds
        doubtful += [i] * (len(bounds) > 1)
    assert unsure.tolist() == doubtful
    assert len(doubtful) > 20


@pytest.mark.parametrize("above", [True, False])
def test_digits_of_f_that_acceptance_drew_are_those_that_are_rounded(above: bool) -> None:
    """V ties with e^(−a), so that F is extended; σ(c + F)/16 ties with a half, which those very digits decide."""
    variance, c, N = 2**42 + 12345, 9, 1_200_000
    f, rest = divmod(isqrt((2 * N + 1) ** 2 * 64 * 4**128 // variance) - (c << 128), 2**64)
    with mpmath.workprec(300):
        F = mpmath.ldexp(f, -64)
        v = int(mpmath.floor(2**32 * mpmath.exp(-F * (2 * c + F) / 512)))
    bits = Scripted(rest + 2**20 if above else rest - 2**20, 0)
    assert gaussian._from_attempt(Words([]), bell_of(Fraction(variance)), 0, c, 0, v, f, bits) == N + above
    assert (bits.script, bits.calls) == ([], 0)


@pytest.mark.parametrize("digits", [32, 64])
@pytest.mark.parametrize("side", [-1, 1])
def test_acceptance_at_its_edge_is_decided_by_further_digits(digits: int, side: int) -> None:
    c, f = 20, 2**63
    first = Exponential(Fraction(f * ((c << 65) + f), 512 << 128)).digits(digits)
    for off, kept in ((0, None), (4 * side, side < 0)):
        F, V = Uniform(Scripted(), f, 64), Uniform(Scripted(), first + off, digits)
        found = gaussian.accepted_exactly(c, F, V)
        assert kept is None or found is kept
        assert (F.places > 64) == (off == 0) == (V.places > digits)


@pytest.mark.parametrize(("further", "kept"), [(2**64 - 1, False), (0, True)])
def test_acceptance_depends_on_what_further_digits_make_of_f(further: int, kept: bool) -> None:
    """k/2³² lies between e^(−a) at f and at f + 1, and V lies just below it: the digits of F after f decide."""
    c, k = 20, Exponential(gaussian._loss(20, 1, 1)).digits(32)
    f, beyond = 2**62, 2**63 + 2**62
    while beyond - f > 1:
        middle = (f + beyond) // 2
        above = Exponential(gaussian._loss(c, middle, 64)).digits(32) >= k
        f, beyond = (middle, beyond) if above else (f, middle)
    F, V = Uniform(Scripted(further), f, 64), Uniform(Scripted(2**64 - 1), k - 1, 32)
    assert gaussian.accepted_exactly(c, F, V) is kept


@pytest.mark.parametrize("sign", [1, -1])
def test_acceptance_at_the_margin_itself_is_not_left_to_floats(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """V is below or above e^(−a) by exactly the margin, as floats."""
    p, asked = 0.96875, []
    monkeypatch.setattr(gaussian, "_probability", lambda c, F: np.full(len(F), p))
    monkeypatch.setattr(gaussian, "accepted_exactly", lambda *given: asked.append(given) or True)
    draws(Words([words(2**30, round((p - sign * gaussian.MARGIN) * 2**32), 2**63)]), bell_of(Fraction(2**42)), 1)
    assert len(asked) == 1


def test_a_draw_is_tried_until_it_is_accepted() -> None:
    """The digits of its last attempt are rounded; draws beside it are not touched."""
    given = [words(2**30, 2**32 - 1, 2**63), words(2**31 + 2**30, 0, 2**62)]
    supply = Words(given, again=lambda attempt: [2**32 - 1 if attempt < 9 else 0, 0, 2**31 + attempt])
    first, second = draws(supply, bell_of(Fraction(2**102)), 2).tolist()
    c = int(sixteenths()[0].found(np.array([2**30], dtype=np.uint32))[0][0])
    assert first == rounded_exactly(bell_of(Fraction(2**102)), c, Uniform(Scripted(0), (2**31 + 9) << 32, 64))
    assert second == -rounded_exactly(bell_of(Fraction(2**102)), c, Uniform(Scripted(0), 2**62, 64))


@pytest.mark.parametrize("more", [1, 2, 7])
@pytest.mark.parametrize("sign", [0, 1])
def test_a_tail_falls_into_a_cell_beyond_the_table(more: int, sign: int) -> None:
    """The digits of U are 31 + 64·more ones and a 0: |Z| is where P(|Z| ≥ z) is between 2⁻ᵏ⁻¹ and 2⁻ᵏ."""
    supply = Words([words((sign << 31) + 2**31 - 1, 0, 2**63)])
    supply.rest = lambda draw: Scripted(*[ONES] * more, 2**63 - 1, *[0] * 40)  # the digits of F are 0
    (noise,) = draws(supply, bell_of(Fraction(2**42)), 1).tolist()
    assert (noise < 0) == (sign == 1)
    with mpmath.workprec(2000):
        z = mpmath.mpf(abs(noise)) / 2**21
        tail = [mpmath.erfc((z + off) / mpmath.sqrt(2)) for off in (mpmath.mpf(-1) / 16, mpmath.mpf(1) / 16)]
        assert tail[1] < mpmath.mpf(2) ** (-31 - 64 * more) < 2 * tail[0]
    assert z > 9.2  # 147 sixteenths


def test_noise_beyond_the_largest_is_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellTable, "exactly", lambda *_: 2**16)
    given = [words(2**31 - 1, 0, 0), words(2**32 - 1, 0, 0)]
    assert draws(Words(given, 0), bell_of(Fraction(2**102)), 2).tolist() == [LARGEST_NOISE, -LARGEST_NOISE]


class Few(Supply):
    """Real bits, in which U has 6 digits, V has 4 and F has 3."""

    def __init__(self) -> None:
        self.bits = Small()

    def first(self, count: int) -> Any:
        found = ChaCha20Bits().octets(16 * count).view("<u4").reshape(count, 4)
        found[:, 1:] &= np.array([15, 7, 0], dtype=np.uint32)
        return found

    def again(self, draws: Any, attempt: int) -> Any:
        return self.first(len(draws))[:, 1:]

    def rest(self, draw: int) -> Any:
        return self.bits


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(6), Fraction(1000)], ids=str)
def test_ties_of_few_digits_are_decided_exactly(variance: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most draws tie somewhere, and often twice: further digits come 3 at a time."""
    for name, value in (("U_PLACES", 6), ("_GUIDE_PLACES", 3), ("V_PLACES", 4), ("F_PLACES", 3), ("MARGIN", 2.0)):
        monkeypatch.setattr(gaussian, name, value)
    monkeypatch.setattr(probability, "WORD", 3)
    monkeypatch.setattr(gaussian, "_rounded", lambda bell, c, F: (np.zeros(len(F), dtype=np.int64), np.arange(len(F))))
    monkeypatch.setattr(gaussian, "sixteenths", sixteenths.__wrapped__)
    assert len(gaussian.sixteenths()[0].low) > 60
    found = gaussian.sixteenths()
    monkeypatch.setattr(gaussian, "sixteenths", lambda: found)
    noise = draws(Few(), bell_of(variance), 6000)
    parts = edges(gaussian_below(variance), math.sqrt(variance), bins=20)
    assert p_value(noise, gaussian_below(variance), parts) > 1e-9
    assert p_value(noise, gaussian_below(variance * Fraction(4, 5)), parts) < 1e-9


@pytest.mark.parametrize("cell", [0, 3, 60])
@pytest.mark.parametrize("off", [0, 1])
def test_a_tie_with_an_end_falls_as_its_further_digits_say(cell: int, off: int) -> None:
    """By the table of σ: the digits of U are an end's, then 64 more, just below or above those of its probability."""
    table = table_of(Fraction(5000))
    low, digits = int(table.low[cell]), table.end(cell).around(95)[0]
    for further, beyond in ((digits - 4, False), (digits + 4, True)):
        u, rest = divmod(further, 2**64)
        if u == low + off:
            bits = Scripted(np.array([u], dtype="<u4").view(np.uint8), rest)
            assert gaussian.tabulated(bits, table, 1).tolist() == [cell + beyond]
            assert (bits.script, bits.calls) == ([], 0)


def test_a_table_and_cells_of_sixteenths_have_one_distribution() -> None:
    for variance in (Fraction(1, 9), Fraction(100)):
        below, parts = gaussian_below(variance), edges(gaussian_below(variance), math.sqrt(variance))
        for size in (300_000, 300):  # by the table, and 1,000 times without
            noise = [gaussian.gaussian(ChaCha20Bits(), variance, size) for _ in range(300_000 // size)]
            assert p_value(np.concatenate(noise), below, parts) > 1e-9


def test_numbered_draws_have_the_distribution_of_their_scale() -> None:
    for variance in (Fraction(37, 10), Fraction(2**42)):
        noise = numbered_gaussian(Stream(os.urandom(32), 0), bell_of(variance), 0, 200_000)
        parts = edges(gaussian_below(variance), math.sqrt(variance))
        assert p_value(noise, gaussian_below(variance), parts) > 1e-9
        assert p_value(noise, gaussian_below(variance * Fraction(9, 10)), parts) < 1e-9


@pytest.mark.parametrize("xp", namespaces())
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_every_namespace_draws_the_same_numbers(xp: Any, variance: Fraction, start: int) -> None:
    for size in (0, 1, 9000):
        drawn = on_host(gaussian_in(xp, STREAM, bell_of(variance), start, size))
        assert np.array_equal(drawn, numbered_gaussian(STREAM, bell_of(variance), start, size))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Any:
    return compiled_kernel("gaussian", folder)


@pytest.fixture(scope="module")
def on_processor(folder: Path) -> OnHost:
    return OnHost(folder)


def tied_table(table: Any, ends: int, start: int, draw: int) -> Any:
    """The table of cells, an end of which is moved to a draw."""
    moved = table.copy()
    u = int(Numbered(STREAM, start).first(draw + 1)[draw, 0]) & 2**31 - 1
    cell = int(np.searchsorted(table[:ends], u, "right"))
    moved[cell - 1 if cell else 0] = u - (cell > 0)
    return moved


@pytest.mark.parametrize("room", [4096, 0])
@pytest.mark.parametrize("start", STARTS)
def test_what_a_kernel_leaves_is_drawn_exactly(
    start: int, room: int, on_processor: OnHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, or everything again if there is no room for a list of what is left."""
    bell = bell_of(Fraction(2**42))
    table, ends, *rest = gaussian_parameters(bell)
    u = Numbered(STREAM, start).first(700)[:, 0].astype(np.int64) & 2**31 - 1
    beyond = u[:, None] - table[:ends].astype(np.int64)
    moved = tied_table(table, ends, start, int(np.where(beyond >= 0, beyond, 2**32).min(axis=1).argmin()))
    monkeypatch.setattr(device, "_ROOM", room)
    monkeypatch.setattr(device, "gaussian_parameters", lambda _: (moved, ends, *rest))
    for size in (0, 1, 700):
        drawn = gaussian_in(on_processor, STREAM, bell, start, size)
        assert isinstance(drawn, Held)
        assert np.array_equal(drawn, numbered_gaussian(STREAM, bell, start, size))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("tied_at", [None, 5])
def test_the_kernel_draws_the_numbers_that_numpy_draws(
    compiled: Any, variance: Fraction, start: int, tied_at: int | None
) -> None:
    """All but those that it leaves to the processor; if an end of a cell is moved to a draw, this is among them."""
    bell, size = bell_of(variance), 9001
    table, ends, s, rest, shift = gaussian_parameters(bell)
    expected = numbered_gaussian(STREAM, bell, start, size)
    if tied_at is not None:
        table = tied_table(table, ends, start, tied_at)
    out, ties, count = np.empty(size, np.int64), np.zeros(64, np.uint64), np.zeros(1, np.uint32)
    at = [ctypes.c_void_p(array.ctypes.data) for array in (STREAM.key_words, table, out, ties, count)]
    numbers = [ctypes.c_int(ends), ctypes.c_ulonglong(s), ctypes.c_ulonglong(rest), ctypes.c_int(shift)]
    place = [ctypes.c_uint(7), ctypes.c_ulonglong(start), ctypes.c_ulonglong(size)]
    compiled(at[0], at[1], *numbers, *place, at[2], at[3], at[4], ctypes.c_uint(64))
    left = ties[: count[0]].astype(int).tolist()
    assert len(left) < 9
    if tied_at is None:
        assert set(np.flatnonzero(out != expected)) <= set(left)
    else:  # the end is not where it was, so that other draws fall into other cells
        assert tied_at in left


def test_the_kernel_has_two_words_of_sigma() -> None:
    for variance in VARIANCES:
        bell = bell_of(variance)
        _, _, s, rest, shift = gaussian_parameters(bell)
        assert (int(s), int(shift)) == (bell.s, bell.shift)
        doubled = int(s) << 64 | int(rest)
        e = 2 * (bell.shift + 4 + 64)
        assert doubled**2 <= variance * 2**e < (doubled + 1) ** 2


def test_where_a_kernel_leaves_too_many_draws_all_are_made_by_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xp, bell = OnHost(tmp_path), bell_of(Fraction(50))
    monkeypatch.setattr(device, "_by_kernel", lambda *_: (np.full(9, 77), None))
    assert gaussian_in(xp, STREAM, bell, 3, 9).tolist() == numbered_gaussian(STREAM, bell, 3, 9).tolist()
