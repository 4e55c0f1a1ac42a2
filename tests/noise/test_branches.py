"""Requirement N4: the branches for ties and tails give correct results. Bits are injected; no release can do that."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hdmm.noise import LARGEST_NOISE, gaussian, laplace, probability
from hdmm.noise.bits import ChaCha20Bits
from hdmm.noise.gaussian import bell_of
from hdmm.noise.laplace import Draws, coins_of, differences
from hdmm.noise.probability import Exponential, Logistic, Probability, below
from tests.noise.exact import edges, gaussian_below, laplace_below, p_value
from tests.noise.sources import Scripted, Small

ONES = 2**64 - 1
COINS = [Exponential(Fraction(1, 3)), Logistic(Fraction(5, 7)), Exponential(Fraction(44))]


@pytest.mark.parametrize("coin", COINS, ids=str)
@pytest.mark.parametrize("tied", [0, 1, 5])
def test_a_coin_is_decided_at_the_first_word_that_differs(coin: Probability, tied: int) -> None:
    words = [coin.digits(64 * (i + 1)) % 2**64 for i in range(tied + 1)]
    last = words.pop()
    for word, heads in ((last - 1, True), (last + 1, False)):
        bits = Scripted(*words, word)
        assert below(bits, coin) is heads
        assert not bits.script
        assert bits.calls == 0
    bits = Scripted(*words, last)  # a tie once more
    below(bits, coin)
    assert bits.calls > 0


def test_a_coin_tied_on_72_digits_falls_as_the_rest_of_its_digits_say() -> None:
    """P(U < p | U and p agree on 72 digits) is the fraction of 2⁷²·p."""
    coins, n = coins_of(Fraction(3)), 4000
    for which in (0, 3):
        coin = coins.probabilities[which]
        rest = (coin.digits(136) % 2**64) / 2**64
        second = np.full(n, coins.second[which], dtype="<u8").view(np.uint8)
        bits = Scripted(second)
        heads = laplace._tied(bits, coins, np.full(n, which))
        assert bits.calls >= n
        assert abs(heads.mean() - rest) < 6 * math.sqrt(rest * (1 - rest) / n)


def test_tied_limbs_are_settled_each_by_its_own_coin() -> None:
    """All first limbs tie; the second ones are one off, by turns below and above."""
    coins, n = coins_of(Fraction(100)), 10
    rows = len(coins.first)
    limbs = np.tile(coins.first[:, None], (2, 1, n)).reshape(-1)
    second = np.tile(coins.second[:, None], (2, 1, n)).reshape(-1)
    heads = np.arange(second.size) % 3 == 0
    second = np.where(heads, np.maximum(second, 1) - 1, second + 1).astype("<u8")
    heads &= np.tile((coins.second > 0)[:, None], (2, 1, n)).reshape(-1)
    bits = Scripted(limbs, second.view(np.uint8))
    tossed = laplace._tossed(bits, coins, n)
    # H's coin has 72 zeros: 0 is no word below, but a tie, which a random next word settles as tails
    assert np.array_equal(tossed.reshape(-1), heads)
    assert tossed.shape == (2, rows, n)


def tail(scale: Fraction, *, side: int, length: int) -> Scripted:
    """One difference whose digits are all 0, and whose H on one side is `length`."""
    coins = coins_of(scale)
    limbs = np.full((2, len(coins.first), 1), 255, dtype=np.uint8)
    limbs[side, -1, 0] = 0  # a tie: the digits of p_H begin with 72 zeros, and 0 in the next word is below them
    return Scripted(limbs.reshape(-1), 0, 0, *[0, 0] * (length - 1), ONES)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(1), Fraction(2**21), Fraction(2**52)], ids=str)
def test_tail(scale: Fraction, side: int, length: int) -> None:
    bits = tail(scale, side=side, length=length)
    draws = differences(bits, coins_of(scale), 1)
    expected = (-1) ** side * length * 2 ** coins_of(scale).digits
    assert (bits.script, bits.calls) == ([], 0)
    assert draws.exact(0) == expected
    assert laplace.laplace(tail(scale, side=side, length=length), coins_of(scale), 1).tolist() == [expected]


@pytest.mark.parametrize("side", [0, 1])
def test_noise_beyond_the_largest_is_the_largest_and_releases_alike(side: int) -> None:
    scale, sign = Fraction(2**52), (-1) ** side
    (noise,) = laplace.laplace(tail(scale, side=side, length=100), coins_of(scale), 1).tolist()
    exact = sign * 100 * 2 ** coins_of(scale).digits
    assert abs(exact) > 2**64
    assert noise == sign * LARGEST_NOISE
    for answer in (-(2**60), -1, 0, 2**60):
        for beyond in (exact, sign * LARGEST_NOISE, sign * (LARGEST_NOISE + 1)):
            assert clamped(answer + beyond) == clamped(answer + noise) == sign * 2**61


def clamped(answer: int) -> int:
    return max(-(2**61), min(2**61, answer))


def test_tails_on_both_sides_count_each() -> None:
    coins = coins_of(Fraction(2**21))
    limbs = np.full((2, len(coins.first), 3), 255, dtype=np.uint8)
    limbs[0, -1, :2] = limbs[1, -1, 1] = limbs[0, 0, 1] = 0
    zeros = np.zeros(24, dtype=np.uint8)
    bits = Scripted(limbs.reshape(-1), zeros, 0, 0, 0, ONES, 0, 0, ONES, ONES)
    draws = differences(bits, coins, 3)
    assert (bits.script, bits.calls) == ([], 0)
    assert [draws.exact(i) for i in range(3)] == [2**27, 1 + 2 * 2**27 - 2**27, 0]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(37, 10), Fraction(40)], ids=str)
def test_laplace_with_limbs_of_2_bits_and_words_of_3(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the coins tie once and a 32nd twice; H's coin is heads as often as once in e."""
    monkeypatch.setattr(laplace, "_LIMB_BITS", 2)
    monkeypatch.setattr(laplace, "WORD", 3)
    monkeypatch.setattr(probability, "WORD", 3)
    monkeypatch.setattr(laplace, "_CERTAIN", Fraction(1))
    coins = coins_of.__wrapped__(scale)
    assert coins.first.max() < 4
    assert coins.second.max() < 8
    noise = laplace.laplace(Small(), coins, 6000)
    parts = edges(laplace_below(scale), float(scale), bins=20)
    assert p_value(noise, laplace_below(scale), parts) > 1e-9
    assert p_value(noise, laplace_below(scale * Fraction(4, 5)), parts) < 1e-9


