"""OPT_S: a strategy of signed rows in the row space of the workload, over all cells, for Laplace noise.

A p-Identity matrix measures every cell, and so more than is asked for where queries span few directions. Let R be an
orthonormal basis of the row space, so that W's gram is RᵀGR. Then A = CR answers W with the error ‖A‖₁²·tr(G(CᵀC)⁻¹),
which is minimised over C by the loss that bases share (loss.py); the largest of the columns' L1 norms is smoothed at
first, and less and less. Ranges that are half as wide as the domain, on 64 cells: 465 instead of 571.

On few cells, signs are also tried over all of them, by a descent on the error itself (`descend`): from a p-Identity,
from the starts of the Matrix Mechanism, which is the best of these descents (baselines.searched), and from the best
plan so far. Ranges of width 9 on 21 cells: 99.8 instead of 112.0.
"""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from functools import partial

import numpy as np
from scipy.linalg import get_lapack_funcs

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Total
from hdmm.describe.product import Attributes
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, Haar, Matrix, Nested, exchangeable, to_dense
from hdmm.matrix.matrix import frozen
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import SignedRows
from hdmm.select.loss import OwnBases
from hdmm.select.minimize import minimize
from hdmm.select.opt_0 import opt_0
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.whole_factors import fewest_bits, whole_basis
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST_CELLS = 512  # on which a restart takes ten seconds
_EVERY = 64  # cells up to which signs are tried over all of them: a descent takes 3 s at most
_STARTED = 32  # cells up to which all starts are tried: 5 s for wide windows, 0.3 s for most
_FAINT = 0.01  # rows of what a plan leaves unseen, which is not asked for
_MOST_ENTRIES = 1 << 22  # of the queries, written out
_RANK = 0.6  # of many cells: with more directions, p-Identities are mostly better, and have fewer numbers
_NOTHING = 1e-10  # of the largest eigenvalue
_STAGES = ((0.1, 8.0), (0.03, 32.0), (0.01, 128.0), (0.003, 400.0), (0.001, 800.0))
_STEPS = 60  # per stage: descents that go further at first end in worse minima (ranges on 16 cells: 66, not 62)
_STARTS = 2304  # over the square of the cells: on 16 cells one in four ends at 59, and takes 60 ms
_MOST_STARTS = 9
_SPREAD = 0.3  # of later starts, relative to the first
_BITS = (10, 12, 14, 16, 18)
_COST = 3e-4  # what rounding may add to the error
_BRANCHINGS = (2, 8)  # branching factors of the trees among the starts
_WAVES = (2, 3, 5)  # numbers of smooth rows: for all ranges on 32 cells three are best, and trees have 2 % more error
_UNEQUAL = 0.02  # size of the entries added to a start, so that no two rows stay equal
_RIDGE = 1e-9  # added to V's diagonal, relative to its mean, so that all cells stay measured
_WALL = 1e9  # the loss of an infeasible point; V has trace 1, so that a start has a loss near 1
_SOFT = (0.1, 0.01)  # successive μ of the smoothed |b|, relative to the root mean square of the column
_SOFT_TOLERANCE = 1e-4
_factored, _inverse = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


def opt_s(problem: Problem, search: Search) -> Strategy:
    """Rows of integers that span what the workload asks for: one start.

    In the row space, the first start is the projection onto it, later ones are random near it: O(N²r) per step, for r
    directions of N cells. Over all cells, the first starts are fixed, and later ones the best plan so far: O(N³).
    StrategyError if that leaves nothing: on many cells, queries must be multiples of integers, which rounding spans.

    >>> from hdmm import Domain, Width, unit_error
    >>> from hdmm.select.search import first_search
    >>> w = Workload.product(Domain({"month": 12}), month=Width(6))
    >>> unit_error(w, opt_s(Problem(w), first_search())) < 40 < 42 == unit_error(w, Strategy.identity(w.domain))
    True
    """
    axes, W = _queries(problem)
    tried = [*_in_row_space(W, search), *_over_cells(problem, axes, W, search)]
    for _, found, basis in sorted(tried, key=lambda each: each[0]):
        with suppress(StrategyError):  # its entries are too unlike for integers
            A = _whole(found, basis, W)
            return Strategy(problem.given.domain, (Block(1 / _largest(A), [(axes, Dense(frozen(A)))]),))
    raise StrategyError("No signed rows were found in time, or the queries are not multiples of integers.")


def suits_signs(problem: Problem) -> bool:
    """Whether signed rows are worth trying: Laplace noise, a sum of errors, few cells, or fewer directions.

    They are not for sums over bins, which are published with their bounds: these have directions of their own.
    """
    if problem.noise is not Noise.LAPLACE or problem.parts is not None or problem.known:
        return False
    if any(product.binned_sums for product in problem.given.products):
        return False
    axes = _active(problem.given)
    cells, queries = math.prod(problem.given.domain.shape[i] for i in axes), problem.given.queries
    if not 1 < cells <= _MOST_CELLS or queries * cells > _MOST_ENTRIES or not problem.restorable(axes):
        return False
    W = _queries(problem)[1]
    return exchangeable(Dense(W.T @ W)) is None if cells <= _EVERY else _few_directions(W)


