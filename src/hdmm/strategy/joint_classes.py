"""Predicates on several attributes at once, in the classes of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from hdmm.matrix import Array, Eye, Kron, Matrix, Stack, to_dense
from hdmm.strategy.axis import SUPPORT_TOLERANCE, Axis


def joint_variances(axes: Sequence[Axis], W: Matrix) -> Array:
    """w(⊗ Z_c)wᵀ for every row w of W and combination of classes, the first attribute's slowest; rounding set to 0.

    Z_c = S_c R_c on each attribute: O(cost of S and R) per row, and no form over the cells of all attributes.
    """
    columns = W.T.matmat(np.eye(W.shape[0]))
    table = np.maximum(joint_products(axes, columns, columns), 0.0)
    sizes = reduce(np.multiply.outer, map(_sizes, axes)).ravel()
    seen = table.sum(axis=0) > SUPPORT_TOLERANCE * float((columns**2).sum()) * sizes / W.shape[1]
    return np.where(seen, table, 0.0)


def joint_products(axes: Sequence[Axis], R: Array, S: Array) -> Array:
    """r(⊗ Z_c)sᵀ for each pair of columns r of R and s of S, and combination of classes: pairs × combinations."""
    sides = [_sides(axis) for axis in axes]
    left = Kron(tuple(each for each, _, _ in sides)).matmat(R)
    right = Kron(tuple(each for _, each, _ in sides)).matmat(S)
    table = (left * right).T.reshape(-1, *(each.shape[0] for each, _, _ in sides))
    for k, (_, _, starts) in enumerate(sides):
        table = np.add.reduceat(table, starts, axis=1 + k)
    return table.reshape(len(table), -1)


def _sizes(axis: Axis) -> Array:
    """tr Z_c of every class."""
    left, right, starts = _sides(axis)
    return np.add.reduceat(np.einsum("kn,kn->k", to_dense(right), to_dense(left)), starts)


def _sides(axis: Axis) -> tuple[Matrix, Matrix, Array]:
    """(Sᵀ, R, the first row of each class) with Z_c = S_c R_c."""
    if axis.sizes.all():
        return axis.synthesis.T, axis.analysis, np.cumsum(axis.sizes) - axis.sizes
    # A class that nothing measures has no coordinates; predicates may see it all the same.
    n, classes = axis.factors[0].shape[1], len(axis.sizes)
    forms = [axis.mixed(row) for row in np.eye(classes)]
    return Stack((Eye(n),) * classes), Stack(tuple(forms)), n * np.arange(classes)
