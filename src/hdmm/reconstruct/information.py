"""X = AᵀA over all cells of the measured attributes, and (X + ρI)⁻¹, for least squares under conditions on the cells.

A block totals most attributes, so X x needs sums of x over these: they are taken attribute by attribute, and blocks
share them. On 1.5 million cells and all 3-way marginals of 7 attributes, X x costs about 8 passes over x.

If every factor measures only the total of its attribute and all that is left alike, as marginals and residual spaces
do, X = Σ_b λ_b P_b with projections P_b on the residual space of b, and (X + ρI)⁻¹ costs as much as X.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from hdmm.describe.product import Attributes
from hdmm.matrix import Array, Eye, Matrix, Ones, exchangeable, gram, trace
from hdmm.reconstruct.least_squares import in_unit_noise
from hdmm.strategy.blocks import Block, stacked_blocks

_MOST_CLASSES = 1 << 12  # beyond that, adding up sums of x costs more than the equations solved by iteration
_EXACT = 1e-12  # of the right-hand side, where equations are solved by iteration
_MOST_TURNS = 100

_Term: TypeAlias = tuple[float, tuple[tuple[int, Matrix], ...]]


@final
@dataclass(frozen=True)
class Information:
    """What blocks say about the cells x of the attributes in `shape`: X, and its mean eigenvalue."""

    shape: tuple[int, ...]
    blocks: tuple[Block, ...]

    def times(self, x: Array) -> Array:
        """X x."""
        return self._applied.times(x.reshape(self.shape)).ravel()

    def inverse(self, rho: float) -> Callable[[Array, Array], Array]:
        """(y, start) → (X + ρI)⁻¹y: by classes, or by conjugate gradients from a start."""
        if self._classes is None:
            return lambda y, start: self._iterated(rho, y, start)
        weights = {b: 1 / (value + rho) - 1 / rho for b, value in self._classes.items()}
        found = _of_classes(self.shape, weights, 1 / rho)
        return lambda y, start: found.times(y.reshape(self.shape)).ravel()

    def squared(self, x: Array) -> float:
        """xᵀXx: the squared difference that x makes to all measurements, in units of their noise."""
        return max(float(x @ self.times(x)), 0.0)

    def transposed(self, answers: Sequence[Array], units: Sequence[float]) -> Array:
        """Aᵀy of answers to the blocks, scaled to noise of variance 1."""
        y = in_unit_noise(self.blocks, answers, units)
        return stacked_blocks(self.shape, self.blocks).T.matmat(y[:, None])[:, 0]

    @property
    def rows(self) -> int:
        """The number of measurements, or of cells if these are fewer."""
        return min(sum(block.rows for block in self.blocks), math.prod(self.shape))

    @property
    def mean(self) -> float:
        """tr(X)/N."""
        return math.fsum(
            block.weight**2 * math.prod(trace(gram(A)) / A.shape[1] for A in block.by_axis.values())
            for block in self.blocks
        )

    @cached_property
    def _applied(self) -> _Sums:
        if self._classes is not None:
            return _of_classes(self.shape, self._classes, 0.0)
        terms: dict[Attributes, list[_Term]] = {}
        for block in self.blocks:
            active = {i: A for i, A in block.by_axis.items() if Ones(1, self.shape[i]) != A}
            factors = tuple((i, gram(A)) for i, A in active.items() if not isinstance(A, Eye))
            terms.setdefault(tuple(sorted(active)), []).append((block.weight**2, factors))
        return _tree(self.shape, terms)

    @cached_property
    def _classes(self) -> dict[Attributes, float] | None:
        """λ_b of each residual space that is measured; None if the blocks do not split into these."""
        if sum(1 << len(block.axes) for block in self.blocks) > _MOST_CLASSES:
            return None
        found: dict[Attributes, float] = {}
        for block in self.blocks:
            split = {i: exchangeable(gram(A)) for i, A in block.by_axis.items()}
            others = math.prod(n for i, n in enumerate(self.shape) if i not in split)
            spaces = {(): block.weight**2 * others}
            for i, pair in sorted(split.items()):
                if pair is None:
                    return None
                spaces = {b: v * pair[0] for b, v in spaces.items()} | {(*b, i): v * pair[1] for b, v in spaces.items()}
            for b, value in spaces.items():
                if value > 0:
                    found[b] = found.get(b, 0.0) + value
        return found

    def _iterated(self, rho: float, y: Array, start: Array) -> Array:
        """Conjugate gradients, as far as they come."""
        n = math.prod(self.shape)

        def times(x: Array) -> Array:
            return self.times(x) + rho * x

        shifted: Any = LinearOperator(shape=(n, n), matvec=times, dtype=np.float64)  # pyright: ignore[reportCallIssue]
        return cg(shifted, y, start, rtol=_EXACT, maxiter=_MOST_TURNS)[0]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Σ of terms on x, and of what its sums over attributes give, spread out again."""

    terms: tuple[_Term, ...]
    below: tuple[tuple[int, _Sums], ...]  # the attribute that is summed over

    def times(self, x: Array) -> Array:
        """The sum at x, whose attributes that were summed over have size 1."""
        out: Array | None = None
        for weight, factors in self.terms:
            y = x
            for i, G in factors:
                y = G.along(y.reshape(math.prod(y.shape[:i]), y.shape[i], -1)).reshape(y.shape)
            out = weight * y if out is None else out + weight * y
        for i, sums in self.below:
            y = sums.times(x.sum(axis=i, keepdims=True))
            if out is None:
                out = np.broadcast_to(y, x.shape).copy()
            else:
                out += y
        return np.zeros(x.shape) if out is None else out


def _of_classes(shape: Sequence[int], values: Mapping[Attributes, float], plain: float) -> _Sums:
    """plain·I + Σ_b values[b]·P_b; P_b = ⊗_{i∈b}(I − J/n_i) ⊗_{i∉b} J/n_i is a sum of totals over sets."""
    every = tuple(range(len(shape)))
    weights: dict[Attributes, float] = {every: plain} if plain else {}
    for b, value in values.items():
        signed = {(): value}
        for i in b:
            signed |= {(*a, i): v for a, v in signed.items()} | {a: -v for a, v in signed.items()}
        for a, v in signed.items():
            weights[a] = weights.get(a, 0.0) + v / math.prod(n for i, n in enumerate(shape) if i not in a)
    return _tree(shape, {a: [(v, ())] for a, v in weights.items() if v})


def _tree(shape: Sequence[int], terms: Mapping[Attributes, Sequence[_Term]]) -> _Sums:
    """The terms on each set of attributes, reached by summing over the others, the largest first."""
    order = sorted(range(len(shape)), key=lambda i: -shape[i])

    def grown(wanted: Mapping[Attributes, Sequence[_Term]], summed: Attributes) -> _Sums:
        here: list[_Term] = []
        below: dict[int, dict[Attributes, Sequence[_Term]]] = {}
        for a, each in wanted.items():
            left = next((i for i in order if i not in a and i not in summed), None)
            if left is None:
                here.extend(each)
            else:
                below.setdefault(left, {})[a] = each
        return _Sums(tuple(here), tuple((i, grown(each, (*summed, i))) for i, each in below.items()))

    return grown(terms, ())
