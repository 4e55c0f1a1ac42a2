"""The axis of an attribute of which groups are known exactly: one class more per known level.

For a factor A of full column rank with H = (AᵀA)⁻¹ and a level with the rows G of its groups, let GHGᵀ = LLᵀ. Then
M = L⁻¹G says the same as G, and A, Total and M diagonalise together, because in coordinates in which AᵀA is the
identity, MᵀM is a projection that holds Total's direction. With F = MH, what M sees of the variance is FᵀF, and the
rest is H − FᵀF. Of levels one within the other, the projection of the finer one holds that of the coarser one, whose
F is CF with C = L₁⁻¹TL, if T sums up the finer groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from hdmm.matrix import Array, Chain, Dense, Diag, Eye, Gram, Matrix, Ones, Residual, Scaled, Sparse, Stack, Sum
from hdmm.matrix.checks import frozen
from hdmm.strategy.axis import Axis, ClosedAxis, inverse_gram

_MOST = 1 << 25  # values times groups, if they are written out: 256 MiB


@final
@dataclass(frozen=True, eq=False)
class _Level:
    """M and F of a level, and L with GHGᵀ = LLᵀ; sparse if H is diagonal."""

    rows: Matrix
    seen: Matrix
    L: Array | sp.csr_array

    @classmethod
    def of(cls, codes: Array, H: Matrix) -> _Level | None:
        groups, n = int(codes.max()) + 1, len(codes)
        G = sp.csr_array((np.ones(n), (codes, np.arange(n))), shape=(groups, n))
        if isinstance(H, Eye | Diag):
            d = np.ones(n) if isinstance(H, Eye) else H.d
            root = np.sqrt(np.bincount(codes, d))
            M = sp.csr_array(sp.diags_array(1 / root) @ G)
            return cls(Sparse(M), Sparse(sp.csr_array(M @ sp.diags_array(d))), sp.csr_array(sp.diags_array(root)))
        if n * groups > _MOST:
            return None
        GH = H.matmat(G.toarray().T).T
        X = GH @ G.T
        try:
            L = np.linalg.cholesky((X + X.T) / 2)
        except np.linalg.LinAlgError:
            return None
        each = (scipy.linalg.solve_triangular(L, R, lower=True) for R in (G.toarray(), GH))
        M, F = (Dense(frozen(R)) for R in each)
        return cls(M, F, L)


@final
@dataclass(frozen=True, eq=False)
class Leveled:
    """The factors of an attribute: the one that is measured besides Total, and those that tell known levels."""

    base: Matrix
    inverse: Matrix  # H
    levels: tuple[_Level, ...]  # coarsest first
    within: tuple[Matrix, ...]  # C of each level but the finest

    @classmethod
    def of(cls, base: Matrix, levels: Sequence[Array]) -> Leveled | None:
        """The factors of levels, each the group of every value; None if there is no such form.

        Levels must lie one within the other, coarsest first; the base must tell all values apart, or all but the total.
        """
        n = base.shape[1]
        H = Diag(np.full(n, 1 / n**2)) if isinstance(base, Residual) else inverse_gram(base)
        found = [] if H is None else [_Level.of(codes, H) for codes in levels]
        made = [each for each in found if each is not None]
        if H is None or len(made) < len(levels):
            return None
        inner: list[Matrix] = []
        for (coarse, fine), (first, second) in zip(pairwise(levels), pairwise(made), strict=True):
            above = coarse[np.unique(fine, return_index=True)[1]]
            if not np.array_equal(above[fine], coarse):
                return None
            T = sp.csr_array((np.ones(len(above)), (above, np.arange(len(above)))))
            if isinstance(second.L, np.ndarray):
                inner.append(Dense(frozen(scipy.linalg.solve_triangular(first.L, T @ second.L, lower=True))))
            else:
                root = np.asarray(first.L.diagonal(), np.float64)
                inner.append(Sparse(sp.csr_array(sp.diags_array(1 / root) @ T @ second.L)))
        return cls(base, H, tuple(made), tuple(inner))

    @property
    def rows(self) -> tuple[Matrix, ...]:
        """A factor that tells the groups of each level."""
        return tuple(level.rows for level in self.levels)

    @cached_property
    def cells(self) -> Matrix:
        """A factor that tells all values, as the base does if it is no residual one."""
        n = self.base.shape[1]
        return Scaled(n, Eye(n)) if isinstance(self.base, Residual) else self.base

    def axis(self, factors: tuple[Matrix, ...]) -> Axis | None:
        """The axis of Total, the base and the rows of levels, as far as they are among the factors."""
        n = self.base.shape[1]
        total = any(Ones(1, n) == A for A in factors)
        if isinstance(self.base, Residual) and not total:
            return None
        h = self.inverse.matmat(np.ones((n, 1)))[:, 0]
        c = float(h.sum())
        seen, within = [level.seen for level in self.levels], list(self.within)
        first = seen[0]
        if total:
            seen.insert(0, Dense(frozen(h[None, :] / np.sqrt(c))))
            within.insert(0, Dense(frozen(np.atleast_2d(self.levels[0].L.sum(axis=0)) / np.sqrt(c))))
            first = Dense(frozen(h[None, :] / c))  # Total sees it with δ = 1
        analysis: list[Matrix] = [first]
        forms: list[Matrix] = [Gram(first)]
        synthesis: list[Matrix] = [first, *seen[1:], Eye(n)]
        for C, (B, F) in zip(within, pairwise(seen), strict=True):
            analysis.append(Sum((F, Scaled(-1.0, Chain(C.T, B)))))
            forms.append(Sum((Gram(F), Scaled(-1.0, Gram(B)))))
        rest = Sum((self.inverse, Scaled(-1.0, Gram(seen[-1]))))
        return ClosedAxis(
            factors,
            np.stack([self._seen(A, c, total=total) for A in factors], axis=1),
            np.array([R.shape[0] for R in synthesis]),
            Stack((*analysis, rest)),
            Stack(tuple(synthesis)).T,
            (*forms, rest),
        )

    def _seen(self, A: Matrix, c: float, *, total: bool) -> Array:
        """δ of a factor on Total's class, if that is one, on what each level adds, and on the rest."""
        seen = np.zeros(len(self.levels) + 2)
        if Ones(1, A.shape[1]) == A:
            seen[0] = 1.0
            return seen
        level = next((k for k, M in enumerate(self.rows) if M is A), len(self.levels))
        seen[: level + 2] = 1.0
        seen[0] = 0.0 if isinstance(A, Residual) else 1 / c
        return seen if total else seen[1:]
