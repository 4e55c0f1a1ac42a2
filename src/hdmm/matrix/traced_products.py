"""trace_product: tr(AB), with whichever factor's structure makes it cheapest."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.blocked import block_product
from hdmm.matrix.checks import frozen, inverse
from hdmm.matrix.compose import Kron, Sum
from hdmm.matrix.dense import columns, rows
from hdmm.matrix.elementary import Dense, Diag, Eye, Ones
from hdmm.matrix.grams import conjugated
from hdmm.matrix.listed import listed_rows
from hdmm.matrix.matrix import Matrix
from hdmm.matrix.nested import Forest, Nested, by_node, padded
from hdmm.matrix.residual_matrix import Residual
from hdmm.matrix.traces import diagonal, total, trace
from hdmm.matrix.wrapped import Conjugated, Gram, Scaled

_LARGEST = 2**17  # cells up to which the n products of the general rule are worth waiting for


def trace_product(A: Matrix, B: Matrix) -> float:
    """tr(AB) = Σ_ij a_ij b_ji of two n × n matrices; symmetric in its arguments.

    Linear in sums, factor by factor for two Krons; p products for AᵀA of p rows; at worst n products.

    >>> from hdmm.matrix import AllIntervals, gram
    >>> trace_product(Kron((Eye(3), Ones(2, 2))), Kron((gram(AllIntervals(3)), Eye(2))))
    20.0
    """
    if A.shape != B.shape or A.shape[0] != A.shape[1]:
        raise MatrixError(f"trace_product takes two square matrices of one size, not {A.shape} and {B.shape}.")
    for kind, rule in _RULES:  # the first rule that knows one of the matrices; tr(AB) = tr(BA)
        for first, second in ((A, B), (B, A)):
            value = rule(first, second) if isinstance(first, kind) else None
            if value is not None:
                return float(value)
    return _by_columns(A, B)


def _scaled(A: Scaled, B: Matrix) -> float:
    return A.c * trace_product(A.inner, B)


def _sum(A: Sum, B: Matrix) -> float:
    return sum(trace_product(term, B) for term in A.terms)


def _eye(A: Eye, B: Matrix) -> float:
    return trace(B)


def _ones(A: Ones, B: Matrix) -> float:
    return total(B)


def _diag(A: Diag, B: Matrix) -> float:
    return float(A.d.astype(np.float64) @ diagonal(B))


def _conjugated(A: Conjugated, B: Matrix) -> float | None:
    """tr(PᵀGP·QᵀHQ) = tr(G·(QPᵀ)ᵀH(QPᵀ))."""
    if not isinstance(B, Conjugated):
        return None
    if np.array_equal(A.index, B.index):
        return trace_product(A.inner, B.inner)
    return trace_product(A.inner, conjugated(B.inner, frozen(B.index[inverse(A.index)])))


def _residual(A: Residual, B: Matrix) -> float:
    return A.n * trace(B) - total(B)


def _kron(A: Kron, B: Matrix) -> float | None:
    """tr((⊗Aᵢ)(⊗Bᵢ)) = Π tr(AᵢBᵢ)."""
    if not isinstance(B, Kron) or [C.shape for C in A.factors] != [C.shape for C in B.factors]:
        return None
    if any(m != n for m, n in (C.shape for C in A.factors)):
        return None
    return prod(trace_product(C, D) for C, D in zip(A.factors, B.factors, strict=True))


def _nested(A: Gram, B: Matrix) -> float | None:
    """Σ over the nodes v of x_vᵀBx_v, one block product per level: O(nL) if B is of running sums or ranges."""
    F = A.inner
    if not isinstance(F, Nested):
        return None
    values = padded(F.values, F.widths)
    levels = zip(values, F.widths, strict=True)
    return sum(float(np.vdot(by_node(x, w), block_product(B, by_node(x, w)))) for x, w in levels)


def _forest(A: Gram, B: Matrix) -> float | None:
    """‖WFᵀ‖²_F for B = WᵀW, by the entries of both: O(nL) if W has disjoint rows."""
    if not isinstance(A.inner, Forest) or not isinstance(B, Gram) or (rows := listed_rows(B.inner)) is None:
        return None
    return float((rows @ A.inner.csr.T).power(2).sum())


def _gram(A: Gram, B: Matrix) -> float | None:
    """tr(FᵀF·B) = Σ_r f_r B f_rᵀ over the rows of F; with B = GᵀG it is ‖G Fᵀ‖²_F."""
    F = A.inner
    if F.shape[0] > F.shape[1]:
        return None
    if isinstance(B, Gram):
        if B.inner.shape[0] < F.shape[0]:
            return None  # the other way round has fewer rows to go through
        return sum(float(np.sum(B.inner.matmat(R) ** 2)) for _, R in rows(F))
    return sum(float(np.sum(R * B.matmat(R))) for _, R in rows(F))


def _dense(A: Dense, B: Matrix) -> float:
    if isinstance(B, Dense):
        return float(np.vdot(A.array.astype(np.float64, copy=False), B.array.T))
    return float(np.trace(B.matmat(A.array)))


def _by_columns(A: Matrix, B: Matrix) -> float:
    n = A.shape[0]
    if n > _LARGEST:
        raise MatrixError(
            f"tr(AB) of a {type(A).__name__} and a {type(B).__name__} with {n:,} cells has no structured "
            f"rule and would take {n:,} products. Write both as (sums of) Krons over the same attributes."
        )
    return sum(float(np.trace(A.matmat(block)[at])) for at, block in columns(B))


_RULES: tuple[tuple[type[Matrix], Callable[[Any, Matrix], float | None]], ...] = (
    (Scaled, _scaled),
    (Sum, _sum),
    (Eye, _eye),
    (Ones, _ones),
    (Residual, _residual),
    (Diag, _diag),
    (Conjugated, _conjugated),
    (Kron, _kron),
    (Gram, _nested),
    (Gram, _forest),
    (Gram, _gram),
    (Dense, _dense),
)
