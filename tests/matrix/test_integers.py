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


def of_one_norm(shape: tuple[int, int], *, apart: float = 0.0) -> np.ndarray:
    """Columns of one L2 norm, but for the first, of which the square is larger by this part."""
    rng = np.random.default_rng(shape)
    A = rng.normal(size=shape) * (rng.random(shape) < 0.8)
    A /= np.linalg.norm(A, axis=0)
    A[:, 0] *= np.sqrt(1 + apart)
    return A


@pytest.mark.parametrize("shape", [(12, 9), (9, 12), (20, 20)])
def test_no_other_entry_would_bring_a_column_nearer_to_its_norm(shape: tuple[int, int]) -> None:
    A = of_one_norm(shape)
    found, q = rounded(Dense(A), 8)
    integers, exact = to_dense(found), q * A
    other = np.floor(exact) + np.ceil(exact) - integers
    assert np.abs(integers - exact).max() < 1
    assert ((integers == 0) >= (A == 0)).all()
    off = (integers**2).sum(axis=0) - (exact**2).sum(axis=0)
    change = np.where(exact == 0, 0, other**2 - integers**2)
    assert (np.abs(off + change) >= np.abs(off) - 1e-6).all()
    assert not (integers == np.rint(exact)).all()


@pytest.mark.parametrize(("apart", "nearest"), [(0.9e-6, False), (1.1e-6, True)])
def test_norms_are_one_if_their_squares_differ_by_a_millionth_at_most(apart: float, nearest: bool) -> None:
    A = of_one_norm((12, 9), apart=apart)
    found, q = rounded(Dense(A), 8)
    assert (to_dense(found) == np.rint(q * A)).all() == nearest


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
