"""Matrices made from several others: Kron, Stack, Sum and Chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import add
from typing import Any, TypeVar, cast, final

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.elementary import Dense, Eye
from hdmm.matrix.matrix import Array, Matrix, Transpose, frozen, widened
from hdmm.matrix.wrapped import Scaled, scaled

# Neighbouring dense factors are multiplied out up to this size: up to there a pass over memory costs as much as
# its flops, so five factors of size 2 take the time of one.
_MERGED = 32

Rule = TypeVar("Rule", bound=Callable[..., object])


@final
@dataclass(frozen=True, slots=True)
class Kron(Matrix):
    """A₁ ⊗ … ⊗ A_d, never formed. Σᵢ cost(Aᵢ)·(entries/nᵢ) per column.

    >>> from hdmm.matrix import Ones, to_dense
    >>> to_dense(Kron((Ones(1, 2), Eye(2))))
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """

    factors: tuple[Matrix, ...]
    _shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", _parts(self.factors, "Kron"))
        shapes = [A.shape for A in self.factors]
        object.__setattr__(self, "_shape", (prod(m for m, _ in shapes), prod(n for _, n in shapes)))

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def along(self, X: Array) -> Array:
        """Each factor along its own axis; the factors that shrink the array most come first."""
        return _along_axes(self.factors, X)

    def along_t(self, X: Array) -> Array:
        """(⊗Aᵢ)ᵀ = ⊗Aᵢᵀ, applied the same way."""
        return _along_axes([A if isinstance(A, Eye) else A.T for A in self.factors], X)


@final
@dataclass(frozen=True, slots=True)
class Stack(Matrix):
    """[A₁; …; A_k], one below the other. Σⱼ cost(Aⱼ) per column.

    >>> from hdmm.matrix import Ones, to_dense
    >>> to_dense(Stack((Ones(1, 2), Eye(2))))
    array([[1., 1.],
           [1., 0.],
           [0., 1.]])
    """

    blocks: tuple[Matrix, ...]
    _rows: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _parts(self.blocks, "Stack"))
        n = self.blocks[0].shape[1]
        for j, A in enumerate(self.blocks):
            if A.shape[1] != n:
                raise MatrixError(
                    f"Block 0 of a Stack has {n} columns but block {j} has {A.shape[1]}; all need the same number."
                )
        object.__setattr__(self, "_rows", sum(A.shape[0] for A in self.blocks))

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, self.blocks[0].shape[1]

    def along(self, X: Array) -> Array:
        """The blocks' products, one below the other."""
        return np.concatenate([A.along(X) for A in self.blocks], axis=1)

    def along_t(self, X: Array) -> Array:
        """Σⱼ AⱼᵀXⱼ."""
        ends = np.cumsum([A.shape[0] for A in self.blocks]).tolist()
        starts = [0, *ends[:-1]]
        return _sum_of(A.along_t(X[:, a:b]) for A, a, b in zip(self.blocks, starts, ends, strict=True))


