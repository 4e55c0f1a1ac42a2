"""DataCube: some marginals are measured, and the others are aggregated from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

from hdmm.base.exceptions import NotApplicableError
from hdmm.describe.predicates import Identity, PredicateSet, Total, Union
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from hdmm.strategy.subsets import subsets

Norm: TypeAlias = Literal["max", "total", "L2"]

_MOST = 12  # attributes: 4096 cuboids, which are compared with each other


def datacube(workload: Workload, *, norm: Norm = "max") -> Strategy:
    """A strategy of s marginals with equal weights, chosen so that aggregation adds little noise. For marginals only.

    Each cell of a marginal that is rolled up from a measured one sums m of its cells and has variance s²m. "max" makes
    the largest such variance small (the reference's problem BMAX): for every m, it takes a greedy cover of the workload
    by marginals that are at most m times finer. "total" makes the sum over all cells small: it takes the best of the
    sets met when marginals are added one by one to the finest (the one that helps most first), or dropped one by one
    from those asked for (the one that matters least first). "L2" is how the HDMM paper ran it: a greedy cover that uses
    only the L marginals asked for, each at most L times finer (docs/research/baselines.md derives the L). Answers are
    by least squares over all that is measured. O(4^d) per step.

    Reference: Ding, Winslett, Han, Li, "Differentially private data cubes: optimizing noise sources and consistency"
    (SIGMOD 2011).

    >>> from hdmm import Domain
    >>> w = Workload.marginals(Domain({"a": 10, "b": 10, "c": 2}), k=range(3))
    >>> [len(datacube(w, norm=norm).blocks) for norm in ("max", "total", "L2")]
    [4, 1, 4]
    """
    shape = workload.domain.shape
    asked = sorted({cuboid for product in workload.products for cuboid in _cuboids(product)})
    if len(shape) > _MOST:
        raise NotApplicableError(
            f"datacube compares all 2^d marginals with each other; the domain has {len(shape)} attributes, and the "
            f"limit is {_MOST}. Use hdmm.optimize."
        )
    offered = list(subsets(range(len(shape))))
    if norm == "L2":
        offered = [c for c in offered if c in asked]
    finer = _finer(offered, asked, shape)
    if norm == "max":
        chosen = _least_maximum(finer)
    elif norm == "total":
        chosen = _least_total(finer, np.array([math.prod(shape[i] for i in c) for c in asked], dtype=float))
    elif norm == "L2":
        chosen = _greedy_cover(finer <= len(asked))
    else:
        raise NotApplicableError(f"datacube has the norms 'max', 'total' and 'L2', not {norm!r}.")
    blocks = (Block(1.0, tuple((i, Eye(shape[i])) for i in offered[j])) for j in sorted(chosen))
    return Strategy(workload.domain, tuple(blocks))


def _cuboids(product: Product) -> Iterator[tuple[int, ...]]:
    """The attributes of each marginal in a product of Identity, Total and unions of these."""
    if product.joint:
        raise NotApplicableError(f"datacube is defined for marginals; the workload asks for ({product}).")
    choices: list[list[tuple[int, ...]]] = []
    for axis, predicates in product.factors:
        parts: Sequence[PredicateSet] = predicates.parts if isinstance(predicates, Union) else (predicates,)
        if not all(isinstance(part, (Identity, Total)) for part in parts):
            raise NotApplicableError(
                f"datacube is defined for marginals; the workload asks for {predicates} on attribute "
                f"{product.domain.names[axis]!r}. Use Identity() or Total() there, or another baseline."
            )
        choices.append([(axis,) if isinstance(part, Identity) else () for part in parts])
    for chosen in itertools.product(*choices):
        yield tuple(axis for part in chosen for axis in part)


def _finer(offered: Sequence[tuple[int, ...]], asked: Sequence[tuple[int, ...]], shape: Sequence[int]) -> Array:
    """The number of cells of each offered marginal per cell of each requested one; infinite if it is not finer."""
    out = np.full((len(offered), len(asked)), math.inf)
    for i, source in enumerate(offered):
        for j, target in enumerate(asked):
            if set(target) <= set(source):
                out[i, j] = math.prod(shape[a] for a in source if a not in target)
    return out


def _least_maximum(finer: Array) -> list[int]:
    covers = [(_greedy_cover(finer <= most), most) for most in np.unique(finer[np.isfinite(finer)])]
    return min(covers, key=lambda cover: len(cover[0]) ** 2 * cover[1])[0]


def _greedy_cover(covers: Array) -> list[int]:
    left, chosen = np.ones(covers.shape[1], dtype=bool), list[int]()
    while left.any():
        chosen.append(int(np.argmax((covers & left).sum(axis=1))))
        left &= ~covers[chosen[-1]]
    return chosen


def _least_total(finer: Array, cells: Array) -> list[int]:
    added = [int(np.argmin(finer @ cells))]  # the single marginal that refines all others
    tried = [added]
    for _ in range(finer.shape[1] - 1):
        nearest = finer[added].min(axis=0)
        added = [*added, int(np.argmin(np.minimum(finer, nearest) @ cells))]
        tried.append([added[j] for j in np.unique(np.argmin(finer[added], axis=0))])
    left = [int(j) for j in np.argmin(finer, axis=0)]  # the requested marginals themselves
    while len(left) > 1:
        tried.append(left)
        left = min(
            ([k for k in left if k != j] for j in left), key=lambda fewer: float(finer[fewer].min(axis=0) @ cells)
        )
    return min(tried, key=lambda chosen: len(chosen) ** 2 * float(finer[chosen].min(axis=0) @ cells))
