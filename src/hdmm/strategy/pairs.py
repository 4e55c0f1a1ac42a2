"""The two factors that blocks have on one attribute, in their common diagonal form, and the way back to what is free.

`deltas` is 2 × classes, what either factor measures of a class, and `table` is classes × grams, what a gram asks of it.

Beside Total there are two classes, whatever the other factor B: with H = (BᵀB)⁻¹, h = H1 and c = 1ᵀh, the direction h/c
that Total sees and the rest. B measures (1/c, 1) of them, Total (1, 0), and a gram V asks for (demand.py)

    g₀ = hᵀVh/c²,   g₁ = tr(HV) − hᵀVh/c

With φ₀ = ∂F/∂g₀ and φ₁ = ∂F/∂g₁ of every V of the attribute, in O(np²) for a p-Identity B:

    ∂F/∂H = Σ φ₁V + (m1ᵀ + 1mᵀ)/2 + κ11ᵀ
    m = Σ 2(φ₀/c² − φ₁/c)·Vh,   κ = ∂F/∂c + Σ (φ₁/c² − 2φ₀/c³)·hᵀVh

Any other two factors have as many classes as values, or two if the attribute is even and so folded (`Terms.folded`):
Q has the generalised eigenvectors of their grams, δ_f = diag(QᵀG_fQ), T_v = QᵀV_vQ, and ∂F/∂G_f = −QE_fQᵀ with E_f from
blocks_loss.py, in O(n³).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.linalg

from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    Matrix,
    Ones,
    Scaled,
    Sum,
    diagonal,
    gram_inverse,
    to_dense,
    trace_product,
)
from hdmm.privacy import Noise
from hdmm.strategy.family import Constant, EvenRow, Explicit, Roots
from hdmm.strategy.terms import is_total
from hdmm.strategy.theta import DenseTheta, Inverse, theta_of

_ZERO = 1e-10  # δ's of whitened grams below this are 0; they are good to 1e-13
_SUPPORT = 1e-11  # of tr(V)·‖q‖²: rounding in qᵀVq stays near 1e-15 of it

Families = tuple[Explicit, Explicit]
"""The first and the second factor of an attribute."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The distinct grams of one attribute with what every evaluation needs of them; `totals` has the α of V = α11ᵀ."""

    matrices: tuple[Matrix, ...]
    diagonals: tuple[Array, ...]
    totals: tuple[float | None, ...]

    @classmethod
    def of(cls, matrices: Sequence[Matrix]) -> Grams:
        diagonals = tuple(diagonal(V).astype(np.float64) for V in matrices)
        totals = (float(d.mean()) if is_total(V) else None for V, d in zip(matrices, diagonals, strict=True))
        return cls(tuple(matrices), diagonals, tuple(totals))


class FactorPair(ABC):
    """Two factors at some x, as a loss sees them."""

    __slots__ = ()

    deltas: Array
    table: Array

    @abstractmethod
    def pull(self, first: Array, second: Array) -> tuple[Array, Array]:
        """∂F/∂x of both factors, from what the loss says of this attribute."""


