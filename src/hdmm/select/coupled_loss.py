"""The exact error of blocks with bases of their own on one attribute or two, as a function of weights and factors.

The other attributes have one base each, beside Total, and so two classes (pairs.py). In the class b of all of them
together, with δ and t of the classes and G_g the gram of block g on the free attribute (11ᵀ if it totals it), or on the
two (joint_bases.py),

    X_b = Σ_g θ_g² (Π_i δ_gi) G_g,   V_b = Σ_k c_k (Π_i t_ki) V_k,   F = Σ_b tr(X_b⁻¹V_b)

and with H_b = X_b⁻¹ and Y_b = H_bV_bH_b

    ∂F/∂G_g = −θ_g² Σ_b (Πδ) Y_b,   ∂F/∂(Πδ)_gb = −θ_g² tr(Y_bG_g),   ∂F/∂(Πt)_kb = c_k tr(H_bV_k)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.matrix import Array, Matrix, Ones, to_dense
from hdmm.select.family import Constant, Explicit
from hdmm.select.joint_bases import JointBases, positive_inverse
from hdmm.select.pairs import FactorPair, Grams, pair_at
from hdmm.select.terms import Terms
from hdmm.strategy.subsets import membership

_NONE = np.empty(0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CoupledLoss:
    """F for terms in which Total is the unit, of blocks that are subsets of the attributes.

    `kernel` knows the free attributes; `shared` has the families of the others. `measured` is the number of each
    block's factor in the kernel, `asked` the number of each product's gram there. O(classes · n³) per evaluation.
    """

    terms: Terms
    kernel: OwnBases | JointBases
    shared: Mapping[int, Explicit]
    grams: Mapping[int, Grams]
    fixed: Mapping[int, FactorPair]
    measured: Array
    asked: Array
    inside: Array  # classes × other attributes: those not in Total's class
    held: Array  # blocks × other attributes: those with a base

    @classmethod
    def of(
        cls,
        terms: Terms,
        subsets: Sequence[int],
        free: Sequence[int],
        own: Sequence[Explicit],
        base: Sequence[int],
        shared: Mapping[int, Explicit],
    ) -> CoupledLoss:
        """The loss for the terms. `base` has the number in `own` of each subset's base on one free attribute.

        On two, `own` has the bases of the blocks that hold both, and then those of the others.
        """
        others = [i for i in range(len(terms.axes)) if i not in free]
        grams = {i: Grams.of(terms.grams[i]) for i in (*others, *free)}
        families = {i: (shared[i], Constant(Ones(1, terms.sizes[i]))) for i in others}
        fixed = {i: pair_at(pair, (_NONE, _NONE), grams[i]) for i, pair in families.items() if pair[0].start is None}
        if len(free) == 1:
            kernel = OwnBases.of(own, grams[free[0]])
            measured = [k if a >> free[0] & 1 else len(own) for a, k in zip(subsets, base, strict=True)]
            asked = terms.choices[:, free[0]]
        else:
            kernel = JointBases.of(own, [grams[i] for i in free])
            measured = [3 - (a >> free[0] & 1) * 2 - (a >> free[1] & 1) for a in subsets]
            asked = terms.choices[:, free[0]] * len(terms.grams[free[1]]) + terms.choices[:, free[1]]
        return cls(
            terms,
            kernel,
            {i: shared[i] for i in others},
            grams,
            fixed,
            np.array(measured),
            asked,
            membership(asked_classes(terms, others), len(terms.axes))[:, others],
            membership(subsets, len(terms.axes))[:, others],
        )

    @property
    def starts(self) -> list[Array]:
        """The starts of all families: those of the free attributes first."""
        return [x for each in (*self.kernel.families, *self.shared.values()) if (x := each.start) is not None]

    def matrices(self, xs: Sequence[Array]) -> tuple[list[Matrix], dict[int, Matrix]]:
        """(the bases of the free attributes, those of the others) at some xs, in the order of `starts`."""
        own, shared = self._placed(xs)
        return (
            [f.matrix(x) for f, x in zip(self.kernel.families, own, strict=True)],
            {i: f.matrix(shared[i]) for i, f in self.shared.items()},
        )

    def gradient(self, theta: Array, xs: Sequence[Array]) -> tuple[float, Array, list[Array]]:
        """(F, ∂F/∂θ, ∂F/∂x in the order of `starts`); F is infinite if something that is asked for is not measured."""
        own, shared = self._placed(xs)
        pairs = {
            i: self.fixed[i]
            if i in self.fixed
            else pair_at((f, Constant(Ones(1, self.terms.sizes[i]))), (shared[i], _NONE), self.grams[i])
            for i, f in self.shared.items()
        }
        u = np.square(theta)
        D, T = self._products(pairs)
        state = self.kernel.at(own, _summed(u * D, self.measured, self.kernel.kinds))
        if state is None:
            return math.inf, np.zeros_like(theta), [np.zeros_like(x) for x in self.starts]
        traces = state.traces
        by_product = np.where(T > 0, traces[:, self.asked], 0.0)
        if not np.isfinite(by_product).all():
            return math.inf, np.zeros_like(theta), [np.zeros_like(x) for x in self.starts]
        errors = np.einsum("bk,bk->k", T, by_product)
        omega = self._weights(errors)
        asks = _summed(T * omega, self.asked, traces.shape[1])
        by_weights, by_gram = state.back(asks)
        by_D = by_weights[:, self.measured]
        pulls = zip(self.kernel.families, own, by_gram, strict=False)  # Total, the last, has nothing to pull
        found = [f.pull(x, F) for f, x, F in pulls if f.start is not None]
        found += self._pulled(pairs, by_D * D * u, by_product * T * omega)
        return float(omega @ errors), 2 * theta * (by_D * D).sum(axis=0), found

    def _products(self, pairs: Mapping[int, FactorPair]) -> tuple[Array, Array]:
        """Πδ, classes × blocks, and cΠt, classes × products."""
        D = np.ones((len(self.inside), len(self.held)))
        T = np.broadcast_to(self.terms.coefficients, (len(self.inside), len(self.asked))).copy()
        for j, (i, pair) in enumerate(pairs.items()):
            inside = self.inside[:, j].astype(np.int64)
            D *= pair.deltas[1 - self.held[:, j].astype(np.int64)][:, inside].T
            T *= pair.table[inside][:, self.terms.choices[:, i]]
        return D, T

    def _pulled(self, pairs: Mapping[int, FactorPair], by_D: Array, by_T: Array) -> list[Array]:
        """∂F/∂x of the shared bases, from D∘∂F/∂D and T∘∂F/∂T."""
        found: list[Array] = []
        for j, (i, pair) in enumerate(pairs.items()):
            if self.shared[i].start is None:
                continue
            inside = self.inside[:, j] > 0
            by_deltas = np.zeros((2, 2))
            by_deltas[0, 0] = by_D[~inside][:, self.held[:, j] > 0].sum() / pair.deltas[0, 0]
            sums = np.stack([by_T[inside == x].sum(axis=0) for x in (False, True)])
            by_table = _summed(sums, self.terms.choices[:, i], pair.table.shape[1])
            by_table = np.divide(by_table, pair.table, out=np.zeros_like(by_table), where=pair.table > 0)
            found.append(pair.pull(by_table, by_deltas)[0])
        return found

    def _weights(self, errors: Array) -> Array:
        """ω of each product (parts.py)."""
        parts = self.terms.parts
        return np.ones(len(errors)) if parts is None else parts.of_products(parts.sums(errors))

    def _placed(self, xs: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        left = iter(xs)
        own = [_NONE if f.start is None else next(left) for f in self.kernel.families]
        return own, {i: _NONE if f.start is None else next(left) for i, f in self.shared.items()}


@final
@dataclass(frozen=True, slots=True, eq=False)
class OwnBases:
    """The bases of one attribute, numbered; Total is the last."""

    families: tuple[Explicit, ...]
    V: Array  # the grams that are asked for, flat
    totals: Array  # α of those that are α11ᵀ, else infinite

    @classmethod
    def of(cls, families: Sequence[Explicit], grams: Grams) -> OwnBases:
        V = np.stack([to_dense(V).astype(np.float64).ravel() for V in grams.matrices])
        totals = grams.totals.copy()
        totals[grams.active] = math.inf
        return cls(tuple(families), V, totals)

    @property
    def kinds(self) -> int:
        """How many bases there are, and Total."""
        return len(self.families) + 1

    def grams(self, xs: Sequence[Array]) -> Array:
        """G of every base and of Total, flat."""
        return np.stack(
            [*(f.gram(x).ravel() for f, x in zip(self.families, xs, strict=True)), np.ones(self.V.shape[1])]
        )

    def at(self, xs: Sequence[Array], weights: Array) -> OwnBasesAt | None:
        """The state in which each class has these weights (classes × bases) of the grams; None if one is singular.

        A class that no base reaches has its Total alone, which answers for no more.
        """
        grams = self.grams(xs)
        n = math.isqrt(self.V.shape[1])
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
    of_bases: Array
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
        by_weights = -Y @ self.of_bases.T
        alone = ~self.reached & (asks > 0).any(axis=1)
        spent = np.where(asks[alone] > 0, asks[alone], 0.0) @ np.where(
            np.isfinite(self.kernel.totals), self.kernel.totals, 0.0
        )
        by_weights[alone, -1] = -spent / self.weights[alone, -1] ** 2
        return by_weights, -(self.weights.T @ Y).reshape(-1, n, n)


def asked_classes(terms: Terms, others: Sequence[int]) -> list[int]:
    """The classes of these attributes that some product asks about, as subsets: those not in Total's class."""
    grams = {i: set(Grams.of(terms.grams[i]).active) for i in others}
    found: set[int] = set()
    for row in np.unique(terms.choices[:, list(others)], axis=0).tolist():
        masks = [0]
        for i, v in zip(others, row, strict=True):
            if v in grams[i]:
                masks = [m for mask in masks for m in (mask, mask | 1 << i)]
        found.update(masks)
    return sorted(found)


def _summed(values: Array, groups: Array, count: int) -> Array:
    """The columns of each group, summed."""
    out = np.zeros((len(values), count))
    np.add.at(out.T, groups, values.T)
    return out
