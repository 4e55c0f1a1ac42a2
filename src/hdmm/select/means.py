"""Means: the weights of values at which the residual spaces of predicates are taken apart.

Let h be weights of an attribute's values that sum to 1. Every query is w = (w·h)1ᵀ + w(I − h1ᵀ): a multiple of the
total, and rows r with r·h = 0. So a query on attributes a is a sum over b ⊆ a of rows that are in the second part on b
and totals elsewhere, for any h. Uniform h are residual spaces as marginals have them.

The best h are found by descent (`best_means`). What products ask of the space b at means h is measured by one block; in
coordinates of the parts blocks see nothing of each other's spaces, and the error is (Σ_b √loss_b)² (spaces.py). With F
the rows asked of a space, √loss = max over Λ of ‖FΛ^½‖_*, and by the envelope theorem its derivative is that of ⟨D, F⟩
with D = (FΛFᵀ)^-½FΛ at the best Λ. As F is linear in each h, √loss is convex in it. The best h lower the error of pairs
by up to 15 %.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, TypeAlias, final

import numpy as np
import scipy.optimize

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import DifferenceAtMost, PredicateSet, SumAtMost
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, to_dense
from hdmm.select.gaussian_optimum import GramBlock, ascent, half_powers
from hdmm.select.search import Search
from hdmm.strategy.subsets import subsets

_MOST_ENTRIES = 1 << 25  # of the rows of one predicate set, and of one space
_MOST_SPACES = 1 << 20
_PASSES = 20  # of shortening a basis
_MOST_SEARCHED = 1 << 22  # entries of all rows, where the best means are looked for
_SECONDS = 10.0  # of that search
_STEPS = 300  # of Λ, from where the last evaluation left it
_GAP = 2e-5  # at which Λ is good enough
_ITERATIONS = 40
_START = 0.1  # by which the ends weigh more at the start: at even weights, rows may fall together, and there is a kink
_SINGULAR = 1e-10  # of squares of singular values, relative to the largest: less is rounding
_LEAST = 1e-7  # of eigenvalues of M^½

AskedSet: TypeAlias = tuple[PredicateSet, tuple[int, ...], tuple[int, ...]]
"""Predicates, the kind of each of their attributes, and its place in the space; −1 where it is averaged."""
SpaceDemand: TypeAlias = Mapping[tuple[AskedSet, ...], float]
"""What products ask of one space: squared weights by their predicate sets."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """The kind of each attribute, and for each kind the weights of its values, as whole numbers or as floats.

    >>> Means.even([3, 2]).means
    (array([0.33333333, 0.33333333, 0.33333333]), array([0.5, 0.5]))
    """

    kinds: tuple[int, ...]
    weights: tuple[Array, ...]

    @classmethod
    def even(cls, sizes: Sequence[int]) -> Means:
        """Uniform, every attribute of a kind of its own."""
        return cls(tuple(range(len(sizes))), tuple([np.ones(n, dtype=np.int64) for n in sizes]))

    @classmethod
    def alike(cls, products: Sequence[Product]) -> Means:
        """Uniform; attributes that are asked for in the same ways are of one kind."""
        shape = products[0].domain.shape
        asked = [Counter[Any]() for _ in shape]
        for product in products:
            for axes, p in product.sets:
                for i in axes:
                    asked[i][p, product.weight, tuple(sorted(shape[j] for j in axes)), len(product.sets)] += 1
        keys = [(n, frozenset(each.items())) for n, each in zip(shape, asked, strict=True)]
        numbers = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        return cls(tuple([numbers[key] for key in keys]), tuple([np.ones(n, dtype=np.int64) for n, _ in numbers]))

    @property
    def means(self) -> tuple[Array, ...]:
        """h of each kind."""
        return tuple([w / w.sum() for w in self.weights])

    def sizes(self, kinds: Sequence[int]) -> tuple[int, ...]:
        """How many values attributes of these kinds have."""
        return tuple([len(self.weights[k]) for k in kinds])

    def parts(self, kinds: Sequence[int]) -> int:
        """By which a mean over attributes of these kinds has to be multiplied to be whole."""
        return math.prod([int(self.weights[k].sum()) for k in kinds])

    def whole(self, most: int) -> Means:
        """Near to these, the weights as whole numbers whose sum is at most so many times their number."""
        return replace(self, weights=tuple([_whole(h, most) for h in self.means]))

    def norm(self, asked: AskedSet) -> float:
        """The length of the means of predicates over all their attributes."""
        return float(np.linalg.norm(projected(_root(asked[0], self.sizes(asked[1])), asked, self.means)))

    def rows(self, sets: Sequence[AskedSet], places: Sequence[int]) -> Array:
        """What predicates ask of a space, a row for each combination, over the cells of these places of it."""
        each = [projected(_written(p, self.sizes(kinds)), (p, kinds, at), self.means) for p, kinds, at in sets]
        return joined(each, [at for _, _, at in sets], places)


def best_means(means: Means, spaces: Sequence[tuple[float, SpaceDemand]], search: Search) -> Means:
    """The means of least Σ √loss over spaces, each with how often it counts; those given if too much is asked.

    A descent. Each step takes some eigenproblems for each space.
    """
    sizes = [len(w) for w in means.weights]
    entries = [
        p.count(n) * n
        for _, demand in spaces
        for sets in demand
        for p, kinds, _ in sets
        for n in [math.prod(means.sizes(kinds))]
    ]
    if sum(entries) > _MOST_SEARCHED or search.late:
        return means
    tried = MeansTried(
        [DemandedSpace.of(count, demand) for count, demand in spaces], search, time.monotonic() + _SECONDS
    )
    ends = np.cumsum([0, *sizes])

    def loss(x: Array) -> tuple[float, Array]:
        each = [x[a:b] - x[a:b].mean() + 1 / (b - a) for a, b in itertools.pairwise(ends)]
        value, slopes = tried.at(each)
        return math.log(value), np.concatenate([g - g.mean() for g in slopes]) / value

    start = np.concatenate([_START / n * np.abs(np.linspace(-1, 1, n)) for n in sizes])
    with suppress(_LateError):
        tried.at([np.full(n, 1 / n) for n in sizes])
        scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    return replace(means, weights=tuple(tried.best)) if tried.best else means


def centred(W: Array, means: Sequence[Array]) -> Array:
    """Rows over cells of attributes without their means over any of the attributes."""
    T = W.reshape(-1, *map(len, means))
    for k, h in enumerate(means):
        T = T - np.expand_dims(np.tensordot(T, h, axes=([k + 1], [0])), k + 1)
    return T.reshape(W.shape)


def demands(products: Sequence[Product], kinds: Sequence[int]) -> Mapping[Attributes, SpaceDemand]:
    """What the products ask of each residual space."""
    spaces: dict[Attributes, dict[tuple[AskedSet, ...], float]] = {}
    for product in (product for product in products if product.weight > 0):
        sets = [(p, tuple([kinds[i] for i in axes]), axes, is_symmetric(p)) for axes, p in product.sets]
        for b in _subsets(product):
            asked = [
                (p, of, tuple(sorted(at, reverse=True) if symmetric and of[0] == of[1] else at))
                for p, of, axes, symmetric in sets
                for at in [[b.index(i) if i in b else -1 for i in axes]]
            ]
            key = tuple(sorted(asked, key=lambda each: (each[2], each[1], repr(each[0]))))
            demand = spaces.setdefault(b, {})
            demand[key] = demand.get(key, 0.0) + product.weight**2
        if len(spaces) > _MOST_SPACES:
            raise StrategyError(f"The workload asks something of more than {_MOST_SPACES:,} sets of attributes.")
    return spaces


def is_symmetric(p: PredicateSet) -> bool:
    """Whether the two attributes of a predicate set may change places."""
    return isinstance(p, SumAtMost | DifferenceAtMost) and len({*p.sizes}) == 1


def _subsets(product: Product) -> Iterator[Attributes]:
    axes = sorted(i for each, _ in product.sets for i in each)
    if 2.0 ** len(axes) > _MOST_SPACES:
        raise StrategyError(f"Product ({product}) is on {len(axes)} attributes, which have too many subsets.")
    return subsets(axes)


def short_basis(weights: Array) -> Array:
    """Integers r with r·weights = 0: a basis of them all, by Euclid's algorithm on the weights, of short rows.

    >>> short_basis(np.array([2, 1, 3]))
    array([[ 1, -2,  0],
           [-1, -1,  1]])
    """
    U, v = np.eye(len(weights), dtype=np.int64), weights.astype(np.int64)
    while np.count_nonzero(v) > 1:
        i, j = np.argsort(-np.abs(v), kind="stable")[:2]
        m = int(np.rint(v[i] / v[j]))
        U[i], v[i] = U[i] - m * U[j], v[i] - m * v[j]
    B = U[v == 0]
    for _ in range(_PASSES):
        before = B.copy()
        for i in range(len(B)):  # take from the others what they have in common with it
            m = np.rint(B @ B[i] / (B[i] @ B[i])).astype(np.int64)
            m[i] = 0
            shorter = B - m[:, None] * B[i]
            B = np.where(((shorter**2).sum(axis=1) < (B**2).sum(axis=1))[:, None], shorter, B)
        if np.array_equal(B, before):
            break
    return B


def joined(each: Sequence[Array], ats: Sequence[Sequence[int]], places: Sequence[int]) -> Array:
    """The Kronecker product of rows on several sets of attributes, its columns in the order of the places."""
    on = [place for at in ats for place in at if place >= 0]
    sizes = [T.shape[1 + k] for T, at in zip(each, ats, strict=True) for k, place in enumerate(at) if place >= 0]
    rows = math.prod(len(T) for T in each)
    if rows * math.prod(sizes) > _MOST_ENTRIES:
        raise StrategyError(
            f"The queries on attributes of {' × '.join(map(str, sizes))} cells are too many to write out together. Ask "
            "for fewer attributes at a time."
        )
    kron = reduce(np.kron, [T.reshape(len(T), -1) for T in each], np.ones((1, 1)))
    return kron.reshape(rows, *sizes).transpose(0, *[1 + on.index(k) for k in places]).reshape(rows, -1)


def _whole(h: Array, most: int) -> Array:
    """The nearest of whole numbers that are multiples of h but for rounding."""
    found = [np.rint(q * h).astype(np.int64) for q in range(len(h), most * len(h) + 1)]
    return min((w for w in found if w.sum() > 0), key=lambda w: float(np.abs(w / w.sum() - h).max()))


def projected(R: Array, asked: AskedSet, means: Sequence[Array], *, but: int = -1) -> Array:
    """Rows over the cells of their attributes, without means over those that have a place, as means over the others."""
    _, kinds, at = asked
    for k, (kind, place) in enumerate(zip(kinds, at, strict=True)):
        if k != but:
            mean = np.expand_dims(np.tensordot(R, means[kind], axes=([k + 1], [0])), k + 1)
            R = R - mean if place >= 0 else mean
    return R


def root_of(asked: AskedSet, means: Sequence[Array]) -> Array:
    return _root(asked[0], tuple([len(means[kind]) for kind in asked[1]]))


@lru_cache(maxsize=64)
def _root(p: PredicateSet, sizes: tuple[int, ...]) -> Array:
    """Few rows with the gram of the predicates, over the cells of each attribute."""
    W = _written(p, sizes)
    return W if len(W) <= W[0].size else np.linalg.qr(W.reshape(len(W), -1))[1].reshape(-1, *sizes)


@lru_cache(maxsize=64)
def _written(p: PredicateSet, sizes: tuple[int, ...]) -> Array:
    n = math.prod(sizes)
    if p.count(n) * n > _MOST_ENTRIES:
        raise StrategyError(f"The {p.count(n):,} queries on {n:,} cells are too many to write out. Use fewer.")
    return to_dense(p.matrix(n)).astype(np.float64).reshape(-1, *sizes)


class _LateError(Exception):
    """The time for the search is over."""


@final
@dataclass(slots=True, eq=False)
class MeansTried:
    """The spaces, the Λ of each part from where the last evaluation left it, and the best means so far."""

    spaces: Sequence[DemandedSpace]
    search: Search
    end: float
    lams: dict[AskedPart, Array] = field(default_factory=dict)
    least: float = math.inf
    best: Sequence[Array] = ()

    def at(self, means: Sequence[Array]) -> tuple[float, list[Array]]:
        """(Σ √loss, its derivative by each mean)."""
        value, slopes = 0.0, [np.zeros_like(h) for h in means]
        for space in self.spaces:
            seen = [self._part(part, means) for part in space.parts]
            root = space.count * math.prod(each for each, _ in seen)
            value += root
            for part, (own, D) in zip(space.parts, seen, strict=True):
                if own > 0:
                    part.pull(means, root / own * D, slopes)
        if value < self.least:
            self.least, self.best = value, means
        return value, slopes

    def _part(self, part: AskedPart, means: Sequence[Array]) -> tuple[float, Array]:
        """(‖FΛ^½‖_*, its derivative by F) at the best Λ, or as near to it as some steps come."""
        if self.search.late or time.monotonic() > self.end:
            raise _LateError
        F = part.rows(means)
        if F.shape[1] == 1:
            root = float(np.linalg.norm(F))
            return root, F / root if root > 0 else F
        squares, U = np.linalg.eigh(F @ F.T)
        U = U[:, squares > max(squares[-1], 0.0) * _SINGULAR]
        if not U.shape[1]:
            return 0.0, np.zeros_like(F)
        C = U.T @ F
        lam = self.lams[part] if part in self.lams else np.sqrt((C**2).sum(axis=0))
        blocks = [GramBlock(1.0, C)]
        steps = ascent(lambda: blocks, np.maximum(lam, 1e-9 * lam.max()), factored=True, least=_LEAST)
        step = next(steps)
        for step in itertools.islice(steps, _STEPS):
            if float(step.diagonal.max()) <= (1 + _GAP) * step.root:
                break
        self.lams[part] = step.lam
        roots, Q = half_powers((C * step.lam) @ C.T)
        return step.root, U @ (((Q / np.maximum(roots, _LEAST * roots[-1])) @ (Q.T @ C)) * step.lam)


@final
@dataclass(frozen=True, slots=True, eq=False)
class DemandedSpace:
    """The parts of a space, whose roots of losses multiply."""

    count: float
    parts: tuple[AskedPart, ...]

    @classmethod
    def of(cls, count: float, demand: SpaceDemand) -> DemandedSpace:
        if len(demand) > 1:
            return cls(count, (AskedPart(tuple([(math.sqrt(square), sets) for sets, square in demand.items()])),))
        ((sets, square),) = demand.items()
        averaged = tuple([each for each in sets if max(each[2]) < 0])
        apart = [AskedPart(((1.0, (each,)),)) for each in sets if max(each[2]) >= 0]
        return cls(count, (AskedPart(((math.sqrt(square), averaged),)), *apart))


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedPart:
    """What products ask of some places of a space: the root of a squared weight and predicate sets of each."""

    terms: tuple[tuple[float, tuple[AskedSet, ...]], ...]

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(sorted({k for _, sets in self.terms for _, _, at in sets for k in at if k >= 0}))

    def rows(self, means: Sequence[Array]) -> Array:
        """F; sets that are averaged altogether count by their length."""
        return np.vstack([AskedTerm.of(root, sets, means).rows(self.places) for root, sets in self.terms])

    def pull(self, means: Sequence[Array], D: Array, slopes: Sequence[Array]) -> None:
        """Add to the slopes what D, the derivative by F, says of every mean."""
        first = 0
        for root, sets in self.terms:
            term = AskedTerm.of(root, sets, means)
            last = first + math.prod(len(T) for T in term.active)
            term.pull(means, D[first:last], self.places, slopes)
            first = last


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedTerm:
    """The rows of one product: of each set that is not averaged altogether, and the lengths of the others."""

    scale: float
    sets: tuple[AskedSet, ...]
    active: tuple[Array, ...]
    averaged: tuple[tuple[AskedSet, Array], ...]

    @classmethod
    def of(cls, root: float, sets: Sequence[AskedSet], means: Sequence[Array]) -> AskedTerm:
        seen = [(each, projected(root_of(each, means), each, means)) for each in sets]
        averaged = tuple([(each, T) for each, T in seen if max(each[2]) < 0])
        active = [(each, T) for each, T in seen if max(each[2]) >= 0]
        scale = root * math.prod([float(np.linalg.norm(T)) for _, T in averaged])
        return cls(scale, tuple([each for each, _ in active]), tuple([T for _, T in active]), averaged)

    def rows(self, places: Sequence[int]) -> Array:
        return self.scale * joined(self.active, [at for _, _, at in self.sets], places)

    def pull(self, means: Sequence[Array], D: Array, places: Sequence[int], slopes: Sequence[Array]) -> None:
        on = [k for _, _, at in self.sets for k in at if k >= 0]
        sizes = [
            len(means[kind])
            for k in places
            for _, kinds, at in self.sets
            for kind, a in zip(kinds, at, strict=True)
            if a == k
        ]
        T = D.reshape(-1, *sizes).transpose(0, *[1 + list(places).index(k) for k in on])
        flat = [F.reshape(len(F), -1) for F in self.active]
        T = self.scale * T.reshape([*map(len, flat), *(F.shape[1] for F in flat)])
        whole = 0.0
        for k, each in enumerate(self.sets):
            left = T
            for j in reversed(range(len(flat))):
                if j != k:  # its rows and its cells; those after it are gone already
                    rows, cells = j, left.ndim // 2 + j
                    left = np.tensordot(left, flat[j], axes=([rows, cells], [0, 1]))
            whole = float(np.vdot(left, flat[k]))
            _pull(each, means, left, slopes)
        if not flat:
            whole = float(T.sum())
        for each, mean in self.averaged:
            _pull(each, means, whole / float(np.vdot(mean, mean)) * mean, slopes)


def _pull(asked: AskedSet, means: Sequence[Array], D: Array, slopes: Sequence[Array]) -> None:
    """Add the derivative by each mean of ⟨D, rows of the set⟩."""
    _, kinds, at = asked
    R = root_of(asked, means)
    D = D.reshape(len(R), *[R.shape[1 + k] if place >= 0 else 1 for k, place in enumerate(at)])
    for k, (kind, place) in enumerate(zip(kinds, at, strict=True)):
        T = projected(R, asked, means, but=k)
        by = (D.sum(axis=k + 1, keepdims=True) * T).sum(axis=tuple([j for j in range(T.ndim) if j != k + 1]))
        slopes[kind][:] += by if place < 0 else -by
