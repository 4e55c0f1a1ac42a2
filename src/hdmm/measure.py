"""The only file that joins data and noise: a strategy, data and a privacy guarantee → Release.

In this order: everything that can be refused is refused, from public facts alone; the ledger is debited, durably; the
data is counted; exact integer noise is added to exact integer answers. A run that fails after the debit stays charged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from hdmm.answer import Answers
from hdmm.data import Data
from hdmm.domain import Domain, Merged
from hdmm.exceptions import DataError, FileError, HdmmError, MatrixError, PrivacyError, StrategyError
from hdmm.io import decode_strategy, encode_strategy, load_folder, save_folder
from hdmm.io.strict_json import Json
from hdmm.lattice import Lattice, exact_answers, resolution
from hdmm.ledger import Ledger, Receipt
from hdmm.matrix import Array
from hdmm.matrix.checks import frozen
from hdmm.noise import discrete_gaussian, discrete_laplace
from hdmm.noise.parameters import exact_scale, exact_variance
from hdmm.privacy import ZCDP, ApproxDP, Noise, Privacy, PureDP, Unit
from hdmm.reconstruct import Estimate, reconstruct
from hdmm.strategy.base import Strategy
from hdmm.strategy.diagonal import Block
from hdmm.strategy.merged import MergedStrategy
from hdmm.workload import Workload

_CLAMP = 2**61
_DRAWN = 1 << 22  # noise drawn at a time: 32 MiB
_MOST_ROWS = 1 << 31  # of all measurements together: 16 GiB


@final
@dataclass(frozen=True, eq=False)
class Release:
    """Noisy integers and all that is needed to answer from them. It holds nothing else about the data.

    `strategy` has integer factors and the weights at which every measurement has variance 1.
    """

    strategy: Strategy
    measurements: tuple[Array, ...]  # one array a block: r·Âx + noise
    scales: tuple[Fraction, ...]  # of the noise on Âx: Laplace's scale, or Gauss's variance
    privacy: Privacy
    unit: Unit
    receipt: Receipt | None

    @property
    def domain(self) -> Domain:
        """What the release is about."""
        return self.strategy.domain

    @cached_property
    def estimate(self) -> Estimate:
        """The least-squares estimate of the counts, computed when first asked for."""
        units = [1 / resolution(scale, self.privacy.noise) for scale in self.scales]
        return reconstruct(self.strategy, self.measurements, units)

    def answer(self, workload: Workload) -> Answers:
        """Answers to any workload that the strategy supports; costs no privacy."""
        return Answers.of(workload, self.estimate, self.strategy, self.privacy.noise)

    def error(self, workload: Workload) -> float:
        """The expected total squared error of the answers: of the strategy as measured, rounding included."""
        total = self.strategy.total_variance(workload)
        if math.isinf(total):
            raise StrategyError("The release does not support this workload, so its error is not finite.")
        return total

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release as a folder (JSON and arrays), whole or not at all; `load_release` reads it."""
        strategy, arrays = encode_strategy(self.strategy)
        content: dict[str, Json] = {
            "strategy": strategy,
            "scales": [str(scale) for scale in self.scales],
            "privacy": _encoded_privacy(self.privacy),
            "unit": {"rows": self.unit.rows, "neighbours": self.unit.neighbours},
            "receipt": None if self.receipt is None else _encoded_receipt(self.receipt),
        }
        return save_folder(path, "release", content, {**arrays, "measurements": np.concatenate(self.measurements)})

    def __repr__(self) -> str:
        count = sum(map(len, self.measurements))
        return f"Release({count:,} measurements over {self.domain.size:,} cells, {self.privacy})"


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
    unit = _unit(data, unit)
    if strategy.domain != data.domain:
        raise DataError(
            f"The strategy is over ({', '.join(strategy.domain.names)}) and the data over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )
    lattice = Lattice.of(strategy, privacy.noise, max_rows=data.rows_bound, workload=workload)
    scales = lattice.scales(privacy, unit)
    resolutions = [resolution(scale, privacy.noise) for scale in scales]
    _check(lattice, scales, resolutions, data.rows_bound, privacy.noise)
    released = lattice.weighted([_weight(*pair, privacy.noise) for pair in zip(scales, resolutions, strict=True)])
    data.check()
    wanted = [_names(block, lattice.strategy) for block in lattice.blocks]
    receipt = None if ledger is None else ledger.debit(_charged(privacy), purpose)
    try:
        measurements = _answered(lattice.blocks, data.marginals(wanted), data.rows_bound)
    except HdmmError:
        raise
    except Exception as wrong:  # its message may tell about the data (security O3)
        raise DataError(
            f"Counting the data failed ({type(wrong).__name__}). Nothing was released; a budget that was debited stays "
            "charged. Check the source and run again."
        ) from None
    _add_noise(measurements, scales, resolutions, privacy.noise)
    return Release(released, tuple(map(frozen, measurements)), scales, privacy, unit, receipt)


def load_release(path: str | os.PathLike[str]) -> Release:
    """The release that `Release.save` wrote. What it spends is computed from its factors and noise, never read."""
    content, arrays = load_folder(path, "release")
    at = f"{path}: release.json"
    keys = {"strategy", "scales", "privacy", "unit", "receipt"}
    if set(content) != keys or "measurements" not in arrays:
        raise FileError(f"{at} must have the keys {', '.join(sorted(keys))}, and measurements. Save the release again.")
    strategy = decode_strategy(content["strategy"], arrays, at=f"{at} strategy")
    privacy, unit = _decoded_privacy(content["privacy"], at), _decoded_unit(content["unit"], at)
    scales = _decoded_scales(content["scales"], at)
    lattice = Lattice(strategy)
    try:
        sizes = [math.prod(A.shape[0] for _, A in block.factors) for block in lattice.blocks]
        if len(scales) != len(sizes):
            raise FileError(f"{at}: {len(scales)} scales for {len(sizes)} blocks. Save the release again.")
        spent = lattice.loss(scales, privacy.noise, unit)
    except (MatrixError, StrategyError) as wrong:
        raise FileError(f"{at}: the strategy is not one of integers. {wrong}") from None
    declared = privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho
    if spent > declared:
        raise FileError(
            f"{at} says {privacy}, but its measurements spend {float(spent):.6g}. It is damaged or was tampered with."
        )
    y = arrays["measurements"]
    if y.dtype != np.int64 or y.shape != (sum(sizes),):
        raise FileError(f"{at}: the measurements are not {sum(sizes):,} integers. Save the release again.")
    weights = [_weight(scale, resolution(scale, privacy.noise), privacy.noise) for scale in scales]
    measurements = tuple(np.split(y, np.cumsum(sizes)[:-1]))
    receipt = None if content["receipt"] is None else _decoded_receipt(content["receipt"], at)
    return Release(lattice.weighted(weights), measurements, scales, privacy, unit, receipt)


def _unit(data: Data, given: Unit | None) -> Unit:
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
    if lattice.largest_answer(rows) * max(resolutions) > 2**60:
        raise StrategyError(
            f"Answers on a table of up to {rows:,} rows do not fit the integers at this little noise. Declare a smaller "
            "rows_bound of the data, or spend less privacy."
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


def _answered(blocks: Sequence[Block], marginals: Iterator[Array], rows: int) -> list[Array]:
    """Âx of every block, exact."""
    pairs = zip(blocks, marginals, strict=True)
    return [exact_answers([A for _, A in block.factors], x, rows) for block, x in pairs]


def _add_noise(
    measurements: Sequence[Array], scales: Sequence[Fraction], resolutions: Sequence[int], noise: Noise
) -> None:
    """y ← clamp(r·y + Z), in place; blocks of one scale share draws, each number of which is used once."""
    by_scale: dict[tuple[Fraction, int], list[Array]] = {}
    for y, scale, r in zip(measurements, scales, resolutions, strict=True):
        by_scale.setdefault((scale, r), []).append(y)
    for (scale, r), ys in by_scale.items():
        pieces = [y[start : start + _DRAWN] for y in ys for start in range(0, len(y), _DRAWN)]
        left = sum(map(len, pieces))
        drawn, used = np.zeros(0, dtype=np.int64), 0
        for piece in pieces:
            while len(piece):
                if used == len(drawn):
                    size = min(left, _DRAWN)
                    drawn, used = _noise(scale, r, size, noise), 0
                    left -= size
                step = min(len(piece), len(drawn) - used)
                here = piece[:step]
                here *= r
                here += drawn[used : used + step]  # modulo 2⁶⁴ where the table has more rows than declared
                np.clip(here, -_CLAMP, _CLAMP, out=here)
                piece, used = piece[step:], used + step


def _noise(scale: Fraction, r: int, size: int, noise: Noise) -> Array:
    return discrete_laplace(scale * r, size) if noise == "laplace" else discrete_gaussian(scale * r**2, size)


def _weight(scale: Fraction, r: int, noise: Noise) -> float:
    """ω: one over the standard deviation of the noise on Âx, the steps of the lattice counted in."""
    if noise == "gaussian":
        return 1 / math.sqrt(scale)
    return math.sqrt(2) * math.sinh(1 / (2 * float(scale * r))) * r


def _charged(privacy: Privacy) -> PureDP | ZCDP:
    return ZCDP(privacy.rho) if isinstance(privacy, ApproxDP) else privacy


def _encoded_privacy(privacy: Privacy) -> dict[str, Json]:
    match privacy:
        case PureDP():
            return {"epsilon": str(privacy.epsilon)}
        case ZCDP():
            return {"rho": str(privacy.rho)}
        case ApproxDP():
            return {"epsilon": str(privacy.epsilon), "delta": str(privacy.delta)}


def _decoded_privacy(value: Json, at: str) -> Privacy:
    try:
        match value:
            case {"epsilon": str(epsilon), "delta": str(delta)} if len(value) == 2:
                return ApproxDP(epsilon, delta)
            case {"epsilon": str(epsilon)} if len(value) == 1:
                return PureDP(epsilon)
            case {"rho": str(rho)} if len(value) == 1:
                return ZCDP(rho)
            case _:
                raise FileError(f"{at}: privacy is not an epsilon, a rho, or an epsilon and a delta.")
    except PrivacyError as wrong:
        raise FileError(f"{at}: {wrong}") from None


def _decoded_unit(value: Json, at: str) -> Unit:
    match value:
        case {"rows": int(rows), "neighbours": ("add-remove" | "replace") as neighbours} if len(value) == 2:
            try:
                return Unit(rows, neighbours)
            except PrivacyError as wrong:
                raise FileError(f"{at}: {wrong}") from None
        case _:
            raise FileError(f"{at}: unit is not rows and neighbours. Save the release again.")


def _decoded_scales(value: Json, at: str) -> tuple[Fraction, ...]:
    if not isinstance(value, list):
        raise FileError(f"{at}: scales is not a list. Save the release again.")
    known: dict[str, Fraction] = {}
    for text in value:
        if not isinstance(text, str) or len(text) > 4096:
            raise FileError(f"{at}: a scale is not a fraction. Save the release again.")
        if text not in known:
            known[text] = _fraction(text, at)
    return tuple(known[str(text)] for text in value)


def _fraction(text: str, at: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    if not (numerator.isascii() and numerator.isdigit() and (denominator or "1").isdigit() and text.isascii()):
        raise FileError(f"{at}: {text[:64]!r} is not a fraction. Save the release again.")
    if int(denominator or "1") == 0 or int(numerator) == 0:
        raise FileError(f"{at}: {text[:64]!r} is not above 0. Save the release again.")
    return Fraction(int(numerator), int(denominator or "1"))


def _encoded_receipt(receipt: Receipt) -> dict[str, Json]:
    return {
        "sequence": receipt.sequence,
        "dataset": receipt.dataset,
        "parameter": receipt.parameter,
        "amount": str(receipt.amount),
        "balance": str(receipt.balance),
        "hash": receipt.hash,
        "timestamp": receipt.timestamp,
    }


def _decoded_receipt(value: Json, at: str) -> Receipt:
    match value:
        case {
            "sequence": int(sequence),
            "dataset": str(dataset),
            "parameter": ("epsilon" | "rho") as parameter,
            "amount": str(amount),
            "balance": str(balance),
            "hash": str(digest),
            "timestamp": str(timestamp),
        } if len(value) == 7:
            left = Fraction(0) if balance == "0" else _fraction(balance, at)
            return Receipt(sequence, dataset, parameter, _fraction(amount, at), left, digest, timestamp)
        case _:
            raise FileError(f"{at}: the receipt is not a debit of a ledger. Save the release again.")
