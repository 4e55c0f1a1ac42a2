"""Coupled: X_b⁻¹ where blocks have bases of their own on one attribute or two.

The other attributes split into classes (axis.py), two each. For every combination b of classes, what the blocks measure
of the *free* attributes is one matrix, X_b = Σ_j θ_j² (Π_i δ_ji) G_j, and with what is asked of it, V_b, the error is

    ‖W A⁺‖²_F = Σ_b tr(X_b⁻¹V_b)

One free attribute has n × n matrices X_b of any kind. Two have X = ωA⊗B + A′⊗J + J⊗B′ with J = 11ᵀ if at most one
product ωA⊗B holds both. Let u₀ and C₀ be the coordinates in which A is diag(κ₀, I) and Total sees u₀ only, u₁ and C₁
those of B. Then C₀⊗C₁ has information ωI, apart from all the rest, and the rest is bordered by the total:

    u₀⊗u₁: ωκ₀κ₁ + u₀ᵀA′u₀ + u₁ᵀB′u₁     C₀⊗u₁: ωκ₁I + C₀ᵀA′C₀     u₀⊗C₁: ωκ₀I + C₁ᵀB′C₁

so X⁻¹ = R₀⊗R₁/ω + N₀⊗u₁u₁ᵀ + u₀u₀ᵀ⊗N₁ + wwᵀ/σ, where R = CCᵀ, N₀ = C₀(ωκ₁I + C₀ᵀA′C₀)⁻¹C₀ᵀ, z₀ = N₀A′u₀, and
w = (u₀ − z₀)⊗u₁ − u₀⊗z₁. Every inverse here is a sum of a few Kronecker products of one matrix per free attribute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import scipy.linalg

from hdmm.describe.product import Attributes
from hdmm.matrix import Array, Dense, Matrix, Ones, gram, quadratic, to_dense, trace, trace_product
from hdmm.strategy.axis import Axis, axis_of
from hdmm.strategy.class_inverse import Boxes, Inverse, Pairs
from hdmm.strategy.mixture import Mixture, box_keys

_MOST_NUMBERS = 1 << 26  # of the inverses of all classes together (512 MiB)
_MOST_STEPS = 1 << 36  # Σ n³ over all classes: half a minute
_MOST_REACH = 1 << 20  # classes that the blocks reach, repeats counted
_SAFE = 1e-10  # least squared pivot, of a matrix with diagonal 1, at which a Cholesky factor is trusted
_ROUNDED = 100 * np.finfo(float).eps  # squared pivots below that, times n, of the diagonal are rounding
_SUPPORT = 1e-11  # of tr(U)·tr(V): rounding in tr(UV) stays near 1e-15 of it

Term: TypeAlias = tuple[Array, ...]
"""⊗ of one matrix per free attribute, for every class: each classes × n × n."""


@final
@dataclass(frozen=True, eq=False)
class Coupled(Inverse):
    """X_b⁻¹ of the classes that blocks reach, which are named by the attributes that are not in Total's class.

    `seen` are the terms whose sum is X⁻¹, `unseen` those of a form that is 0 for supported queries only.
    """

    attributes: int
    free: Attributes
    largest: float  # squared weight
    keys: Array
    seen: tuple[Term, ...]
    unseen: tuple[Term, ...]

    @classmethod
    def of(cls, lam: Mixture, factors: Sequence[tuple[Matrix, ...]], free: Attributes) -> Coupled | None:
        """The inverse for blocks whose λ on the other attributes is given; None if it is too large, or more are free.

        O(classes · n³) for one free attribute of n values, and O(classes · (n₀³ + n₁³)) for two.
        """
        if not 1 <= len(free) <= 2 or lam.reach > _MOST_REACH:
            return None
        keys, choices, squares = lam.sparse.keys, lam.choices, lam.coefficients
        sizes = [factors[i][0].shape[1] for i in free]
        numbers, steps = (len(keys) * sum(n**k for n in sizes) for k in (2, 3))
        if numbers * (1 if len(free) == 1 else 4) > _MOST_NUMBERS or steps > _MOST_STEPS:
            return None
        combinations, which = np.unique(choices[:, list(free)], axis=0, return_inverse=True)
        weights = np.stack(
            [
                Mixture(squares[rows], choices[rows], lam.tables).sparse.at(keys)
                for rows in (np.flatnonzero(which.ravel() == k) for k in range(len(combinations)))
            ],
            axis=1,
        )
        measured = [[factors[i][k] for i, k in zip(free, row, strict=True)] for row in combinations.tolist()]
        found = _alone(weights, measured) if len(free) == 1 else _together(weights, measured)
        return found and cls(len(factors), free, float(squares.max()), keys, *found)

    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        """O(classes · n²) products with V."""
        asked = t.sparse
        values, places = asked.values, self._places(asked.keys)
        if not supported and ((places[values > 0] < 0).any() or self._unsupported(V, places[values > 0])):
            return math.inf
        here = (values > 0) & (places >= 0)
        return float(values[here] @ self._traces(self.seen, V, places[here]))

    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        places = self._places(box_keys(boxes, self.attributes))
        found = np.zeros((len(places), *[each.shape[0] for each in W]))
        for k in np.flatnonzero(places >= 0).tolist():
            for term in self.seen:
                each = [quadratic(w, Dense(_even(K[places[k]]))) for w, K in zip(W, term, strict=True)]
                found[k] += each[0] if len(each) == 1 else np.multiply.outer(*each)
        return np.maximum(found, 0.0).ravel()

    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        places = self._places(box_keys(boxes, self.attributes))
        found = np.zeros((len(columns[0][2]), len(places)))
        for k in np.flatnonzero(places >= 0).tolist():
            for term in self.seen:
                each = zip(columns, term, strict=True)
                found[:, k] += math.prod(np.einsum("ij,ij->j", R, K[places[k]] @ S)[pair] for (R, S, pair), K in each)
        return found

    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        """Of one class: that of attributes of the boxes that some block totals is the second."""
        (place,) = self._places(box_keys(boxes, self.attributes)).tolist()
        every = sorted((*boxes, *self.free))
        ends, last = [every.index(i) for i in self.free], range(-len(self.free), 0)
        moved = np.moveaxis(T, ends, last)
        if len(self.free) == 1:
            found = moved @ self.seen[0][0][place]
        else:
            found = sum((K0[place] @ moved @ K1[place].T for K0, K1 in self.seen), np.zeros(moved.shape))
        return np.moveaxis(self.largest * found, last, ends)

    def _places(self, keys: Array) -> Array:
        """Where the classes stand; −1 for those that no block reaches."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)

    def _traces(self, terms: Sequence[Term], V: Sequence[Matrix], places: Array) -> Array:
        """tr(⊗K V) of every class, summed over the terms."""
        total = np.zeros(len(places))
        for term in terms:
            total += math.prod((_trace_products(K[places], v) for K, v in zip(term, V, strict=True)), start=1.0)
        return total

    def _unsupported(self, V: Sequence[Matrix], places: Array) -> bool:
        most = math.prod(map(trace, V)) * _SUPPORT
        return any(
            (
                self._traces([term], V, places) > most * math.prod(np.trace(U[places], axis1=1, axis2=2) for U in term)
            ).any()
            for term in self.unseen
        )


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


