"""Noise that can be computed again: one secret key per release, one stream per block and chunk (security N10).

An engine may run a task twice, because a worker was lost or was slow. Two draws for one count would be two releases of
it. So the noise of a chunk is a function of the release's key, of the block's and the chunk's number, and of what is
drawn: a task that runs again draws the same numbers.

The stream is that of ChaCha20. Its key is HMAC-SHA256 of (distribution, scale, number of draws) under the release's
key, and its nonce is (block, chunk), so that two draws that differ in any of the five never share a stream, not even by
mistake. Of the 16 bytes that ChaCha20 calls its nonce, the first 8 count; the draws of one chunk may use 2³⁸ bytes.

The key comes from the operating system and stays in memory. It refuses to be pickled or copied, and does not appear in
its repr. `sealed` is the one way to hand it to another process; see there. `forget` overwrites it, and every key that
is derived from it is overwritten after its use. What libraries have copied meanwhile, they overwrite or merely free.

Exact numbers that must wait on disk, because they do not fit in memory, are written encrypted under a key derived from
it (`hidden`): what a killed run leaves there can never be read.
"""

from __future__ import annotations

import hmac
import os
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from fractions import Fraction
from types import TracebackType
from typing import Never, Self, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from hdmm.base.exceptions import NoiseError
from hdmm.noise.bits import IntegerArray, KeyedBits
from hdmm.noise.draws import from_bits
from hdmm.privacy.guarantee import Noise

_KEY_BYTES = 32
_MOST = 2**32  # blocks of a release, and chunks of a block
_NONCE_BYTES = 12
HIDING = _NONCE_BYTES + 16  # bytes that hidden numbers have more: a nonce and a tag


@final
class KeyNotHereError(NoiseError):
    """The key of a release is not in this process: it was never lent, or was given back, or was forgotten."""


@final
class ReleaseKey:
    """The secret key of one release, from the operating system.

    >>> with ReleaseKey() as key:
    ...     first = key.draw(Noise.LAPLACE, Fraction(10), 1000, block=0, chunk=3)
    ...     again = key.draw(Noise.LAPLACE, Fraction(10), 1000, block=0, chunk=3)
    ...     other = key.draw(Noise.LAPLACE, Fraction(10), 1000, block=0, chunk=4)
    >>> (first == again).all(), (first == other).all()
    (np.True_, np.False_)
    >>> key
    ReleaseKey(hidden)
    """

    __slots__ = ("_lock", "_secret")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secret = _Secret(os.urandom(_KEY_BYTES))

    def draw(self, noise: Noise, scale: Fraction, size: int, *, block: int, chunk: int) -> IntegerArray:
        """Independent exact draws for one chunk of a block: the same numbers whenever they are asked for."""
        for number, name in ((block, "block"), (chunk, "chunk")):
            if not 0 <= number < _MOST:
                raise NoiseError(f"The number of the {name} is {number}. Give an integer from 0 to 2**32 - 1.")
        nonce = struct.pack("<QII", 0, block, chunk)
        with self._derived(f"draws {noise.value} {scale} {size}") as secret:
            bits = KeyedBits(secret, nonce)
        return from_bits(bits, noise, scale, size)

    def hidden(self, numbers: bytes, place: str) -> bytes:
        """The numbers encrypted and signed, for a place on disk: unreadable once the key is forgotten."""
        nonce = os.urandom(_NONCE_BYTES)  # a task that is run again may write other numbers to the same place
        with self._derived("hiding") as secret:
            return nonce + ChaCha20Poly1305(secret).encrypt(nonce, numbers, place.encode())

    def shown(self, numbers: bytes, place: str) -> bytes:
        """What was hidden at this place; NoiseError if it was altered, or moved here from another place."""
        with self._derived("hiding") as secret:
            try:
                return ChaCha20Poly1305(secret).decrypt(numbers[:_NONCE_BYTES], numbers[_NONCE_BYTES:], place.encode())
            except (InvalidTag, ValueError):  # ValueError if it is too short
                raise NoiseError(
                    f"A temporary file was altered ({place}). Nothing was released; measure again."
                ) from None

    @contextmanager
    def _derived(self, purpose: str) -> Generator[_Secret]:
        """A key for one purpose, which is overwritten at the end of the block."""
        with self._lock:  # while it is used, nobody overwrites it: noise under a key of zeros is no secret
            if not self._secret:
                raise KeyNotHereError(
                    "The key of this release was forgotten, so no more noise can be drawn. Measure again."
                )
            derived = _Secret(hmac.digest(self._secret, purpose.encode("ascii"), "sha256"))
        try:
            yield derived
        finally:
            derived.overwrite()

    def sealed(self) -> SealedKey:
        """The key in a form that can be pickled, for the workers of this release and nothing else."""
        return SealedKey(self)

    def forget(self) -> None:
        """Overwrite the key: the release is complete, and its noise can never be computed again."""
        with self._lock:
            self._secret.overwrite()
            self._secret.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.forget()

    def __repr__(self) -> str:
        return "ReleaseKey(hidden)"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise NoiseError(
            "The key of a release is never written or copied: whoever holds it can remove the noise. Engines hand "
            "it to their workers with ReleaseKey.sealed."
        )


@final
class SealedKey:
    """A key on its way to a worker: pickled there and nowhere else, it arrives as a ReleaseKey.

    Its pickle holds the secret, so it must stay in memory. It must be no argument, result or scattered value of a task,
    because engines spill these to disk and show them: hand it over outside of tasks, as a worker's plugin.
    """

    __slots__ = ("_key",)

    def __init__(self, key: ReleaseKey) -> None:
        self._key = key

    def opened(self) -> ReleaseKey:
        """The key itself, where it was handed over without pickling."""
        return self._key

    def __repr__(self) -> str:
        return "SealedKey(hidden)"

    def __reduce__(self) -> tuple[object, tuple[bytearray]]:
        return _arrived, (bytearray(self._key._secret),)  # pyright: ignore[reportPrivateUsage]


def _arrived(secret: bytearray) -> ReleaseKey:
    key = ReleaseKey()
    key._secret[:] = secret  # pyright: ignore[reportPrivateUsage]
    secret[:] = bytes(len(secret))
    return key


@final
class _Secret(bytearray):
    """Bytes that no traceback, log or debugger shows by itself."""

    def overwrite(self) -> None:
        self[:] = bytes(len(self))

    def __repr__(self) -> str:
        return "hidden"

    __str__ = __repr__
