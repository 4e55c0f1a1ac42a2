"""How reliable a published count is for its size: by its estimate and margin of error alone, which are public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from hdmm.matrix import Array

GOOD, FAIR = 0.1, 0.3  # the margin as a fraction of the estimate
GRADES: Final = ("good", "fair", "rough", "may be 0", "noise only", "suppressed", "unknown", "impossible")
"""All words that say how reliable a number is, the best first."""

_FIRST = ("impossible", "suppressed", "unknown", "noise only")  # before a margin is judged


@final
@dataclass(frozen=True, slots=True)
class Reliability:
    """A rule. A count is reliable if its margin is at most `fair` of the estimate.

    It is `written` as two columns of a table's files if asked for. Counts whose margin is above `suppress` of the
    estimate are left blank; None leaves none.

    >>> rule = Reliability(fair=0.3, suppress=1.0)
    >>> estimate, margin = np.array([100.0, 100.0, 100.0, 0.0]), np.array([5.0, 40.0, 130.0, 0.0])
    >>> rule.reliable(estimate, margin), rule.suppressed(estimate, margin)
    (array([ True, False, False,  True]), array([False, False,  True, False]))
    >>> nowhere, blank = np.zeros(4, dtype=bool), rule.suppressed(estimate, margin)
    >>> rule.notes(estimate, margin, nowhere, suppressed=blank, binned=nowhere, impossible=nowhere)
    ['good', 'rough', 'suppressed', 'good']
    """

    fair: float = FAIR
    suppress: float | None = None
    written: bool = False

    def reliable(self, estimate: Array, margin: Array) -> Array:
        """Whether each count is reliable."""
        return margin <= self.fair * np.abs(estimate)

    def suppressed(self, estimate: Array, margin: Array) -> Array:
        """Whether each count is left blank."""
        if self.suppress is None:
            return np.zeros(len(estimate), dtype=bool)
        return margin > self.suppress * np.abs(estimate)

    def notes(
        self,
        estimate: Array,
        margin: Array,
        may_be_zero: Array,
        *,
        suppressed: Array,
        binned: Array,
        impossible: Array,
    ) -> list[str]:
        """How reliable each count is, in words; a number that may not exist is NaN.

        The margin of a sum or mean over bins is of the noise alone, so that it says nothing about the number.
        """
        conditions = [
            impossible,
            suppressed,
            np.isnan(estimate),
            binned,
            may_be_zero,
            margin <= min(GOOD, self.fair) * np.abs(estimate),
            self.reliable(estimate, margin),
        ]
        return np.select(conditions, [*_FIRST, "may be 0", "good", "fair"], "rough").tolist()


PLAIN = Reliability()
