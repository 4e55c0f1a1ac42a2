"""The loss of products over two factors per attribute, as a function of their weights and factors.

Block g has weight θ_g and, on attribute i, the first or the second factor of a pair, c_gi, so that any number of blocks
has a common diagonal form (pairs.py). A cell is one class per attribute; with δ and t of the classes,

    λ = Σ_g θ_g² ⊗_i δ_{c_gi,i},   t = Σ_k c_k ⊗_i t_ki,   F = tr(X⁻V) = Σ_cells t/λ

Let L = 1/λ have the classes of attribute i as rows and the cells c of the other attributes as columns, and let
o_v = Σ_{k: V_ki is the v-th} c_k ⊗_{j≠i} t_kj and m_f = Σ_{g: c_gi = f} θ_g² ⊗_{j≠i} δ_{c_gj,j} be vectors over c:

    ∂F/∂t_iv = L o_v,   ∂F/∂δ_fi = −Σ_c (t∘L²) m_f,   E_fi = Σ_v T_v ∘ (L diag(o_v∘m_f) Lᵀ)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np

from hdmm.matrix import Array, Matrix
from hdmm.privacy.guarantee import Noise
from hdmm.select.marginal_weights import polish, slopes
from hdmm.select.pairs import Diagonalised, FactorPair, Families, Grams, pair_at
from hdmm.select.parts import Asked, Parted, asked_at
from hdmm.select.search import Search
from hdmm.select.terms import Terms
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.subsets import Listed

_NONE = (np.empty(0), np.empty(0))


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