def _alone(weights: Array, measured: Sequence[Sequence[Matrix]]) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """X_b⁻¹ where one attribute is free."""
    n = measured[0][0].shape[1]
    X = np.zeros((len(weights), n, n))
    for column, (A,) in zip(weights.T, measured, strict=True):
        G = _gram(A)
        for place in np.flatnonzero(column).tolist():
            X[place] += column[place] * G
    found = list(map(_inverted, X))
    H, U = (np.stack(each) for each in zip(*found, strict=True))
    return ((H,),), ((U,),) if U.any() else ()


def _together(weights: Array, measured: Sequence[Sequence[Matrix]]) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
    """X_b⁻¹ where two attributes are free; None if two different products hold both in one class."""
    totalled = [[isinstance(A, Ones) and A.shape[0] == 1 for A in row] for row in measured]
    joint = np.array([not any(row) for row in totalled])
    if ((weights[:, joint] > 0).sum(axis=1) > 1).any():
        return None
    sizes = [A.shape[1] for A in measured[0]]
    grams = [[_gram(A) for A in row] for row in measured]
    plain = [_Beside.of(np.eye(n)) for n in sizes]
    bases = [[_Beside.of(G) for G in row] if j else plain for row, j in zip(grams, joint, strict=True)]
    if any(each is None for row in bases for each in row):
        return None
    inner = [[np.zeros((n, n)) for n in sizes] for _ in weights]  # A′ and B′ of every class
    neither = np.array([all(row) for row in totalled])  # apart: in A′ its rounding would be taken for information
    for sums, row in zip(inner, weights, strict=True):
        for w, G, (_, second), skipped in zip(row.tolist(), grams, totalled, joint | neither, strict=True):
            if w > 0 and not skipped:
                at = 0 if second else 1
                sums[at] += w * G[at]
    found: list[tuple[list[Term], list[Term]]] = []
    for row, sums in zip(weights, inner, strict=True):
        held = np.flatnonzero(joint & (row > 0))
        base = bases[held[0]] if len(held) else plain
        found.append(_bordered(float(row[held].sum()), base, sums, float(row[neither].sum())))  # pyright: ignore[reportArgumentType]
    seen, unseen = (
        tuple(tuple(np.stack(each) for each in zip(*terms, strict=True)) for terms in zip(*sides, strict=True))
        for sides in zip(*found, strict=True)
    )
    return seen, tuple(term for term in unseen if all(U.any() for U in term))


