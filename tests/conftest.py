"""Hypothesis has no deadline: on a busy machine a slow example is not a fault."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("hdmm", deadline=None)
settings.load_profile("hdmm")
