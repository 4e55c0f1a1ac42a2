"""Expected error and variance of a strategy on a workload: exact, and known before any data is read.

Every figure is variance_factor · sensitivity² · (unit-noise variance). The variance factor is 2/ε² for Laplace and
1/(2ρ) for Gaussian noise; the sensitivity is the largest column L1 or L2 norm of the strategy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.strategy.form import Form
from hdmm.strategy.strategy import Strategy

_MAX_QUERIES = 1 << 30  # 8 GiB of variances


def unit_error(workload: Workload, strategy: Strategy, *, noise: Noise = Noise.LAPLACE) -> float:
    """‖A‖²·‖W A⁺‖²_F: the total squared error at unit noise, by which strategies are compared.

    >>> from hdmm.baselines import identity
    >>> from hdmm import Domain, Prefix
    >>> w = Workload.product(Domain({"age": 1024}), age=Prefix())
    >>> unit_error(w, identity(w))
    524800.0
    """
    strategy.check_domain(workload.domain)
    return float(strategy.sensitivity(noise)) ** 2 * check_support(workload, strategy.form)


def check_support(workload: Workload, form: Form) -> float:
    """The total variance of the workload's queries; StrategyError if the strategy does not support one of them."""
    total = form.total_variance(workload.products)
    if math.isinf(total):
        product = next((p for p in workload.products if math.isinf(form.total_variance([p]))), None)
        asking = "the workload" if product is None else f"product ({product})"
        raise StrategyError(
            f"The strategy does not measure everything that {asking} asks for, so it cannot answer all queries. Add "
            "the missing queries to the strategy, or optimise a strategy for this workload."
        )
    return total


def expected_error(workload: Workload, strategy: Strategy, privacy: Privacy) -> float:
    """The expected total squared error of the workload's answers (Definition 6 of the paper).

    >>> from hdmm import Domain, PureDP
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 10}), k=1)
    >>> expected_error(w, identity(w), PureDP(1))
    20.0
    """
    return float(privacy.variance_factor) * unit_error(workload, strategy, noise=privacy.noise)


def rmse(workload: Workload, strategy: Strategy, privacy: Privacy) -> float:
    """The root of the mean squared error per query: √(expected_error / queries).

    >>> from hdmm import Domain, PureDP
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 10}), k=0)
    >>> rmse(w, identity(w), PureDP(2))
    2.23606797749979
    """
    return math.sqrt(expected_error(workload, strategy, privacy) / workload.queries)


def query_variance(workload: Workload, strategy: Strategy, privacy: Privacy) -> Array:
    """The variance of each query of `workload.matrix`, in query order; their sum is the expected error.

    It takes one Kronecker product per product of the workload, so millions of queries take seconds.

    >>> from hdmm import Domain, Prefix, PureDP
    >>> from hdmm.baselines import identity
    >>> w = Workload.product(Domain({"age": 3}), age=Prefix())
    >>> query_variance(w, identity(w), PureDP(1))
    array([2., 4., 6.])
    """
    if workload.queries > _MAX_QUERIES:
        raise StrategyError(
            f"{workload.queries:,} variances would need {8 * workload.queries / 1e9:.0f} GB. Iterate over them with "
            "stream_query_variance, or use expected_error."
        )
    out = np.empty(workload.queries)
    start = 0
    for _, piece in stream_query_variance(workload, strategy, privacy):
        out[start : start + len(piece)] = piece
        start += len(piece)
    return out


def stream_query_variance(workload: Workload, strategy: Strategy, privacy: Privacy) -> Iterator[tuple[Product, Array]]:
    """`query_variance` in pieces of bounded size: (product, variances of its next queries).

    >>> from hdmm import Domain, PureDP
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> [piece.tolist() for _, piece in stream_query_variance(w, identity(w), PureDP(1))]
    [[6.0], [2.0, 2.0, 2.0]]
    """
    if not supports(workload, strategy):
        unit_error(workload, strategy, noise=privacy.noise)
    scale = float(privacy.variance_factor) * float(strategy.sensitivity(privacy.noise)) ** 2
    for product in workload.products:
        for piece in strategy.variances(product):
            yield product, scale * product.weight**2 * piece


def supports(workload: Workload, strategy: Strategy) -> bool:
    """Whether the strategy can answer every query of the workload whose weight is above 0.

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity, laplace
    >>> domain = Domain({"age": 10})
    >>> total, ages = Workload.marginals(domain, k=0), Workload.marginals(domain, k=1)
    >>> supports(total, identity(ages)), supports(ages, laplace(total))
    (True, False)
    """
    return math.isfinite(strategy.total_variance(workload))
