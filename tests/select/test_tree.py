"""Trees: elimination, loss, gradient and error without any n × n array."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hdmm import AllRange, Domain, Prefix, Strategy, Workload, unit_error
from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervalsGram,
    Conjugated,
    Cumulative,
    Eye,
    Gram,
    Nested,
    Permuted,
    PIdentity,
    Scaled,
    Sum,
    TreeIdentity,
    column_norms,
    diagonal,
    gram_inverse,
    to_dense,
    trace,
    trace_product,
)
from hdmm.matrix.blocked import block_product, coarsened
from hdmm.select import tree
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.select.tree import Tied, Tree, optimize_tree, tree_widths
from hdmm.strategy.blocks import Block

from .grams import dense_loss, grams, numeric_gradient

KINDS = list(grams(2))
SHAPES = [(10, [2, 4, 12]), (8, [2, 8]), (12, [5, 15]), (6, [6]), (4, [1, 2, 4]), (14, [3, 6, 24])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "widths"), SHAPES)
@pytest.mark.parametrize("order", [1, 2])
def test_loss_and_gradient_are_those_of_the_definition(kind, n, widths, order) -> None:
    V = grams(n)[kind]
    weights = np.random.default_rng(n).uniform(0.1, 1.5, size=(len(widths), n))

    def definition(b: np.ndarray) -> float:
        return dense_loss(to_dense(TreeIdentity(b, widths, order=order)), V)

    value, gradient = Tree(tuple(widths), order).loss(weights, V, to_dense(V).diagonal())
    assert value == pytest.approx(definition(weights), rel=1e-9)
    numeric = numeric_gradient(definition, weights)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6 * np.abs(numeric).max())


def test_tied_weights_have_the_sums_of_the_gradient() -> None:
    V, place = AllIntervalsGram(6), np.arange(12).reshape(2, 6) // 2
    family = Tied(Tree((2, 6)), place)
    x = np.random.default_rng(3).uniform(0.1, 1.0, size=6)
    d = to_dense(V).diagonal()
    numeric = numeric_gradient(lambda y: family.loss(y, V, d)[0], x)
    np.testing.assert_allclose(family.loss(x, V, d)[1], numeric, rtol=1e-5)
    assert trace_product(gram_inverse(family.matrix(x)), V) == pytest.approx(family.loss(x, V, d)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "width"), [(10, 2), (10, 3), (10, 10), (10, 16), (6, 1)])
def test_block_products_are_those_of_the_diagonal_blocks(kind, n, width) -> None:
    V = grams(n)[kind]
    nodes = -(-n // width)
    x = np.zeros(nodes * width)
    x[:n] = np.random.default_rng(0).normal(size=n)
    same = np.arange(n)[:, None] // width == np.arange(n) // width
    expected = (to_dense(V) * same) @ x[:n]
    np.testing.assert_allclose(block_product(V, x.reshape(nodes, width)).ravel()[:n], expected, atol=1e-9)


def test_a_tree_is_a_p_identity_matrix() -> None:
    weights = np.random.default_rng(0).uniform(size=(2, 10))
    A = TreeIdentity(weights, [4, 12])
    np.testing.assert_allclose(to_dense(A), to_dense(PIdentity(to_dense(A.theta))), atol=1e-15)


@pytest.mark.parametrize("order", [1, 2])
def test_columns_have_norm_one(order) -> None:
    A = TreeIdentity(np.random.default_rng(0).uniform(size=(3, 20)) * 5, [2, 6, 24], order=order)
    np.testing.assert_allclose((np.abs(to_dense(A)) ** order).sum(axis=0), 1, rtol=1e-14)
    assert (column_norms(A, order) == 1).all()


@pytest.mark.parametrize("predicates", [Prefix(), AllRange()])
def test_large_domains_get_their_error_without_a_square_array(predicates) -> None:
    """The error of a tree on 2^17 cells; at n = 64 the same path is checked against the definition."""
    for n in (64, 2**17):
        w = Workload.product(Domain({"x": n}), x=predicates)
        widths = tree_widths(n, 8)
        A = TreeIdentity(np.full((len(widths), n), 0.5), widths)
        found = unit_error(w, Strategy(w.domain, (Block(1.0, ((0, A),)),)))
        assert found < 1.1 * trace(predicates.gram(n))
        if n == 64:
            assert found == pytest.approx(dense_loss(to_dense(A), predicates.gram(n)), rel=1e-9)


def test_opt_0_past_the_dense_limit_is_a_tree(monkeypatch) -> None:
    monkeypatch.setattr("hdmm.select.opt_0._DENSE", 100)
    V = Gram(Cumulative(500))
    A = opt_0(V, first_search())
    assert isinstance(A.below, Nested)
    assert trace_product(gram_inverse(A), V) < 0.2 * trace(V)


def test_shuffled_cells_get_a_tree_in_their_own_order(monkeypatch) -> None:
    monkeypatch.setattr("hdmm.select.opt_0._DENSE", 100)
    n = 500
    index = np.random.default_rng(0).permutation(n)
    V = Conjugated(AllIntervalsGram(n), index)
    A = opt_0(V, first_search())
    assert isinstance(A, Permuted)
    assert trace_product(gram_inverse(A), V) < 0.5 * trace(V)


def test_optimised_trees_beat_their_start() -> None:
    V = AllIntervalsGram(100)
    widths = tree_widths(100, 8)
    loss, A = optimize_tree(V, widths, first_search())
    assert loss == pytest.approx(trace_product(gram_inverse(A), V), rel=1e-9)
    assert loss < Tree(widths).loss(np.ones((len(widths), 100)), V, to_dense(V).diagonal())[0]


def test_widths_must_nest() -> None:
    with pytest.raises(MatrixError, match="divide the next"):
        Nested(np.ones((2, 6)), [2, 3])
    with pytest.raises(MatrixError, match="one per level"):
        Nested(np.ones((2, 6)), [2])
    with pytest.raises(MatrixError, match="at least 0"):
        TreeIdentity(-np.ones((1, 6)), [6])
    with pytest.raises(MatrixError, match="order"):
        TreeIdentity(np.ones((1, 6)), [6], order=3)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 17, 1000, 65_536])
@pytest.mark.parametrize("branching", [2, 8, 16])
def test_the_top_node_holds_all_cells(n, branching) -> None:
    widths = tree_widths(n, branching)
    assert n <= widths[-1] < 2 * n + branching
    assert all(upper % lower == 0 for lower, upper in pairwise(widths))


def test_many_cells_start_from_the_result_for_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a million cells, on few: better than even weights, not as good as a weight per cell and level."""
    V, widths = AllIntervalsGram(256), (8, 64, 256)
    free = optimize_tree(V, widths, first_search())[0]
    monkeypatch.setattr(tree, "_LARGE", 2)
    monkeypatch.setattr(tree, "_FEW", 20)
    loss, A = optimize_tree(V, widths, first_search())
    assert loss == pytest.approx(trace_product(gram_inverse(A), V), rel=1e-8)
    even = Tree(widths).loss(np.ones((3, 256)), V, to_dense(V).diagonal())[0]
    assert free < loss < 0.9 * even
    weights = A.below.values
    assert (weights[1].reshape(-1, 8) == weights[1][::8, None]).all()
    assert len(np.unique(weights[0])) > 100


def test_nodes_are_a_start_for_cells_and_prefixes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 2000
    V, widths = Sum((Gram(Cumulative(n)), Scaled(2.0, Eye(n)))), tree_widths(n, 4)
    even = Tree(widths).loss(np.ones((len(widths), n)), V, diagonal(V).astype(np.float64))[0]
    monkeypatch.setattr(tree, "_LARGE", 2)
    monkeypatch.setattr(tree, "_FEW", 200)
    assert optimize_tree(V, widths, first_search())[0] < 0.9 * even


@pytest.mark.parametrize("kind", KINDS)
def test_coarser_cells_have_about_the_mean_of_their_blocks(kind) -> None:
    V = grams(64)[kind]
    coarse = coarsened(V, 4)
    if coarse is not None:
        means = to_dense(V).reshape(16, 4, 16, 4).mean(axis=(1, 3))
        assert np.linalg.norm(to_dense(coarse) - means) < 0.3 * np.linalg.norm(means)
