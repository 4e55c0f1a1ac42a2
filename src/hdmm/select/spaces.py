"""OPT_R: each residual space measured by itself, at its own optimum for Gaussian noise; any number of attributes.

Queries on pairs of attributes that overlap, such as x + y ≤ c on all pairs of 40 attributes, have no common factors.
But every query is a sum of what it asks of the residual spaces of its attributes (residual.py), these are orthogonal,
and one block per space makes AᵀA block diagonal: the error is Σ_b tr(X_b⁺V_b), and the optimum of each space is a
small convex problem. With squared column norms at most s_b in space b, Σ_b s_b = 1, the least error is (Σ_b √loss_b)².
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias, final

import numpy as np
import scipy.linalg

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Identity, PredicateSet, Weighted
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, trace
from hdmm.matrix.matrix import frozen
from hdmm.select.gaussian_optimum import GramBlock, ascent
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.worst import RowWeights, rounds
from hdmm.strategy.blocks import Block
from hdmm.strategy.orthogonal import averaged_rows, centred
from hdmm.strategy.strategy import Strategy

_MOST_SPACES = 1 << 20
_MOST_ENTRIES = 1 << 25  # of the rows that ask something of one space
_GAP = 1e-5  # relative, at which the optimum of a space is found
_STEPS = 4000
_ROUNDS = 20  # of weighing rows: the worst is then within 1 % of where it ends
_BITS = (8, 10, 12, 14, 16, 20)  # of the integers of a factor, tried in turn
_COST = 1e-4  # of a space's error that rounding may add
_NOTHING = 1e-9
_RIDGE = 1e-4  # of the mean of what is asked, where coefficients are not whole: the whole space is measured then

AskedSet: TypeAlias = tuple[PredicateSet, tuple[int, ...], tuple[int, ...]]
"""Predicates on attributes of these sizes, and the place in the space of each attribute; −1 where it is averaged."""
SpaceDemand: TypeAlias = dict[tuple[AskedSet, ...], float]
"""What products ask of one space: squared weights by the sets that touch it; several sets are a product."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpaceFactor:
    """A factor of integers in a residual space, its largest squared column norm, and tr(X⁺V)·that norm."""

    A: Dense
    norm: float
    loss: float


def opt_spaces(problem: Problem, search: Search) -> Strategy:
    """One block for every residual space that the workload asks something of. O(spaces · rank² · cells) per step.

    Where the worst query counts, rows are weighed by their variances, again and again, and the best strategy is kept.

    >>> from hdmm import Domain, Noise, SumAtMost, Workload
    >>> from hdmm.select.search import first_search
    >>> w = Workload.product(Domain({"x": 3, "y": 3, "z": 3}), {("x", "z"): SumAtMost()})
    >>> [block.axes for block in opt_spaces(Problem(w, Noise.GAUSSIAN), first_search()).blocks]
    [(), (0,), (2,), (0, 2)]
    """
    best = _least_sum(RowWeights.even(problem).weighed.workload.products, search)
    if problem.parts is None:
        return best

    def step(weighed: Problem, last: Strategy) -> Strategy:
        return _least_sum(tuple(map(_stepped, weighed.workload.products)), search)

    return rounds(problem, best, step, search, most=_ROUNDS)


def _stepped(product: Product) -> Product:
    """The product with its weights in steps of 1 %, so that spaces that are asked for the same stay so."""
    sets = [(axes, Weighted(p.inner, _step(p.weights)) if isinstance(p, Weighted) else p) for axes, p in product.sets]
    return Product.of(product.domain, sets, float(_step(np.array(product.weight))))


def _step(weights: Array) -> Array:
    return np.exp(0.01 * np.rint(np.log(weights) / 0.01))


