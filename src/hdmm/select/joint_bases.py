"""Two free attributes: one base each for the blocks that hold both, and another for those that hold one of them.

In each class of the other attributes X = ωA⊗B + αA′⊗J + βJ⊗B′ + τJ⊗J with J = 11ᵀ. For every attribute let H = A⁻¹ of
the joint base, u = H1/1ᵀH1, κ = 1/1ᵀH1, and M = ωκ₁A + αA′ (the other attribute's κ), y = M⁻¹1/1ᵀM⁻¹1, ε = 1/1ᵀM⁻¹1.
The form of coupled.py is then, for what V₀⊗V₁ asks,

    tr(X⁻¹(V₀⊗V₁)) = r₀r₁/ω + t₀p₁ + p₀t₁ + (m₀p₁ − 2x₀p₁ + 2x₀x₁ + p₀p₁ − 2p₀x₁ + p₀m₁)/σ
    r = tr(HV) − p/κ,  t = tr(M⁻¹V) − m/ε,  p = uᵀVu,  x = uᵀVy,  m = yᵀVy,  σ = ε₀ + ε₁ − ωκ₀κ₁ + τ

so that nothing of size n₀n₁ is formed, and r, t, u, y, κ, ε and their gradients come from one inverse each (`Inverse`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

from hdmm.matrix import Array, to_dense
from hdmm.select.family import Explicit
from hdmm.select.pairs import Grams


@final
@dataclass(frozen=True, slots=True, eq=False)
class JointBases:
    """The families A, B, A′ and B′; blocks are of four kinds: A⊗B, A′⊗J, J⊗B′ and J⊗J. O(n₀³ + n₁³) per class."""

    kinds: ClassVar[int] = 4

    families: tuple[Explicit, ...]
    V: tuple[Array, Array]  # the grams that are asked for, 0 for those that are α11ᵀ
    totals: tuple[Array, Array]  # the α of those, else 0

    @classmethod
    def of(cls, families: Sequence[Explicit], grams: Sequence[Grams]) -> JointBases:
        first, second = grams
        return cls(tuple(families), (_asked(first), _asked(second)), (first.totals, second.totals))

    def at(self, xs: Sequence[Array], weights: Array) -> JointBasesAt | None:
        """The state in which the classes have these weights of the four kinds (ω, α, β, τ); None if one is singular."""
        grams = [f.gram(x) for f, x in zip(self.families, xs, strict=True)]
        first, second = (Inverse.of(G, V) for G, V in zip(grams[:2], self.V, strict=True))
        if first is None or second is None:
            return None
        classes: list[tuple[Inverse | None, Inverse | None]] = []
        for omega, alpha, beta, _ in weights.tolist():
            sides = omega * second.epsilon, omega * first.epsilon
            M = [s * grams[i] + w * grams[2 + i] for i, (s, w) in enumerate(zip(sides, (alpha, beta), strict=True))]
            found = [Inverse.of(each, V) if each.any() else None for each, V in zip(M, self.V, strict=True)]
            if any(each.any() and inverse is None for each, inverse in zip(M, found, strict=True)):
                return None
            classes.append((found[0], found[1]))
        return JointBasesAt(self, grams, weights, (first, second), classes)


@final
@dataclass(frozen=True, slots=True, eq=False)
class JointBasesAt:
    """The inverses of the joint bases, and of every class those of M on both sides, None where nothing is measured."""

    kernel: JointBases
    of_bases: Sequence[Array]
    weights: Array
    joint: tuple[Inverse, Inverse]
    classes: Sequence[tuple[Inverse | None, Inverse | None]]

    @property
    def traces(self) -> Array:
        """tr(X⁻¹(V₀⊗V₁)), classes × pairs of grams; infinite where that is not measured."""
        found: list[Array] = []
        active = [totals == 0 for totals in self.kernel.totals]
        for b, (omega, _, _, _) in enumerate(self.weights.tolist()):
            (r0, t0, p0, x0, m0), (r1, t1, p1, x1, m1) = (self._side(b, i) for i in (0, 1))
            sigma = self._sigma(b)
            if not sigma > 0:
                found.append(np.full((len(p0), len(p1)), math.inf))
                continue
            f = np.outer(t0, p1) + np.outer(p0, t1) + _total_part((p0, x0, m0), (p1, x1, m1)) / sigma
            lost = np.zeros(f.shape, dtype=bool)
            if omega > 0:
                f += np.outer(r0, r1) / omega
            else:
                lost |= np.outer(*active)
            for i, side in enumerate(self.classes[b]):
                if side is None:
                    lost |= active[0][:, None] if i == 0 else active[1]
            found.append(np.where(lost, math.inf, f))
        return np.stack(found).reshape(len(found), -1)

    def back(self, asks: Array) -> tuple[Array, list[Array]]:
        """(∂F/∂weights, ∂F/∂G of every family) of F = Σ asks∘traces."""
        by_weights = np.zeros_like(self.weights)
        by_gram = [np.zeros_like(G) for G in self.of_bases]
        by_r, by_u = ([np.zeros(len(each)) for each in arrays] for arrays in (self.kernel.V, self.of_bases[:2]))
        by_kappa = [0.0, 0.0]
        kappa = [each.epsilon for each in self.joint]
        for b in np.flatnonzero((asks > 0).any(axis=1)).tolist():
            a = asks[b].reshape(len(by_r[0]), len(by_r[1]))
            omega, *single, _ = self.weights[b].tolist()
            sides = [self._side(b, i) for i in (0, 1)]
            sigma = self._sigma(b)
            (p0, x0, m0), (p1, x1, m1) = (side[2:] for side in sides)
            by_sigma = -float(np.vdot(a, _total_part((p0, x0, m0), (p1, x1, m1)))) / sigma**2
            by_omega = -kappa[0] * kappa[1] * by_sigma
            if omega > 0:
                by_omega -= float(sides[0][0] @ a @ sides[1][0]) / omega**2
            for i, A in enumerate((a, a.T)):
                own, M, s = self.joint[i], self.classes[b][i], omega * kappa[1 - i]
                if M is None:
                    continue  # totals alone are asked for, and no base changes them
                r, t, p, x, m = sides[1 - i]
                by_x, by_t = 2 * A @ (x - p) / sigma, A @ p
                by_u[i] += 2 * A @ (t + (p - 2 * x + m) / sigma) @ own.Vy + by_x @ M.Vy
                by_M = M.back(by_t, by_x @ own.Vy + 2 / sigma * by_t @ M.Vy, by_sigma, self.kernel.V[i])
                by_s = float(np.vdot(by_M, self.of_bases[i]))
                by_omega += kappa[1 - i] * by_s
                by_kappa[i] -= s * by_sigma
                by_kappa[1 - i] += omega * by_s
                by_weights[b, 1 + i] = np.vdot(by_M, self.of_bases[2 + i])
                by_gram[i] += s * by_M
                by_gram[2 + i] += single[i] * by_M
                if omega > 0:
                    by_r[i] += A @ r / omega
            by_weights[b, 0], by_weights[b, 3] = by_omega, by_sigma
        for i, own in enumerate(self.joint):
            by_gram[i] += own.back(by_r[i], by_u[i], by_kappa[i], self.kernel.V[i])
        return by_weights, by_gram

    def _side(self, b: int, i: int) -> tuple[Array, Array, Array, Array, Array]:
        """(r, t, p, x, m) of one attribute in a class; where nothing is measured y is u, and t is not needed."""
        own, M, totals = self.joint[i], self.classes[b][i], self.kernel.totals[i]
        p = own.Vy @ own.y + totals
        if M is None:
            return own.rest, np.zeros_like(p), p, p, p
        return own.rest, M.rest, p, M.Vy @ own.y + totals, M.Vy @ M.y + totals

    def _sigma(self, b: int) -> float:
        omega, tau = self.weights[b, 0], self.weights[b, 3]
        epsilon = [0.0 if M is None else M.epsilon for M in self.classes[b]]
        return float(epsilon[0] + (epsilon[1] - omega * self.joint[0].epsilon * self.joint[1].epsilon) + tau)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Inverse:
    """P = M⁻¹ with y = P1/1ᵀP1 and ε = 1/1ᵀP1; Vy of the grams, and `rest`, tr(PV) − yᵀVy/ε, what the total leaves."""

    P: Array
    y: Array
    epsilon: float
    Vy: Array
    rest: Array

    @classmethod
    def of(cls, M: Array, V: Array) -> Inverse | None:
        """None if M is singular. O(n³)."""
        P = positive_inverse(M)
        if P is None:
            return None
        g = P.sum(axis=1)
        epsilon = 1 / float(g.sum())
        y = epsilon * g
        Vy = V @ y
        rest = V.reshape(len(V), -1) @ P.ravel() - Vy @ y / epsilon
        return cls(P, y, epsilon, Vy, np.maximum(rest, 0.0))

    def back(self, by_rest: Array, by_y: Array, by_epsilon: float, V: Array) -> Array:
        """∂F/∂M = −P(∂F/∂P)P, from ∂F by `rest`, y and ε."""
        W = np.tensordot(by_rest, V, axes=1)
        Wy = W @ self.y
        by_g = self.epsilon * by_y - 2 * Wy
        by_e = float(self.y @ Wy) - self.epsilon * float(by_y @ self.y) - self.epsilon**2 * by_epsilon
        g = self.y / self.epsilon
        row = self.P @ by_g + by_e * g
        return -(self.P @ W @ self.P + (np.outer(row, g) + np.outer(g, row)) / 2)


def positive_inverse(X: Array) -> Array | None:
    """X⁻¹ of a positive definite matrix; None if it is not. O(n³)."""
    L, failed = dpotrf(X, lower=1, clean=1)
    half, singular = (L, 1) if failed else dpotri(L, lower=1, overwrite_c=1)
    if singular:
        return None
    half.flat[:: len(X) + 1] /= 2
    return half + half.T


def _total_part(first: tuple[Array, Array, Array], second: tuple[Array, Array, Array]) -> Array:
    """wᵀ(V₀⊗V₁)w for w = y₀⊗u₁ + u₀⊗y₁ − u₀⊗u₁, from (p, x, m) of both attributes."""
    (p0, x0, m0), (p1, x1, m1) = first, second
    return np.outer(m0 - 2 * x0 + p0, p1) - 2 * np.outer(p0 - x0, x1) + np.outer(p0, m1)


def _asked(grams: Grams) -> Array:
    found = np.stack([to_dense(V).astype(np.float64) for V in grams.matrices])
    found[[v for v in range(len(found)) if v not in grams.active]] = 0.0
    return found
