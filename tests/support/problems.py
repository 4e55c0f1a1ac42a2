"""Random small problems: domains, workloads, known counts and strategies, and their blocks as dense matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdmm import (
    AllRange,
    Domain,
    Identity,
    Known,
    Labels,
    Plan,
    PredicateSet,
    Prefix,
    Strategy,
    SumAtMost,
    Total,
    Vectors,
    Workload,
    optimize,
)
from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Weighted
from hdmm.matrix import Dense, Eye, Matrix, PIdentity, to_dense
from hdmm.strategy.blocks import Block

SIZES = (1, 1, 2, 3, 4)
MANY = range(500)  # seeds


def drawn_domain(rng: np.random.Generator, sizes: Sequence[int] = SIZES) -> Domain:
    domain: dict[str, int | Labels] = {f"a{i}": int(rng.choice(sizes)) for i in range(rng.integers(1, 4))}
    if rng.random() < 0.4:
        domain["place"] = Labels(["T1", "T2", "T3"], levels={"state": ["N", "S", "N"]})
    return Domain(domain)


def drawn_predicates(rng: np.random.Generator, n: int) -> PredicateSet:
    sets: Sequence[PredicateSet] = (
        Identity(),
        Prefix(),
        AllRange(),
        Total(),
        Identity() | Total(),
        Weighted(Identity(), rng.uniform(0.2, 3, n)),
        Vectors(np.eye(2)[np.arange(n) % 2].T),  # of places, the states
    )
    return sets[rng.integers(len(sets))]


def drawn_workload(rng: np.random.Generator, domain: Domain) -> Workload:
    """Products with weights, some of them twice, and some on two attributes at once."""
    shape = domain.shape
    products: list[Workload] = []
    for _ in range(rng.integers(1, 4)):
        if len(domain) > 1 and rng.random() < 0.15:
            made = Workload.product(domain, {domain.names[:2]: SumAtMost(shape[:2])})
        else:
            chosen = [i for i in range(len(domain)) if rng.random() < 0.6]
            made = Workload.product(domain, {domain.names[i]: drawn_predicates(rng, shape[i]) for i in chosen})
        products += [float(rng.choice([0.3, 1.0, 2.5])) * made] * int(rng.choice([1, 1, 2]))
    return sum(products[1:], start=products[0])


def drawn_known(rng: np.random.Generator, domain: Domain, x: np.ndarray) -> Known:
    axes = [i for i in range(len(domain)) if rng.random() < 0.5]
    others = tuple(i for i in range(len(domain)) if i not in axes)
    names = [domain.names[i] for i in axes]
    table = x.sum(axis=others)
    if names and names[-1] == "place" and rng.random() < 0.5:
        names[-1] = "state"
        table = np.stack([table[..., 0] + table[..., 2], table[..., 1]], axis=-1)
    return Known(domain, names, table)


def drawn_strategy(rng: np.random.Generator, domain: Domain) -> Strategy:
    blocks: list[Block] = []
    for _ in range(rng.integers(1, 4)):
        factors: list[tuple[int, Matrix]] = []
        for i, n in enumerate(domain.shape):
            some = Dense(rng.integers(-1, 2, (2, n)) + 3 * np.eye(2, n, dtype=np.int64))
            kinds: Sequence[Matrix | None] = (None, None, Eye(n), PIdentity(rng.random((1, n))), some)
            A = kinds[rng.integers(len(kinds))]
            factors += [] if A is None else [(i, A)]
        blocks.append(Block(float(rng.choice([0.3, 1.0])), factors))
    return Strategy(domain, tuple(blocks))


def planned_beside(goal: Workload | Mapping[str, Workload], **options: Any) -> Plan | None:
    """A quick plan; None if what is known answers every query already, which is refused in these words."""
    try:
        return optimize(goal, restarts=1, time_limit=2, progress=False, **options)
    except StrategyError as refused:
        if "answer every query already" in str(refused):
            return None
        raise


def dense_block(shape: Sequence[int], block: Block) -> np.ndarray:
    """The rows of a block, without its weight, over all cells."""
    used = [i for axes, _ in block.factors for i in axes]
    order = [*used, *(i for i in range(len(shape)) if i not in used)]
    K = np.ones((1, 1))
    for _, A in block.factors:
        K = np.kron(K, to_dense(A))
    K = np.kron(K, np.ones((1, int(np.prod([shape[i] for i in order[len(used) :]])))))
    K = K.reshape(len(K), *(shape[i] for i in order)).transpose(0, *(1 + order.index(i) for i in range(len(shape))))
    return K.reshape(len(K), -1)
