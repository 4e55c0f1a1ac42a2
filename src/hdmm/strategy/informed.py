"""Forms that know some marginals exactly, because they are public: no noise there, and less error around them.

Least squares under the condition Cx = c is least squares with Cx = c among the measurements at unlimited precision.
Where all blocks diagonalise together, the marginals on attributes a are the cells whose classes are Total's on all
other attributes, so 1/λ is 0 there and nothing else changes; known groups of values are classes of their own
(`Leveled`). Any other form is put under conditions, on few known counts:

    cov(w, v | Cx = c) = cov(w, v) − cov(w, C) cov(C, C)⁺ cov(C, v)

which is the same whether or not C is among the measurements, with whatever precision.

Known groups of the values of an attribute give it one class more per level. For a factor A of full column rank with
H = (AᵀA)⁻¹ and a level with the rows G of its groups, let GHGᵀ = LLᵀ. Then M = L⁻¹G says the same as G, and A, Total
and M diagonalise together, because in coordinates in which AᵀA is the identity, MᵀM is a projection that holds Total's
direction. With F = MH, what M sees of the variance is FᵀF, and the rest is H − FᵀF. Of levels one within the other, the
projection of the finer one holds that of the coarser one, whose F is CF with C = L₁⁻¹TL, if T sums up the finer groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import final

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import NO_VARIANCE
from hdmm.describe.predicates import Groups, PredicateSet, Vectors
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    Diag,
    Eye,
    Gram,
    Matrix,
    Ones,
    Residual,
    Scaled,
    Sparse,
    Stack,
    Sum,
    to_dense,
)
from hdmm.matrix.matrix import frozen
from hdmm.strategy.axis import Axis, ClosedAxis, inverse_gram
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form, constant_variances

SURE = 1e100  # the weight of a known block: 1/λ is 1e-200, far below any noise, and far above what floats cannot hold
MOST_CONDITIONS = 2048  # known counts in a form that is not diagonal
_NOISELESS = 1e-100  # a variance below it is that of known counts
_MOST_WRITTEN = 1024  # values of an attribute up to which what is asked beyond groups is written out: O(n³), a second
_MOST_GROUPED = 1 << 25  # values times groups, if they are written out: 256 MiB
_SAME = 1e-10  # of the answers to irregular numbers, which distinguish queries within groups from others
_PAIRS = 1 << 22  # covariances at once


@final
@dataclass(frozen=True, eq=False)
class WithExactBlocks(Form):
    """Another form beside known counts: what these determine has no variance, and the rest less.

    The known blocks are the last blocks of `inner` at overwhelming weight; or, with `conditions`, the known counts as
    far as measurements see them, `inner` is moved so that these hold. `stacked`: they are among its blocks too.
    """

    inner: Form
    known_blocks: Sequence[Block]
    determined: tuple[Product, ...] = ()  # what they answer has no variance, not even by rounding
    conditions: tuple[Product, ...] = ()
    stacked: bool = True

    def __post_init__(self) -> None:
        count = sum(product.queries for product in self.conditions)
        if count > MOST_CONDITIONS:
            raise StrategyError(
                f"The strategy has no diagonal form, in which known counts are free; without one, up to "
                f"{MOST_CONDITIONS:,} can be taken into account, but {count:,} were given. Give marginals of fewer "
                "attributes, such as the total."
            )

    @property
    def exact_blocks(self) -> Sequence[Block]:
        return self.known_blocks

    def total_variance(self, products: Sequence[Product]) -> float:
        left = [product for product in products if not determined_by(self.determined, product)]
        total = self.inner.total_variance(left) if left else 0.0
        if self.conditions and math.isfinite(total):
            each = ((product.weight**2, self.variances(product)) for product in left)
            total = math.fsum(square * float(sum(piece.sum() for piece in pieces)) for square, pieces in each)
        return total if total > _NOISELESS else 0.0

    def variances(self, product: Product) -> Iterator[Array]:
        if determined_by(self.determined, product):
            yield np.zeros(product.queries)
            return
        start = 0
        for piece in self.inner.variances(product):
            if not self.conditions:
                yield _cut(piece)
                continue
            rows = np.arange(start, start + len(piece))
            gain = [
                np.einsum("ij,jk,ik->i", G, self._inverse, G)
                for G in (self.across(product, rows[at : at + self._step]) for at in range(0, len(rows), self._step))
            ]
            left = piece - np.concatenate([np.empty(0), *gain])
            yield np.where(left > NO_VARIANCE * piece, left, 0.0)
            start += len(piece)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        if determined_by(self.determined, first) or determined_by(self.determined, second):
            return np.zeros(len(rows))
        found = self.inner.covariances(first, rows, second, others)
        if not self.conditions:
            return _cut(found)
        for at in range(0, len(rows), self._step):
            here = slice(at, at + self._step)
            G, H = self.across(first, rows[here]), self.across(second, others[here])
            found[here] -= np.einsum("ij,jk,ik->i", G, self._inverse, H)
        return found

    def across(self, product: Product, rows: Array) -> Array:
        """cov(query rows[i] of the product, known count j), without conditions."""
        each = [np.arange(known.queries) for known in self.conditions]
        return np.hstack(
            [
                self.inner.covariances(product, np.repeat(rows, len(cells)), known, np.tile(cells, len(rows))).reshape(
                    len(rows), len(cells)
                )
                for known, cells in zip(self.conditions, each, strict=True)
            ]
        )

    def correction(self, product: Product, off: Array) -> Array:
        """What the estimates of a product's queries gain where the estimates of the known counts are off by this."""
        moved = self._inverse @ off
        steps = range(0, product.queries, self._step)
        rows = (np.arange(at, min(at + self._step, product.queries)) for at in steps)
        return np.concatenate([np.empty(0), *(self.across(product, each) @ moved for each in rows)])

    @property
    def _step(self) -> int:
        return max(1, _PAIRS // max(1, sum(product.queries for product in self.conditions)))

    @cached_property
    def _inverse(self) -> Array:
        """cov(C, C)⁺: known marginals that overlap say some things twice."""
        K = np.vstack([self.across(product, np.arange(product.queries)) for product in self.conditions])
        values, Q = np.linalg.eigh((K + K.T) / 2)
        seen = values > 1e-11 * values[-1]
        return (Q[:, seen] / values[seen]) @ Q[:, seen].T


@constant_variances.register
def _(form: WithExactBlocks, products: Sequence[Product]) -> Array:
    return np.full(len(products), np.nan) if form.conditions else _cut(constant_variances(form.inner, products))


def _cut(variances: Array) -> Array:
    return np.where(np.abs(variances) <= _NOISELESS, 0.0, variances)


def determined_by(known: Sequence[Product], product: Product) -> bool:
    """Whether the answers to one of the known products determine those to a product."""
    return any(determines(each, product) for each in known)


def needed(known: Sequence[Product]) -> tuple[Product, ...]:
    """The products without those that others determine; of equivalent ones, one stays."""
    left = list(dict.fromkeys(known))
    for product in tuple(left):
        if determined_by([other for other in left if other is not product], product):
            left.remove(product)
    return tuple(left)


def determines(known: Product, product: Product) -> bool:
    """Whether the answers to a known product, by values or groups of them, determine those to another product."""
    held, shape = dict(known.factors), product.domain.shape
    for axes, p in product.sets:
        if any(i not in held and shape[i] > 1 for i in axes):
            return False
        groups = [g for g in map(held.get, axes) if isinstance(g, Groups)]
        if groups and (len(axes) > 1 or not _sees_only(groups[0], p, product.cells(axes))):
            return False
    return True


def unknown(workload: Workload, known: Sequence[Product]) -> Workload:
    """The workload without what known products determine; all of it if they determine everything."""
    left = tuple(product for product in workload.products if not determined_by(known, product))
    return Workload(workload.domain, left) if 0 < len(left) < len(workload.products) else workload


def beyond_groups(workload: Workload, known: Sequence[Product]) -> Workload:
    """What is asked for beyond known groups, where that is a product: the same error, and less to be measured.

    If all other attributes of a product are known whole, W becomes W(I − P), where P spreads the count of a group
    evenly. For a release, a query may be estimated from its groups in a better way, so the error found is at most
    that of these queries; for identities it is the same.
    """
    products = tuple(_beyond(product, known) for product in workload.products)
    return workload if products == workload.products else Workload(workload.domain, products)


def _beyond(product: Product, known: Sequence[Product]) -> Product:
    if determined_by(known, product):  # then nothing is beyond
        return product
    for each in known:
        held = dict(each.factors)
        within = [(i, p) for i, p in product.factors if isinstance(held.get(i), Groups)]
        if product.joint or len(within) != 1 or not set(product.axes) <= set(held):
            continue
        (i, p), n = within[0], product.domain.shape[within[0][0]]
        groups = held[i]
        if n > _MOST_WRITTEN or not isinstance(groups, Groups):
            continue
        codes = np.asarray(groups.codes)
        P = (codes[:, None] == codes) / np.bincount(codes)[codes]
        V = to_dense(p.gram(n)).astype(np.float64)
        values, Q = np.linalg.eigh((np.eye(n) - P) @ V @ (np.eye(n) - P))
        kept = values > _SAME * values[-1]
        rows = Vectors((Q[:, kept] * np.sqrt(values[kept])).T)
        return Product(product.domain, tuple([(j, rows if j == i else q) for j, q in product.factors]), product.weight)
    return product


def known_by(product: Product) -> str:
    """The names of the attributes and levels by which a known product counts."""
    names = product.domain.names
    return " × ".join(p.level if isinstance(p, Groups) else names[i] for i, p in product.factors)


def same_within(A: Matrix, groups: Groups) -> bool:
    """Whether the columns of a matrix are equal for all values of a group: then it needs only the groups' counts."""
    codes = np.asarray(groups.codes)
    g = np.modf(np.arange(1, len(codes) + 1, dtype=np.float64) ** 2 * math.sqrt(2))[0]  # irregular, in (0, 1)
    means = np.bincount(codes, g) / np.bincount(codes)
    seen = A.matmat(np.stack([g, g - means[codes]], axis=1))
    return bool(np.abs(seen[:, 1]).max(initial=0.0) <= _SAME * np.abs(seen[:, 0]).max(initial=0.0))


@lru_cache(maxsize=1024)
def _sees_only(groups: Groups, predicates: PredicateSet, n: int) -> bool:
    return same_within(predicates.matrix(n), groups)


@final
@dataclass(frozen=True, eq=False)
class _Level:
    """M and F of a level, and L with GHGᵀ = LLᵀ; sparse if H is diagonal."""

    rows: Matrix
    seen: Matrix
    L: Array | sp.csr_array

    @classmethod
    def of(cls, codes: Array, H: Matrix) -> _Level | None:
        groups, n = int(codes.max()) + 1, len(codes)
        G = sp.csr_array((np.ones(n), (codes, np.arange(n))), shape=(groups, n))
        if isinstance(H, Eye | Diag):
            d = np.ones(n) if isinstance(H, Eye) else H.d
            root = np.sqrt(np.bincount(codes, d))
            M = sp.csr_array(sp.diags_array(1 / root) @ G)
            return cls(Sparse(M), Sparse(sp.csr_array(M @ sp.diags_array(d))), sp.csr_array(sp.diags_array(root)))
        if n * groups > _MOST_GROUPED:
            return None
        GH = H.matmat(G.toarray().T).T
        X = GH @ G.T
        try:
            L = np.linalg.cholesky((X + X.T) / 2)
        except np.linalg.LinAlgError:
            return None
        each = (scipy.linalg.solve_triangular(L, R, lower=True) for R in (G.toarray(), GH))
        M, F = (Dense(frozen(R)) for R in each)
        return cls(M, F, L)


@final
@dataclass(frozen=True, eq=False)
class Leveled:
    """The factors of an attribute: the one that is measured besides Total, and those that measure known levels."""

    base: Matrix
    inverse: Matrix  # H
    levels: tuple[_Level, ...]  # coarsest first
    within: tuple[Matrix, ...]  # C of each level but the finest

    @classmethod
    def of(cls, base: Matrix, levels: Sequence[Array]) -> Leveled | None:
        """The factors of levels, each the group of every value; None if there is no such form.

        Levels must lie one within the other, coarsest first. The base must measure all values, or all but the
        total.
        """
        n = base.shape[1]
        H = Diag(np.full(n, 1 / n**2)) if isinstance(base, Residual) else inverse_gram(base)
        found = [] if H is None else [_Level.of(codes, H) for codes in levels]
        made = [each for each in found if each is not None]
        if H is None or len(made) < len(levels):
            return None
        inner: list[Matrix] = []
        for (coarse, fine), (first, second) in zip(pairwise(levels), pairwise(made), strict=True):
            above = coarse[np.unique(fine, return_index=True)[1]]
            if not np.array_equal(above[fine], coarse):
                return None
            T = sp.csr_array((np.ones(len(above)), (above, np.arange(len(above)))))
            if isinstance(second.L, np.ndarray):
                inner.append(Dense(frozen(scipy.linalg.solve_triangular(first.L, T @ second.L, lower=True))))
            else:
                root = np.asarray(first.L.diagonal(), np.float64)
                inner.append(Sparse(sp.csr_array(sp.diags_array(1 / root) @ T @ second.L)))
        return cls(base, H, tuple(made), tuple(inner))

    @property
    def rows(self) -> tuple[Matrix, ...]:
        """A factor that measures the groups of each level."""
        return tuple(level.rows for level in self.levels)

    @cached_property
    def cells(self) -> Matrix:
        """A factor that measures all values, as the base does if it is not a residual one."""
        n = self.base.shape[1]
        return Scaled(n, Eye(n)) if isinstance(self.base, Residual) else self.base

    def axis(self, factors: tuple[Matrix, ...]) -> Axis | None:
        """The axis of Total, the base and the rows of levels, as far as they are among the factors."""
        n = self.base.shape[1]
        total = any(Ones(1, n) == A for A in factors)
        if isinstance(self.base, Residual) and not total:
            return None
        h = self.inverse.matmat(np.ones((n, 1)))[:, 0]
        c = float(h.sum())
        seen, within = [level.seen for level in self.levels], list(self.within)
        first = seen[0]
        if total:
            seen.insert(0, Dense(frozen(h[None, :] / np.sqrt(c))))
            within.insert(0, Dense(frozen(np.atleast_2d(self.levels[0].L.sum(axis=0)) / np.sqrt(c))))
            first = Dense(frozen(h[None, :] / c))  # Total sees it with δ = 1
        analysis: list[Matrix] = [first]
        forms: list[Matrix] = [Gram(first)]
        synthesis: list[Matrix] = [first, *seen[1:], Eye(n)]
        for C, (B, F) in zip(within, pairwise(seen), strict=True):
            analysis.append(Sum((F, Scaled(-1.0, Chain(C.T, B)))))
            forms.append(Sum((Gram(F), Scaled(-1.0, Gram(B)))))
        rest = Sum((self.inverse, Scaled(-1.0, Gram(seen[-1]))))
        return ClosedAxis(
            factors,
            np.stack([self._seen(A, c, total=total) for A in factors], axis=1),
            np.array([R.shape[0] for R in synthesis]),
            Stack((*analysis, rest)),
            Stack(tuple(synthesis)).T,
            (*forms, rest),
        )

    def _seen(self, A: Matrix, c: float, *, total: bool) -> Array:
        """δ of a factor on Total's class, if that is one, on what each level adds, and on the rest."""
        seen = np.zeros(len(self.levels) + 2)
        if Ones(1, A.shape[1]) == A:
            seen[0] = 1.0
            return seen
        level = next((k for k, M in enumerate(self.rows) if M is A), len(self.levels))
        seen[: level + 2] = 1.0
        seen[0] = 0.0 if isinstance(A, Residual) else 1 / c
        return seen if total else seen[1:]
