"""Prepared: a measurement before it is made. What public facts rule out is refused here, before any debit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

from hdmm.base.exceptions import StrategyError
from hdmm.describe.workload import Workload
from hdmm.measure.measurement import Measurement
from hdmm.noise import check_scale
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.reconstruct.known import Known, known_counts, known_products
from hdmm.strategy.informed import determined_by, known_by
from hdmm.strategy.lattice import MAX_ANSWER, Lattice, once_each, resolution
from hdmm.strategy.strategy import Strategy

_MOST = 1 << 31  # measurements of all blocks together: 16 GiB
_MOST_IN_CHUNKS = 1 << 40  # on disk: 8 TiB


def prepare(
    strategy: Strategy,
    privacy: Privacy,
    *,
    unit: Unit,
    rows_bound: int,
    workload: Workload | None = None,
    known: Sequence[Known] = (),
    in_chunks: bool = False,
) -> Prepared:
    """The strategy, ready to be measured on a table of at most `rows_bound` rows; refused if that is impossible."""
    if in_chunks and any(attribute.values.divided for attribute in strategy.domain.attributes):
        raise StrategyError("Amounts are not measured in chunks. Measure them without an engine of workers.")
    public = known_counts(strategy.domain, known)
    for product in strategy.known:
        if not determined_by(known_products(public), product):
            names = known_by(product) or "nothing (the total)"
            raise StrategyError(f"The plan relies on known counts by {names}, which were not given. Give them again.")
    strategy = replace(strategy, known=known_products(public))
    lattice = Lattice.of(strategy, privacy.noise, max_rows=rows_bound, workload=workload)
    scales = lattice.scales(privacy, unit)
    _check(lattice, scales, rows_bound, privacy.noise, _MOST_IN_CHUNKS if in_chunks else _MOST)
    rounded = privacy.noise is Noise.GAUSSIAN
    prepared = Prepared(lattice.strategy, scales, privacy, unit, rows_bound, public, exact_gaussian=rounded)
    if public:
        _ = prepared.form  # known counts that it cannot take are refused here, not after the debit
    return prepared


@final
@dataclass(frozen=True, eq=False)
class Prepared(Measurement):
    """A measurement before it is made: the strategy rounded to integers, and the exact scales of its noise.

    All that can be refused from public facts has been refused. It is made once, for the forecast and for the release.
    """

    rows_bound: int
    known: tuple[Known, ...] = ()


def _check(lattice: Lattice, scales: Sequence[Fraction], rows: int, noise: Noise, most: int) -> None:
    """Refuse what cannot be measured, from public numbers alone (security I4, S2)."""
    table = lattice.strategy.table
    count = sum(table.products([A.shape[0] for _, A in table.distinct]).tolist())
    if count > most:
        raise StrategyError(
            f"The strategy has {count:.3g} measurements; the limit is {most:,}. Optimise for a workload "
            "on fewer attributes at a time, or for marginals."
        )
    largest_answers = lattice.largest_answers(rows)
    if min(largest_answers) == 0:
        raise StrategyError("A factor of the strategy is all zeros. Drop its block or give it queries.")
    resolutions = once_each(lambda scale: _checked_resolution(scale, noise), scales)
    if max(largest * r for largest, r in zip(largest_answers, resolutions, strict=True)) > MAX_ANSWER:
        raise StrategyError(
            f"Answers on a table of up to {rows:,} rows do not fit 64-bit integers with so little noise. Declare a "
            "smaller rows_bound for the data, or spend less privacy."
        )


def _checked_resolution(scale: Fraction, noise: Noise) -> int:
    r = resolution(scale, noise)
    check_scale(noise, scale * r**noise.order)
    return r
