"""Mixing of 64-bit words by the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]


def mixed(words: Words) -> Words:
    """The words under a fixed permutation of all 64-bit words; every bit of a result depends on all bits of its word.

    >>> mixed(np.array([0, 1], dtype=np.uint64))
    array([                  0, 6238072747940578789], dtype=uint64)
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
