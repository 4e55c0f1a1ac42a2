"""Requirement N7: the bits come from the operating system, and no two calls, threads or processes share them."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from hdmm import noise
from hdmm.noise import bits as module
from hdmm.noise import discrete_laplace, rounded_gaussian
from hdmm.noise.bits import Bits, ChaCha20Bits, IntegerArray, KeyedBits, drawn

CHILDREN = 8
LENGTH = 64


def in_child(work: Callable[[], bytes]) -> bytes:
    """What work() gives in a forked child."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child == 0:
        status = 1  # an exception must not go on as a second pytest
        try:
            os.write(write, work())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        given = pipe.read()
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0, "the work failed in the child"
    return given


def test_work_that_fails_in_a_child_fails_here() -> None:
    def fails() -> bytes:
        raise ValueError("in the child")

    with pytest.raises(AssertionError, match="failed in the child"):
        in_child(fails)


@pytest.mark.parametrize("used", [0, 10])
def test_children_of_a_fork_have_streams_of_their_own(used: int) -> None:
    source = ChaCha20Bits()
    source.octets(used)
    streams = [in_child(lambda: source.octets(LENGTH).tobytes()) for _ in range(CHILDREN)]
    streams.append(source.octets(LENGTH).tobytes())
    assert all(len(stream) == LENGTH for stream in streams)
    # nor does one child repeat another's, or the parent's, at some other place
    pieces = [stream[i : i + 8] for stream in streams for i in range(LENGTH - 7)]
    assert len(set(pieces)) == len(pieces)


@pytest.mark.parametrize("sampler", [discrete_laplace, rounded_gaussian])
def test_children_of_a_fork_draw_other_noise(sampler: Callable[[int, int], IntegerArray]) -> None:
    sampler(2**42, 5)
    draws = [in_child(lambda: sampler(2**42, LENGTH).tobytes()) for _ in range(CHILDREN)]
    draws.append(sampler(2**42, LENGTH).tobytes())
    assert len(set(draws)) == CHILDREN + 1
    assert len(set.union(*(set(np.frombuffer(d, dtype=np.int64).tolist()) for d in draws))) > 0.99 * LENGTH * 9


def test_a_fork_amid_drawing_makes_the_child_draw_again() -> None:
    """As when a signal handler forks: both processes go on in the same call, with the same bits in hand."""
    read, write = os.pipe()
    child = -1

    def draw(source: Bits) -> IntegerArray:
        nonlocal child
        first = source.words(LENGTH).astype(np.int64)
        if child < 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
        return first

    drawn_here = drawn(draw)
    if child == 0:
        try:
            os.write(write, drawn_here.tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64)
    os.waitpid(child, 0)
    assert theirs.shape == drawn_here.shape
    assert not set(theirs.tolist()) & set(drawn_here.tolist())


def test_a_child_is_known_by_its_id_where_no_hook_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ChaCha20Bits()
    stream = source._stream
    source.octets(8)
    assert source._stream is stream
    assert not source.forked
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert source.forked
    source.octets(8)
    assert source._stream is not stream
    assert source.forked


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_a_child_is_known_by_the_hook_where_its_id_came_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process ids are reused: a child of a child may have its grandparent's. The count of forks tells them apart."""
    source = ChaCha20Bits()
    source.octets(8)
    monkeypatch.setattr(os, "getpid", lambda: source._born[0])

    def told() -> bytes:
        forked, stream = source.forked, source._stream
        octets = source.octets(LENGTH).tobytes()
        return bytes([forked, source._stream is not stream]) + octets

    given = in_child(told)
    assert given[:2] == bytes([True, True])
    assert given[2:] != source.octets(LENGTH).tobytes()
    assert not source.forked


def test_threads_draw_other_noise() -> None:
    with ThreadPoolExecutor(8) as pool:
        draws = [d.tobytes() for d in pool.map(lambda _: discrete_laplace(2**40, LENGTH), range(64))]
    assert len(set(draws)) == 64


