"""OPT_M: a weighted set of marginals (Section 6.3 of the paper), by sums over subsets of attributes.

One loss with its gradient costs O(d·2^d), or O(incidences) on listed subsets; the textbook formula takes O(4^d). The
Laplace loss has a local minimum for almost every set of marginals, so the search is over sets: `descend` handles many
starts at once, followed by moves that drop, shift, merge or add a marginal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.matrix import Array, Eye, Matrix, Residual, Scaled
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import MAX_WHOLE, Asked, Demand, Parted, contrasts
from hdmm.select.marginal_weights import (
    Weights,
    descend,
    gaussian_weights,
    initial_weights,
    laplace_loss,
    maximal,
    most_cells,
    polish,
    slopes,
    sparsified,
)
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import POWERS
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from hdmm.strategy.subsets import SubsetSums, members, subset_of

_SMALL = 10  # number of attributes up to which all 2^d subsets are the rows of one array
_MAX_INCIDENCES = 1 << 24
_MOVES = 96  # sets of marginals tried in one round of the search
_RELAX = 1.5  # of the steps of starts and moves, where only the best count
_START_HEATS = ((8, 16), (88, 4))  # steps of descent, and how many of the starts go on
_MOVE_HEATS = ((4, 24), (16, 6), (64, 1))
_GAIN = 1e-5  # of the error, that a move must have
_PATIENCE = 5  # rounds without a gain after which the search stops
_WALKS = 4  # from the best weights so far, in a restart
_WALK = (2, 12)  # the least number of moves in one, and one more than the most
_SEARCHED = 1 << 11  # number of eigenspaces up to which sets of marginals are searched


def opt_m(problem: Problem, search: Search, *, start: Strategy | None = None) -> Strategy:
    """Marginals with weights θ that make the workload's error small; Σθ = 1 for Laplace, Σθ² = 1 for Gaussian noise.

    For Laplace noise, a restart is one start of a portfolio and a search from it; restarts 0, 1, 2, … are different
    starts. With `start`, a result of OPT_M for the same problem, the search is near that instead. For Gaussian noise
    the problem is convex in θ², so that all restarts are equal. Up to 20 attributes, all subsets are candidates; with
    more, those that the workload reaches and covers of them are. The cost does not depend on the size of the domain.

    >>> from hdmm import Domain, Workload, unit_error
    >>> from hdmm.select.search import first_search
    >>> w = Workload.marginals(Domain({"a": 10, "b": 10, "c": 10}), k=range(2))
    >>> found = opt_m(Problem(w), first_search())
    >>> len(found.blocks), round(unit_error(w, found), 3)
    (3, 282.0)
    """
    asked, noise = problem.demand, problem.noise
    if not asked.axes or asked.scale == 0:
        weights: Weights = {0: 1.0}
    elif noise is Noise.GAUSSIAN:
        weights = gaussian_marginals(asked, search)
    elif start is None or len(asked.needed) > _SEARCHED:
        weights = laplace_marginals(asked, search)
    else:
        weights = _neighbours(asked, _weights_of(asked, start), search)
    return marginal_strategy(problem.given.domain, asked, weights, noise=noise)


def marginal_strategy(
    domain: Domain, asked: Demand, weights: Weights, *, noise: Noise, bases: Mapping[int, Matrix] | None = None
) -> Strategy:
    """The strategy that measures these subsets with these weights, scaled to sensitivity 1.

    >>> from hdmm import Workload
    >>> domain = Domain({"a": 2, "b": 3})
    >>> marginal_strategy(domain, Problem(Workload.marginals(domain, k=2)).demand, {3: 2.0}, noise=Noise.LAPLACE).blocks
    (Block(weight=1.0, factors=(((0,), Eye(n=2)), ((1,), Eye(n=3)))),)
    """
    given = bases or {}
    held = [(axis, given.get(axis, Eye(domain.shape[axis]))) for axis in asked.axes]
    norm = noise.norm(weights.values())
    blocks = [unscaled_block(weights[a] / norm, [held[i] for i in members(a)]) for a in sorted(weights)]
    return Strategy(domain, tuple(blocks))


def unscaled_block(weight: float, bases: Sequence[tuple[int, Matrix]]) -> Block:
    """The block over these bases by axis, with the scales of scaled ones in its weight: files hold none.

    >>> round(unscaled_block(1.0, [(0, contrasts(2))]).weight ** 2, 12)
    0.5
    """
    scale = math.prod([float(B.c) for _, B in bases if isinstance(B, Scaled)])
    return Block(weight * scale, [((i,), B.inner if isinstance(B, Scaled) else B) for i, B in bases])


def scaled_bases(block: Block) -> tuple[float, dict[int, Matrix]]:
    """(weight, bases by axis) of a block, whose contrasts are scaled to columns of norm 1: the inverse of the above.

    >>> round(scaled_bases(unscaled_block(1.0, [(0, contrasts(5))]))[0], 12)
    1.0
    """
    bases = {i: contrasts(A.n) if isinstance(A, Residual) else A for i, A in block.by_axis.items()}
    scale = math.prod([float(B.c) for B in bases.values() if isinstance(B, Scaled)])
    return block.weight / scale, bases


def gaussian_marginals(asked: Demand, search: Search | None = None) -> Weights:
    """The weights of least error under Gaussian noise, over all subsets or over those that the workload reaches.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.demand import demand
    >>> gaussian_marginals(demand(Workload.marginals(Domain({"a": 2}), k=1)))
    {1: 1.0}
    """
    subsets: Sequence[int]
    if len(asked.axes) <= _SMALL:
        subsets, (sums, t) = range(1 << len(asked.axes)), asked.everywhere()
    else:
        subsets, sums, t = _setting(asked, list(asked.needed))
    u = gaussian_weights(sums, t, None if search is None else search.rescaled(asked.scale))
    theta = sparsified(sums, t, np.sqrt(u), noise=Noise.GAUSSIAN)
    return _weights(subsets, theta / math.sqrt(float((theta * theta).sum())))


def laplace_marginals(asked: Demand, search: Search, *, warm: Weights | None = None) -> Weights:
    """Weights at a local minimum under Laplace noise that no move that was tried improves.

    `warm` is added to the starts, and the result is never worse than it.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.search import first_search
    >>> laplace_marginals(Problem(Workload.marginals(Domain({"a": 2}), k=1)).demand, first_search())
    {1: 1.0}
    """
    given = [warm] if warm else []
    starts = [*given, *initial_weights(asked, rng=search.rng, restart=search.restart)]
    found = _best_starts(asked, [{a: w for a, w in start.items() if asked.allows(a)} for start in starts], search)
    if not found:
        raise StrategyError("No marginals that may be measured answer the workload.")
    weights, error = found[search.restart % 3 % len(found)]
    if len(asked.needed) <= _SEARCHED:
        weights, error = _searched(asked, weights, error, search)
    return _finished(asked, min([(weights, error), found[0]], key=lambda pair: pair[1])[0], search)


def _neighbours(asked: Demand, weights: Weights, search: Search) -> Weights:
    """The best weights found from sets of marginals that are some moves away from the given ones.

    This costs half of what other starts do, and finds more: on up-to-8-way marginals of 8 attributes, 16 restarts of
    both kinds in turn reach 2.231e10, and 20 restarts from other starts 2.240e10.
    """
    floor, room = maximal(asked.needed), most_cells(asked)
    error = _error(asked, weights)
    for _ in range(_WALKS):
        moves = int(search.rng.integers(*_WALK))
        starts: list[Weights] = []
        for chances in search.rng.random((_MOVES // 4, moves, 5)).tolist():
            starts.append(reduce(lambda held, chance: _moved(asked, held, chance, room=room), chances, weights))
        found, least = _searched(asked, *_best_move(asked, starts, floor, search), search)
        if least < error:
            weights, error = found, least
        if search.late:
            break
    return _finished(asked, weights, search)


def _best_starts(asked: Demand, seeds: list[Weights], search: Search) -> list[tuple[Weights, float]]:
    """The starts after some steps of descent, the best first."""
    if len(asked.axes) <= _SMALL:
        sums, t = asked.over(range(1 << len(asked.axes)))
        theta = _columns(seeds, range(sums.shape[1]), sums.shape[1])
        theta = theta[:, np.isfinite(slopes(sums, t, theta * theta)[0])]
        if not theta.size:  # no marginals that may be measured say all that is asked
            return []
        theta, errors = _heats(sums, t, theta, search, _START_HEATS, gain=1e-3)
        return [(_weights(range(len(theta)), x), float(error)) for x, error in zip(theta.T, errors, strict=True)]
    found: list[tuple[Weights, float]] = []
    for weights in seeds:
        if found and search.late:
            break
        subsets, sums, t = _setting(asked, list(weights))
        start = np.array([weights.get(a, 0.0) for a in subsets])
        if not math.isfinite(float(slopes(sums, t, start * start)[0])):
            continue
        steps = 96 if sums.shape[1] <= 1 << 16 else 32
        theta, error = descend(sums, t, start, search, steps=steps, gain=1e-3)
        found.append((_weights(subsets, theta), float(error)))
    return sorted(found, key=lambda pair: pair[1])[:4]


def _searched(asked: Demand, weights: Weights, error: float, search: Search) -> tuple[Weights, float]:
    """The result of rounds of moves to the best neighbouring set of marginals, until no move gains any more."""
    floor = maximal(asked.needed)
    room = most_cells(asked)
    stalled = rounds = 0
    tried: set[frozenset[int]] = set()
    while stalled < _PATIENCE and not search.late:
        drawn = (_moved(asked, weights, chance, room=room) for chance in search.rng.random((_MOVES, 5)).tolist())
        moved = {key: move for move in drawn if (key := frozenset(move)) not in tried}
        tried |= set(moved)
        rounds += 1
        stalled += 1
        if moved:
            found, least = _best_move(asked, list(moved.values()), floor, search, beat=error)
            if least < error * (1 - _GAIN):
                weights, error, stalled, tried = found, least, 0, {frozenset(found)}
        search.tell(rounds, asked.scale * error)
    return weights, error


def _best_move(
    asked: Demand, moved: Sequence[Weights], floor: Sequence[int], search: Search, *, beat: float = math.inf
) -> tuple[Weights, float]:
    """The best of some sets of marginals after a descent, and its error; the last heat is for what is below `beat`."""
    subsets = sorted({a for move in moved for a in move} | set(floor))
    sums, t = asked.over(subsets)
    place = {a: j for j, a in enumerate(subsets)}
    theta = _columns(moved, place, len(subsets))
    theta[[place[a] for a in floor]] += 1e-4 / len(floor)  # a dropped marginal leaves nothing unmeasured
    theta, errors = _heats(sums, t, theta, search, _MOVE_HEATS, gain=1e-4, beat=beat)
    return _weights(subsets, theta[:, 0], cut=1e-5), float(errors[0])


def _heats(
    sums: SubsetSums,
    t: Asked,
    theta: Array,
    search: Search,
    heats: Sequence[tuple[int, int]],
    *,
    gain: float,
    beat: float = math.inf,
) -> tuple[Array, Array]:
    """(θ, errors) of the best columns, the best first: all descend for a few steps, and ever fewer go on.

    The last heat is run only if the best is below `beat` already: all 139 moves that won in a trial were.
    """
    errors = np.full(1, -math.inf)
    for k, (steps, kept) in enumerate(heats, start=1):
        if k == len(heats) and errors[0] >= beat * (1 - _GAIN):
            break
        theta, errors = descend(sums, t, theta, search, steps=steps, gain=gain, relax=_RELAX)
        best = np.argsort(errors, kind="stable")[:kept]
        theta, errors = theta[:, best], errors[best]
    return theta, errors


def _moved(asked: Demand, weights: Weights, chance: Sequence[float], *, room: float) -> Weights:
    """A neighbour: one marginal is dropped, added, or gains, loses or changes an attribute, or two are merged.

    `chance` has five numbers from 0 to 1 that say which.
    """
    d = len(asked.axes)
    held = list(weights)
    moved = dict(weights)
    kind, which = chance[0], chance[1:]
    a, other = (held[int(x * len(held))] for x in which[:2])
    i, j = (int(x * d) for x in which[2:])
    if kind < 0.2 and len(held) > 1:
        del moved[a]
        return moved
    if kind < 0.4:
        target, share = a ^ 1 << i, 1.0
    elif kind < 0.6:
        target, share = (a ^ 1 << i ^ 1 << j if (a >> i ^ a >> j) & 1 else a ^ 1 << i), 1.0
    elif kind < 0.75:
        target, share = a | other, 1.0
    elif kind < 0.9:
        target, share = asked.needed[int(which[1] * len(asked.needed))] | (a if kind > 0.85 else 0), 0.2
    else:
        target, share = (a | 1 << i) ^ 1 << j, 0.5
    if not asked.allows(target):
        return moved
    if room < math.prod(asked.sizes) and math.prod(asked.sizes[k] for k in members(target)) > room:
        return moved
    taken = share * moved[a]
    moved[a] -= taken
    if 0.6 <= kind < 0.75 and other != a:
        taken += moved.pop(other)
    moved[target] = moved.get(target, 0.0) + taken
    return {s: w for s, w in moved.items() if w > 0}


def _finished(asked: Demand, weights: Weights, search: Search) -> Weights:
    """The weights at the local minimum below the given ones, without the negligible ones."""
    subsets, sums, t = _setting(asked, sorted(weights))
    theta = np.array([weights.get(a, 0.0) for a in subsets])
    for power in (*POWERS, POWERS[-1]) if isinstance(t, Parted) else (1.0, 1.0):
        if isinstance(t, Parted):
            t = replace(t, power=power)
        if len(subsets) <= 1 << 14:
            theta = polish(sums, t, theta, search.rescaled(asked.scale))
        else:
            theta = descend(sums, t, theta, search, steps=192, gain=1e-5)[0]
        theta = sparsified(sums, t, theta, noise=Noise.LAPLACE)
        if search.late:
            break
    return _weights(subsets, theta / theta.sum())


def _setting(asked: Demand, subsets: list[int]) -> tuple[Sequence[int], SubsetSums, Asked]:
    """(the columns, the sums, t): listed, or all 2^d subsets if listing takes more."""
    incidences = sum(1 << a.bit_count() for a in subsets)
    if len(asked.axes) <= MAX_WHOLE and incidences > min(_MAX_INCIDENCES, len(asked.axes) << len(asked.axes)):
        return range(1 << len(asked.axes)), *asked.everywhere()
    return subsets, *asked.over(subsets)


def _error(asked: Demand, weights: Weights) -> float:
    theta = np.array(list(weights.values()))
    return laplace_loss(*asked.over(list(weights)), theta)[0]


def _weights_of(asked: Demand, strategy: Strategy) -> Weights:
    place = {axis: j for j, axis in enumerate(asked.axes)}
    return {subset_of([place[axis] for axis in block.axes]): block.weight for block in strategy.blocks}


def _columns(seeds: Sequence[Weights], place: Mapping[int, int] | Sequence[int], rows: int) -> Array:
    """One column per start: its weights, in the rows that the subsets have."""
    theta = np.zeros((rows, len(seeds)))
    held = [place[a] for weights in seeds for a in weights]
    columns = np.repeat(np.arange(len(seeds)), [len(weights) for weights in seeds])
    theta[held, columns] = [w for weights in seeds for w in weights.values()]
    return theta


def _weights(subsets: Sequence[int], theta: Array, *, cut: float = 0.0) -> Weights:
    kept = np.flatnonzero(theta > cut * theta.max())
    return {subsets[j]: float(theta[j]) for j in kept.tolist()}