def _bordered(
    omega: float, bases: Sequence[_Beside], inner: Sequence[Array], tau: float
) -> tuple[list[Term], list[Term]]:
    """(X⁻¹, what is not seen) of one class; see the top of the file. The total has information τ besides."""
    N: list[Array] = []
    P: list[Array] = []
    z: list[Array] = []
    border = omega * bases[0].kappa * bases[1].kappa + tau
    for own, other, M in zip(bases, reversed(bases), inner, strict=True):
        C, scale = own.C, omega * other.kappa
        H, U = _inverted(_seen_within(C, M) + scale * np.eye(C.shape[1]))
        y = H @ (C.T @ (M @ own.u))
        N.append(C @ H @ C.T)
        P.append(C @ U @ C.T)
        z.append(C @ y)
        v = own.u - z[-1]
        border += _squared(M, v) + scale * float(y @ y)  # the Schur complement, as a sum of squares
    (u0, u1), (R0, R1) = (own.u for own in bases), (own.C @ own.C.T for own in bases)
    J0, J1, v0 = np.outer(u0, u0), np.outer(u1, u1), u0 - z[0]
    lost = border <= 0
    sigma = 0.0 if lost else 1 / border
    cross = -sigma * np.outer(v0, u0), np.outer(u1, z[1])
    seen: list[Term] = [
        (N[0] + sigma * np.outer(v0, v0), J1),
        (J0, N[1] + sigma * np.outer(z[1], z[1])),
        (R0 / omega if omega > 0 else 0 * R0, R1),
        cross,
        (cross[0].T, cross[1].T),
    ]
    nothing = 0.0 if omega > 0 else 1.0
    unseen: list[Term] = [(nothing * R0, R1), (P[0], J1), (J0, P[1]), (float(lost) * J0, J1)]
    return seen, unseen


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Beside:
    """Coordinates of a gram A beside Total: 1ᵀu = 1, 1ᵀC = 0, uᵀAC = 0, CᵀAC = I and κ = uᵀAu."""

    u: Array
    C: Array
    kappa: float

    @classmethod
    def of(cls, A: Array) -> _Beside | None:
        """None if A does not tell all cells of the same sum apart. O(n³)."""
        n = len(A)
        Z = scipy.linalg.null_space(np.ones((1, n)))
        try:
            L = scipy.linalg.cholesky(Z.T @ A @ Z, lower=True) if n > 1 else np.empty((0, 0))
        except scipy.linalg.LinAlgError:
            return None
        if n > 1 and L.diagonal().min() ** 2 <= _ROUNDED * n * A.diagonal().max():  # a total, up to rounding
            return None
        C = scipy.linalg.solve_triangular(L, Z.T, lower=True).T if n > 1 else Z
        mean = np.full(n, 1 / n)
        u = mean - C @ (C.T @ (A @ mean))
        return cls(u, C, _squared(A, u))


def _seen_within(C: Array, M: Array) -> Array:
    """CᵀMC, with entries that may be rounding set to 0: `_inverted` would take a diagonal of rounding for a scale."""
    found = C.T @ M @ C
    sizes = np.sqrt(np.trace(M)) * np.linalg.norm(C, axis=0)
    return np.where(np.abs(found) > _ROUNDED * np.outer(sizes, sizes), found, 0.0)


def _squared(M: Array, v: Array) -> float:
    """vᵀMv, or 0 where that may be rounding: what is not seen would have a variance of 10³⁰ in place of none."""
    found = float(v @ M @ v)
    return found if found > _ROUNDED * float(np.trace(M)) * float(v @ v) else 0.0


def _inverted(X: Array) -> tuple[Array, Array]:
    """(a generalised inverse of X, a form on what X does not see). O(n³).

    Both by X with its diagonal scaled to 1: a p-Identity with large Θ has identity rows of all magnitudes.
    """
    d = np.sqrt(np.maximum(X.diagonal(), 0.0))
    d = np.where(d > 0, d, 1.0)
    scaled = X / np.outer(d, d)
    try:
        L = scipy.linalg.cholesky(scaled, lower=True)
        if len(X) == 0 or L.diagonal().min() ** 2 > _SAFE:
            half = scipy.linalg.solve_triangular(L, np.diag(1 / d), lower=True)
            return half.T @ half, np.zeros_like(X)
    except scipy.linalg.LinAlgError:
        pass
    values, Q = scipy.linalg.eigh(scaled, driver="evd")
    seen = values > 10 * len(X) * np.finfo(float).eps * values[-1]
    Q /= d[:, None]
    return (Q[:, seen] / values[seen]) @ Q[:, seen].T, Q[:, ~seen] @ Q[:, ~seen].T


def _gram(A: Matrix) -> Array:
    return to_dense(gram(A)).astype(np.float64)


def _trace_products(K: Array, V: Matrix) -> Array:
    """tr(K_b V) for a stack of matrices."""
    return np.array([trace_product(Dense(_even(each)), V) for each in K])


def _even(K: Array) -> Array:
    """The symmetric part, which alone counts in traces and variances."""
    return (K + K.T) / 2
