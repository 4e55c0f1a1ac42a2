"""A strategy over one more attribute of many copies: one release of A ⊗ I is as many independent releases of A.

A row of one copy moves only answers of that copy, so that the noise is A's own.
"""

from __future__ import annotations

from dataclasses import replace

from hdmm import BlockStrategy, DirectStrategy, Domain, Identity, Product, Workload
from hdmm.matrix import Eye
from hdmm.strategy.base import Strategy
from hdmm.strategy.merged import Merge, MergedStrategy


def copied(strategy: Strategy, copies: int) -> Strategy:
    """The strategy in every copy: ⊗ I over one more attribute."""
    domain = with_copies(strategy.domain, copies)
    if isinstance(strategy, DirectStrategy):
        return DirectStrategy(copied_workload(strategy.workload, copies))
    inner = strategy.inner if isinstance(strategy, MergedStrategy) else strategy
    assert isinstance(inner, BlockStrategy)
    last, eye = len(inner.domain), Eye(copies)
    blocks = tuple(replace(block, factors=(*block.factors, (last, eye))) for block in inner.blocks)
    if isinstance(strategy, MergedStrategy):
        return MergedStrategy(domain, strategy.axes, BlockStrategy(Merge(domain, strategy.axes).domain, blocks))
    return BlockStrategy(domain, blocks)


def copied_workload(workload: Workload, copies: int) -> Workload:
    """The workload asked in every copy."""
    domain, last = with_copies(workload.domain, copies), len(workload.domain)
    products = (Product(domain, (*p.factors, (last, Identity())), p.weight) for p in workload.products)
    return Workload(domain, tuple(products))


def with_copies(domain: Domain, copies: int) -> Domain:
    """One more attribute."""
    return Domain({**{a.name: a.size for a in domain.attributes}, "copy": copies})
