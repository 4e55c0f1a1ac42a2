"""Requirement N4: the branches for ties and tails give correct results. Bits are injected; no release can do that."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hdmm.noise import LARGEST_NOISE, laplace, probability
from hdmm.noise.laplace import coins_of, draws_of
from hdmm.noise.probability import Exponential, Logistic, Probability, Uniform
from tests.noise.exact import check_laplace, check_low_digits, edges, laplace_below, p_value
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
        assert Uniform(bits).below(coin) is heads
        assert not bits.script
        assert bits.calls == 0
    bits = Scripted(*words, last)  # a tie once more
    Uniform(bits).below(coin)
    assert bits.calls > 0


def test_a_coin_tied_on_72_digits_falls_as_the_rest_of_its_digits_say() -> None:
    """P(U < p | U and p agree on 72 digits) is the fraction of 2⁷²·p."""
    coins, n = coins_of(Fraction(3)).high, 4000
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
    coins, n = coins_of(Fraction(100)).high, 10
    limbs, second = np.tile(coins.first, n), np.tile(coins.second, n)
    heads = np.arange(second.size) % 3 == 0
    heads &= second > 0
    second = np.where(heads, second - 1, second + 1).astype("<u8")
    bits = Scripted(limbs, second.view(np.uint8))
    tossed = laplace._tossed(bits, coins, n)
    # H's coin has 72 zeros: 0 is no word below, but 1 is a word above
    assert np.array_equal(tossed.reshape(-1), heads)
    assert tossed.shape == (n, 16)


def tail(scale: Fraction, *, side: int, length: int) -> Scripted:
    """One draw whose digits are all 0, whose H is `length`, and whose sign is − on side 1."""
    parts = coins_of(scale)
    limbs = np.full(16, 255, dtype=np.uint8)
    limbs[13] = limbs[14] = 0  # heads: for H a tie, because the digits of p_H begin with 72 zeros
    limbs[15] = 0 if side else 255
    m, p = len(parts.low.probabilities), parts.high.probabilities[14]
    low = [np.zeros(next(width for width in (1, 2, 4, 8) if m <= 8 * width), dtype=np.uint8)] if m else []
    return Scripted(limbs, 0, *zeros(p, 72), *low, *zeros(p, 0) * (length - 1), ONES)


def zeros(p: Probability, places: int) -> list[int]:
    """As many words of 0 as it takes to be below p, if so many places are known to be 0 already."""
    count = 1
    while p.digits(places + 64 * count) == 0:
        count += 1
    return [0] * count


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("scale", [Fraction(100), Fraction(2**21), Fraction(2**52)], ids=str)
def test_tail(scale: Fraction, side: int, length: int) -> None:
    bits = tail(scale, side=side, length=length)
    (noise,) = laplace.laplace(bits, coins_of(scale), 1).tolist()
    expected = length * 2 ** coins_of(scale).digits
    expected = -1 - expected if side else expected
    assert (bits.script, bits.calls) == ([], 0)
    assert noise == max(-LARGEST_NOISE, min(LARGEST_NOISE, expected))


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


def test_tails_count_with_the_sign_and_the_digits_of_their_draw() -> None:
    parts = coins_of(Fraction(2**21))
    assert (len(parts.low.probabilities), parts.digits) == (14, 27)
    limbs = np.full((3, 16), 255, dtype=np.uint8)
    limbs[:, 13] = limbs[:2, 14] = limbs[1, 15] = limbs[1, 0] = 0  # heads
    none = np.zeros(16, dtype=np.uint8)
    bits = Scripted(limbs.reshape(-1), none, 0, 0, np.array([1, 0, 2, 0, 3, 0], dtype=np.uint8), ONES, 0, 0, ONES)
    draws = draws_of(bits, parts, 3)
    assert (bits.script, bits.calls) == ([], 0)
    assert draws.tolist() == [1 + 2**27, -1 - (2 + 2**14 + 2 * 2**27), 3]


def test_all_results_of_the_coins_together_have_the_probabilities_of_laplace_noise() -> None:
    """Every result without a tail, once, through the code: P(Z = z) is (1 − q)/(1 + q)·q^|z| to 400 bits."""
    scale = Fraction(1000, 7)
    parts = coins_of(scale)
    heads = np.zeros((2**15, 16), dtype=bool)
    heads[:, [*range(14), 15]] = np.arange(2**15)[:, None] >> np.arange(15) & 1
    ties = heads & (parts.high.first == 0)
    bits = Scripted(np.where(heads, 0, 255).astype(np.uint8).reshape(-1), np.zeros(8 * ties.sum(), dtype=np.uint8))
    draws = draws_of(bits, parts, len(heads))
    assert (bits.script, bits.calls, parts.low.probabilities) == ([], 0, ())
    check_laplace(draws.tolist(), heads, parts.high.probabilities, scale)


def test_all_low_digits_together_have_the_probabilities_of_a_geometric_number_below_their_power_of_2() -> None:
    """Every U, D′, D″ and result of the coin of H′, once, through the code: P(D = d) ∝ q^d to 400 bits."""
    scale, m = Fraction(1000), 3
    parts = coins_of(scale)
    U, reached, other, beyond = (x.reshape(-1) for x in np.indices((8, 8, 8, 2)))
    unsure = np.concatenate([reached[beyond == 0], other[beyond == 0]])
    limbs = np.where(unsure[:, None] >> np.arange(m) & 1, 0, 255).astype(np.uint8)
    bits = Scripted(U.astype(np.uint8), limbs.reshape(-1))
    D = laplace._lowest(bits, parts.low, beyond == 1)
    assert (bits.script, bits.calls, len(parts.low.probabilities)) == ([], 0, m)
    results = zip(reached, other, beyond, strict=True)
    check_low_digits(D.tolist(), results, parts.low.probabilities, parts.high.probabilities[13], 1000)


@pytest.mark.parametrize(
    ("scale", "certain"),
    [(Fraction(1, 3), 1), (Fraction(37, 10), 1), (Fraction(5000), 1), (Fraction(40), 4096), (Fraction(1000), 4096)],
    ids=str,
)
def test_laplace_with_limbs_of_2_bits_and_words_of_3(
    scale: Fraction, certain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the coins tie once and a 32nd twice; H, or that H′ is 0, is as common as once in 2 to 5 draws."""
    monkeypatch.setattr(laplace, "_LIMB_BITS", 2)
    monkeypatch.setattr(laplace, "WORD", 3)
    monkeypatch.setattr(probability, "WORD", 3)
    monkeypatch.setattr(laplace, "_CERTAIN", Fraction(certain))
    parts = coins_of.__wrapped__(scale)
    assert parts.high.first.max() < 4
    assert parts.high.second.max() < 8
    noise = laplace.laplace(Small(), parts, 6000)
    parts = edges(laplace_below(scale), float(scale), bins=20)
    assert p_value(noise, laplace_below(scale), parts) > 1e-9
    assert p_value(noise, laplace_below(scale * Fraction(4, 5)), parts) < 1e-9


@pytest.mark.parametrize("digits", [1, 3, 8, 9, 45])
def test_digits_make_their_number(digits: int) -> None:
    heads = np.random.default_rng(digits).integers(0, 2, size=(200, digits)).astype(bool)
    expected = [sum(int(d) << k for k, d in enumerate(row)) for row in heads]
    assert laplace._numbers(heads).tolist() == expected