def pair_at(families: Families, xs: tuple[Array, Array], grams: Grams) -> FactorPair:
    """The form of two factors. Beside Total a p-Identity and a constant have two classes; others are written out."""
    for base in (0, 1):
        other, family = families[1 - base], families[base]
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
    theta = theta_of(A)
    return Constant(A) if theta is None else DenseTheta(theta)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BesideTotal(FactorPair):
    """A base and Total; `base` is the number of the base's factor, and U has BV of every gram if the base is free."""

    deltas: Array
    table: Array
    grams: Grams
    base: int
    c: float
    Vh: Array
    inverse: Inverse | None
    U: Sequence[Array]

    @classmethod
    def of(cls, family: DenseTheta | Constant, x: Array, grams: Grams, base: int) -> BesideTotal:
        """One product with each gram, O(np²)."""
        if isinstance(family, DenseTheta):
            inverse, H = family.inverse(x), None
            h = inverse.row_sums
            rows = np.concatenate([inverse.B, h[None, :]])[:, :, None]
        else:
            inverse, H = None, gram_inverse(family.A)
            h = H.matmat(np.ones((H.shape[0], 1)))[:, 0]
            rows = h[None, :, None]
        c, k = float(h.sum()), len(grams.matrices)
        table, Vh, U = np.empty((2, k)), np.empty((k, len(h))), list[Array]()
        for v, (V, d, share) in enumerate(zip(grams.matrices, grams.diagonals, grams.totals, strict=True)):
            if share is not None:  # exact, whatever the base
                table[:, v], Vh[v] = (share, 0.0), share * c
                U.append(np.empty((0, 0)))
                continue
            product = V.along(rows)[:, :, 0]
            U.append(product[:-1])
            Vh[v] = product[-1]
            across = float(h @ Vh[v])
            if inverse is not None:
                whole = inverse.trace(inverse.crossed(U[v]), d)
            else:
                whole = trace_product(H, V) if H is not None else 0.0
            table[:, v] = max(across, 0.0) / c**2, max(whole - across / c, 0.0)
        deltas = np.array([[1 / c, 1.0], [1.0, 0.0]])
        return cls(deltas if base == 0 else deltas[::-1], table, grams, base, c, Vh, inverse, U)

    def pull(self, first: Array, second: Array) -> tuple[Array, Array]:
        """From ∂F/∂table and ∂F/∂deltas. O(np²)."""
        none = np.empty(0)
        if self.inverse is None:
            return none, none
        weights, row = self._parts(first, second)
        B = self.inverse.B
        U = np.multiply.outer(B.sum(axis=1), row)
        U += (B @ row)[:, None]
        diag = 2 * row
        for f, d, BV in zip(weights, self.grams.diagonals, self.U, strict=True):
            if f:
                U += f * BV
                diag = diag + f * d
        found = self.inverse.gradient(U, self.inverse.crossed(U), diag)
        return (found, none) if self.base == 0 else (none, found)

    def surrogate(self, first: Array, second: Array) -> Matrix:
        """∂F/∂H of the base: the gram matrix that it should suit."""
        weights, row = self._parts(first, second)
        n = len(row)
        terms: list[Matrix] = [Chain(Dense(row[:, None]), Ones(1, n)), Chain(Ones(n, 1), Dense(row[None, :]))]
        return Sum((*terms, *(Scaled(f, V) for f, V in zip(weights, self.grams.matrices, strict=True) if f)))

    def _parts(self, by_table: Array, by_deltas: Array) -> tuple[list[float], Array]:
        """(φ₁ of the grams, m/2 + κ1/2): ∂F/∂H = Σ φ₁V + row·1ᵀ + 1·rowᵀ."""
        c = self.c
        seen = [share is None for share in self.grams.totals]  # no base changes what Total asks for
        phi0, phi1 = np.where(seen, by_table, 0.0)
        by_c = -float(by_deltas[self.base, 0]) / c**2
        kappa = by_c + float((phi1 - 2 * phi0 / c) @ self.table[0])  # hᵀVh = g₀c²
        return phi1.tolist(), (phi0 / c**2 - phi1 / c) @ self.Vh + kappa / 2


@final
@dataclass(frozen=True, slots=True, eq=False)
class Diagonalised(FactorPair):
    """Any two factors whose grams together are invertible, by Q; `weighted` has T_v = QᵀV_vQ."""

    deltas: Array
    table: Array
    families: Families
    xs: tuple[Array, Array]
    Q: Array
    weighted: Sequence[Array]

    @classmethod
    def of(cls, families: Families, xs: tuple[Array, Array], grams: Grams) -> Diagonalised:
        """O(n³), and n products with each gram."""
        G, H = (family.gram(x) for family, x in zip(families, xs, strict=True))
        Q, deltas = _diagonalised(G, H)
        weighted = [Q.T @ V.matmat(Q) for V in grams.matrices]
        norms = np.einsum("ij,ij->j", Q, Q)
        table = np.stack([np.diag(T) for T in weighted], axis=1)
        noise = _SUPPORT * np.multiply.outer(norms, [d.sum() for d in grams.diagonals])
        return cls(deltas, np.where(table > noise, table, 0.0), families, xs, Q, weighted)

    def pull(self, first: Array, second: Array) -> tuple[Array, Array]:
        """From E of the first and of the second factor. O(n³)."""
        by_first, by_second = (
            family.pull(x, -(self.Q @ E @ self.Q.T))
            for family, x, E in zip(self.families, self.xs, (first, second), strict=True)
        )
        return by_first, by_second


def _diagonalised(G: Array, H: Array) -> tuple[Array, Array]:
    """(Q, [δ; ε]) with QᵀGQ = diag(δ) and QᵀHQ = diag(ε), G + H invertible. O(n³)."""
    g, h = float(np.trace(G)), float(np.trace(H))
    L = scipy.linalg.cholesky(G / g + H / h, lower=True)
    white = scipy.linalg.solve_triangular(L, np.eye(len(G)), lower=True)
    values, U = scipy.linalg.eigh(white @ (G / g) @ white.T, driver="evd")
    values = np.where(values < _ZERO, 0.0, np.where(values > 1 - _ZERO, 1.0, values))
    return white.T @ U, np.stack([g * values, h * (1 - values)])


def _even_weight(A: Matrix) -> float:
    """t of the [I; t·1ᵀ] whose gram has the same ratio of mean eigenvalues on 1 and on the rest as A's."""
    n = A.shape[1]
    ones = A.matmat(np.ones((n, 1)))
    on_one = float(np.sum(ones**2)) / n
    rest = (float(np.sum(to_dense(A).astype(np.float64) ** 2)) - on_one) / max(n - 1, 1)
    return float(np.sqrt(max(on_one / rest - 1, 0.0) / n))
