"""Bits that reach branches which chance would not: scripts, and limbs of few bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdmm.base.mixing import Words
from hdmm.noise.bits import Bits, ChaCha20Bits, Octets


class Scripted(Bits):
    """First these words or arrays, one per call, then real ones: `calls` of them."""

    def __init__(self, *script: int | Octets) -> None:
        self.script = list(script)
        self.rest = ChaCha20Bits()
        self.calls = 0

    def octets(self, count: int) -> Octets:
        if not self.script or count == 0:
            self.calls += count > 0
            return self.rest.octets(count)
        given = self.script.pop(0)
        if isinstance(given, int):
            given = np.frombuffer(given.to_bytes(8, "little"), dtype=np.uint8)
        assert given.size == count, f"the script has {given.size} bytes where {count} are asked for"
        return given.copy()


class Small(Bits):
    """Real bits, in limbs of 2 and words of 3; numbers have all of theirs."""

    def __init__(self) -> None:
        self.bits = ChaCha20Bits()

    def octets(self, count: int) -> Octets:
        return self.bits.octets(count) & np.uint8(3)

    def words(self, count: int) -> Words:
        return self.bits.words(count) & np.uint64(7)

    def numbers(self, places: int, count: int) -> NDArray[np.unsignedinteger]:
        return self.bits.numbers(places, count)
