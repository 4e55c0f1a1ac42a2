"""Gaussian noise that can be computed again: draw i of a stream under a key is always the same number.

It is made as gaussian.py makes its draws, of blocks of ChaCha20 (chacha.py) as follows, by NumPy or by gaussian.cu:

    lane 0, block ⌊i/4⌋    in its quarter i mod 4 the four words of the draw
    lanes 1, …, block i    the three words of each further attempt, for five attempts per lane
    lanes from 2³¹ on      in sequence, further digits of U, V and F, as a decision asks for them
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from hdmm.noise.bits import Bits, IntegerArray
from hdmm.noise.chacha import HalfWords, Lanes, Stream
from hdmm.noise.gaussian import Bell, Supply, draws

_BATCH = 2**16  # draws at a time
_PER_BLOCK = 4  # draws
_ATTEMPTS = 5  # per lane
_DECIDING_LANE = 2**31
_WRAP = _PER_BLOCK * 2**32  # numbers of draws at which the counter of a run of blocks starts again


@final
class Numbered(Supply):
    """The words of the draws from number `start` on."""

    __slots__ = ("_start", "_stream")

    def __init__(self, stream: Stream, start: int) -> None:
        self._stream, self._start = stream, start

    def first(self, count: int) -> HalfWords:
        block, skipped = divmod(self._start, _PER_BLOCK)
        words = self._stream.run(block, -(-(skipped + count) // _PER_BLOCK))
        return words.reshape(-1, 4)[skipped : skipped + count]

    def again(self, draws: NDArray[np.intp], attempt: int) -> HalfWords:
        lane, at = divmod(attempt - 1, _ATTEMPTS)
        numbers = np.uint64(self._start) + draws.astype(np.uint64)
        return self._stream.blocks(numbers, 1 + lane)[:, 3 * at : 3 * at + 3]

    def rest(self, draw: int) -> Bits:
        return Lanes(self._stream, self._start + draw, _DECIDING_LANE)


def numbered_gaussian(stream: Stream, bell: Bell, start: int, size: int) -> IntegerArray:
    """Draws start … start + size − 1 of the stream. Any part of it is the same whenever it is asked for.

    >>> from fractions import Fraction
    >>> from hdmm.noise.gaussian import bell_of
    >>> bell, stream = bell_of(Fraction(37, 10)), Stream(bytes(32), 0)
    >>> bool((numbered_gaussian(stream, bell, 5, 3) == numbered_gaussian(stream, bell, 0, 8)[5:]).all())
    True
    """
    noise = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        count = min(_BATCH, size - done, _WRAP - (start + done) % _WRAP)
        noise[done : done + count] = draws(Numbered(stream, start + done), bell, count)
        done += count
    return noise
