"""Lower bounds on the error of any strategy, which show how far a result can be from the best.

The singular-value bound (Li and Miklau, "Optimal error of query sets under the differentially-private matrix
mechanism", ICDT 2013): ‖A‖₂²·‖W A⁺‖²_F ≥ (Σ_i √λ_i(V))²/N with V = WᵀW, where ‖A‖₂ is the largest column L2 norm. It is
nearly tight for Gaussian noise. It also holds for Laplace noise, because ‖A‖₁ ≥ ‖A‖₂, but it is loose there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, singledispatch

import numpy as np
import scipy.linalg

from hdmm.describe.predicates import AllRange, Identity, PredicateSet, Prefix, Shuffled, Total, Union
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, gram, to_dense
from hdmm.privacy.guarantee import Privacy
from hdmm.strategy.mixture import Mixture, tabulate

_EXPLICIT = 4096  # V is diagonalised explicitly on domains up to this size if no structure helps
_MAX_CELLS = 1 << 28


def lower_bound(workload: Workload, privacy: Privacy) -> float:
    """A lower bound on the expected total squared error of every strategy.

    >>> from hdmm import Domain, ZCDP
    >>> round(lower_bound(Workload.product(Domain({"age": 256}), age=AllRange()), ZCDP("0.5")) / 32896, 4)
    8.2734
    """
    return float(privacy.variance_factor) * svd_bound(workload)


def svd_bound(workload: Workload) -> float:
    """(Σ√λ(V))²/N: the singular-value bound at unit noise.

    The value is exact for one product (a product over attributes), for marginals (2^d eigenvalues), if the grams on
    each attribute commute, and for small domains, whose V is explicit. Otherwise it is the sum of the bounds of the
    single products, which is never larger, because V ↦ (tr √V)² is superadditive.

    >>> from hdmm import Domain
    >>> svd_bound(Workload.marginals(Domain({"age": 10}), k=1))
    10.0
    """
    if len(workload.products) > 1:
        joint = _union_bound(workload)
        if joint is not None:
            return joint
        if workload.domain.size <= _EXPLICIT:
            V = to_dense(workload.gram)
            return _root_sum(scipy.linalg.eigvalsh(V)) ** 2 / len(V)
    # On an attribute that is totalled the bound is 1.
    return math.fsum(
        product.weight**2 * math.prod(_one_attribute(p, product.cells(axes)) for axes, p in product.sets)
        for product in workload.products
    )


@lru_cache(maxsize=1024)
def _one_attribute(predicates: PredicateSet, n: int) -> float:
    """(Σ√λ)²/n on one attribute."""
    return _root_sum(eigenvalues(predicates, n)) ** 2 / n


@singledispatch
def eigenvalues(predicates: PredicateSet, n: int) -> Array:
    """The n eigenvalues of V = WᵀW: a closed form for the common sets, else O(min(m, n)³) for m predicates.

    >>> eigenvalues(Total(), 3)
    array([3., 0., 0.])
    """
    m = predicates.count(n)
    if m >= n:
        return scipy.linalg.eigvalsh(to_dense(predicates.gram(n)))
    return np.concatenate([np.zeros(n - m), scipy.linalg.eigvalsh(to_dense(gram(predicates.matrix(n).T)))])


@eigenvalues.register
def _(predicates: Identity, n: int) -> Array:
    return np.ones(n)


@eigenvalues.register
def _(predicates: Total, n: int) -> Array:
    return np.concatenate([[float(n)], np.zeros(n - 1)])


@eigenvalues.register
def _(predicates: Prefix, n: int) -> Array:
    # The inverse of V is the second difference with one free end.
    return 0.25 / np.sin((2 * np.arange(n) + 1) * np.pi / (4 * n + 2)) ** 2


@eigenvalues.register
def _(predicates: AllRange, n: int) -> Array:
    # V/(n+1) is the Green's function of the second difference with both ends fixed.
    return (n + 1) * 0.25 / np.sin(np.arange(1, n + 1) * np.pi / (2 * n + 2)) ** 2


@eigenvalues.register
def _(predicates: Shuffled, n: int) -> Array:
    return eigenvalues(predicates.inner, n)


def _union_bound(workload: Workload) -> float | None:
    """The bound if the grams on every attribute commute, else None."""
    if any(product.joint for product in workload.products):
        return None
    shape = workload.domain.shape
    totals: list[PredicateSet] = [Total()] * len(shape)
    choices, sets = tabulate([product.factors for product in workload.products], totals)
    tables: list[Array] = []
    counts: list[Array] = []
    for each, n in zip(sets, shape, strict=True):
        joint = _joint_eigenvalues(each, n)
        if joint is None:
            return None
        tables.append(joint[0] / n)
        counts.append(joint[1])
    squares = np.array([product.weight for product in workload.products]) ** 2
    mixture = Mixture(squares, choices, tuple(tables))
    if all(len(table) <= 2 for table in tables) and mixture.cells > 1 << 22:
        return _sparse_bound(mixture, counts)
    if mixture.cells > _MAX_CELLS:
        return None
    total = 0.0
    for box in mixture.slabs():
        roots = np.sqrt(np.maximum(mixture.restricted(box).values(), 0.0))
        for count, classes in zip(reversed(counts), reversed(box), strict=True):
            roots = roots.reshape(-1, len(classes)) @ count[classes]
        total += float(roots.sum())
    return total**2


def _sparse_bound(mixture: Mixture, counts: Sequence[Array]) -> float:
    """The bound over the subsets that the marginals reach, for any number of attributes."""
    cells = mixture.sparse
    sizes = np.array([count[-1] if len(count) == 2 else 0.0 for count in counts])
    multiplicity = np.ones(len(cells.keys))
    for rows, axes in cells.keys.by_size:
        multiplicity[rows] = sizes[axes].prod(axis=1)
    return float(np.sum(multiplicity * np.sqrt(cells.values))) ** 2


def _joint_eigenvalues(sets: Sequence[PredicateSet], n: int) -> tuple[Array, Array] | None:
    """(classes × sets eigenvalues, multiplicity of each class) if common eigenvectors are known, else None."""
    pairs = [_on_total(p, n) for p in sets]
    if all(pair is not None for pair in pairs):
        table = np.array([pair for pair in pairs if pair is not None]).T
        return (table, np.array([1.0, n - 1.0])) if n > 1 else (table[:1], np.ones(1))
    others = [p for p in sets if not isinstance(p, Identity)]
    if len(others) == 1:
        values = eigenvalues(others[0], n)
        ones = np.ones(n)
        return np.stack([ones if isinstance(p, Identity) else values for p in sets], axis=1), ones
    return None


@singledispatch
def _on_total(predicates: PredicateSet, n: int) -> tuple[float, float] | None:
    """(eigenvalue on 1, eigenvalue on its complement) if V = aI + bJ by construction, else None."""
    return None


@_on_total.register
def _(predicates: Identity, n: int) -> tuple[float, float] | None:
    return 1.0, 1.0


@_on_total.register
def _(predicates: Total, n: int) -> tuple[float, float] | None:
    return float(n), 0.0


@_on_total.register
def _(predicates: Union, n: int) -> tuple[float, float] | None:
    pairs = [_on_total(part, n) for part in predicates.parts]
    if any(pair is None for pair in pairs):
        return None
    return sum(pair[0] for pair in pairs if pair), sum(pair[1] for pair in pairs if pair)


def _root_sum(values: Array) -> float:
    return float(np.sum(np.sqrt(np.maximum(values, 0.0))))
