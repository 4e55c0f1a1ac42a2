"""A strategy over one more attribute of many copies: one release of A ⊗ I is as many independent releases of A.

A row of one copy changes only answers of that copy, so the noise is A's own.
"""

from __future__ import annotations

from hdmm import Domain, Identity, Product, Strategy, Workload
from hdmm.matrix import Eye
from hdmm.strategy.blocks import Block


def copied(strategy: Strategy, copies: int) -> Strategy:
    """The strategy in every copy: ⊗ I over one more attribute."""
    last, eye = len(strategy.domain), Eye(copies)
    blocks = tuple(Block(block.weight, [*block.factors, (last, eye)]) for block in strategy.blocks)
    return Strategy(with_copies(strategy.domain, copies), blocks, strategy.inference)


def copied_workload(workload: Workload, copies: int) -> Workload:
    """The workload asked in every copy."""
    domain, last = with_copies(workload.domain, copies), len(workload.domain)
    products = (Product(domain, (*p.factors, (last, Identity())), p.weight) for p in workload.products)
    return Workload(domain, tuple(products))


def with_copies(domain: Domain, copies: int) -> Domain:
    """One more attribute."""
    return Domain({**{a.name: a.size for a in domain.attributes}, "copy": copies})
