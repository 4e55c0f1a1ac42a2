"""Rounding to integers: columns of one L2 norm keep one, so that the sensitivity hardly rises."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm import Domain, Prefix, Strategy, Workload, unit_error
from hdmm.matrix import Dense, to_dense
from hdmm.matrix.integers import rounded
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import gaussian_optimum
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import Lattice


@pytest.mark.parametrize("n", [16, 32, 64])
def test_columns_of_one_norm_keep_one(n: int) -> None:
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n)
    A /= np.linalg.norm(A, axis=0)
    found, q = rounded(Dense(A), 8)
    integers = to_dense(found)
    norms = np.linalg.norm(integers, axis=0) / q
    nearest = np.linalg.norm(np.rint(q * A), axis=0) / q
    assert norms.max() - 1 < 0.5 * (nearest.max() - 1)
    assert np.abs(integers - q * A).max() < 1
    assert (integers[A == 0] == 0).all()
    uneven = A * np.linspace(1, 2, n)
    found, q = rounded(Dense(uneven), 8)
    assert np.abs(to_dense(found) - q * uneven).max() <= 0.5


@pytest.mark.parametrize("attributes", [1, 2, 3])
def test_rounding_costs_a_thousandth_where_there_is_room(attributes: int) -> None:
    """At the default bound of 2³³ rows, a product of three factors has 9 bits each."""
    domain = Domain({f"a{i}": 16 for i in range(attributes)})
    w = Workload.product(domain, {name: Prefix() for name in domain.names})
    A = gaussian_optimum(Prefix().gram(16)).A
    strategy = Strategy(domain, (Block(1.0, [(i, A) for i in range(attributes)]),))
    lattice = Lattice.of(strategy, Noise.GAUSSIAN, max_rows=2**33, workload=w)
    before = unit_error(w, strategy, noise=Noise.GAUSSIAN)
    assert unit_error(w, lattice.strategy, noise=Noise.GAUSSIAN) < 1.001 * before
