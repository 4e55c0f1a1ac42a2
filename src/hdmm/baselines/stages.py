"""Mechanisms that look at the data in stages: the budget split exactly, debited first, and answers without a stddev."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

import numpy as np

from hdmm.answer import Answers
from hdmm.data import Data
from hdmm.data.base import Counts
from hdmm.exceptions import DataError, HdmmError, PrivacyError, StrategyError
from hdmm.ledger import Ledger
from hdmm.measure import unit_of
from hdmm.noise import exact_scale
from hdmm.privacy import Noise, Privacy, PureDP, Unit
from hdmm.reconstruct import Estimate
from hdmm.strategy.iterative import Unknown
from hdmm.workload import Workload

_MOST_QUERIES = 1 << 30  # 8 GiB of answers
_DATA_DEPENDENT = (
    "The error of a data-dependent mechanism depends on the data: it has no standard deviations that may be told. Use "
    ".values, or hdmm.optimize for answers with margins of error."
)


@final
@dataclass(frozen=True, slots=True)
class Stages:
    """ε = ε₁ + ε₂ + …, exactly, and the unit that all stages protect."""

    epsilons: tuple[Fraction, ...]
    unit: Unit

    @property
    def factor(self) -> int:
        """What every stage's sensitivity to one row is multiplied by: a unit is this many rows, one after another."""
        return self.unit.factor(Noise.LAPLACE, signed=False)

    def scale(self, stage: int, sensitivity: Fraction | int) -> Fraction:
        """The scale of Laplace noise that spends the stage on a query of this sensitivity to one row."""
        return Fraction(sensitivity) * self.factor / self.epsilons[stage]


def split(privacy: Privacy, shares: Sequence[Fraction | str], unit: Unit) -> Stages:
    """The stages of a pure guarantee: the shares given, and the rest for one more.

    >>> split(PureDP(1), ["1/4"], Unit()).epsilons
    (Fraction(1, 4), Fraction(3, 4))
    """
    if not isinstance(privacy, PureDP):
        raise PrivacyError(f"This mechanism is for pure differential privacy; {privacy} was given. Use PureDP.")
    parts = [PureDP(share).epsilon for share in shares]
    if sum(parts) >= 1:
        raise PrivacyError(f"The stages' shares {', '.join(map(str, parts))} leave nothing of the budget. Give less.")
    spent = [privacy.epsilon * part for part in parts]
    epsilons = (*spent, privacy.epsilon - sum(spent))
    if sum(epsilons) != privacy.epsilon or min(epsilons) <= 0:
        raise PrivacyError("The stages do not spend exactly the budget. This is a fault of hdmm; please report it.")
    return Stages(epsilons, unit)


def begin(
    data: Data,
    workload: Workload,
    privacy: Privacy,
    shares: Sequence[Fraction | str],
    *,
    sensitivities: Sequence[int],
    tables: Sequence[Sequence[str]],
    ledger: Ledger | None,
    unit: Unit | None,
    purpose: str,
) -> Stages:
    """The stages, after all that can be refused is refused and the whole budget is debited. Reads no data.

    `sensitivities` are of what each stage adds noise to: noise too large for the integers is refused here, and so are
    `tables` of the data too large to count, and more answers than can be held.
    """
    if workload.domain != data.domain:
        raise DataError(
            f"The workload is over ({', '.join(workload.domain.names)}) and the data over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )
    if workload.queries > _MOST_QUERIES:
        raise StrategyError(
            f"{workload.queries:,} answers would fill {8 * workload.queries / 1e9:.0f} GB. Ask for the products of the "
            "workload a few at a time."
        )
    stages = split(privacy, shares, unit_of(data, unit))
    for stage, sensitivity in enumerate(sensitivities):
        exact_scale(stages.scale(stage, sensitivity))
    data.check()
    data.check_marginals(tables)
    if ledger is not None:
        ledger.debit(PureDP(sum(stages.epsilons)), purpose)
    return stages


def counted(data: Data, wanted: Iterable[Sequence[str]]) -> Iterator[Counts]:
    """The marginals; where counting fails, an error that tells nothing about the data (security O3)."""
    try:
        yield from data.marginals(wanted)
    except HdmmError:
        raise
    except Exception as wrong:
        raise DataError(
            f"Counting the data failed ({type(wrong).__name__}). Nothing was released; a debited budget stays charged."
        ) from None


def answered(workload: Workload, estimate: Estimate) -> Answers:
    """The estimate's answers. Their error depends on the data, so that asking for a stddev is an error."""
    products = (estimate.values(replace(product, weight=1.0)) for product in workload.products)
    counts = np.concatenate(list(products))
    return Answers(workload, counts, counts, Unknown(_DATA_DEPENDENT, workload.domain), Noise.LAPLACE)
