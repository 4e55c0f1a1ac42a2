"""Demand: the weight t_b that a workload puts on each eigenspace b, given the base of each attribute.

With H = (BᵀB)⁻¹ for the base B of attribute i, h = H1, c = 1ᵀh and the gram V of a predicate set there:

    g₀ = hᵀVh/c²        its share in the direction that Total measures (1 for Total itself)
    g₁ = tr(HV) − hᵀVh/c   its share in the complement (0 for Total)

and the demand of a workload on b is t_b = Σ_k w_k² Π_{i∈b} g₁ki Π_{i∉b} g₀ki. B = I gives marginals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SUPPORT
from hdmm.describe.amount import MOST_PARTS
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Matrix, Residual, Scaled, exchangeable, gram_inverse, total, trace, trace_product
from hdmm.select.terms import Parts
from hdmm.strategy.mixture import Mixture, single_factors, tabulate, tabulated
from hdmm.strategy.subsets import SubsetSums, Whole, listed, subset_of

MAX_WHOLE = 20  # number of attributes up to which all 2^d subsets are listed (8 MiB per vector)
_MAX_REACH = 1 << 24  # subsets that marginals may reach if there are more attributes, repeats counted
_LEAST = 1e-150  # of λ


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parted:
    """What the parts ask of each cell: t is parts × cells.

    >>> asked = Parted(np.array([[1.0, 0.0], [0.0, 2.0]]), 64.0)
    >>> asked.at(np.array([1.0, 1.0])).round(3).tolist()
    [0.0, 2.0]
    """

    t: Array
    power: float

    def weights(self, lam: Array) -> Array:
        """ω at 1/λ; columns of λ are independent."""
        inverse = 1 / np.maximum(lam, _LEAST)  # far above all other values, and finite
        return self._parts.weights(self.t @ inverse)

    def at(self, lam: Array) -> Array:
        """Σ_k ω_k t_k over the cells, for each column of λ."""
        return self.t.T @ self.weights(lam)

    @property
    def _parts(self) -> Parts:
        return Parts(np.arange(len(self.t)), len(self.t), self.power)


Asked: TypeAlias = Array | Parted
"""What is asked of each cell: summed over all products, or by parts."""


def asked_at(t: Asked, lam: Array) -> Array:
    """t as an array that broadcasts with λ."""
    if isinstance(t, Parted):
        return t.at(lam)
    return t if lam.ndim == 1 else t[:, None]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """t over the eigenspaces that the workload needs; bit i of a subset is attribute axes[i] of the domain.

    `whole` is t over all 2^d eigenspaces if those are at most 2^20, else None. t sums to 1; `scale` times
    the error of weights for t is their error for the workload. `sizes` are the attributes' numbers of values. If
    the errors of parts are combined, `parts` has their shares of t over `needed`, and `power` is that of their norm.
    `grains` are into how many parts each attribute divides a row; a marginal over many of them is not measured.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    gamma: Array
    needed: tuple[int, ...]
    t: Array
    whole: Array | None
    scale: float
    parts: Array | None = None
    power: float = 1.0
    grains: tuple[int, ...] = ()

    def allows(self, subset: int) -> bool:
        """Whether the marginal over these attributes may be measured."""
        return math.prod([grain for k, grain in enumerate(self.grains) if subset >> k & 1]) <= MOST_PARTS

    def without(self, known: Sequence[Sequence[int]]) -> Demand:
        """The same, with nothing asked of the eigenspaces of these sets of attributes, whose marginals are known."""
        sets = [subset_of([k for k, i in enumerate(self.axes) if i in axes]) for axes in known]
        left = [k for k, b in enumerate(self.needed) if all(b & ~each for each in sets)]
        share = float(self.t[left].sum())
        if not known or share == 0:  # nothing is left to ask for: any weights do
            return self
        needed = tuple(self.needed[k] for k in left)
        whole = self.whole
        if whole is not None:
            whole = np.zeros_like(whole)
            whole[list(needed)] = self.t[left] / share
        parts = None if self.parts is None else self.parts[:, left] / share
        return replace(self, needed=needed, t=self.t[left] / share, whole=whole, scale=self.scale * share, parts=parts)

    def over(self, subsets: Sequence[int]) -> tuple[SubsetSums, Asked]:
        """(the sums of the needed eigenspaces and these subsets, t)."""
        return listed(self.needed, subsets, self.gamma), self.t if self.parts is None else Parted(
            self.parts, self.power
        )

    def everywhere(self) -> tuple[SubsetSums, Asked]:
        """(the sums of all 2^d subsets, t over all of them)."""
        if self.whole is None:
            raise StrategyError(f"{len(self.axes)} attributes have too many subsets to list; the limit is {MAX_WHOLE}.")
        if self.parts is None:
            return Whole(self.gamma), self.whole
        parts = np.zeros((len(self.parts), len(self.whole)))
        parts[:, self.needed] = self.parts
        return Whole(self.gamma), Parted(parts, self.power)


