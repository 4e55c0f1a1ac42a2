"""Implicit linear algebra. Matrices are known by what they do along one axis of an array, never by their entries.

The kinds: `elementary`, `intervals` and `nested` on one attribute, `extended` (a diagonal with rows below),
`wrapped` and `compose` for those made from others. The operations, by single dispatch: `dense` writes a matrix out,
`grams` has AᵀA and its inverse, `norms`, `traces`, `quadratics` (products of two under a trace) and `blocked`;
`integers` rounds factors, and `sensitivity` finds the largest column norm of a union of products, exactly. Nothing here
knows of domains, privacy or data. Open `matrix` first: it says what a new kind must define.
"""

from hdmm.matrix.compose import Chain, Kron, Stack, Sum, summed
from hdmm.matrix.dense import nbytes, to_dense
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones, Residual, Sparse
from hdmm.matrix.extended import ExtendedDiagonal, PIdentity, TreeIdentity
from hdmm.matrix.grams import gram, gram_inverse
from hdmm.matrix.halved import HalvedTriangle
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.matrix import Array, Matrix, Transpose
from hdmm.matrix.nested import Forest, Haar, Nested
from hdmm.matrix.norms import column_norms
from hdmm.matrix.quadratics import quadratic, trace_product
from hdmm.matrix.sensitivity import largest_column_norm
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
    "HalvedTriangle",
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
