"""The exact error of stacked blocks over two factors per attribute, as a function of weights and factors.

Block g has weight θ_g and, on attribute i, the first or the second factor of a pair, c_gi, so that any number of blocks
has a common diagonal form (pairs.py). A cell is one class per attribute; with δ and t of the classes,

    λ = Σ_g θ_g² ⊗_i δ_{c_gi,i},   t = Σ_k c_k ⊗_i t_ki,   F = tr(X⁻V) = Σ_cells t/λ

Two products are two blocks, one of first and one of second factors; marginals over bases are blocks whose second factor
is Total. Cells lie on a grid, or are listed by the attributes that are not in Total's class.

On the grid, let L = 1/λ have the classes of attribute i as rows and the cells c of the other attributes as columns, and
let o_v = Σ_{k: V_ki is the v-th} c_k ⊗_{j≠i} t_kj and m_f = Σ_{g: c_gi = f} θ_g² ⊗_{j≠i} δ_{c_gj,j} be vectors over c:

    ∂F/∂t_iv = L o_v,   ∂F/∂δ_fi = −Σ_c (t∘L²) m_f,   E_fi = Σ_v T_v ∘ (L diag(o_v∘m_f) Lᵀ)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import final

import numpy as np

from hdmm.matrix import Array, Matrix
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import Explicit
from hdmm.select.marginal_weights import polish, slopes
from hdmm.select.pairs import BesideTotal, Diagonalised, FactorPair, Families, Grams, pair_at
from hdmm.select.parts import Asked, Parted, Parts, asked_at
from hdmm.select.terms import Terms
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.subsets import Incidences, Listed, SubsetSums

_NONE = (np.empty(0), np.empty(0))

Slopes = list[tuple[Array, Array]]
"""The arguments of `pull` for each attribute's pair."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class BlocksLoss:
    """F of blocks for the terms Σ_k c_k ⊗V_ki of `cells`, as a function of θ and of the free numbers of the factors."""

    families: tuple[Families, ...]
    grams: tuple[Grams, ...]
    cells: GridCells | ListedCells
    fixed: Mapping[int, FactorPair]

    @classmethod
    def of(cls, terms: Terms, families: Sequence[Families], cells: GridCells | ListedCells) -> BlocksLoss:
        """The loss for the terms; pairs without free numbers are formed once."""
        grams = tuple(Grams.of(each) for each in terms.grams)
        fixed = {i: pair_at(pair, _NONE, grams[i]) for i, pair in enumerate(families) if not any(map(_is_free, pair))}
        return cls(tuple(families), grams, cells, fixed)

    @property
    def free(self) -> list[tuple[int, int]]:
        """(attribute, number of the factor) of every array of free numbers."""
        return [(i, f) for i, pair in enumerate(self.families) for f in (0, 1) if _is_free(pair[f])]

    @property
    def starts(self) -> list[Array]:
        """The starts of the families, in the order of `free`."""
        return [x for pair in self.families for family in pair if (x := family.start) is not None]

    def at(self, xs: Sequence[Array]) -> BlocksForm:
        """The diagonal form at some xs, in the order of `free`."""
        pairs = [
            self.fixed[i] if i in self.fixed else pair_at(self.families[i], both, self.grams[i])
            for i, both in enumerate(self._placed(xs))
        ]
        return BlocksForm(self, pairs, self.cells.asked(pairs), self.cells.sums(pairs))

    def matrices(self, xs: Sequence[Array]) -> list[list[Matrix]]:
        """The first and the second factors at some xs."""
        placed = list(zip(self.families, self._placed(xs), strict=True))
        return [[pair[f].matrix(both[f]) for pair, both in placed] for f in (0, 1)]

    def _placed(self, xs: Sequence[Array]) -> list[tuple[Array, Array]]:
        held = dict(zip(self.free, xs, strict=True))
        return [(held.get((i, 0), _NONE[0]), held.get((i, 1), _NONE[1])) for i in range(len(self.families))]


