"""Exact answers: Kronecker products of factors applied to counts, slab by slab, in threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hdmm.base.cores import run_parallel
from hdmm.matrix import Array, Eye, Kron, Matrix
from hdmm.strategy.blocks import BlockTable

_SLAB = 2**16  # numbers worked on at a time: 0.5 MiB per thread, which stay in its cache


def exact_answers(factors: Sequence[Matrix], x: Array) -> Array:
    """(⊗ factors) x as int64, for counts x. The bits do not depend on the order of rows or the number of threads.

    All arithmetic is modulo 2⁶⁴ and the same for all tables, so the time it takes reveals nothing about the counts. A
    table within its declared rows has answers below MAX_ANSWER, which are exact; for a table with more rows, the sum
    with noise modulo 2⁶⁴ reveals no more than the sum itself.

    >>> from hdmm.matrix import Ones
    >>> exact_answers([Eye(2), Ones(1, 2)], np.array([[1, 2], [3, 4]]))
    array([3, 7])
    """
    return kron_slabs(factors, x.reshape([A.shape[1] for A in factors]), np.int64)


def exact_answers_of(table: BlockTable, order: Sequence[int], counts: Iterable[Array]) -> list[Array]:
    """`exact_answers` of many blocks; the counts come in the given order of blocks."""
    found: list[Array] = [np.empty(0, dtype=np.int64)] * len(table)
    factors = list(table.per_block([A for _, A in table.distinct]))
    for j, x in zip(order, counts, strict=True):
        found[j] = exact_answers(factors[j], x)
    return found


def kron_slabs(factors: Sequence[Matrix], x: Array, dtype: type[np.int64] | type[np.float64]) -> Array:
    """(⊗ factors) x, flat, in little memory besides x and the result: slabs of the first axis, then it in place.

    >>> from hdmm.matrix import Ones
    >>> kron_slabs([Ones(1, 2), Eye(2)], np.array([[1, 2], [3, 4]]), np.float64)
    array([4., 6.])
    """
    if not factors:
        return x.reshape(1).astype(dtype)
    head, *tail = factors
    m, n = head.shape
    rest = Kron(tuple(tail)) if tail else Eye(1)
    outer, inner = rest.shape
    flat = x.reshape(n, inner)
    out = np.empty((max(m, n), outer), dtype=dtype)
    rows, columns = max(1, _SLAB // max(inner, outer)), max(1, _SLAB // max(m, n))

    def along_the_rest(start: int) -> None:
        stop = min(start + rows, n)
        slab = flat[start:stop].astype(dtype, copy=False)
        out[start:stop] = rest.along(slab[:, :, None])[:, :, 0]

    def along_the_first(start: int) -> None:
        piece = np.ascontiguousarray(out[:n, start : start + columns])
        out[:m, start : start + columns] = head.along(piece[None])[0]

    run_parallel(along_the_rest, range(0, n, rows))
    if not isinstance(head, Eye):
        run_parallel(along_the_first, range(0, outer, columns))
    # In place, which drops the rows below: they hold exact values that are not released.
    out.resize(m * outer, refcheck=False)
    return out
