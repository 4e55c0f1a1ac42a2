"""Diagonal: λ and the spectra of a union of products; error and variance are each written once here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Dense, Eye, Kron, Matrix, Ones, quadratic
from hdmm.predicates import PredicateSet, Total
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.strategy.mixture import MAX_CELLS, Mixture, box_keys, quotient_sum, tabulate
from hdmm.strategy.spectrum import Spectrum, spectrum
from hdmm.workload import Product

_MAX_BOX = 1 << 28  # cells one product's variances may need at once (2 GiB)


@final
@dataclass(frozen=True, eq=False)
class Diagonal(Form):
    """The spectra of the attributes and λ = Σ_j θ_j² ⊗ δ_ji, factored: it never fills N cells by itself."""

    domain: Domain
    blocks: tuple[Block, ...]  # each factor on one attribute
    spectra: tuple[Spectrum, ...]
    lam: Mixture

    @classmethod
    def of(cls, domain: Domain, blocks: tuple[Block, ...]) -> Diagonal:
        """The form of the stacked blocks; NoClosedFormError if they have none."""
        totals: list[Matrix] = [Ones(1, n) for n in domain.shape]
        choices, factors = tabulate([tuple(block.by_axis.items()) for block in blocks], totals)
        spectra = tuple(_spectrum(each, name) for each, name in zip(factors, domain.names, strict=True))
        squares = np.array([block.weight for block in blocks]) ** 2
        return cls(domain, blocks, spectra, Mixture(squares, choices, tuple(s.delta for s in spectra)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes."""
        return self.domain.shape

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_cells t/λ with t = Σ_k w_k² ⊗ tr(V_ki Z_c); infinite where a product is not supported."""
        totals: list[PredicateSet] = [Total()] * len(self.shape)
        choices, sets = tabulate([product.factors for product in products], totals)
        tables = tuple(
            np.stack([s.traces(p.gram(n)) for p in each], axis=1)
            for s, each, n in zip(self.spectra, sets, self.shape, strict=True)
        )
        squares = np.array([product.weight for product in products]) ** 2
        return quotient_sum(Mixture(squares, choices, tables), self.lam)

    def variances(self, product: Product) -> Iterator[Array]:
        """(⊗ ζ_i)(1/λ) with ζ_i = w Z_c wᵀ: the variance of each query, in pieces of bounded size.

        O(queries × classes of the last attributes): a Kronecker product, not one query at a time.
        """
        if self._totals_are_plain:
            yield from self._variances_of_few(product)
            return
        sets = product.predicates
        boxes = [np.flatnonzero(s.traces(p.gram(n))) for s, p, n in zip(self.spectra, sets, self.shape, strict=True)]
        if any(len(box) == 0 for box in boxes):  # queries of all zeros: the answer is 0, always
            yield np.zeros(product.queries)
            return
        inverse = self._inverse(boxes)
        rows = [p.count(n) for p, n in zip(sets, self.shape, strict=True)]
        widest = int(np.argmax([m * len(box) for m, box in zip(rows, boxes, strict=True)]))
        fold = rows[widest] * len(boxes[widest]) > MAX_CELLS and rows[widest] == product.queries
        tables = [
            np.empty((0, 0)) if fold and i == widest else s.variances(p.matrix(n))[:, box]
            for i, (s, p, n, box) in enumerate(zip(self.spectra, sets, self.shape, boxes, strict=True))
        ]
        if not fold:
            yield from _kron_pieces(tables, inverse)
            return
        # One attribute carries all the queries: fold the others into one form Σ_c g_c Z_c on it, which
        # takes n² numbers where its table would take queries × classes.
        tables[widest] = np.eye(len(boxes[widest]))
        weights = np.zeros(len(self.spectra[widest].delta))
        weights[boxes[widest]] = np.concatenate(list(_kron_pieces(tables, inverse)))
        W = sets[widest].matrix(self.shape[widest])
        yield np.maximum(quadratic(W, self.spectra[widest].mixed(weights)), 0.0)

    @cached_property
    def _totals_are_plain(self) -> bool:
        """Whether the form is too large to write out, and a total sees only the first class, with weight 1.

        So it is for marginals of many attributes: then a product is a matter of its own attributes.
        """
        if self.lam.cells <= MAX_CELLS or any(len(table) > 2 for table in self.lam.tables):
            return False
        seen = (self._seen(i, Total()) for i in range(len(self.shape)))
        return all(box.tolist() == [0] and abs(table[0, 0] - 1) < 1e-12 for box, table in seen)

    def _variances_of_few(self, product: Product) -> Iterator[Array]:
        """`variances`, in the time of the product's own attributes: 161,700 products over 100 take seconds."""
        seen = [self._seen(i, p) for i, p in product.factors]
        if any(len(box) == 0 for box, _ in seen):
            yield np.zeros(product.queries)
            return
        lam = self.lam.sparse.at(box_keys([box for box, _ in seen], len(self.shape), [i for i, _ in product.factors]))
        inverse = np.divide(1.0, lam, out=np.zeros(len(lam)), where=lam > 0)
        yield from _kron_pieces([table for _, table in seen] or [np.ones((1, 1))], inverse)

    def _seen(self, i: int, predicates: PredicateSet) -> tuple[Array, Array]:
        """The classes of an attribute that the predicates see, and w Z_c wᵀ there; worked out once."""
        known = self._known
        if (i, predicates) not in known:
            s, n = self.spectra[i], self.shape[i]
            box = np.flatnonzero(s.traces(predicates.gram(n)))
            known[i, predicates] = box, s.variances(predicates.matrix(n))[:, box]
        return known[i, predicates]

    @cached_property
    def _known(self) -> dict[tuple[int, PredicateSet], tuple[Array, Array]]:
        return {}

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """cov(query rows[k] of one product, query others[k] of another), weights left out. O(pairs × cells)."""
        tables: list[Array] = []
        at = np.unravel_index(rows, [p.count(n) for p, n in zip(first.predicates, self.shape, strict=True)])
        to = np.unravel_index(others, [p.count(n) for p, n in zip(second.predicates, self.shape, strict=True)])
        sets = zip(self.spectra, first.predicates, second.predicates, self.shape, at, to, strict=True)
        for s, p, q, n, a, b in sets:
            pairs, place = np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True)
            R, S = rows_of(p.matrix(n), pairs[:, 0]), rows_of(q.matrix(n), pairs[:, 1])
            tables.append(s.products(R, S)[place.ravel()])
        boxes = [np.flatnonzero((table != 0).any(axis=0)) for table in tables]
        if any(len(box) == 0 for box in boxes):
            return np.zeros(len(rows))
        inverse = self._inverse(boxes)
        out = np.empty(len(rows))
        step = max(1, MAX_CELLS // len(inverse))
        for start in range(0, len(rows), step):
            part = np.broadcast_to(inverse, (min(step, len(rows) - start), len(inverse)))
            for table, box in zip(tables, boxes, strict=True):  # the first class of what is left is the slowest
                here = table[start : start + step, box]
                part = np.einsum("kc,kcr->kr", here, part.reshape(len(here), len(box), -1))
            out[start : start + step] = part[:, 0]
        return out

    def _inverse(self, boxes: Sequence[Array]) -> Array:
        """1/λ on the cells of a box, first attribute slowest; 0 where λ is 0."""
        size = math.prod(len(box) for box in boxes)
        if size > _MAX_BOX:
            raise StrategyError(
                f"The variances of these queries need {size:.1e} cells of the strategy's form at once. Ask for "
                "the total error instead, or for queries on fewer attributes."
            )
        if self.lam.cells <= MAX_CELLS:
            places = np.zeros(1, dtype=np.int64)
            for table, box in zip(self.lam.tables, boxes, strict=True):
                places = (places[:, None] * len(table) + box).ravel()
            lam = self._all_cells[places]
        elif all(len(table) <= 2 for table in self.lam.tables):
            lam = self.lam.sparse.at(box_keys(boxes, len(boxes)))
        else:
            lam = self.lam.restricted(boxes).values()
        return np.divide(1.0, lam, out=np.zeros(len(lam)), where=lam > 0)

    @cached_property
    def _all_cells(self) -> Array:
        return self.lam.values()


def rows_of(W: Matrix, index: Array) -> Array:
    """The rows of W with these numbers, as columns. O(cost(Wᵀ)) each."""
    chosen = np.zeros((W.shape[0], len(index)))
    chosen[index, np.arange(len(index))] = 1.0
    return W.T.matmat(chosen)


def _spectrum(factors: tuple[Matrix, ...], name: str) -> Spectrum:
    found = spectrum(factors)
    if found is None:
        raise NoClosedFormError(
            f"The {len(factors)} different factors on attribute {name!r} do not diagonalise together, so the "
            "strategy has no closed form. Use at most two products, or marginals."
        )
    return found


def _kron_pieces(tables: Sequence[Array], vector: Array) -> Iterator[Array]:
    """(⊗ tables)·vector in pieces of whole rows of the first table, so that memory stays bounded."""
    head, *tail = tables
    rest = Kron(tuple(Dense(table) for table in tail)) if tail else Eye(1)
    inner = rest.along(vector.reshape(head.shape[1], -1, 1))[:, :, 0]
    step = max(1, (MAX_CELLS << 2) // max(rest.shape[0], 1))
    for start in range(0, len(head), step):
        yield (head[start : start + step] @ inner).ravel()
