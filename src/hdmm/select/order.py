"""cell_order: an order of the cells in which those that queries ask about together are neighbours."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from hdmm.matrix import Array, Matrix, diagonal
from hdmm.matrix.blocked import coarsened
from hdmm.matrix.checks import inverse

_NEAR = 4.0  # mean steps between neighbours: 1 if sorted, about n/3 if shuffled
_MANY = 8192  # cells whose own order is kept if it can be: in another one, products with blocks of V take long


def cell_order(V: Matrix) -> Array:
    """The cells in their own order, or in spectral order if their own scatters cells that are asked about together.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> cell_order(AllIntervalsGram(4))
    array([0, 1, 2, 3])
    """
    n = V.shape[0]
    if n > _MANY and coarsened(V, 1) is not None:  # all queries are intervals of cells
        return np.arange(n)
    order = spectral_order(V)
    return np.arange(n) if np.abs(np.diff(inverse(order))).sum() <= _NEAR * n else order


def spectral_order(V: Matrix) -> Array:
    """The cells sorted by the Fiedler vector of V as a similarity; V_ij counts the queries on both i and j.

    The second eigenvector of D^-½VD^-½, D = diag(V1), sorts prefix sums, ranges and similar queries, whatever the
    original order of their cells. The end with the larger diagonal comes first. A few dozen products with V.

    >>> from hdmm.matrix import AllIntervalsGram, Conjugated
    >>> order = spectral_order(Conjugated(AllIntervalsGram(5), [3, 0, 4, 1, 2]))
    >>> order.tolist() in ([1, 3, 4, 0, 2], [2, 0, 4, 3, 1])
    True
    """
    n = V.shape[0]
    degrees = V.matmat(np.ones((n, 1)))[:, 0].astype(np.float64)
    if n < 3 or not (degrees > 0).all():
        return np.arange(n)
    roots = 1 / np.sqrt(degrees)
    top = np.sqrt(degrees / degrees.sum())

    def product(x: Array) -> Array:  # without the top eigenvector, whose eigenvalue is 1
        y = roots * V.matmat((roots * np.ravel(x))[:, None])[:, 0]
        return y - top * (top @ np.ravel(x))

    start = np.cos(np.arange(n))  # any vector, the same every time
    try:
        _, vectors = eigsh(
            LinearOperator((n, n), matvec=product, dtype=np.float64),  # pyright: ignore[reportCallIssue]
            k=1,
            which="LA",
            v0=start,
            tol=1e-10,  # pyright: ignore[reportArgumentType]
            maxiter=300,
        )
    except ArpackError:  # it did not converge, or V has rank one and nothing is left to sort by
        return np.arange(n)
    order = np.argsort(roots * vectors[:, 0], kind="stable")
    d = diagonal(V).astype(np.float64)[order]
    half = n // 2
    return order if d[:half].sum() >= d[n - half :].sum() else order[::-1].copy()
