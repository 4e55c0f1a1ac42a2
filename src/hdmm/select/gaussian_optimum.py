"""Selection for Gaussian noise where grams are written out: minimise tr(X⁻¹V) over X = AᵀA with diag X ≤ 1; convex.

The dual maximises (tr M^½)² with M = Λ^½VΛ^½ over diagonal Λ ≥ 0 of trace 1: every Λ is a lower bound on the error of
every A with columns of L2 norm at most 1. At Λ = I/n it is the singular-value bound. At the optimum V = XΛX, so that
X = Λ^-½M^½Λ^-½, and diag X = 1; Λ ← Λ·(diag X)² converges to it (`ascent`).

V may be block diagonal (`GramBlock`): block b is over some of the cells and counts r_b times. Then M_b and X_b are
those of each block, tr M^½ = Σ_b r_b tr M_b^½ and diag X = Σ_b r_b diag X_b.

V⁻¹ is tridiagonal for prefixes and for all ranges, and so is K = M⁻¹ (`TridiagonalInverse`). Then

    diag M^½ = diag K^-½ = 2/π ∫ diag (K + t²)⁻¹ dt

takes O(n) for each of some sixty nodes t = eˢ, at even steps of s, and so a step takes milliseconds.

Rounds of several such problems, in which V of one follows from A of the others, settle in fewer rounds by Anderson's
method (`Extrapolation`): go on from the combination of the last images of V whose residuals nearly cancel. Residuals
are compared by diagonals and row sums only, which distinguish surrogates. What is not a gram matrix any more is not
used.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from scipy.linalg import eigh

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import RIDGE
from hdmm.matrix import (
    AllIntervalsGram,
    Array,
    Cumulative,
    Dense,
    Gram,
    Matrix,
    Scaled,
    diagonal,
    scaled,
    summed,
    to_dense,
    trace,
)
from hdmm.select.search import Search, first_search

WORK = 1.4e11  # Σ rows³ of eigenproblems: about 15 s
_ABOVE = 1 + 1e-14  # columns are scaled to a little less than 1, so that rounding never takes them above it
_STEPS = 60  # of the dual; prefixes and ranges on one attribute converge in 5 to 20
_NODES, _BEYOND = 0.5, 9.0  # between nodes, and of the logarithm of t outside that of the eigenvalues: 1e-8 is lost
_SETTLED = 3e-6  # a step of the dual whose relative gain is smaller is the last
_CLOSE = 3e-8  # the same where steps take milliseconds: 4,096 prefixes are 0.003 % above the bound, and not 0.009 %

_KEPT = 3  # rounds that are combined; with five, prefixes on five of Adult's attributes take 11 rounds instead of 10
_SINGULAR = 1e-8  # relative to the largest: differences of residuals below this are rounding
_ROUNDING = 1e-10  # of the mean of the diagonal


@final
@dataclass(frozen=True, slots=True, eq=False)
class GramBlock:
    """V over some of the cells, or F with V = FᵀF, which has few rows if V is of low rank; it counts `count` times."""

    count: float
    V: Array
    cells: Array | slice = field(default_factory=lambda: slice(None))


GramBlocks: TypeAlias = Sequence[GramBlock]


@final
@dataclass(frozen=True, slots=True, eq=False)
class AscentStep:
    """Λ of trace 1, tr M^½, whose square is a lower bound, diag X, and A with AᵀA = X for each block.

    The rows of A are orthogonal in Λ^½, and `halves` are the eigenvalues of M^½, their squared lengths there.
    """

    lam: Array
    root: float
    diagonal: Array
    halves: tuple[Array, ...]
    factors: tuple[Array, ...]

    @classmethod
    def of(cls, lam: Array, blocks: GramBlocks, *, factored: bool, least: float | None) -> AscentStep:
        """An eigenproblem per block: O(n³), or O(r²n) for factors of r rows."""
        root, diagonal = 0.0, np.zeros(len(lam))
        halves: list[Array] = []
        factors: list[Array] = []
        for block in blocks:
            V, here = block.V, lam[block.cells]
            u = np.sqrt(here)
            inverse = np.divide(1.0, u, out=np.zeros_like(u), where=u > 0)
            M = (V * here) @ V.T if factored else u[:, None] * V * u
            values, Q = eigh(M, driver="evd", check_finite=False, overwrite_a=True)
            rounded = rounded_roots(values)
            full = np.sqrt(np.maximum(values, values[-1] * 1e-30))
            halves.append(full if least is None else np.maximum(rounded, least * rounded[-1]))
            roots = np.sqrt(halves[-1])
            factors.append((Q / roots).T @ V if factored else roots[:, None] * Q.T * inverse)
            root += block.count * float(rounded.sum())
            diagonal[block.cells] += block.count * np.einsum("ij,ij->j", factors[-1], factors[-1])
        return cls(lam, root, diagonal, tuple(halves), tuple(factors))


def ascent(
    blocks: Callable[[], GramBlocks],
    lam: Array,
    *,
    factored: bool = False,
    least: float | None = None,
    exponents: Iterable[int] = itertools.repeat(2),
) -> Iterator[AscentStep]:
    """The steps of Λ ← Λ·(diag X)², while there are exponents; the blocks may change between them, as row weights do.

    If a V may be singular, `least` is the least eigenvalue of M^½, relative to the largest, that is not rounding. The
    exponent 1 also converges, in twice as many steps.
    """
    for exponent in exponents:
        step = AscentStep.of(lam / lam.sum(), blocks(), factored=factored, least=least)
        yield step
        lam = step.lam * step.diagonal**exponent


@final
@dataclass(frozen=True, slots=True, eq=False)
class GaussianOptimum:
    """A_b for every block: together of columns of L2 norm at most 1, at a loss Σ_b r_b tr((A_bᵀA_b)⁻¹V_b).

    No other such A can be below the bound.
    """

    factors: tuple[Array, ...]
    loss: float
    bound: float

    @property
    def A(self) -> Dense:
        """The factor, where V is one block."""
        (factor,) = self.factors
        return Dense(factor)

    @property
    def gap(self) -> float:
        """How far the loss can be above the optimum, as a fraction of it."""
        return self.loss / self.bound - 1.0


def gaussian_optimum(
    V: Matrix, search: Search | None = None, *, tolerance: float = 1e-3, iterations: int = 200
) -> GaussianOptimum:
    """The optimal strategy for Gaussian noise, to within a computed gap. An n × n eigenproblem per step: O(n³).

    The iteration stops when the gap is below `tolerance`, or at the deadline of the search.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> found = gaussian_optimum(AllIntervalsGram(8))
    >>> found.gap < 1e-3, bool(np.allclose((found.A.array**2).sum(axis=0), 1))
    (True, True)
    """
    if iterations < 1:
        raise StrategyError(f"The number of iterations is {iterations}. Use at least 1.")
    whole = [GramBlock(1.0, to_dense(V).astype(np.float64))]
    return blocks_optimum(whole, search or first_search(), tolerance=tolerance, iterations=iterations)


def blocks_optimum(blocks: GramBlocks, search: Search, *, tolerance: float, iterations: int = 200) -> GaussianOptimum:
    """The same where V is block diagonal; it writes to the diagonals of the blocks."""
    for block in blocks:
        m = len(block.V)
        block.V.flat[:: m + 1] += RIDGE * max(float(np.trace(block.V)) / m, np.finfo(float).tiny)
    found: list[tuple[float, tuple[Array, ...]]] = []
    bound, begun = 0.0, time.monotonic()
    for number, step in enumerate(ascent(lambda: blocks, np.sqrt(_diagonal(blocks))), start=1):
        bound = max(bound, step.root**2)
        last = number == iterations or not search.affords(time.monotonic() - begun)  # as long again
        if not found or number % 2 == 0 or last:
            norms = step.diagonal * step.lam
            tried = (_primal(blocks, step, each) for each in (norms, np.maximum(norms, step.root * step.lam)))
            found = [min([*found, *tried], key=lambda each: each[0])]
            search.tell(number, found[0][0])
            if last or found[0][0] <= (1 + tolerance) * bound:
                break
        begun = time.monotonic()
    loss, factors = found[0]
    return GaussianOptimum(factors, loss, bound)


@final
@dataclass(frozen=True, slots=True, eq=False)
class TridiagonalInverse:
    """V⁻¹ by its diagonal and the entries beside it, where V is the gram of prefixes or of all ranges, or c times that.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> TridiagonalInverse.of(AllIntervalsGram(3))
    TridiagonalInverse(diagonal=array([0.5, 0.5, 0.5]), beside=array([-0.25, -0.25]))
    """

    diagonal: Array
    beside: Array

    @classmethod
    def of(cls, V: Matrix) -> TridiagonalInverse | None:
        """None for other grams."""
        match V:
            case Scaled(c, inner) if c > 0:
                found = cls.of(inner)
                return found and cls(found.diagonal / c, found.beside / c)
            case AllIntervalsGram(n):
                return cls(np.full(n, 2.0) / (n + 1), np.full(n - 1, -1.0) / (n + 1))
            case Gram(Cumulative(n)):
                return cls(np.concatenate([[1.0], np.full(n - 1, 2.0)]), np.full(n - 1, -1.0))
            case _:
                return None

    def ascent(self) -> Iterator[tuple[Array, float]]:
        """(Λ, tr M^½) of the steps of Λ ← Λ·(diag X)², without end. O(nodes · n) each."""
        lam = np.sqrt(self.inverse_diagonals(self.diagonal, self.beside**2, np.zeros(1))[:, 0])
        while True:
            lam = lam / lam.sum()
            halves = self._half(lam)
            yield lam, float(halves.sum())
            lam = halves**2 / lam

    def dual(self) -> tuple[float, Array]:
        """(tr M^½, Λ), as `best_dual` has them."""
        best, found = 0.0, np.zeros(0)
        for lam, root in itertools.islice(self.ascent(), _STEPS):
            settled, best, found = root <= best * (1 + _CLOSE), root, lam
            if settled:
                break
        return best, found

    def _half(self, lam: Array) -> Array:
        """diag K^-½ at Λ: the sum over the nodes, and what is beyond the first and the last of them."""
        r = 1 / np.sqrt(lam)
        a, b = self.diagonal * r**2, self.beside * r[1:] * r[:-1]
        whole = self.inverse_diagonals(a, b**2, np.zeros(1))[:, 0]
        least, most = 1 / whole.sum(), a.max() + 2 * np.abs(b).max(initial=0.0)
        t = np.exp(np.arange(math.log(least) / 2 - _BEYOND, math.log(most) / 2 + _BEYOND + _NODES, _NODES))
        inside = self.inverse_diagonals(a, b**2, t**2) @ t
        outside = (t[0] * whole + 1 / t[-1]) / math.expm1(_NODES)
        return 2 / math.pi * _NODES * (inside + outside)

    @staticmethod
    def inverse_diagonals(a: Array, squares: Array, shifts: Array) -> Array:
        """diag (K + s)⁻¹ for each shift s, from the pivots of elimination from both ends, which meet at each entry."""
        shifted = a[:, None] + shifts
        pivots = np.concatenate([shifted, shifted[::-1]], axis=1)
        beside = np.repeat(np.stack([squares, squares[::-1]], axis=1), len(shifts), axis=1)
        for i in range(1, len(a)):
            pivots[i] -= beside[i - 1] / pivots[i - 1]
        return 1 / (pivots[:, : len(shifts)] + pivots[::-1, len(shifts) :] - shifted)


def eigen_seconds(n: int) -> float:
    """About how long a step takes on one core, which cannot be interrupted: 0.6 s at 1,000 values.

    >>> round(eigen_seconds(4096))
    41
    """
    return 6e-10 * n**3


def best_dual(blocks: GramBlocks, *, steps: int = _STEPS) -> tuple[float, Array]:
    """(tr M^½, Λ) at the best Λ found. One eigenproblem per block and step.

    >>> value, lam = best_dual([GramBlock(1.0, np.eye(3))])
    >>> round(value**2, 9), lam.round(9)
    (3.0, array([0.33333333, 0.33333333, 0.33333333]))
    """
    lam = np.sqrt(_diagonal(blocks))
    best, found = 0.0, lam
    most = max(1, min(steps, int(WORK / sum(float(len(block.V)) ** 3 for block in blocks))))
    for _, step in zip(range(most), ascent(lambda: blocks, lam, least=0.0), strict=False):
        if step.root <= best * (1 + _SETTLED):
            break
        best, found = step.root, step.lam
    return best, found


def half_powers(M: Array) -> tuple[Array, Array]:
    """The eigenvalues of M^½ and its eigenvectors; O(n³)."""
    values, Q = eigh(M, driver="evd", check_finite=False)
    return rounded_roots(values), Q


def rounded_roots(values: Array) -> Array:
    """Roots of eigenvalues minus what rounding may have added: a zero computed as 1e-16 would count as 1e-8."""
    return np.sqrt(np.maximum(values - len(values) * np.finfo(np.float64).eps * abs(float(values[-1])), 0.0))


def _diagonal(blocks: GramBlocks) -> Array:
    """The diagonal of V, of each block as often as it counts."""
    every = [np.arange(len(block.V)) if isinstance(block.cells, slice) else block.cells for block in blocks]
    found = np.zeros(1 + max(int(cells.max()) for cells in every))
    for block, cells in zip(blocks, every, strict=True):
        found[cells] += block.count * np.diag(block.V)
    return found


def _primal(blocks: GramBlocks, step: AscentStep, norms: Array) -> tuple[float, tuple[Array, ...]]:
    """(loss, A of each block) for A = M^¼ in its eigenvectors, with columns divided by the roots of `norms`.

    With norms = diag M^½ every column has norm 1; with the larger of that and Λ·tr M^½, columns that the optimum leaves
    shorter, if V is singular, stay shorter.
    """
    u, scale, loss, squares = np.sqrt(step.lam), np.sqrt(norms), 0.0, np.zeros(len(norms))
    found: list[Array] = []
    for block, halves, factor in zip(blocks, step.halves, step.factors, strict=True):
        at = block.cells
        A, P = factor * (u[at] / scale[at]), factor.T * (u[at] * scale[at])[:, None]  # P is A⁻¹ up to halves
        squares[at] += block.count * np.einsum("ij,ij->j", A, A)
        loss += block.count * float(np.sum(np.einsum("ij,ij->j", P, block.V @ P) / halves**2))
        found.append(A)
    longest = np.maximum(np.sqrt(squares), 1.0) * _ABOVE
    return loss, tuple([A / longest[block.cells] for A, block in zip(found, blocks, strict=True)])


@final
@dataclass(slots=True, eq=False)
class Extrapolation:
    """The last images, what is seen of them and of the points that they are of, and the next point as a combination.

    >>> from hdmm.matrix import Eye, Ones
    >>> found, given = Extrapolation(), [Ones(2, 2)]
    >>> for _ in range(3):  # every round comes halfway to the identity
    ...     given = found.after([summed([Eye(2), scaled(1 / trace(V) * 2, V)]) for V in given])
    >>> found.extrapolates, bool(np.allclose(to_dense(given[0]), np.eye(2) / 2))
    (True, True)
    """

    images: list[list[Matrix]] = field(default_factory=list[list[Matrix]])
    seen: list[Array] = field(default_factory=list[Array])
    points: list[Array] = field(default_factory=list[Array])
    shares: list[float] = field(default_factory=list[float])

    @property
    def extrapolates(self) -> bool:
        """Whether the next point is more than the last image."""
        return len(self.shares) > 1

    def after(self, image: Sequence[Matrix]) -> list[Matrix]:
        """The next point, after one that has this image; all matrices are taken at trace 1. O(n³) for each."""
        if self.shares:
            self.points.append(np.array(self.shares) @ np.stack(self.seen[-len(self.shares) :]))
        self.images.append([scaled(1 / trace(V), V) for V in image])
        self.seen.append(np.concatenate([_seen(V) for V in self.images[-1]]))
        self.images, self.seen, self.points = self.images[-_KEPT:], self.seen[-_KEPT:], self.points[-_KEPT:]
        self.shares = self._shares()
        found = self._point()
        if self.extrapolates and not all(map(_is_gram, found)):
            return self.taken_back()
        return found

    def taken_back(self) -> list[Matrix]:
        """The last image itself, in the place of a point that gained nothing; what came before is forgotten."""
        self.images, self.seen, self.points, self.shares = self.images[-1:], self.seen[-1:], [], [1.0]
        return self._point()

    def _shares(self) -> list[float]:
        """The shares of the last images in the next point, which sum to 1."""
        if len(self.points) < 2:  # the first image is of no point: where the rounds start
            return [1.0]
        residuals = np.stack(self.seen[-len(self.points) :]) - np.stack(self.points)
        c = np.linalg.lstsq(np.diff(residuals, axis=0).T, residuals[-1], rcond=_SINGULAR)[0]
        return np.diff([0.0, *c, 1.0]).tolist()

    def _point(self) -> list[Matrix]:
        last = self.images[-len(self.shares) :]
        return [
            summed(scaled(c, V) for c, V in zip(self.shares, each, strict=True)) for each in zip(*last, strict=True)
        ]


def _is_gram(V: Matrix) -> bool:
    """Whether a symmetric V is positive semidefinite, but for rounding."""
    G = to_dense(V).astype(np.float64)
    G.flat[:: len(G) + 1] += _ROUNDING * float(np.trace(G)) / len(G)
    try:
        np.linalg.cholesky(G)
    except np.linalg.LinAlgError:
        return False
    return True


def _seen(V: Matrix) -> Array:
    """The diagonal of V and its row sums."""
    return np.concatenate([diagonal(V), V.matmat(np.ones((V.shape[0], 1)))[:, 0]]).astype(np.float64)
