"""Requirement N10: noise that is drawn again is the same, no two draws share a stream, and the key is never shown."""

from __future__ import annotations

import copy
import logging
import math
import os
import pickle
import traceback
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from hdmm.base.exceptions import NoiseError
from hdmm.noise import HIDING, LARGEST_NOISE, ReleaseKey, draw, keyed
from hdmm.noise import bits as module
from hdmm.noise.bits import IntegerArray, KeyedBits
from hdmm.privacy.guarantee import Noise
from tests.noise.exact import edges, gaussian_below, laplace_below, p_value
from tests.noise.test_bits import in_child

SIZE = 1000
CHUNK = 1 << 18
RARE = 1e-9
OFF = Fraction(2, 100)


def drawn(key: ReleaseKey, noise: Noise = Noise.LAPLACE, scale: int = 2**40, size: int = SIZE, **where: int) -> bytes:
    return key.draw(noise, Fraction(scale), size, **{"block": 0, "chunk": 0, **where}).tobytes()


@pytest.mark.parametrize("noise", Noise)
def test_a_chunk_that_is_drawn_again_is_the_same(noise: Noise) -> None:
    """In any order, after other draws, in a forked child, and by a key that was handed to a worker."""
    with ReleaseKey() as key:
        first = {(b, c): drawn(key, noise, block=b, chunk=c) for b, c in product(range(3), range(3))}
        for (b, c), numbers in reversed(first.items()):
            assert drawn(key, noise, block=b, chunk=c) == numbers
        arrived = pickle.loads(pickle.dumps(key.sealed()))
        assert isinstance(arrived, ReleaseKey)
        assert drawn(arrived, noise, block=2, chunk=1) == first[2, 1]
        assert in_child(lambda: drawn(key, noise, block=2, chunk=1)) == first[2, 1]


def test_draws_that_differ_in_anything_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block, chunk, scale, size, distribution and release: each one changes the key or the nonce."""
    streams: list[tuple[bytes, bytes]] = []

    def recorded(key: bytearray, nonce: bytes) -> KeyedBits:
        streams.append((bytes(key), nonce))
        return KeyedBits(key, nonce)

    monkeypatch.setattr(keyed, "KeyedBits", recorded)
    draws: list[bytes] = []
    for key in (ReleaseKey(), ReleaseKey()):
        draws += [drawn(key, block=b, chunk=c) for b, c in product((0, 1, 2**32 - 1), (0, 1, 256, 2**32 - 1))]
        draws += [drawn(key, scale=2**40 + 1), drawn(key, size=SIZE + 1), drawn(key, Noise.GAUSSIAN)]
    assert len(set(streams)) == len(streams) == len(draws)
    assert {nonce[:8] for _, nonce in streams} == {bytes(8)}  # from the first block on, of as many as a stream has
    numbers = [set(np.frombuffer(each, dtype=np.int64).tolist()) for each in draws]
    assert len(set.union(*numbers)) > 0.99 * sum(map(len, numbers))


def test_chunks_are_independent() -> None:
    key = ReleaseKey()
    chunks = [key.draw(Noise.LAPLACE, Fraction(2**30), CHUNK, block=b, chunk=c) for b in (0, 1) for c in (0, 1)]
    x = np.stack(chunks) / np.std(chunks)
    for shift in (0, 1, 7, 8192):
        for i, j in ((0, 1), (0, 2), (1, 2), (2, 3)):
            assert abs(np.mean(x[i] * np.roll(x[j], shift))) < 7 / math.sqrt(CHUNK)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(37, 10), Fraction(2**21)], ids=str)
@pytest.mark.parametrize("noise", Noise)
def test_keyed_noise_has_its_distribution(noise: Noise, scale: Fraction) -> None:
    """The same test as that of other noise, over several chunks: a scale 2 % off is noticed."""
    power = noise.order
    below = gaussian_below if noise is Noise.GAUSSIAN else laplace_below
    key = ReleaseKey()
    sample = np.concatenate([key.draw(noise, scale**power, CHUNK, block=1, chunk=c) for c in range(4)])
    parts = edges(below(scale**power), float(scale))
    assert p_value(sample, below(scale**power), parts) > RARE
    for wrong in (scale * (1 - OFF), scale * (1 + OFF)):
        assert p_value(sample, below(wrong**power), parts) < RARE


@pytest.mark.parametrize("noise", Noise)
def test_keyed_bits_give_what_the_sampler_gives(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one sampler serves both: with the keyed stream in place of the operating system's, `draw` gives the same."""
    key = ReleaseKey()
    seen: list[KeyedBits] = []
    monkeypatch.setattr(keyed, "KeyedBits", lambda k, nonce: seen.append(KeyedBits(k, nonce)) or KeyedBits(k, nonce))
    expected = key.draw(noise, Fraction(2**20), SIZE, block=0, chunk=0)
    for sampler in ("laplace", "gaussian"):
        home = __import__(f"hdmm.noise.{sampler}", fromlist=[sampler])
        monkeypatch.setattr(home, "drawn", lambda sample: sample(seen[0]))
    assert np.array_equal(draw(noise, Fraction(2**20), SIZE), expected)


