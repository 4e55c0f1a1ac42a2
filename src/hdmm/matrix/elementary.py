"""Matrices on one attribute that need no other matrix: Eye, Ones, Cumulative, Diag, Dense, Sparse, Residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.matrix import Array, Matrix, count, frozen, numbers, widened


@final
@dataclass(frozen=True, slots=True)
class Eye(Matrix):
    """The n × n identity I: every value of the attribute by itself. Products are free.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Eye(2))
    array([[1., 0.],
           [0., 1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Eye"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        """X itself."""
        return X

    def along_t(self, X: Array) -> Array:
        """X itself."""
        return X


@final
@dataclass(frozen=True, slots=True)
class Ones(Matrix):
    """The m × n matrix of ones; Ones(1, n) is the total. O(n + m) per column.

    >>> Ones(1, 3).matmat(np.array([[1], [2], [3]]))
    array([[6]])
    """

    m: int
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", count(self.m, "m of Ones", 0))
        object.__setattr__(self, "n", count(self.n, "n of Ones", 0))

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.n

    def along(self, X: Array) -> Array:
        """The sum over the axis, m times."""
        return _repeated_sum(X, self.m)

    def along_t(self, X: Array) -> Array:
        """The sum over the axis, n times."""
        return _repeated_sum(X, self.n)


@final
@dataclass(frozen=True, slots=True)
class Cumulative(Matrix):
    """The n × n lower triangle of ones L: row i sums cells 0 … i. O(n) per column.

    >>> Cumulative(3).matmat(np.array([[1], [2], [3]])).ravel()
    array([1, 3, 6])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Cumulative"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        """Running sums."""
        return running_sum(X)

    def along_t(self, X: Array) -> Array:
        """Running sums from the end."""
        return running_sum(X, backwards=True)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Diag(Matrix):
    """diag(d) of a vector d. O(n) per column.

    >>> Diag(np.array([2, 3])).matmat(np.ones((2, 1))).ravel()
    array([2., 3.])
    """

    d: Array

    def __init__(self, d: ArrayLike) -> None:
        object.__setattr__(self, "d", numbers(d, "d of Diag", 1))

    @property
    def shape(self) -> tuple[int, int]:
        return self.d.size, self.d.size

    def along(self, X: Array) -> Array:
        """X times d, cell by cell."""
        return widened(X) * self.d[:, None]

    def along_t(self, X: Array) -> Array:
        """The same: diag(d) is symmetric."""
        return self.along(X)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense(Matrix):
    """An explicit m × n array, held read-only; integers stay integers. O(mn) per column, by BLAS.

    >>> Dense([[1, 2]]).matmat(np.array([[10], [1]]))
    array([[12]])
    """

    array: Array

    def __init__(self, array: ArrayLike) -> None:
        object.__setattr__(self, "array", numbers(array, "array of Dense", 2))

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.array.shape
        return m, n

    def along(self, X: Array) -> Array:
        """A times every slice of X."""
        return multiply_along(self.array, X)

    def along_t(self, X: Array) -> Array:
        """Aᵀ times every slice of X."""
        return multiply_along(self.array.T, X)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Sparse(Matrix):
    """A matrix with few entries that are not zero, in compressed rows. O(nnz) per column.

    >>> Sparse(sp.csr_array([[0, 2], [1, 0]])).matmat(np.array([[5], [7]])).ravel()
    array([14,  5])
    """

    csr: Any  # scipy.sparse.csr_array, which has no type stubs

    def __init__(self, csr: Any) -> None:
        if not sp.issparse(csr):
            raise MatrixError(f"Sparse takes a scipy.sparse matrix, not {type(csr).__name__}. Use Dense(array)?")
        if csr.ndim != 2:
            raise MatrixError(f"Sparse takes a 2-D matrix, not one of shape {csr.shape}.")
        held = sp.csr_array(csr, copy=True)
        held.sum_duplicates()
        held.data = numbers(held.data, "csr of Sparse", 1)
        for part in (held.indices, held.indptr):
            frozen(part)
        object.__setattr__(self, "csr", held)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.csr.shape
        return int(m), int(n)

    @property
    def entries(self) -> Array:
        """The numbers that are not zero, row by row."""
        return self.csr.data

    @property
    def columns(self) -> Array:
        """The column of each entry."""
        return self.csr.indices

    @property
    def starts(self) -> Array:
        """Where the entries of each row start, and where those of the last row end."""
        return self.csr.indptr

    def along(self, X: Array) -> Array:
        """A times every slice of X."""
        return sparse_along(self.csr, X)

    def along_t(self, X: Array) -> Array:
        """Aᵀ times every slice of X."""
        return sparse_along(self.csr.T, X)


def running_sum(X: Array, *, backwards: bool = False, out: Array | None = None) -> Array:
    """Running sums along the middle axis, from the end if `backwards`. O(size).

    >>> running_sum(np.ones((1, 3, 1)), backwards=True).ravel()
    array([3., 2., 1.])
    """
    _, n, r = X.shape
    values = widened(X)
    if not isinstance(values, np.ndarray):  # CuPy's  # pyright: ignore[reportUnnecessaryIsInstance]
        sums = values[:, ::-1].cumsum(axis=1)[:, ::-1] if backwards else values.cumsum(axis=1)
        if out is None:
            return sums
        out[...] = sums
        return out
    if n <= 16 and r > 1 and values.dtype == np.float64 and out is None:  # 7 ms; cumsum takes 24 ms
        lower = np.tri(n)
        return multiply_along(lower.T if backwards else lower, values)
    sums = np.empty(values.shape, dtype=values.dtype) if out is None else out
    source, target = (values[:, ::-1], sums[:, ::-1]) if backwards else (values, sums)
    if r < 32:
        np.cumsum(source, axis=1, out=target)
    else:  # whole rows at a time: 6 ms at r = 4096; cumsum takes 60 ms
        target[:, :1] = source[:, :1]
        for i in range(1, n):
            np.add(target[:, i - 1], source[:, i], out=target[:, i])
    return sums


def axis_sum(X: Array) -> Array:
    """The sum over the middle axis, which is kept with length 1. O(size).

    >>> axis_sum(np.ones((1, 3, 1)))
    array([[[3.]]])
    """
    values = widened(X)
    if values.shape[2] == 1 and values.shape[1] >= 64:  # summed pairwise, which is more exact
        return values.sum(axis=1, keepdims=True)
    return np.einsum("lnr->lr", values)[:, None]  # 7 ms at r = 2; sum takes 30 ms


def multiply_along(A: Array, X: Array) -> Array:
    """A applied along the middle axis: (l, n, r) → (l, m, r), by as few BLAS calls as are worthwhile. O(l·m·n·r).

    Integers are multiplied exactly, modulo 2⁶⁴.

    >>> multiply_along(np.ones((1, 2)), np.ones((1, 2, 1)))
    array([[[2.]]])
    """
    before, n, r = X.shape
    m = len(A)
    values = widened(X)
    if A.dtype.kind in "iu" and values.dtype.kind == "f":
        return multiply_along(A.astype(values.dtype), values)
    if A.dtype.kind in "iu" and values.dtype == np.int64:
        bits = _limb_bits(A)
        if m >= (32 if r == 1 else 8) and bits >= 16:  # NumPy multiplies thinner ones as fast as limbs are made
            return _by_limbs(A.astype(np.float64), values, bits)
        A = A.astype(np.int64, copy=False)  # NumPy would turn uint64 and int64 together into floats
    if r == 1:
        return (values[:, :, 0] @ A.T)[:, :, None]
    if before == 1:
        return (A @ values[0])[None]
    if before >= 64 and max(m, n) * r <= 32 and values.dtype == np.float64:
        # One product with A ⊗ I: 8 ms for n = r = 2 on 2^22 cells; a million small products take 37 ms.
        flat = values.reshape(before, n * r) @ np.kron(A, np.eye(r)).T
        return flat.reshape(before, m, r)
    if m * n >= 2**18 and r < 64:
        # A outgrows the cache: one product with the axis moved last is up to 6 times faster at n = 1024.
        last = values.transpose(0, 2, 1).reshape(before * r, n) @ A.T
        return np.ascontiguousarray(last.reshape(before, r, m).transpose(0, 2, 1))
    return np.matmul(A, values)


def _limb_bits(A: Array) -> int:
    """The most bits b for which sums of n entries of A, each times a number below 2ᵇ, stay below 2⁵³."""
    most = A.shape[1] * max(int(A.max()), -int(A.min()), 1) if A.size else 1
    return 53 - most.bit_length()


def _by_limbs(A: Array, X: Array, bits: int) -> Array:
    """A applied to integers modulo 2⁶⁴, by exact products of floats, `bits` bits of X at a time.

    X = Σₖ 2^(bits·k)·Xₖ modulo 2⁶⁴, with 0 ≤ Xₖ < 2^bits. No partial sum of A·Xₖ exceeds 2⁵³, so float64 holds it
    exactly, in any order of adding; the sum over k wraps around. The steps taken depend on A and on the shapes alone.
    At 256 × 256 this takes a fortieth of the time of NumPy's product of integers.
    """
    total = np.zeros((X.shape[0], len(A), X.shape[2]), dtype=np.int64)
    for shift in range(0, 64, bits):
        limb = (X >> shift) & ((1 << bits) - 1)
        part = multiply_along(A, limb.astype(np.float64)).astype(np.int64)
        total += np.left_shift(part, shift, out=part)
    return total


def sparse_along(A: Any, X: Array) -> Array:
    """A scipy.sparse matrix applied along the middle axis: (l, n, r) → (l, m, r). O(nnz·l·r).

    >>> sparse_along(sp.csr_array([[1.0, 1.0]]), np.ones((2, 2, 1))).ravel()
    array([2., 2.])
    """
    before, n, r = X.shape
    columns = np.moveaxis(widened(X), 1, 0).reshape(n, before * r)
    return np.moveaxis((A @ columns).reshape(A.shape[0], before, r), 0, 1)


def _repeated_sum(X: Array, times: int) -> Array:
    total = axis_sum(X)
    return total if times == 1 else np.repeat(total, times, axis=1)


@final
@dataclass(frozen=True, slots=True)
class Residual(Matrix):
    """nI − J: n times every value less the total. It sees nothing of the total. O(n) per column.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Residual(3))
    array([[ 2., -1., -1.],
           [-1.,  2., -1.],
           [-1., -1.,  2.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Residual"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        """n times every cell, less the sum over the axis; integers modulo 2⁶⁴."""
        values = widened(X)
        found = self.n * values
        found -= axis_sum(values)
        return found

    def along_t(self, X: Array) -> Array:
        """The same: nI − J is symmetric."""
        return self.along(X)
