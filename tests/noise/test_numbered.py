"""Requirement N10: draws that can be computed again, by block number, are exact and the same wherever they are made."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdmm.base.exceptions import NoiseError
from hdmm.noise import LARGEST_NOISE, DeviceNoise, numbered
from hdmm.noise import device_noise as device
from hdmm.noise.chacha import Lanes, Stream
from hdmm.noise.device_noise import laplace_in
from hdmm.noise.numbered import NumberedCoins, exact_draw, numbered_coins, numbered_laplace
from hdmm.privacy.guarantee import Noise
from tests.noise.exact import check_laplace, check_low_digits, edges, laplace_below, p_value
from tests.noise.kernels import Held, OnHost, compiled_kernel
from tests.support.devices import namespaces, on_host

ONES = 2**32 - 1
SCALES = [Fraction(1, 3), Fraction(100), Fraction(2**21), Fraction(2**52)]
STARTS = [0, 2**32 - 700, 2**40 + 3]
STREAM = Stream(bytes(range(32)), 7)


class Laid:
    """A stream whose blocks are written down: by lane, draws × 16; the blocks of other lanes hold one word."""

    number = 0

    def __init__(self, *lanes: Any, rest: int = 0) -> None:
        self.lanes, self.rest = lanes, rest

    def run(self, start: int, count: int) -> Any:
        return self.lanes[0][start : start + count].astype(np.uint32)

    def blocks(self, numbers: Any, lane: int) -> Any:
        if lane < len(self.lanes):
            return self.lanes[lane][numbers.astype(int)].astype(np.uint32)
        return np.full((len(numbers), 16), self.rest, dtype=np.uint32)


class Short:
    """A real stream of which every word has 3 bits, except those that decide ties."""

    number = 0

    def run(self, start: int, count: int) -> Any:
        return STREAM.run(start, count) & np.uint32(7)

    def blocks(self, numbers: Any, lane: int) -> Any:
        words = STREAM.blocks(numbers, lane)
        return words if lane >= 2**31 else words & np.uint32(7)


def test_blocks_are_those_of_rfc_8439() -> None:
    """Section 2.3.2: the counter 1 and the nonce 00:00:00:09:00:00:00:4a:00:00:00:00."""
    (words,) = Stream(bytes(range(32)), 0).blocks(np.array([1 | 0x09000000 << 32], dtype=np.uint64), 0x4A000000)
    assert words[:4].tolist() == [0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3]
    assert words[-2:].tolist() == [0xE883D0CB, 0x4E3C50A2]


@pytest.mark.parametrize("start", STARTS)
def test_runs_are_the_blocks_of_their_numbers(start: int) -> None:
    numbers = np.arange(start, start + 20, dtype=np.uint64)
    assert np.array_equal(STREAM.run(start, 20), STREAM.blocks(numbers, 0))


def test_a_run_that_would_start_its_counter_again_is_refused() -> None:
    with pytest.raises(NoiseError, match="multiple of"):
        STREAM.run(2**32 - 5, 6)
    with pytest.raises(NoiseError, match="32 bytes"):
        Stream(bytes(31), 0)


@pytest.mark.parametrize("taken", [(200,), (1, 63, 64, 72), (64, 136)])
def test_lanes_follow_each_other(taken: tuple[int, ...]) -> None:
    """Each gives its block once: bits that came twice would be no new ones."""
    lanes = Lanes(STREAM, 5, 3)
    drawn = np.concatenate([lanes.octets(count) for count in taken])
    blocks = [STREAM.blocks(np.array([5], dtype=np.uint64), lane).astype("<u4").tobytes() for lane in range(3, 7)]
    assert drawn.tobytes() == b"".join(blocks)[:200]


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_stream_has_a_number_of_32_bits(number: int) -> None:
    assert Stream(STREAM.key, 2**32 - 1).number == 2**32 - 1
    with pytest.raises(NoiseError, match="a number of 32 bits"):
        Stream(STREAM.key, number)


def test_keys_streams_lanes_and_numbers_all_change_the_block() -> None:
    at = np.array([5], dtype=np.uint64)
    blocks = [STREAM.blocks(at, 0), STREAM.blocks(at, 1), Stream(STREAM.key, 8).blocks(at, 0)]
    blocks += [Stream(bytes(32), 7).blocks(at, 0), STREAM.blocks(at + np.uint64(2**32), 0)]
    assert len({block.tobytes() for block in blocks}) == 5
    assert "key" not in repr(STREAM)


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_draws_together_are_the_exact_draws_one_by_one(scale: Fraction, start: int) -> None:
    coins = numbered_coins(scale)
    noise = numbered_laplace(STREAM, coins, start, 1000)
    assert noise[950:].tolist() == [exact_draw(STREAM, coins, start + i) for i in range(950, 1000)]
    assert np.array_equal(noise[300:750], numbered_laplace(STREAM, coins, start + 300, 450))


def test_all_results_of_the_coins_together_have_the_probabilities_of_laplace_noise() -> None:
    """Every result without a tail, once, through the code: P(Z = z) is (1 − q)/(1 + q)·q^|z| to 400 bits."""
    scale = Fraction(300, 7)
    coins = numbered_coins(scale)
    assert not coins.low
    heads = np.zeros((2**13, 14), dtype=bool)
    heads[:, [*range(12), 13]] = np.arange(2**13)[:, None] >> np.arange(13) & 1
    # a coin whose probability begins with 32 zeros shows heads if the lanes after 2³¹ say so, which here are 0
    words = np.concatenate([np.where(heads, 0, ONES), np.zeros((2**13, 2))], axis=1)
    noise = numbered_laplace(Laid(words), coins, 0, len(heads))
    check_laplace(noise.tolist(), heads, coins.high, scale)


def test_all_low_digits_together_have_the_probabilities_of_a_geometric_number_below_their_power_of_2() -> None:
    """Every U, D′, D″ and result of the coin of H′, once, through the code: P(D = d) ∝ q^d to 400 bits."""
    coins, m = numbered_coins(Fraction(300)), 3
    assert len(coins.low) == m
    U, reached, other, beyond = (x.reshape(-1) for x in np.indices((8, 8, 8, 2)))
    first, second = np.full((len(U), 16), ONES), np.full((len(U), 16), ONES)
    first[:, 11], first[:, 14], first[:, 15] = np.where(beyond, 0, ONES), U | 8, ONES
    digits = np.concatenate([reached[:, None] >> np.arange(m) & 1, other[:, None] >> np.arange(m) & 1], axis=1)
    second[:, : 2 * m] = np.where(digits, 0, ONES)
    D = numbered_laplace(Laid(first, second), coins, 0, len(U))
    check_low_digits(D.tolist(), zip(reached, other, beyond, strict=True), coins.low, coins.high[11], 300)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("scale", SCALES[1:], ids=str)
def test_a_tail_goes_on_for_as_long_as_its_coin_shows_heads(scale: Fraction, sign: bool) -> None:
    """All lanes after 2³¹ are 0 in one stream and 1 in the other: noise without end is the largest, or H is 0."""
    coins = numbered_coins(scale)
    words = np.array([[ONES] * 11 + [0, 0, 0 if sign else ONES, 0, 0]])
    (none,) = numbered_laplace(Laid(words, rest=ONES), coins, 0, 1).tolist()
    assert none == (-1 if sign else 0)
    lanes = {"at": 0}

    class Counted(Laid):
        def blocks(self, numbers: Any, lane: int) -> Any:
            lanes["at"] += lane >= 2**31
            return super().blocks(numbers, lane) | np.uint32(ONES * (lanes["at"] > 4))

    (some,) = numbered_laplace(Counted(words), coins, 0, 1).tolist()
    H, rest = divmod(-1 - some if sign else some, 2**coins.digits)
    assert rest == 0 or abs(some) == LARGEST_NOISE
    assert H >= 1


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(37, 10), Fraction(2000)], ids=str)
def test_ties_of_few_digits_are_decided_exactly(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """With words of 3 bits an eighth of the coins tie; at the larger scale H > 0 is as common as once in 3 draws."""
    monkeypatch.setattr(numbered, "_PLACES", 3)
    monkeypatch.setattr(numbered, "_CERTAIN", Fraction(1))
    coins = numbered_coins.__wrapped__(scale)
    assert coins.high_first.max() < 8
    assert not coins.low
    noise = numbered_laplace(Short(), coins, 0, 1000)
    parts = edges(laplace_below(scale), float(scale), bins=20)
    assert p_value(noise, laplace_below(scale), parts) > 1e-9
    assert p_value(noise, laplace_below(scale * Fraction(1, 2)), parts) < 1e-9


@pytest.mark.parametrize("scale", [Fraction(37, 10), Fraction(2**21)], ids=str)
def test_numbered_draws_have_the_distribution_of_their_scale(scale: Fraction) -> None:
    noise = numbered_laplace(Stream(os.urandom(32), 0), numbered_coins(scale), 0, 200_000)
    parts = edges(laplace_below(scale), float(scale))
    assert p_value(noise, laplace_below(scale), parts) > 1e-9
    assert p_value(noise, laplace_below(scale * Fraction(19, 20)), parts) < 1e-9


def tied(coins: NumberedCoins, start: int) -> NumberedCoins:
    """The same coins, one of which ties on draw 5 of those that start there."""
    first = coins.high_first.copy()
    first[3] = STREAM.run(start, 6)[5, 3]
    return replace(coins, high_first=first)


def test_a_tie_of_any_coin_of_the_lowest_digits_is_decided_exactly() -> None:
    """The coin shows heads, though its first digits are those of its probability."""
    coins = numbered_coins(SCALES[3])
    m = len(coins.low)
    asked = np.flatnonzero(STREAM.run(0, 1000)[:, numbered.BEYOND] >= coins.high_first[numbered.BEYOND])
    words = numbered._further(STREAM, asked.astype(np.uint64), m).reshape(-1, 2, m)
    for i, (_, other) in zip(asked.tolist(), words, strict=True):
        k = int(np.flatnonzero(other < coins.low_first)[0])
        low_first = coins.low_first.copy()
        low_first[k] = other[k]
        drawn = numbered_laplace(STREAM, replace(coins, low_first=low_first), i, 1)
        assert drawn[0] == exact_draw(STREAM, coins, i)
    assert len(asked) > 10


@pytest.mark.parametrize("xp", namespaces())
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_every_namespace_draws_the_same_numbers(xp: Any, scale: Fraction, start: int) -> None:
    for coins in (numbered_coins(scale), tied(numbered_coins(scale), start)):
        for size in (0, 1, 9000):
            drawn = on_host(laplace_in(xp, STREAM, coins, start, size))
            assert np.array_equal(drawn, numbered_laplace(STREAM, coins, start, size))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Any:
    return compiled_kernel("laplace", folder)


@pytest.fixture(scope="module")
def on_processor(folder: Path) -> OnHost:
    return OnHost(folder)


@pytest.mark.parametrize("room", [4096, 0])
@pytest.mark.parametrize("start", STARTS)
def test_what_a_kernel_leaves_is_drawn_exactly(
    start: int, room: int, on_processor: OnHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, or everything again if there is no room for a list of what is left."""
    monkeypatch.setattr(device, "_ROOM", room)
    coins = tied(numbered_coins(SCALES[2]), start)
    for size in (0, 1, 9000):
        drawn = laplace_in(on_processor, STREAM, coins, start, size)
        assert isinstance(drawn, Held)
        assert np.array_equal(drawn, numbered_laplace(STREAM, coins, start, size))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_the_kernel_draws_the_numbers_that_numpy_draws(compiled: Any, scale: Fraction) -> None:
    for start in STARTS:
        coins, size = tied(numbered_coins(scale), start), 9001
        secrets = np.concatenate([STREAM.key_words, coins.high_first, coins.low_first]).astype(np.uint32)
        out, ties, count = np.empty(size, np.int64), np.zeros(8, np.uint64), np.zeros(1, np.uint32)
        at = [ctypes.c_void_p(array.ctypes.data) for array in (secrets, out, ties, count)]
        numbers = ctypes.c_int(len(coins.low)), ctypes.c_uint(7), ctypes.c_ulonglong(start), ctypes.c_ulonglong(size)
        compiled(at[0], *numbers, at[1], at[2], at[3], ctypes.c_uint(8))
        assert ties[: count[0]].tolist() == [5]
        expected = numbered_laplace(STREAM, coins, start, size)
        out[5] = expected[5]
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("kind", Noise)
@pytest.mark.parametrize("xp", namespaces())
def test_no_two_calls_or_objects_draw_the_same(xp: Any, kind: Noise) -> None:
    one, two = DeviceNoise(xp), DeviceNoise(xp)
    drawn = [on_host(noise.draw(kind, 2**21, 100)).tobytes() for noise in (one, one, two, two)]
    assert len(set(drawn)) == 4
    assert "hidden" in repr(one)
    with pytest.raises(NoiseError):
        one.draw(kind, 0, 5)


def test_a_forked_child_draws_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = DeviceNoise(np)
    key = noise._key
    monkeypatch.setattr(device.os, "getpid", lambda: -1)
    noise.draw(Noise.LAPLACE, 100, 1)
    assert noise._key != key


def test_words_of_probabilities_are_certified() -> None:
    """The 32 digits that coins are compared with first are those of their probability to 600 bits."""
    for scale in SCALES:
        coins = numbered_coins(scale)
        for p, first in zip(coins.low + coins.high, [*coins.low_first, *coins.high_first], strict=True):
            assert p.digits(600) >> 568 == first