def demand(workload: Workload, bases: Mapping[int, Matrix] | None = None, parts: Parts | None = None) -> Demand:
    """What the workload asks of each eigenspace over the bases (by axis; the identity if none is given).

    Attributes that every product totals are left out. O(d·2^d) for up to 20 of the others, else O(Σ_k 2^s_k) for
    products with s_k attributes that are not totalled. The cost does not depend on the size of the domain.

    >>> from hdmm import Domain
    >>> asked = demand(Workload.marginals(Domain({"sex": ["M", "F"], "race": 4, "age": 10}), k=[("sex", "age")]))
    >>> asked.axes, asked.needed, (asked.t * asked.scale).round(2).tolist()
    ((0, 2), (0, 1, 2, 3), [0.05, 0.1, 4.5, 9.0])
    """
    products = counted(workload)
    shape = workload.domain.shape
    totals: list[PredicateSet] = [Total()] * len(shape)
    choices, sets = tabulate(single_factors(products), totals)
    given = bases or {}
    pairs = [
        np.array([shares(given.get(i, Eye(n)), p, n) for p in each]).T
        for i, (each, n) in enumerate(zip(sets, shape, strict=True))
    ]
    axes = [i for i, pair in enumerate(pairs) if pair[1].any()]
    gamma = np.array([1 / total_variance(given.get(i, Eye(shape[i]))) for i in axes])
    sizes = tuple(shape[i] for i in axes)
    weights = np.array([product.weight for product in products])
    for i, pair in enumerate(pairs):
        if i not in axes:
            weights = weights * np.sqrt(pair[0][choices[:, i]])
    largest = float(weights.max()) or 1.0  # 0 if all queries are zero
    squares = (weights / largest) ** 2
    mixture = Mixture(squares, choices[:, axes], tuple(pairs[i] for i in axes))
    if len(axes) <= MAX_WHOLE:
        t = mixture.by_subset
        t = np.where(t > 0, t, 0.0)
        scale = float(t.sum())
        if scale == 0:  # all queries are zero: every strategy answers them, and the total is the smallest one
            return Demand(tuple(axes), sizes, gamma, (0,), np.ones(1), np.eye(1, len(t))[0], 0.0)
        needed = np.flatnonzero(t).tolist()
        found = Demand(tuple(axes), sizes, gamma, tuple(needed), t[needed] / scale, t / scale, scale * largest**2)
        return _parted(found, parts, mixture)
    _check_reach(mixture, len(axes))
    cells = mixture.sparse
    found = cells.values > 0
    spaces, values = cells.keys[found], cells.values[found]
    scale = float(values.sum())
    if scale == 0:
        return Demand(tuple(axes), sizes, gamma, (0,), np.ones(1), None, 0.0)
    asked = Demand(tuple(axes), sizes, gamma, tuple(spaces.numbers()), values / scale, None, scale * largest**2)
    return _parted(asked, parts, mixture)


def _parted(found: Demand, parts: Parts | None, mixture: Mixture) -> Demand:
    """The demand with the share of each part. O(reach): all subsets are gone through only where products reach more."""
    if parts is None:
        return found
    if mixture.tables and mixture.reach <= _MAX_REACH:
        each, place = mixture.listed, {b: j for j, b in enumerate(found.needed)}
        places = np.array([place.get(b, -1) for b in each.keys.numbers()])[each.cells]
        asked = places >= 0  # of the others nothing is left but rounding
        numbers = (parts.of[each.terms] * len(place) + places)[asked]
        values = (each.values * mixture.coefficients[each.terms])[asked]
        shares = np.bincount(numbers, weights=values, minlength=parts.count * len(place))
    else:
        chosen = (replace(mixture, coefficients=mixture.coefficients * (parts.of == k)) for k in range(parts.count))
        shares = np.array([part.by_subset[list(found.needed)] for part in chosen])
    shares = shares.reshape(parts.count, -1)
    return replace(found, parts=np.maximum(shares / shares.sum(), 0.0), power=parts.power)


