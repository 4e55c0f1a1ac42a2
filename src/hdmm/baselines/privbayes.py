"""PrivBayes: a Bayesian network is chosen and measured privately, and a synthetic table is drawn from it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from hdmm.answers.answers import Answers
from hdmm.base.exceptions import StrategyError
from hdmm.baselines.network import SCORE_SENSITIVITY, Pair, affordable_cells, noisy_network, useful_cells
from hdmm.baselines.stages import answered, refuse_workload
from hdmm.data import Data
from hdmm.data.counts import Counts, refuse_rereading
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.measure.measure import in_stages
from hdmm.privacy.guarantee import Privacy, Unit
from hdmm.privacy.ledger import Ledger
from hdmm.reconstruct.estimate import TableEstimate

_MOST_DRAWN = 1 << 24  # rows drawn; in a larger table each row counts for several
_MOST_ASKED = 1 << 28  # cells of a table of the synthetic rows: 2 GiB
_MANTISSA = 53


def privbayes(
    data: Data,
    workload: Workload,
    privacy: Privacy,
    *,
    ledger: Ledger | None,
    count_share: Fraction | str = Fraction(1, 20),
    network_share: Fraction | str = Fraction(3, 10),
    usefulness: int = 4,
    unit: Unit | None = None,
    purpose: str = "privbayes",
) -> Answers:
    """The workload's answers on a synthetic table, which does not depend on the workload.

    There are three stages: the number of rows; a network (`noisy_network`), whose d − 1 choices share ε₂; and d tables,
    one of each attribute with its parents, with noise of scale d/ε₃ on every cell and negative counts set to 0. Then as
    many rows as were counted are drawn, attribute by attribute. Attributes get as many parents as leave tables whose
    average count is `usefulness` times the scale of their noise, as far as all of them can be examined
    (`affordable_cells`). Defined for any domain. The reference takes the number of rows as public and has two stages.
    O(d²·pairs) tables of the data.

    Reference: Zhang, Cormode, Procopiuc, Srivastava, Xiao, "PrivBayes: private data release via Bayesian networks"
    (SIGMOD 2014, and TODS 2017 for the score of attributes that are not binary).

    >>> from hdmm import PureDP, from_array
    >>> w = Workload.marginals(Domain({"sex": 2, "smokes": 2}), k=2)
    >>> privbayes(from_array(w.domain, [5000, 0, 0, 5000]), w, PureDP(10), ledger=None).values.round(-3)
    array([5000., 0., 0., 5000.])
    """
    if isinstance(usefulness, bool) or not isinstance(usefulness, int) or usefulness < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StrategyError(f"The usefulness is {usefulness!r}. Give a whole number above 0; the reference uses 4.")
    domain, d = workload.domain, len(workload.domain)
    for product in workload.products:
        cells = product.cells(product.axes)
        if cells > _MOST_ASKED:
            raise StrategyError(
                f"A product needs a table of {cells:,} cells; the limit is {_MOST_ASKED:,}. Ask for fewer attributes "
                "at a time."
            )
    refuse_workload(workload, data)
    refuse_rereading(data)  # it is counted in every stage
    stages = in_stages(
        data,
        privacy,
        [count_share, network_share],
        sensitivities=(1, 2 * SCORE_SENSITIVITY * max(1, d - 1), d),
        tables=[(name,) for name in domain.names],
        ledger=ledger,
        unit=unit,
        purpose=purpose,
    )

    (total,) = stages.counted([()])
    rows = max(0, int(stages.noisy(0, total)))
    network = noisy_network(
        domain,
        lambda wanted: stages.counted([[domain.names[i] for i in axes] for axes in wanted]),
        lambda scores: stages.chosen(1, scores),
        cells=affordable_cells(domain.shape, useful_cells(rows, stages.epsilons[2] / stages.factor, d, usefulness)),
    )
    exact = stages.counted([[domain.names[i] for i in (*parents, attribute)] for attribute, parents in network])
    tables = [np.maximum(stages.noisy(2, table), 0) for table in exact]
    drawn = min(rows, _MOST_DRAWN)
    columns = sampled(domain, network, tables, drawn)
    return answered(workload, TableEstimate(domain, _Synthetic(domain, columns, rows / drawn if drawn else 0.0)))


def sampled(domain: Domain, network: Sequence[Pair], tables: Sequence[Counts], rows: int) -> list[Array]:
    """Rows drawn from the network, one column of codes per attribute, each given its parents. O(rows·log cells).

    If a table says nothing about a combination of parents, all values are equally likely.
    """
    columns: dict[int, Array] = {}
    for (attribute, parents), table in zip(network, tables, strict=True):
        size = table.shape[-1]
        weights = table.reshape(-1, size).astype(np.float64)
        weights[weights.sum(axis=1) == 0] = 1.0
        reached = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        reached = (reached / reached[:, -1:] + np.arange(len(reached))[:, None]).ravel()
        given = np.zeros(rows, dtype=np.int64)
        for parent in parents:
            given = given * domain.shape[parent] + columns[parent]
        at = np.searchsorted(reached, given + _uniform(rows), side="right")
        columns[attribute] = np.clip(at - given * size, 0, size - 1)  # a sum may round up into the next row
    return [columns[i] for i in range(len(domain))]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Synthetic:
    """Tables of rows, each of which counts for `weight`."""

    domain: Domain
    columns: Sequence[Array]
    weight: float

    def __call__(self, product: Product) -> tuple[Attributes, Array]:
        axes = product.axes
        shape = [self.domain.shape[i] for i in axes]
        at = np.zeros(len(self.columns[0]), dtype=np.int64)
        for i in axes:
            at = at * self.domain.shape[i] + self.columns[i]
        return axes, np.bincount(at, minlength=math.prod(shape)) * self.weight


def _uniform(count: int) -> Array:
    """Numbers in [0, 1) from OS entropy; what they are drawn from is already public."""
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return (words >> np.uint64(64 - _MANTISSA)) * 2.0**-_MANTISSA