def test_calls_have_keys_of_their_own_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or urandom(n))
    discrete_laplace(3, 1)
    discrete_laplace(3, 1)
    rounded_gaussian(3, 1)
    assert asked == [32, 16] * 3


def test_a_key_serves_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_KEY", 100)
    source = ChaCha20Bits()
    stream, octets = source._stream, source.octets(250)
    assert source._stream is not stream
    assert octets.shape == (250,)
    assert len({octets[i : i + 8].tobytes() for i in range(243)}) == 243


@pytest.mark.parametrize("counts", [[700_001], [0, 1, 2**18, 2**18 + 1, 5]], ids=str)
def test_the_bits_are_the_ciphers_key_stream(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    """Every byte comes from the cipher, in its order, however many are asked for at a time."""
    monkeypatch.setattr(module.os, "urandom", lambda n: bytes(range(n)))
    key, nonce = bytes(range(32)), bytes(range(16))
    stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(sum(counts)))
    for source in (ChaCha20Bits(), KeyedBits(key, nonce)):
        assert b"".join(source.octets(count).tobytes() for count in counts) == stream


def test_a_key_is_dropped_long_before_its_counter_repeats() -> None:
    """A 32-bit counter of 64-byte blocks repeats after 2³⁸ bytes."""
    assert ChaCha20Bits()._left <= 2**38 // 256


@pytest.mark.parametrize("last", [0, 1, 100])
def test_a_counter_that_starts_near_its_end_is_replaced_before_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    asked: list[bytes] = []
    urandom = os.urandom

    def near_the_end(n: int) -> bytes:
        asked.append(b"")
        return (2**32 - 1 - last).to_bytes(4, "little") + bytes(12) if len(asked) == 2 else urandom(n)

    monkeypatch.setattr(module.os, "urandom", near_the_end)
    assert len(set(ChaCha20Bits().octets(2**15).view("<u8").tolist())) == 2**12
    assert len(asked) == 4


def test_the_bits_are_even() -> None:
    octets = ChaCha20Bits().octets(2**20)
    counts = np.bincount(octets, minlength=256)
    assert 100 < ((counts - 4096) ** 2).sum() / 4096 < 460  # 255 ± 23
    assert octets.flags.writeable


def test_what_a_release_calls_takes_no_seed_and_no_bits() -> None:
    draws = {"rounded_gaussian", "discrete_laplace"}
    draws |= {"draw", "check_scale", "exact_scale", "exact_variance"}
    assert set(noise.__all__) == draws | {
        "LARGEST_NOISE",
        "LARGEST_SCALE",
        "HIDING",
        "KeyNotHereError",
        "ReleaseKey",
        "SealedKey",
        "DeviceNoise",
    }
    assert list(inspect.signature(noise.DeviceNoise).parameters) == ["xp"]
    assert list(inspect.signature(noise.DeviceNoise.draw).parameters) == ["self", "noise", "scale", "size"]
    assert list(inspect.signature(noise.draw).parameters) == ["noise", "scale", "size"]
    assert list(inspect.signature(discrete_laplace).parameters) == ["scale", "size"]
    assert list(inspect.signature(rounded_gaussian).parameters) == ["sigma_squared", "size"]
    assert not inspect.signature(ChaCha20Bits).parameters
    assert not inspect.signature(noise.ReleaseKey).parameters
    np.random.seed(0)
    first = discrete_laplace(Fraction(2**40), LENGTH)
    np.random.seed(0)
    assert not np.array_equal(first, discrete_laplace(Fraction(2**40), LENGTH))


@pytest.mark.parametrize(("places", "width"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4), (33, 8), (64, 8)])
def test_numbers_take_as_few_bytes_as_they_need(places: int, width: int) -> None:
    bits = KeyedBits(bytes(32), bytes(16))
    numbers = bits.numbers(places, 1000)
    assert numbers.dtype.itemsize == width
    assert np.bitwise_or.reduce(numbers) == 2**places - 1
    again = KeyedBits(bytes(32), bytes(16))
    again.octets(1000 * width)
    assert bits.word() == again.word()
