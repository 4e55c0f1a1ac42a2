"""Coupled: blocks that diagonalise together on all attributes but one or two, on which blocks have bases of their own.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, final

import numpy as np
import scipy.linalg

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense, Matrix, Ones, gram, quadratic, to_dense, trace, trace_product
from hdmm.strategy.axis import Axis, axis_of
from hdmm.strategy.blocks import Block, stacked_blocks
from hdmm.strategy.diagonal import rows_of
from hdmm.strategy.form import Form
from hdmm.strategy.iterative import MOST_WRITTEN, Written
from hdmm.strategy.mixture import SLAB_CELLS, Mixture, box_keys, tabulate

_MOST_NUMBERS = 1 << 26  # of the inverses of all classes together (512 MiB)
_MOST_STEPS = 1 << 36  # Σ n³ over all classes: half a minute
_MOST_REACH = 1 << 20  # classes that the blocks reach, repeats counted
_SAFE = 1e-10  # least squared pivot, of a matrix with diagonal 1, at which a Cholesky factor is trusted
_ROUNDED = 100 * np.finfo(float).eps  # squared pivots below that, times n, of the diagonal are rounding
_SUPPORT = 1e-11  # of tr(U)·tr(V): rounding in tr(UV) stays near 1e-15 of it
_TOTAL = Total()

Term: TypeAlias = tuple[Array, ...]
"""⊗ of one matrix per free attribute, for every class: each classes × n × n."""


@final
@dataclass(frozen=True, eq=False)
class Coupled(Form):
    """The classes that blocks reach, by keys of the attributes that are not in Total's class, and what is known there.

    `seen` are the terms whose sum is X⁻¹, `unseen` those of a form that is 0 for supported queries only.
    """

    domain: Domain
    blocks: Sequence[Block]
    free: tuple[int, ...]
    axes: Mapping[int, Axis]  # of the other attributes
    keys: Array
    seen: tuple[Term, ...]
    unseen: tuple[Term, ...]

    @classmethod
    def of(cls, domain: Domain, blocks: Sequence[Block]) -> Coupled | None:
        """The form of the stacked blocks; None if more attributes are free, or classes or attributes are too large.

        O(classes · n³) for one free attribute of n values, and O(classes · (n₀³ + n₁³)) for two.
        """
        totals: list[Matrix] = [Ones(1, n) for n in domain.shape]
        choices, factors = tabulate([tuple(block.by_axis.items()) for block in blocks], totals)
        axes = {i: axis for i, each in enumerate(factors) if (axis := _split(each)) is not None}
        free = tuple(i for i in range(len(domain)) if i not in axes)
        squares = np.array([block.weight for block in blocks]) ** 2
        lam = Mixture(squares, choices[:, list(axes)], tuple(axis.delta for axis in axes.values()))
        if not 1 <= len(free) <= 2 or _reach(lam) > _MOST_REACH:
            return None
        keys = lam.sparse.keys
        sizes = [domain.shape[i] for i in free]
        numbers, steps = (len(keys) * sum(n**k for n in sizes) for k in (2, 3))
        if numbers * (1 if len(free) == 1 else 4) > _MOST_NUMBERS or steps > _MOST_STEPS:
            return None
        combinations, which = np.unique(choices[:, list(free)], axis=0, return_inverse=True)
        weights = np.stack(
            [
                Mixture(squares[rows], lam.choices[rows], lam.tables).sparse.at(keys)
                for rows in (np.flatnonzero(which.ravel() == k) for k in range(len(combinations)))
            ],
            axis=1,
        )
        measured = [[factors[i][k] for i, k in zip(free, row, strict=True)] for row in combinations.tolist()]
        found = _alone(weights, measured) if len(free) == 1 else _together(weights, measured)
        return found and cls(domain, blocks, free, axes, keys, *found)

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_b tr(X_b⁻¹V_b); infinite where a product is not supported. O(classes · n²) per kind of product."""
        joint = [product for product in products if product.joint]
        if joint:
            plain = [product for product in products if not product.joint]
            return self._whole.total_variance(joint) + (self.total_variance(plain) if plain else 0.0)
        shape = self.domain.shape
        totals: list[PredicateSet] = [_TOTAL] * len(shape)
        choices, sets = tabulate([product.factors for product in products], totals)
        squares = np.array([product.weight for product in products]) ** 2
        tables = tuple(
            np.stack([axis.traces(p.gram(shape[i])) for p in sets[i]], axis=1) for i, axis in self.axes.items()
        )
        total = 0.0
        for combination in np.unique(choices[:, list(self.free)], axis=0):
            rows = (choices[:, list(self.free)] == combination).all(axis=1) & (squares > 0)
            if not rows.any():
                continue
            asked = Mixture(squares[rows], choices[rows][:, list(self.axes)], tables).sparse
            keys, t = asked.keys[asked.values > 0], asked.values[asked.values > 0]
            V = [sets[i][k].gram(shape[i]) for i, k in zip(self.free, combination.tolist(), strict=True)]
            if not math.prod(map(trace, V)) > 0:
                continue
            places = self._places(keys)
            if (places < 0).any() or self._unsupported(V, places):
                return math.inf
            total += float(t @ self._traces(self.seen, V, places))
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        """Σ_b Π_i ζ_i[b_i]·wX_b⁻¹wᵀ for every query, in pieces of bounded size."""
        if product.joint:
            yield from self._whole.variances(product)
            return
        shape = self.domain.shape
        sets, places, classes = self._box(product)
        W = [sets[i].matrix(shape[i]) for i in self.free]
        core = np.zeros((len(places), *[each.shape[0] for each in W]))
        for term in self.seen:
            for k, place in enumerate(places.tolist()):
                if place >= 0:
                    each = [quadratic(w, Dense(_even(K[place]))) for w, K in zip(W, term, strict=True)]
                    core[k] += each[0] if len(each) == 1 else np.multiply.outer(*each)
        order = [*classes, *self.free]
        core = core.reshape(*classes.values(), *core.shape[1:]).transpose(np.argsort(order))
        tables = {i: self.axes[i].variances(sets[i].matrix(shape[i])) for i in classes}
        yield from (np.maximum(piece, 0.0) for piece in _pieces(core, [tables.get(i) for i in sorted(order)]))

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """cov(query rows[k] of one product, query others[k] of another), weights left out. O(pairs · classes · n²)."""
        if first.joint or second.joint:
            return self._whole.covariances(first, rows, second, others)
        shape = self.domain.shape
        sets, places, classes = self._box(first, second)
        others_sets = {i: dict(second.factors).get(i, _TOTAL) for i in sets}
        columns: list[dict[int, Array]] = []
        for each, chosen in ((sets, rows), (others_sets, others)):
            at = np.unravel_index(chosen, [p.count(shape[i]) for i, p in sorted(each.items())])
            pairs = zip(sorted(each.items()), at, strict=True)
            columns.append({i: rows_of(p.matrix(shape[i]), index) for (i, p), index in pairs})
        R, S = columns
        weights = np.ones((len(rows), 1))
        for i in classes:
            table = self.axes[i].products(R[i], S[i])
            weights = (weights[:, :, None] * table[:, None, :]).reshape(len(rows), -1)
        out = np.zeros(len(rows))
        for k, place in enumerate(places.tolist()):
            if place >= 0:
                for term in self.seen:
                    each = [np.einsum("ij,ij->j", R[i], K[place] @ S[i]) for i, K in zip(self.free, term, strict=True)]
                    out += weights[:, k] * math.prod(each, start=np.ones(len(rows)))
        return out

    def solved(self, b: Sequence[int], T: Array) -> Array:
        """X_b⁻¹ along the last axes of T, the cells of the free attributes; b are those not in Total's class."""
        number = {i: k for k, i in enumerate(self.axes)}
        (place,) = self._places(box_keys({number[i]: np.array([1]) for i in b}, len(self.axes))).tolist()
        if len(self.free) == 1:
            return T @ self.seen[0][0][place]
        return sum((K0[place] @ T @ K1[place].T for K0, K1 in self.seen), np.zeros(T.shape))

    @cached_property
    def _whole(self) -> Written:
        """All cells written out, for predicates on several attributes at once; StrategyError if they are too many."""
        if self.domain.size > MOST_WRITTEN:
            raise StrategyError(
                "Some blocks of the strategy have bases of their own. Then predicates on several attributes at once "
                f"have variances on up to {MOST_WRITTEN:,} cells only; the domain has {self.domain.size:,}. Use "
                "hdmm.optimize for a workload that has these predicates."
            )
        return Written.of(self.domain, self.blocks, stacked_blocks(self.domain.shape, self.blocks))

    def _box(self, *products: Product) -> tuple[dict[int, PredicateSet], Array, dict[int, int]]:
        """(the first product's predicates, the places of the classes it may see, how many each attribute has).

        On the attributes that decide: the free ones, and those that a product has or no block totals.
        """
        asked = {i for product in products for i, _ in product.factors}
        classes = {i: len(axis.delta) for i, axis in self.axes.items() if i in asked or axis.total is None}
        held = dict(products[0].factors)
        sets = {i: held.get(i, _TOTAL) for i in (*classes, *self.free)}
        number = {i: k for k, i in enumerate(self.axes)}
        keys = box_keys({number[i]: np.arange(size) for i, size in classes.items()}, len(self.axes))
        return sets, self._places(keys), classes

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


