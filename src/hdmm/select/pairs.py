"""Two factors per attribute: their common diagonal form, the loss of products over them, and its gradient.

Block g has weight θ_g and, on attribute i, the first or the second factor of a pair, c_gi, so that any number of blocks
has a common diagonal form. `deltas` (2 × classes) is what each factor measures of a class, and `table` (classes ×
grams) what a gram asks of it. A cell is one class per attribute; with δ and t of the classes,

    λ = Σ_g θ_g² ⊗_i δ_{c_gi,i},   t = Σ_k c_k ⊗_i t_ki,   F = tr(X⁻V) = Σ_cells t/λ

Let L = 1/λ have the classes of attribute i as rows and the cells c of the other attributes as columns, and let
o_v = Σ_{k: V_ki is the v-th} c_k ⊗_{j≠i} t_kj and m_f = Σ_{g: c_gi = f} θ_g² ⊗_{j≠i} δ_{c_gj,j} be vectors over c:

    ∂F/∂t_iv = L o_v,   ∂F/∂δ_fi = −Σ_c (t∘L²) m_f,   E_fi = Σ_v T_v ∘ (L diag(o_v∘m_f) Lᵀ)

If one factor is Total, there are two classes for every other factor B: with H = (BᵀB)⁻¹, h = H1 and c = 1ᵀh, these are
the direction h/c that Total measures, and its complement. B measures (1/c, 1) of them and Total measures (1, 0); a gram
V asks for (demand.py)

    g₀ = hᵀVh/c²,   g₁ = tr(HV) − hᵀVh/c

With φ₀ = ∂F/∂g₀ and φ₁ = ∂F/∂g₁ for every V of the attribute, in O(np²) for a p-Identity B:

    ∂F/∂H = Σ φ₁V + (m1ᵀ + 1mᵀ)/2 + κ11ᵀ
    m = Σ 2(φ₀/c² − φ₁/c)·Vh,   κ = ∂F/∂c + Σ (φ₁/c² − 2φ₀/c³)·hᵀVh

Any other two factors have as many classes as values, or two if the attribute is even and therefore folded
(`Terms.folded`). Q holds the generalised eigenvectors of their grams, δ_f = diag(QᵀG_fQ), T_v = QᵀV_vQ, and
∂F/∂G_f = −QE_fQᵀ, in O(n³).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
import scipy.linalg

from hdmm.base.tolerances import SUPPORT
from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    Eye,
    Matrix,
    Ones,
    Sum,
    column_norms,
    diagonal,
    gram_inverse,
    to_dense,
    total,
    trace,
    trace_product,
)
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Asked, Parted, asked_at, is_contrasts
from hdmm.select.family import Constant, Divided, EvenRow, Explicit, Roots
from hdmm.select.marginal_weights import polish, slopes
from hdmm.select.search import Search
from hdmm.select.terms import Terms, is_total, mixed
from hdmm.select.theta import DenseTheta, InverseGram, theta_of
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.subsets import Listed

_ZERO = 1e-10  # δ's of whitened grams below this are 0; they are accurate to 1e-13
_NONE = (np.empty(0), np.empty(0))

BaseFamily = DenseTheta | Constant
"""A base that stands beside Total."""
Families = tuple[Explicit, Explicit]
"""The first and the second factor of an attribute."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The distinct grams of one attribute; `totals` holds the α of those that are α11ᵀ, `active` lists the others."""

    matrices: tuple[Matrix, ...]
    diagonals: tuple[Array, ...]
    totals: Array
    active: list[int]

    @classmethod
    def of(cls, matrices: Sequence[Matrix]) -> Grams:
        diagonals = tuple(diagonal(V).astype(np.float64) for V in matrices)
        active = [v for v, V in enumerate(matrices) if not is_total(V)]
        totals = np.array([d.mean() if v not in active else 0.0 for v, d in enumerate(diagonals)])
        return cls(tuple(matrices), diagonals, totals, active)


