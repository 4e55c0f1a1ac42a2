"""The least largest variance of any query under Gaussian noise, where the queries can be written out.

With row weights ω and cell weights Λ, both of sum 1, and V = WᵀΩW, M = Λ^½VΛ^½,

    min over X with diag X ≤ 1 of max_r w_r X⁻¹ w_rᵀ  =  max over ω and Λ of (tr M^½)².

At X = Λ^-½M^½Λ^-½ the root's derivatives are ½ diag X by Λ and ½ w_r X⁻¹ w_rᵀ by ω, and both average to tr M^½; so
Λ ← Λ·(diag X)² (gaussian_optimum.py) and ω ← ω·(w X⁻¹ wᵀ)² raise what is below its optimum. Every step bounds the
optimum from below by (tr M^½)², and from above by max diag X times the largest variance. On disjoint queries the two
updates exchange Λ and ω for ever; every eighth step is to the power 1, which settles there and costs up to an eighth
more steps elsewhere.

An even attribute (all products ask for its values or its total) is not written out: X commutes with every order of its
values, so that it has one part on 1 and one on the complement, each a `class` of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import RIDGE
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity, Total
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense, Matrix, Residual, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import GramBlock, ascent
from hdmm.select.goal import Goal
from hdmm.select.orbits import divisible, opt_orbits
from hdmm.select.problem import Problem
from hdmm.select.search import Search, first_search
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from hdmm.strategy.subsets import subsets

_WORK = 2e9  # classes · cells³ of a step
_MOST_ENTRIES = 1 << 24  # of all queries written out: 128 MiB
_MOST_CLASSES = 1 << 10  # times products
_STEPS = 400  # prefixes and the age pyramid take 30 to 60
_CLOSE = 1e-4  # of the bound: as near as it has to be
_LARGEST = 1 << 16  # entry of a factor, which are integers
_MOST_CONTRASTS = 1 << 18  # entries of the contrasts of a block together, and
_MOST_LARGEST = 1 << 26  # times those of its factor: answers are below 2^60 at 2^32 rows

Class: TypeAlias = tuple[int, ...]
"""The even attributes on whose complement of 1 it lies."""


def opt_worst(problem: Problem, search: Search) -> Strategy:
    """The strategy of least worst variance among all, never above that of the total; for `writable` problems."""
    if problem.goal is None:
        raise StrategyError("The problem has no goal. Make it by Problem.of(goal, noise).")
    found, total = worst_optimum(problem.goal, search).strategy, Problem(problem.goal.workload, problem.noise)
    return min((found, opt_orbits(total, search.silent())), key=problem.value) if divisible(total) else found


def writable(problem: Problem) -> bool:
    """Whether the worst query of a goal matters, under Gaussian noise, and all queries can be written out."""
    goal = problem.goal
    if problem.noise is not Noise.GAUSSIAN or goal is None or goal.linear:
        return False
    cells = WrittenCells.of(goal)
    return cells is not None and problem.restorable(cells.written)


@final
@dataclass(frozen=True, slots=True, eq=False)
class WorstOptimum:
    """A strategy of sensitivity 1, its largest variance in units of what is allowed, and what none can be below."""

    strategy: Strategy
    value: float
    bound: float


def worst_optimum(goal: Goal, search: Search | None = None) -> WorstOptimum:
    """The strategy for Gaussian noise whose worst query is best, to within 0.01 %. An eigenproblem per class and step.

    >>> from hdmm import Prefix, Workload
    >>> goal = Goal.of({"ages": Workload.product(Domain({"age": 64}), age=Prefix())}, "worst")
    >>> found = worst_optimum(goal)
    >>> round(found.bound, 2), found.value < 1.001 * found.bound
    (4.46, True)
    """
    search = search or first_search()
    cells = WrittenCells.of(goal)
    if cells is None:
        raise StrategyError("The queries are too many to be written out. Use the other operators.")
    queries = [_queries(product, cells) for product in goal.in_units]
    omega = [np.ones(len(each.W)) for each in queries]
    ridges = np.zeros(len(cells.classes))

    def classes() -> list[GramBlock]:
        """What the weighted rows ask of each class: that of all copies is as if each had its share of Λ."""
        grams = [(each.W.T * w) @ each.W for each, w in zip(queries, omega, strict=True)]
        found = np.tensordot(np.transpose([each.asked for each in queries]), np.stack(grams), axes=1)
        ridges[:] = RIDGE * np.trace(found, axis1=1, axis2=2) / cells.count
        found += ridges[:, None, None] * np.eye(cells.count)
        return list(map(GramBlock, cells.dimensions.tolist(), found / cells.copies))

    best: tuple[float, list[Array]] = (math.inf, [])
    bound = 0.0
    whole = sum(each.copies * len(each.W) for each in queries)
    omega = [w / whole for w in omega]
    exponents = [1 if number % 8 == 1 else 2 for number in range(_STEPS)]
    steps = ascent(classes, np.ones(cells.count), least=math.sqrt(np.finfo(float).eps), exponents=exponents)
    for number, (exponent, step) in enumerate(zip(exponents, steps, strict=True), start=1):
        lam = step.lam / cells.copies
        # tr (M + N)^½ ≤ tr M^½ + tr N^½
        bound = max(bound, (step.root - float(cells.dimensions @ np.sqrt(ridges)) * float(np.sqrt(lam).sum())) ** 2)
        factors = [math.sqrt(cells.copies) * A for A in step.factors]
        Y = [A.T * lam[:, None] / halves for A, halves in zip(factors, step.halves, strict=True)]
        inverses = np.stack([each @ each.T for each in Y])
        variances = [
            np.einsum("ri,ri->r", each.W @ np.tensordot(each.norms, inverses, axes=1), each.W) for each in queries
        ]
        largest = float(step.diagonal.max())
        value = largest * max(float(v.max()) for v in variances)
        if value < best[0]:
            best = value, [A / math.sqrt(largest) for A in factors]
        search.tell(number, best[0])
        if best[0] <= (1 + _CLOSE) * bound or search.late:
            break
        omega = [w * (v / step.root) ** exponent for w, v in zip(omega, variances, strict=True)]
        whole = sum(each.copies * float(w.sum()) for each, w in zip(queries, omega, strict=True))
        omega = [w / whole for w in omega]
    strategy = cells.strategy(goal.workload.domain, best[1])
    return WorstOptimum(strategy, goal.value(strategy, Noise.GAUSSIAN), bound)


@final
@dataclass(frozen=True, slots=True, eq=False)
class WrittenRows:
    """The rows W of a product over the cells that are written out.

    `copies` of each, for the values of even attributes, have the same variance. `norms` is how much of the square of a
    row lies in each class, `asked` the eigenvalue of the gram there.
    """

    W: Array
    copies: int
    norms: Array
    asked: Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class WrittenCells:
    """What is written out: `count` cells of the attributes `written`; `even` holds the sizes of the others by axis."""

    written: tuple[int, ...]
    even: dict[int, int]
    classes: tuple[Class, ...]
    count: int

    @classmethod
    def of(cls, goal: Goal) -> WrittenCells | None:
        """None if they are too many. Of an attribute of one value, values and totals are the same."""
        products = goal.in_units
        shape = goal.workload.domain.shape
        axes = sorted({i for product in products for i in product.axes})
        together = {i for product in products for on, _ in product.joint for i in on}
        even = [
            i
            for i in axes
            if i not in together
            and all(isinstance(dict(p.factors).get(i, Total()), Identity | Total) for p in products)
        ]
        written = tuple(i for i in axes if i not in even)
        even = [i for i in even if shape[i] > 1]
        asked = {tuple(i for i, p in product.factors if i in even and isinstance(p, Identity)) for product in products}
        if sum(2.0 ** len(values) for values in asked) * len(products) > _MOST_CLASSES:
            return None
        classes = tuple(sorted({c for values in asked for c in subsets(values)}))
        count = math.prod(shape[i] for i in written)
        rows = sum(math.prod(p.count(each.cells(on)) for on, p in each.sets if on[0] in written) for each in products)
        if len(classes) * float(count) ** 3 > _WORK or float(rows) * count > _MOST_ENTRIES:
            return None
        if max(math.prod(shape[i] for i in c) for c in classes) > _MOST_CONTRASTS:
            return None
        return cls(written, {i: shape[i] for i in even}, classes, count)

    @property
    def copies(self) -> int:
        """How many values the even attributes have together."""
        return math.prod(self.even.values())

    @property
    def dimensions(self) -> Array:
        """The dimension of each class."""
        return np.array([math.prod(self.even[i] - 1 for i in c) for c in self.classes], dtype=np.float64)

    def strategy(self, domain: Domain, factors: Sequence[Array]) -> Strategy:
        """One block per class: its factor on what is written out, contrasts on its attributes, totals elsewhere.

        The blocks are orthogonal, so that each class is answered by its own.

        Factors are of integers, so that what is measured is rounded no further: to 8 bits it would cost 0.2 %.
        """
        blocks: list[Block] = []
        contrasts = {i: Residual(n) for i, n in self.even.items()}
        for c, A in zip(self.classes, factors, strict=True):
            unit = math.prod(float(n) if i in c else math.sqrt(n) for i, n in self.even.items())
            chosen: list[tuple[Class, Matrix]] = [((i,), contrasts[i]) for i in c]
            if self.written:
                largest = min(_LARGEST, _MOST_LARGEST / math.prod(float(self.even[i]) for i in c))
                q = largest / float(np.abs(A).max())
                blocks.append(Block(1 / (q * unit), [(self.written, Dense(np.rint(q * A).astype(np.int64))), *chosen]))
            else:
                blocks.append(Block(float(A[0, 0]) / unit, chosen))
        return Strategy(domain, tuple(blocks))


def _queries(product: Product, cells: WrittenCells) -> WrittenRows:
    even, classes = cells.even, cells.classes
    active = dict(product.factors)
    W = (
        to_dense(product.over(cells.written).matrix).astype(np.float64)
        if cells.written
        else product.weight * np.ones((1, 1))
    )
    values = {i for i in even if isinstance(active.get(i), Identity)}
    norms, asked = np.ones(len(classes)), np.ones(len(classes))
    for j, c in enumerate(classes):
        for i, n in even.items():
            if i in values:
                norms[j] *= 1 - 1 / n if i in c else 1 / n
            else:
                norms[j] *= 0.0 if i in c else n
                asked[j] *= 0.0 if i in c else n
    return WrittenRows(W, math.prod(even[i] for i in values), norms, asked)