def _least_sum(products: tuple[Product, ...], search: Search) -> Strategy:
    """The strategy with the least sum of squared errors over all products."""
    domain = products[0].domain
    spaces = _demands(products)
    known: dict[object, tuple[list[tuple[Attributes, Dense]], float, float]] = {}
    found: list[tuple[Attributes, list[tuple[Attributes, Dense]], float, float]] = []
    for b, demand in sorted(spaces.items(), key=lambda item: (len(item[0]), item[0])):
        sizes = tuple(domain.shape[i] for i in b)
        key = sizes, frozenset(demand.items())
        if key not in known:
            known[key] = _space(sizes, demand, search)
        factors, norm, loss = known[key]
        if loss > 0:
            found.append((b, factors, norm, loss))
    if not found:
        raise StrategyError("The workload asks for nothing. Give a product a weight above 0.")
    whole = math.fsum(math.sqrt(loss) for *_, loss in found)
    return Strategy(
        domain,
        tuple(
            Block(math.sqrt(math.sqrt(loss) / whole / norm), [(tuple(b[k] for k in at), A) for at, A in factors])
            for b, factors, norm, loss in found
        ),
    )


def on_cells(workload: Workload) -> Workload:
    """The workload with every cell, as often as they ask for one on average, in place of predicates on several
    attributes: for operators that know predicates on single attributes only.

    >>> from hdmm import Domain, SumAtMost
    >>> on_cells(Workload.product(Domain({"x": 3, "y": 3}), {("x", "y"): SumAtMost()})).queries
    9
    """
    products: list[Product] = []
    for product in workload.products:
        weight, factors = product.weight, list(product.factors)
        for axes, p in product.joint:
            n = product.cells(axes)
            weight *= math.sqrt(trace(p.gram(n)) / n)
            factors += [(i, Identity()) for i in axes]
        products.append(Product(product.domain, tuple(sorted(factors, key=lambda each: each[0])), weight))
    return Workload(workload.domain, tuple(products))


def _demands(products: tuple[Product, ...]) -> Mapping[Attributes, SpaceDemand]:
    """What the products ask of each residual space."""
    spaces: dict[Attributes, SpaceDemand] = {}
    for product in (product for product in products if product.weight > 0):
        for b in _subsets(product):
            scale, asked = product.weight**2, list[AskedSet]()
            for axes, p in product.sets:
                sizes = tuple(product.domain.shape[i] for i in axes)
                at = tuple(b.index(i) if i in b else -1 for i in axes)
                if max(at) < 0:
                    scale *= float((averaged_rows(sizes, [(tuple(range(len(sizes))), p)], ()) ** 2).sum())
                else:
                    asked.append((p, sizes, at))
            demand = spaces.setdefault(b, {})
            demand[tuple(asked)] = demand.get(tuple(asked), 0.0) + scale
        if len(spaces) > _MOST_SPACES:
            raise StrategyError(f"The workload asks something of more than {_MOST_SPACES:,} sets of attributes.")
    return spaces


def _subsets(product: Product) -> Iterator[Attributes]:
    axes = sorted(i for each, _ in product.sets for i in each)
    if 2.0 ** len(axes) > _MOST_SPACES:
        raise StrategyError(f"Product ({product}) is on {len(axes)} attributes, which have too many subsets.")
    return (b for k in range(len(axes) + 1) for b in combinations(axes, k))


def _space(
    sizes: tuple[int, ...], demand: SpaceDemand, search: Search
) -> tuple[list[tuple[Attributes, Dense]], float, float]:
    """(factors by their places in the space, largest squared column norm, loss) of one residual space.

    What one product asks is measured by a factor per predicate set: for Gaussian noise the product of the factors'
    optima is optimal. Several products that touch the space are taken together, written out.
    """
    if not sizes:
        return [], 1.0, math.fsum(demand.values())
    if len(demand) == 1:
        ((asked, scale),) = demand.items()
        parts = [(tuple(sorted(k for k in at if k >= 0)), [(1.0, (each,))]) for each in asked for at in (each[2],)]
    else:
        scale, parts = 1.0, [(tuple(range(len(sizes))), [(square, asked) for asked, square in demand.items()])]
    factors: list[tuple[Attributes, Dense]] = []
    norm, loss = 1.0, scale
    for places, terms in parts:
        best = _optimum(tuple(sizes[k] for k in places), places, terms, search)
        factors.append((places, best.A))
        norm, loss = norm * best.norm, loss * best.loss
    return sorted(factors, key=lambda each: each[0]), norm, loss


