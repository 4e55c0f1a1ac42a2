"""What a release promises: how probable an event may be on one table if it has probability q on a neighbouring one.

A claim is a set of inequalities P(S) ≤ e^ε·Q(S) + δ, for every event S and both orders of the two tables. `permitted`
is the least of them at a given q. `level` is the least privacy parameter at which p and q are both possible: the
violation is searched for along the whole privacy curve, as Delta-Siege does (Lokna, Paradis, Dimitrov and Vechev,
"Group and Attack: Auditing Differential Privacy", 2023), and not at one (ε, δ) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]


class Claim(Protocol):
    """A promise about the outputs on neighbouring tables."""

    @property
    def promised(self) -> float:
        """The privacy parameter that `level` is compared with."""
        ...

    def permitted(self, q: Floats) -> Floats:
        """The largest probability on one table of an event that has probability q on the other."""
        ...

    def level(self, p: Floats, q: Floats) -> Floats:
        """The least parameter under which an event may have probabilities p and q; −∞ where any will do."""
        ...


@dataclass(frozen=True, slots=True)
class Hockey:
    """(ε, δ): the hockey-stick divergence sup_S P(S) − e^ε·Q(S) is at most δ. With δ = 0, pure ε."""

    epsilon: float
    delta: float = 0.0

    @property
    def promised(self) -> float:
        return self.epsilon

    def permitted(self, q: Floats) -> Floats:
        """The second bound is the first, for the complements and the other order of the tables."""
        grown, shrunk = math.exp(self.epsilon), math.exp(-self.epsilon)
        return np.minimum(grown * q + self.delta, 1 - shrunk * (1 - self.delta - q))

    def level(self, p: Floats, q: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log((p - self.delta) / q)
        return np.where((p > self.delta) & (q > 0), found, -np.inf)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The curve of the Gaussian mechanism that is ρ-zCDP, μ = √(2ρ); the level is ρ.

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) (Balle and Wang 2018); the least over all ε of e^ε·q + δ(ε) is
    Φ(Φ⁻¹(q) + μ) (Dong, Roth and Su 2022), so that one comparison searches the whole curve. It is a stronger claim than
    ρ-zCDP, and the one that Gaussian noise keeps. Discrete noise of 64 steps or more, as of every release, differs from
    it by less than 2²⁰ samples can show (tests/referee/test_oracles.py compares the two).
    """

    rho: float

    @property
    def promised(self) -> float:
        return self.rho

    def permitted(self, q: Floats) -> Floats:
        return ndtr(ndtri(q) + math.sqrt(2 * self.rho))

    def level(self, p: Floats, q: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            mu = ndtri(p) - ndtri(q)
        return np.where((p > 0) & (q < 1) & (mu > 0), mu**2 / 2, -np.inf)

    def delta(self, epsilon: float) -> float:
        """δ(ε), for any real ε."""
        mu = math.sqrt(2 * self.rho)
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
