"""DAWA: the shape of the data decides which cells are distinguished, and the workload how they are measured."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Literal

import numpy as np

from hdmm.answers.answers import Answers
from hdmm.base.exceptions import StrategyError
from hdmm.baselines.applies import require_attributes, require_cells
from hdmm.baselines.greedy_h import greedy_tree
from hdmm.baselines.partition import COST_SENSITIVITY, hilbert_order, longest, noisy_partition
from hdmm.baselines.stages import answered, refuse_workload
from hdmm.data import Data, from_array
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, Matrix, Ones, trace
from hdmm.measure.measure import in_stages, measure
from hdmm.privacy.guarantee import Privacy, PureDP, Unit
from hdmm.privacy.ledger import Ledger
from hdmm.reconstruct.estimate import in_cells
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import MAX_ANSWER
from hdmm.strategy.strategy import Strategy

_MOST = 1 << 14  # cells: the gram over the buckets is 2 GiB then
_CHUNK = 1 << 22  # entries of columns multiplied at a time
_MOST_SCALED = 1 << 61  # rows · cells²: Σ|L·x_i − Σx| is at most twice that
_LATTICE = (
    1 << 8
)  # the most that a column of a tree or of OPT_0's result sums to, rounded to integers (hdmm.strategy.lattice)
_MOST_WEIGHT = 1e100  # of all queries together, so that nothing computed from it overflows
_FINEST = 128  # noise is multiplied by powers of 2 until its scale is at least 64, so a scale that grew is below this


def dawa(
    data: Data,
    workload: Workload,
    privacy: Privacy,
    *,
    ledger: Ledger | None,
    second_stage: Literal["greedy_h", "opt_0"] = "greedy_h",
    share: Fraction | str = Fraction(1, 4),
    time_limit: float = 30.0,
    unit: Unit | None = None,
    purpose: str = "dawa",
) -> Answers:
    """The workload's answers from counts of buckets that a private look at the data found nearly uniform.

    With ε₁ = share·ε the cells are cut into buckets (`noisy_partition`). With the rest a strategy over the buckets is
    measured, chosen for the workload on counts that are equal within each bucket: GreedyH's tree as in the reference,
    or what the first start of OPT_0 finds within `time_limit` seconds. Defined for one attribute, or for two in the
    order of a Hilbert curve; up to 2¹⁴ cells. Both stages see the data, so there is no stddev.
    O(n²), and O(n·buckets) for the gram.

    Reference: Li, Hay, Miklau, Wang, "A data- and workload-aware algorithm for range queries under differential
    privacy" (PVLDB 2014).

    >>> from hdmm import Prefix
    >>> w = Workload.product(Domain({"age": 8}), age=Prefix())
    >>> data = from_array(w.domain, [900, 900, 900, 900, 0, 0, 0, 0])
    >>> dawa(data, w, PureDP(10), ledger=None).values.round(-2)[[3, 7]]
    array([3600., 3600.])
    """
    _refuse(data, workload, privacy, second_stage, time_limit)
    domain = workload.domain
    stages = in_stages(
        data,
        privacy,
        [share],
        sensitivities=(2 * COST_SENSITIVITY * longest(domain.size), _LATTICE),
        tables=[domain.names],
        ledger=ledger,
        unit=unit,
        purpose=purpose,
    )
    order = np.arange(domain.size) if len(domain) == 1 else hilbert_order(*domain.shape)
    (counts,) = stages.counted([domain.names])
    x = counts.ravel()[order]
    price = stages.factor / stages.epsilons[1]  # the scale of the second stage's noise on one count
    starts = noisy_partition(x, lambda costs: stages.noisy(0, costs), price=price)

    buckets = Domain({"bucket": len(starts)})
    V = bucket_gram(workload, order, starts)
    A = greedy_tree(V) if second_stage == "greedy_h" else opt_0(V, first_search(time.monotonic() + time_limit))
    release = measure(
        Strategy(buckets, (Block(1.0, () if isinstance(A, Ones) else ((0, A),)),)),  # Ones: only totals are asked for
        from_array(buckets, np.add.reduceat(x, starts), rows_bound=data.rows_bound),
        PureDP(stages.epsilons[1]),
        ledger=None,  # debited above
        unit=stages.unit,
    )
    (product,) = Workload.product(buckets, bucket=Identity()).products
    spread = np.empty(domain.size)
    lengths = _lengths(starts, domain.size)
    spread[order] = np.repeat(release.estimate.values(product) / lengths, lengths)
    return answered(workload, in_cells(domain, range(len(domain)), spread))


def bucket_gram(workload: Workload, order: Array, starts: list[int]) -> Matrix:
    """EᵀVE: the workload's gram over buckets, each of which spreads its count evenly (E has 1/length in its cells)."""
    n, V = len(order), workload.gram
    lengths = _lengths(starts, n)
    out = np.empty((len(starts), len(starts)))
    step = max(1, _CHUNK // n)
    bucket_of = np.empty(n, dtype=np.int64)
    bucket_of[order] = np.repeat(np.arange(len(starts)), lengths)
    for first in range(0, len(starts), step):
        some = np.arange(first, min(first + step, len(starts)))
        E = (bucket_of[:, None] == some) / lengths[some]
        out[:, some] = np.add.reduceat(V.matmat(E)[order], starts, axis=0) / lengths[:, None]
    return Dense((out + out.T) / 2)


def _refuse(data: Data, workload: Workload, privacy: Privacy, second_stage: str, time_limit: float) -> None:
    """Refuse, from public facts alone, what cannot be measured."""
    require_attributes(workload, "dawa", most=2)
    require_cells(workload, "dawa", most=_MOST)
    if second_stage not in ("greedy_h", "opt_0"):
        raise StrategyError(f"Second stage {second_stage!r} is unknown. Use 'greedy_h' or 'opt_0'.")
    if data.rows_bound * workload.domain.size**2 > _MOST_SCALED:
        raise StrategyError(
            f"Costs of buckets on a table of up to {data.rows_bound:,} rows and {workload.domain.size:,} cells do not "
            "fit 64-bit integers. Declare a smaller rows_bound for the data."
        )
    if not _total_weight(workload) <= _MOST_WEIGHT:
        raise StrategyError("The coefficients and weights of the queries overflow. Divide all weights by one number.")
    if isinstance(time_limit, bool) or not (isinstance(time_limit, int | float) and time_limit >= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StrategyError(f"The time limit is {time_limit!r}. Give a number of seconds, 0 or more.")
    # Whatever strategy suits the buckets, measure accepts it, because its answers are at most this large.
    if isinstance(privacy, PureDP) and data.rows_bound * max(_LATTICE, _FINEST * privacy.epsilon) > MAX_ANSWER:
        raise StrategyError(
            f"Answers on a table of up to {data.rows_bound:,} rows do not fit 64-bit integers with so little noise. "
            "Declare a smaller rows_bound for the data, or spend less privacy."
        )
    refuse_workload(workload, data)


def _total_weight(workload: Workload) -> float:
    """‖W‖²_F; infinite if it is beyond the largest float."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(trace(workload.gram))
    except OverflowError:
        return math.inf


def _lengths(starts: list[int], n: int) -> Array:
    return np.diff([*starts, n])
