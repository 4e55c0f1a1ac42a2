"""A lower bound on tr M^½ for predicates on several attributes at once, at Λ = ⊗Λ_i, by pinching (pinching.py).

M = Σ_q s_q M_q, where M_q = ⊗_f M_f over the predicate sets f of product q, on one or more attributes each, and uuᵀ on
attributes that it totals. Split the space of each attribute into E_i, a few directions with u as the first, and the
rest. The part a, of attributes in the rest, is ⊗_{i∈a} rest_i ⊗_{i∉a} E_i; with J_q the compression of M_q^½ to it,

    tr M^½ ≥ Σ_a tr (Σ_{q ⊇ a} s_q J_q²)^½

Attributes that can be exchanged without changing the products have one Λ_i, and sets a that these exchanges lead into
each other are worked out once, so that forty attributes cost little more than three.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias, final

import numpy as np
from scipy.linalg import eigvalsh

from hdmm.bounds.pinching import directions, half
from hdmm.describe.predicates import PredicateSet
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, to_dense
from hdmm.select.gaussian_optimum import GramBlock, best_dual, rounded_roots
from hdmm.select.means import Means, is_symmetric
from hdmm.strategy.subsets import subsets

_MOST_CELLS = 1 << 10  # of a predicate set, whose gram is written out: 0.5 s
_MOST_SETS = 1 << 20  # of attributes, products counted
_TRIAL, _FINAL = 3e8, 6e9  # Σ rows³ at one Λ while it is searched for, and at the best: 0.1 and 0.5 s
_MOST_KEPT = 4  # directions
_STEPS = 5  # for each Λ_i
_FIRST, _FURTHEST = 2, 6  # powers of two by which totals may count more or less

PredicatesOn: TypeAlias = tuple[PredicateSet, Attributes]
PredicatesOfKinds: TypeAlias = tuple[PredicateSet, tuple[int, ...]]


def joint_root(products: Sequence[Product]) -> float | None:
    """A lower bound on tr M^½ at the best Λ found; None if there are too many cells or sets of attributes."""
    asked = AskedSets.of(products)
    if asked is None:
        return None
    few, many = (
        max(k for k in range(1, _MOST_KEPT + 1) if k == 1 or asked.work(k) <= most) for most in (_TRIAL, _FINAL)
    )
    uniform = [np.full(n, 1 / n) for n in asked.sizes]

    known: dict[int, float] = {}

    def root(e: int) -> float:
        if e not in known:
            known[e] = asked.root(asked.dual(2.0**e), few)
        return known[e]

    e = _FIRST
    for step in (2, 1):
        while abs(e) <= _FURTHEST:
            last, e = e, max([e, e - step, e + step], key=root)
            if e == last:
                break
    lams = uniform if asked.root(uniform, few) > root(e) else asked.dual(2.0**e)
    return max(asked.root(lams, few), asked.root(lams, many))


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedSets:
    """Squared weights of products, each as its predicate sets on attributes; the kind of each attribute, and their
    sizes. Attributes of a kind can be exchanged."""

    weights: Mapping[frozenset[PredicatesOn], float]
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, products: Sequence[Product]) -> AskedSets | None:
        """None if predicates are on too many cells, or products on too many attributes."""
        weights = defaultdict[frozenset[PredicatesOn], float](float)
        for product in (product for product in products if product.weight > 0):
            if any(product.cells(axes) > _MOST_CELLS for axes, _ in product.sets):
                return None
            sets = frozenset([(p, tuple(sorted(axes)) if is_symmetric(p) else axes) for axes, p in product.sets])
            weights[sets] += product.weight**2
        if not weights or sum(2.0 ** sum(len(axes) for _, axes in each) for each in weights) > _MOST_SETS:
            return None
        shape = products[0].domain.shape
        kinds = _exchangeable(weights, Means.alike(products).kinds)
        return cls(weights, kinds, tuple([shape[kinds.index(k)] for k in range(max(kinds) + 1)]))

    def dual(self, weight: float) -> list[Array]:
        """Λ of each kind: the best for its mean gram, of trace 1, and so many times Total's."""
        sums = [np.zeros((n, n)) for n in self.sizes]
        for sets, square in self.weights.items():
            each = [(self.gram(p, axes), axes) for p, axes in sets]
            asks = [float(np.trace(V)) / len(V) for V, _ in each]
            for (V, axes), own in zip(each, asks, strict=True):
                scale = square * math.prod(asks) / own if own > 0 else 0.0
                T = V.reshape([self.sizes[self.kinds[i]] for i in axes] * 2)
                for k, i in enumerate(axes):
                    U = np.moveaxis(T, (k, len(axes) + k), (0, 1)).reshape(len(sums[self.kinds[i]]), T.shape[k], -1)
                    sums[self.kinds[i]] += scale * U.mean(axis=2)
        return [
            best_dual([GramBlock(1.0, V / max(float(np.trace(V)), 1e-300) + weight / len(V))], steps=_STEPS)[1]
            for V in sums
        ]

    def gram(self, p: PredicateSet, axes: Attributes) -> Array:
        """V of a predicate set, written out."""
        n = math.prod([self.sizes[self.kinds[i]] for i in axes])
        return _written(p, n)

    def work(self, kept: int) -> float:
        """Σ rows³ of the eigenproblems."""
        return math.fsum(float(sum(self._places(a, kept)[1].values())) ** 3 for a, _ in self._parts())

    def root(self, lams: Sequence[Array], kept: int) -> float:
        """The bound at Λ of each kind. O(Σ rows³)."""
        lams = [lam / lam.sum() for lam in lams]
        every = {(p, tuple([self.kinds[i] for i in axes])): axes for sets in self.weights for p, axes in sets}
        halves = {
            (p, kinds): half(u[:, None] * self.gram(p, axes) * u)
            for (p, kinds), axes in every.items()
            for u in [reduce(np.kron, [np.sqrt(lams[k]) for k in kinds])]
        }
        bases = [_basis(k, np.sqrt(lam), halves, lams, kept) for k, lam in enumerate(lams)]
        turned: dict[PredicatesOfKinds, Array] = {}
        for (p, kinds), F in halves.items():
            Q = reduce(np.kron, [bases[k] for k in kinds])
            turned[p, kinds] = (Q.T @ F @ Q).reshape([len(bases[k]) for k in kinds] * 2)
        return math.fsum(count * self._part(a, turned, kept) for a, count in self._parts())

    def _parts(self) -> list[tuple[Attributes, int]]:
        """One set of attributes of every orbit under exchanges, and how many the orbit has."""
        every = {a for sets in self.weights for a in subsets(sorted([i for _, axes in sets for i in axes]))}
        orbits: dict[tuple[int, ...], list[Attributes]] = defaultdict(list)
        for a in every:
            orbits[tuple(sorted([self.kinds[i] for i in a]))].append(a)
        return [(min(each), len(each)) for each in orbits.values()]

    def _part(self, a: Attributes, turned: Mapping[PredicatesOfKinds, Array], kept: int) -> float:
        """tr (Σ_{q ⊇ a} s_q J_q²)^½."""
        products = self._asking(a)
        first, sizes = self._places(a, kept)
        G = np.zeros((sum(sizes.values()),) * 2)
        for sets, square in products:
            each = [self._block(turned[p, tuple([self.kinds[i] for i in axes])], axes, a, kept) for p, axes in sets]
            if len(products) == 1:
                return math.sqrt(square) * math.prod([float(np.trace(B)) for B in each])
            order = [i for _, axes in sets for i in axes]
            places = np.empty([self._width(i, a, kept) for i in sorted(order)], dtype=np.intp)
            for c in subsets(sorted({*order} - {*a})):
                inside = tuple([slice(None) if i in a else slice(1, None) if i in c else 0 for i in sorted(order)])
                places[inside] = first[c] + np.arange(sizes[c]).reshape(places[inside].shape)
            here = places.transpose([sorted(order).index(i) for i in order]).ravel()
            G[np.ix_(here, here)] += square * reduce(np.kron, [B @ B for B in each], np.ones((1, 1)))
        return float(rounded_roots(eigvalsh(G, check_finite=False)).sum()) if len(G) else 0.0

    def _block(self, T: Array, axes: Attributes, a: Attributes, kept: int) -> Array:
        """The compression of M_f^½ to the rest of the attributes of a, and to what is kept of others."""
        chosen = [slice(kept, None) if i in a else slice(0, kept) for i in axes]
        B = T[(*chosen, *chosen)]
        return B.reshape((math.prod(B.shape[: len(axes)]),) * 2)

    def _places(self, a: Attributes, kept: int) -> tuple[dict[Attributes, int], dict[Attributes, int]]:
        """The start and number of the rows of part a in which exactly these of the others are outside u."""
        products = self._asking(a)
        first, sizes = dict[Attributes, int](), dict[Attributes, int]()
        rows = 0
        if len(products) > 1:
            inner = math.prod([self._width(i, a, kept) for i in a])
            others = [sorted({i for _, axes in sets for i in axes} - {*a}) for sets, _ in products]
            for c in sorted({c for each in others for c in subsets(each)}):
                first[c], sizes[c] = rows, inner * math.prod([self._width(i, a, kept) - 1 for i in c])
                rows += sizes[c]
        return first, sizes

    def _width(self, i: int, a: Attributes, kept: int) -> int:
        n = self.sizes[self.kinds[i]]
        return max(n - kept, 0) if i in a else min(kept, n)

    def _asking(self, a: Attributes) -> list[tuple[frozenset[PredicatesOn], float]]:
        """The products that ask something of all attributes of a."""
        return [each for each in self.weights.items() if {*a} <= {i for _, axes in each[0] for i in axes}]


