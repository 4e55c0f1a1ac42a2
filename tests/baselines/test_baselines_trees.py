"""Privelet, HB, Quadtree and GreedyH: their matrices from the definitions, their errors against dense algebra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import (
    AllRange,
    Domain,
    Identity,
    NotApplicableError,
    Prefix,
    PureDP,
    Shuffled,
    Strategy,
    Total,
    Width,
    Workload,
)
from hdmm.baselines import greedy_h, hb, privelet, quadtree
from hdmm.baselines.fixed import branching, grid_blocks, grid_tree, height
from hdmm.matrix import Haar, to_dense
from hdmm.measure.measure import measure
from hdmm.reconstruct.least_squares import in_unit_noise
from hdmm.strategy.axis_groups import AxisGroups, Tabulated
from hdmm.strategy.blocks import stacked_blocks
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.class_inverse import Grid
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads

Method = Callable[[Workload], Strategy]


def assert_exact(workload: Workload, strategy: Strategy) -> None:
    """Sensitivity, total and variances of every query equal ‖A‖₁, ‖WA⁺‖² and diag(W(AᵀA)⁺Wᵀ)."""
    A, W = to_dense(strategy.matrix), brute.workload_matrix(workload)
    each = brute.variances(W, A)
    sensitivity = brute.sensitivity(A, "laplace")
    assert strategy.sensitivity("laplace") == pytest.approx(sensitivity, rel=1e-12)
    assert hdmm.unit_error(workload, strategy) == pytest.approx(sensitivity**2 * each.sum(), rel=1e-8, abs=1e-12)
    found = hdmm.query_variance(workload, strategy, PureDP(1))
    np.testing.assert_allclose(found, 2 * sensitivity**2 * each, rtol=1e-7, atol=1e-9)


def haar(n: int) -> np.ndarray:
    """The reference: coefficients (mean of the left half − mean of the right)/2, times their weights."""
    padded = 2 ** math.ceil(math.log2(n))
    rows = [padded * np.full(padded, 1 / padded)]
    size = padded
    while size > 1:
        for start in range(0, padded, size):
            row = np.zeros(padded)
            row[start : start + size // 2] = 1 / (size // 2)
            row[start + size // 2 : start + size] = -1 / (size // 2)
            rows.append(size * row / 2)  # the weight of a coefficient is the number of leaves below its node
        size //= 2
    kept = np.array(rows)[:, :n]
    return kept[np.abs(kept).sum(axis=1) > 0]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16])
def test_haar_is_the_weighted_wavelet(n: int) -> None:
    np.testing.assert_allclose(to_dense(Haar(n)), haar(n), atol=1e-12)


@examples(60)
@given(st.data())
def test_privelet_error(data: st.DataObject) -> None:
    domain = data.draw(domains(size=9, attributes=2))
    assert_exact(w := data.draw(workloads(domain)), privelet(w))


@pytest.mark.parametrize("n", [1000, 2048])
def test_privelet_on_large_domains(n: int) -> None:
    """Prefixes from the wavelet: H = AᵀD⁻²A is orthogonal rows for powers of two, else compare with a dense inverse."""
    w = Workload.product(Domain({"x": n}), x=Prefix())
    if n == 1000:
        A = to_dense(Haar(n))
        expected = float(np.sum(np.tri(n) * (np.tri(n) @ np.linalg.inv(A.T @ A))))
    else:
        rows = (
            Haar(n).matmat(np.tri(n).T)
            / np.repeat(
                [n, *(n // 2**k for k in range(n.bit_length() - 1))], [1, *(2**k for k in range(n.bit_length() - 1))]
            )[:, None]
        )
        expected = float(np.sum(rows**2))
    assert hdmm.unit_error(w, privelet(w)) == pytest.approx((1 + math.ceil(math.log2(n))) ** 2 * expected, rel=1e-9)


def cuts(n: int, width: int) -> np.ndarray:
    """The 0/1 rows of consecutive intervals of `width` cells, the last cut short."""
    return np.array([[float(start <= c < start + width) for c in range(n)] for start in range(0, n, width)])


@examples(60)
@given(st.data())
def test_hb(data: st.DataObject) -> None:
    domain = data.draw(domains(attributes=2, size=12))
    w = data.draw(workloads(domain))
    d, n = len(domain), max(domain.shape)
    b = branching(n, d)
    h = height(n, b)
    levels = [brute.kron([cuts(m, b**level) for m in domain.shape]) / h for level in range(h)]
    found = to_dense(hb(w).matrix)
    expected = np.vstack(levels)
    np.testing.assert_allclose(sorted(map(tuple, found.round(12))), sorted(map(tuple, expected.round(12))), atol=1e-11)
    assert_exact(w, hb(w))


@pytest.mark.parametrize("n", [2, 16, 45, 128, 1000, 1024])
def test_branching_is_equation_3(n: int) -> None:
    def v(b: int) -> float:
        h = math.ceil(round(math.log(n) / math.log(b), 9))
        return (b - 1) * h**3 - 2 * (b + 1) * h**2 / 3

    assert v(branching(n, 1)) == pytest.approx(min(v(b) for b in range(2, n + 1)))


@examples(40)
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_quadtree(m: int, n: int, data: st.DataObject) -> None:
    domain = Domain({"x": m, "y": n})
    w = data.draw(workloads(domain))
    levels = range(math.ceil(math.log2(max(m, n))) + 1)
    raw = [2 ** (-k / 3) * brute.kron([cuts(m, 2**k), cuts(n, 2**k)]) for k in levels]
    expected = np.vstack(raw) / sum(2 ** (-k / 3) for k in levels)
    found = to_dense(quadtree(w).matrix)
    np.testing.assert_allclose(sorted(map(tuple, found.round(12))), sorted(map(tuple, expected.round(12))), atol=1e-11)
    assert_exact(w, quadtree(w))


UNEVEN = [(quadtree, (5, 7)), (quadtree, (1, 6)), (hb, (260, 3))]


@pytest.mark.parametrize(("method", "shape"), UNEVEN)
@pytest.mark.parametrize("privacy", [PureDP("0.5"), hdmm.ZCDP("0.125")], ids=str)
def test_uneven_trees_are_measured_and_saved(
    method: Method, shape: tuple[int, int], privacy: hdmm.Privacy, tmp_path: Path
) -> None:
    """What is estimated is the least-squares solution of what was measured, and the margins are the exact ones."""
    domain = Domain({"x": shape[0], "y": shape[1]})
    w = Workload.marginals(domain, k=2) + Workload.product(domain, x=Prefix())
    strategy = method(w)
    assert isinstance(strategy.form.inverse, Grid)
    x = np.random.default_rng(0).integers(0, 50, shape)
    ledger = hdmm.Ledger(tmp_path / "budget.db", dataset="people", cap=privacy)
    release = measure(strategy, hdmm.from_array(domain, x), privacy, ledger=ledger)
    assert ledger.remaining == 0
    answers = release.answer(w)
    form = release.form
    assert isinstance(form.inverse, Grid)
    A = to_dense(stacked_blocks(domain.shape, form.blocks))
    y = in_unit_noise(form.blocks, release.measurements, release._units)  # type: ignore[attr-defined]
    expected = brute.workload_matrix(w) @ np.linalg.lstsq(A, y, rcond=None)[0]
    np.testing.assert_allclose(answers.values, expected, atol=1e-6 * np.abs(expected).max())
    # Rounding to integers changes only the weights, to 12 bits.
    np.testing.assert_allclose(answers.stddev**2, hdmm.query_variance(w, strategy, privacy), rtol=2e-3)
    assert release.answer(w, nonnegative=True).values.min() >= 0
    release.save(tmp_path / "release")
    again = hdmm.load_release(tmp_path / "release")
    assert isinstance(again.form.inverse, Grid)
    np.testing.assert_array_equal(again.answer(w).values, answers.values)
    np.testing.assert_array_equal(again.answer(w).stddev, answers.stddev)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("0.5"), hdmm.ZCDP("0.125")], ids=str)
def test_an_uneven_tree_is_as_noisy_as_it_says(privacy: hdmm.Privacy) -> None:
    domain = Domain({"x": 5, "y": 3})
    w = Workload.product(domain, x=Prefix(), y=Identity())
    strategy, data = quadtree(w), hdmm.from_array(domain, np.zeros(15, dtype=int))
    drawn = np.array([measure(strategy, data, privacy, ledger=None).answer(w).values for _ in range(1600)])
    expected = hdmm.query_variance(w, strategy, privacy)
    assert np.mean(drawn**2, axis=0).sum() == pytest.approx(expected.sum(), rel=0.15)


def test_a_tree_of_squares_checks_its_levels() -> None:
    domain = Domain({"x": 5, "y": 3})
    for widths, weights, over in (
        ((1, 2), (1.0,), domain),
        ((2, 4), (0.5, 0.5), domain),
        ((1, 2, 3), (0.5, 0.25, 0.25), domain),
        ((1, 1), (0.5, 0.5), domain),
        ((), (), domain),
        ((1, 2), (0.5, 0.0), domain),
        ((1, 2), (0.5, 0.5), Domain({"x": 4})),
    ):
        with pytest.raises(hdmm.StrategyError):
            Strategy(over, grid_blocks(over, widths, weights))


def test_uneven_and_even_grids_agree() -> None:
    """Where both the diagonal form and the walk along the tree exist, they say the same."""
    domain = Domain({"x": 16, "y": 8})
    even = grid_tree(domain, [1, 2, 4, 8], [1, 2, 3, 4])
    walked = ClassForm.grid(Tabulated.of(AxisGroups.apart(domain), even.blocks))
    assert walked is not None
    w = Workload.product(domain, x=AllRange(), y=Prefix()) + 2.0 * Workload.marginals(domain, k=1)
    assert walked.total_variance(w.products) == pytest.approx(even.total_variance(w), rel=1e-10)
    for product in w.products:
        one, other = (np.concatenate(list(form.variances(product))) for form in (walked, even.form))
        np.testing.assert_allclose(one, other, rtol=1e-9)


def greedy_rows(V: np.ndarray) -> np.ndarray:
    """GreedyH by recursion, each node's share by search over a fine grid of λ."""
    shares = np.append(np.linspace(0, 0.999, 20001), 1000 / 1001)

    def node(lo: int, hi: int, width: int, depth: int) -> tuple[float, np.ndarray, np.ndarray]:
        cells = slice(lo, hi)
        if width == 1:
            return float(V[lo, lo]), np.ones((1, 1)), np.ones((1, 1))
        middle = min(lo + width // 2, hi)
        parts = [node(a, b, width // 2, depth + 1) for a, b in ((lo, middle), (middle, hi)) if a < b]
        A = _block_diagonal([p[1] for p in parts])
        H = np.linalg.inv(A.T @ A)
        h, sizes = H.sum(axis=1), [p[1].shape[1] for p in parts]
        edges = [lo, *(lo + np.cumsum(sizes))]
        within = sum(h[a - lo : b - lo] @ V[a:b, a:b] @ h[a - lo : b - lo] for a, b in itertools.pairwise(edges))
        decay = 2 ** (-depth / 2)
        asked = within + decay * (h @ V[cells, cells] @ h - within)
        error = sum(p[0] for p in parts)
        r = decay * shares**2 / (1 - shares) ** 2
        values = (error - asked * r / (1 + r * h.sum())) / (1 - shares) ** 2
        best = int(np.argmin(values))
        share = shares[best] if values[best] < values[0] * (1 - 1e-12) else 0.0
        return float(values.min()), np.vstack([(1 - share) * A, np.full((1, hi - lo), share)]), H

    n = len(V)
    return node(0, n, 2 ** math.ceil(math.log2(n)), 0)[1]


def _block_diagonal(parts: list[np.ndarray]) -> np.ndarray:
    out = np.zeros((sum(p.shape[0] for p in parts), sum(p.shape[1] for p in parts)))
    row = column = 0
    for p in parts:
        out[row : row + p.shape[0], column : column + p.shape[1]] = p
        row, column = row + p.shape[0], column + p.shape[1]
    return out


@pytest.mark.parametrize("n", [2, 3, 5, 8, 11, 16])
@pytest.mark.parametrize("kind", ["prefix", "ranges", "shuffled", "width", "total", "signed"])
def test_greedy_h_is_the_recursion(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    sets = {
        "prefix": Prefix(),
        "ranges": AllRange(),
        "shuffled": Shuffled(AllRange(), rng.permutation(n).tolist()),
        "width": Width(max(1, n // 2)),
        "total": Total(),
        "signed": hdmm.Vectors(rng.integers(-1, 2, size=(3, n))),
    }
    w = Workload.product(Domain({"x": n}), x=sets[kind])
    W = brute.workload_matrix(w)
    A = greedy_rows(W.T @ W)
    expected = brute.sensitivity(A, "laplace") ** 2 * brute.variances(W, A).sum()
    assert hdmm.unit_error(w, greedy_h(w)) == pytest.approx(expected, rel=1e-3, abs=1e-9)
    assert_exact(w, greedy_h(w))


@examples(40)
@given(st.data())
def test_greedy_h_error(data: st.DataObject) -> None:
    domain = data.draw(domains(attributes=1, size=12))
    w = data.draw(workloads(domain))
    strategy = greedy_h(w)
    assert strategy.sensitivity("laplace") == pytest.approx(1)
    assert_exact(w, strategy)


def test_where_they_do_not_apply() -> None:
    one, two, three = (Workload.marginals(Domain(dict.fromkeys("abc"[:d], 4)), k=1) for d in (1, 2, 3))
    for method, workload in ((hb, three), (quadtree, one), (quadtree, three), (greedy_h, two)):
        with pytest.raises(NotApplicableError, match=r"is defined on"):
            method(workload)


# The paper's ratios to HDMM and the HDMM error they are ratios to: table lowd (a), the authors' log.
@pytest.mark.parametrize(
    ("predicates", "n", "reference", "ratios"),
    [
        (AllRange(), 128, 4.75401, (1.85, 1.38, None)),
        (AllRange(), 1024, 7.83796, (1.83, 1.16, 1.33)),
        (AllRange(), 8192, 11.5769, (1.79, 1.12, 1.67)),
        (Prefix(), 128, 4.45016, (1.78, 1.80, 1.20)),
        (Prefix(), 1024, 6.77409, (1.80, 1.34, 1.49)),
        (Prefix(), 8192, 10.00478, (1.70, None, 2.09)),
        (Width(32), 1024, 4.52548, (2.59, 1.48, 1.25)),
    ],
    ids=str,
)
def test_one_attribute_of_the_paper(
    predicates: hdmm.PredicateSet, n: int, reference: float, ratios: tuple[float | None, ...]
) -> None:
    w = Workload.product(Domain({"x": n}), x=predicates)
    for method, ratio in zip((privelet, hb, greedy_h), ratios, strict=True):
        if ratio is not None:
            found = math.sqrt(hdmm.unit_error(w, method(w)) / w.queries) / reference
            assert found == pytest.approx(ratio, rel=0.02), method


# Table lowd (b): (Identity, HB, Quadtree); HDMM's error is the exact error of Identity over its ratio.
@pytest.mark.parametrize(
    ("kind", "n", "ratios"),
    [
        ("P x P", 64, (2.35, 1.41, None)),
        ("P x P", 256, (4.75, 2.03, 1.95)),
        ("R x R", 64, (1.54, 1.45, 1.72)),
        ("R x R", 256, (2.64, 1.91, 1.79)),
        ("RT u TR", 64, (5.0, 3.51, 4.13)),
        ("RT u TR", 256, (13.68, None, 6.69)),
        ("PI u IP", 64, (1.11, 2.08, 3.32)),
        ("PI u IP", 256, (1.44, 4.05, 4.71)),
    ],
)
def test_two_attributes_of_the_paper(kind: str, n: int, ratios: tuple[float | None, ...]) -> None:
    domain = Domain({"x": n, "y": n})
    p, r, i = Prefix(), AllRange(), Identity()
    pairs = {"P x P": [(p, p)], "R x R": [(r, r)], "RT u TR": [(r, Total()), (Total(), r)], "PI u IP": [(p, i), (i, p)]}
    parts = [Workload.product(domain, x=a, y=b) for a, b in pairs[kind]]
    w = Workload(domain, tuple(product for part in parts for product in part.products))
    first, *others = ratios
    assert first is not None
    reference = hdmm.unit_error(w, hdmm.baselines.identity(w)) / first**2
    for method, ratio in zip((hb, quadtree), others, strict=True):
        if ratio is not None:
            assert math.sqrt(hdmm.unit_error(w, method(w)) / reference) == pytest.approx(ratio, rel=0.02), method