def pair_at(families: Families, xs: tuple[Array, Array], grams: Grams) -> FactorPair:
    """The form of two factors: two classes if one is Total and the other a p-Identity or a constant, else dense."""
    for base, family in enumerate(families):
        other = families[1 - base]
        total = isinstance(other, Constant) and isinstance(other.A, Ones) and not other.folded
        if total and isinstance(family, DenseTheta | Constant):
            return BesideTotal.of(family, xs[base], grams, base)
    return Diagonalised.of(families, xs, grams)


def family_of(A: Matrix, noise: Noise, *, even: bool = False) -> Explicit:
    """The family whose start is A; `even` if the attribute has only identities and totals. O(n²).

    >>> from hdmm.matrix import Eye
    >>> family_of(Eye(3), Noise.LAPLACE).start.shape
    (1, 3)
    """
    n = A.shape[1]
    if isinstance(A, Ones):
        return Constant(A, even)
    if even:
        return EvenRow(n, noise, np.array([_even_weight(A)]))
    if noise is Noise.GAUSSIAN:
        return Roots(to_dense(A).astype(np.float64))
    theta = np.zeros((1, n)) if isinstance(A, Eye) else theta_of(A)
    return Constant(A) if theta is None else DenseTheta(theta)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BesideTotal:
    """A base and Total; `base` is the number of the base's factor, `seen` the grams as a p-Identity base sees them."""

    deltas: Array
    table: Array
    grams: Grams
    base: int
    c: float
    Vh: Array
    seen: InverseGram | None

    @classmethod
    def of(cls, family: BaseFamily, x: Array, grams: Grams, base: int = 0) -> BesideTotal:
        """The pair at x, by one product with each gram; O(np²) for a p-Identity."""
        matrices = [grams.matrices[v] for v in grams.active]
        if isinstance(family, DenseTheta):
            seen = family.inverse_gram(x, matrices, [grams.diagonals[v] for v in grams.active])
            h, taus = seen.row_sums, seen.taus
        else:
            if is_contrasts(family.A):
                return cls._of_contrasts(family.A, grams, base)
            seen, H = None, gram_inverse(family.A)
            h = H.matmat(np.ones((H.shape[0], 1)))[:, 0]
            taus = [trace_product(H, V) for V in matrices]
        c = float(h.sum())
        # A gram α11ᵀ asks for exactly (α, 0) with every base.
        table, Vh = np.stack([grams.totals, 0 * grams.totals]), np.outer(grams.totals, np.full(len(h), c))
        for v, V, tau in zip(grams.active, matrices, taus, strict=True):
            Vh[v] = V.matmat(h[:, None])[:, 0]
            across = max(float(h @ Vh[v]), 0.0)
            table[:, v] = across / c**2, max(tau - across / c, 0.0)
        deltas = np.array([[1 / c, 1.0], [1.0, 0.0]])
        return cls(deltas if base == 0 else deltas[::-1], table, grams, base, c, Vh, seen)

    @classmethod
    def _of_contrasts(cls, A: Matrix, grams: Grams, base: int) -> BesideTotal:
        """A base that says nothing about the total: the limit of c → ∞, in which nothing is left to optimise."""
        n = A.shape[1]
        rest = [
            (trace(V) - total(V) / n) * (n - 1) / n if v in grams.active else 0.0 for v, V in enumerate(grams.matrices)
        ]
        table = np.array([[total(V) / n**2 for V in grams.matrices], np.maximum(rest, 0.0)])
        deltas = np.array([[0.0, 1.0], [1.0, 0.0]])
        none = np.zeros((len(grams.matrices), n))
        return cls(deltas if base == 0 else deltas[::-1], table, grams, base, math.inf, none, None)

    def pull(self, by_table: Array, by_deltas: Array) -> tuple[Array, Array]:
        """∂F/∂x for both factors, from ∂F/∂table and ∂F/∂deltas. O(np²)."""
        none = np.empty(0)
        found = none if self.seen is None else self.seen.gradient(*self._parts(by_table, by_deltas))
        return (found, none) if self.base == 0 else (none, found)

    def surrogate(self, by_table: Array, by_deltas: Array) -> Matrix:
        """∂F/∂H of the base: the gram matrix for which it should be optimised."""
        weights, row = self._parts(by_table, by_deltas)
        n = len(row)
        terms: list[Matrix] = [Chain(Dense(row[:, None]), Ones(1, n)), Chain(Ones(n, 1), Dense(row[None, :]))]
        if weights:
            terms.append(mixed(weights, [self.grams.matrices[v] for v in self.grams.active]))
        return Sum(tuple(terms))

    def _parts(self, by_table: Array, by_deltas: Array) -> tuple[list[float], Array]:
        """(φ₁, row = m/2 + κ1/2) for the grams that ask for more than the total: ∂F/∂H = Σ φ₁V + row·1ᵀ + 1·rowᵀ."""
        c, active = self.c, self.grams.active
        phi0, phi1 = by_table[:, active]
        by_c = -float(by_deltas[self.base, 0]) / c**2
        kappa = by_c + float((phi1 - 2 * phi0 / c) @ self.table[0, active])  # hᵀVh = g₀c²
        return phi1.tolist(), (phi0 / c**2 - phi1 / c) @ self.Vh[active] + kappa / 2


