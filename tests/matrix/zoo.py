"""One line per example: a new class joins the contract by one line here."""

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import (
    AllIntervals,
    AllIntervalsGram,
    Chain,
    Conjugated,
    Cumulative,
    Dense,
    Diag,
    Eye,
    Gram,
    Intervals,
    Kron,
    Matrix,
    Ones,
    Permuted,
    PIdentity,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    Sum,
)

rng = np.random.default_rng(7)

INTEGER = Dense([[1, -2, 0], [3, 1, 1]])  # held as int64
TALL = Dense(rng.normal(size=(6, 3)))
WIDE = Dense(rng.normal(size=(2, 5)))
DEFICIENT = Dense(np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 0.5]))
RANGES = Intervals(4, [0, 1, 2, 0, 0, 3], [3, 2, 2, 0, 3, 3])
SPARSE = Sparse(sp.random_array((7, 4), density=0.4, rng=rng))
BASE = PIdentity(rng.uniform(size=(2, 4)))
SHUFFLE = [2, 0, 3, 1]

ZOO: dict[str, Matrix] = {
    "eye": Eye(4),
    "eye of one": Eye(1),
    "ones": Ones(3, 4),
    "total": Ones(1, 4),
    "one column": Ones(3, 1),
    "no rows": Ones(0, 3),
    "cumulative": Cumulative(5),
    "cumulative of one": Cumulative(1),
    "diag": Diag([2, 0, -3]),
    "diag of floats": Diag([2.5, 0.0, -3.0]),
    "dense integer": INTEGER,
    "dense bytes": Dense(np.array([[100, 100], [-100, 100]], dtype=np.int8)),
    "dense bool": Dense(np.array([[True, False], [True, True]])),
    "dense tall": TALL,
    "dense wide": WIDE,
    "dense deficient": DEFICIENT,
    "dense without rows": Dense(np.zeros((0, 3))),
    "sparse": SPARSE,
    "sparse integer": Sparse(sp.csr_array(np.array([[0, 2, 0], [-1, 0, 3]]))),
    "sparse with full rows": Sparse(sp.csr_array(rng.integers(-2, 3, size=(9, 4)))),
    "sparse and empty": Sparse(sp.csr_array((2, 3))),
    "intervals": RANGES,
    "few intervals": Intervals(5, [1], [3]),
    "no intervals": Intervals(3, [], []),
    "all intervals": AllIntervals(5),
    "all intervals of one": AllIntervals(1),
    "gram of all intervals": AllIntervalsGram(4),
    "p-identity": BASE,
    "p-identity, p = 0": PIdentity(np.zeros((0, 3))),
    "p-identity, p > n": PIdentity(rng.uniform(size=(4, 2))),
    "permuted": Permuted(Cumulative(4), SHUFFLE),
    "permuted total": Permuted(Ones(2, 4), SHUFFLE),
    "permuted p-identity": Permuted(BASE, SHUFFLE),
    "permuted ranges": Permuted(AllIntervals(4), SHUFFLE),
    "row-scaled eye": RowScaled([1.0, 0.0, -2.0], Eye(3)),
    "row-scaled ones": RowScaled([1, 2], Ones(2, 3)),
    "row-scaled diag": RowScaled([1, 2], Diag([3, 4])),
    "row-scaled intervals": RowScaled([1, 2, 3, 4, -5, 6], RANGES),
    "row-scaled all intervals": RowScaled(rng.normal(size=10), AllIntervals(4)),
    "row-scaled dense": RowScaled(rng.normal(size=6), TALL),
    "row-scaled integer": RowScaled([2, 3], INTEGER),
    "row-scaled sparse": RowScaled(rng.normal(size=7), SPARSE),
    "row-scaled twice": RowScaled([1, 2, 3], RowScaled([1.0, 0.5, 2.0], Cumulative(3))),
    "row-scaled permuted": RowScaled([1, 2, 3, 4], Permuted(Cumulative(4), SHUFFLE)),
    "gram": Gram(RANGES),
    "gram of running sums": Gram(Cumulative(4)),
    "gram of wide": Gram(WIDE),
    "conjugated": Conjugated(AllIntervalsGram(4), SHUFFLE),
    "conjugated twice": Conjugated(Conjugated(Cumulative(4), SHUFFLE), SHUFFLE),
    "scaled": Scaled(-3, Cumulative(3)),
    "scaled by a float": Scaled(0.5, Ones(2, 3)),
    "scaled by zero": Scaled(0, Eye(3)),
    "scaled twice": Scaled(2, Scaled(3, Eye(2))),
    "kron": Kron((Cumulative(2), Ones(1, 3), Eye(2))),
    "kron of dense": Kron((TALL, WIDE)),
    "kron of squares": Kron((Gram(WIDE), Eye(2))),
    "kron of one": Kron((INTEGER,)),
    "kron of krons": Kron((Kron((Ones(1, 2), Cumulative(2))), BASE)),
    "kron of turned shapes": Kron((Dense(rng.normal(size=(2, 3))), Dense(rng.normal(size=(3, 2))))),
    "stack": Stack((Eye(4), Ones(1, 4), RANGES, Scaled(2, Ones(1, 4)))),
    "stack of one": Stack((Cumulative(3),)),
    "stack of products": Stack(
        (Kron((Eye(2), AllIntervals(3))), Scaled(2, Kron((Ones(1, 2), Cumulative(3)))))
    ),
    "stack of unlike products": Stack(
        (Kron((Cumulative(2), Eye(6))), Kron((AllIntervals(4), Cumulative(3))))
    ),
    "stack of float products": Stack((Kron((BASE, Eye(3))), Scaled(0.7, Kron((Cumulative(4), Ones(1, 3)))))),
    "sum": Sum((Eye(3), Scaled(2, Ones(3, 3)), Cumulative(3))),
    "sum that cancels": Sum((Eye(3), Scaled(-1, Eye(3)))),
    "bytes throughout": RowScaled(
        np.array([100, 100], dtype=np.int8), Diag(np.array([100, 100], dtype=np.int8))
    ),
    "sparse bytes": Sparse(sp.csr_array(np.array([[100, 0], [100, 100]], dtype=np.int8))),
    "chain": Chain(Ones(2, 4), RANGES.T),
    "chain of two": Chain(TALL, INTEGER.T),
    "transpose": TALL.T,
    "transpose of ones": Ones(1, 4).T,
    "transpose of integers": INTEGER.T,
    "transpose of sparse": SPARSE.T,
    "transpose of intervals": RANGES.T,
    "transpose of p-identity": BASE.T,
    "transpose of kron": Kron((Ones(1, 2), TALL)).T,
    "transpose of a stack": Stack((Eye(2), Dense([[1.0, -2.0]]))).T,
}
