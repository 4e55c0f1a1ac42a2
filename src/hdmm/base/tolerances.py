"""Tolerances that several rooms share: what counts as rounding, relative to what, and why.

What only one method stops at, or may cost, stands beside it. None of them is on the private path, where numbers are
integers.
"""

from __future__ import annotations

from typing import Final

SUPPORT: Final = 1e-11
"""Of tr(V)·‖Z‖: less is not asked for, because rounding in tr(VZ) stays near 1e-15 of it."""

SAME_GRAM: Final = 1e-12
"""Of a gram's trace or largest entry: grams that differ by less are one, and less beyond 11ᵀ is only the total."""

RIDGE: Final = 1e-10
"""Of the mean of V's diagonal, added to it: gives A full rank, and costs the root of it, 1e-5, in error."""

NO_VARIANCE: Final = 1e-12
"""Of the terms of a variance: less is what rounding leaves of 0."""

SAME_COUNT: Final = 1e-9
"""Of a count, or of an interval: numbers that differ by less were computed in another order."""