@final
@dataclass(frozen=True, slots=True, eq=False)
class Diagonalised:
    """Any two factors, the sum of whose grams is invertible, diagonalised by Q; `weighted` holds T_v = QᵀV_vQ."""

    deltas: Array
    table: Array
    families: Families
    xs: tuple[Array, Array]
    Q: Array
    weighted: Sequence[Array]

    @classmethod
    def of(cls, families: Families, xs: tuple[Array, Array], grams: Grams) -> Diagonalised:
        """The pair at xs, in O(n³) and n products with each gram."""
        G, H = (family.gram(x) for family, x in zip(families, xs, strict=True))
        Q, deltas = _diagonalised(G, H)
        weighted = [Q.T @ V.matmat(Q) for V in grams.matrices]
        norms = np.einsum("ij,ij->j", Q, Q)
        table = np.stack([np.diag(T) for T in weighted], axis=1)
        noise = SUPPORT * np.multiply.outer(norms, [d.sum() for d in grams.diagonals])
        return cls(deltas, np.where(table > noise, table, 0.0), families, xs, Q, weighted)

    def pull(self, E0: Array, E1: Array) -> tuple[Array, Array]:
        """∂F/∂x for both factors, from their E. O(n³)."""
        first, second = (
            f.pull(x, -(self.Q @ E @ self.Q.T)) if isinstance(f, Divided) else np.empty(0)
            for f, x, E in zip(self.families, self.xs, (E0, E1), strict=True)
        )
        return first, second


FactorPair = BesideTotal | Diagonalised
"""Two factors at some x, in the form that a loss uses."""


def _diagonalised(G: Array, H: Array) -> tuple[Array, Array]:
    """(Q, [δ; ε]) with QᵀGQ = diag(δ) and QᵀHQ = diag(ε), if G + H is invertible. O(n³)."""
    g, h = float(np.trace(G)), float(np.trace(H))
    L = scipy.linalg.cholesky(G / g + H / h, lower=True)
    white = scipy.linalg.solve_triangular(L, np.eye(len(G)), lower=True)
    values, U = scipy.linalg.eigh(white @ (G / g) @ white.T, driver="evd")
    values = np.where(values < _ZERO, 0.0, np.where(values > 1 - _ZERO, 1.0, values))
    return white.T @ U, np.stack([g * values, h * (1 - values)])


def _even_weight(A: Matrix) -> float:
    """The t for which the gram of [I; t·1ᵀ] has A's ratio of mean eigenvalues on 1 and on its complement."""
    n = A.shape[1]
    ones = A.matmat(np.ones((n, 1)))
    on_one = float(np.sum(ones**2)) / n
    rest = (float(column_norms(A, 2).sum()) - on_one) / max(n - 1, 1)
    return float(np.sqrt(max(on_one / rest - 1, 0.0) / n))


