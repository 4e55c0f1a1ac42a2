"""OPT_T: tables by themselves, where some are coarser than others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdmm import AllRange, Domain, Identity, Workload
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.goal import Goal
from hdmm.select.opt_t import opt_t, suits_tables
from hdmm.select.problem import Problem
from hdmm.select.search import first_search

DOMAIN = Domain({"sex": 2, "age": 12, "place": 3})
ADULTS = Workload.product(DOMAIN, sex=Identity(), place=Identity(), age=[[0] * 4 + [1] * 8])
AGES = Workload.product(DOMAIN, age=AllRange())


def goal(**targets: float) -> Goal:
    return Goal.of({"adults": ADULTS, "ages": AGES}, targets=targets)


@pytest.mark.parametrize("noise", list(Noise))
def test_the_worst_variance_is_that_of_dense_algebra(noise: Noise) -> None:
    asked = goal(adults=5, ages=20)
    found = opt_t(Problem.of(asked, noise), first_search())
    A = to_dense(found.matrix).astype(np.float64)
    norm = np.abs(A).sum(axis=0).max() if noise is Noise.LAPLACE else np.sqrt((A**2).sum(axis=0).max())
    cov = norm**2 * np.linalg.pinv(A.T @ A)
    for name, table in asked.tables.items():
        W = to_dense(table.matrix).astype(np.float64)
        assert np.allclose(W @ np.linalg.pinv(A) @ A, W)
        worst = np.sqrt(np.einsum("ij,jk,ik->i", W, cov, W).max())
        assert asked.worst(found, noise)[name] == pytest.approx(worst, rel=1e-6)


def test_tables_are_no_worse_than_noise_on_the_cells_of_each() -> None:
    asked = goal(adults=5, ages=20)
    problem = Problem.of(asked, Noise.LAPLACE)
    assert suits_tables(problem)
    alone = {"adults": 1.0, "ages": 12.0}  # the worst row adds up so many cells
    best = sum(math.sqrt(alone[name] / asked.allowed[name]) for name in alone) ** 2
    assert asked.value(opt_t(problem, first_search()), Noise.LAPLACE) <= best * (1 + 1e-9)


def test_it_is_not_for_tables_of_the_same_cells() -> None:
    same = Goal.of({"ages": AGES, "places": Workload.product(DOMAIN, place=Identity())}, "worst")
    assert not suits_tables(Problem.of(same, Noise.LAPLACE))
    assert not suits_tables(Problem.of(Goal.of({"adults": ADULTS, "ages": AGES}), Noise.LAPLACE))
