"""OPT_0 over nested groups: as good as dense Θ, in any order of cells, with exact gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.base.exceptions import MatrixError
from hdmm.describe.predicates import Identity, Ranges, Sets, Total
from hdmm.matrix import (
    Dense,
    ExtendedDiagonal,
    Eye,
    Forest,
    Gram,
    Intervals,
    Matrix,
    Ones,
    Scaled,
    Sparse,
    Sum,
    gram,
    gram_inverse,
    quadratic,
    to_dense,
    trace,
    trace_product,
)
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import gaussian_optimum
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search, first_search
from hdmm.select.tree import ForestIdentity, nested_groups, optimize_forest
from tests.support.effort import examples


def partition(codes: np.ndarray) -> Sets:
    return Sets([np.flatnonzero(codes == c).tolist() for c in np.unique(codes)])


def counties(n: int, k: int, seed: int = 0) -> tuple[Sets, Sets]:
    """Groups of uneven sizes in random order, and groups of these."""
    codes = (np.random.default_rng(seed).random(n) ** 2 * k).astype(int)
    return partition(codes), partition(codes // 3)


@st.composite
def forests(draw: st.DrawFn) -> Matrix:
    """V of random nested sets, some repeated, some cells in none."""
    n = draw(st.integers(2, 12))
    codes = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    levels = [partition(codes), partition(codes // 2), Total(), Sets([[0, 1]]) if codes[0] == codes[1] else Total()]
    chosen = draw(st.lists(st.sampled_from(levels), min_size=1, max_size=4))
    terms = [Scaled(2.0, each.gram(n)) for each in chosen]
    return Sum((Scaled(draw(st.sampled_from([0.5, 1.0])), Eye(n)), *terms))


@examples(60)
@given(forests())
def test_nested_sets_are_found_and_make_up_v(V: Matrix) -> None:
    groups = nested_groups(V)
    if groups is None:
        assert (to_dense(V) == np.diag(np.diag(to_dense(V)))).all()  # no set of several cells
        return
    rows = Forest(np.sqrt(groups.squares), groups.nodes)
    np.testing.assert_allclose(np.diag(groups.single) + to_dense(Gram(rows)), to_dense(V))


@examples(30)
@given(forests(), st.sampled_from([1, 2]), st.integers(0, 99))
def test_loss_and_gradient(V: Matrix, order: int, seed: int) -> None:
    groups = nested_groups(V)
    if groups is None:
        return
    family = ForestIdentity(groups, order)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    x = rng.random(groups.nodes.shape)
    d = np.diag(to_dense(V))
    value, gradient = family.loss(x, V, d)
    A = to_dense(family.matrix(x))
    assert value == pytest.approx(np.trace(np.linalg.solve(A.T @ A, to_dense(V))))
    step = rng.standard_normal(x.shape)
    ahead, behind = (family.loss(x + h * step, V, d)[0] for h in (1e-6, -1e-6))
    assert (ahead - behind) / 2e-6 == pytest.approx(float(np.vdot(gradient, step)), rel=1e-4, abs=1e-5)


def test_sets_that_cross_are_no_forest() -> None:
    crossing = Ranges([(0, 2), (2, 4)]).gram(5)
    assert nested_groups(Sum((Eye(5), crossing))) is None
    assert nested_groups(gram(Dense([[1.0, 2.0]]))) is None


@pytest.mark.parametrize("asked", ["all", "groups"])
@pytest.mark.parametrize("n", [40, 120])
def test_as_good_as_dense_rows_and_never_above_identity(n: int, asked: str) -> None:
    low, up = counties(n, n // 8)
    predicates = low | up | Total() | Identity() if asked == "all" else low | up
    V = predicates.gram(n)
    groups = nested_groups(V)
    assert groups is not None
    best = min(loss for loss, _ in optimize_forest(groups, first_search()))
    # Dense rows from random starts, without what is known of the groups.
    permuted = Dense(to_dense(V))
    dense = min(
        trace_product(gram_inverse(opt_0(permuted, Search(np.random.default_rng(r), restart=r))), V) for r in range(2)
    )
    assert min(best, trace(V)) <= 1.03 * dense
    found = trace_product(gram_inverse(opt_0(V, first_search())), V)  # on few cells it tries both
    assert found <= min(best, trace(V), 1.002 * dense) * (1 + 1e-9)


def test_near_the_gaussian_optimum() -> None:
    low, up = counties(90, 12)
    V = (low | up | Identity()).gram(90)
    groups = nested_groups(V)
    assert groups is not None
    loss, A = next(optimize_forest(groups, first_search(), order=2))
    assert trace_product(gram_inverse(A), V) == pytest.approx(loss)
    assert loss <= 1.02 * gaussian_optimum(V).loss


@pytest.mark.parametrize("noise", list(Noise))
def test_many_cells_use_the_groups(noise: Noise) -> None:
    low, up = counties(9000, 300)
    V = (low | up | Identity()).gram(9000)
    A = opt_0(V, first_search(), noise)
    assert isinstance(A, ExtendedDiagonal)
    assert isinstance(A.below, Forest)
    assert trace_product(gram_inverse(A), V) < 0.95 * trace(V)


def test_forms_against_dense_algebra() -> None:
    rng = np.random.default_rng(1)
    nodes = np.array([[0, 1, 0, 2, 2, 1], [0, 0, 0, 1, 1, 0]])
    A = ExtendedDiagonal(Forest(rng.random((2, 6)), nodes), order=1)
    H = gram_inverse(A)
    dense = np.linalg.inv(to_dense(A).T @ to_dense(A))
    np.testing.assert_allclose(to_dense(H), dense)
    W = Sets([[0, 2], [1, 3, 5], [4]]).matrix(6)
    for rows in (W, Intervals(6, [0, 2], [1, 5]), Sparse(to_csr(to_dense(W))), Ones(1, 6), Eye(6)):
        R = to_dense(rows)
        np.testing.assert_allclose(quadratic(rows, H), np.diag(R @ dense @ R.T))
        assert trace_product(H, gram(rows)) == pytest.approx(np.trace(dense @ R.T @ R))


def to_csr(array: np.ndarray) -> object:
    import scipy.sparse as sp

    return sp.csr_array(array)


def test_what_is_no_forest_is_refused() -> None:
    with pytest.raises(MatrixError, match="lie in one node"):
        Forest(np.ones((2, 3)), [[0, 0, 1], [0, 1, 1]])
    with pytest.raises(MatrixError, match="numbered from 0"):
        Forest(np.ones((1, 2)), [[0, 2]])
    with pytest.raises(MatrixError, match="whole numbers"):
        Forest(np.ones((1, 2)), [[0.5, 1]])
