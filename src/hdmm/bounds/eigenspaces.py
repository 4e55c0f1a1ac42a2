"""The dual of selection for Gaussian noise over a union: tr (Λ^½VΛ^½)^½, by eigenspaces of the even attributes.

On an even attribute all grams are aI + b11ᵀ, so V stays the same when its values are permuted. tr (Λ^½VΛ^½)^½ is
concave in Λ, so Λ averaged over all orders of the values is no worse, and the average is constant on that attribute.
Then 1 and its complement are eigenspaces, of dimensions 1 and n − 1, whatever the other attributes ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, final

import numpy as np

from hdmm.matrix import Array, Matrix, to_dense, total, trace
from hdmm.select.terms import Terms, is_total
from hdmm.strategy.mixture import Mixture
from hdmm.strategy.subsets import Subsets

Pattern: TypeAlias = tuple[tuple[int, int], ...]
"""(attribute, which of its grams) for the attributes that a product does not total, ascending."""

LARGEST_EIGENPROBLEM = 5_100  # values of an attribute, and rows of an eigenproblem: 15 s
_MOST_CELLS = 1 << 22  # eigenspaces of the even attributes, times patterns of the others


@final
@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """tr M^½ = Σ_c roots[c]·tr (Σ_q shares[c, q]·M_q)^½, where q is a pattern of grams on attributes that are not even.

    Only eigenspaces of the even attributes that a product reaches count, however many attributes there are; those in
    which the other attributes are asked for in the same proportions form one class. `axes` are the places of the other
    attributes among those of the terms, and `grams` holds the grams of each, None for Total.
    """

    roots: Array
    shares: Array
    patterns: tuple[Pattern, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    grams: tuple[tuple[Array | None, ...], ...]

    @classmethod
    def of(cls, terms: Terms) -> Classes | None:
        """The classes of the terms; None if there are too many, or too many values. O(Σ_k 2^s_k), s_k = even attributes
        of term k that are not totalled."""
        even = terms.even()
        axes = tuple(i for i, each in enumerate(even) if not each)
        sizes = tuple(terms.sizes[i] for i in axes)
        if max(sizes, default=0) > LARGEST_EIGENPROBLEM:
            return None
        patterns, which = np.unique(terms.choices[:, axes], axis=0, return_inverse=True)
        asked = _asked(terms, [i for i, each in enumerate(even) if each], which.ravel(), len(patterns))
        if asked is None:
            return None
        sums = asked.sum(axis=1)
        shares = asked / sums[:, None]
        _, first, same = np.unique(shares.round(13), axis=0, return_index=True, return_inverse=True)
        written = cache(_written)  # equal grams become one array
        grams = tuple(tuple(map(written, terms.grams[i])) for i in axes)
        named = [tuple((i, v) for i, v in enumerate(row) if grams[i][v] is not None) for row in patterns.tolist()]
        roots = np.bincount(same.ravel(), weights=np.sqrt(sums))
        return cls(roots, shares[first], tuple(named), axes, sizes, grams)

    def __iter__(self) -> Iterator[tuple[float, dict[Pattern, float]]]:
        """(root, share of each pattern that takes part) of every class."""
        for root, row in zip(self.roots.tolist(), self.shares, strict=True):
            found: dict[Pattern, float] = {}
            for q in np.flatnonzero(row).tolist():  # several if Total is also written in another way
                found[self.patterns[q]] = found.get(self.patterns[q], 0.0) + float(row[q])
            yield root, found


def _written(V: Matrix) -> Array | None:
    return None if is_total(V) else to_dense(V).astype(np.float64)


def _asked(terms: Terms, even: Sequence[int], which: Array, patterns: int) -> Array | None:
    """The demand of each reached eigenspace of the even attributes, by pattern; None if there are too many.

    Its dimension μ is included: to tr M^½, an eigenvalue that occurs μ times is the same as μ² times it once.
    """
    if not even:
        return np.bincount(which, weights=terms.coefficients)[None, :]
    choices = terms.choices[:, even]
    tables = tuple(
        np.array([even_eigenvalues(V) for V in terms.grams[i]]).T * np.array([[1.0], [(terms.sizes[i] - 1.0) ** 2]])
        for i in even
    )
    active = sum((table[1, choices[:, j]] > 0 for j, table in enumerate(tables)), np.zeros(len(choices)))
    if np.exp2(active).sum() > _MOST_CELLS:
        return None
    rows = [np.flatnonzero(which == q) for q in range(patterns)]
    cells = [Mixture(terms.coefficients[each], choices[each], tables).sparse for each in rows]
    keys, _ = Subsets.joined([each.keys for each in cells]).distinct()
    if len(keys) * patterns > _MOST_CELLS:
        return None
    asked = np.stack([each.at(keys) for each in cells], axis=1)
    return asked[asked.any(axis=1)]


def even_eigenvalues(V: Matrix) -> tuple[float, float]:
    """The eigenvalues of V/n on 1 and on its complement, where V = aI + b11ᵀ.

    >>> from hdmm.matrix import Eye, Ones
    >>> even_eigenvalues(Eye(4)), even_eigenvalues(Ones(4, 4))
    ((0.25, 0.25), (1.0, 0.0))
    """
    n = V.shape[0]
    first = total(V) / n**2
    return first, 0.0 if is_total(V) else max(trace(V) / n - first, 0.0) / (n - 1)
