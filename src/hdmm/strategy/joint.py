"""The loss of marginals over p-Identity bases, in the weights θ and the bases' Θ_i at once, with its gradient.

With F = Σ_b t_b/λ_b, q = 1/λ, g = down(t/λ²), and H_i, h_i = H_i1, c_i = 1ᵀh_i of base i (demand.py):

    ∂F/∂c_i   = (1/c_i)·(Σ_{a∋i} θ_a² g_a − Σ_{b∋i} t_b/λ_b)
    ∂F/∂g_ki  = w_k²·(the sum of q over product k's eigenspaces, its other factors multiplied in)
    ∂F/∂H_i   = Σ_k φ₁V_k + (m1ᵀ + 1mᵀ)/2 + κ11ᵀ,   φ₀ = ∂F/∂g₀, φ₁ = ∂F/∂g₁,
                m = Σ_k 2(φ₀/c² − φ₁/c)·V_kh,   κ = ∂F/∂c_i + Σ_k (φ₁/c² − 2φ₀/c³)·hᵀV_kh

and the last, as the V of OPT_0's gradient, gives ∂F/∂Θ_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hdmm.matrix import Array, Chain, Dense, Eye, Matrix, Ones, Scaled, Sum, diagonal, gram_inverse, to_dense
from hdmm.predicates import PredicateSet, Total
from hdmm.strategy.budget import slopes
from hdmm.strategy.demand import Demand, counted, shares, spread
from hdmm.strategy.mixture import tabulate
from hdmm.strategy.subsets import Listed, membership
from hdmm.strategy.theta import DenseTheta
from hdmm.workload import Workload

MAX_TERMS = 1 << 21  # Σ_k 2^s_k: eigenspaces of the products, repeats counted


@final
@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Products with equally many attributes that are not totalled: s of them.

    `pairs` is products × s: which (attribute, predicate set) each factor is; `cells` is products × 2^s: the
    places of its eigenspaces, the first attribute slowest and its total first.
    """

    squares: Array
    pairs: Array
    cells: Array

    def values(self, g0: Array, g1: Array) -> Array:
        """w² Π g of every eigenspace of every product. O(products·2^s)."""
        return _kron(g0[self.pairs], g1[self.pairs]) * self.squares[:, None]

    def slopes(self, g0: Array, g1: Array, q: Array) -> Array:
        """(φ₀, φ₁) by pair: the derivatives of Σ q·values. O(products·s·2^s)."""
        v0, v1 = g0[self.pairs], g1[self.pairs]
        Q = q[self.cells] * self.squares[:, None]
        rows, s = self.pairs.shape
        out = np.zeros((2, len(g0)))
        for j in range(s):
            left, right = _kron(v0[:, :j], v1[:, :j]), _kron(v0[:, j + 1 :], v1[:, j + 1 :])
            sums = np.einsum("rl,rlxt,rt->xr", left, Q.reshape(rows, 1 << j, 2, -1), right)
            for x in (0, 1):
                out[x] += np.bincount(self.pairs[:, j], weights=sums[x], minlength=len(g0))
        return out


