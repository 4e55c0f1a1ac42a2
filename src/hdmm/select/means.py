"""Means: the weights of values at which the residual spaces of predicates are taken apart.

Let h be weights of an attribute's values that sum to 1. Every query is w = (w·h)1ᵀ + w(I − h1ᵀ): a multiple of the
total, and rows r with r·h = 0. So a query on attributes a is a sum over b ⊆ a of rows that are in the second part on b
and totals elsewhere, for any h. Uniform h are residual spaces as marginals have them; the best are found by oblique.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import DifferenceAtMost, PredicateSet, SumAtMost
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, to_dense

_MOST_ENTRIES = 1 << 25  # of the rows of one predicate set, and of one space
_MOST_SPACES = 1 << 20
_PASSES = 20  # of shortening a basis

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
    return (b for k in range(len(axes) + 1) for b in combinations(axes, k))


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