def test_the_key_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or urandom(n))
    key = ReleaseKey()
    drawn(key)
    assert asked == [32]


def test_a_stream_ends_before_its_counter_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 32-bit counter of 64-byte blocks repeats after 2³⁸ bytes, and the nonce begins beyond a 64-bit one."""
    bits = KeyedBits(bytes(32), bytes(16))
    assert bits._left == 2**38
    monkeypatch.setattr(module, "_BYTES_PER_NONCE", 100)
    bits = KeyedBits(bytes(32), bytes(16))
    bits.octets(99)
    with pytest.raises(NoiseError, match="smaller chunks"):
        bits.octets(2)
    with pytest.raises(NoiseError, match="smaller chunks"):
        drawn(ReleaseKey())


@pytest.mark.parametrize("where", [{"block": -1}, {"block": 2**32}, {"chunk": -1}, {"chunk": 2**32}], ids=str)
def test_numbers_that_would_share_a_nonce_are_refused(where: dict[str, int]) -> None:
    with pytest.raises(NoiseError, match=r"from 0 to 2\*\*32 - 1"):
        drawn(ReleaseKey(), **where)


def test_a_forgotten_key_draws_nothing() -> None:
    key = ReleaseKey()
    secret = key._secret
    with key:
        drawn(key)
    assert not any(secret)
    with pytest.raises(NoiseError, match="forgotten"):
        drawn(key)


def test_what_is_hidden_is_read_with_the_key_alone() -> None:
    key, numbers = ReleaseKey(), np.arange(1000).tobytes()
    first, again = (key.hidden(numbers, "tile 1") for _ in range(2))
    assert first != again  # no nonce twice
    assert len(first) == len(numbers) + HIDING
    assert numbers[8:24] not in first
    assert key.shown(first, "tile 1") == key.shown(again, "tile 1") == numbers
    flipped = bytes([first[0] ^ 1]) + first[1:]
    for altered, place in ((first, "tile 2"), (first[:-1], "tile 1"), (flipped, "tile 1"), (b"", "tile 1")):
        with pytest.raises(NoiseError, match="altered"):
            key.shown(altered, place)
    with pytest.raises(NoiseError, match="altered"):
        ReleaseKey().shown(first, "tile 1")


def test_a_key_is_not_written_or_copied_by_mistake() -> None:
    key = ReleaseKey()
    for write in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (key, [key], {"key": key}):
            if write is copy.copy and thing is not key:
                continue  # a copy of a list holds the same key
            with pytest.raises(NoiseError, match="never written or copied"):
                write(thing)
    with pytest.raises(TypeError):
        vars(key)


def test_a_key_that_has_arrived_is_held_once() -> None:
    make, (secret,) = ReleaseKey().sealed().__reduce__()
    expected = bytes(secret)
    arrived = make(secret)
    assert (bytes(arrived._secret), secret) == (expected, bytearray(32))


def test_a_key_is_not_shown(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by repr, str and format, nor in logs, nor in a traceback that prints every variable of every frame."""
    key = ReleaseKey()
    logging.getLogger("test").warning("%s %r %s", key, key.sealed(), [key])
    shown = [repr(key), str(key), f"{key}", repr(key.sealed()), repr(key._secret), str(key._secret), caplog.text]

    def fails(*_: object) -> IntegerArray:
        raise RuntimeError("a worker failed")

    monkeypatch.setattr(keyed, "from_bits", fails)
    try:
        drawn(key)
    except RuntimeError as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown.append("".join(told.format()))
    text, secret = "\n".join(shown), bytes(key._secret)
    assert "self = ReleaseKey(hidden)" in text
    assert not any(piece.hex() in text for piece in (secret[:8], secret[-8:]))
    assert not any(repr(piece)[2:-1] in text for piece in (secret[:8], secret[-8:]))
    assert "bytearray(" not in text


def test_the_largest_noise_is_clamped_as_ever() -> None:
    sample = ReleaseKey().draw(Noise.LAPLACE, Fraction(2**52), SIZE, block=0, chunk=0)
    assert np.abs(sample).max() <= LARGEST_NOISE