@pytest.mark.parametrize("sigma_squared", [Fraction(1, 4), Fraction(6), Fraction(1000)], ids=str)
def test_gaussian_decided_exactly_throughout(sigma_squared: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian, "_MARGIN", 2.0)
    noise = gaussian.gaussian(ChaCha20Bits(), bell_of(sigma_squared), 6000)
    parts = edges(gaussian_below(sigma_squared), math.sqrt(sigma_squared), bins=30)
    assert p_value(noise, gaussian_below(sigma_squared), parts) > 1e-9
    assert p_value(noise, gaussian_below(sigma_squared * Fraction(2, 3)), parts) < 1e-9


@pytest.mark.parametrize("draw", [0, 3, -4, 9])
def test_gaussian_acceptance_on_the_edge(draw: int) -> None:
    """Words that agree with e^(−a) on all their bits, and then not: the filter leaves them to the exact decision."""
    bell = bell_of(Fraction(37, 10))
    a = (abs(draw) - bell.centre) ** 2 / (2 * bell.sigma_squared)
    word, after = divmod(Exponential(a).digits(128), 2**64)
    draws = Draws(np.array([draw]), {}, bell.coins.digits)
    for words, kept in (([word, after - 1], True), ([word, after + 1], False), ([word - 1], True), ([word + 1], False)):
        bits = Scripted(*words)
        assert gaussian.accepted(bits, bell, draws).tolist() == [kept]
        assert (bits.script, bits.calls) == ([], 0)


def test_gaussian_keeps_what_has_probability_1() -> None:
    bell = bell_of(Fraction(6))  # t = 3, σ²/t = 2
    draws = Draws(np.array([2, -2]), {}, bell.coins.digits)
    assert gaussian.accepted(Scripted(np.full(16, 255, dtype=np.uint8)), bell, draws).all()


