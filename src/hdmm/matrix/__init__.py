"""Implicit linear algebra. Matrices are known by what they do along one axis of an array, never by their entries.

The kinds: `elementary`, `intervals`, `haar` and `nested` on one attribute, `extended` (a diagonal with rows below),
`wrapped` and `compose` for those made from others. The operations, one file each, by single dispatch: `dense`,
`grams`, `inverses`, `norms`, `traces`, `traced_products`, `quadratics`, `blocked`, `storage`; `integers` rounds
factors, and `sensitivity` finds the largest column norm of a union of products, exactly. Nothing here knows of
domains, privacy or data. Open `matrix` first: it says what a new kind must define.
"""

from hdmm.matrix.compose import Chain, Kron, Stack, Sum, summed
from hdmm.matrix.dense import to_dense
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.extended import ExtendedDiagonal, PIdentity, TreeIdentity
from hdmm.matrix.grams import gram
from hdmm.matrix.haar import Haar
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.inverses import gram_inverse
from hdmm.matrix.matrix import Array, Matrix, Transpose
from hdmm.matrix.nested import Forest, Nested
from hdmm.matrix.norms import column_norms
from hdmm.matrix.quadratics import quadratic
from hdmm.matrix.residual_matrix import Residual
from hdmm.matrix.sensitivity import largest_column_norm
from hdmm.matrix.storage import nbytes
from hdmm.matrix.traced_products import trace_product
from hdmm.matrix.traces import diagonal, exchangeable, total, trace
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, Repeated, RowScaled, Scaled, scaled

__all__ = [
    "AllIntervals",
    "AllIntervalsGram",
    "Array",
    "Chain",
    "Conjugated",
    "Cumulative",
    "Dense",
    "Diag",
    "ExtendedDiagonal",
    "Eye",
    "Forest",
    "Gram",
    "Haar",
    "Intervals",
    "Kron",
    "Matrix",
    "Nested",
    "Ones",
    "PIdentity",
    "Permuted",
    "Repeated",
    "Residual",
    "RowScaled",
    "Scaled",
    "Sparse",
    "Stack",
    "Sum",
    "Transpose",
    "TreeIdentity",
    "column_norms",
    "diagonal",
    "exchangeable",
    "gram",
    "gram_inverse",
    "largest_column_norm",
    "nbytes",
    "quadratic",
    "scaled",
    "summed",
    "to_dense",
    "total",
    "trace",
    "trace_product",
]
