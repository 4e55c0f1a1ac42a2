"""Implicit linear algebra: matrices known by what they do to vectors."""

from hdmm.matrix.augmented import Augmented
from hdmm.matrix.base import Array, Matrix, Transpose
from hdmm.matrix.blocks import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.compose import Chain, Kron, Stack, Sum, summed
from hdmm.matrix.haar import Haar
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.p_identity import PIdentity
from hdmm.matrix.rules import (
    column_norm,
    column_norms,
    diagonal,
    gram,
    gram_inverse,
    largest_column_norm,
    nbytes,
    pinv,
    quadratic,
    row_norms_squared,
    to_dense,
    total,
    trace,
    trace_product,
)
from hdmm.matrix.tree import Nested, TreeIdentity
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled, scaled

__all__ = [
    "AllIntervals",
    "AllIntervalsGram",
    "Array",
    "Augmented",
    "Chain",
    "Conjugated",
    "Cumulative",
    "Dense",
    "Diag",
    "Eye",
    "Gram",
    "Haar",
    "Intervals",
    "Kron",
    "Matrix",
    "Nested",
    "Ones",
    "PIdentity",
    "Permuted",
    "RowScaled",
    "Scaled",
    "Sparse",
    "Stack",
    "Sum",
    "Transpose",
    "TreeIdentity",
    "column_norm",
    "column_norms",
    "diagonal",
    "gram",
    "gram_inverse",
    "largest_column_norm",
    "nbytes",
    "pinv",
    "quadratic",
    "row_norms_squared",
    "scaled",
    "summed",
    "to_dense",
    "total",
    "trace",
    "trace_product",
]
