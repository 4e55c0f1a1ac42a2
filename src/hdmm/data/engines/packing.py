"""The codes of several attributes as few integers, in queries as here: fewer columns to hash, hold and transfer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialects import Expression
from hdmm.describe.entries import Codes

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_MOST_CELLS = 2**53  # of a word: some engines divide integers as floats, which is exact up to here


@final
@dataclass(frozen=True, slots=True)
class Packing:
    """Attributes of these sizes as words: each is a row-major index over some of them, in their order.

    >>> Packing((2, 3)).codes([np.array([0, 5])])
    [array([0, 1]), array([0, 2])]
    """

    sizes: tuple[int, ...]

    @property
    def words(self) -> list[list[int]]:
        """The places of the attributes in each word. An attribute with more cells than others has is a word itself."""
        found: list[list[int]] = []
        cells = 1
        for place, size in enumerate(self.sizes):
            cells *= size
            if not found or cells > _MOST_CELLS:
                found.append([])
                cells = size
            found[-1].append(place)
        return found

    def packed(self, codes: Sequence[Expression]) -> list[Expression]:
        """The words, as expressions of the codes."""
        return [
            sum((codes[place] * _integer(stride) for place, stride in self._strides(word)), start=_integer(0))
            for word in self.words
        ]

    def unpacked(self, words: Sequence[Expression]) -> list[Expression]:
        """The codes, as expressions of the words."""
        return [
            _between(words[number], stride, stride * self.sizes[place])
            for number, word in enumerate(self.words)
            for place, stride in self._strides(word)
        ]

    def codes(self, words: Sequence[Codes]) -> list[Codes]:
        """The codes in words that have been fetched."""
        return [
            code
            for word, index in zip(self.words, words, strict=True)
            for code in np.unravel_index(index, [self.sizes[place] for place in word])
        ]

    def _strides(self, word: Sequence[int]) -> list[tuple[int, int]]:
        sizes = [self.sizes[place] for place in word]
        return list(zip(word, [math.prod(sizes[i + 1 :]) for i in range(len(sizes))], strict=True))


def _between(word: Expression, stride: int, cells: int) -> Expression:
    """The digit of a word whose place has this value; all larger places are taken away by `cells`."""
    rest = word % _integer(cells)
    return (rest - word % _integer(stride)) // _integer(stride) if stride > 1 else rest


def _integer(number: int) -> Expression:
    """An integer of 64 bits, written so that no engine multiplies in fewer, in which a product might not fit."""
    return ibis.literal(str(number)).cast("int64")
