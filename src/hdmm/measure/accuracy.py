"""From accuracy to budget: the least privacy at which every query has a margin of error of at most its target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from hdmm.answers.first_order import worst_part
from hdmm.answers.margins import half_width
from hdmm.base.exceptions import StrategyError
from hdmm.data.counts import checked_rows_bound
from hdmm.describe.workload import Workload
from hdmm.measure.measurement import form_in_noise
from hdmm.measure.targets import allowed_margins
from hdmm.privacy.guarantee import ZCDP, Noise, Privacy, PureDP
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.select.goal import Goal
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.strategy import Strategy

_DIGITS = 4  # of ε or ρ, rounded up
_MOST_RATIO = 1e75  # whose square is below 2**500, the largest ε or ρ


def margins(goal: Goal, lattice: Lattice, privacy: Privacy, *, level: float, unit: Unit) -> dict[str, float]:
    """The largest margin of error of a row of each table, in its unit, as a release with this privacy prints it.

    Those of means, percentages and quantiles are at counts as expected; without any, there is none. O(queries).
    """
    form = form_in_noise(lattice.strategy, lattice.scales(privacy, unit), privacy.noise)
    return {
        name: half_width(max(worst_part(rows, form) for rows in each), level, privacy.noise)
        for name, each in goal.error_rows.items()
        if each
    }


def lattice_for(strategy: Strategy, noise: Noise, workload: Workload, rows_bound: int | None = None) -> Lattice:
    """The strategy rounded to integers as a measurement for the workload rounds it, of data with this bound."""
    return Lattice.of(strategy, noise, max_rows=checked_rows_bound(rows_bound), workload=workload)


def least_privacy(
    goal: Goal,
    lattice: Lattice,
    noise: Noise,
    targets: Mapping[str, float | str] | None,
    *,
    level: float,
    unit: Unit,
) -> PureDP | ZCDP:
    """The least ε (Laplace) or ρ (Gaussian), rounded up to four digits, at which every margin is at most its target.

    Without targets, those of the goal hold. The lattice is the strategy as it is measured, rounded to integers. Margins
    fall as 1/ε or 1/√ρ except for the steps of the noise, so one evaluation gives the answer and a second one confirms
    it.

    >>> from hdmm import Domain, Workload
    >>> goal = Goal({"sex": Workload.marginals(Domain({"sex": 2}), k=1)})
    >>> identity = lattice_for(Strategy.identity(Domain({"sex": 2})), Noise.LAPLACE, goal.workload)
    >>> least_privacy(goal, identity, Noise.LAPLACE, {"sex": 10.0}, level=0.95, unit=Unit())
    PureDP('0.3012')
    """
    wanted = allowed_margins(goal, targets)
    given = PureDP if noise is Noise.LAPLACE else ZCDP

    def excess(privacy: Privacy) -> float:
        """The largest ratio of a margin to its target."""
        form = form_in_noise(lattice.strategy, lattice.scales(privacy, unit), noise)
        return half_width(max(worst_part(rows, form, allowed) for rows, allowed in wanted), level, noise)

    ratio = excess(given(1))
    if not 0 < ratio < _MOST_RATIO:
        raise StrategyError(
            "Every query with a target is 0, so that any budget reaches it. Leave these targets out."
            if ratio == 0
            else "No budget that can be written reaches these targets. Give larger margins of error."
        )
    amount = rounded_up(ratio if noise is Noise.LAPLACE else ratio**2)
    while excess(given(amount)) > 1:
        amount = rounded_up(float(amount) * (1 + 10.0**-_DIGITS))
    return given(amount)


def rounded_up(amount: float) -> Fraction:
    """To four digits.

    >>> rounded_up(0.123451), rounded_up(1234.1)
    (Fraction(247, 2000), Fraction(1235, 1))
    """
    step = Fraction(10) ** (math.floor(math.log10(amount)) + 1 - _DIGITS)
    return math.ceil(Fraction(amount) / step) * step
