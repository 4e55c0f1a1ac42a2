"""Faults planted into the private path, for audits that must find them. Each says how much more privacy it spends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import pytest

import hdmm.data.identity
import hdmm.data.records
import hdmm.measure.measure
from hdmm import PureDP, Strategy, Unit
from hdmm.data.identity import Rows
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.strategy.lattice import Lattice

Plant = Callable[[pytest.MonkeyPatch], None]

_scales = Lattice.scales
_drawn = hdmm.measure.measure.draw
_bounded = hdmm.data.identity.bounded


def one_less(self: Lattice, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
    """The sensitivity minus 1, in units of the lattice: Δ/(Δ − 1) times ε, and the same of ρ with Δ₂²."""
    norm = _norm(self, privacy)
    return tuple(s * (norm - 1) / norm for s in _scales(self, privacy, unit))


def one_block_left_out(self: Lattice, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
    """Blocks' losses summed without the last."""
    scales = _scales(self, privacy, unit)
    fewer = Lattice(Strategy(self.strategy.domain, self.blocks[:-1]))
    loss = fewer.loss(scales[:-1], privacy.noise, Unit())
    budget = privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho
    return tuple(s * loss / budget for s in scales)


def five_percent_more(self: Lattice, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
    """Noise for ε, or ρ, times 1.05."""
    return tuple(s / Fraction(105, 100) for s in _scales(self, privacy, unit))


def ten_percent_more(self: Lattice, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
    """Noise for ε, or ρ, times 1.1."""
    return tuple(s / Fraction(110, 100) for s in _scales(self, privacy, unit))


def a_root_too_many(self: Lattice, privacy: Privacy, unit: Unit | None = None) -> tuple[Fraction, ...]:
    """Δ₂ where Δ₁ belongs, or Δ₂ where Δ₂² does, for answers that move by 1 each: √Δ₁ times ε, Δ₂ times ρ."""
    root = Fraction(math.sqrt(_norm(self, privacy))).limit_denominator(1000)
    return tuple(s / root for s in _scales(self, privacy, unit))


def scales(fault: Callable[..., tuple[Fraction, ...]]) -> Plant:
    """A fault in the scale of the noise."""
    return lambda patch: patch.setattr(Lattice, "scales", fault)


def one_draw_for_two_numbers(patch: pytest.MonkeyPatch) -> None:
    """The second number of a release has the noise of the first."""

    def draw(noise: Noise, scale: Fraction, size: int) -> np.ndarray:
        drawn = _drawn(noise, scale, size)
        drawn[1:2] = drawn[:1]
        return drawn

    patch.setattr(hdmm.measure.measure, "draw", draw)


def one_draw_for_two_copies(patch: pytest.MonkeyPatch) -> None:
    """The second half of what is drawn at once is the first half again."""

    def draw(noise: Noise, scale: Fraction, size: int) -> np.ndarray:
        return np.resize(_drawn(noise, scale, -(-size // 2)), size)

    patch.setattr(hdmm.measure.measure, "draw", draw)


def a_second_row(patch: pytest.MonkeyPatch) -> None:
    """One row more of each person than was declared: twice ε, four times ρ where one row was."""

    def bounded(key: bytes, k: int, batches: Iterable[Rows]) -> Rows | None:
        return _bounded(key, k + 1, batches)

    patch.setattr(hdmm.data.records, "bounded", bounded)


def _norm(lattice: Lattice, privacy: Privacy) -> Fraction:
    """Δ₁, or Δ₂² for Gaussian noise, of the lattice's integers."""
    ones = [Fraction(1)] * len(lattice.blocks)
    return lattice.loss(ones, privacy.noise, Unit()) * (2 if privacy.noise == "gaussian" else 1)