@final
@dataclass(frozen=True, slots=True, eq=False)
class PairsLoss:
    """F for the terms; `blocks` (blocks × attributes) holds the number, 0 or 1, of each block's factors.

    The memory is N cells per block; the time is O(Σ n_i·N) per distinct gram of an attribute with n_i classes.
    """

    terms: Terms
    families: tuple[Families, ...]
    blocks: Array
    grams: tuple[Grams, ...]
    fixed: Mapping[int, FactorPair]

    @classmethod
    def of(cls, terms: Terms, families: Sequence[Families], blocks: Array) -> PairsLoss:
        """The loss for the terms; pairs without free numbers are formed once."""
        grams = tuple(Grams.of(each) for each in terms.grams)
        still = [i for i, pair in enumerate(families) if all(family.start is None for family in pair)]
        return cls(terms, tuple(families), blocks, grams, {i: pair_at(families[i], _NONE, grams[i]) for i in still})

    @property
    def free(self) -> list[tuple[int, int]]:
        """(attribute, number of the factor) of every array of free numbers."""
        return [(i, f) for i, pair in enumerate(self.families) for f in (0, 1) if pair[f].start is not None]

    @property
    def starts(self) -> list[Array]:
        """The starts of the families, in the order of `free`."""
        return [x for pair in self.families for family in pair if (x := family.start) is not None]

    def at(self, xs: Sequence[Array]) -> PairsForm:
        """The diagonal form at some xs, in the order of `free`."""
        placed = enumerate(self._placed(xs))
        pairs = [self.fixed.get(i) or pair_at(self.families[i], both, self.grams[i]) for i, both in placed]
        terms, tables, parts = self.terms, tuple(pair.table for pair in pairs), self.terms.parts
        t: Asked
        if parts is None:
            t = Mixture(terms.coefficients, terms.choices, tables).values()
        else:
            chosen = (parts.of == k for k in range(parts.count))
            each = [Mixture(terms.coefficients[which], terms.choices[which], tables).values() for which in chosen]
            t = Parted(np.stack(each), parts.power)
        rows = [_outer([pairs[i].deltas[f] for i, f in enumerate(row)]) for row in self.blocks.tolist()]
        return PairsForm(self, pairs, t, Listed(np.stack(rows).T))

    def matrices(self, xs: Sequence[Array]) -> list[list[Matrix]]:
        """The first and the second factors at some xs."""
        placed = list(zip(self.families, self._placed(xs), strict=True))
        return [[pair[f].matrix(both[f]) for pair, both in placed] for f in (0, 1)]

    def _placed(self, xs: Sequence[Array]) -> list[tuple[Array, Array]]:
        held = dict(zip(self.free, xs, strict=True))
        return [(held.get((i, 0), _NONE[0]), held.get((i, 1), _NONE[1])) for i in range(len(self.families))]


