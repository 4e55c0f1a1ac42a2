"""column_norm: the largest column norm of a matrix, a union of products included, columns unlisted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce, singledispatch
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array, Matrix
from hdmm.matrix.blocks import Eye, Ones
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.largest import largest_column_norm
from hdmm.matrix.norms import Order, column_norms
from hdmm.matrix.p_identity import PIdentity
from hdmm.matrix.tree import TreeIdentity
from hdmm.matrix.wrapped import Permuted, Scaled

_GROUP = 2**24  # cells of several attributes that some block joins into one


def column_norm(A: Matrix, order: Order = 1) -> int | float:
    """The largest column norm: max_c Σ_r |a_rc| (order 1), or max_c Σ_r a_rc², the squared L2 norm (order 2).

    A Python int, exact at any size, where all entries are held as integers; else a float. O(n) for one
    attribute; for a Kron the product of its factors' norms; for a Stack of Krons see `largest_column_norm`:
    the columns are never listed.

    >>> from hdmm.matrix import Cumulative
    >>> column_norm(Kron((Cumulative(10**6),) * 4))
    1000000000000000000000000
    >>> column_norm(Stack((Kron((Cumulative(3), Eye(2))), Scaled(2, Kron((Ones(1, 3), Ones(1, 2)))))))
    5
    """
    if order not in (1, 2):
        raise MatrixError(f"order must be 1 (the L1 norm) or 2 (the squared L2 norm), not {order!r}.")
    return _largest(A, order)


@singledispatch
def _largest(A: Matrix, order: Order) -> int | float:
    constant = _constant(A, order)
    if constant is not None:
        return constant
    norms = column_norms(A, order)
    if norms.size == 0:
        return 0
    return float(norms.max()) if norms.dtype.kind == "f" else int(norms.max())


@_largest.register
def _(A: Scaled, order: Order) -> int | float:
    return abs(A.c) ** order * _largest(A.inner, order)


@_largest.register
def _(A: Permuted, order: Order) -> int | float:
    return _largest(A.inner, order)


@_largest.register
def _(A: Kron, order: Order) -> int | float:
    return prod(_largest(B, order) for B in A.factors)


@_largest.register
def _(A: Stack, order: Order) -> int | float:
    """Each block as a coefficient and the norms of the factors whose columns differ."""
    known: dict[int, _Factor] = {}  # by identity: a domain of many attributes repeats few factors
    unit: set[int] = set()  # those all of whose columns have norm 1
    constant: int | float = 0
    coefficients: list[int | float] = []
    products: list[list[_Factor]] = []
    for c, factors in _products(A, 1):
        weight = abs(c) ** order
        names = list(map(id, factors))
        varying = False
        for i in [i for i, name in enumerate(names) if name not in unit]:
            factor = known.get(names[i])
            if factor is None:
                factor = known[names[i]] = _factor(factors[i], order)
                if factor.norms is None and factor.constant == 1 and isinstance(factor.constant, int):
                    unit.add(names[i])
            weight = weight * factor.constant
            varying = varying or factor.norms is not None
        if varying:
            coefficients.append(weight)
            products.append([known[name] for name in names])
        else:
            constant += weight
    profiles = _over_common_attributes(products)
    best = largest_column_norm([constant, *coefficients], [{}, *profiles])
    return best if isinstance(best, int) else float(best)


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """A factor's number of columns, and their norms: constant · norms."""

    n: int
    constant: int | float
    norms: Array | None


def _factor(A: Matrix, order: Order) -> _Factor:
    n = A.shape[1]
    constant = _constant(A, order)
    if constant is not None:
        return _Factor(n, constant, None)
    norms = column_norms(A, order)
    if norms.size and norms.min() == norms.max():
        return _Factor(n, float(norms[0]) if norms.dtype.kind == "f" else int(norms[0]), None)
    return _Factor(n, 1, norms)


def _constant(A: Matrix, order: Order) -> int | float | None:
    """The norm of every column, where it is the same by construction."""
    match A:
        case Eye():
            return 1
        case Ones(m, _):
            return m
        case PIdentity() if order == 1:
            return 1.0
        case TreeIdentity() if order == A.order:
            return 1.0
        case Permuted(inner, _):
            return _constant(inner, order)
        case Scaled(c, inner):
            constant = _constant(inner, order)
            return None if constant is None else abs(c) ** order * constant
        case _:
            return None


def _products(A: Matrix, c: int | float) -> Iterator[tuple[int | float, tuple[Matrix, ...]]]:
    """The products A stacks: (coefficient, factors), nested Stacks, Scaleds and Krons opened."""
    match A:
        case Stack(blocks):
            for B in blocks:
                yield from _products(B, c)
        case Scaled(d, inner):
            yield from _products(inner, c * d)
        case Kron(factors):
            yield c, tuple(_flat(factors)) if Kron in set(map(type, factors)) else factors
        case _:
            yield c, (A,)


def _flat(factors: tuple[Matrix, ...]) -> Iterator[Matrix]:
    for B in factors:
        if isinstance(B, Kron):
            yield from _flat(B.factors)
        else:
            yield B


def _over_common_attributes(products: list[list[_Factor]]) -> list[dict[int, Array]]:
    """Per product, the norms on each attribute that all products have, finer ones joined."""
    boundaries = {sizes: tuple(accumulate(sizes, mul)) for sizes in {tuple(p.n for p in parts) for parts in products}}
    if not boundaries:
        return []
    if len(boundaries) == 1:
        return [{i: p.norms for i, p in enumerate(parts) if p.norms is not None} for parts in products]
    common = sorted(set.intersection(*(set(ends) for ends in boundaries.values())))
    joined: dict[tuple[int, ...], Array] = {}
    profiles: list[dict[int, Array]] = []
    for parts in products:
        ends = boundaries[tuple(part.n for part in parts)]
        groups: dict[int, list[_Factor]] = {}
        for part, end in zip(parts, ends, strict=True):
            groups.setdefault(bisect_left(common, end), []).append(part)
        profile: dict[int, Array] = {}
        for attribute, group in groups.items():
            group = [part for part in group if part.n > 1 or part.norms is not None]
            if any(part.norms is not None for part in group):
                name = tuple(map(id, group))
                if name not in joined:
                    joined[name] = _joined(group)
                profile[attribute] = joined[name]
        profiles.append(profile)
    return profiles


def _joined(group: list[_Factor]) -> Array:
    if len(group) == 1 and group[0].norms is not None:
        return group[0].norms
    size = prod(part.n for part in group)
    if size > _GROUP:
        raise MatrixError(
            f"The blocks of this Stack divide the cells into attributes differently, and share only one of "
            f"{size:,} cells. Write all blocks as Krons over the same attribute sizes."
        )
    vectors = [np.ones(part.n, dtype=np.int64) if part.norms is None else part.norms for part in group]
    return reduce(np.kron, vectors)
