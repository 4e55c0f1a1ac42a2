"""Requirement N4: the branches for ties and tails give correct results. Bits are injected; no release can do that."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hdmm.noise import LARGEST_NOISE, gaussian, laplace, probability
from hdmm.noise.bits import ChaCha20Bits, Octets
from hdmm.noise.gaussian import bell_of
from hdmm.noise.laplace import Draws, coins_of, draws_of
from hdmm.noise.probability import Exponential, Logistic, Probability, below
from tests.noise.exact import check_laplace, check_low_digits, edges, gaussian_below, laplace_below, p_value
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
    draws = draws_of(bits, coins_of(scale), 1)
    expected = length * 2 ** coins_of(scale).digits
    expected = -1 - expected if side else expected
    assert (bits.script, bits.calls) == ([], 0)
    assert draws.exact(0) == expected
    (noise,) = laplace.laplace(tail(scale, side=side, length=length), coins_of(scale), 1).tolist()
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
    assert [draws.exact(i) for i in range(3)] == [1 + 2**27, -1 - (2 + 2**14 + 2 * 2**27), 3]


def test_all_results_of_the_coins_together_have_the_probabilities_of_laplace_noise() -> None:
    """Every result without a tail, once, through the code: P(Z = z) is (1 − q)/(1 + q)·q^|z| to 400 bits."""
    scale = Fraction(1000, 7)
    parts = coins_of(scale)
    heads = np.zeros((2**15, 16), dtype=bool)
    heads[:, [*range(14), 15]] = np.arange(2**15)[:, None] >> np.arange(15) & 1
    ties = heads & (parts.high.first == 0)
    bits = Scripted(np.where(heads, 0, 255).astype(np.uint8).reshape(-1), np.zeros(8 * ties.sum(), dtype=np.uint8))
    draws = draws_of(bits, parts, len(heads))
    assert (bits.script, bits.calls, draws.tails, parts.low.probabilities) == ([], 0, {}, ())
    check_laplace(draws.low.tolist(), heads, parts.high.probabilities, scale)


@pytest.mark.parametrize(
    ("draw", "a"), [(1, 0), (-1, 0), (0, Fraction(1, 4)), (2, Fraction(1, 4)), (3, 1), (-3, 1), (9, 16)], ids=str
)
def test_an_acceptance_in_doubt_is_decided_by_the_digits_of_its_probability(draw: int, a: Fraction) -> None:
    """Of σ² = 2, from Laplace noise of scale 2: e^(−a) with a = (|Y| − 1)²/4, and no bit more if 32 places decide."""
    with mpmath.workprec(200):
        first = int(mpmath.floor(mpmath.exp(-mpmath.mpf(a.numerator) / a.denominator) * 2**32))
    for uniform, kept in ((0, True), (first - 1, True), (first + 1, False), (2**32 - 1, a == 0)):
        if 0 <= uniform < 2**32 and uniform != first:
            bits = Scripted()
            assert gaussian._decided(bits, bell_of(Fraction(2)), draw, uniform) is kept
            assert bits.calls == 0


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
    first, after = divmod(Exponential(a).digits(96), 2**64)
    draws = Draws(np.array([draw]), {}, bell.laplace.digits)
    for word, rest, kept in (
        (first, [after - 1], True),
        (first, [after + 1], False),
        (first - 1, [], True),
        (first + 1, [], False),
    ):
        bits = Scripted(uniform(word), *rest)
        assert gaussian.accepted(bits, bell, draws).tolist() == [kept]
        assert (bits.script, bits.calls) == ([], 0)


def uniform(word: int) -> Octets:
    """The 32 bits by which the filter decides."""
    return np.frombuffer(word.to_bytes(4, "little"), dtype=np.uint8)


def test_gaussian_keeps_what_has_probability_1() -> None:
    bell = bell_of(Fraction(6))  # t = 3, σ²/t = 2
    draws = Draws(np.array([2, -2]), {}, bell.laplace.digits)
    assert gaussian.accepted(Scripted(np.full(8, 255, dtype=np.uint8)), bell, draws).all()


def test_gaussian_decides_a_tail_by_its_exact_size() -> None:
    bell = bell_of(Fraction(9, 10))  # t = 1: H counts for 2¹³
    draws = Draws(np.array([0]), {0: 1}, 6)  # 64, not 0: a > 2000
    assert not gaussian.accepted(Scripted(uniform(1)), bell, draws).any()
    assert gaussian.accepted(Scripted(uniform(0), *[0] * 60), bell, draws).all()
    huge = Draws(np.array([0]), {0: -(2**80)}, bell_of(Fraction(2**102)).laplace.digits)
    assert not gaussian.accepted(Scripted(uniform(1)), bell_of(Fraction(2**102)), huge).any()
    assert huge.saturated().tolist() == [-LARGEST_NOISE]
    assert huge.low.tolist() == [0]


SIGMAS = [Fraction(1, 2**510), Fraction(1, 9), Fraction(37, 10), Fraction(10**12, 7), Fraction(2**102)]


@pytest.mark.parametrize("sigma_squared", SIGMAS, ids=str)
def test_the_filter_is_within_its_bound(sigma_squared: Fraction) -> None:
    """e^(−a) by floats against 200 bits: the proof says 2⁻⁴³, and the margin is 2⁻²⁸."""
    bell = bell_of(sigma_squared)
    n = 400
    draws = np.concatenate([np.arange(-20, 21), laplace.laplace(ChaCha20Bits(), bell.laplace, n)])
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
    draws = draws_of(ChaCha20Bits(), bell.laplace, 3000)
    words = ChaCha20Bits().octets(4 * 3000)
    quick = gaussian.accepted(Scripted(words), bell, draws)
    monkeypatch.setattr(gaussian, "_MARGIN", 2.0)
    assert np.array_equal(quick, gaussian.accepted(Scripted(words), bell, draws))


@pytest.mark.parametrize("sign", [1, -1])
def test_gaussian_acceptance_at_the_margin_itself(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """U is below or above e^(−a) by exactly the margin, as floats: never kept or dropped against the exact decision."""
    bell = bell_of(Fraction(37, 10))
    draws = Draws(np.array([3]), {}, bell.laplace.digits)
    word = round(gaussian._probability(bell, draws.low)[0] * 2**32)
    monkeypatch.setattr(gaussian, "_probability", lambda _bell, _draws: np.array([word / 2**32]))
    bits = Scripted(uniform(word - sign * round(gaussian._MARGIN * 2**32)))
    assert gaussian.accepted(bits, bell, draws).tolist() == [sign == 1]


@pytest.mark.parametrize("digits", [1, 3, 8, 9, 45])
def test_digits_make_their_number(digits: int) -> None:
    heads = np.random.default_rng(digits).integers(0, 2, size=(200, digits)).astype(bool)
    expected = [sum(int(d) << k for k, d in enumerate(row)) for row in heads]
    assert laplace._numbers(heads).tolist() == expected
