"""The dual at Λ = λ ⊗ … ⊗ λ, without pinching, where d attributes can be exchanged and queries are on two at most.

With u = λ^½, M lives on products of u, in which one or two attributes have vectors a, b ⟂ u in its place: 1, e_i(a) and
e_ij(a, b). Exchanges of attributes leave it as it is, so that it falls into blocks, each over combinations that
exchanges lead into each other. With s for symmetric and t for antisymmetric combinations of a ⊗ b, and any x ⟂ 1:

    1,  Σ_i e_i(a),  Σ_ij e_ij(s)                                        once
    Σ x_i e_i(a),  Σ (x_i + x_j) e_ij(s),  Σ (x_i − x_j) e_ij(t)         d − 1 times
    pairs alone, s                                                       d(d − 3)/2 times
    pairs alone, t                                                       (d − 1)(d − 2)/2 times

So 100 attributes cost what three do. The best λ is found by descent: with p the marginal of diag M^½ on one attribute,
the derivative of log tr M^½ by log λ is p·d/2 over tr M^½.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special

from hdmm.bounds.joint_pinching import AskedSets
from hdmm.bounds.pinching import half
from hdmm.describe.product import Product
from hdmm.matrix import Array

_LEAST, _MOST_VALUES = 3, 40  # attributes, and values of each, fewer being left to others; a step takes two seconds
_WORK = 6e9  # Σ rows³ of eigenproblems of all steps
_STEPS = 60
_SETTLED = 1e-7  # a step with a smaller relative gain is the last


@final
@dataclass(frozen=True, slots=True, eq=False)
class AlikePairs:
    """What d attributes that can be exchanged are asked for: grams of one, of two in either order, and of the total."""

    d: int
    total: float
    one: Array
    two: Array

    @classmethod
    def of(cls, products: Sequence[Product]) -> AlikePairs | None:
        """None if attributes differ in what they are asked for, or products are on more than two of them."""
        if any(len(product.axes) > 2 for product in products):
            return None
        asked = AskedSets.of(products)
        if asked is None:
            return None
        active = sorted({i for sets in asked.weights for _, axes in sets for i in axes})
        if len(active) < _LEAST or len({asked.kinds[i] for i in active}) > 1:
            return None
        n, (i, j) = asked.sizes[asked.kinds[active[0]]], active[:2]
        if not _LEAST <= n <= _MOST_VALUES:
            return None
        grams: dict[tuple[int, ...], Array] = {
            (): np.zeros((1, 1)),
            (i,): np.zeros((n, n)),
            (i, j): np.zeros((n * n, n * n)),
        }
        for sets, square in asked.weights.items():
            order = [k for _, axes in sets for k in axes]
            if (place := tuple(sorted(order))) in grams:
                V = np.full((1, 1), square)
                for p, axes in sorted(sets, key=lambda each: each[1]):
                    V = np.kron(V, asked.gram(p, axes))
                if [k for _, axes in sorted(sets, key=lambda each: each[1]) for k in axes] != [*place]:
                    V = V.reshape((n,) * 4).transpose(1, 0, 3, 2).reshape(n * n, n * n)
                grams[place] += V
        return cls(len(active), float(grams[()][0, 0]), grams[i,], grams[i, j])

    def root(self) -> float:
        """tr M^½ at the best λ found, which is less than it is at the best Λ. O(n⁶) per step."""
        n, best = len(self.one), 0.0

        def loss(x: Array) -> tuple[float, Array]:
            nonlocal best
            lam = scipy.special.softmax(x)
            root, p = self.at(lam)
            best = max(best, root)
            return -math.log(root), -self.d / 2 * (p / root - lam)

        steps = max(1, min(_STEPS, int(_WORK / float(n) ** 6)))
        scipy.optimize.minimize(
            loss, np.zeros(n), jac=True, method="L-BFGS-B", options={"maxfun": steps, "ftol": _SETTLED}
        )
        return best

    def at(self, lam: Array) -> tuple[float, Array]:
        """(tr M^½, the marginal p of diag M^½ on one attribute) at Λ = ⊗λ."""
        d, m = self.d, len(lam) - 1
        u, c = np.sqrt(lam), slice(1, None)
        Q = np.linalg.qr(np.column_stack([u, np.eye(m + 1)]))[0][:, : m + 1]
        Q[:, 0] = u
        B = u[:, None] * Q
        one, both = B.T @ self.one @ B, np.kron(B, B)
        two = (both.T @ self.two @ both).reshape((m + 1,) * 4)
        S, T = _symmetric(m)
        D, beside = two[c, c, c, c].reshape(m * m, m * m), two[c, 0, c, c].reshape(m, m * m)
        same, other = one[c, c] + (d - 1) * two[c, 0, c, 0], two[c, 0, 0, c]
        total = np.array([[self.total + d * one[0, 0] + self._pairs * two[0, 0, 0, 0]]])
        single = math.sqrt(d) * (one[:1, c] + (d - 1) * two[0, 0, c, 0])
        pair = math.sqrt(self._pairs) * two[0, 0, c, c].reshape(1, m * m) @ S
        DS, DT, up = S.T @ D @ S, T.T @ D @ T, math.sqrt(2 * (d - 1)) * beside @ S
        across = np.hstack([math.sqrt(d - 2) * beside @ S, math.sqrt(d) * beside @ T])
        whole = [[total, single, pair], [single.T, same + (d - 1) * other, up], [pair.T, up.T, DS]]
        apart: list[list[Array]] = [[same - other, across], [across.T, np.asarray(scipy.linalg.block_diag(DS, DT))]]
        halves = half(np.block(whole)), half(np.block(apart)), half(DS), half(DT)
        root = math.fsum(k * float(np.trace(H)) for k, H in zip(self._often, halves, strict=True))
        first = self._on_first(*halves, S, T)
        first[0, 0] = root - np.trace(first)
        return root, np.maximum(np.einsum("va,ab,vb->v", Q, first, Q), 0.0)

    @property
    def _pairs(self) -> float:
        return self.d * (self.d - 1) / 2

    @property
    def _often(self) -> tuple[float, float, float, float]:
        """How often each of the four blocks counts."""
        return 1.0, self.d - 1.0, self.d * (self.d - 3) / 2, (self.d - 1) * (self.d - 2) / 2

    def _on_first(self, whole: Array, apart: Array, HS: Array, HT: Array, S: Array, T: Array) -> Array:
        """M^½ on the first attribute, summed over the others, but for its first entry."""
        d, m, pairs, (_, k, kS, kT) = self.d, len(self.one) - 1, self._pairs, self._often
        i, j, s, t = slice(1, m + 1), slice(m + 1, None), slice(m, m + S.shape[1]), slice(m + S.shape[1], None)
        pair = S @ (whole[j, j] + k * apart[s, s] + kS * HS) @ S.T + T @ (k * apart[t, t] + kT * HT) @ T.T
        single = (whole[i, i] + k * apart[:m, :m]) / d
        up = whole[i, j] / math.sqrt(pairs * d) + apart[:m, s] * (math.sqrt(d - 2) / d)  # from e_j(c) to e_1j(a, c)
        both = up @ S.T - apart[:m, t] @ T.T / math.sqrt(d)
        found = np.zeros((m + 1, m + 1))
        found[1:, 1:] = single + k / pairs * np.einsum("acbc->ab", pair.reshape((m,) * 4))
        found[0, 1:] = found[1:, 0] = whole[0, i] / math.sqrt(d) + k * np.einsum("cac->a", both.reshape(m, m, m))
        return found


def _symmetric(m: int) -> tuple[Array, Array]:
    """Orthonormal bases of the symmetric and of the antisymmetric m × m arrays, as columns."""
    rows, columns = np.triu_indices(m)
    E = np.eye(m * m).reshape(m * m, m, m)
    both = E + E.transpose(0, 2, 1), E - E.transpose(0, 2, 1)
    S, T = (each.reshape(m * m, m * m)[rows * m + columns] for each in both)
    T = T[rows != columns]
    return tuple([(each / np.linalg.norm(each, axis=1)[:, None]).T for each in (S, T)])
