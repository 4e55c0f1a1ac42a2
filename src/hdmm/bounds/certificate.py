"""Certificates: bounds that no strategy for Gaussian noise can beat, at any number of attributes.

For every diagonal Λ ≥ 0 with tr Λ = 1 (the dual of selection, select/gaussian_optimum.py), V = WᵀW and M = Λ^½VΛ^½,

    ‖A‖₂²·‖W A⁺‖²_F ≥ ‖W Λ^½‖²_* = (tr M^½)².

Λ = I/N gives the singular-value bound. On small domains the best Λ is found; on others Λ = ⊗Λ_i, where Λ_i is the best
one for attribute i's own queries together with as many totals as make the bound largest, or, if all attributes are
alike and queries are on two of them at most, the best there is (alike_pairs.py). Laplace noise has no such dual: the
singular-value bound holds there too, but it is loose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.bounds.alike_pairs import AlikePairs
from hdmm.bounds.eigenspaces import LARGEST_EIGENPROBLEM, Classes, even_eigenvalues
from hdmm.bounds.joint_pinching import joint_root
from hdmm.bounds.pinching import Split, parts, pinched, work
from hdmm.bounds.svd import svd_bound
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Matrix, exchangeable, to_dense
from hdmm.select.gaussian_optimum import WORK, GramBlock, TridiagonalInverse, best_dual
from hdmm.select.orbits import OrbitCells
from hdmm.select.problem import MergedCells
from hdmm.select.terms import Terms

_TRIAL = 1e9  # Σ rows³ of eigenproblems while Λ is searched for: 0.1 s
_FINAL = 3.5e10  # the same at the Λ found: 3 s
_KEPT = 8  # directions of an attribute with one gram besides Total: more gain nothing
_MOST_PARTS = 1 << 18  # terms of the sum that bounds it: seconds
_SHORT = 5  # steps for each Λ_i of a product
_FURTHEST = 12  # powers of two by which totals may count more or less
_SUMMED = 1 - 1e-7  # of an integral that is a sum over nodes, which is good to 1e-8
_BELOW = 1 - 1e-9  # removes what rounding may have added


def gaussian_bound(workload: Workload) -> float:
    """A lower bound on the `unit_error` of every strategy under Gaussian noise.

    It is the optimum for plain marginals, and near it for one product and on small domains. On larger domains its root
    is 0.1 to 2 % below the best root mean squared error found if each attribute has one kind of queries besides totals,
    and 4 to 10 % if it has several (docs/research/lower-bounds.md). The cost is some fifty eigenproblems of each
    attribute's size and one with at most 5,100 rows: seconds. Deterministic.

    >>> from hdmm import Domain, Prefix
    >>> domain = Domain({"age": 10, "income": 10})
    >>> w = Workload.product(domain, age=Prefix()) + Workload.product(domain, income=Prefix())
    >>> round((gaussian_bound(w) / w.queries) ** 0.5, 2), round((svd_bound(w) / w.queries) ** 0.5, 2)
    (1.97, 1.92)
    """
    if any(product.joint for product in workload.products):
        alike = AlikePairs.of(workload.products)
        found = joint_root(workload.products) if alike is None else alike.root()
        return svd_bound(workload) if found is None else max(_BELOW * found**2, svd_bound(workload))
    cells = MergedCells.of(workload.products)  # as good for any strategy, and fewer
    if cells is not None:
        workload = cells.workload(workload)
    given = Terms.of(workload)
    if not len(given.coefficients):
        return 0.0
    terms = given.per_total()
    # If all products have one gram on an attribute, V is a Kronecker product with it, and so is the best Λ.
    alone, joint = terms.separated()
    roots = [_one_attribute(terms.grams[i][0]) for i in alone]
    log_scale = given.log_scale - math.fsum(map(math.log, workload.domain.shape))  # Total is the unit on each axis
    if joint:
        roots.append(_several_attributes(terms.restricted(joint), () if alone else workload.products, log_scale))
    found = [root for root in roots if root is not None]
    if len(found) == len(roots):
        return _BELOW * math.exp(log_scale) * math.prod(found) ** 2
    return svd_bound(workload)


def worst_bound(workload: Workload, shares: Sequence[float]) -> float:
    """A lower bound on the largest variance of a query under every strategy, at sensitivity 1 and unit Gaussian noise.

    The largest variance is at least any weighted average of them, and so at least the smallest value of that average.
    `shares` says how much each product counts in it; the queries of a product count equally, and its own weight is
    ignored. The bound is tight if shares are large where variances are. For targets, divide the queries by them.

    >>> from hdmm import Domain
    >>> w = Workload.marginals(Domain({"a": 4, "b": 4}), k=range(1, 3))
    >>> round(worst_bound(w, [1, 1, 2]), 3), round(worst_bound(w, [0, 0, 1]), 3)
    (1.892, 1.0)
    """
    if len(shares) != len(workload.products) or not all(math.isfinite(s) and s >= 0 for s in shares) or not any(shares):
        raise StrategyError(
            f"{len(shares)} shares do not fit {len(workload.products)} products. Give each product a share that is "
            "finite and not negative, and at least one that is above 0."
        )
    whole = math.fsum(shares)
    products = [
        replace(product, weight=math.sqrt(share / whole / product.queries))
        for product, share in zip(workload.products, shares, strict=True)
    ]
    return gaussian_bound(Workload(workload.domain, tuple(products)))


def _one_attribute(V: Matrix) -> float | None:
    """tr M^½ at the best Λ."""
    n = V.shape[0]
    if exchangeable(V):
        first, rest = even_eigenvalues(V)
        return math.sqrt(first) + (n - 1) * math.sqrt(rest)
    if (ends := TridiagonalInverse.of(V)) is not None:
        return _SUMMED * ends.dual()[0]
    return None if n > LARGEST_EIGENPROBLEM else best_dual([GramBlock(1.0, to_dense(V).astype(np.float64))])[0]


def _several_attributes(terms: Terms, products: Sequence[Product], log_scale: float) -> float | None:
    """tr M^½ for terms in which every attribute has several grams, at the best Λ found; times e^(log_scale/2), it is
    that of the products, if the terms are all that they ask for."""
    if (cells := OrbitCells.of(terms)) is not None:
        return best_dual(cells.blocks())[0]
    classes = Classes.of(terms)
    if classes is not None and not classes.axes:
        return float(classes.roots.sum())
    if products and (alike := AlikePairs.of(products)) is not None:
        return alike.root() / math.exp(log_scale / 2)
    if classes is None:
        return None
    if parts(classes) > _MOST_PARTS:
        return None
    return _best_product(classes, _means(terms, classes))


def _best_product(classes: Classes, means: Sequence[Array]) -> float:
    """tr M^½ at Λ = ⊗Λ_i, Λ_i the best for attribute i's mean gram and 2^e times Total's; one e for all attributes."""
    # Equal grams are one array in Classes, so forty equal attributes are worked out once.
    alike = [
        next(j for j in range(i + 1) if _same(classes.grams[i], classes.grams[j]) and np.allclose(mean, means[j]))
        for i, mean in enumerate(means)
    ]

    @cache
    def bound(e: int, kept: tuple[int, ...]) -> float:
        splits = {j: Split.of(classes.grams[j], _dual_beside_total(means[j], 2.0**e), kept[j]) for j in set(alike)}
        return pinched(classes, [splits[j] for j in alike])

    few, many = _directions_within(classes, _TRIAL, two=_TRIAL), _directions_within(classes, _FINAL, two=WORK)
    e = 0
    for step in (2, 1):
        while abs(e) <= _FURTHEST:
            last, e = e, max((e, e - step, e + step), key=lambda each: bound(each, few))
            if e == last:
                break
    return max(bound(e, few), bound(e, many))


def _dual_beside_total(mean: Array, weight: float) -> Array:
    return best_dual([GramBlock(1.0, mean + weight / len(mean))], steps=_SHORT)[1]


def _directions_within(classes: Classes, most: float, *, two: float) -> tuple[int, ...]:
    """How many directions to keep of each attribute: as many as `most` work allows, and at least two if `two` does.

    The second gains most: on prefixes over 20 attributes the bound rises from 87 % of what is found to 98.7 %.
    """
    few = [sum(V is not None for V in each) == 1 for each in classes.grams]
    m, kept = 1, (1,) * len(few)
    while m < max(classes.sizes):
        m = max(m + 1, m * 5 // 4)
        more = tuple(min(m, n, _KEPT if single else n) for n, single in zip(classes.sizes, few, strict=True))
        if more == kept or work(classes, more) > (two if m == 2 else most):
            break
        kept = more
    return kept


def _means(terms: Terms, classes: Classes) -> list[Array]:
    """The mean of each attribute's grams besides Total, with trace 1, weighted by what marginals would measure."""
    partials = terms.partials(terms.marginal_asks)
    means = [
        np.sum([w * V for w, V in zip(partials[i], each, strict=True) if V is not None], axis=0)
        for i, each in zip(classes.axes, classes.grams, strict=True)
    ]
    return [mean / np.trace(mean) for mean in means]


def _same(first: Sequence[Array | None], second: Sequence[Array | None]) -> bool:
    return len(first) == len(second) and all(V is W for V, W in zip(first, second, strict=True))