def _few_directions(W: Array) -> bool:
    """Whether rows in the row space are worth trying; on few cells, if it is any smaller, so that merging adds to it.

    Sums and differences on 4 × 4 have 9 directions of 16 pairs of values, and of the 10 cells that queries distinguish:
    63.2 there, and 64.2 over all cells.
    """
    rank, cells = int(np.linalg.matrix_rank(W)), W.shape[1]
    return rank < cells if cells <= _EVERY else rank <= _RANK * cells


def _in_row_space(W: Array, search: Search) -> list[tuple[float, Array, Array]]:
    """The best of some starts: (error, rows, integers that span them); none if directions are many, or not integers."""
    if not _few_directions(W):
        return []
    V = W.T @ W
    values, vectors = np.linalg.eigh(V)
    kept = values > _NOTHING * values[-1]
    R, asked = vectors[:, kept].T, Dense(np.diag(values[kept]))
    B = whole_basis(np.unique(W, axis=0), 1, R * np.sqrt(values[kept])[:, None])
    if B is None or len(B) < 2:
        return []
    least, best = math.inf, R
    for start in range(min(_MOST_STARTS, max(1, _STARTS // len(V) ** 2))):
        found = _descended(R, asked, _start(R, start, search), search) @ R
        error = _error(found, W)
        if error < least:
            least, best = error, found
        if search.late:
            break
    return [(least, best, B)]


def _over_cells(problem: Problem, axes: Attributes, W: Array, search: Search) -> list[tuple[float, Array, Array]]:
    """What descents over all cells find, as (error, rows, the cells): none if they are many."""
    cells = W.shape[1]
    if cells > _EVERY:
        return []
    V = W.T @ W / np.linalg.norm(W) ** 2
    if search.restart == 0:
        chosen = [to_dense(opt_0(Dense(V), search)), *(starts(V) if cells <= _STARTED else [])]
    else:
        plans = [plan for plan in search.found.values() if {*itertools.chain(*plan.table.axes)} <= {*axes}]
        chosen = [_on_cells(plan, axes) for plan in sorted(plans, key=problem.error)[:1]]
    tried: list[tuple[float, Array, Array]] = []
    for start in chosen:
        if search.late:
            break
        A = descend(start, V, search)[1]
        tried.append((_error(A, W), A, np.eye(cells, dtype=np.int64)))
    return tried


def _on_cells(strategy: Strategy, axes: Attributes) -> Array:
    """The rows of a strategy whose blocks are on some attributes, on their cells; faint ones see what it leaves."""
    place, attributes = {i: k for k, i in enumerate(axes)}, strategy.domain.attributes
    blocks = [Block(b.weight, [(tuple([place[i] for i in on]), A) for on, A in b.factors]) for b in strategy.blocks]
    A = to_dense(Strategy(Domain([attributes[i] for i in axes]), tuple(blocks)).matrix).astype(np.float64)
    A /= _largest(A)
    return A if np.linalg.matrix_rank(A) == A.shape[1] else np.vstack([A, _FAINT * np.eye(A.shape[1])])


def _start(R: Array, number: int, search: Search) -> Array:
    """Rᵀ, whose rows are the projection, at first; then random rows near it and anywhere in turn."""
    if search.restart == 0 and number == 0:
        return R.T
    drawn = search.rng.normal(size=R.T.shape)
    return R.T + _SPREAD / math.sqrt(len(R)) * drawn if number % 2 == 0 else drawn


def _descended(R: Array, asked: Matrix, C: Array, search: Search) -> Array:
    for smooth, power in _STAGES:
        family = SignedRows(R, C, smooth * math.sqrt(float(((C @ R) ** 2).mean())), power)
        C = minimize(partial(_loss, family, OwnBases.of([family], [asked])), C, search, lower=None, iterations=_STEPS).x
        if search.late:
            break
    return C


def _loss(family: SignedRows, kernel: OwnBases, C: Array) -> tuple[float, Array]:
    """tr(X⁻¹G) of the one family and its gradient."""
    state = kernel.at([C], np.array([[1.0, 0.0]]))
    if state is None:
        return math.inf, np.zeros_like(C)
    _, (slope, *_) = state.back(np.ones((1, 1)))
    return float(state.traces[0, 0]), family.pull(C, slope)


def _queries(problem: Problem) -> tuple[Attributes, Array]:
    """(the attributes that queries are on, the queries on their cells, with their weights, written out)."""
    axes, domain = _active(problem.given), problem.given.domain
    groups = AxisGroups.merging(domain, axes) if len(axes) > 1 else AxisGroups.apart(domain)
    place = groups.groups.index(axes)
    n, asked = groups.domain.shape[place], [p for p in problem.given.products if p.weight > 0]
    factors = ((p.weight, dict(groups.product(p).factors).get(place, Total())) for p in asked)
    return axes, np.vstack([weight * to_dense(each.matrix(n)) for weight, each in factors])


def _active(workload: Workload) -> Attributes:
    return tuple(sorted({i for product in workload.products if product.weight > 0 for i in product.axes}))


def _whole(A: Array, B: Array, W: Array) -> Array:
    """A as integers T·B that span the same, by as few bits in T as _COST asks for."""
    T, least = np.linalg.lstsq(B.T.astype(np.float64), A.T, rcond=None)[0].T, _error(A, W)
    return fewest_bits(T, B, lambda whole: _error(whole.astype(np.float64), W) <= (1 + _COST) * least, _BITS)


def _error(A: Array, W: Array) -> float:
    return _largest(A) ** 2 * float(np.linalg.norm(W @ np.linalg.pinv(A, rcond=1e-10)) ** 2)


def _largest(A: Array) -> float:
    return float(np.abs(A).sum(axis=0).max())


def starts(V: Array) -> list[Array]:
    """The starts, each 2N × N: the cells, and above them trees, wavelets, smooth rows or the square root of V."""
    n = len(V)
    values, Q = np.linalg.eigh(V)
    root = (Q * np.maximum(values, 0.0) ** 0.25) @ Q.T
    tops = [to_dense(Haar(n))[:n], root * np.sqrt(n / np.trace(root @ root))]
    x = (np.arange(n) + 0.5) / n
    tops += [0.5 + 0.5 * np.cos(np.pi * np.outer(np.arange(1, p + 1), x)) for p in _WAVES if p <= n]
    for b in _BRANCHINGS:
        widths = [b**level for level in range(1, n + 1) if level == 1 or b ** (level - 1) < n]
        tops.append(to_dense(Nested(np.ones((len(widths), n)), widths))[-n:])
    rows, columns = np.indices((2 * n, n))
    wave = _UNEQUAL * np.cos(1 + rows * (columns + np.sqrt(2)))  # as good as random numbers here, and always the same
    return [np.vstack([np.eye(n), top, np.zeros((n - len(top), n))]) + wave for top in tops]


def descend(
    start: Array, V: Array, search: Search | None = None, *, tolerance: float = 1e-8, iterations: int = 3000
) -> tuple[float, Array]:
    """(tr(V(AᵀA)⁻¹), A) at a local minimum over A of the start's shape and full column rank, with columns of L1 norm 1.

    The descent is by L-BFGS-B, in three stages. The first two have √(b² + μ²) in place of |b|, for two values of μ. The
    last one has |b| itself, as A = P − N with P and N ≥ 0 and columns divided by their norms. Each stage runs until
    five steps gain on average less than `tolerance` (1e-4 for the smoothed stages), or for `iterations` steps. Without
    the smoothed stages, an entry that has reached 0 stays there: on Prefix 256 from the singular vectors, the error is
    then 3.5 times as large. V has trace 1. O(rows·N²) per step.

    >>> value, A = descend(np.eye(2), np.eye(2) / 2, iterations=10)
    >>> round(value, 6), A
    (1.0, array([[1., 0.], [0., 1.]]))
    """
    ridged = V + _RIDGE / len(V) * np.eye(len(V))
    B = start
    for softness in _SOFT:
        found = minimize(
            lambda x, softness=softness: soft_loss(x, ridged, softness),
            B / np.abs(B).sum(axis=0),
            search,
            lower=None,
            tolerance=max(tolerance, _SOFT_TOLERANCE),
            iterations=iterations,
        )
        B = found.x
    B = B / np.abs(B).sum(axis=0)
    split = np.stack([np.maximum(B, 0.0), np.maximum(-B, 0.0)])
    found = minimize(lambda x: split_loss(x, ridged), split, search, tolerance=tolerance, iterations=iterations)
    P, N = found.x
    return found.value, (P - N) / np.abs(P - N).sum(axis=0)


def soft_loss(B: Array, V: Array, softness: float) -> tuple[float, Array]:
    """The error of B with columns divided by Σ√(b² + μ²), μ being a fixed fraction of the column, and its gradient."""
    least = softness**2 * np.mean(B**2, axis=0)
    soft = np.sqrt(B**2 + least)
    value, by_entry, by_scale = _scaled_loss(B, soft.sum(axis=0), V)
    return value, by_entry + by_scale * B * (1 / soft + softness**2 * np.mean(1 / soft, axis=0))


def split_loss(x: Array, V: Array) -> tuple[float, Array]:
    """The error of B = P − N with columns divided by Σ(P + N), and its gradient."""
    P, N = x
    value, by_entry, by_scale = _scaled_loss(P - N, (P + N).sum(axis=0), V)
    return value, np.stack([by_scale + by_entry, by_scale - by_entry])


def _scaled_loss(B: Array, s: Array, V: Array) -> tuple[float, Array, Array]:
    """tr(V·S(BᵀB)⁻¹S), the error of BS⁻¹, and its gradients in B and in s (one Cholesky factor, three products)."""
    factor, fails = _factored(B.T @ B)
    if fails:  # A does not distinguish all cells: a large value makes the line search step back
        return _WALL, np.zeros_like(B), np.zeros_like(s)
    M, _ = _inverse(factor)
    M = np.triu(M) + np.triu(M, 1).T
    K = V * np.outer(s, s)
    return float(np.sum(K * M)), -2 * B @ (M @ K @ M), 2 * (V * M) @ s