def _exchangeable(weights: Mapping[frozenset[PredicatesOn], float], kinds: Sequence[int]) -> tuple[int, ...]:
    """The kinds, where attributes that cannot be exchanged with the first of their kind have one of their own."""
    asking: dict[int, list[frozenset[PredicatesOn]]] = defaultdict(list)
    for sets in weights:
        for i in {i for _, axes in sets for i in axes}:
            asking[i].append(sets)
    of = list(range(len(kinds)))
    for j, kind in enumerate(kinds):
        i = kinds.index(kind)
        both = {**dict.fromkeys(asking[i]), **dict.fromkeys(asking[j])}
        if all(weights.get(_exchanged(sets, i, j)) == weights[sets] for sets in both):
            of[j] = i
    numbers = {i: k for k, i in enumerate(dict.fromkeys(of))}
    return tuple([numbers[i] for i in of])


def _exchanged(sets: frozenset[PredicatesOn], i: int, j: int) -> frozenset[PredicatesOn]:
    other = {i: j, j: i}
    swapped = ((p, tuple([other.get(k, k) for k in axes])) for p, axes in sets)
    return frozenset([(p, tuple(sorted(axes)) if is_symmetric(p) else axes) for p, axes in swapped])


def _basis(kind: int, u: Array, halves: Mapping[PredicatesOfKinds, Array], lams: Sequence[Array], kept: int) -> Array:
    """Orthonormal columns: u and other directions that connect it to the rest, and then the rest."""
    found = np.zeros((len(u), len(u)))
    for (_, kinds), F in halves.items():
        sizes = [len(lams[k]) for k in kinds]
        for place in [k for k, each in enumerate(kinds) if each == kind]:
            T = np.moveaxis(F.reshape(sizes * 2), (place, len(kinds) + place), (0, 1))
            rest = reduce(np.kron, [np.sqrt(lams[k]) for at, k in enumerate(kinds) if at != place], np.ones(1))
            own = np.einsum("abxy,x,y->ab", T.reshape(len(u), len(u), len(rest), len(rest)), rest, rest)
            found += own / max(float(np.trace(own)), 1e-300)
    E = directions(u, found, kept) if found.any() else u[:, None]
    return np.linalg.qr(np.hstack([E, np.eye(len(u))]))[0][:, : len(u)]


@lru_cache(maxsize=64)
def _written(p: PredicateSet, n: int) -> Array:
    return to_dense(p.gram(n)).astype(np.float64)
