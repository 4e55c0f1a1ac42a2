"""The only file that joins data and noise: a strategy, data and a privacy guarantee → Release.

In this order: everything that can be refused is refused, from public facts alone; the ledger is debited, durably; the
data is counted; exact integer noise is added to exact integer answers. A run that fails after the debit stays charged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from hdmm.cores import spread
from hdmm.data import Data
from hdmm.exceptions import DataError, HdmmError, PrivacyError, StrategyError
from hdmm.lattice import MAX_ANSWER, Lattice, exact_answers, resolution
from hdmm.ledger import Ledger
from hdmm.matrix import Array
from hdmm.matrix.checks import frozen
from hdmm.noise import discrete_gaussian, discrete_laplace, exact_scale, exact_variance
from hdmm.privacy import Noise, Privacy, Unit
from hdmm.release import Release, charged, digest, in_noise
from hdmm.strategy.base import Strategy
from hdmm.strategy.diagonal import Block
from hdmm.strategy.merged import MergedStrategy
from hdmm.workload import Workload

_CLAMP = 2**61
_DRAWN = 1 << 18  # noise drawn in one call: 2 MiB, and some 20 while it is made
_MOST_ROWS = 1 << 31  # of all measurements together: 16 GiB


def measure(
    strategy: Strategy,
    data: Data,
    privacy: Privacy,
    *,
    ledger: Ledger | None,
    unit: Unit | None = None,
    workload: Workload | None = None,
    purpose: str = "release",
) -> Release:
    """The strategy's queries answered on the data, with noise that makes them private.

    `ledger=None` must be said out loud: then nobody keeps the budget. The unit is one row, or as many as the data
    keeps of one person; `workload` is what rounding to integers is fitted to. See hdmm.Plan.measure.
    """
    unit = unit_of(data, unit)
    if strategy.domain != data.domain:
        raise DataError(
            f"The strategy is over ({', '.join(strategy.domain.names)}) and the data over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )
    lattice = Lattice.of(strategy, privacy.noise, max_rows=data.rows_bound, workload=workload)
    scales = lattice.scales(privacy, unit)
    resolutions = [resolution(scale, privacy.noise) for scale in scales]
    _check(lattice, scales, resolutions, data.rows_bound, privacy.noise)
    released = in_noise(lattice, scales, privacy.noise)
    wanted = [_names(block, lattice.strategy) for block in lattice.blocks]
    data.check()
    data.check_marginals(wanted)
    receipt = None
    if ledger is not None:
        receipt = ledger.debit(charged(privacy), purpose, pays_for=digest(released, scales, privacy, unit))
    try:
        measurements = _answered(lattice.blocks, data.marginals(wanted))
    except HdmmError:
        raise
    except Exception as wrong:  # its message may tell about the data (security O3)
        raise DataError(
            f"Counting the data failed ({type(wrong).__name__}). Nothing was released; a budget that was debited stays "
            "charged. Check the source and run again."
        ) from None
    _add_noise(measurements, scales, resolutions, privacy.noise)
    return Release(released, tuple(map(frozen, measurements)), scales, privacy, unit, receipt)


def unit_of(data: Data, given: Unit | None) -> Unit:
    """The unit of privacy: as declared, and no smaller than what the data keeps of one person."""
    kept = data.max_rows_per_id or 1
    unit = Unit(rows=kept) if given is None else given
    if unit.rows < kept:
        raise PrivacyError(
            f"The data keeps up to {kept} rows of a person and the unit protects {unit.rows}. Declare "
            f"Unit(rows={kept}), or keep fewer rows with max_rows_per_id."
        )
    return unit


def _check(lattice: Lattice, scales: Sequence[Fraction], resolutions: Sequence[int], rows: int, noise: Noise) -> None:
    """Refuse what cannot be measured, from public numbers alone (security I4, S2)."""
    count = sum(math.prod(A.shape[0] for _, A in block.factors) for block in lattice.blocks)
    if count > _MOST_ROWS:
        raise StrategyError(
            f"The strategy has {count:.3g} measurements; {_MOST_ROWS:,} are the limit. Optimise for a workload on "
            "fewer attributes at a time, or for marginals."
        )
    for scale, r in set(zip(scales, resolutions, strict=True)):
        if noise == "laplace":
            exact_scale(scale * r)
        else:
            exact_variance(scale * r**2)
    if max(a * r for a, r in zip(lattice.largest_answers(rows), resolutions, strict=True)) > MAX_ANSWER:
        raise StrategyError(
            f"Answers on a table of up to {rows:,} rows do not fit the integers at this little noise. Declare a "
            "smaller rows_bound of the data, or spend less privacy."
        )


def _names(block: Block, strategy: Strategy) -> tuple[str, ...]:
    """The attributes whose counts a block needs; those that the strategy merged, one by one."""
    if not isinstance(strategy, MergedStrategy):
        return tuple(strategy.domain.names[i] for i, _ in block.factors)
    merged = strategy.inner.domain
    names: list[str] = []
    first = strategy.axes[0]
    for i, _ in block.factors:
        if i == first:
            names.extend(strategy.domain.names[axis] for axis in strategy.axes)
        else:
            names.append(merged.names[i])
    return tuple(names)


def _answered(blocks: Sequence[Block], marginals: Iterator[Array]) -> list[Array]:
    """Âx of every block, exact."""
    pairs = zip(blocks, marginals, strict=True)
    return [exact_answers([A for _, A in block.factors], x) for block, x in pairs]


def _add_noise(
    measurements: Sequence[Array], scales: Sequence[Fraction], resolutions: Sequence[int], noise: Noise
) -> None:
    """y ← clamp(r·y + Z), in place. Blocks of one scale share calls of the sampler; each draw is used once."""
    by_scale: dict[tuple[Fraction, int], list[Array]] = {}
    for y, scale, r in zip(measurements, scales, resolutions, strict=True):
        pieces = (y[start : start + _DRAWN] for start in range(0, len(y), _DRAWN))
        by_scale.setdefault((scale, r), []).extend(pieces)
    jobs = [(scale, r, batch) for (scale, r), pieces in by_scale.items() for batch in _batches(pieces)]

    def add(job: tuple[Fraction, int, list[Array]]) -> None:
        scale, r, batch = job
        drawn = _noise(scale, r, sum(map(len, batch)), noise)
        start = 0
        for piece in batch:
            piece *= r
            piece += drawn[start : start + len(piece)]  # modulo 2⁶⁴ where the table has more rows than declared
            np.clip(piece, -_CLAMP, _CLAMP, out=piece)
            start += len(piece)

    spread(add, jobs)


def _batches(pieces: Sequence[Array]) -> Iterator[list[Array]]:
    """The pieces, together as long as they take at most _DRAWN numbers."""
    batch, size = list[Array](), 0
    for piece in pieces:
        if batch and size + len(piece) > _DRAWN:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece)
    if batch:
        yield batch


def _noise(scale: Fraction, r: int, size: int, noise: Noise) -> Array:
    return discrete_laplace(scale * r, size) if noise == "laplace" else discrete_gaussian(scale * r**2, size)
