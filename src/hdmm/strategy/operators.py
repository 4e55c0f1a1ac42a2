"""Which operators suit a workload, each as turns of OPT_HDMM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hdmm.matrix import Eye, Matrix
from hdmm.predicates import Identity
from hdmm.privacy import Noise
from hdmm.strategy.base import BlockStrategy, Strategy
from hdmm.strategy.bases import opt_g
from hdmm.strategy.marginal import opt_m
from hdmm.strategy.merged import mergeable, opt_merged
from hdmm.strategy.minimize import Race
from hdmm.strategy.product import opt_x
from hdmm.strategy.select import Operator, Turn
from hdmm.strategy.union import opt_plus
from hdmm.workload import Workload

_MOST_FACTORS = 2**20  # of all products together, where OPT_x and OPT_+ are tried
_MARGINALS = 1e-4  # sets of marginals have many minima that are all but equal; up-to-8-way gains at restart 6
_UNIONS = 1e-3  # two products are refined in a few hundred steps, and end that near to each other


def operators_for(workload: Workload, noise: Noise) -> list[Operator]:
    """The operators worth trying, those that are quick and often best first.

    >>> from hdmm import Domain, Prefix
    >>> [o.name for o in operators_for(Workload.marginals(Domain({"a": 3, "b": 4}), k=2), Noise.LAPLACE)]
    ['OPT_M', 'OPT_x', 'OPT_G', 'OPT_0']
    """
    active = {i for product in workload.products for i, _ in product.factors}
    if len(active) <= 1:
        return [Operator("OPT_0", _raced(opt_x), _once(noise))]
    several = len({product.factors for product in workload.products}) > 1
    chosen = [Operator("OPT_M", _plain(opt_m), _once(noise), agree=_MARGINALS)]
    # A step of the others goes through every attribute of every product: where these are many, plain marginals are
    # left to OPT_M, and other predicates to OPT_G.
    quick = len(workload.products) * len(active) <= _MOST_FACTORS
    if quick:
        chosen.append(Operator("OPT_x", _raced(opt_x)))
    if quick or any(p != Identity() for product in workload.products for _, p in product.factors):
        # One product has no use for marginals: after its own start and the one from OPT_x, nothing was gained.
        chosen.append(Operator("OPT_G", _over_bases, None if several else 2, agree=_MARGINALS))
    if several and quick:
        chosen.append(Operator("OPT_+", _raced(opt_plus), agree=_UNIONS))  # last of them: a start takes seconds
    if set(mergeable(workload)) == active:
        chosen.append(Operator("OPT_0", _raced(opt_merged)))
    return chosen


def _once(noise: Noise) -> int | None:
    """One restart where the problem is convex and has one optimum."""
    return 1 if noise.convex else None


def _plain(operator: Callable[..., Strategy]) -> Callable[[Turn], Strategy]:
    return partial(_turn, operator)  # a partial of functions of modules can be sent to another process


def _raced(operator: Callable[..., Strategy]) -> Callable[[Turn], Strategy]:
    """An operator whose progress is its error as a part of Identity's: starts that fall behind are abandoned."""
    return partial(_raced_turn, operator)


def _raced_turn(operator: Callable[..., Strategy], turn: Turn) -> Strategy:
    race = Race(turn.beat / turn.plain) if not turn.noise.convex and turn.plain > 0 else None
    return _turn(partial(operator, progress=race), turn)


def _turn(operator: Callable[..., Strategy], turn: Turn) -> Strategy:
    return operator(turn.workload, rng=turn.rng, restart=turn.restart, noise=turn.noise, deadline=turn.deadline)


def _over_bases(turn: Turn) -> Strategy:
    """OPT_G from its own starts, and early on from what OPT_x and OPT_M found: it contains both."""
    bases: list[Matrix] | None = None
    theta: dict[tuple[int, ...], float] | None = None
    source = turn.found.get({1: "OPT_x", 2: "OPT_M"}.get(turn.restart, ""))
    if isinstance(source, BlockStrategy):
        by_axis = {i: A for block in source.blocks for i, A in block.factors}
        bases = [by_axis.get(i, Eye(n)) for i, n in enumerate(source.domain.shape)]
        theta = {tuple(i for i, _ in block.factors): block.weight for block in source.blocks}
    return opt_g(
        turn.workload,
        bases=bases,
        theta=theta,
        rng=turn.rng,
        restart=turn.restart,
        noise=turn.noise,
        deadline=turn.deadline,
        progress=Race(turn.beat) if not turn.noise.convex else None,
    )
