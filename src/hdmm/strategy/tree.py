"""OPT_0 for many cells: p-Identity matrices whose extra rows are the nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm.matrix import Array, Matrix, diagonal
from hdmm.matrix.blocked import block_product
from hdmm.matrix.tree import by_node, eliminate, padded


def tree_loss_and_gradient(
    weights: Array, V: Matrix, widths: Sequence[int], diagonal_of_V: Array | None = None
) -> tuple[float, Array]:
    """C = tr((AᵀA)⁻¹V) of A = TreeIdentity(weights, widths), and its gradient. O(nL²) and L block products.

    With ũ from `eliminate` and x = s∘ũ: C = Σ s²∘diag V − Σ_v x_vᵀVx_v over the nodes v; the gradient goes
    back through the levels, the topmost first.

    >>> from hdmm.matrix import Eye
    >>> tree_loss_and_gradient(np.zeros((1, 3)), Eye(3), [4])[0]
    3.0
    """
    n = weights.shape[1]
    d = padded(diagonal(V).astype(np.float64) if diagonal_of_V is None else diagonal_of_V, widths)
    B = padded(weights, widths)
    s = 1.0 + B.sum(axis=0)
    U, pivots, overlaps = eliminate(B, widths)
    value = float(s * s @ d)
    by_scale = 2 * s * d
    gU = np.empty_like(U)
    for u, g, width in zip(U, gU, widths, strict=True):
        x = s * u
        y = block_product(V, by_node(x, width)).reshape(-1)
        value -= float(x @ y)
        np.multiply(y, -2.0, out=g)
        by_scale += g * u
        g *= s
    gB = _back(B, U, gU, widths, pivots, overlaps)
    gB += by_scale
    return value, gB[:, :n]


def _back(
    B: Array, U: Array, gU: Array, widths: Sequence[int], pivots: Sequence[Array], overlaps: Sequence[Sequence[Array]]
) -> Array:
    """∂/∂B from ∂/∂Ũ, which is used up: `eliminate` read backwards."""
    gB = np.empty_like(B)
    for level in reversed(range(len(widths))):
        b, g, width, pivot = B[level], gU[level], widths[level], pivots[level]
        u = U[level]  # still divided by the root of the pivot
        root = np.sqrt(pivot)
        q = -0.5 * by_node(g * u, width).sum(axis=1) / pivot  # ∂ by the pivot
        by_node(g, width)[:] /= root[:, None]
        by_node(g, width)[:] += q[:, None] * by_node(b, width)
        gb = gB[level]
        by_node(gb, width)[:] = by_node(u, width) * (q * root)[:, None]
        gb += g
        for k in range(level):
            w, lower, gl, c = widths[k], by_node(U[k], widths[k]), by_node(gU[k], widths[k]), overlaps[level][k]
            gn = by_node(g, w)
            gc = -np.einsum("vi,vi->v", gn, lower)
            gl -= gn * c[:, None]
            gl += gc[:, None] * by_node(b, w)
            by_node(gb, w)[:] += gc[:, None] * lower
    return gB