def counted(workload: Workload) -> list[Product]:
    """The products of positive weight; if every weight is 0, all products with weight 1.

    >>> from hdmm import Domain
    >>> total = Workload.marginals(Domain({"age": 3}), k=0)
    >>> len(counted(total + 0.0 * total)), counted(0.0 * total)[0].weight
    (1, 1.0)
    """
    products = [product for product in workload.products if product.weight > 0]
    return products or [replace(product, weight=1.0) for product in workload.products]


def is_plain(workload: Workload) -> bool:
    """Whether every predicate set treats the values of its attribute alike: identities, totals and their unions.

    >>> from hdmm import Domain, Prefix
    >>> domain = Domain({"a": 3})
    >>> is_plain(Workload.marginals(domain, k=1)), is_plain(Workload.product(domain, a=Prefix()))
    (True, False)
    """
    if any(product.joint for product in workload.products):
        return False
    _, sets = tabulated(workload.products, len(workload.domain))
    return all(_treats_alike(p, n) for each, n in zip(sets, workload.domain.shape, strict=True) for p in each)


@lru_cache(maxsize=1024)
def _treats_alike(predicates: PredicateSet, n: int) -> bool:
    return n == 1 or exchangeable(predicates.gram(n)) is not None


def shares(B: Matrix, predicates: PredicateSet, n: int) -> tuple[float, float]:
    """(g₀, g₁) of a predicate set over a base on n values.

    >>> from hdmm import Identity
    >>> shares(Eye(4), Identity(), 4), shares(Eye(4), Total(), 4)
    ((0.25, 3.0), (1.0, 0.0))
    """
    if isinstance(predicates, Total):
        return 1.0, 0.0
    if isinstance(B, Eye):
        return _plain_shares(predicates, n)
    if is_contrasts(B):
        g0, g1 = _plain_shares(predicates, n)
        return g0, g1 * (n - 1) / n
    V = predicates.gram(n)
    H = gram_inverse(B)
    h = H.matmat(np.ones((n, 1)))
    return _shares(float(h.sum()), float(h[:, 0] @ V.matmat(h)[:, 0]), trace_product(H, V), n)


@lru_cache(maxsize=4096)
def _plain_shares(predicates: PredicateSet, n: int) -> tuple[float, float]:
    V = predicates.gram(n)
    return _shares(float(n), total(V), trace(V), n)


def _shares(c: float, across: float, whole: float, n: int) -> tuple[float, float]:
    rest = whole - across / c
    return max(across, 0.0) / c**2, rest if n > 1 and rest > SUPPORT * whole else 0.0


def total_variance(B: Matrix) -> float:
    """c = 1ᵀ(BᵀB)⁻¹1: the variance of the total estimated from the base alone; infinite if it says nothing about it.

    >>> total_variance(Eye(4))
    4.0
    """
    if is_contrasts(B):
        return math.inf
    return float(B.n) if isinstance(B, Eye) else total(gram_inverse(B))


def contrasts(n: int) -> Matrix:
    """The base of an attribute of n ≥ 2 values that measures all of them beyond their total, its columns of norm 1.

    >>> total_variance(contrasts(4))
    inf
    """
    return Scaled(1 / math.sqrt(n * (n - 1)), Residual(n))


def is_contrasts(B: Matrix) -> bool:
    """Whether a base is one of `contrasts`: it says nothing about the total, so that BᵀB has no inverse."""
    return isinstance(B, Scaled) and isinstance(B.inner, Residual)


def _check_reach(mixture: Mixture, d: int) -> None:
    active = np.stack([table[1, mixture.choices[:, i]] > 0 for i, table in enumerate(mixture.tables)])
    sizes = active.sum(axis=0)
    reach = float(np.exp2(sizes).sum())
    if reach > _MAX_REACH:
        raise StrategyError(
            f"The workload's marginals over {d} attributes, of up to {int(sizes.max())} attributes each, reach "
            f"{reach:.1e} subsets; the limit is {_MAX_REACH:.1e} (or {MAX_WHOLE} attributes with all subsets). Ask "
            "for marginals of fewer attributes, or write the workload as one product and use OPT_x."
        )
