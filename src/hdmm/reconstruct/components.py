"""A distribution over rows, fitted to what was measured: a mean of products, one distribution per attribute in each.

    p(x) = 1/K Σ_k Π_i P_i[x_i, k]

has a table of any attributes in O(cells · K), never negative, and all tables agree. It is fitted to the answers y_j of
the blocks themselves, whatever their factors: χ² = Σ_j ω_j²‖N(⊗A)p − y_j‖² is what noise of variance 1/ω_j² says of a
table of N rows, so no step looks at anything but the release. A fit to y would fit noise as well, most of all where
tables are large. So it starts with the product that fits best, takes the noise out of what is left of every table, by
how large its singular values are beside those of noise, and fits what remains; then it does so again from there. Tables
that noise explains stay as the start has them, and strong ones are fitted closely: on a chain of ten attributes this
brings the tables of pairs from 10.2 to 8.7 % off at ε = 0.1 and from 2.0 to 1.5 % at ε = 1, beside a descent that ends
when χ² is the number of answers. Nothing here is drawn at random: the same release gives the same fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, final

import numpy as np
from scipy.special import gammaincinv, ndtri, softmax
from threadpoolctl import threadpool_limits

from hdmm.base.exceptions import StrategyError
from hdmm.base.mixing import fixed_uniforms
from hdmm.base.steps import shown_steps
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Matrix, to_dense
from hdmm.reconstruct.estimate import Estimate, TableEstimate
from hdmm.strategy.blocks import Block, BlockTable

COMPONENTS = 200
MOST_FITTED_CELLS = 1 << 27
"""Of a table, or of half of one for all components: 1 GiB."""

_ROUNDS, _STEPS, _LEAST_STEPS = 3, 600, 100
_WORK = 1 << 39  # numbers of all steps of a round: minutes. A limit in seconds would make rows depend on the machine
_LONG = 1 << 24  # numbers of a step from which on progress is shown
_RATE, _LAST_RATE, _LEAST_RATE = 0.1, 0.01, 1e-3  # of a step on logarithms
_MEMORY = 0.9  # of slopes and of their squares
_JITTER = 0.3  # of the logarithms at the start: components that are equal would stay equal
_STALE = 30  # steps without a gain of _GAIN after which steps become shorter
_GAIN = 1e-3
_LITTLE, _PART = 0.01, 0.1  # χ² per answer, and of that at the start, that is not fitted
_SURE = 1.0  # standard deviations by which a table must be beyond noise
_CHANCE = 0.01  # that any number is taken for more than noise if all are noise
_MOST_BASIS, _MOST_SINGULAR = 1 << 18, 1 << 30  # numbers of a factor, and steps of a decomposition: parts of a second
_FLAT = 1e-10  # of the largest singular value: another is 0
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
    work = components * sum(y.size for y in observed.answers)
    most = min(_STEPS, max(_LEAST_STEPS, _WORK // work))
    # One BLAS thread: on matrices of these sizes, several mostly wait for each other.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        shown_steps("Fitting rows", (_ROUNDS + 1) * most, long=work > _LONG) as advance,
    ):
        # To the end, whatever χ²: where the noise happens to be small, it is its mean before the product is fitted, and
        # some 600 numbers fit little of the noise in 10⁵.
        start = _descended(observed, [np.zeros((n, 1)) for n in domain.shape], 0.0, most, advance)
        logs, misfit, enough = start, math.nan, math.inf
        for turn in range(_ROUNDS + 1):
            shares = [softmax(x, axis=0).astype(observed.kind) for x in logs]
            cleared, misfit, left = observed.without_noise(shares)
            enough = min(_LITTLE * observed.count, _PART * left) if not turn else enough
            if turn == _ROUNDS or (turn and left <= enough):
                break
            if not turn:
                logs = [x + _JITTER * normals((len(x), components), stream=i) for i, x in enumerate(start)]
            logs = _descended(cleared, logs, enough, most, advance)
        if misfit > 1:  # by what is too little in any table, and in many of them more than noise
            logs = _descended(observed, logs, float(observed.count), most, advance, rate=_LAST_RATE)
            misfit = observed.without_noise([softmax(x, axis=0).astype(observed.kind) for x in logs])[1]
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
    bases: tuple[Array | None, ...]  # of what each factor can answer; None for anything
    members: tuple[tuple[int, ...], ...]
    answers: tuple[Array, ...]  # as shares of the total
    precisions: tuple[float, ...]  # of these
    measured: int  # so many of the blocks were measured; the others are exact
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
        bases = tuple(_basis(A) for _, A in table.distinct)
        count = max(sum(y.size for y in answers), 1)
        return cls(table.distinct, bases, members, shares, precisions, len(blocks), count, kind)

    def seen(self, shares: Sequence[Array]) -> list[Array]:
        """What every factor answers, a column per component."""
        inputs = [reduce(_row_products, (shares[i] for i in axes)) for axes, _ in self.factors]
        return [A.matmat(x) for (_, A), x in zip(self.factors, inputs, strict=True)]

    def off(self, j: int, seen: Sequence[Array]) -> Array:
        """How far the distribution is from what block j was answered, in standard deviations."""
        y = self.answers[j]
        return self.precisions[j] * (_mean_of([seen[f] for f in self.members[j]]).reshape(y.shape) - y)

    def loss(self, shares: Sequence[Array]) -> tuple[float, list[Array]]:
        """χ², and its slopes."""
        seen = self.seen(shares)
        slopes, found, squares = [np.zeros_like(x) for x in seen], [np.zeros_like(x) for x in shares], 0.0
        for j, (each, precision) in enumerate(zip(self.members, self.precisions, strict=True)):
            off = self.off(j, seen)
            squares += float(np.vdot(off, off))
            _add_slopes(slopes, each, (2 * precision) * off, seen)
        for (axes, A), slope in zip(self.factors, slopes, strict=True):
            _add_slopes_by_component(found, axes, A.T.matmat(slope), shares)
        return squares, found

    def without_noise(self, shares: Sequence[Array]) -> tuple[_Observed, float, float]:
        """The answers without what noise explains of their distance from a distribution.

        Also χ² of this distribution, per measured number, and the part of χ² that is not noise.
        """
        furthest = math.log(self.count / _CHANCE) / math.sqrt(2)  # by Laplace noise, whose tails are the heavier
        seen, found, whole, left = self.seen(shares), list[Array](), 0.0, 0.0
        for j, (each, y) in enumerate(zip(self.members, self.answers, strict=True)):
            off = self.off(j, seen)
            kept = off
            if j < self.measured:
                kept = np.where(np.abs(off) > furthest, off, _signal(off, [self.bases[f] for f in each]))
                whole += float(np.vdot(off, off))
            found.append((y + (off - kept) / self.precisions[j]).astype(self.kind))
            left += float(np.vdot(kept, kept))
        return replace(self, answers=tuple(found)), whole / self.count, left


def _basis(A: Matrix) -> Array | None:
    """Orthonormal columns that span all answers to A; None if that is everything, or too many to find out."""
    if A.shape[0] * A.shape[1] > _MOST_BASIS:
        return None
    U, s, _ = np.linalg.svd(to_dense(A), full_matrices=False)
    kept = s > s.max(initial=0.0) * _FLAT
    return None if kept.sum() == A.shape[0] else U[:, kept]


def _signal(z: Array, bases: Sequence[Array | None]) -> Array:
    """An estimate of X from z = X + noise of variance 1, where X lies in the span of the bases.

    Singular values of noise alone end near √m + √n, so those beyond are signal, and are made smaller by the share of
    noise in them, which is optimal for large tables (Gavish and Donoho, "Optimal shrinkage of singular values", 2017).
    All others are multiplied by one number, as James and Stein do: 1 - their number / their sum of squares.
    """
    z = z.astype(np.float64)
    for k, Q in enumerate(bases):
        z = z if Q is None else np.moveaxis(np.tensordot(Q.T, z, (1, k)), 0, k)
    shape, at = z.shape, _middle(z.shape)
    R = z.reshape(math.prod(shape[:at]), -1)
    if at in (0, len(shape)) or R.size * min(R.shape) > _MOST_SINGULAR:
        z = z * _kept(float(np.vdot(z, z)), z.size)
    else:
        U, s, V = np.linalg.svd(R, full_matrices=False)
        m, n = sorted(R.shape)
        beyond = s > math.sqrt(m) + math.sqrt(n)
        bulk = _kept(float(np.vdot(s[~beyond], s[~beyond])), (m - int(beyond.sum())) * (n - int(beyond.sum())))
        spikes = np.sqrt(np.maximum((s * s - m - n) ** 2 - 4 * m * n, 0)) / np.maximum(s, _LEAST)
        z = ((U * np.where(beyond, spikes, bulk * s)) @ V).reshape(shape)
    for k, Q in enumerate(bases):
        z = z if Q is None else np.moveaxis(np.tensordot(Q, z, (1, k)), 0, k)
    return z


def _kept(squares: float, count: int) -> float:
    """The factor of James and Stein, 0 where noise alone has so large a sum of squares once in six times."""
    return max(0.0, 1 - (count + _SURE * math.sqrt(2 * count)) / max(squares, _LEAST))


def _descended(
    observed: _Observed,
    logs: list[Array],
    enough: float,
    most: int,
    advance: Callable[[], None],
    *,
    rate: float = _RATE,
) -> list[Array]:
    """The logarithms of shares after Adam's steps, until χ² is small enough or there is no gain."""
    moment, square = ([np.zeros_like(x) for x in logs] for _ in range(2))
    best, least, since = logs, math.inf, 0
    for step in range(1, most + 1):
        advance()
        shares = [softmax(x, axis=0).astype(observed.kind) for x in logs]
        squares, slopes = observed.loss(shares)
        since = 0 if squares < least * (1 - _GAIN) else since + 1
        if squares < least:
            best, least = logs, squares
        if least <= enough:
            break
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
    return best


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
