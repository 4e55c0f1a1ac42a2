"""Queries that count nobody, because known counts are 0 where they look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm.base.tolerances import SAME_COUNT
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense
from hdmm.reconstruct.known import Known, codes_of
from hdmm.strategy.slabs import kron_slabs

_MOST_TOGETHER = 1 << 22  # cells on which several known tables are looked at together; beyond, one by one


def empty_queries(known: Sequence[Known], product: Product) -> Array:
    """Which queries of a product, none of whose weights is negative, look only at cells that are known to be empty.

    Where several groups together are known to have no rows, each of them has none, although only their sum is free of
    noise. O(cells of the attributes that are known or asked for together with them, and queries).

    >>> from hdmm import Domain, Identity
    >>> domain = Domain({"sex": ["M", "F"], "age": 2})
    >>> product = Product(domain, ((0, Identity()), (1, Identity())))
    >>> empty_queries([Known(domain, ["sex"], [7, 0])], product)
    array([False, False,  True,  True])
    """
    telling = [each for each in known if not each.counts.all()]
    cells = product.cells(tuple({i for each in telling for i in each.axes}))
    together = [telling] if cells <= _MOST_TOGETHER else [[each] for each in telling]
    found = np.zeros(product.queries, dtype=np.bool)
    for each in together if telling else []:
        found |= _empty(each, product)
    return found


def _empty(known: Sequence[Known], product: Product) -> Array:
    """Which queries look only at cells that one of these tables counts as 0."""
    named = {i for each in known for i in each.axes}
    asked = [(axes, p.matrix(product.cells(axes)), not named.isdisjoint(axes)) for axes, p in product.sets]
    axes = [i for on, _, here in asked if here for i in on]
    # Where a set asks for nothing known, what its queries would count if every cell held one row stands for them.
    factors = [A if here else Dense(A @ np.ones((A.shape[1], 1))) for _, A, here in asked]
    possible = _possible(known, axes).astype(np.float64)
    seen, most = (kron_slabs(factors, x, np.float64) for x in (possible, np.ones_like(possible)))
    return seen <= SAME_COUNT * most


def _possible(known: Sequence[Known], axes: Sequence[int]) -> Array:
    """Whether there may be rows at each combination of values of these attributes."""
    shape = known[0].domain.shape
    every = sorted({*axes, *(i for each in known for i in each.axes)})
    found = np.ones([shape[i] for i in every], dtype=np.bool)
    for each in known:
        there = each.counts > 0
        for k, (i, p) in enumerate(each.product.factors):
            there = there.take(codes_of(p, shape[i]), axis=k)
        found &= there.reshape([shape[i] if i in each.axes else 1 for i in every])
    left = [i for i in every if i in axes]
    seen = np.asarray(found.any(axis=tuple(k for k, i in enumerate(every) if i not in axes)))
    return seen.transpose([left.index(i) for i in axes])
