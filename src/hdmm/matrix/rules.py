"""The operations on matrices, each a free function that knows every kind of matrix."""

from hdmm.matrix.dense import to_dense
from hdmm.matrix.grams import gram
from hdmm.matrix.inverses import gram_inverse, pinv
from hdmm.matrix.largest import largest_column_norm
from hdmm.matrix.norms import column_norms, row_norms_squared
from hdmm.matrix.products import trace_product
from hdmm.matrix.quadratics import quadratic
from hdmm.matrix.storage import nbytes
from hdmm.matrix.traces import diagonal, total, trace
from hdmm.matrix.unions import column_norm

__all__ = [
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
    "to_dense",
    "total",
    "trace",
    "trace_product",
]
