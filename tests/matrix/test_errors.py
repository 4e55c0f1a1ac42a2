"""Bad input is refused with a message that names it; nothing large is built by accident."""

import numpy as np
import pytest
import scipy.sparse as sp

from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervals,
    AllIntervalsGram,
    Chain,
    Conjugated,
    Cumulative,
    Dense,
    Diag,
    ExtendedDiagonal,
    Eye,
    Intervals,
    Kron,
    Ones,
    Permuted,
    PIdentity,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    Sum,
    column_norms,
    diagonal,
    gram,
    gram_inverse,
    nbytes,
    quadratic,
    to_dense,
    trace,
    trace_product,
)

BAD = {
    "n of Eye must be at least 1, not 0": lambda: Eye(0),
    "n of Eye must be an integer of at least 1, not 2.5": lambda: Eye(2.5),
    "n of Cumulative must be at least 1": lambda: Cumulative(-3),
    "n of AllIntervals must be at least 1": lambda: AllIntervals(0),
    "n of AllIntervalsGram must be at least 1": lambda: AllIntervalsGram(0),
    "m of Ones must be at least 0, not -1": lambda: Ones(-1, 2),
    "n of Ones must be an integer": lambda: Ones(1, "2"),
    r"array of Dense must be a 2-D array, not one of shape \(3,\)": lambda: Dense([1, 2, 3]),
    "array of Dense .* holds NaN or infinity": lambda: Dense([[1.0, np.nan]]),
    "array of Dense must hold real numbers, not complex128": lambda: Dense([[1j]]),
    "array of Dense must hold real numbers, not object": lambda: Dense([[2**70]]),
    r"array of Dense holds integers of 2\^63": lambda: Dense(np.array([[2**64 - 1]], dtype=np.uint64)),
    "d of Diag must be a 1-D array": lambda: Diag([[1.0]]),
    "Sparse takes a scipy.sparse matrix, not ndarray": lambda: Sparse(np.eye(2)),
    "csr of Sparse .* holds NaN": lambda: Sparse(sp.csr_array([[np.nan]])),
    r"Interval 1 is \(2, 1\)": lambda: Intervals(4, [0, 2], [1, 1]),
    r"Interval 0 is \(0, 4\)": lambda: Intervals(4, [0], [4]),
    "2 values of lo but 1 of hi": lambda: Intervals(4, [0, 1], [1]),
    "lo of Intervals must hold integers, not float64": lambda: Intervals(4, [0.5], [1]),
    "lo of Intervals must be a 1-D array": lambda: Intervals(4, [[0]], [1]),
    "must be at least 0; their least entry is -1": lambda: PIdentity([[-1.0, 2.0]]),
    "must have at least one column": lambda: PIdentity(np.zeros((2, 0))),
    "entries above 0": lambda: ExtendedDiagonal(Dense([[1, 2]]), [1, 0]),
    "1 entries on a diagonal with 2 columns below": lambda: ExtendedDiagonal(Dense([[1, 2]]), [1]),
    "are Dense, Nested or Forest, not Eye": lambda: ExtendedDiagonal(Eye(2), [1, 1]),
    "Give a diagonal, or an order": lambda: ExtendedDiagonal(Dense([[1, 2]])),
    "index has 1 entries but the matrix has 2 columns": lambda: Permuted(Eye(2), [0]),
    "each of 0 … 1 exactly once": lambda: Permuted(Eye(2), [0, 0]),
    "each of 0 … 2 exactly once": lambda: Conjugated(Eye(3), [0, 1, 3]),
    "Conjugated takes a square matrix": lambda: Conjugated(Ones(1, 2), [0, 1]),
    "3 weights but the matrix has 2 rows": lambda: RowScaled([1, 2, 3], Eye(2)),
    "finite int or float, not by nan": lambda: Scaled(float("nan"), Eye(2)),
    "finite int or float, not by '2'": lambda: Scaled("2", Eye(2)),
    "Kron needs at least one matrix": lambda: Kron(()),
    r"Kron takes matrices; number 1 is ndarray. Use Dense\(array\)": lambda: Kron((Eye(2), np.eye(2))),
    "Stack needs at least one matrix": lambda: Stack(()),
    "Block 0 of a Stack has 2 columns but block 1 has 3": lambda: Stack((Eye(2), Eye(3))),
    r"term 0 has \(2, 2\), term 1 has \(3, 3\)": lambda: Sum((Eye(2), Eye(3))),
    r"multiplies \(1, 2\) by \(3, 3\)": lambda: Chain(Ones(1, 2), Eye(3)),
    r"shape \(1, 2\) multiplies 2-D arrays with 2 rows": lambda: Ones(1, 2).matmat(np.ones((3, 1))),
    r"order must be 1 \(Σ": lambda: column_norms(Eye(2), 0),
    "Only a square matrix has a diagonal": lambda: diagonal(Ones(1, 2)),
    "Only a square matrix has a trace": lambda: trace(Ones(1, 2)),
    r"two square matrices of one size, not \(2, 2\) and \(3, 3\)": lambda: trace_product(Eye(2), Eye(3)),
    r"needs a Z of shape \(2, 2\), not \(3, 3\)": lambda: quadratic(Ones(1, 2), Eye(3)),
    "AᵀA of a Ones of shape .* is singular": lambda: gram_inverse(Ones(1, 2)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises(MatrixError, match=message):
        BAD[message]()


HUGE = Kron((Cumulative(10**5), AllIntervalsGram(10**5)))


@pytest.mark.parametrize(
    "listing",
    [to_dense, lambda A: column_norms(A, 1), diagonal, lambda A: gram_inverse(Sum((A, A)))],
    ids=["to_dense", "column_norms", "diagonal", "gram_inverse"],
)
def test_what_would_not_fit_is_refused(listing):
    with pytest.raises(MatrixError, match=r"would take \d+(\.\d)? (GB|TB|PB|EB)|would take 10\^"):
        listing(HUGE)


def test_products_without_structure_are_refused_at_size():
    with pytest.raises(MatrixError, match="no structured rule"):
        trace_product(HUGE, Kron((Cumulative(10**6), AllIntervalsGram(10**4))))


def test_to_dense_has_a_cap_the_caller_can_move():
    A = Ones(1000, 1000)
    with pytest.raises(MatrixError, match=r"would take 8.0 MB written out; the limit is 1.0 MB"):
        to_dense(A, max_bytes=10**6)
    assert to_dense(A, max_bytes=8 * 10**6).shape == (1000, 1000)
    with pytest.raises(MatrixError, match=r"22\.0 TB"):
        to_dense(Ones(22 * 10**6, 125_000))
    assert to_dense(Ones(1, 10**6)).sum() == 10**6


def test_arrays_are_held_read_only():
    array = np.ones((2, 2))
    A = Dense(array)
    array[0, 0] = 7
    assert A.array[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        A.array[0, 0] = 3
    lo = np.array([0, 1])
    B = Intervals(2, lo, lo)
    lo[:] = 5
    assert B.lo.tolist() == [0, 1]
    csr = sp.csr_array(np.eye(2))
    C = Sparse(csr)
    csr.data[0] = 9
    assert to_dense(C).tolist() == [[1, 0], [0, 1]]


def test_nbytes_counts_an_array_once():
    D = Dense(np.ones((10, 20)))
    assert nbytes(D) == 1600
    assert nbytes(Kron((D, D, Eye(10**9)))) == 1600
    assert nbytes(Stack((D, Scaled(2, D), Dense(np.ones((1, 20)))))) == 1760
    assert nbytes(Kron((D, Dense(np.ones((10, 20)))))) == 3200
    assert nbytes(AllIntervals(10**6)) == 0
    index = np.arange(4)
    index.flags.writeable = False
    assert nbytes(Stack((Permuted(Eye(4), index), Permuted(Cumulative(4), index)))) == 32


def test_equal_terms_of_a_gram_matrix_merge():
    assert gram(Stack((Eye(3), Scaled(2, Eye(3))))) == Scaled(5, Eye(3))
    assert gram(Stack((Ones(1, 3), Ones(2, 3)))) == Scaled(3, Ones(3, 3))
    assert gram(Permuted(Eye(3), [2, 0, 1])) == Eye(3)
    assert gram(AllIntervals(9)) == AllIntervalsGram(9)
    assert gram(Kron((Ones(1, 2), Eye(2)))) == Kron((Ones(2, 2), Eye(2)))
