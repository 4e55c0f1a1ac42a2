"""Exact noise in the memory of a GPU: draws by number, by a kernel (laplace.cu, gaussian.cu) or by NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm.noise.bits import IntegerArray
from hdmm.noise.chacha import KEY_BYTES, Stream
from hdmm.noise.gaussian import Bell, bell_of, sixteenths
from hdmm.noise.numbered import NumberedCoins, exact_draw, numbered_coins, numbered_laplace
from hdmm.noise.numbered_gaussian import numbered_gaussian
from hdmm.noise.parameters import exact_scale, exact_size, exact_variance
from hdmm.privacy.guarantee import Noise

_SOURCES = Path(__file__).parent
_PER_BLOCK = 4096  # draws of one thread block: PER in chacha.cu
_THREADS = 256
_ROOM = 4096  # draws that one call of a kernel can leave to the processor, at least
_ROOM_PER_DRAW = Fraction(1, 2**14)  # at σ = 2⁵¹, 1 draw in 2¹⁶ is left to it


@final
class DeviceNoise:
    """Noise under one new key from the operating system, in arrays of the namespace `xp`.

    Every call has a stream of its own, so that no number is drawn twice. The key dies with the object.

    >>> DeviceNoise(np).draw(Noise.LAPLACE, Fraction(37, 10), 4).shape
    (4,)
    """

    __slots__ = ("_born", "_key", "_streams", "_xp")

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._rekey()

    def draw(self, noise: Noise, scale: Fraction | int, size: int) -> Any:
        """`size` independent exact draws, of the distribution of draws.py."""
        if os.getpid() != self._born:
            self._rekey()  # a forked child must never repeat its parent's draws
        stream, size = Stream(self._key, self._streams), exact_size(size)
        self._streams += 1
        match noise:
            case Noise.LAPLACE:
                return laplace_in(self._xp, stream, numbered_coins(exact_scale(scale)), 0, size)
            case Noise.GAUSSIAN:
                return gaussian_in(self._xp, stream, bell_of(exact_variance(scale)), 0, size)

    def __repr__(self) -> str:
        return "DeviceNoise(key hidden)"

    def _rekey(self) -> None:
        self._key, self._streams, self._born = os.urandom(KEY_BYTES), 0, os.getpid()


def laplace_in(xp: Any, stream: Stream, coins: NumberedCoins, start: int, size: int) -> Any:
    """Draws start … start + size − 1 of the stream, in an array of the namespace: the same numbers in any."""
    if xp is np:
        return numbered_laplace(stream, coins, start, size)
    secrets = np.concatenate([stream.key_words, coins.high_first, coins.low_first])
    out, left = _by_kernel(xp, "laplace", secrets, [np.int32(len(coins.low))], stream, start, size)
    if left is None:
        return xp.asarray(numbered_laplace(stream, coins, start, size))
    return _decided(xp, out, left, lambda i: exact_draw(stream, coins, start + i))


def gaussian_in(xp: Any, stream: Stream, bell: Bell, start: int, size: int) -> Any:
    """Draws start … start + size − 1 of the stream, in an array of the namespace: the same numbers in any."""
    if xp is np:
        return numbered_gaussian(stream, bell, start, size)
    parameters = gaussian_parameters(bell)
    arguments = [xp.asarray(parameters[0]), *parameters[1:]]
    out, left = _by_kernel(xp, "gaussian", stream.key_words, arguments, stream, start, size)
    if left is None:
        return xp.asarray(numbered_gaussian(stream, bell, start, size))
    return _decided(xp, out, left, lambda i: int(numbered_gaussian(stream, bell, start + i, 1)[0]))


def gaussian_parameters(bell: Bell) -> tuple[np.ndarray, np.int32, np.uint64, np.uint64, np.int32]:
    """What the kernel is given of σ and the cells: their table and its ends, 2ᵉσ as two words, and e − 4."""
    cells, least = sixteenths()
    variance, e = bell.sigma_squared, bell.shift + 4
    s, rest = divmod(isqrt((variance.numerator << 2 * (e + 64)) // variance.denominator), 2**64)
    table = np.concatenate([cells.low.astype(np.uint32), least])
    return table, np.int32(len(cells.low)), np.uint64(s), np.uint64(rest), np.int32(bell.shift)


def _by_kernel(
    cp: Any, name: str, secrets: Any, parameters: Sequence[Any], stream: Stream, start: int, size: int
) -> tuple[Any, list[int] | None]:
    """The draws of a kernel, and those that it left to the processor; None if there are too many to list."""
    out = cp.empty(size, dtype=cp.int64)
    if size == 0:
        return out, []
    room = _ROOM + int(size * _ROOM_PER_DRAW)
    held, ties, tied = cp.asarray(secrets), cp.empty(room, dtype=cp.uint64), cp.zeros(1, dtype=cp.uint32)
    place = np.uint32(stream.number), np.uint64(start), np.uint64(size)
    blocks = -(-(size + 3) // _PER_BLOCK)  # the first block of ChaCha20 may have three draws before the first
    _kernel(cp, name)((blocks,), (_THREADS,), (held, *parameters, *place, out, ties, tied, np.uint32(room)))
    held[...] = 0  # the memory goes back to a pool, where it would keep the key
    count = int(tied[0])
    return out, None if count > room else sorted({int(i) for i in ties[:count].get()})


def _decided(cp: Any, out: Any, left: list[int], exact_draw: Callable[[int], int]) -> Any:
    """The draws, with exact ones in the place of those that were left."""
    if left:
        exact: IntegerArray = np.array([exact_draw(i) for i in left], dtype=np.int64)
        out[cp.asarray(left)] = cp.asarray(exact)
    return out


def kernel_source(name: str) -> str:
    """The source of a kernel."""
    return "".join((_SOURCES / f"{part}.cu").read_text(encoding="utf-8") for part in ("chacha", name))


@lru_cache(maxsize=2)
def _kernel(cp: Any, name: str) -> Any:
    return cp.RawKernel(kernel_source(name), name, options=("-std=c++14",))
