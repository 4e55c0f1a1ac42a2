"""Haar: the wavelet that Privelet measures, as a matrix of 0 and ±1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.matrix.checks import count, widened
from hdmm.matrix.matrix import Array, Matrix


@final
@dataclass(frozen=True, slots=True)
class Haar(Matrix):
    """The total, then for every node of a binary tree its left half less its right half, wide nodes first.

    The tree has N leaves, where N is the least power of two that is at least n. Columns past n are left out, and so
    are rows that are all zero without them. O(n) per column.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Haar(3))
    array([[ 1.,  1.,  1.],
           [ 1.,  1., -1.],
           [ 1., -1.,  0.],
           [ 0.,  0.,  1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Haar"))

    @property
    def widths(self) -> tuple[int, ...]:
        """The cells of a node, by level from the leaves up: 2, 4, …, N."""
        return tuple(2**level for level in range(1, (self.n - 1).bit_length() + 1))

    @property
    def shape(self) -> tuple[int, int]:
        return 1 + sum(-(-self.n // width) for width in self.widths), self.n

    def along(self, X: Array) -> Array:
        """Sums and differences of neighbours, then the same of the sums."""
        sums, parts = widened(X), list[Array]()
        for _ in self.widths:
            if sums.shape[1] % 2:
                sums = np.concatenate([sums, np.zeros_like(sums[:, :1])], axis=1)
            left, right = sums[:, 0::2], sums[:, 1::2]
            parts.append(left - right)
            sums = left + right
        return np.concatenate([sums, *reversed(parts)], axis=1)

    def along_t(self, X: Array) -> Array:
        """A node's value, plus or minus its own row, goes to its halves."""
        values = widened(X)
        cells, row = values[:, :1], 1
        for width in reversed(self.widths):
            nodes = -(-self.n // width)
            step = values[:, row : row + nodes]
            halves = np.stack([cells + step, cells - step], axis=2)
            cells = halves.reshape(len(values), 2 * nodes, values.shape[2])[:, : -(-2 * self.n // width)]
            row += nodes
        return cells


def haar_inverse(n: int) -> tuple[Array, tuple[int, ...], Array]:
    """(F, widths, C) with (AᵀA)⁻¹ = Σ_nodes ffᵀ − CᵀC for A = Haar(n); F is by level, as in `Nested`.

    If n = N, the rows of A are orthogonal: F is A with each row divided by its squared norm, and C is empty. If n < N,
    the padding falls into k ≤ log₂ N whole nodes; if H is the inverse on the cells and these nodes together, the
    inverse for the cells alone is H_nn − H_nk H_kk⁻¹ H_kn. O(n log² N).

    >>> haar_inverse(2)
    (array([[ 0.5, -0.5], [ 0.5,  0.5]]), (2, 2), array([], shape=(0, 2), dtype=float64))
    """
    widths = Haar(n).widths
    whole = widths[-1] if widths else 1
    starts, sizes = [n], list[int]()
    while starts[-1] < whole:
        sizes.append(starts[-1] & -starts[-1])
        starts.append(starts[-1] + sizes[-1])
    cells, size = np.append(np.arange(n), starts[:-1]), np.append(np.ones(n), sizes)
    F, G = np.empty((len(widths) + 1, n)), np.zeros((len(sizes), cells.size))
    for level, width in enumerate((*widths, whole)):
        sign = np.where(cells % width < width // 2, 1.0, -1.0) if level < len(widths) else np.ones(cells.size)
        f = np.where(size < width, sign * size / width, 1.0 if whole == 1 else 0.0)
        F[level] = f[:n]
        G += np.where(cells[n:, None] // width == cells // width, np.outer(f[n:], f), 0.0)
    C = np.linalg.solve(np.linalg.cholesky(G[:, n:]), G[:, :n]) if sizes else np.empty((0, n))
    return F, (*widths, whole), C
