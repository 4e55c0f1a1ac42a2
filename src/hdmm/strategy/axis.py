"""Axis: one attribute, in coordinates in which all factors that a strategy uses on it are diagonal.

For the factors A_j of the attribute we look for Q with Qᵀ(A_jᵀA_j)Q = diag(δ_j) for every j (design, section 3).
Columns of Q with equal δ's form a *class* c. Error and variance need only Z_c = Q_c Q_cᵀ of each class, estimates only
a factorisation Z_c = S_c R_c of it:

    diag(QᵀVQ) summed over the class = tr(V Z_c)          Σ (wQ_c)² = w Z_c wᵀ          x̂ = Σ_c S_c (R_c Aᵀy) / λ_c

If Total is among the factors, it has rank one, so it sees exactly one column u of Q. That column is always the first
class, scaled to 1ᵀu = 1: Total measures it with δ = 1 for every n, and nothing else. So a block that totals an
attribute involves only coordinate 0, products over many totalled attributes neither overflow nor underflow, and
neither errors nor estimates ever use attributes that are only totalled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import ClassVar, final

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SUPPORT
from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    ExtendedDiagonal,
    Eye,
    Gram,
    Haar,
    HalvedTriangle,
    Kron,
    Matrix,
    Ones,
    Permuted,
    Residual,
    Scaled,
    Sparse,
    Stack,
    Sum,
    gram,
    gram_inverse,
    quadratic,
    to_dense,
    trace,
    trace_product,
)
from hdmm.matrix.matrix import frozen

_ROUNDING = 1e-14  # where a class is measured, no more than this is cut: steep bases have classes with ‖Z_c‖ near 1e8
_COMMUTE = 1e-8  # off-diagonals above this, of whitened grams of norm 1, mean that they do not commute
_SAME = 1e-10  # δ's closer than this are one class; eigenvalues of whitened grams are good to 1e-13
_SAFE = 1e-11  # least reciprocal condition at which a gram is inverted; below, its eigenvectors show its rank
_NOTHING = 1e-18  # of tr(AᵀA)·‖u‖²: less of Total's direction is rounding, which stays near 1e-21 of it
_WRITTEN = 64  # values of an attribute up to which its coordinates are a table: one product, not several


@dataclass(frozen=True, eq=False)
class Axis(ABC):
    """The classes of one attribute and the coordinates in them, class by class.

    `delta` is classes × factors: what each factor measures of each class; 0 is nothing. `sizes` says how many
    coordinates each class has. R, the `analysis`, goes from Aᵀy, where y are answers to a factor A, to coordinates; S,
    the `synthesis`, from coordinates back to cells.
    """

    factors: tuple[Matrix, ...]
    delta: Array
    sizes: Array
    analysis: Matrix
    synthesis: Matrix
    rounding: ClassVar[float]  # the least tolerance of `traces` at which what is left is no rounding

    @abstractmethod
    def traces(self, V: Matrix, tolerance: float = SUPPORT) -> Array:
        """tr(V Z_c) for every class, what may be rounding set to 0."""

    @abstractmethod
    def variances(self, W: Matrix) -> Array:
        """w Z_c wᵀ for every row w of W and class: m × classes."""

    @abstractmethod
    def products(self, R: Array, S: Array) -> Array:
        """r Z_c sᵀ for each pair of columns r of R and s of S, and class: pairs × classes."""

    @abstractmethod
    def mixed(self, weights: Array) -> Matrix:
        """Σ_c weights[c]·Z_c as one form."""

    @final
    @cached_property
    def total(self) -> int | None:
        """The number of Total among the factors, or None. If it is there, coordinate 0 is what it measures."""
        total = Ones(1, self.factors[0].shape[1])
        if len(self.sizes) == 1 and self.sizes[0] > 1:  # the coordinates are cells
            return None
        return next((k for k, A in enumerate(self.factors) if total == A), None)

    @final
    @cached_property
    def coordinates(self) -> int:
        """The number of coordinates."""
        return int(self.sizes.sum())

    @final
    @cached_property
    def analyses(self) -> tuple[Matrix, ...]:
        """From answers to coordinates, for each factor."""
        return tuple(_small(after(self.analysis, A if isinstance(A, Eye) else A.T)) for A in self.factors)


@final
@dataclass(frozen=True, eq=False)
class ClosedAxis(Axis):
    """Few classes, each with an implicit Z_c: products, marginals, marginals over bases."""

    forms: tuple[Matrix, ...]
    rounding = SUPPORT

    def traces(self, V: Matrix, tolerance: float = SUPPORT) -> Array:
        if len(self.factors) == 1 and self.total is not None and isinstance(V, Ones):
            return np.eye(len(self.forms))[0]  # to the last digit
        values = np.array([trace_product(Z, V) for Z in self.forms])
        sizes = np.array([trace(Z) for Z in self.forms])
        return np.where(values > tolerance * trace(V) * sizes / V.shape[0], values, 0.0)

    def variances(self, W: Matrix) -> Array:
        return np.stack([np.maximum(quadratic(W, Z), 0.0) for Z in self.forms], axis=1)

    def products(self, R: Array, S: Array) -> Array:
        return np.stack([np.einsum("ij,ij->j", R, Z.matmat(S)) for Z in self.forms], axis=1)

    def mixed(self, weights: Array) -> Matrix:
        return Sum(tuple(Scaled(float(w), Z) for w, Z in zip(weights, self.forms, strict=True)))


@final
@dataclass(frozen=True, eq=False)
class EigenAxis(Axis):
    """Any factors that diagonalise together, by the columns of Q in the order of their classes."""

    Q: Array
    rounding = _ROUNDING

    @classmethod
    def of(cls, factors: tuple[Matrix, ...], delta: Array, sizes: Array, Q: Array) -> EigenAxis:
        """The axis of these columns: Z_c = Q_c Q_cᵀ is its own factorisation."""
        S = Dense(frozen(Q))
        return cls(factors, delta, sizes, S.T, S, Q)

    @property
    def starts(self) -> Array:
        """The first column of each class."""
        return np.cumsum(self.sizes) - self.sizes

    def traces(self, V: Matrix, tolerance: float = SUPPORT) -> Array:
        values = np.add.reduceat(np.einsum("ij,ij->j", self.Q, V.matmat(self.Q)), self.starts)
        sizes = np.maximum.reduceat(np.einsum("ij,ij->j", self.Q, self.Q), self.starts)
        # A class that every factor measures never decides support: nothing of it is cut.
        cut = np.where((self.delta > 0).all(axis=1), 0.0, tolerance)
        return np.where(values > cut * trace(V) * sizes, values, 0.0)

    def variances(self, W: Matrix) -> Array:
        return np.add.reduceat(W.matmat(self.Q) ** 2, self.starts, axis=1)

    def products(self, R: Array, S: Array) -> Array:
        return np.add.reduceat((R.T @ self.Q) * (S.T @ self.Q), self.starts, axis=1)

    def mixed(self, weights: Array) -> Matrix:
        return Dense((self.Q * np.repeat(weights, self.sizes)) @ self.Q.T)


@lru_cache(maxsize=512)
def axis_of(factors: tuple[Matrix, ...]) -> Axis | None:
    """The axis of the distinct factors of one attribute, or None if they do not diagonalise together.

    One factor always does, and so do two (generalised eigenvectors) and any number that commute once whitened. One
    factor, alone or with Total, has a closed form if together they distinguish all cells: O(cost of its inverse).
    All other cases cost O(n³).

    >>> axis_of((Eye(3), Ones(1, 3))).delta
    array([[0.33333333, 1. ],
           [1. , 0. ]])
    >>> axis_of((Ones(1, 3), Residual(3))).delta
    array([[1., 0.],
           [0., 1.]])
    """
    total = Ones(1, factors[0].shape[1])
    others = [A for A in factors if total != A]
    closed = None
    if len(factors) == 1 and others:
        closed = _alone(*others)
    elif len(others) < min(len(factors), 2):
        closed = _beside_total(factors, *others)
    return closed or _by_eigenvectors(factors)


def cells_of(factors: tuple[Matrix, ...]) -> Axis:
    """The axis whose coordinates are the cells, whatever the factors: one class, which nothing is said about."""
    n = factors[0].shape[1]
    factors = tuple([Eye(1) if Ones(1, 1) == A else A for A in factors])  # of one value, the total is the cell
    return ClosedAxis(factors, np.ones((1, len(factors))), np.array([n]), Eye(n), Eye(n), ())


def axis_beside_total(factors: tuple[Matrix, ...]) -> Axis | None:
    """The axis of an attribute on which blocks differ by Total at most, so that it has two classes; else None.

    On one value all factors are multiples of Total, and there is one class.
    """
    if factors[0].shape[1] == 1:
        return axis_of(factors)
    if len(factors) > 2 or (len(factors) == 2 and Ones(1, factors[0].shape[1]) not in factors):
        return None
    axis = axis_of(factors)
    return axis if axis is not None and len(axis.delta) <= 1 + (axis.total is not None) else None


def joint_variances(axes: Sequence[Axis], W: Matrix) -> Array:
    """w(⊗ Z_c)wᵀ for every row w of W and combination of classes, the first attribute's slowest; rounding set to 0.

    Z_c = S_c R_c on each attribute: O(cost of S and R) per row, and no form over the cells of all attributes.
    """
    columns = W.T.matmat(np.eye(W.shape[0]))
    table = np.maximum(joint_products(axes, columns, columns), 0.0)
    sizes = reduce(np.multiply.outer, map(_class_sizes, axes)).ravel()
    seen = table.sum(axis=0) > SUPPORT * float((columns**2).sum()) * sizes / W.shape[1]
    return np.where(seen, table, 0.0)


def joint_products(axes: Sequence[Axis], R: Array, S: Array) -> Array:
    """r(⊗ Z_c)sᵀ for each pair of columns r of R and s of S, and combination of classes: pairs × combinations."""
    sides = [_sides(axis) for axis in axes]
    left = Kron(tuple(each for each, _, _ in sides)).matmat(R)
    right = Kron(tuple(each for _, each, _ in sides)).matmat(S)
    table = (left * right).T.reshape(-1, *(each.shape[0] for each, _, _ in sides))
    for k, (_, _, starts) in enumerate(sides):
        table = np.add.reduceat(table, starts, axis=1 + k)
    return table.reshape(len(table), -1)


def after(first: Matrix, second: Matrix) -> Matrix:
    """first·second; identities cost nothing."""
    if isinstance(first, Eye):
        return second
    return first if isinstance(second, Eye) else Chain(first, second)


def inverse_gram(A: Matrix) -> Matrix | None:
    """(AᵀA)⁻¹, implicit if A has structure; None if A is singular or nearly so."""
    if is_structured(A):
        return gram_inverse(A)
    found = _inverted(to_dense(gram(A)).astype(np.float64))
    return None if found is None else Dense(frozen(found[0]))


def _alone(A: Matrix) -> Axis | None:
    """The axis of one factor: its coordinates are the cells, with H = (AᵀA)⁻¹. None if A is singular or nearly so."""
    H, n = inverse_gram(A), A.shape[1]
    return None if H is None else ClosedAxis((A,), np.ones((1, 1)), np.array([n]), H, Eye(n), (H,))


def _beside_total(factors: tuple[Matrix, ...], A: Matrix | None = None) -> Axis | None:
    """The axis of Total, alone or with A; None if together they do not, or hardly, distinguish all cells.

    With H = (AᵀA + τJ)⁻¹, h = H1 and c = 1ᵀh, Total sees u = h/c and the rest is H − hhᵀ/c, both the same for every τ.
    So A may be singular along one direction, as the residual factor nI − J is; if it is nearly so, τ > 0 loses no
    digits. A measures κ = ‖Au‖² of Total's direction: 1/c if τ = 0.

    The coordinates of the rest are all cells except the last, because they sum to 0; there are none if nothing
    measures the rest.
    """
    n = factors[0].shape[1]
    rest: Matrix
    if isinstance(A, Residual):
        u, kappa, rest = np.full(n, 1 / n), 0.0, Scaled(1 / n**3, A)
    elif A is None or is_structured(A):
        H = gram_inverse(Eye(n) if A is None else A)
        h = H.matmat(np.ones((n, 1)))[:, 0]
        c = float(h.sum())
        rest = Sum((H, Scaled(-1 / c, Gram(Dense(frozen(h[None, :]))))))
        u, kappa = h / c, 1 / c
    else:
        K = to_dense(gram(A)).astype(np.float64)
        size = float(np.trace(K))
        found = _inverted(K + size / n**2)
        if found is None:
            return None
        inverse, h = found
        u = h / h.sum()
        rest = Dense(frozen(inverse - np.outer(h, u)))
        kappa = float(np.sum(A.matmat(u[:, None]) ** 2))
        kappa = kappa if kappa > _NOTHING * size * float(u @ u) else 0.0
    delta = np.array([[kappa, 1.0] if B is A else [1.0, 0.0] for B in factors]).T
    row = Dense(frozen(u[None, :]))
    forms = (Gram(row), rest)
    if n == 1:  # with one value, the total has no complement
        return ClosedAxis(factors, delta[:1], np.array([1]), row, row.T, forms[:1])
    if A is None:
        return ClosedAxis(factors, delta, np.array([1, 0]), row, row.T, forms)
    analysis, synthesis = Stack((row, Chain(_first(n), rest))), Stack((row, _zero_sum(n))).T
    return ClosedAxis(factors, delta, np.array([1, n - 1]), _small(analysis), _small(synthesis), forms)


def _class_sizes(axis: Axis) -> Array:
    """tr Z_c of every class."""
    left, right, starts = _sides(axis)
    return np.add.reduceat(np.einsum("kn,kn->k", to_dense(right), to_dense(left)), starts)


def _sides(axis: Axis) -> tuple[Matrix, Matrix, Array]:
    """(Sᵀ, R, the first row of each class) with Z_c = S_c R_c."""
    if axis.sizes.all():
        return axis.synthesis.T, axis.analysis, np.cumsum(axis.sizes) - axis.sizes
    # A class that nothing measures has no coordinates; predicates may see it all the same.
    n, classes = axis.factors[0].shape[1], len(axis.sizes)
    forms = [axis.mixed(row) for row in np.eye(classes)]
    return Stack((Eye(n),) * classes), Stack(tuple(forms)), n * np.arange(classes)


def is_structured(A: Matrix) -> bool:
    """Whether the inverse gram is cheap, as for identities (alone or with rows below) and wavelets, in any order.

    >>> is_structured(Eye(3)), is_structured(Ones(1, 3))
    (True, False)
    """
    inner = A.inner if isinstance(A, Permuted | Scaled) else A
    return isinstance(inner, (ExtendedDiagonal, Eye, Haar, HalvedTriangle))


def _inverted(G: Array) -> tuple[Array, Array] | None:
    """(G⁻¹, G⁻¹1), the second to full precision; None if G is singular or nearly so. O(n³)."""
    try:
        factor = scipy.linalg.cho_factor(G, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    H = scipy.linalg.cho_solve(factor, np.eye(len(G)))
    H = (H + H.T) / 2
    if np.abs(G).sum(axis=0).max() * np.abs(H).sum(axis=0).max() * _SAFE > 1:
        return None
    return H, scipy.linalg.cho_solve(factor, np.ones(len(G)))


def _by_eigenvectors(factors: tuple[Matrix, ...]) -> Axis | None:
    """Q with every QᵀG_jQ diagonal, through the whitened sum S = ΣG_j. O(n³) per gram."""
    grams = [to_dense(gram(A)) for A in factors]
    scales = np.array([np.trace(G) for G in grams])
    if not (scales > 0).all():
        raise StrategyError("A factor of the strategy is all zeros. Drop its block or give it queries.")
    scaled = [G / s for G, s in zip(grams, scales, strict=True)]
    white, unseen = _whitening(np.sum(scaled, axis=0))
    inner = [white.T @ G @ white for G in scaled]
    # A generic combination separates the joint eigenspaces; square roots of odd numbers keep it deterministic.
    # For one or two whitened grams (M, or M and I − M) any combination does.
    mix = np.tensordot(np.sqrt(2 * np.arange(len(inner)) + 3), inner, axes=1)
    rotation = scipy.linalg.eigh(mix, driver="evd")[1]
    rotated = [rotation.T @ M @ rotation for M in inner]
    if len(grams) > 2 and any(np.abs(M - np.diag(np.diag(M))).max() > _COMMUTE for M in rotated):
        return None
    delta = np.stack([np.diag(M) for M in rotated], axis=1)
    delta = np.where(delta > _SAME, delta, 0.0)
    order, starts = _classes(delta)
    Q = (white @ rotation)[:, order]
    delta = np.add.reduceat(delta[order], starts, axis=0) / np.diff([*starts, len(order)])[:, None]
    sizes = np.diff([*starts, len(order)])
    if unseen.shape[1]:
        Q = np.hstack([Q, unseen])
        sizes = np.append(sizes, unseen.shape[1])
        delta = np.vstack([delta, np.zeros((1, len(grams)))])
    return _total_first(EigenAxis.of(factors, delta * scales, sizes, Q))


def _total_first(axis: EigenAxis) -> EigenAxis:
    """The same axis with the one column that Total sees first, scaled to a sum of 1."""
    if axis.total is None:
        return axis
    seen = int(np.argmax(axis.delta[:, axis.total]))
    others = np.delete(np.arange(len(axis.delta)), seen)
    u = axis.Q[:, axis.starts[seen]]
    size = float(u.sum())
    delta = np.vstack([axis.delta[seen] / size**2, axis.delta[others]])
    delta[:, axis.total] = np.eye(len(delta))[0]
    Q = np.column_stack([u / size, np.delete(axis.Q, axis.starts[seen], axis=1)])
    return EigenAxis.of(axis.factors, delta, np.array([1, *axis.sizes[others]]), Q)


def _whitening(S: Array) -> tuple[Array, Array]:
    """(P, U) with PᵀSP = I on the range of S and U an orthonormal basis of its null space."""
    n = len(S)
    try:
        L = scipy.linalg.cholesky(S, lower=True)
    except scipy.linalg.LinAlgError:
        L = np.zeros((n, n))
    pivots = np.diag(L)
    if pivots.min() ** 2 > 1e-6 * pivots.max() ** 2:  # far from singular: several times cheaper
        return scipy.linalg.solve_triangular(L, np.eye(n), lower=True).T, np.empty((n, 0))
    # The divide-and-conquer driver: the default loses two digits of orthogonality at n = 1024.
    values, vectors = scipy.linalg.eigh(S, driver="evd")
    seen = values > 10 * n * np.finfo(float).eps * values[-1]
    return vectors[:, seen] / np.sqrt(values[seen]), vectors[:, ~seen]


def _classes(delta: Array) -> tuple[Array, Array]:
    """An order of the rows that puts equal ones together, and where each class starts."""
    order = np.lexsort(np.round(delta.T, 8))
    steps = np.abs(np.diff(delta[order], axis=0)).max(axis=1) > _SAME
    return order, np.concatenate([[0], np.flatnonzero(steps) + 1])


def _small(A: Matrix) -> Matrix:
    """A, written out if that is faster than its parts."""
    if isinstance(A, Eye) or max(A.shape) > _WRITTEN:
        return A
    return Dense(frozen(to_dense(A).astype(np.float64)))


def _first(n: int) -> Matrix:
    """All rows of the identity except the last."""
    return Sparse(sp.eye_array(n - 1, n, format="csr"))


def _zero_sum(n: int) -> Matrix:
    """[I | −1]: all cells except the last, which makes the sum 0."""
    return Sparse(sp.hstack([sp.eye_array(n - 1), -np.ones((n - 1, 1))], format="csr"))
