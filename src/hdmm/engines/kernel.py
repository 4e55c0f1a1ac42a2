"""Kronecker products on whole arrays of one namespace: NumPy, or CuPy on a GPU.

(A₁ ⊗ … ⊗ A_d) x takes one product of two matrices per attribute. x is laid out as n₁ × rest; its transpose times A₁ᵀ is
rest × m₁, in which the next attribute comes first; after d products, the attributes are in order again. Factors are
written out: on a GPU a dense product with 63 rows takes little longer than reading and writing x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hdmm.matrix import Array, Eye, Matrix, Ones, to_dense
from hdmm.matrix.elementary import multiply_along

_SOURCE = Path(__file__).with_name("product.cu")
_ROWS = 16  # ROWS in product.cu
_THREADS = 128


def kron_product(xp: Any, factors: Sequence[Matrix], x: Any) -> Any:
    """(⊗ factors) x in float64, flat. O(Σᵢ mᵢ·entries).

    >>> kron_product(np, [Ones(1, 2), Eye(2)], np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    return _one_by_one(xp, factors, x, lambda A, x: x.T @ xp.asarray(A.astype(np.float64)).T)


def exact_kron_product(xp: Any, factors: Sequence[Matrix], x: Any) -> Any:
    """(⊗ factors) x for integers, modulo 2⁶⁴: the same numbers as lattice.exact_answers, whatever x holds.

    The steps taken depend on the factors and on the shapes alone, so that their time reveals nothing about x.

    >>> exact_kron_product(np, [Ones(1, 2), Eye(2)], np.array([[1, 2], [3, 2**62]]))
    array([                  4, 4611686018427387906])
    """
    if xp is np:
        return _one_by_one(xp, factors, x, lambda A, x: multiply_along(A.astype(np.int64), x[None])[0].T)
    return _one_by_one(xp, factors, x, lambda A, x: _by_kernel(xp, A, x))


def _one_by_one(xp: Any, factors: Sequence[Matrix], x: Any, times: Callable[[Array, Any], Any]) -> Any:
    """xᵀAᵀ for one factor after the other."""
    for A in factors:
        x = x.reshape(A.shape[1], -1)
        match A:
            case Eye():
                x = xp.ascontiguousarray(x.T)
            case Ones(1, _):
                x = x.sum(axis=0)
            case _:
                x = times(to_dense(A), x)
    return x.reshape(-1)


def _by_kernel(cp: Any, A: Array, x: Any) -> Any:
    m, n = A.shape
    length = x.shape[1]
    out = cp.empty((length, m), dtype=cp.int64)
    if out.size:
        padded = np.zeros((n, -(-m // _ROWS) * _ROWS), dtype=np.int64)
        padded[:, :m] = A.T
        sizes = np.int32(m), np.int32(padded.shape[1]), np.int32(n), np.uint64(length)
        _kernel(cp)((-(-length // _THREADS),), (_THREADS,), (cp.asarray(padded), x, out, *sizes))
    return out


@lru_cache(maxsize=1)
def _kernel(cp: Any) -> Any:
    return cp.RawKernel(_SOURCE.read_text(encoding="utf-8"), "product", options=("-std=c++14",))
