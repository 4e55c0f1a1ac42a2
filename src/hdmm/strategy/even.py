"""The variance of all queries of a product at once, where they have the same: a few array operations for any number.

A release of 100 attributes has 161,700 tables of three, and one at a time they take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from hdmm.describe.product import Product
from hdmm.matrix import Array
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.form import Form
from hdmm.strategy.mixture import Mixture, tabulated

_MANY = 256  # products from which on this is quicker than one after the other


@singledispatch
def even_variances(form: Form, products: Sequence[Product]) -> Array:
    """The one variance of all queries of each supported product, its weight left out; NaN where this is not known.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.strategy.strategy import Strategy
    >>> w = Workload.marginals(Domain({f"a{i}": 3 for i in range(13)}), k=3)
    >>> even_variances(Strategy.identity(w.domain).form, w.products)[:2]
    array([59049., 59049.])
    """
    return np.full(len(products), np.nan)


@even_variances.register
def _(form: Diagonal, products: Sequence[Product]) -> Array:
    found = np.full(len(products), np.nan)
    if len(products) <= _MANY or not form.lam.is_binary or any(product.joint for product in products):
        return found
    choices, sets = tabulated(products, len(form.shape))
    kinds = [[form.even_row(i, p) for p in each] for i, each in enumerate(sets)]
    uneven = [np.array([row is None for row in each]) for each in kinds]
    even = np.ones(len(products), dtype=bool)
    for i, each in enumerate(uneven):
        if each.any():
            even &= ~each[choices[:, i]]
    tables = [
        np.stack([np.zeros(len(axis.delta)) if row is None else row for row in each], axis=1)
        for axis, each in zip(form.axes, kinds, strict=True)
    ]
    listed = Mixture(np.ones(int(even.sum())), choices[even], tuple(tables)).listed
    lam = form.lam.sparse.at(listed.keys)
    found[even] = listed.against(np.divide(1.0, lam, out=np.zeros(len(lam)), where=lam > 0), int(even.sum()))
    return found
