"""Orbits: values of an attribute that can be exchanged without changing what is asked, and what this leaves to choose.

If exchanging two values leaves every gram V_ki of an attribute as it is, the least error for Gaussian noise is reached
by an X = AᵀA that stays the same, too (averages over all exchanges are no worse: the problem is convex). Values fall
into orbits o of s_o such values each. Then X and V are block diagonal over the choice, for every attribute, of

- the *quotient*: sums over orbits, in which V_ki has the mean of its entries between two orbits, or
- the *contrasts* of one orbit, its deviations from the mean, on which V_ki is a multiple of the identity, counted s − 1
  times.

An attribute that is asked for by values and totals only is one orbit: a total and contrasts. SF1 has 96 such blocks in
the place of one over 26,368 cells, the largest 352 × 352, and its optimum takes seconds (`gaussian_optimum`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SAME_GRAM
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes
from hdmm.matrix import Array, Dense, Matrix, Repeated, Residual, diagonal, exchangeable, to_dense
from hdmm.matrix.matrix import frozen
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import GramBlock, blocks_optimum
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import Terms
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import short_weights
from hdmm.strategy.strategy import Strategy

_MOST_VALUES = 2048  # of an attribute whose grams are compared: O(n²) each
_WORK = 2e9  # Σ cells³ of the blocks, per step
_MOST_SPACES = 1 << 12
_MOST_LISTED = 1 << 18  # spaces of all products, repeats counted, and products times spaces: a second
_MOST_ENTRIES = 1 << 26  # of the largest factor on the values of its attributes, which a form writes out: 512 MiB
_GAP = 1e-6  # at which the optimum is found where steps are short,
_FAR = 1e-4  # and where they are long
_SHORT = 1e7  # Σ cells³
_LARGEST = 1 << 20  # entry of a factor, which are integers
_MOST_LARGEST = 1 << 26  # the same times those of contrasts: answers are below 2^60 at 2^32 rows
_ONE = np.ones((1, 1))

OrbitSpace: TypeAlias = Mapping[int, int]
"""The attributes that are in the contrasts of one of their orbits, with its number; all others are in the quotient."""


def opt_orbits(problem: Problem, search: Search) -> Strategy:
    """The strategy of least total error, for problems that are `divisible`. An eigenproblem per block and step.

    >>> from hdmm import Identity, Prefix, Workload, unit_error
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"age": 8, "sex": 2})
    >>> w = Workload.product(domain, age=Prefix(), sex=Identity()) + Workload.marginals(domain, [("sex",)])
    >>> found = opt_orbits(Problem(w, Noise.GAUSSIAN), first_search())
    >>> [block.axes for block in found.blocks], round(unit_error(w, found, noise=Noise.GAUSSIAN), 2)
    ([(0,), (0, 1)], 40.76)
    """
    cells = OrbitCells.of(problem.terms)
    if cells is None:
        raise StrategyError("The blocks of the workload are too large to be written out. Use the other operators.")
    gap = _GAP if cells.work <= _SHORT else _FAR
    return cells.strategy(problem.workload.domain, blocks_optimum(cells.blocks(), search, tolerance=gap).factors)


def divisible(problem: Problem) -> bool:
    """Whether the optimum over all strategies is found from blocks that are small enough."""
    if problem.noise is not Noise.GAUSSIAN or problem.parts is not None or problem.known:
        return False
    if any(product.joint for product in problem.workload.products):
        return False
    cells = OrbitCells.of(problem.terms)
    if cells is None:
        return False
    shape = problem.workload.domain.shape if problem.cells is None else problem.cells.groups.domain.shape
    values = [shape[i] for i, count in zip(cells.terms.axes, cells.shape, strict=True) if count > 1]
    return math.prod(map(float, values)) * math.prod(cells.shape) <= _MOST_ENTRIES


@final
@dataclass(frozen=True, slots=True, eq=False)
class Orbits:
    """The orbit of every value of an attribute, and the size of each orbit.

    >>> Orbits.of_grams(4, [np.diag([1.0, 2, 2, 2]), np.ones((4, 4))])
    Orbits(of=array([0, 1, 1, 1]), sizes=array([1, 3]))
    """

    of: Array
    sizes: Array

    @classmethod
    def of_grams(cls, n: int, grams: Sequence[Array]) -> Orbits:
        """The orbits of the exchanges that leave all grams as they are. O(n²) per gram if few values look alike."""
        if not grams:  # but those of values and totals
            return cls(np.zeros(n, dtype=np.intp), np.array([n]))
        V = np.stack([G / np.abs(G).max() for G in grams])
        looks = np.stack([V.diagonal(axis1=1, axis2=2), V.sum(axis=2), (V**2).sum(axis=2)]).reshape(-1, n)
        looks = looks / np.maximum(np.abs(looks).max(axis=1, keepdims=True), np.finfo(float).tiny)
        alike: dict[bytes, list[tuple[int, int]]] = {}
        of, count = np.empty(n, dtype=np.intp), 0
        for v, look in enumerate(looks.T.round(9) + 0.0):
            others = alike.setdefault(look.tobytes(), [])
            found = next((orbit for first, orbit in others if _exchange(V, first, v)), None)
            if found is None:
                found, count = count, count + 1
                others.append((v, found))
            of[v] = found
        return cls(of, np.bincount(of))

    @property
    def count(self) -> int:
        """How many orbits there are."""
        return len(self.sizes)

    def quotient(self, V: Matrix) -> Array:
        """The mean entry of V between any two orbits. O(orbits) products with V."""
        means = np.zeros((len(self.of), self.count))
        means[np.arange(len(self.of)), self.of] = 1 / self.sizes[self.of]
        return means.T @ V.matmat(means)

    def contrasts(self, V: Matrix, quotient: Array) -> Array:
        """What V multiplies the contrasts of each orbit by, over its size; 0 for orbits of one value."""
        s, own = self.sizes, np.bincount(self.of, weights=diagonal(V)) / self.sizes
        found = (own - quotient.diagonal()) / np.maximum(s - 1, 1)
        return np.where((s > 1) & (found * s > SAME_GRAM * own), found, 0.0)

    def contrast(self, orbit: int) -> Matrix:
        """s times the deviations from the mean of an orbit's s values, as integers."""
        if self.count == 1:
            return Residual(len(self.of))
        s = int(self.sizes[orbit])
        A = np.zeros((s, len(self.of)), dtype=np.int64)
        A[:, self.of == orbit] = s * np.eye(s, dtype=np.int64) - 1
        return Dense(frozen(A))


