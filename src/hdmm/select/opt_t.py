"""OPT_T: every table by itself, on the cells that it tells apart, with the shares of the budget that serve the worst.

What one table asks for may be far coarser than what another does: of the ages from 18 on beside all ranges of ages,
one cell. Factors that serve both measure too much for the first; here each table has a product of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Eye
from hdmm.select.goal import largest_variance
from hdmm.select.opt_x import opt_x
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.strategy.blocks import Block
from hdmm.strategy.error import unit_error
from hdmm.strategy.strategy import Strategy

_MOST_TABLES = 32


def opt_t(problem: Problem, search: Search) -> Strategy:
    """[√c_k A_k]_k, with A_k the better of the cells of part k and what OPT_⊗ finds for it, at an error c_k by itself.

    The largest error is least at these weights, but for what parts learn from each other.

    >>> from hdmm import AllRange, Domain, Identity
    >>> from hdmm.privacy.guarantee import Noise
    >>> from hdmm.select.goal import Goal
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"sex": 2, "age": 50})
    >>> adults = Workload.product(domain, sex=Identity(), age=[[0] * 18 + [1] * 32])
    >>> goal = Goal.of({"adults": adults, "ages": Workload.product(domain, age=AllRange())}, "worst")
    >>> problem = Problem.of(goal, Noise.LAPLACE)
    >>> [goal.value(f(problem, first_search()), Noise.LAPLACE) < 40 for f in (opt_x, opt_t)]
    [False, True]
    """
    blocks: list[Block] = []
    for part in _parts(problem):
        cost, strategy = _best(part, search.silent(), mean=problem.goal is None or problem.goal.means)
        share = math.sqrt(cost) / float(strategy.sensitivity(problem.noise))
        blocks += [Block(share * block.weight, block.factors) for block in strategy.blocks]
    return Strategy(problem.given.domain, tuple(blocks))


def suits_tables(problem: Problem) -> bool:
    """Whether the worst counts, of several parts, but few, of which some do not tell apart all cells that others do."""
    parts = _parts(problem) if problem.parts is not None and not problem.known else []
    return 1 < len(parts) <= _MOST_TABLES and any(part.merged is not part for part in parts)


def _parts(problem: Problem) -> Sequence[Problem]:
    """The problem of each part by itself."""
    found: dict[int, list[Product]] = {}
    of = () if problem.parts is None else problem.parts.of.tolist()
    for k, product in zip(of, problem.given.products, strict=True):
        found.setdefault(k, []).append(product)
    return [Problem(Workload(problem.given.domain, tuple(each)), problem.noise) for each in found.values()]


def _best(part: Problem, search: Search, *, mean: bool) -> tuple[float, Strategy]:
    """(the error of a part by itself, its strategy): the sum of its rows' or, in the same units, that of the worst."""
    merged = part.merged
    shape = merged.given.domain.shape
    active = sorted({i for product in merged.given.products for i in product.axes})
    cells = Strategy(merged.given.domain, (Block(1.0, tuple([((i,), Eye(shape[i])) for i in active])),))
    ways = [merged.restored(each) for each in (cells, opt_x(merged, search))]
    return min(((_error(part, way, mean=mean), way) for way in ways), key=lambda each: each[0])


def _error(part: Problem, strategy: Strategy, *, mean: bool) -> float:
    if mean:
        return unit_error(part.given, strategy, noise=part.noise)
    rows = tuple([product.weighted(product.weight * math.sqrt(product.queries)) for product in part.given.products])
    unit = float(strategy.sensitivity(part.noise)) ** 2
    return unit * largest_variance(Workload(part.given.domain, rows), strategy.form)
