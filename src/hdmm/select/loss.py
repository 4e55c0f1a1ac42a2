"""The loss of blocks over subsets of the attributes, F = Σ_b tr(X_b⁻¹V_b), as a function of their weights and bases.

Every attribute has one base beside Total, and so two classes (pairs.py): the direction that Total measures, and its
complement. On one attribute, the free one, each block may have a base of its own; their grams G_g (11ᵀ for Total) need
not diagonalise together. In the class b of all other attributes together, with δ and t of the classes,

    X_b = Σ_g θ_g² (Π_i δ_gi) G_g,   V_b = Σ_k c_k (Π_i t_ki) V_k

and with H_b = X_b⁻¹ and Y_b = H_bV_bH_b

    ∂F/∂G_g = −θ_g² Σ_b (Πδ) Y_b,   ∂F/∂(Πδ)_gb = −θ_g² tr(Y_bG_g),   ∂F/∂(Πt)_kb = c_k tr(H_bV_k)

If no attribute is free, X_b and V_b are the numbers λ_b and t_b, which are 1 × 1. Only the classes that some product
asks for are listed, by the attributes that are not in Total's class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.matrix import Array, Matrix, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import Constant, Divided, Explicit
from hdmm.select.minimize import minimize_arrays
from hdmm.select.pairs import BaseFamily, BesideTotal, Grams
from hdmm.select.search import Search
from hdmm.select.terms import Parts, Terms
from hdmm.select.theta import positive_inverse
from hdmm.strategy.subsets import Incidences, SubsetSums, subset_of

_NONE = np.empty(0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BasesLoss:
    """F for terms in which Total is the unit.

    `shared` has the family of each attribute that is not free, and `own` those of the free one. `kinds` (blocks × kinds
    of bases there) marks the base of each block. O(Σ_k s_k·2^s_k) per evaluation for products with s_k attributes that
    are not totalled, and O(n³) per class if an attribute of n values is free. On the 2-way range-marginals of CPS a
    step takes 0.5 ms.
    """

    shared: Mapping[int, BaseFamily]
    own: OwnBases
    kinds: Array
    grams: Mapping[int, Grams]
    fixed: Mapping[int, BesideTotal]
    groups: tuple[ActiveProducts, ...]
    incidences: Incidences  # of the classes in the subsets, on the attributes that are not free
    parts: Parts

    @classmethod
    def of(
        cls,
        terms: Terms,
        subsets: Sequence[int],
        shared: Mapping[int, BaseFamily],
        *,
        free: int | None = None,
        own: Sequence[Explicit] = (),
        base: Sequence[int] = (),
    ) -> BasesLoss:
        """The loss for the terms. Bit i of a subset is attribute i, and `base` has the number of its base in `own`."""
        grams = {i: Grams.of(terms.grams[i]) for i in shared}
        kernel = OwnBases.of(own, terms.grams[free]) if free is not None else OwnBases((), np.ones((1, 1)), np.ones(1))
        kind = [len(own) if free is None or not a >> free & 1 else base[g] for g, a in enumerate(subsets)]
        classes: dict[int, int] = {}
        groups = _listed(terms, grams, free, classes)
        held = [subset_of([j for j, i in enumerate(shared) if a >> i & 1]) for a in subsets]
        count = len(terms.coefficients)
        return cls(
            shared,
            kernel,
            np.eye(len(own) + 1)[kind],
            grams,
            {i: BesideTotal.of(f, _NONE, grams[i]) for i, f in shared.items() if isinstance(f, Constant)},
            groups,
            Incidences.of(list(classes), held, len(shared)),
            terms.parts or Parts(np.zeros(count, dtype=np.int64), 1, 1.0),  # a norm of one error is that error
        )

    @property
    def starts(self) -> list[Array]:
        """The starts of all families: those of the free attribute first."""
        return [x for each in (*self.own.families, *self.shared.values()) if (x := each.start) is not None]

    def at(self, xs: Sequence[Array]) -> BasesForm:
        """The loss at some xs, in the order of `starts`."""
        own, shared = self._placed(xs)
        pairs = [self.fixed.get(i) or BesideTotal.of(f, shared[i], self.grams[i]) for i, f in self.shared.items()]
        width = max((pair.table.shape[1] for pair in pairs), default=1)
        tables = np.zeros((2, len(pairs), width))
        for j, pair in enumerate(pairs):
            tables[:, j, : pair.table.shape[1]] = pair.table
        sums = self.incidences.sums(np.array([pair.deltas[0, 0] for pair in pairs]))
        values = [group.values(tables.reshape(2, -1)) for group in self.groups]
        return BasesForm(self, own, pairs, tables, sums, values)

    def matrices(self, xs: Sequence[Array]) -> tuple[list[Matrix], dict[int, Matrix]]:
        """(the bases of the free attribute, those of the others) at some xs."""
        own, shared = self._placed(xs)
        bases = [f.matrix(x) for f, x in zip(self.own.families, own, strict=True)]
        return bases, {i: f.matrix(shared[i]) for i, f in self.shared.items()}

    def _placed(self, xs: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        left = iter(xs)
        own = [_NONE if f.start is None else next(left) for f in self.own.families]
        return own, {i: _NONE if f.start is None else next(left) for i, f in self.shared.items()}


@final
@dataclass(frozen=True, slots=True, eq=False)
class BasesForm:
    """The bases at some xs, from which the loss and its gradient at any θ follow."""

    loss: BasesLoss
    own: Sequence[Array]
    pairs: Sequence[BesideTotal]
    tables: Array  # 2 × attributes × grams: what each gram asks of the two classes
    sums: SubsetSums
    values: Sequence[Array]  # what each product asks of its classes, by group

    def error(self, theta: Sequence[float] | Array) -> float:
        """F; infinite if something that is asked for is not measured."""
        return self._evaluated(np.square(theta))[0]

    def gradient(self, theta: Array) -> tuple[float, Array, list[Array]]:
        """(F, g, ∂F/∂x in the order of `starts`); ∂F/∂θ = −2θg. If F is infinite, the others are 0."""
        F, g, by_gram, back = self._slopes(np.square(theta))
        if not math.isfinite(F):
            return F, np.zeros_like(theta), [np.zeros_like(x) for x in self.loss.starts]
        families = self.loss.own.families
        found = [f.pull(x, M) for f, x, M in zip(families, self.own, by_gram, strict=False) if isinstance(f, Divided)]
        shared = zip(self.loss.shared.values(), self.pairs, back, strict=True)
        return F, g, [*found, *(pair.pull(*slopes)[0] for f, pair, slopes in shared if f.start is not None)]

    def surrogates(self, theta: Array) -> list[Matrix]:
        """∂F/∂H of the shared bases: the gram matrices for which they should be optimised."""
        return [
            pair.surrogate(*slopes) for pair, slopes in zip(self.pairs, self._slopes(np.square(theta))[3], strict=True)
        ]

    def _evaluated(self, u: Array) -> tuple[float, OwnBasesAt | None, Array, list[Array]]:
        """(F, the state of the free attribute, ω of each product, tr(H_bV_k) of its classes by group)."""
        state = self.loss.own.at(self.own, self.sums.up(u[:, None] * self.loss.kinds))
        errors = np.zeros(len(self.loss.parts.of))
        if state is None:
            return math.inf, None, errors, []
        found: list[Array] = []
        for group, values in zip(self.loss.groups, self.values, strict=True):
            found.append(np.where(values > 0, state.traces.ravel()[group.places], 0.0))
            errors[group.products] = np.einsum("kc,kc->k", values, found[-1])
        omega = self.loss.parts.of_products(self.loss.parts.sums(errors))
        return float(omega @ errors), state, omega, found

    def _slopes(self, u: Array) -> tuple[float, Array, Iterable[Array], list[tuple[Array, Array]]]:
        """(F, −∂F/∂u, ∂F/∂G of the free attribute's bases, ∂F/∂table and ∂F/∂deltas of every other attribute)."""
        F, state, omega, traces = self._evaluated(u)
        if state is None or not math.isfinite(F):
            return math.inf, np.zeros_like(u), [], []
        loss, tables = self.loss, self.tables.reshape(2, -1)
        asks, by_table = np.zeros(state.traces.size), np.zeros_like(tables)
        for group, values, seen in zip(loss.groups, self.values, traces, strict=True):
            shares = omega[group.products][:, None]
            asks += np.bincount(group.places.ravel(), weights=(values * shares).ravel(), minlength=len(asks))
            by_table += group.slopes(tables, seen * shares)
        by_weights, by_gram = state.back(asks.reshape(state.traces.shape))
        by_u = (self.sums.down(by_weights) * loss.kinds).sum(axis=1)
        # ∂F/∂log γ: the information of subsets with the attribute about classes without it.
        inside = (by_weights * state.weights).sum(axis=1)
        by_log = loss.incidences.outside.T @ (u * by_u) - loss.incidences.inside.T @ inside
        by_tables = by_table.reshape(self.tables.shape)
        back: list[tuple[Array, Array]] = []
        for j, pair in enumerate(self.pairs):
            gamma = pair.deltas[0, 0]  # 0 for contrasts, which stay as they are
            by_deltas = np.array([[by_log[j] / gamma if gamma else 0.0, 0.0], [0.0, 0.0]])
            back.append((by_tables[:, j, : pair.table.shape[1]], by_deltas))
        return F, -by_u, by_gram, back


def descended(
    loss: BasesLoss,
    theta: Array,
    noise: Noise,
    search: Search,
    *,
    upper: float,
    tolerance: float,
    steps: int,
    scale: float = 1.0,
) -> tuple[Array, list[Array], float]:
    """(θ, xs, S²F) at the local minimum below θ and the starts of the families; S is the norm of θ."""

    def objective(xs: list[Array]) -> tuple[float, list[Array]]:
        theta = xs[0]
        F, g, by_x = loss.at(xs[1:]).gradient(theta)
        if not math.isfinite(F):  # something is unmeasured
            return math.inf, [g, *by_x]
        S2 = scale * noise.norm(theta) ** 2
        by_S2 = 2 * scale * (theta.sum() if noise is Noise.LAPLACE else theta)
        return S2 * F, [by_S2 * F - 2 * S2 * theta * g, *(S2 * each for each in by_x)]

    starts = [theta, *loss.starts]
    first = objective(starts)[0]
    if not math.isfinite(first):  # the rest is known
        return theta, starts[1:], first
    bounds = (0.0, upper) if noise is Noise.LAPLACE else (None, None)
    (theta, *xs), value = minimize_arrays(
        objective, starts, search, lower=bounds[0], upper=bounds[1], tolerance=tolerance, iterations=steps
    )
    return np.abs(theta), xs, value


@final
@dataclass(frozen=True, slots=True, eq=False)
class ActiveProducts:
    """Products with the same number s of shared attributes that are not totalled.

    `products` are their numbers, `factors` is products × s, the column of each factor in the tables, and `places` is
    products × 2^s: its classes, the first attribute slowest and Total's class first, times the grams of the free one.
    """

    products: Array
    coefficients: Array
    factors: Array
    places: Array

    def values(self, tables: Array) -> Array:
        """c Π g for every class of every product. O(products·2^s)."""
        return _kron(tables[:, self.factors]) * self.coefficients[:, None]

    def slopes(self, tables: Array, q: Array) -> Array:
        """The derivatives of Σ q∘values with respect to the tables. O(products·s·2^s)."""
        g = tables[:, self.factors]
        Q = q * self.coefficients[:, None]
        rows, s = self.factors.shape
        out = np.zeros_like(tables)
        for j in range(s):
            left, right = _kron(g[:, :, :j]), _kron(g[:, :, j + 1 :])
            sums = np.einsum("rl,rlxt,rt->xr", left, Q.reshape(rows, 1 << j, 2, -1), right)
            out += [np.bincount(self.factors[:, j], weights=each, minlength=out.shape[1]) for each in sums]
        return out


@final
@dataclass(frozen=True, slots=True, eq=False)
class OwnBases:
    """The bases of the free attribute, numbered; Total is the last, and the only one, of one value, if none is free."""

    families: tuple[Explicit, ...]
    V: Array  # the grams that are asked for, flat
    totals: Array  # α of those that are α11ᵀ, else infinite

    @classmethod
    def of(cls, families: Sequence[Explicit], matrices: Sequence[Matrix]) -> OwnBases:
        grams = Grams.of(matrices)
        V = np.stack([to_dense(V).astype(np.float64).ravel() for V in matrices])
        totals = grams.totals.copy()
        totals[grams.active] = math.inf
        return cls(tuple(families), V, totals)

    def at(self, xs: Sequence[Array], weights: Array) -> OwnBasesAt | None:
        """The state in which each class has these weights (classes × bases) of the grams; None if one is singular.

        A class that no base reaches has its Total alone, which answers for no more.
        """
        n = math.isqrt(self.V.shape[1])
        of_bases = [f.gram(x).ravel() for f, x in zip(self.families, xs, strict=True)]
        grams = np.stack([*of_bases, np.ones(n * n)])
        H = np.zeros((len(weights), n * n))
        reached: Array = weights[:, :-1].max(axis=1, initial=0.0) > 0
        for b in np.flatnonzero(reached):
            inverse = positive_inverse((weights[b] @ grams).reshape(n, n))
            if inverse is None:
                return None
            H[b] = inverse.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.where(self.totals > 0, self.totals / weights[:, -1:], 0.0)
        return OwnBasesAt(self, grams, weights, H, reached, np.where(reached[:, None], H @ self.V.T, alone))


@final
@dataclass(frozen=True, slots=True, eq=False)
class OwnBasesAt:
    """H of every class, flat, and `traces`, classes × grams: tr(HV)."""

    kernel: OwnBases
    grams: Array
    weights: Array
    H: Array
    reached: Array
    traces: Array

    def back(self, asks: Array) -> tuple[Array, Array]:
        """(∂F/∂weights, ∂F/∂G of every base) of F = Σ asks∘traces."""
        n = math.isqrt(self.H.shape[1])
        Y = np.zeros_like(self.H)
        for b in np.flatnonzero(self.reached):
            H = self.H[b].reshape(n, n)
            Y[b] = (H @ (asks[b] @ self.kernel.V).reshape(n, n) @ H).ravel()
        by_weights = -Y @ self.grams.T
        alone = ~self.reached & (asks > 0).any(axis=1)
        totals = np.where(np.isfinite(self.kernel.totals), self.kernel.totals, 0.0)
        by_weights[alone, -1] = -(asks[alone] @ totals) / self.weights[alone, -1] ** 2
        return by_weights, -(self.weights.T @ Y).reshape(-1, n, n)


def asked_classes(active: Array) -> int:
    """How many classes of some attributes products ask about, given which of them (columns) they do not total."""
    classes: dict[int, int] = {}
    for row in np.unique(active, axis=0):
        _numbered(row, classes)
    return len(classes)


def _listed(
    terms: Terms, grams: Mapping[int, Grams], free: int | None, classes: dict[int, int]
) -> tuple[ActiveProducts, ...]:
    """The products by the number of attributes that they do not total; their classes are numbered in `classes`."""
    width = max((len(each.matrices) for each in grams.values()), default=1)
    known = np.ones((len(grams), width))  # what a total asks for; NaN where that depends on the base
    for j, each in enumerate(grams.values()):
        known[j, : len(each.totals)] = each.totals
        known[j, each.active] = math.nan
    choices = terms.choices[:, list(grams)]
    factors = known[np.arange(len(grams)), choices]
    active = np.isnan(factors)
    constants = terms.coefficients * np.where(active, 1.0, factors).prod(axis=1)
    columns = choices + width * np.arange(len(grams))
    places = [_numbered(row, classes) for row in active]
    count = 1 if free is None else len(terms.grams[free])
    asked = np.zeros(len(choices), dtype=np.int64) if free is None else terms.choices[:, free]
    sizes = active.sum(axis=1)
    groups: list[ActiveProducts] = []
    for s in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == s)
        held = columns[rows][active[rows]].reshape(len(rows), s)
        cells = np.array([places[k] for k in rows.tolist()], dtype=np.int64)
        groups.append(ActiveProducts(rows, constants[rows], held, cells * count + asked[rows][:, None]))
    return tuple(groups)


def _numbered(active: Array, classes: dict[int, int]) -> list[int]:
    """The numbers of the classes of a product, given which attributes it does not total; the first varies slowest."""
    masks = [0]
    for j in np.flatnonzero(active).tolist():
        masks = [m for mask in masks for m in (mask, mask | 1 << j)]
    return [classes.setdefault(mask, len(classes)) for mask in masks]


def _kron(g: Array) -> Array:
    """⊗_j g[:, row, j] for every row, in which the first factor varies slowest; g is 2 × rows × s."""
    part = np.ones((g.shape[1], 1))
    for j in range(g.shape[2]):
        part = (part[:, :, None] * g[:, :, j].T[:, None, :]).reshape(len(part), -1)
    return part
