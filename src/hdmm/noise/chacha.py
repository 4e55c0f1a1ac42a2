"""ChaCha20 by block number: any block of a key stream, without those before it (RFC 8439, section 2.3).

A block is 16 words of 32 bits that depend on a key of 256 bits and on 128 bits of position. Here a position is the
number of a draw (64 bits), a lane (32 bits: a draw that needs more than one block has them in further lanes) and a
stream (32 bits: one for each array of draws under a key). No position serves two purposes, so no bit is used twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from hdmm.base.exceptions import NoiseError
from hdmm.base.mixing import Words
from hdmm.noise.bits import Bits, Octets

HalfWords: TypeAlias = NDArray[np.uint32]

BLOCK = 16  # words of 32 bits
KEY_BYTES = 32
_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
_COLUMNS = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
_DIAGONALS = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
_WRAP = 2**32  # numbers of draws at which a 32-bit counter starts again


@final
@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The blocks of one stream under a key. The key is a secret of one release: it is never shown or written.

    >>> Stream(bytes(32), 0).run(0, 3).shape
    (3, 16)
    """

    key: bytes = field(repr=False)
    number: int

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 0 <= self.number < 2**32:
            raise NoiseError(f"A stream has a key of {KEY_BYTES} bytes and a number of 32 bits. Give both so.")

    @property
    def key_words(self) -> HalfWords:
        """The key as 8 words."""
        return np.frombuffer(self.key, dtype="<u4")

    def run(self, start: int, count: int) -> HalfWords:
        """The blocks of lane 0 of consecutive draws, count × 16; `start` + `count` may not pass a multiple of 2³²."""
        if start % _WRAP + count > _WRAP:
            raise NoiseError("A run of blocks may not pass a multiple of 2**32. Ask for it in two parts.")
        position = np.array([start % _WRAP, start // _WRAP, 0, self.number], dtype="<u4").tobytes()
        cipher = Cipher(algorithms.ChaCha20(self.key, position), mode=None).encryptor()
        out = bytearray(4 * BLOCK * count)
        cipher.update_into(bytes(len(out)), out)
        return np.frombuffer(out, dtype="<u4").reshape(count, BLOCK)

    def blocks(self, numbers: Words, lane: int) -> HalfWords:
        """The blocks of one lane of any draws: len(numbers) × 16. About 1 µs each; for consecutive ones use `run`."""
        state = [np.full(len(numbers), word, dtype=np.uint32) for word in (*_CONSTANTS, *self.key_words)]
        low, high = (numbers & np.uint64(_WRAP - 1)).astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)
        state += [low, high, np.full_like(low, lane), np.full_like(low, self.number)]
        mixed = [word.copy() for word in state]
        for _ in range(10):
            for quarter in (*_COLUMNS, *_DIAGONALS):
                _quarter_round(mixed, *quarter)
        return np.stack([word + first for word, first in zip(mixed, state, strict=True)], axis=1)


@final
class Lanes(Bits):
    """The bits of one draw's lanes, from a given one on, in sequence: for what a fixed number of blocks may not end."""

    __slots__ = ("_lane", "_left", "_number", "_stream")

    def __init__(self, stream: Stream, number: int, lane: int) -> None:
        self._stream, self._number, self._lane = stream, np.array([number], dtype=np.uint64), lane
        self._left = np.empty(0, dtype=np.uint8)

    def octets(self, count: int) -> Octets:
        while self._left.size < count:
            block = self._stream.blocks(self._number, self._lane).astype("<u4").view(np.uint8)
            self._left = np.concatenate([self._left, block[0]])
            self._lane += 1
        taken, self._left = self._left[:count].copy(), self._left[count:]
        return taken


def _quarter_round(state: list[HalfWords], a: int, b: int, c: int, d: int) -> None:
    for to, added, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[to] += state[added]
        state[turned] ^= state[to]
        state[turned] = state[turned] << np.uint32(by) | state[turned] >> np.uint32(32 - by)