@final
@dataclass(frozen=True, slots=True, eq=False)
class BlocksForm:
    """The blocks at fixed factors, from which the error at any θ follows."""

    loss: BlocksLoss
    pairs: Sequence[FactorPair]
    t: Asked
    sums: SubsetSums

    def error(self, theta: Sequence[float]) -> float:
        """Σ t/λ; infinite if a cell that is asked for is not measured."""
        return float(slopes(self.sums, self.t, np.square(theta))[0])

    def split(self, noise: Noise, start: Sequence[float], *, relative: bool = True) -> tuple[tuple[float, ...], float]:
        """(θ, error) with θ of norm 1 at a local minimum, found by `polish` from `start`; infinite as in `error`."""
        given = np.asarray(start, dtype=np.float64)
        if not math.isfinite(self.error(start)):
            return tuple((given / noise.norm(given)).tolist()), math.inf
        theta = polish(self.sums, self.t, given, noise=noise, relative=relative, tolerance=1e-10)
        return tuple(theta.tolist()), self.error(theta.tolist())

    def gradient(self, theta: Array) -> tuple[float, Array, list[Array]]:
        """(F, g, ∂F/∂x in the order of `free`); ∂F/∂θ = −2θg. If F is infinite, as in `error`, the others are 0."""
        u = np.square(theta)
        F, g, _ = slopes(self.sums, self.t, u)
        if not math.isfinite(float(F)):
            return math.inf, np.zeros(len(u)), [np.zeros_like(x) for x in self.loss.starts]
        back = self.loss.cells.slopes(self.pairs, self.t, self.sums, u)
        pulled = [() if i in self.loss.fixed else pair.pull(*back[i]) for i, pair in enumerate(self.pairs)]
        return float(F), g, [pulled[i][f] for i, f in self.loss.free]

    def surrogates(self, theta: Array) -> list[Matrix]:
        """∂F/∂H of the bases paired with Total: the gram matrices for which they should be optimised."""
        back = self.loss.cells.slopes(self.pairs, self.t, self.sums, np.square(theta))
        each = zip(self.pairs, back, strict=True)
        return [pair.surrogate(*slopes_of) for pair, slopes_of in each if isinstance(pair, BesideTotal)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class GridCells:
    """All combinations of classes; the first attribute varies slowest.

    `blocks` (blocks × attributes) holds the number, 0 or 1, of each block's factors. The memory is N cells per block;
    the time is O(Σ n_i·N) per distinct gram of an attribute with n_i classes.
    """

    coefficients: Array
    choices: Array
    blocks: Array
    parts: Parts | None = None

    def asked(self, pairs: Sequence[FactorPair]) -> Asked:
        whole = Mixture(self.coefficients, self.choices, tuple(pair.table for pair in pairs))
        parts = self.parts
        if parts is None:
            return whole.values()
        each = [
            Mixture(self.coefficients[parts.of == k], self.choices[parts.of == k], whole.tables).values()
            for k in range(parts.count)
        ]
        return Parted(np.stack(each), parts.power)

    def sums(self, pairs: Sequence[FactorPair]) -> SubsetSums:
        rows = [_outer([pairs[i].deltas[f] for i, f in enumerate(row)]) for row in self.blocks.tolist()]
        return Listed(np.stack(rows).T)

    def slopes(self, pairs: Sequence[FactorPair], t: Asked, sums: SubsetSums, u: Array) -> Slopes:
        lam = sums.up(u)
        if isinstance(t, Parted) and self.parts is not None:  # at the weights of the parts, errors are summed
            weighted = self.coefficients * t.weights(lam)[self.parts.of]
            return replace(self, coefficients=weighted, parts=None).slopes(pairs, t.at(lam), sums, u)
        t = asked_at(t, lam)
        sizes = [pair.deltas.shape[1] for pair in pairs]
        inverse = np.where((t > 0) & (lam > 0), 1 / np.where(lam > 0, lam, 1.0), 0.0).reshape(sizes)
        out: Slopes = []
        for i, pair in enumerate(pairs):
            L = np.ascontiguousarray(np.moveaxis(inverse, i, 0).reshape(sizes[i], -1))
            measured = [self._measured(pairs, i, f, u) for f in (0, 1)]
            others = (self._others(pairs, i, v) for v in range(pair.table.shape[1]))
            if isinstance(pair, Diagonalised):
                E = np.zeros((2, sizes[i], sizes[i]))
                for T, o in zip(pair.weighted, others, strict=True):
                    for f in (0, 1):
                        if pair.families[f].start is not None:
                            w = o * measured[f]
                            used = w > 0
                            E[f] += T * ((L[:, used] * w[used]) @ L[:, used].T)
                out.append((E[0], E[1]))
            else:
                asked = np.moveaxis(t.reshape(sizes), i, 0).reshape(sizes[i], -1)
                out.append(
                    (np.stack([L @ o for o in others], axis=1), -np.stack([(asked * L * L) @ m for m in measured]))
                )
        return out

    def _measured(self, pairs: Sequence[FactorPair], i: int, f: int, u: Array) -> Array:
        """m_f of attribute i: Σ θ_g² ⊗_{j≠i} δ_gj over the blocks whose i-th factor is the f-th."""
        out = np.zeros(math.prod(pair.deltas.shape[1] for j, pair in enumerate(pairs) if j != i))
        for square, row in zip(u.tolist(), self.blocks.tolist(), strict=True):
            if row[i] == f:
                out += square * _outer([pairs[j].deltas[c] for j, c in enumerate(row) if j != i])
        return out

    def _others(self, pairs: Sequence[FactorPair], i: int, v: int) -> Array:
        """o_v of attribute i: Σ c_k ⊗_{j≠i} t_kj over the products whose i-th gram is the v-th."""
        chosen = self.choices[:, i] == v
        if len(pairs) == 1:
            return np.array([self.coefficients[chosen].sum()])
        tables = tuple(pair.table for j, pair in enumerate(pairs) if j != i)
        return Mixture(self.coefficients[chosen], np.delete(self.choices[chosen], i, axis=1), tables).values()


@final
@dataclass(frozen=True, slots=True, eq=False)
class ListedCells:
    """Only the cells that some product asks for; every attribute has a base and Total, and blocks are subsets of the
    attributes.

    O(Σ_k s_k·2^s_k) for products with s_k attributes that are not totalled, and cells × blocks. On the 2-way
    range-marginals of CPS a step takes 0.46 ms, and 2.8 ms on their grid; over 40 attributes no grid fits.
    """

    groups: tuple[ActiveProducts, ...]
    parts: Parts | None
    width: int  # the most grams of an attribute
    incidences: Incidences  # of the cells, by the attributes that are not in Total's class, in the subsets

    @classmethod
    def of(cls, terms: Terms, subsets: Sequence[int]) -> ListedCells:
        """The cells of the terms; bit i of a subset is the i-th attribute. O(Σ_k 2^s_k)."""
        grams = [Grams.of(each) for each in terms.grams]
        width = max(len(each.matrices) for each in grams)
        known = np.ones((len(grams), width))  # what a total asks for; NaN where that depends on the base
        for i, each in enumerate(grams):
            known[i, : len(each.totals)] = each.totals
            known[i, each.active] = math.nan
        factors = known[np.arange(len(grams)), terms.choices]
        free = np.isnan(factors)
        constants = terms.coefficients * np.where(free, 1.0, factors).prod(axis=1)
        columns = terms.choices + width * np.arange(len(grams))
        place: dict[int, int] = {}
        rows: dict[int, list[tuple[int, float, list[int], list[int]]]] = {}
        for k, constant in enumerate(constants.tolist()):
            active = np.flatnonzero(free[k])
            masks = [0]
            for i in active.tolist():
                masks = [m for mask in masks for m in (mask, mask | 1 << i)]
            cells = [place.setdefault(m, len(place)) for m in masks]
            rows.setdefault(len(active), []).append((k, constant, columns[k, active].tolist(), cells))
        groups = tuple(ActiveProducts.of(each, s) for s, each in sorted(rows.items()))
        return cls(groups, terms.parts, width, Incidences.of(list(place), subsets, len(terms.axes)))

    def asked(self, pairs: Sequence[FactorPair]) -> Asked:
        tables = self._tables(pairs)
        size = len(self.incidences.inside)
        parts = self.parts
        t = np.zeros(size if parts is None else size * parts.count)
        for group in self.groups:
            places = group.cells if parts is None else group.cells + size * parts.of[group.products][:, None]
            t += np.bincount(places.ravel(), weights=group.values(tables).ravel(), minlength=len(t))
        return t if parts is None else Parted(t.reshape(parts.count, size), parts.power)

    def sums(self, pairs: Sequence[FactorPair]) -> SubsetSums:
        gamma = np.array([pair.deltas[0, 0] for pair in pairs])  # 1/c of the bases; Total is the unit
        return self.incidences.sums(gamma)

    def slopes(self, pairs: Sequence[FactorPair], t: Asked, sums: SubsetSums, u: Array) -> Slopes:
        if isinstance(t, Parted) and self.parts is not None:  # at the weights of the parts, errors are summed
            lam = sums.up(u)
            weights = t.weights(lam)[self.parts.of]
            groups = tuple(replace(g, coefficients=g.coefficients * weights[g.products]) for g in self.groups)
            return replace(self, groups=groups, parts=None).slopes(pairs, t.at(lam), sums, u)
        _, g, quotient = slopes(sums, t, u)
        with np.errstate(divide="ignore"):
            q = 1 / sums.up(u)
        tables = self._tables(pairs)
        by_table = sum((group.slopes(tables, q) for group in self.groups), np.zeros_like(tables))
        # −∂F/∂log γ: the information of subsets with the attribute about cells without it
        by_log = self.incidences.outside.T @ (u * g) - self.incidences.inside.T @ quotient
        out: Slopes = []
        for i, pair in enumerate(pairs):
            gamma = pair.deltas[0, 0]  # 0 for contrasts, which stay as they are
            by_deltas = np.array([[-by_log[i] / gamma if gamma else 0.0, 0.0], [0.0, 0.0]])
            out.append((by_table[:, i * self.width :][:, : pair.table.shape[1]], by_deltas))
        return out

    def _tables(self, pairs: Sequence[FactorPair]) -> Array:
        """The tables of all attributes side by side: 2 × attributes·width."""
        out = np.zeros((2, len(pairs), self.width))
        for i, pair in enumerate(pairs):
            out[:, i, : pair.table.shape[1]] = pair.table
        return out.reshape(2, -1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ActiveProducts:
    """Products with the same number s of attributes that are not totalled.

    `products` are their numbers, `factors` is products × s, the column of each factor in the tables, and `cells` is
    products × 2^s, the places of its cells, the first attribute slowest and Total's class first.
    """

    products: Array
    coefficients: Array
    factors: Array
    cells: Array

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, list[int], list[int]]], s: int) -> ActiveProducts:
        products, coefficients, factors, cells = zip(*rows, strict=True)
        columns = np.array(factors, dtype=np.int64).reshape(len(rows), s)
        return cls(np.array(products), np.array(coefficients), columns, np.array(cells, dtype=np.int64))

    def values(self, tables: Array) -> Array:
        """c Π g for every cell of every product. O(products·2^s)."""
        return _kron(tables[:, self.factors]) * self.coefficients[:, None]

    def slopes(self, tables: Array, q: Array) -> Array:
        """The derivatives of Σ q·values with respect to the tables. O(products·s·2^s)."""
        g = tables[:, self.factors]
        Q = q[self.cells] * self.coefficients[:, None]
        rows, s = self.factors.shape
        out = np.zeros_like(tables)
        for j in range(s):
            left, right = _kron(g[:, :, :j]), _kron(g[:, :, j + 1 :])
            sums = np.einsum("rl,rlxt,rt->xr", left, Q.reshape(rows, 1 << j, 2, -1), right)
            out += [np.bincount(self.factors[:, j], weights=each, minlength=out.shape[1]) for each in sums]
        return out


def _is_free(family: Explicit) -> bool:
    return family.start is not None


def _kron(g: Array) -> Array:
    """⊗_j g[:, row, j] for every row, in which the first factor varies slowest; g is 2 × rows × s."""
    part = np.ones((g.shape[1], 1))
    for j in range(g.shape[2]):
        part = (part[:, :, None] * g[:, :, j].T[:, None, :]).reshape(len(part), -1)
    return part


def _outer(vectors: Sequence[Array]) -> Array:
    """⊗ of vectors; the first varies slowest."""
    return reduce(lambda x, y: np.multiply.outer(x, y).ravel(), vectors, np.ones(1))