def _split(factors: tuple[Matrix, ...]) -> Axis | None:
    """The axis of an attribute on which blocks differ by Total at most, so that it has two classes; else None."""
    if len(factors) > 2 or (len(factors) == 2 and Ones(1, factors[0].shape[1]) not in factors):
        return None
    axis = axis_of(factors)
    return axis if axis is not None and len(axis.delta) <= 1 + (axis.total is not None) else None


def _reach(lam: Mixture) -> float:
    """Σ_j 2^s_j: the classes that each block reaches."""
    s = np.zeros(len(lam.coefficients))
    for i, table in enumerate(lam.tables):
        s += (len(table) == 2) * (table.min(axis=0) > 0)[lam.choices[:, i]]
    return float(np.exp2(s).sum())


def _alone(weights: Array, measured: Sequence[Sequence[Matrix]]) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """X_b⁻¹ where one attribute is free."""
    grams = np.stack([_gram(A) for (A,) in measured])
    found = [_inverted(np.tensordot(row, grams, axes=1)) for row in weights]
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


def _pieces(core: Array, tables: Sequence[Array | None]) -> Iterator[Array]:
    """The tables, where there are any, along the axes of a core, in pieces of whole rows of the first axis."""
    head, tail = tables[0], tables[1:]
    rows = core.shape[0] if head is None else len(head)
    width = math.prod(n if table is None else len(table) for n, table in zip(core.shape[1:], tail, strict=True))
    step = max(1, SLAB_CELLS // max(width, 1))
    for start in range(0, rows, step):
        here = slice(start, start + step)
        part = core[here] if head is None else np.tensordot(head[here], core, axes=1)
        for k, table in enumerate(tail, start=1):
            if table is not None:
                part = np.moveaxis(np.tensordot(table, part, axes=(1, k)), 0, k)
        yield part.ravel()