@final
@dataclass(frozen=True, slots=True, eq=False)
class PairsForm:
    """The blocks at fixed factors, from which the error at any θ follows; the first attribute of cells is slowest."""

    loss: PairsLoss
    pairs: Sequence[FactorPair]
    t: Asked
    sums: Listed

    def error(self, theta: Sequence[float]) -> float:
        """Σ t/λ; infinite if a cell that is asked for is not measured."""
        return float(slopes(self.sums, self.t, np.square(theta))[0])

    def split(
        self, noise: Noise, start: Sequence[float], search: Search | None = None, *, relative: bool = True
    ) -> tuple[tuple[float, ...], float]:
        """(θ, error) with θ of norm 1 at a local minimum, found by `polish` from `start`; infinite as in `error`."""
        given = np.asarray(start, dtype=np.float64)
        if not math.isfinite(self.error(start)):
            return tuple((given / noise.norm(given)).tolist()), math.inf
        theta = polish(self.sums, self.t, given, search, noise=noise, relative=relative, tolerance=1e-10)
        return tuple(theta.tolist()), self.error(theta.tolist())

    def gradient(self, theta: Array) -> tuple[float, Array, list[Array]]:
        """(F, g, ∂F/∂x in the order of `free`); ∂F/∂θ = −2θg. If F is infinite, as in `error`, the others are 0."""
        u = np.square(theta)
        F, g, _ = slopes(self.sums, self.t, u)
        if not math.isfinite(float(F)):
            return math.inf, np.zeros(len(u)), [np.zeros_like(x) for x in self.loss.starts]
        lam = self.sums.up(u)
        t, coefficients, parts = asked_at(self.t, lam), self.loss.terms.coefficients, self.loss.terms.parts
        if isinstance(self.t, Parted) and parts is not None:  # at the weights of the parts, errors are summed
            coefficients = coefficients * self.t.weights(lam)[parts.of]
        inverse = np.where((t > 0) & (lam > 0), 1 / np.where(lam > 0, lam, 1.0), 0.0)
        pulled = [
            () if i in self.loss.fixed else self._pulled(i, inverse, t, coefficients, u) for i in range(len(self.pairs))
        ]
        return float(F), g, [pulled[i][f] for i, f in self.loss.free]

    def _pulled(self, i: int, inverse: Array, t: Array, coefficients: Array, u: Array) -> tuple[Array, Array]:
        """∂F/∂x of both factors of an attribute, given 1/λ and t over the cells."""
        pair, sizes = self.pairs[i], [pair.deltas.shape[1] for pair in self.pairs]
        L, asked = (
            np.ascontiguousarray(np.moveaxis(each.reshape(sizes), i, 0).reshape(sizes[i], -1)) for each in (inverse, t)
        )
        measured = [self._measured(i, f, u) for f in (0, 1)]
        others = [self._others(i, v, coefficients) for v in range(pair.table.shape[1])]
        if not isinstance(pair, Diagonalised):
            by_deltas = -np.stack([(asked * L * L) @ m for m in measured])
            return pair.pull(np.stack([L @ o for o in others], axis=1), by_deltas)
        E = np.zeros((2, sizes[i], sizes[i]))
        for T, o in zip(pair.weighted, others, strict=True):
            for f in (0, 1):
                if pair.families[f].start is not None:
                    w = o * measured[f]
                    used = w > 0
                    E[f] += T * ((L[:, used] * w[used]) @ L[:, used].T)
        return pair.pull(E[0], E[1])

    def _measured(self, i: int, f: int, u: Array) -> Array:
        """m_f of attribute i: Σ θ_g² ⊗_{j≠i} δ_gj over the blocks whose i-th factor is the f-th."""
        out = np.zeros(math.prod(pair.deltas.shape[1] for j, pair in enumerate(self.pairs) if j != i))
        for square, row in zip(u.tolist(), self.loss.blocks.tolist(), strict=True):
            if row[i] == f:
                out += square * _outer([self.pairs[j].deltas[c] for j, c in enumerate(row) if j != i])
        return out

    def _others(self, i: int, v: int, coefficients: Array) -> Array:
        """o_v of attribute i: Σ c_k ⊗_{j≠i} t_kj over the products whose i-th gram is the v-th."""
        choices = self.loss.terms.choices
        chosen = choices[:, i] == v
        if len(self.pairs) == 1:
            return np.array([coefficients[chosen].sum()])
        tables = tuple(pair.table for j, pair in enumerate(self.pairs) if j != i)
        return Mixture(coefficients[chosen], np.delete(choices[chosen], i, axis=1), tables).values()


def _outer(vectors: Sequence[Array]) -> Array:
    """⊗ of vectors; the first varies slowest."""
    return reduce(lambda x, y: np.multiply.outer(x, y).ravel(), vectors, np.ones(1))