def _optimum(
    sizes: tuple[int, ...], places: Attributes, terms: list[tuple[float, tuple[AskedSet, ...]]], search: Search
) -> SpaceFactor:
    """The best factor of integers for what is asked on some attributes of a space."""
    begun = time.monotonic()
    weighted, spanning = list[Array](), list[Array]()
    for square, asked in terms:
        rows = _rows(asked, sizes, places)
        weighted.append(math.sqrt(square) * rows)
        spanning.append(_rows(tuple((_unweighted(p), n, at) for p, n, at in asked), sizes, places))
    F = _compressed(np.vstack(weighted))
    if not len(F):
        return SpaceFactor(Dense(np.zeros((1, math.prod(sizes)), dtype=np.int64)), 1.0, 0.0)
    B = whole_basis(np.vstack(spanning), math.prod(sizes), F)
    if B is None:
        every = centred(np.eye(math.prod(sizes)), sizes)
        F = _compressed(np.vstack([F, math.sqrt(_RIDGE * float((F**2).sum()) / len(every)) * every]))
        B = whole_basis(every, math.prod(sizes), F)
        if B is None:
            raise StrategyError("The residual space has no basis of integers. This is a fault of hdmm.")
    return _rounded(F, B, _least(F, search, reserve=time.monotonic() - begun))  # rounding takes as long as this did


def _rows(asked: tuple[AskedSet, ...], sizes: tuple[int, ...], places: Attributes) -> Array:
    """What the predicates ask of the space, one row for each combination, over the cells of its attributes."""
    shape, sets, free = list(sizes), list[tuple[Attributes, PredicateSet]](), len(sizes)
    for p, n, at in asked:
        axes: list[int] = []
        for size, place in zip(n, at, strict=True):
            if place < 0:
                shape.append(size)
                axes.append(free)
                free += 1
            else:
                axes.append(places.index(place))
        sets.append((tuple(axes), p))
    if math.prod(sizes) * math.prod(p.count(math.prod(n)) for p, n, _ in asked) > _MOST_ENTRIES:
        raise StrategyError(
            f"The queries on attributes of {' × '.join(map(str, sizes))} cells are too many to write out together. Ask "
            "for fewer attributes at a time."
        )
    rows = centred(averaged_rows(shape, sets, tuple(range(len(sizes)))), sizes)
    return np.where(np.abs(rows) > _NOTHING * np.abs(rows).max(initial=1.0), rows, 0.0)


def _compressed(F: Array) -> Array:
    """Rows of full rank with the same FᵀF."""
    if len(F) > F.shape[1]:
        F = _triangle(F)
    values, U = np.linalg.eigh(F @ F.T)
    return U[:, values > max(values[-1], 0.0) * _NOTHING].T @ F if len(F) else F


def _least(F: Array, search: Search, *, reserve: float = 0.0) -> Array:
    """A with columns of L2 norm at most 1 that minimises tr((AᵀA)⁺FᵀF), F of full row rank r; an r × r problem.

    Columns that the optimum leaves short lose their Λ. It ends `reserve` seconds before the deadline.
    """
    lam = np.sqrt((F**2).sum(axis=0))
    best, least, bound = F, math.inf, 0.0
    steps = ascent(lambda: [GramBlock(1.0, F)], np.maximum(lam, 1e-6 * lam.max()), factored=True)
    for _, step in zip(range(_STEPS), steps, strict=False):
        largest = float(step.diagonal.max())
        bound = max(bound, step.root**2)
        if step.root * largest < least:
            best, least = step.factors[0] / math.sqrt(largest), step.root * largest
        if least <= (1 + _GAP) * bound or not search.affords(reserve):
            break
    return best