@final
@dataclass(frozen=True, slots=True)
class Sum(Matrix):
    """A₁ + … + A_k, all of one shape. Σⱼ cost(Aⱼ) per column.

    >>> from hdmm.matrix import Ones, to_dense
    >>> to_dense(Sum((Ones(2, 2), Eye(2))))
    array([[2., 1.],
           [1., 2.]])
    """

    terms: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", _parts(self.terms, "Sum"))
        shape = self.terms[0].shape
        for j, A in enumerate(self.terms):
            if A.shape != shape:
                raise MatrixError(f"All terms of a Sum need one shape; term 0 has {shape}, term {j} has {A.shape}.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0].shape

    def along(self, X: Array) -> Array:
        """Σⱼ AⱼX."""
        return _sum_of(A.along(X) for A in self.terms)

    def along_t(self, X: Array) -> Array:
        """Σⱼ AⱼᵀX."""
        return _sum_of(A.along_t(X) for A in self.terms)


def linear(rule: Rule) -> Rule:
    """The rule, dispatched on a matrix in which it is linear, with what follows from that for Scaled and Sum.

    >>> from functools import singledispatch
    >>> trace = linear(singledispatch(lambda A: np.trace(A.matmat(np.eye(A.shape[1])))))
    >>> float(trace(Sum((Eye(2), Scaled(2, Eye(2))))))
    6.0
    """
    dispatched = cast(Any, rule)

    @dispatched.register
    def _(A: Scaled, *others: Any) -> Any:
        return dispatched(A.inner, *others) * A.c

    @dispatched.register
    def _(A: Sum, *others: Any) -> Any:
        return reduce(add, (dispatched(B, *others) for B in A.terms))

    return rule


@final
@dataclass(frozen=True, slots=True)
class Chain(Matrix):
    """The product left·right, never formed. cost(left) + cost(right) per column.

    >>> from hdmm.matrix import Cumulative, Ones, to_dense
    >>> to_dense(Chain(Ones(1, 3), Cumulative(3)))
    array([[3., 2., 1.]])
    """

    left: Matrix
    right: Matrix

    def __post_init__(self) -> None:
        if self.left.shape[1] != self.right.shape[0]:
            raise MatrixError(
                f"A Chain multiplies {self.left.shape} by {self.right.shape}; the first must have as many "
                f"columns as the second has rows."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    def along(self, X: Array) -> Array:
        """left(right X)."""
        return self.left.along(self.right.along(X))

    def along_t(self, X: Array) -> Array:
        """rightᵀ(leftᵀ X)."""
        return self.right.along_t(self.left.along_t(X))


def summed(terms: Iterable[Matrix]) -> Matrix:
    """Σ of the terms; equal terms are merged into one Scaled, and a single term has no wrapper. O(terms).

    >>> summed([Eye(2), Scaled(2, Eye(2))])
    Scaled(c=3, inner=Eye(n=2))
    """
    coefficients: dict[Matrix, int | float] = {}
    for term in _terms(terms):
        c, A = (term.c, term.inner) if isinstance(term, Scaled) else (1, term)
        coefficients[A] = coefficients.get(A, 0) + c
    parts = tuple(scaled(c, A) for A, c in coefficients.items() if c != 0)
    if not parts:
        return Scaled(0, next(iter(coefficients)))
    return parts[0] if len(parts) == 1 else Sum(parts)


def _terms(terms: Iterable[Matrix]) -> Iterable[Matrix]:
    for term in terms:
        if isinstance(term, Sum):
            yield from _terms(term.terms)
        else:
            yield term


def _parts(parts: Iterable[Matrix], kind: str) -> tuple[Matrix, ...]:
    held = tuple(parts)
    if not held:
        raise MatrixError(f"{kind} needs at least one matrix.")
    types: list[type] = list(map(type, held))
    for cls in set(types):  # few types, perhaps very many parts
        if not issubclass(cls, Matrix):
            j = types.index(cls)
            raise MatrixError(f"{kind} takes matrices; number {j} is {cls.__name__}. Use Dense(array)?")
    return held


def _along_axes(factors: Sequence[Matrix], X: Array) -> Array:
    before, _, after = X.shape
    merged = _merged(factors)
    if before == after == 1 and len(merged) > 2:
        arrays = [_explicit(A) for A in merged]
        if all(array is not None and 0.5 <= len(array) / array.shape[1] <= 2 for array in arrays):
            return _in_turn([array for array in arrays if array is not None], X)
    sizes = [A.shape[1] for A in merged]
    values = X
    for i in sorted(range(len(merged)), key=lambda i: merged[i].shape[0] / max(1, sizes[i])):
        if isinstance(merged[i], Eye):
            continue
        left, right = before * prod(sizes[:i]), prod(sizes[i + 1 :]) * after
        values = merged[i].along(values.reshape(left, sizes[i], right))
        sizes[i] = merged[i].shape[0]
    return values.reshape(before, prod(sizes), after)


def _in_turn(arrays: list[Array], X: Array) -> Array:
    """Each factor along the last axis, which then comes first: one BLAS product per factor and no copies.

    With one thread this is as fast as products along inner axes; with two it is 4 times as fast on 64⁴ cells.
    """
    values = X
    for A in reversed(arrays):
        values = A @ values.reshape(-1, A.shape[1]).T
    return values.reshape(1, -1, 1)


def _merged(factors: Sequence[Matrix]) -> list[Matrix]:
    merged: list[Matrix] = []
    for A in factors:
        last = _explicit(merged[-1]) if merged else None
        this = _explicit(A)
        if this is None or last is None or max(this.shape) * max(last.shape) > _MERGED:
            merged.append(A)
        else:
            merged[-1] = Dense(frozen(np.kron(last, this)))
    return merged


def _explicit(A: Matrix) -> Array | None:
    """A's floats, if it is nothing else; integers gain nothing, because BLAS does not multiply them."""
    match A:
        case Dense(array) if array.dtype == np.float64:
            return array
        case Transpose(inner=Dense(array)) if array.dtype == np.float64:
            return array.T
        case _:
            return None


def _sum_of(products: Iterable[Array]) -> Array:
    return reduce(np.add, map(widened, products))
