"""Exact Laplace noise in the memory of a GPU: the draws of numbered.py, by a kernel (laplace.cu) or by NumPy."""

from __future__ import annotations

import os
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm.noise.bits import IntegerArray
from hdmm.noise.chacha import KEY_BYTES, Stream
from hdmm.noise.numbered import NumberedCoins, exact_draw, numbered_coins, numbered_laplace
from hdmm.noise.parameters import exact_scale, exact_size

_SOURCE = Path(__file__).with_name("laplace.cu")
_PER_BLOCK = 4096  # draws of one thread block: PER in laplace.cu
_THREADS = 256
_ROOM = 4096  # ties that one call of the kernel can list: 7 are expected in 2³¹ draws


@final
class DeviceNoise:
    """Laplace noise under one new key from the operating system, in arrays of the namespace `xp`.

    Every call has a stream of its own, so that no number is drawn twice. The key dies with the object.

    >>> DeviceNoise(np).laplace(Fraction(37, 10), 4).shape
    (4,)
    """

    __slots__ = ("_born", "_key", "_streams", "_xp")

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._rekey()

    def laplace(self, scale: Fraction | int, size: int) -> Any:
        """`size` independent draws with P(Z = z) ∝ e^(−|z|/scale), exactly."""
        if os.getpid() != self._born:
            self._rekey()  # a forked child must never repeat its parent's draws
        coins, size = numbered_coins(exact_scale(scale)), exact_size(size)
        stream = Stream(self._key, self._streams)
        self._streams += 1
        return laplace_in(self._xp, stream, coins, 0, size)

    def __repr__(self) -> str:
        return "DeviceNoise(key hidden)"

    def _rekey(self) -> None:
        self._key, self._streams, self._born = os.urandom(KEY_BYTES), 0, os.getpid()


def laplace_in(xp: Any, stream: Stream, coins: NumberedCoins, start: int, size: int) -> Any:
    """Draws start … start + size − 1 of the stream, in an array of the namespace: the same numbers in any."""
    return numbered_laplace(stream, coins, start, size) if xp is np else _by_kernel(xp, stream, coins, start, size)


def _by_kernel(cp: Any, stream: Stream, coins: NumberedCoins, start: int, size: int) -> Any:
    out = cp.empty(size, dtype=cp.int64)
    if size == 0:
        return out
    secrets = cp.asarray(np.concatenate([stream.key_words, coins.high_first, coins.low_first]))
    ties, tied = cp.empty(_ROOM, dtype=cp.uint64), cp.zeros(1, dtype=cp.uint32)
    arguments = (
        secrets,
        np.int32(len(coins.low)),
        np.uint32(stream.number),
        np.uint64(start),
        np.uint64(size),
        out,
        ties,
        tied,
        np.uint32(_ROOM),
    )
    _kernel(cp)((-(-size // _PER_BLOCK),), (_THREADS,), arguments)
    secrets[...] = 0  # the memory goes back to a pool, where it would keep the key
    _decide(cp, stream, coins, start, out, ties[: int(tied[0])], int(tied[0]))
    return out


def _decide(cp: Any, stream: Stream, coins: NumberedCoins, start: int, out: Any, ties: Any, count: int) -> None:
    """Put the exact draws in the place of those that tied; if the list overflowed, of all."""
    if count > _ROOM:
        out[...] = cp.asarray(numbered_laplace(stream, coins, start, out.size))
    elif count:
        places = sorted({int(i) for i in ties.get()})
        exact: IntegerArray = np.array([exact_draw(stream, coins, start + i) for i in places], dtype=np.int64)
        out[cp.asarray(places)] = cp.asarray(exact)


@lru_cache(maxsize=1)
def _kernel(cp: Any) -> Any:
    return cp.RawKernel(_SOURCE.read_text(encoding="utf-8"), "laplace", options=("-std=c++14",))