@final
@dataclass(frozen=True, slots=True, eq=False)
class JointLoss:
    """(Σθ)²·Σ t/λ over fixed subsets, as a function of θ and of Θ_i of some attributes; other bases are fixed.

    `inside` and `outside` are the memberships of eigenspaces and subsets, `held` says which holds which.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    sets: tuple[tuple[PredicateSet, ...], ...]
    starts: Array
    groups: tuple[Terms, ...]
    fixed: Mapping[int, Matrix]
    scale: float
    inside: Array
    outside: Array
    held: Array

    @classmethod
    def of(cls, workload: Workload, asked: Demand, subsets: Sequence[int], fixed: Mapping[int, Matrix]) -> JointLoss:
        """The loss on the eigenspaces of `asked`; `fixed` has the bases (by axis) that stay as they are."""
        products = counted(workload)
        shape = workload.domain.shape
        totals: list[PredicateSet] = [Total()] * len(shape)
        choices, sets = tabulate([product.factors for product in products], totals)
        plain = [np.array([shares(Eye(n), p, n) for p in each]) for each, n in zip(sets, shape, strict=True)]
        starts = np.cumsum([0] + [len(sets[i]) for i in asked.axes])
        squares = np.array([product.weight for product in products]) ** 2
        largest = float(squares.max())
        place: dict[int, int] = {}
        rows: dict[int, list[tuple[float, list[int], list[int]]]] = {}
        for k, row in enumerate(choices.tolist()):
            seen = [(j, i) for j, i in enumerate(asked.axes) if plain[i][row[i], 1] > 0]
            active = {i for _, i in seen}
            # A set that sees only the total has the same share whatever the base.
            constant = float(np.prod([plain[i][row[i], 0] for i in range(len(shape)) if i not in active]))
            masks = [0]
            for j, _ in seen:
                masks = [m for mask in masks for m in (mask, mask | 1 << j)]
            pairs = [int(starts[j]) + row[i] for j, i in seen]
            cells = [place.setdefault(m, len(place)) for m in masks]
            rows.setdefault(len(seen), []).append((float(squares[k]) / largest * constant, pairs, cells))
        groups = tuple(
            Terms(
                np.array([square for square, _, _ in each]),
                np.array([pairs for _, pairs, _ in each], dtype=np.int64).reshape(len(each), s),
                np.array([cells for _, _, cells in each], dtype=np.int64),
            )
            for s, each in sorted(rows.items())
        )
        inside, outside = membership(list(place), len(asked.axes)), membership(subsets, len(asked.axes))
        held = inside @ outside.T == inside.sum(axis=1)[:, None]
        sets_of = tuple(sets[i] for i in asked.axes)
        return cls(asked.axes, asked.sizes, sets_of, starts, groups, fixed, largest, inside, outside, held)

    def __call__(self, theta: Array, bases: Mapping[int, Array]) -> tuple[float, Array, dict[int, Array]]:
        """(loss, ∂/∂θ, ∂/∂Θ_i by axis); the loss is the workload's error. One product with each V a base."""
        states = [self._state(j, axis, bases) for j, axis in enumerate(self.axes)]
        F, g, phi, by_c = self._slopes(theta * theta, states)
        if not math.isfinite(F):
            return math.inf, np.zeros_like(theta), {i: np.zeros_like(each) for i, each in bases.items()}
        S = float(theta.sum())
        scale = self.scale * S * S
        by_base: dict[int, Array] = {}
        for j, axis in enumerate(self.axes):
            if axis in bases:
                U, diag = states[j].product(phi[:, self.starts[j] : self.starts[j + 1]], float(by_c[j]))
                H = DenseTheta(None).inverse(bases[axis])
                by_base[axis] = scale * H.gradient(U, H.crossed(U), diag)
        return scale * F, 2 * self.scale * S * (F - S * theta * g), by_base

    def surrogates(self, theta: Array) -> dict[int, Matrix]:
        """∂F/∂H_i by axis, of the fixed bases: the gram matrix that attribute i's base should suit."""
        states = [
            _State.of(*_inverse(self.fixed.get(axis, Eye(n))), [p.gram(n) for p in sets])
            for axis, n, sets in zip(self.axes, self.sizes, self.sets, strict=True)
        ]
        _, _, phi, by_c = self._slopes(theta * theta, states)
        return {
            axis: states[j].surrogate(phi[:, self.starts[j] : self.starts[j + 1]], float(by_c[j]))
            for j, axis in enumerate(self.axes)
        }

    def _slopes(self, u: Array, states: Sequence[_State]) -> tuple[float, Array, Array, Array]:
        """(F, g, [φ₀; φ₁] by pair, ∂F/∂c_i)."""
        g0 = np.concatenate([state.g0 for state in states])
        g1 = np.concatenate([state.g1 for state in states])
        t = np.zeros(len(self.inside))
        for group in self.groups:
            t += np.bincount(group.cells.ravel(), weights=group.values(g0, g1).ravel(), minlength=len(t))
        t = np.maximum(t, 0.0)
        c = np.array([state.c for state in states])
        lattice = self._lattice(1 / c)
        F, g, quotient = slopes(lattice, t, u)
        if not math.isfinite(float(F)):
            return math.inf, g, np.zeros((2, len(g0))), c
        with np.errstate(divide="ignore"):
            q = 1 / lattice.up(u)
        phi = np.zeros((2, len(g0)))
        for group in self.groups:
            phi += group.slopes(g0, g1, q)
        return float(F), g, phi, (self.outside.T @ (u * g) - self.inside.T @ quotient) / c

    def _lattice(self, gamma: Array) -> Listed:
        logs = np.log(gamma)
        exponents = (self.outside @ logs)[None, :] - (self.inside @ logs)[:, None]
        return Listed(np.exp(np.where(self.held, exponents, -np.inf)))

    def _state(self, j: int, axis: int, bases: Mapping[int, Array]) -> _State:
        sets, n = self.sets[j], self.sizes[j]
        if axis in bases:
            return _State.of(*_p_identity_inverse(bases[axis]), [p.gram(n) for p in sets])
        B = self.fixed.get(axis, Eye(n))
        pairs = np.array([shares(B, p, n) for p in sets])
        return _State((), spread(B), pairs[:, 0], pairs[:, 1], np.empty((0, 0)), np.empty((0, 0)), ())


