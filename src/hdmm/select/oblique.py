"""The means of least error for predicates on several attributes under Gaussian noise, by descent.

What products ask of the space b at means h is measured by one block; in coordinates of the parts blocks see nothing of
each other's spaces, and the error is (Σ_b √loss_b)² (spaces.py). With F the rows asked of a space, √loss = max over Λ
of ‖FΛ^½‖_*, and by the envelope theorem its derivative is that of ⟨D, F⟩ with D = (FΛFᵀ)^-½FΛ at the best Λ. As F is
linear in each h, √loss is convex in it. The best h lower the error of pairs by up to 15 %.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import scipy.optimize

from hdmm.matrix import Array
from hdmm.select.gaussian_optimum import GramBlock, ascent, half_powers
from hdmm.select.means import AskedSet, Means, SpaceDemand, joined, projected, root_of
from hdmm.select.search import Search

_MOST_SEARCHED = 1 << 22  # entries of all rows, where the best means are looked for
_SECONDS = 10.0  # of that search
_STEPS = 300  # of Λ, from where the last evaluation left it
_GAP = 2e-5  # at which Λ is good enough
_ITERATIONS = 40
_START = 0.1  # by which the ends weigh more at the start: at even weights, rows may fall together, and there is a kink
_SINGULAR = 1e-10  # of squares of singular values, relative to the largest: less is rounding
_LEAST = 1e-7  # of eigenvalues of M^½


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
