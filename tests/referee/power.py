"""The computed probability that a tester finds a violation."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from tests.referee.claims import Claim
from tests.referee.testers import ALPHA, at_most


def power(claim: Claim, p: float, q: float, held: int, alpha: float = ALPHA) -> float:
    """The probability that an event of probabilities p and q, seen in `held` outputs of each table, shows a violation.

    Σ_y P(Y = y)·P(X > k(y)), X and Y binomial: the lower end of x exceeds c if and only if P(Bin(held, c) ≥ x) < α/2.
    """
    low, high = binom.ppf([1e-12, 1 - 1e-12], held, q)
    y = np.arange(low, high + 1)
    permitted = np.clip(claim.permitted(at_most(y, held, alpha / 2)), 0.0, 1.0)
    return float(np.sum(binom.pmf(y, held, q) * binom.sf(binom.isf(alpha / 2, held, permitted), held, p)))


def laplace_event(epsilon: float, numbers: int) -> tuple[float, float]:
    """An event of loss ε: all the numbers that a person moves are beyond their values with the person.

    >>> p, q = laplace_event(1.0, 2)
    >>> p, round(q, 4)
    (0.25, 0.092)
    """
    p = 0.5**numbers
    return p, math.exp(-epsilon) * p


def gaussian_event(rho: float, beyond: float = 0.0) -> tuple[float, float]:
    """An event that tells Gaussian outputs of this ρ apart: half the way from one to the other, or beyond."""
    half = math.sqrt(2 * rho) / 2
    return float(ndtr(half - beyond)), float(ndtr(-half - beyond))