def test_gaussian_decides_a_tail_by_its_exact_size() -> None:
    bell = bell_of(Fraction(9, 10))  # t = 1: H counts for 2⁶
    draws = Draws(np.array([0]), {0: 1}, bell.coins.digits)  # 64, not 0: a > 2000
    assert not gaussian.accepted(Scripted(1), bell, draws).any()
    assert gaussian.accepted(Scripted(*[0] * 60), bell, draws).all()
    huge = Draws(np.array([0]), {0: -(2**80)}, bell_of(Fraction(2**102)).coins.digits)
    assert not gaussian.accepted(Scripted(1), bell_of(Fraction(2**102)), huge).any()
    assert huge.saturated().tolist() == [-LARGEST_NOISE]
    assert huge.low.tolist() == [0]


SIGMAS = [Fraction(1, 2**510), Fraction(1, 9), Fraction(37, 10), Fraction(10**12, 7), Fraction(2**102)]


@pytest.mark.parametrize("sigma_squared", SIGMAS, ids=str)
def test_the_filter_is_within_its_bound(sigma_squared: Fraction) -> None:
    """e^(−a) by floats against 200 bits: the proof says 2⁻⁴³, and the margin is 2⁻⁴⁰."""
    bell = bell_of(sigma_squared)
    n = 400
    draws = np.concatenate([np.arange(-20, 21), laplace.laplace(ChaCha20Bits(), bell.coins, n)])
    near = round(bell.centre)
    draws = np.concatenate([draws, [near, near + 1, near - 1, 2**57, -(2**57)]])
    floats = gaussian._probability(bell, draws)
    with mpmath.workprec(200):
        for draw, p in zip(draws.tolist(), floats.tolist(), strict=True):
            a = (abs(draw) - bell.centre) ** 2 / (2 * bell.sigma_squared)
            exact = mpmath.exp(-mpmath.mpf(a.numerator) / a.denominator) if a < 10**6 else 0
            assert abs(exact - p) < mpmath.mpf(2) ** -49


def test_the_exponential_of_numpy_is_good_to_far_more_than_the_proof_allows() -> None:
    x = -np.concatenate([np.linspace(0, 45, 1500), np.geomspace(1e-18, 700, 1500)])
    with mpmath.workprec(200):
        for at, p in zip(x.tolist(), np.exp(x).tolist(), strict=True):
            assert abs(mpmath.mpf(p) / mpmath.exp(at) - 1) < mpmath.mpf(2) ** -50


def test_filter_and_exact_decision_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    bell = bell_of(Fraction(1000, 7))
    draws = differences(ChaCha20Bits(), bell.coins, 3000)
    words = ChaCha20Bits().octets(8 * 3000)
    quick = gaussian.accepted(Scripted(words), bell, draws)
    monkeypatch.setattr(gaussian, "_MARGIN", 2.0)
    assert np.array_equal(quick, gaussian.accepted(Scripted(words), bell, draws))


@pytest.mark.parametrize("sign", [1, -1])
def test_gaussian_acceptance_at_the_margin_itself(sign: int) -> None:
    """U is below or above e^(−a) by exactly the margin, as floats: never kept or dropped against the exact decision."""
    bell = bell_of(Fraction(37, 10))
    draws = Draws(np.array([3]), {}, bell.coins.digits)
    (p,) = gaussian._probability(bell, draws.low).tolist()
    uniform = p - sign * gaussian._MARGIN
    assert p - uniform == sign * gaussian._MARGIN
    word = int(uniform * 2**53) << 11
    assert gaussian.accepted(Scripted(word), bell, draws).tolist() == [sign == 1]


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 13, 58])
def test_digits_make_their_number(rows: int) -> None:
    """Signs of digits can be mixed up without any test of the distribution noticing, because every digit is even."""
    digits = np.random.default_rng(rows).integers(-1, 2, size=(rows, 200)).astype(np.int8)
    expected = [sum(int(d) << k for k, d in enumerate(column)) for column in digits.T]
    assert laplace._binary(digits).tolist() == expected
