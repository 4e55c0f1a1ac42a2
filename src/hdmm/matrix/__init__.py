"""Implicit linear algebra: matrices known by what they do to vectors."""

from hdmm.matrix.base import Array, Matrix, Transpose
from hdmm.matrix.blocks import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.compose import Chain, Kron, Stack, Sum, summed
from hdmm.matrix.dense import to_dense
from hdmm.matrix.extended import ExtendedDiagonal, PIdentity, TreeIdentity
from hdmm.matrix.grams import gram
from hdmm.matrix.haar import Haar
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.inverses import gram_inverse
from hdmm.matrix.largest import largest_column_norm
from hdmm.matrix.norms import column_norms
from hdmm.matrix.products import trace_product
from hdmm.matrix.quadratics import quadratic
from hdmm.matrix.residual import Residual
from hdmm.matrix.storage import nbytes
from hdmm.matrix.traces import diagonal, total, trace
from hdmm.matrix.tree import Forest, Nested
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled, scaled

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
