"""Mixing of 64-bit words by the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's step: odd, so that a counter meets every word


def mixed(words: Words) -> Words:
    """The words under a fixed permutation of all 64-bit words; every bit of a result depends on all bits of its word.

    >>> mixed(np.array([0, 1], dtype=np.uint64))
    array([                  0, 6238072747940578789], dtype=uint64)
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def fixed_uniforms(count: int, *, stream: int) -> npt.NDArray[np.float64]:
    """Numbers in (0, 1), spread as if drawn at random, and the same on every machine. They protect nothing.

    >>> fixed_uniforms(3, stream=1).round(3)
    array([0.624, 0.26 , 0.277])
    """
    start = mixed(np.array([stream], dtype=np.uint64)) * _GOLDEN
    words = mixed(start + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
