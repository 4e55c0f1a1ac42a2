"""HalvedTriangle: a lower triangular matrix whose blocks below the diagonal are of low rank, half by half.

    A = [A₁ 0; UVᵀ A₂],  A₁ and A₂ of the same kind, down to small triangles

takes O(n·rank·log n) numbers and steps, and so does its inverse [A₁⁻¹ 0; −A₂⁻¹U(A₁⁻ᵀV)ᵀ A₂⁻¹]. Where U, V and the
triangles are integers, so are all entries, and the norms of columns are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.matrix import Array, Matrix, count, numbers, widened


@final
@dataclass(frozen=True, slots=True, eq=False)
class HalvedTriangle(Matrix):
    """The first n rows and columns of such a matrix on N ≥ n cells, N being a power of two times the triangles' size.

    `triangles` is N/leaf × leaf × leaf. Level l has 2^l blocks, whose U and V, one below the other, are in `left` and
    `right`: levels × N/2 × rank.

    >>> from hdmm.matrix import to_dense
    >>> once = np.ones((1, 2, 1), dtype=int)
    >>> to_dense(HalvedTriangle(3, np.array([[[1, 0], [5, 1]], [[2, 0], [0, 1]]]), once, 3 * once))
    array([[1., 0., 0.],
           [5., 1., 0.],
           [3., 3., 2.]])
    """

    n: int
    triangles: Array
    left: Array
    right: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of HalvedTriangle"))
        held = {name: widened(numbers(getattr(self, name), name, 3)) for name in ("triangles", "left", "right")}
        kind = np.result_type(*held.values())
        for name, array in held.items():
            object.__setattr__(self, name, numbers(array.astype(kind, copy=False), name, 3))
        (leaves, leaf, width), (levels, half, _) = self.triangles.shape, self.left.shape
        if leaf != width or leaves != 2**levels or self.n > leaves * leaf:
            raise MatrixError(
                f"{leaves} triangles of shape {leaf} × {width} do not fit {levels} levels on {self.n} cells."
            )
        if self.left.shape != self.right.shape or half != leaves * leaf // 2:
            raise MatrixError(
                f"left and right have the shapes {self.left.shape} and {self.right.shape}. Both have half the cells."
            )
        if np.triu(self.triangles, 1).any():
            raise MatrixError("The triangles have entries above their diagonals. Use np.tril.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        return self._each(self.within, X)

    def along_t(self, X: Array) -> Array:
        return self._each(self.within_t, X)

    def _each(self, product: Callable[[Array], Array], X: Array) -> Array:
        outer, n, inner = X.shape
        Y = np.zeros((len(self.triangles) * self.triangles.shape[1], outer * inner), dtype=widened(X).dtype)
        Y[:n] = X.transpose(1, 0, 2).reshape(n, outer * inner)
        return product(Y)[:n].reshape(n, outer, inner).transpose(1, 0, 2)

    def within(self, X: Array, first: int = 0) -> Array:
        """The product of what A has within the blocks of a level with N × k numbers. O(Nk·rank) per level below."""
        Y = np.matmul(self.triangles, X.reshape(*self.triangles.shape[:2], X.shape[1])).reshape(X.shape)
        for level in range(first, len(self.left)):
            U, V, (upper, _), (_, lower) = *self.factors(level), halves(X, level), halves(Y, level)
            lower += np.matmul(U, np.matmul(V.transpose(0, 2, 1), upper))
        return Y

    def within_t(self, X: Array, first: int = 0) -> Array:
        """The same of Aᵀ."""
        Y = np.matmul(self.triangles.transpose(0, 2, 1), X.reshape(*self.triangles.shape[:2], X.shape[1])).reshape(
            X.shape
        )
        for level in range(first, len(self.left)):
            U, V, (_, lower), (upper, _) = *self.factors(level), halves(X, level), halves(Y, level)
            upper += np.matmul(V, np.matmul(U.transpose(0, 2, 1), lower))
        return Y

    def factors(self, level: int) -> tuple[Array, Array]:
        """U and V of every block of a level."""
        shape = 2**level, self.left.shape[1] >> level, self.left.shape[2]
        return self.left[level].reshape(shape), self.right[level].reshape(shape)

    @property
    def inverse(self) -> HalvedTriangle:
        """A⁻¹. O(n·rank·log² n)."""
        left, right = self.left.astype(np.float64), self.right.astype(np.float64)
        triangles = np.where(self._seen[..., None], self.triangles, np.eye(self.triangles.shape[1]))
        if not triangles.diagonal(axis1=1, axis2=2).all():
            raise MatrixError(
                "A HalvedTriangle with a 0 on its diagonal is singular. Add rows that distinguish all cells."
            )
        B = HalvedTriangle(self.n, np.tril(np.linalg.inv(triangles)), 0 * left, 0 * right)
        for level in reversed(range(len(left))):
            X = np.zeros((2 * left.shape[1], left.shape[2]))
            upper, lower = halves(X, level)
            lower[:], upper[:] = self.factors(level)
            left[level] = -halves(B.within(X, level + 1), level)[1].reshape(left[level].shape)
            right[level] = halves(B.within_t(X, level + 1), level)[0].reshape(right[level].shape)
            B = HalvedTriangle(self.n, B.triangles, left.copy(), right.copy())
        return B

    def squared_rows(self, *, sums: bool = False) -> Array:
        """The squared lengths of the rows of A, or of PA, where P is that of prefixes. O(n·rank·(rank + log n)) per
        level."""
        triangles = self.triangles.astype(np.float64)
        found = ((triangles.cumsum(axis=1) if sums else triangles) ** 2).sum(axis=2).reshape(-1)
        ones = np.ones((len(found), 1))
        for level in range(len(self.left)):
            rows, columns = (each.astype(np.float64) for each in self.factors(level))
            if sums:  # below the diagonal PA is cumsum(U)·Vᵀ and, in every row, the column sums of what is above
                rows = np.concatenate([rows.cumsum(axis=1), np.ones((*rows.shape[:2], 1))], axis=2)
                columns = np.concatenate([columns, halves(self.within_t(ones, level + 1), level)[0]], axis=2)
            products = np.matmul(rows, np.matmul(columns.transpose(0, 2, 1), columns))
            halves(found[:, None], level)[1][:, :, 0] += (products * rows).sum(axis=2)
        return found[: self.n]

    @property
    def squared_columns(self) -> Array:
        """The squared lengths of the columns, exact if entries are integers. O(n·rank²) per level."""
        kind = object if self.left.dtype.kind == "i" else np.float64  # Python's integers have no largest one
        triangles = self.triangles.astype(kind) * self._seen[..., None]
        found = (triangles**2).sum(axis=1).reshape(-1)
        for level in range(len(self.left)):
            U, V = (each.astype(kind) for each in self.factors(level))
            U = U * halves(self._seen.reshape(-1, 1), level)[1]
            products = np.matmul(V, np.matmul(U.transpose(0, 2, 1), U))
            halves(found[:, None], level)[0][:, :, 0] += (products * V).sum(axis=2)
        found = found[: self.n]
        return found.astype(np.int64) if kind is object and max(found) < 2**63 else found

    @property
    def _seen(self) -> Array:
        """Whether a cell is one of the n, as triangles × their cells."""
        return (np.arange(self.triangles.shape[0] * self.triangles.shape[1]) < self.n).reshape(self.triangles.shape[:2])

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers that no integer entry is below or above."""
        bounds = [0]
        for level in range(len(self.left)):
            # |−2⁶³| is not an int64.
            U, V = (np.maximum(-each.min(axis=1).astype(object), each.max(axis=1)) for each in self.factors(level))
            bounds.append(int((U * V).sum(axis=1).max()))
        return min(int(self.triangles.min()), -max(bounds)), max(int(self.triangles.max()), max(bounds))


def halves(X: Array, level: int) -> tuple[Array, Array]:
    """The upper and the lower half of every block of a level, as views: blocks × half × columns.

    >>> halves(np.arange(4)[:, None], 0)[1].ravel()
    array([2, 3])
    """
    parts = X.reshape(2**level, 2, len(X) >> level + 1, X.shape[1])
    return parts[:, 0], parts[:, 1]
