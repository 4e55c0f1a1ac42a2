"""listed_rows: a matrix with few entries as compressed rows, whatever it is written as."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from hdmm.matrix.checks import inverse
from hdmm.matrix.elementary import Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.intervals import Intervals
from hdmm.matrix.matrix import Matrix
from hdmm.matrix.nested import Forest
from hdmm.matrix.wrapped import Permuted, RowScaled, Scaled

MOST_ENTRIES = 2**24
"""The most entries that are listed: 256 MiB."""


def listed_rows(A: Matrix) -> Any | None:
    """A as a scipy.sparse.csr_array of floats; None if it has no short list of entries. O(entries).

    >>> listed_rows(Intervals(4, [0, 2], [1, 2])).toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 0.]])
    """
    m, n = A.shape
    match A:
        case Eye() | Diag():
            return sp.diags_array(np.ones(n) if isinstance(A, Eye) else A.d.astype(np.float64), format="csr")
        case Dense(array) if m * n <= MOST_ENTRIES:
            return sp.csr_array(array.astype(np.float64))
        case Ones() if m * n <= MOST_ENTRIES:
            return sp.csr_array(np.ones((m, n)))
        case Sparse(csr) | Forest(_, _, csr):
            return csr.astype(np.float64)
        case Intervals(_, lo, hi):
            widths = (hi - lo + 1).astype(np.int64)
            starts = np.concatenate([[0], np.cumsum(widths)])
            if starts[-1] > MOST_ENTRIES:
                return None
            columns = np.arange(starts[-1]) + np.repeat(lo - starts[:-1], widths)
            return sp.csr_array((np.ones(len(columns)), columns, starts), shape=(m, n))
        case Scaled(c, inner) | RowScaled(c, inner):
            rows = listed_rows(inner)
            weights = np.broadcast_to(np.asarray(c, dtype=np.float64), m)
            return None if rows is None else sp.diags_array(weights) @ rows
        case Permuted(inner, index):
            rows = listed_rows(inner)
            return (
                None if rows is None else sp.csr_array((rows.data, inverse(index)[rows.indices], rows.indptr), (m, n))
            )
        case _:
            return None
