"""Random bits: ChaCha20 under a key from the operating system (security N7).

There is no seed, no state that outlives a call, and no stream that two calls, threads or processes share: `drawn`
makes a key, uses it and discards it. `KeyedBits` are for draws that must be the same when they are made again
(keyed.py). The samplers take a `Bits`, so that tests can give them bits that reach every branch; the functions that a
release calls (`hdmm.noise`) take none.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from hdmm.base.exceptions import NoiseError
from hdmm.base.mixing import Words

Octets: TypeAlias = NDArray[np.uint8]
IntegerArray: TypeAlias = NDArray[np.int64]

_KEY_BYTES = 32
_NONCE_BYTES = 16
_BYTES_PER_KEY = 2**30
_BYTES_PER_NONCE = 2**38  # the 2³² blocks of 64 bytes after which ChaCha20's counter repeats
# What the cipher encrypts. If it were made for every call, its new pages could take longer than the cipher does.
_ZEROS = memoryview(bytes(2**18))
_forks = 0


class Bits(ABC):
    """A source of independent, uniform bits."""

    @abstractmethod
    def octets(self, count: int) -> Octets:
        """The next `count` bytes, in an array that the caller may change."""

    def words(self, count: int) -> Words:
        """The next `count` words of 64 bits."""
        return self.octets(8 * count).view("<u8")

    def numbers(self, places: int, count: int) -> NDArray[np.unsignedinteger]:
        """The next `count` numbers of so many binary places, at most 64, each in as few bytes as NumPy has for it."""
        width = next(width for width in (1, 2, 4, 8) if places <= 8 * width)
        numbers = self.octets(width * count).view(f"<u{width}")
        numbers &= 2**places - 1
        return numbers

    def word(self) -> int:
        """The next 64 bits as a number below 2⁶⁴."""
        return int(self.words(1)[0])


@final
class ChaCha20Bits(Bits):
    """The key stream of ChaCha20. The key comes from os.urandom, and is replaced after every fork and every 2³⁰ bytes.

    >>> ChaCha20Bits().octets(3).shape
    (3,)
    """

    __slots__ = ("_born", "_keyed", "_left", "_stream")

    def __init__(self) -> None:
        self._born = _process()
        self._rekey()

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that made the source."""
        return _process() != self._born

    def octets(self, count: int) -> Octets:
        out = np.empty(count, dtype=np.uint8)
        filled = 0
        while filled < count:
            if self._left == 0 or _process() != self._keyed:
                self._rekey()
            step = min(count - filled, self._left, len(_ZEROS))
            self._stream.update_into(_ZEROS[:step], out.data[filled:])
            self._left -= step
            filled += step
        return out

    def _rekey(self) -> None:
        key, nonce = os.urandom(_KEY_BYTES), os.urandom(_NONCE_BYTES)
        self._stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
        counted = 64 * int.from_bytes(nonce[:4], "little")  # where the counter starts; it may not begin again
        self._left = min(_BYTES_PER_KEY, _BYTES_PER_NONCE - counted)
        self._keyed = _process()


@final
class KeyedBits(Bits):
    """The key stream of ChaCha20 for one key and nonce: the same bytes every time, and never more than it has.

    >>> bool((KeyedBits(bytes(32), bytes(16)).octets(9) == KeyedBits(bytes(32), bytes(16)).octets(9)).all())
    True
    """

    __slots__ = ("_left", "_stream")

    def __init__(self, key: bytes | bytearray, nonce: bytes) -> None:
        self._stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
        self._left = _BYTES_PER_NONCE

    def octets(self, count: int) -> Octets:
        if count > self._left:
            raise NoiseError("One chunk needs more random bytes than ChaCha20 has for it. Draw in smaller chunks.")
        self._left -= count
        out = np.empty(count, dtype=np.uint8)
        for start in range(0, count, len(_ZEROS)):
            self._stream.update_into(_ZEROS[: count - start], out.data[start:])
        return out


def drawn(draw: Callable[[Bits], IntegerArray]) -> IntegerArray:
    """draw(bits), with bits from a new key.

    If the process forks while drawing (for example in a signal handler), parent and child hold the same bits, so the
    child discards its draws and draws again.
    """
    while True:
        bits = ChaCha20Bits()
        noise = draw(bits)
        if not bits.forked:
            return noise


def _process() -> tuple[int, int]:
    """Values that differ in a forked child: its process id, and a count of forks, because ids are reused."""
    return os.getpid(), _forks


def _count_fork() -> None:
    global _forks
    _forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_count_fork)