def whole_basis(rows: Array, cells: int, F: Array) -> Array | None:
    """Integers with the span of F, of rows that are whole but for a common divisor of the cells; else None."""
    span = np.linalg.qr(F.T)[0]
    whole = rows * cells
    for _ in range(2):  # averages over the cells of other attributes have other divisors
        if np.abs(whole).max(initial=0.0) < 2**40 and np.allclose(whole, np.rint(whole), rtol=0, atol=1e-6):
            break
        whole = np.array([row / np.abs(row[row != 0]).min(initial=np.inf) if row.any() else row for row in rows])
        whole = whole * cells
    else:
        return None
    listed = np.rint(whole).astype(np.int64)
    listed = np.vstack([listed, np.diff(listed, axis=0)])  # neighbours often differ in little: far better conditioned
    listed = listed[listed.any(axis=1)]
    listed //= np.gcd.reduce(listed, axis=1)[:, None]
    # Pivots of the rows in coordinates of their span are those of the rows, at rank² in place of cells · rank each.
    inside = (listed / np.linalg.norm(listed, axis=1)[:, None]) @ span
    pivoted: Any = scipy.linalg.qr(inside.T, mode="r", pivoting=True)
    chosen = np.sort(pivoted[-1][: span.shape[1]])
    return listed[chosen] if np.linalg.matrix_rank(inside[chosen]) == span.shape[1] else None


def _rounded(F: Array, B: Array, A: Array) -> SpaceFactor:
    """A as integers with exactly the span of B: R·B with a triangular R of few bits, as exact as _COST asks for.

    Inverses are in coordinates of that span, on which B, A and F are square.
    """
    span = np.linalg.qr(B.T.astype(np.float64))[0]
    f, b, a = F @ span, B @ span, A @ span

    def loss(whole: Array) -> float:
        norm = float((whole.astype(np.float64) ** 2).sum(axis=0).max())
        return norm * float(np.linalg.norm(np.linalg.solve((whole @ span).T, f.T)) ** 2)

    least = float(np.linalg.norm(np.linalg.solve(a.T, f.T)) ** 2)
    R = _triangle(np.linalg.solve(b.T, a.T).T)
    whole = fewest_bits(R, B, lambda whole: loss(whole) <= (1 + _COST) * least, _BITS)
    return SpaceFactor(Dense(frozen(whole)), float((whole.astype(np.float64) ** 2).sum(axis=0).max()), loss(whole))


def fewest_bits(T: Array, B: Array, exact: Callable[[Array], bool], tried: Sequence[int]) -> Array:
    """Integers T̂·B that span what B does, T̂ near a multiple of T by as few bits as make it `exact`, or by the most."""
    found: Array | None = None
    for bits in tried:
        rounded = np.rint(T * (2**bits / np.abs(T).max())).astype(np.int64)
        if np.linalg.matrix_rank(rounded) < len(B):
            continue
        whole = _whole_product(rounded[rounded.any(axis=1)], B)
        whole //= np.gcd.reduce(whole, axis=None)
        found = whole
        if exact(whole):
            break
    if found is None:
        raise StrategyError("A factor cannot be rounded to integers: its entries are too unlike.")
    return found


def _whole_product(R: Array, B: Array) -> Array:
    """R·B of integers; by floats, which are ten times as fast, if no partial sum can be rounded."""
    if float(np.abs(R).max()) * float(np.abs(B).sum(axis=0).max()) < 2**53:
        return (R.astype(np.float64) @ B.astype(np.float64)).astype(np.int64)
    return R @ B


def _triangle(A: Array) -> Array:
    """R with RᵀR = AᵀA."""
    return np.linalg.qr(A)[1]


def _unweighted(p: PredicateSet) -> PredicateSet:
    """The same predicates without weights of their own, which do not change what they span."""
    return _unweighted(p.inner) if isinstance(p, Weighted) else p
