"""Windows: where Θ may differ from 0 if each of its rows is supported on a node of a tree and on its neighbours.

The optima of ordered workloads have about four nonzero entries per cell, near the nodes of a 16-ary tree but reaching
beyond them. Leaving out the rest of Θ changes the error by less than 1e-3, and makes a step at n = 8192 ten times
cheaper than one with all of Θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Where Θ may differ from 0: slot t of block j, a run of `width` cells, is a piece of row rows[j, t].

    Θ is packed as blocks × slots × width; slots that no row fills are row p, and hold 0.
    """

    n: int
    p: int
    rows: Array
    width: int
    own: Array  # which slots are in the row's own node
    gather: Any  # p × blocks·slots of 0/1: adds up the slots of each row

    @classmethod
    def of(cls, n: int, widths: Sequence[int], *, reach: int = 1) -> Windows:
        """The pattern of a tree: level l has nodes of widths[l] cells, and rows reach `reach` nodes further. O(n)."""
        width = widths[0]
        blocks = np.arange(-(-n // width))
        rows: list[Array] = []
        own: list[Array] = []
        p = 0
        total = sum(-(-n // w) for w in widths)
        for w in widths:
            nodes = -(-n // w)
            for shift in range(-min(reach, nodes - 1), min(reach, nodes - 1) + 1):
                node = blocks * width // w + shift
                rows.append(np.where((node >= 0) & (node < nodes), p + node, total))
                own.append(np.full(len(blocks), shift == 0))
            p += nodes
        table = np.stack(rows, axis=1)
        used = np.flatnonzero(table.ravel() < p)
        gather = sp.csr_array((np.ones(len(used)), (table.ravel()[used], used)), shape=(p, table.size))
        return cls(n, p, table, width, np.stack(own, axis=1), gather)

    @property
    def free(self) -> Array:
        """Which packed entries are parameters: blocks × slots × width of bool. O(size)."""
        cells = np.arange(self.rows.shape[0] * self.width).reshape(-1, 1, self.width)
        return (self.rows[:, :, None] < self.p) & (cells < self.n)

    @property
    def canvas(self) -> Array:
        """Zeros to unpack into repeatedly: what lies outside the windows stays 0. O(pn)."""
        return np.zeros((self.p + 1, self.rows.shape[0], self.width))

    def unpacked(self, packed: Array, canvas: Array | None = None) -> Array:
        """Θ as p × n, written into the given canvas or a new one. O(n·slots)."""
        blocks = packed.shape[0]
        theta = self.canvas if canvas is None else canvas
        for t in range(packed.shape[1]):
            theta[self.rows[:, t], np.arange(blocks)] = packed[:, t]
        return theta[: self.p].reshape(self.p, -1)[:, : self.n]
