"""A distribution over rows, fitted to what was measured: a mean of products, one distribution per attribute in each.

    p(x) = 1/K Σ_k Π_i P_i[x_i, k]

has a table of any attributes in O(cells · K), never negative, and all tables agree. It is fitted to the answers y_j of
the blocks themselves, whatever their factors: χ² = Σ_j ω_j²‖N(⊗A)p − y_j‖² is what noise of variance 1/ω_j² says of a
table of N rows, so no step looks at anything but the release. The start is the product that fits best, so that what was
measured badly stays near independence. The descent ends once χ² is at most the number of answers, because beyond that
it would fit noise, and no table has a χ² that noise alone would give one of all tables in a hundred releases, nor any
number such a distance, even by Laplace noise: a small table that fits badly is not seen in the sum, nor a range that
means more than a cell. Such tables and numbers count more, which brings the furthest table from 3 to 1.5 standard
deviations on Adult. Nothing here is drawn at random: the same release gives the same fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, final

import numpy as np
from scipy.special import chdtri, gammaincinv, ndtri, softmax
from threadpoolctl import threadpool_limits

from hdmm.base.exceptions import StrategyError
from hdmm.base.mixing import fixed_uniforms
from hdmm.base.steps import shown_steps
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Matrix
from hdmm.reconstruct.estimate import Estimate, TableEstimate
from hdmm.strategy.blocks import Block, BlockTable

COMPONENTS = 200
MOST_FITTED_CELLS = 1 << 27
"""Of a table, or of half of one for all components: 1 GiB."""

_STEPS, _LEAST_STEPS = 2000, 200
_WORK = 1 << 40  # numbers of all steps: minutes. A limit in seconds would make rows depend on the machine
_LONG = 1 << 24  # numbers of a step from which on progress is shown
_RATE, _LEAST_RATE = 0.1, 1e-3  # of a step on logarithms
_MEMORY = 0.9  # of slopes and of their squares
_JITTER = 0.3  # of the logarithms at the start: components that are equal would stay equal
_STALE = 30  # steps without a gain of _GAIN after which steps become shorter
_GAIN = 1e-3
_CHANCE = 0.01  # that any table, or number, is further from what was measured than is allowed, if the fit is the truth
_REST = 0.3  # of the weight of those that are further: the others, or they would forget what was measured
_FINE = 0.01  # of a standard deviation: the most that single precision, which is twice as fast, may be off by
_LEAST = 1e-300
_COMMON = 0.2  # the fewer values are common, the lower


@final
@dataclass(frozen=True, eq=False)
class Components:
    """The mean of products: `shares[i]` has a row per value of attribute i and a column per component.

    `misfit` is χ² per answer: about 1 where the fit agrees with what was measured as well as noise allows.
    """

    domain: Domain
    total: float
    shares: tuple[Array, ...]
    misfit: float = math.nan
    unmeasured: Attributes = ()  # attributes that nothing was measured about

    @property
    def estimate(self) -> Estimate:
        """The counts of rows that are distributed so."""
        return TableEstimate(self.domain, self._table)

    def scaled(self, total: float) -> Components:
        """The same distribution of another number of rows."""
        return replace(self, total=total)

    def table(self, axes: Sequence[int]) -> Array:
        """The counts of the cells of these attributes, in this order, flat."""
        return self.total * _mean_of([self.shares[i] for i in axes])

    def _table(self, product: Product) -> tuple[Attributes, Array]:
        return product.axes, self.table(product.axes)


def made_up(domain: Domain, total: float, components: int) -> Components:
    """Made-up people, whose attributes depend on each other if there are several components; the same at every call.

    A few values of each attribute are common in a component: shares are Dirichlet(0.2), as independent gammas are.
    """
    shape = [(n, components) for n in domain.shape]
    gammas = [
        gammaincinv(_COMMON, fixed_uniforms(math.prod(s), stream=i)).reshape(s) + _LEAST for i, s in enumerate(shape)
    ]
    return Components(domain, total, tuple(g / g.sum(axis=0) for g in gammas))


def fitted_components(
    domain: Domain,
    blocks: Sequence[Block],
    answers: Sequence[Array],
    total: float,
    *,
    exact: Sequence[tuple[Block, Array]] = (),
    components: int = COMPONENTS,
) -> Components:
    """The mixture whose tables are as far from the blocks' answers as noise is. O(steps · cells of the blocks · K).

    Block j has weight ω_j and was answered as answers[j] with noise of variance 1/ω_j². `exact` are blocks whose
    answers have none: their weights are those of measurements, and they have no part in χ².

    >>> from hdmm.matrix import Eye
    >>> both = Block(1.0, [(0, Eye(2)), (1, Eye(2))])
    >>> found = fitted_components(Domain({"x": 2, "y": 2}), [both], [np.array([40.0, 10, 10, 40])], 100.0)
    >>> bool(found.misfit <= 1), len(found.shares)
    (True, 2)
    """
    observed = _Observed.of(domain, blocks, answers, total, exact)
    one = [np.zeros((n, 1)) for n in domain.shape]
    start, _ = _descended(observed, one)
    logs = [x + _JITTER * normals((len(x), components), stream=i) for i, x in enumerate(start)]
    logs, misfit = _descended(observed, logs)
    shares = [softmax(x, axis=0) for x in logs]
    seen = {i for block in (*blocks, *(b for b, _ in exact)) for i in block.axes}
    missing = tuple(i for i in range(len(domain)) if i not in seen)
    for i in missing:
        shares[i][:] = 1 / len(shares[i])
    return Components(domain, total, tuple(shares), misfit, missing)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Observed:
    """Answers to blocks: the factors, each once, and per block which of them it has."""

    factors: tuple[tuple[Attributes, Matrix], ...]
    members: tuple[tuple[int, ...], ...]
    answers: tuple[Array, ...]  # as shares of the total
    precisions: tuple[float, ...]  # of these
    tables: tuple[int, ...]  # which blocks are of the same attributes
    allowed: Array  # χ² of each table
    furthest: float  # of a single number, in standard deviations
    measured: int  # so many of the tables were measured; the others are exact
    count: int  # of what was measured
    kind: type[np.floating[Any]]  # of numbers

    @classmethod
    def of(
        cls,
        domain: Domain,
        blocks: Sequence[Block],
        answers: Sequence[Array],
        total: float,
        exact: Sequence[tuple[Block, Array]],
    ) -> _Observed:
        table = BlockTable.of((*blocks, *(block for block, _ in exact)))
        for axes, A in table.distinct:
            if A.shape[1] * COMPONENTS > MOST_FITTED_CELLS:
                names = ", ".join(domain.names[i] for i in axes)
                raise StrategyError(f"Rows cannot be fitted to {A.shape[1]:,} cells of {names} at once. Merge values.")
        members = tuple(map(tuple, table.per_block(range(len(table.distinct)))))
        given = (*answers, *(y for _, y in exact))
        shapes = ([table.distinct[f][1].shape[0] for f in each] for each in members)
        precisions = tuple((table.weights * total).tolist())
        kind = np.float32 if max(precisions, default=0.0) * np.finfo(np.float32).eps < _FINE else np.float64
        shares = tuple((np.reshape(y, s) / total).astype(kind) for y, s in zip(given, shapes, strict=True))
        kinds = [(j >= len(blocks), tuple(sorted(axes))) for j, axes in enumerate(table.axes)]
        number = {kind: k for k, kind in enumerate(dict.fromkeys(kinds))}
        tables = tuple(number[kind] for kind in kinds)
        counts = np.bincount(tables, [y.size for y in given], len(number))
        allowed = np.where([exact for exact, _ in number], counts, chdtri(counts, _CHANCE / max(len(number), 1)))
        measured = sum(not exact for exact, _ in number)
        count = max(sum(y.size for y in answers), 1)
        furthest = math.log(count / _CHANCE) / math.sqrt(2)  # by Laplace noise, whose tails are the heavier
        return cls(table.distinct, members, shares, precisions, tables, allowed, furthest, measured, count, kind)

    def loss(self, shares: Sequence[Array], stress: Array) -> tuple[Array, float, list[Array]]:
        """χ² of every table, by how much numbers that are too far away exceed what is allowed, and the slopes.

        These are of the sum of χ², with this stress on each table and a stress of 1 on numbers too far away.
        """
        inputs = [reduce(_row_products, (shares[i] for i in axes)) for axes, _ in self.factors]
        seen = [A.matmat(x) for (_, A), x in zip(self.factors, inputs, strict=True)]
        slopes = [np.zeros_like(x) for x in seen]
        squares, beyond = np.zeros(len(self.allowed)), 0.0
        for j, (each, y, precision) in enumerate(zip(self.members, self.answers, self.precisions, strict=True)):
            off = precision * (_mean_of([seen[f] for f in each]).reshape(y.shape) - y)
            k, over = self.tables[j], off * off - self.furthest**2
            squares[k] += np.vdot(off, off)
            beyond += float(np.maximum(over, 0.0).sum())
            pull = np.where(over > 0, off, float(stress[k]) * off)
            _add_slopes(slopes, each, (2 * precision) * pull, seen)
        found = [np.zeros_like(x) for x in shares]
        for (axes, A), slope in zip(self.factors, slopes, strict=True):
            _add_slopes_by_component(found, axes, A.T.matmat(slope), shares)
        return squares, beyond, found


def _descended(observed: _Observed, logs: list[Array]) -> tuple[list[Array], float]:
    """The logarithms of shares after Adam's steps, until χ² is what noise allows or there is no gain; χ² per answer."""
    work = logs[0].shape[1] * sum(y.size for y in observed.answers)
    # One BLAS thread: on matrices of these sizes, several mostly wait for each other.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        shown_steps("Fitting rows", _STEPS, long=work > _LONG) as advance,
    ):
        return _steps(observed, logs, min(_STEPS, max(_LEAST_STEPS, _WORK // work)), advance)


def _steps(observed: _Observed, logs: list[Array], most: int, advance: Callable[[], None]) -> tuple[list[Array], float]:
    moment, square = ([np.zeros_like(x) for x in logs] for _ in range(2))
    best, least, misfit, since, rate = logs, math.inf, math.nan, 0, _RATE
    stress, first = np.ones(len(observed.allowed)), most
    for step in itertools.count(1):
        advance()
        shares = [softmax(x, axis=0).astype(observed.kind) for x in logs]
        squares, beyond, slopes = observed.loss(shares, stress)
        # What is more than noise: of all that was measured, of single tables, and of single numbers.
        whole, each = squares[: observed.measured].sum() / observed.count, squares - observed.allowed
        excess = max(whole - 1, 0.0) * observed.count + float(np.maximum(each, 0.0).sum()) + beyond
        since = 0 if excess < least * (1 - _GAIN) else since + 1
        if excess < least:
            best, least, misfit = logs, excess, whole
        if whole <= 1:
            first = min(first, step)
        if not excess or step >= min(most, max(_LEAST_STEPS, 2 * first)):  # single tables take no longer than all
            break
        stress = np.where((each > 0) | (whole > 1), 1.0, _REST)
        if since > _STALE:  # it moves to and fro across a narrow valley
            if rate < _LEAST_RATE:
                break
            logs, rate, since = best, rate / 4, 0
            continue
        scale = rate / (1 - _MEMORY**step)
        after: list[Array] = []
        for i, (x, p, g) in enumerate(zip(logs, shares, slopes, strict=True)):
            g = p * (g - (p * g).sum(axis=0))
            moment[i] = _MEMORY * moment[i] + (1 - _MEMORY) * g
            square[i] = _MEMORY * square[i] + (1 - _MEMORY) * g * g
            deviation = np.sqrt(square[i] / (1 - _MEMORY**step))
            after.append(x - scale * moment[i] / np.maximum(deviation, _LEAST))
        logs = after
    return best, misfit


def _row_products(A: Array, B: Array) -> Array:
    """For every component the product of two distributions: a row for each pair of rows, those of B fastest."""
    if len(A) * B.size > MOST_FITTED_CELLS:
        raise StrategyError(
            f"Rows cannot be fitted to a table of {len(A) * len(B):.1e} cells. Measure tables over fewer attributes."
        )
    return (A[:, None] * B[None]).reshape(-1, A.shape[1])


@cache
def _middle(sizes: tuple[int, ...]) -> int:
    """How many parts are the first half: the products of the sizes of both are as small as they can be."""
    return min(range(len(sizes) + 1), key=lambda at: max(math.prod(sizes[:at]), math.prod(sizes[at:])))


def _halves(parts: Sequence[Array]) -> tuple[int, Array, Array]:
    """How many parts are the first half, and each half multiplied out."""
    at = _middle(tuple(map(len, parts)))
    left, right = (
        reduce(_row_products, half) if half else np.ones((1, parts[0].shape[1]), parts[0].dtype)
        for half in (parts[:at], parts[at:])
    )
    return at, left, right


def _mean_of(parts: Sequence[Array]) -> Array:
    """Over components, the mean of the outer products of their columns, flat: two halves meet in one product."""
    if not parts:
        return np.ones(1)
    _, left, right = _halves(parts)
    if len(left) * len(right) > MOST_FITTED_CELLS:
        raise StrategyError(
            f"A table of {len(left) * len(right):.1e} cells is more than rows are fitted to. Ask for fewer attributes."
        )
    return (left @ right.T).ravel() / left.shape[1]


def _add_slopes(into: list[Array], each: Sequence[int], slope: Array, parts: Sequence[Array]) -> None:
    """Add what the slope of the mean of outer products says of its parts."""
    if not each:
        return
    at, left, right = _halves([parts[i] for i in each])
    table = slope.reshape(len(left), len(right)) / left.shape[1]
    _add_slopes_by_component(into, each[:at], table @ right, parts)
    _add_slopes_by_component(into, each[at:], table.T @ left, parts)


def _add_slopes_by_component(into: list[Array], each: Sequence[int], slope: Array, parts: Sequence[Array]) -> None:
    """The same for products that have a column per component."""
    if len(each) == 1:
        into[each[0]] += slope
    elif each:
        rest = reduce(_row_products, (parts[i] for i in each[1:]))
        there = slope.reshape(-1, len(rest), rest.shape[1])
        into[each[0]] += np.einsum("abk,bk->ak", there, rest)
        _add_slopes_by_component(into, each[1:], np.einsum("abk,ak->bk", there, parts[each[0]]), parts)


def normals(shape: tuple[int, ...], *, stream: int) -> Array:
    """Normal numbers that are the same at every call."""
    return ndtri(fixed_uniforms(math.prod(shape), stream=stream)).reshape(shape)
