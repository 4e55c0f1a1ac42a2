"""Terms: the form of a workload that optimisers use, Σ_k c_k ⊗_i V_ki, and its error under one product.

Each V_ki is divided by its trace and the c_k sum to 1, so that the error of Identity is 1 for every size of the domain
and of the weights. With τ_ki = tr(H_i V_ki), H_i = (A_iᵀA_i)⁻¹, the error of ⊗A_i is

    f = Σ_k c_k Π_i τ_ki        ∂f/∂τ_iv = Σ_{k: V_ki is the v-th} c_k Π_{j≠i} τ_kj

and Σ_v ∂f/∂τ_iv · V_iv is the surrogate workload of attribute i, the paper's Ŵ_i: the best A_i for it minimises f.

Parts are products whose errors are combined by a norm instead of a sum, so that the largest counts most. If e_k is the
error of part k, φ(e) = ‖e‖_p is homogeneous: φ = Σ_k ω_k e_k with ω = ∇φ(e). So every formula for a sum of errors, and
its gradient, holds at the weights ω if ω is recomputed whenever e is. A maximum is approached by p = 8, 64, 512 in
turn: a large p from a bad start ends anywhere, and p = 32 leaves 1 % of the largest error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from hdmm.base.tolerances import SAME_GRAM
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import (
    Array,
    Dense,
    Matrix,
    exchangeable,
    gram_inverse,
    scaled,
    summed,
    to_dense,
    total,
    trace,
    trace_product,
)
from hdmm.matrix.matrix import frozen
from hdmm.strategy.mixture import single_factors, tabulate

_FEW = 16  # terms that are never written out
_MOST_WRITTEN = 4096  # values of an attribute whose grams are added up: 128 MiB

POWERS = (8.0, 64.0, 512.0)
"""Of the norm of parts, through which a descent goes."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The part of each product, and the power of the norm that combines the errors of the parts.

    >>> parts = Parts(np.array([0, 1, 1]), 2, 8.0)
    >>> parts.sums(np.array([3.0, 1.0, 1.0])).tolist()
    [3.0, 2.0]
    >>> parts.weights(np.array([3.0, 2.0])).round(3).tolist()
    [0.967, 0.057]
    """

    of: Array
    count: int
    power: float

    def sums(self, values: Array) -> Array:
        """The sum of the values of the products in each part."""
        return np.bincount(self.of, weights=values, minlength=self.count)

    def weights(self, errors: Array) -> Array:
        """ω = ∇‖e‖_p, for one column of errors or several; equal weights if an error is infinite."""
        largest = errors.max(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = errors / largest
            norm = (ratio**self.power).sum(axis=0) ** (1 / self.power)
            found = (ratio / norm) ** (self.power - 1)
        return np.where(np.isfinite(largest) & (largest > 0), found, 1.0)

    def of_products(self, errors: Array) -> Array:
        """ω of the part of each product."""
        return self.weights(errors)[self.of]

    def taken(self, products: Array | list[int]) -> Parts:
        """The parts of some of the products."""
        return replace(self, of=self.of[products])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Σ_k coefficients[k] ⊗_i grams[i][choices[k, i]] over the attributes `axes` of the domain.

    Attributes that every product totals are left out, and so are products of weight 0. `scale` is what the
    error of Identity was before it became 1; `log_scale` is its logarithm, because over many attributes it overflows.
    If the errors of parts are combined, `parts` says how. `log_totalled` is the logarithm of the number of cells of the
    attributes that are left out.

    >>> from hdmm import Domain, Identity, Prefix
    >>> domain = Domain({"sex": 2, "age": 4, "state": 50})
    >>> terms = Terms.of(Workload.product(domain, sex=Identity(), age=Prefix()))
    >>> terms.axes, terms.coefficients, round(np.exp(terms.log_scale))
    ((0, 1), array([1.]), 1000)
    """

    axes: tuple[int, ...]
    coefficients: Array
    choices: Array
    grams: tuple[tuple[Matrix, ...], ...]
    log_scale: float
    parts: Parts | None = None
    log_totalled: float = 0.0

    @classmethod
    def of(cls, workload: Workload, parts: Parts | None = None) -> Terms:
        """The terms of a workload; O(products · attributes) and the traces of the distinct predicate sets."""
        shape, factors = workload.domain.shape, single_factors(workload.products)
        kept = [k for k, p in enumerate(workload.products) if p.weight > 0 and not _is_empty(p)]
        products = [workload.products[k] for k in kept]
        totals: list[PredicateSet] = [Total()] * len(shape)
        choices, sets = tabulate([factors[k] for k in kept], totals)
        grams = [tuple(p.gram(n) for p in each) for each, n in zip(sets, shape, strict=True)]
        traces = [np.array([trace(V) for V in each]) for each in grams]
        logs = np.array([2 * math.log(p.weight) for p in products])
        for i, each in enumerate(traces):
            logs += np.log(each)[choices[:, i]]
        axes = tuple(i for i, each in enumerate(grams) if not all(map(is_total, each)))
        largest = float(logs.max(initial=-math.inf))
        shares = np.exp(logs - largest) if len(logs) else logs
        return cls(
            axes,
            shares / shares.sum() if len(logs) else shares,
            choices[:, axes],
            tuple(tuple(scaled(1 / t, V) for t, V in zip(traces[i], grams[i], strict=True)) for i in axes),
            largest + math.log(shares.sum()) if len(logs) else -math.inf,
            None if parts is None else parts.taken(kept),
            sum(math.log(n) for i, n in enumerate(shape) if i not in axes),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each attribute in `axes`."""
        return tuple(each[0].shape[0] for each in self.grams)

    @property
    def active(self) -> Array:
        """Whether each term asks for more than the total of each attribute. O(k·d), and the traces of the grams."""
        tables = [np.array([not is_total(V) for V in each]) for each in self.grams]
        found = [table[self.choices[:, i]] for i, table in enumerate(tables)]
        return np.stack(found, axis=1) if found else np.zeros((len(self.choices), 0), dtype=bool)

    def traces(self, i: int, A: Matrix) -> Array:
        """τ_iv = tr((AᵀA)⁻¹V_iv) of the distinct grams of attribute i under the factor A."""
        H = gram_inverse(A)
        return np.array([trace_product(H, V) for V in self.grams[i]])

    def error(self, taus: Sequence[Array]) -> float:
        """f = Σ_k c_k Π_i τ_ki: the error of the product, relative to Identity's. O(k·d)."""
        values = self._table(taus).prod(axis=1)
        return float(self._weighted(values) @ values)

    def partials(self, taus: Sequence[Array]) -> list[Array]:
        """∂f/∂τ_iv for every attribute and distinct gram. O(k·d), by cumulative products from both ends."""
        table = self._table(taus)
        before = np.cumprod(np.hstack([np.ones((len(table), 1)), table[:, :-1]]), axis=1)
        after = np.cumprod(np.hstack([np.ones((len(table), 1)), table[:, :0:-1]]), axis=1)[:, ::-1]
        weights = self._weighted(table.prod(axis=1))[:, None] * before * after
        return [
            np.bincount(self.choices[:, i], weights=weights[:, i], minlength=len(each))
            for i, each in enumerate(self.grams)
        ]

    @property
    def marginal_asks(self) -> list[Array]:
        """tr V − 1ᵀV1/n + 1ᵀV1/n² of every gram: its error under marginals that measure its cells and its total."""
        return [
            np.array([trace(V) - total(V) / n + total(V) / n**2 for V in each])
            for each, n in zip(self.grams, self.sizes, strict=True)
        ]

    def surrogate(self, i: int, taus: Sequence[Array]) -> Matrix:
        """V̂_i = Σ_v ∂f/∂τ_iv V_iv, implicit: tr(H_i V̂_i) = f (equation 6 of the paper)."""
        return mixed(self.partials(taus)[i].tolist(), self.grams[i])

    def separated(self) -> tuple[list[int], list[int]]:
        """(attributes on which all products have the same gram, the others); the former can be solved separately."""
        alone = [i for i, each in enumerate(self.grams) if len(each) == 1]
        return alone, [i for i, each in enumerate(self.grams) if len(each) > 1]

    def interchangeable(self, i: int, j: int) -> bool:
        """Whether the terms stay as they are if two attributes are exchanged; those of parts are taken not to.

        >>> from hdmm import Domain, Prefix
        >>> domain = Domain({"x": 4, "y": 4})
        >>> w = Workload.product(domain, x=Prefix()) + Workload.product(domain, y=Prefix())
        >>> Terms.of(w).interchangeable(0, 1), Terms.of(w + Workload.marginals(domain, [("x",)])).interchangeable(0, 1)
        (True, False)
        """
        first, second = self.grams[i], self.grams[j]
        if self.parts is not None or len(first) != len(second) or any(V not in first for V in second):
            return False
        given = self.choices.copy()
        given[:, j] = np.array([first.index(V) for V in second])[given[:, j]]
        exchanged = given.copy()
        exchanged[:, [i, j]] = given[:, [j, i]]
        order, other = np.lexsort(given.T), np.lexsort(exchanged.T)
        return np.array_equal(given[order], exchanged[other]) and np.allclose(
            self.coefficients[order], self.coefficients[other], rtol=1e-9, atol=0.0
        )

    def restricted(self, attributes: Sequence[int]) -> Terms:
        """The same terms on some of the attributes; the other attributes count as a factor of 1 in the error."""
        return replace(
            self,
            axes=tuple(self.axes[i] for i in attributes),
            choices=self.choices[:, attributes],
            grams=tuple(self.grams[i] for i in attributes),
        )

    def even(self) -> list[bool]:
        """For each attribute, whether all its grams are aI + b11ᵀ: identities, totals and their unions."""
        return [all(map(exchangeable, each)) for each in self.grams]

    def folded(self) -> Terms:
        """The terms with every even attribute reduced to its two eigenspaces, that of 1 and its complement.

        The grams of such an attribute become diag(β, tr V − β) with β = 1ᵀV1/n, which is 2 × 2 for every n.
        """
        grams = [
            tuple(Dense(np.diag([total(V) / V.shape[0], max(trace(V) - total(V) / V.shape[0], 0.0)])) for V in each)
            if even
            else each
            for each, even in zip(self.grams, self.even(), strict=True)
        ]
        return replace(self, grams=tuple(grams))

    def per_total(self) -> Terms:
        """The same terms with grams n·V/tr V, in which Total is the unit; the error of θ is then e^log_scale·F.

        Over many attributes, F relative to Identity's error would be too small for a float.
        """
        grams = tuple(tuple(scaled(V.shape[0], V) for V in each) for each in self.grams)
        log_scale = self.log_scale - self.log_totalled - float(np.log(self.sizes).sum())
        return replace(self, grams=grams, log_scale=log_scale, log_totalled=0.0)

    def taken(self, rows: Sequence[int]) -> Terms:
        """Some of the terms as a separate workload, without attributes that they all total; Identity has error 1."""
        choices = self.choices[list(rows)]
        coefficients = self.coefficients[list(rows)]
        used = [np.unique(choices[:, i], return_inverse=True) for i in range(len(self.axes))]
        grams = [tuple(each[v] for v in values) for each, (values, _) in zip(self.grams, used, strict=True)]
        kept = [i for i, each in enumerate(grams) if not all(map(is_total, each))]
        share = float(coefficients.sum())
        return Terms(
            tuple(self.axes[i] for i in kept),
            coefficients / share,
            np.stack([used[i][1] for i in kept], axis=1) if kept else choices[:, :0],
            tuple(grams[i] for i in kept),
            self.log_scale + math.log(share),
            None if self.parts is None else self.parts.taken(list(rows)),
            self.log_totalled + sum(math.log(n) for i, n in enumerate(self.sizes) if i not in kept),
        )

    def sharpened(self) -> Iterator[Terms]:
        """The terms with each power of the norm, from their own on; as they are, if errors are summed."""
        if self.parts is None:
            yield self
            return
        powers = [power for power in POWERS if power >= self.parts.power]
        yield from (replace(self, parts=replace(self.parts, power=power)) for power in powers)

    def _weighted(self, values: Array) -> Array:
        """The coefficients at the weights ω of the parts if the products have these values."""
        if self.parts is None:
            return self.coefficients
        return self.coefficients * self.parts.of_products(self.parts.sums(self.coefficients * values))

    def _table(self, taus: Sequence[Array]) -> Array:
        """τ_ki, one row per product."""
        if not self.axes:
            return np.ones((len(self.coefficients), 1))
        return np.stack([tau[self.choices[:, i]] for i, tau in enumerate(taus)], axis=1)


def mixed(weights: Sequence[float], grams: Sequence[Matrix]) -> Matrix:
    """Σ w·V; written out if there are many terms, more than values, because every product goes through all of them.

    >>> from hdmm.matrix import Eye, Ones
    >>> mixed([2.0, 0.0], [Eye(3), Ones(3, 3)])
    Scaled(c=2.0, inner=Eye(n=3))
    """
    n = grams[0].shape[0]
    if not len(grams) > max(n, _FEW) or n > _MOST_WRITTEN:
        return summed(scaled(w, V) for w, V in zip(weights, grams, strict=True))
    array = np.zeros((n, n))
    for w, V in zip(weights, grams, strict=True):
        if w:
            array += w * to_dense(V)
    return Dense(frozen(array))


def beyond_total(weights: Array, grams: Sequence[Matrix]) -> Matrix:
    """Σ w·V over the grams that ask for more than the total."""
    kept = [v for v, V in enumerate(grams) if not is_total(V)]
    return mixed(weights[kept].tolist(), [grams[v] for v in kept])


def is_total(V: Matrix) -> bool:
    """Whether a positive semidefinite V is a multiple of 11ᵀ, that is, 1ᵀV1 = n·tr V.

    >>> from hdmm.matrix import Eye, Ones
    >>> is_total(Ones(3, 3)), is_total(Eye(3)), is_total(Eye(1))
    (True, False, True)
    """
    most = V.shape[0] * trace(V)
    return most - total(V) <= SAME_GRAM * most


def _is_empty(product: Product) -> bool:
    """Whether all queries of the product are zero, so that every strategy answers them."""
    shape = product.domain.shape
    return any(trace(p.gram(shape[i])) <= 0 for i, p in product.factors)
