"""Rounding a strategy to integers costs at most a thousandth of the error, by dense algebra, on random problems."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from scipy.linalg import null_space

from hdmm import Noise, Strategy, Workload
from hdmm.base.exceptions import StrategyError
from hdmm.matrix import to_dense
from hdmm.strategy.lattice import Lattice
from tests.support.problems import MANY, dense_block, drawn_domain, drawn_known, drawn_workload, planned_beside

ROWS = 2**24  # room for 8 bits or more in each of four factors
SIZES = (1, 2, 3, 5)
FEW = range(8)


def dense_error(w: Workload, strategy: Strategy, noise: Noise) -> float:
    """‖A‖²·‖W A⁺‖²_F, beside what the strategy knows."""
    blocks = [block.weight * dense_block(w.domain.shape, block) for block in strategy.blocks]
    A = np.vstack(blocks)
    sensitivity = (np.abs(A) ** noise.order).sum(axis=0).max() ** (2 / noise.order)
    W = to_dense(w.matrix)
    if strategy.known:
        N = null_space(np.vstack([to_dense(product.matrix) for product in strategy.known]))
        A, W = A @ N, W @ N
    return float(sensitivity * (W @ np.linalg.pinv(A.T @ A, rcond=1e-10, hermitian=True) * W).sum())


def check_rounding(seed: int) -> int:
    """How many bits more than 8 were needed; -1 if there was nothing to plan."""
    rng = np.random.default_rng(seed)
    domain = drawn_domain(rng, SIZES)
    tables = {f"t{k}": drawn_workload(rng, domain) for k in range(rng.integers(1, 4))}
    known = [drawn_known(rng, domain, rng.integers(0, 50, size=domain.shape)) for _ in range(rng.choice([0, 0, 1]))]
    goal, noise = str(rng.choice(["total", "tables", "worst"])), Noise(rng.choice(["laplace", "gaussian"]))
    plan = planned_beside(tables, objective=goal, noise=noise, known=known)
    if plan is None:
        return -1
    before = dense_error(plan.workload, plan.strategy, noise)

    def cost(bits: int | None) -> float:
        lattice = Lattice.of(plan.strategy, noise, max_rows=ROWS, workload=plan.workload, bits=bits)
        return dense_error(plan.workload, lattice.strategy, noise) / before - 1

    least = cost(None)
    assert least < 1e-3, (seed, least, plan.operator)
    for bits in (8, 9, 10, 11, 12, 14, 16):
        with suppress(StrategyError):  # by so few bits, what was asked for is not measured any more
            if cost(bits) <= least + 1e-12:
                return bits - 8
    raise AssertionError(f"{seed}: {least} is the cost of no number of bits.")


@pytest.mark.parametrize("seed", FEW)
def test_rounding_costs_less_than_a_thousandth(seed: int) -> None:
    check_rounding(seed)


@pytest.mark.slow
def test_rounding_costs_less_than_a_thousandth_in_500_problems() -> None:
    found = [check_rounding(seed) for seed in MANY]
    assert sum(bits < 0 for bits in found) < len(found) / 3