@final
@dataclass(frozen=True, eq=False)
class OrbitCells:
    """The cells of orbits of some attributes, and the spaces into which V falls. Other attributes are totalled."""

    terms: Terms
    orbits: tuple[Orbits, ...]  # of the attributes of the terms
    seen: Sequence[Sequence[tuple[Array, Array]]]  # the quotient and the contrasts of their grams
    spaces: tuple[OrbitSpace, ...]

    @classmethod
    def of(cls, terms: Terms) -> OrbitCells | None:
        """None if the blocks are too many or too large to be written out."""
        orbits: list[Orbits] = []
        for n, each in zip(terms.sizes, terms.grams, strict=True):
            if math.prod(float(o.count) for o in orbits) ** 3 > _WORK:
                return None
            others = [V for V in each if exchangeable(V) is None]
            if others and n > _MOST_VALUES:
                return None
            orbits.append(Orbits.of_grams(n, [to_dense(V).astype(np.float64) for V in others]))
        if not orbits or math.prod(float(each.count) for each in orbits) ** 3 > _WORK:
            return None
        seen: list[list[tuple[Array, Array]]] = []
        for o, each in zip(orbits, terms.grams, strict=True):
            quotients = [o.quotient(V) for V in each]
            seen.append([(Q, o.contrasts(V, Q)) for V, Q in zip(each, quotients, strict=True)])
        spaces = _reached(terms, seen)
        if spaces is None:
            return None
        found = cls(terms, tuple(orbits), seen, spaces)
        return found if found.work <= _WORK else None

    @property
    def work(self) -> float:
        """Σ cells³ of the blocks."""
        return sum(float(len(self.cells(space))) ** 3 for space in self.spaces)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many orbits each attribute has."""
        return tuple(each.count for each in self.orbits)

    def cells(self, space: OrbitSpace) -> Array:
        """The numbers of the cells of orbits that a space is over."""
        every = np.arange(math.prod(self.shape)).reshape(self.shape)
        return every[tuple(space.get(j, slice(None)) for j in range(len(self.shape)))].ravel()

    def count(self, space: OrbitSpace) -> float:
        """How often the space occurs: the dimension of its contrasts."""
        return math.prod(float(self.orbits[j].sizes[o]) - 1 for j, o in space.items())

    def blocks(self) -> list[GramBlock]:
        """V in every space, in units in which diag X of all spaces adds up to that of the cells: a cell stands for all
        cells of its orbits."""
        terms = self.terms
        quotients = [[Q for Q, _ in each] for each in self.seen]
        contrasts = [np.stack([c for _, c in each]) for each in self.seen]
        found: list[GramBlock] = []
        for space in self.spaces:
            weights = terms.coefficients.copy()
            for j, o in space.items():
                weights *= contrasts[j][terms.choices[:, j], o]
            rest = [j for j in range(len(self.shape)) if j not in space and self.shape[j] > 1]
            kinds, which = np.unique(terms.choices[:, rest], axis=0, return_inverse=True)
            ones = [j for j in range(len(self.shape)) if j not in space and self.shape[j] == 1]
            for j in ones:
                weights *= np.array([float(Q[0, 0]) for Q in quotients[j]])[terms.choices[:, j]]
            V = np.zeros((len(self.cells(space)),) * 2)
            sums = np.bincount(which.ravel(), weights=weights, minlength=len(kinds))
            for kind, weight in zip(kinds.tolist(), sums.tolist(), strict=True):
                if weight > 0:
                    V += weight * reduce(np.kron, (quotients[j][v] for j, v in zip(rest, kind, strict=True)), _ONE)
            found.append(GramBlock(self.count(space), V, self.cells(space)))
        return found

    def strategy(self, domain: Domain, factors: Sequence[Array]) -> Strategy:
        """One block per space: its factor on the orbits of all attributes in the quotient, and contrasts on others.

        Factors are of integers beside short weights, so that what is measured is rounded no further.
        """
        return Strategy(domain, tuple(map(self._block, self.spaces, factors)))

    def _block(self, space: OrbitSpace, A: Array) -> Block:
        """AᵀA = X, the means over the cells of orbits, is √Πs times the sums of the cells beside contrasts over s."""
        axes, sizes = self.terms.axes, [self.orbits[j].sizes[o] for j, o in space.items()]
        weight = math.prod(float(s) ** -0.5 for s in sizes)
        chosen: list[tuple[Attributes, Matrix]] = [((axes[j],), self._contrasts[j, o]) for j, o in space.items()]
        rest = [j for j in range(len(self.shape)) if j not in space and self.shape[j] > 1]
        if not rest:
            return Block(weight * float(A[0, 0]), chosen)
        largest = min(_LARGEST, _MOST_LARGEST / math.prod(map(float, sizes)))
        q = weight / short_weights(np.array(weight / largest * float(np.abs(A).max()))).item()
        index = np.ravel_multi_index(np.ix_(*(self.orbits[j].of for j in rest)), [self.shape[j] for j in rest]).ravel()
        R: Matrix = Dense(frozen(np.rint(q * A).astype(np.int64)))
        if not np.array_equal(index, np.arange(R.shape[1])):
            R = Repeated(R, index)
        return Block(weight / q, sorted([(tuple(axes[j] for j in rest), R), *chosen], key=lambda f: f[0]))

    @cached_property
    def _contrasts(self) -> dict[tuple[int, int], Matrix]:
        """The contrasts of each orbit, made once, so that blocks share them."""
        return {(j, o): each.contrast(o) for j, each in enumerate(self.orbits) for o in range(each.count)}


def _reached(terms: Terms, seen: Sequence[Sequence[tuple[Array, Array]]]) -> tuple[OrbitSpace, ...] | None:
    """The spaces that some term asks something of; None if they are too many."""
    options = [
        [[(), *(((j, o),) for o in np.flatnonzero(contrasts).tolist())] for _, contrasts in each]
        for j, each in enumerate(seen)
    ]
    found: dict[tuple[tuple[int, int], ...], None] = {}
    listed = 0
    for kinds in np.unique(terms.choices, axis=0).tolist():
        each = [options[j][v] for j, v in enumerate(kinds)]
        listed += math.prod(map(len, each))
        if listed > _MOST_LISTED:
            return None
        found.update(dict.fromkeys(sum(some, ()) for some in itertools.product(*each)))
    if len(found) > _MOST_SPACES or len(found) * len(terms.coefficients) > _MOST_LISTED:
        return None
    return tuple(map(dict, sorted(found, key=lambda space: (len(space), space))))


def _exchange(V: Array, v: int, w: int) -> bool:
    """Whether exchanging two values leaves the grams as they are."""
    off = np.abs(V[:, v] - V[:, w])
    off[:, [v, w]] = 0.0
    return bool(max(off.max(), np.abs(V[:, v, v] - V[:, w, w]).max()) <= SAME_GRAM)