@final
@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What one attribute's base says of its predicate sets: c, g₀ and g₁ a set, and V_kh and BV_k to go back by."""

    grams: Sequence[Matrix]
    c: float
    g0: Array
    g1: Array
    Vh: Array
    B: Array
    BV: Sequence[Array]

    @classmethod
    def of(cls, scale: Array, B: Array, R: Array, grams: Sequence[Matrix]) -> _State:
        """From H = diag(scale) − BᵀRB. One product with each V, O(np²)."""
        h = scale - B.T @ (R @ B.sum(axis=1))
        c = float(h.sum())
        rows = np.concatenate([B, h[None, :]])[:, :, None]
        g0, g1, Vh = np.empty(len(grams)), np.empty(len(grams)), np.empty((len(grams), len(h)))
        BV: list[Array] = []
        for k, V in enumerate(grams):
            if isinstance(V, Ones):  # Total: exact, whatever the base
                g0[k], g1[k], Vh[k] = 1.0, 0.0, c
                BV.append(np.empty((0, 0)))
                continue
            product = V.along(rows)[:, :, 0]
            BV.append(product[:-1])
            Vh[k] = product[-1]
            across = float(h @ Vh[k])
            whole = float(scale @ diagonal(V)) - float(np.vdot(R, product[:-1] @ B.T))
            g0[k], g1[k] = across / c**2, whole - across / c
        return cls(grams, c, g0, g1, Vh, B, BV)

    def surrogate(self, phi: Array, by_c: float) -> Matrix:
        """M = ∂F/∂H of this base, from [φ₀; φ₁] of its sets and ∂F/∂c."""
        weights, row = self._parts(phi, by_c)
        n = len(row)
        terms: list[Matrix] = [Chain(Dense(row[:, None]), Ones(1, n)), Chain(Ones(n, 1), Dense(row[None, :]))]
        return Sum((*terms, *(Scaled(f, V) for f, V in zip(weights, self.grams, strict=True) if f)))

    def product(self, phi: Array, by_c: float) -> tuple[Array, Array]:
        """(BM, diag M) of the same M. O(np) a set."""
        weights, row = self._parts(phi, by_c)
        BM = np.multiply.outer(self.B.sum(axis=1), row)
        BM += (self.B @ row)[:, None]
        diag = 2 * row
        for f, V, BV in zip(weights, self.grams, self.BV, strict=True):
            if f:
                BM += f * BV
                diag = diag + f * diagonal(V)
        return BM, diag

    def _parts(self, phi: Array, by_c: float) -> tuple[list[float], Array]:
        """(φ₁ of the sets, m/2 + κ1/2): M = Σ φ₁V + row·1ᵀ + 1·rowᵀ."""
        c = self.c
        seen = [not isinstance(V, Ones) for V in self.grams]  # no base changes the shares of Total
        phi0, phi1 = np.where(seen, phi, 0.0)
        kappa = by_c + float((phi1 - 2 * phi0 / c) @ self.g0)  # hᵀVh = g₀c²
        return phi1.tolist(), (phi0 / c**2 - phi1 / c) @ self.Vh + kappa / 2


def _p_identity_inverse(theta: Array) -> tuple[Array, Array, Array]:
    """(s², B, R) with H = diag(s²) − BᵀRB, B = Θ·diag(s) and R = (I + ΘΘᵀ)⁻¹. O(np²)."""
    s = 1.0 + theta.sum(axis=0)
    eye = np.eye(len(theta))
    factor = cho_factor(eye + theta @ theta.T, lower=True, check_finite=False)
    return s * s, theta * s, cho_solve(factor, eye, check_finite=False)


def _inverse(B: Matrix) -> tuple[Array, Array, Array]:
    """The same three of any base: H = 0 − I·(−H)·I, written out."""
    n = B.shape[1]
    if isinstance(B, Eye):
        return np.ones(n), np.empty((0, n)), np.empty((0, 0))
    return np.zeros(n), np.eye(n), -to_dense(gram_inverse(B))


def term_count(workload: Workload, asked: Demand) -> float:
    """Σ_k 2^s_k, the cost of one joint loss besides the bases.

    >>> from hdmm import Domain
    >>> from hdmm.strategy.demand import demand
    >>> w = Workload.marginals(Domain({"a": 2, "b": 3}), k=range(3))
    >>> term_count(w, demand(w))
    9.0
    """
    active = set(asked.axes)
    return float(sum(2.0 ** sum(i in active for i, _ in product.factors) for product in counted(workload)))


def _kron(v0: Array, v1: Array) -> Array:
    """Row by row (v0, v1) ⊗ … ⊗ (v0, v1), the first column slowest."""
    part = np.ones((len(v0), 1))
    for j in range(v0.shape[1]):
        part = (part[:, :, None] * np.stack([v0[:, j], v1[:, j]], axis=1)[:, None, :]).reshape(len(v0), -1)
    return part
