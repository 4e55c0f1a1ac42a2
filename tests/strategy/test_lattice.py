"""Strategies of integers: the privacy loss is never above what is promised, and answers never wrap (S1, S2, S3)."""

from __future__ import annotations

import gc
import itertools
import math
import os
import subprocess
import sys
from fractions import Fraction
from functools import partial
from types import FrameType

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

import hdmm
import hdmm.matrix.elementary
import hdmm.matrix.integers
import hdmm.strategy.lattice
from hdmm import ZCDP, AllRange, Domain, Prefix, PureDP, Strategy, StrategyError, Unit, Workload, unit_error
from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervals,
    Cumulative,
    Dense,
    Diag,
    ExtendedDiagonal,
    Eye,
    Forest,
    Haar,
    Intervals,
    Kron,
    Matrix,
    Nested,
    Ones,
    Permuted,
    PIdentity,
    Residual,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    TreeIdentity,
    to_dense,
)
from hdmm.matrix.integers import entries, rounded
from hdmm.noise.parameters import LARGEST_NOISE
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.form import NoClosedFormError
from hdmm.strategy.lattice import MAX_ANSWER, Lattice, resolution
from hdmm.strategy.slabs import exact_answers, exact_answers_of
from tests.support import families
from tests.support.effort import examples
from tests.support.families import FAMILIES, asks, dense_blocks, exact_loss

every = pytest.mark.parametrize("name", FAMILIES)
privacies = st.sampled_from([PureDP("0.1"), PureDP(1), PureDP("7/3"), ZCDP("0.01"), ZCDP("1/3")])
units = st.builds(Unit, st.integers(1, 3), st.sampled_from(["add-remove", "replace"]))


def moves(cells: int, unit: Unit) -> list[np.ndarray]:
    """Every change of the data vector that one person can make."""
    people = [
        np.bincount(rows, minlength=cells)
        for k in range(unit.rows + 1)
        for rows in itertools.combinations_with_replacement(range(cells), k)
    ]
    if unit.neighbours == "add-remove":
        return people
    full = [p for p in people if p.sum() == unit.rows]
    return [a - b for a in full for b in full]


def some_moves(cells: int, unit: Unit) -> list[np.ndarray]:
    """Of too many changes those that move most, all rows from one cell or to one, and 500 others."""
    generator = np.random.default_rng(0)
    to = [np.bincount([cell] * unit.rows, minlength=cells) for cell in range(cells)]
    mixed = [np.bincount(generator.integers(0, cells, unit.rows), minlength=cells) for _ in range(500)]
    if unit.neighbours == "add-remove":
        return to + mixed
    pairs = generator.integers(0, cells, (2000, 2)) if cells > 40 else itertools.product(range(cells), repeat=2)
    return [to[a] - to[b] for a, b in pairs] + [a - b for a, b in itertools.pairwise(mixed)]


def check_loss(strategy: Strategy, privacy: Privacy, unit: Unit) -> Fraction:
    """What the noise really spends, by brute force over the neighbours; at most what was asked for."""
    lattice = Lattice.of(strategy, privacy.noise)
    scales = lattice.scales(privacy, unit)
    cells = lattice.strategy.domain.size
    many = cells ** (unit.rows * (2 if unit.neighbours == "replace" else 1)) > 4096
    changes = some_moves(cells, unit) if many else moves(cells, unit)
    spent = exact_loss(lattice.strategy, scales, privacy.noise, changes)
    budget = privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho
    assert spent <= budget
    assert lattice.loss(scales, privacy.noise, unit) == budget
    if unit.neighbours == "add-remove":
        assert spent == budget  # nothing is wasted either: all rows of a person in the worst cell
    return spent


@examples(1200)
@given(strategy=families.strategies(), privacy=privacies)
def test_the_privacy_loss_is_what_was_asked_for(strategy: Strategy, privacy: Privacy) -> None:
    """S1: over every cell, in fractions."""
    check_loss(strategy, privacy, Unit())


@examples(250)
@given(strategy=families.strategies(), privacy=privacies, unit=units)
def test_the_privacy_loss_of_several_rows_and_of_replacing(strategy: Strategy, privacy: Privacy, unit: Unit) -> None:
    """S1: over every pair of neighbours."""
    check_loss(strategy, privacy, unit)


@every
@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")], ids=[Noise.LAPLACE, Noise.GAUSSIAN])
@pytest.mark.parametrize("unit", [Unit(), Unit(neighbours="replace"), Unit(2)], ids=str)
def test_the_privacy_loss_of_every_family(name: str, privacy: Privacy, unit: Unit) -> None:
    check_loss(FAMILIES[name], privacy, unit)


def test_replacing_with_signs_is_as_bad_as_can_be() -> None:
    """The bound of 4Δ₂² is met: columns of opposite signs."""
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1, -1]])),)),))
    assert check_loss(strategy, ZCDP(1), Unit(neighbours="replace")) == 1
    assert check_loss(strategy, PureDP(1), Unit(neighbours="replace")) == 1


def test_one_block_left_out_or_a_unit_less_would_be_seen() -> None:
    """The check itself can fail: planted faults pass the promise."""
    lattice = Lattice.of(FAMILIES["marginals"], Noise.LAPLACE)
    scales = lattice.scales(PureDP(1))
    ones = moves(lattice.strategy.domain.size, Unit())
    assert exact_loss(lattice.strategy, scales, Noise.LAPLACE, ones) == 1
    assert exact_loss(lattice.strategy, (scales[0] * Fraction(99, 100), *scales[1:]), Noise.LAPLACE, ones) > 1


TWO = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Eye(2)),)), Block(0.5, ())))  # a person counts once in each block
OPPOSED = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1, -1]])),)), Block(0.5, ())))


@pytest.mark.parametrize(
    ("strategy", "privacy", "unit", "expected"),
    [
        (TWO, PureDP("1/2"), None, (3, 6)),  # 1/3 + 1/6 = ε
        (TWO, PureDP("1/2"), Unit(), (3, 6)),
        (TWO, PureDP("1/2"), Unit(5), (15, 30)),
        (TWO, PureDP("1/2"), Unit(5, "replace"), (30, 60)),
        (OPPOSED, PureDP("1/2"), Unit(5, "replace"), (30, 60)),
        (TWO, ZCDP("1/8"), None, (5, 20)),  # 1/(2·5) + 1/(2·20) = ρ: σ goes as 1/θ, so σ² as 1/θ²
        (TWO, ZCDP("1/8"), Unit(), (5, 20)),
        (TWO, ZCDP("1/8"), Unit(3), (45, 180)),
        (TWO, ZCDP("1/8"), Unit(3, "replace"), (90, 360)),
        (OPPOSED, ZCDP("1/8"), Unit(3, "replace"), (180, 720)),
    ],
)
def test_the_scales_of_two_blocks_by_hand(
    strategy: Strategy, privacy: Privacy, unit: Unit | None, expected: tuple[int, ...]
) -> None:
    """S1: the noise is in proportion to 1/θ in either norm, and as much as one person needs."""
    lattice = Lattice.of(strategy, privacy.noise)
    assert lattice.scales(privacy, unit) == expected
    budget = privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho
    scales = [Fraction(scale) for scale in expected]
    assert lattice.loss(scales, privacy.noise, unit or Unit()) == budget
    assert lattice.loss([2 * scale for scale in scales], privacy.noise, unit or Unit()) == budget / 2


@pytest.mark.parametrize(
    ("entry", "rows"), [(2**36, 1), (2**36, 2**24), (2**35, 2**25), (-(2**28), None), (2**20, 2**40), (1, 2**60)]
)
def test_answers_reach_2_to_the_60_and_not_one_more(entry: int, rows: int | None) -> None:
    """S2: exactly, for any table of the declared rows, of 2³² if none are declared and of at least 2²⁴."""
    domain = Domain({"x": 1})
    given = {} if rows is None else {"max_rows": rows}
    fits = Lattice.of(Strategy(domain, (Block(1.0, ((0, Dense([[entry]])),)),)), Noise.LAPLACE, **given)
    assert max(fits.largest_answers(max(rows or 2**32, 2**24))) == 2**60 == MAX_ANSWER
    beyond = Strategy(domain, (Block(1.0, ((0, Dense([[entry + (1 if entry > 0 else -1)]])),)),))
    with pytest.raises(StrategyError, match=f"on a table of {rows or 2**32:,} rows could exceed"):
        Lattice.of(beyond, Noise.LAPLACE, **given)


def test_the_sum_of_an_answer_and_noise_never_wraps() -> None:
    """S2: answers to 2⁶⁰ and noise to 2⁶² fit int64; where noise is cut off, its answer is too small to be seen."""
    assert MAX_ANSWER + LARGEST_NOISE < 2**63
    assert LARGEST_NOISE - MAX_ANSWER >= 2**61


shares = st.floats(0, 5) | st.sampled_from([0.0, 1.0, 1e-300, 1e-9, 1e9, 1e20, 1e300, 1 / 3, 5e-324])


@examples(300)
@given(data=st.data(), n=st.integers(1, 6), bits=st.sampled_from([3, 8, 16]))
def test_columns_of_identities_with_rows_below_sum_to_q(data: st.DataObject, n: int, bits: int) -> None:
    rows = data.draw(st.integers(0, 3))
    theta = np.array([data.draw(st.lists(shares, min_size=n, max_size=n)) for _ in range(rows)]).reshape(-1, n)
    tree = TreeIdentity(theta, [2, 4, 8][:rows])
    for A in (PIdentity(theta), tree):
        found, q = rounded(A, bits)
        assert isinstance(found, ExtendedDiagonal)
        below = found.below.array if isinstance(found.below, Dense) else found.below.values
        assert (found.diagonal + below.sum(axis=0) == q).all()
        assert q in (*range(1, 17), 2**bits)
        assert found.diagonal.min() >= 1
        assert below.min(initial=0) >= 0
        assert (below[theta == 0] == 0).all()
        with np.errstate(over="ignore", invalid="ignore"):
            exact = q * theta / (1 + theta.sum(axis=0))
        near = np.isfinite(exact) & (q / (1 + theta.sum(axis=0)) >= 1)
        assert (np.abs(below - exact)[near] <= 1 + rows / 2).all()


def columns_by_hand(theta: np.ndarray, bits: int) -> list[list[int]]:
    """The columns of 2ᵇ·[I; Θ]/s in fractions; what the diagonal leaves goes by largest remainders, first rows first.

    The diagonal is the nearest integer, but at least 1.
    """
    q = 2**bits
    found = []
    for column in theta.T.tolist():
        exact = [Fraction(v) for v in column]
        diagonal = max(round(q / (1 + sum(exact))), 1)
        shares = [(q - diagonal) * v / (sum(exact) or 1) for v in exact]
        floors = [math.floor(share) for share in shares]
        last = sorted(range(len(shares)), key=lambda i: (floors[i] - shares[i], i))[: q - diagonal - sum(floors)]
        found.append([diagonal, *(floor + (i in last) for i, floor in enumerate(floors))])
    return found


@pytest.mark.parametrize("bits", [3, 8, 16])
def test_columns_are_rounded_as_by_hand(bits: int) -> None:
    theta = np.random.default_rng(bits).uniform(0, 3, size=(3, 40))
    theta[:, 0], theta[:, 1], theta[1, 2:9], theta[0, 9:12], theta[:, 12] = 0.0, 0.5, 0.0, 1e6, (0.0, 0.25, 1e9)
    alike = np.full((40, 2), 0.7)  # many equal remainders
    for A, shares in ((PIdentity(theta), theta), (TreeIdentity(theta, [2, 4, 8]), theta), (PIdentity(alike), alike)):
        found, q = rounded(A, bits)
        assert q == 2**bits
        assert isinstance(found, ExtendedDiagonal)
        below = found.below.array if isinstance(found.below, Dense) else found.below.values
        assert [*map(list, zip(found.diagonal.tolist(), *below.tolist(), strict=True))] == columns_by_hand(shares, bits)


@pytest.mark.parametrize("bits", [3, 8, 16])
def test_columns_of_l2_norm_are_rounded_to_the_nearest(bits: int) -> None:
    theta = np.array([[0.3, 0.0, 2.7, 1e4], [0.8, 0.0, 0.1, 0.0]])
    found, q = rounded(TreeIdentity(theta, [2, 4], order=2), bits)
    assert q == 2**bits
    assert isinstance(found, ExtendedDiagonal)
    assert isinstance(found.below, Nested)
    for column, d, below in zip(theta.T.tolist(), found.diagonal.tolist(), found.below.values.T.tolist(), strict=True):
        norm = math.sqrt(1 + sum(v * v for v in column))
        assert d == max(round(q / norm), 1)
        assert below == [round(q * v / norm) for v in column]


@pytest.mark.parametrize(
    ("theta", "q"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], 4),
        ([[15.0, 15.0]], 16),  # the largest small one
        ([[16.0, 16.0]], 2**8),
        ([[1.0, 2.0]], 2**8),  # columns whose sums differ
        ([[0.5, 0.5], [0.5, 0.5]], 2**8),  # whole sums of entries that are not whole
        ([[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]], 2**8),
        ([[0.0, 0.0]], 1),
    ],
)
def test_entries_that_are_whole_stay_as_they_are(theta: list[list[float]], q: int) -> None:
    found, kept = rounded(PIdentity(theta), 8)
    assert kept == q
    assert entries(found) == (0, to_dense(found).max())
    assert (to_dense(found).sum(axis=0) == q).all()
    if q < 2**8:
        assert to_dense(found).tolist() == [*np.eye(2).tolist(), *theta]


@pytest.mark.parametrize(
    ("array", "integers", "q"),
    [
        ([[0.0, 0.0]], [[0, 0]], 1),
        ([[-0.5, 0.25]], [[-2, 1]], 4),
        ([[1 / 16, 1.0]], [[1, 16]], 16),
        ([[1 / 17, 1.0]], [[15, 256]], 256),
        ([[10.0, 1.0]], [[10, 1]], 1),
        ([[2 / 3 + 1e-10, -1.0]], [[2, -3]], 3),
        ([[2 / 3 - 1e-10, -1.0]], [[2, -3]], 3),
        ([[2 / 3 + 6e-10, -1.0]], [[171, -256]], 256),
        ([[3 / 512 - 1e-5, 1.0]], [[1, 256]], 256),  # to the nearest, above and below a half
        ([[3 / 512 + 1e-5, 1.0]], [[2, 256]], 256),
        ([[-3 / 512 - 1e-5, 1.0]], [[-2, 256]], 256),
    ],
)
def test_entries_of_a_dense_factor_by_hand(array: list[list[float]], integers: list[list[int]], q: int) -> None:
    found, kept = rounded(Dense(array), 8)
    assert isinstance(found, Dense)
    assert found.array.dtype == np.int64
    assert found.array.tolist() == integers
    assert kept == pytest.approx(q, rel=1e-12)
    negated, times = rounded(Scaled(-0.25, Dense(array)), 8)
    assert to_dense(negated).tolist() == integers
    assert times == pytest.approx(4 * q, rel=1e-12)


def test_what_is_permuted_is_rounded_in_its_order() -> None:
    index = [2, 0, 3, 1]
    theta = np.random.default_rng(1).uniform(size=(2, 4))
    plain, q = rounded(PIdentity(theta), 8)
    found, kept = rounded(Permuted(PIdentity(theta), index), 8)
    assert kept == q
    assert (to_dense(found) == to_dense(Permuted(plain, index))).all()


def test_zeros_stay_and_l2_columns_are_near() -> None:
    A = TreeIdentity([[0.0, 1.0, 0.5], [2.0, 0.0, 0.0]], [2, 4], order=2)
    found, q = rounded(A, 8)
    np.testing.assert_allclose(to_dense(found) / q, to_dense(A), atol=0.5 / q)
    assert ((to_dense(A) == 0) <= (to_dense(found) == 0)).all()


def test_small_fractions_need_no_bits() -> None:
    assert entries(rounded(Dense([[1 / 3, 2 / 3], [0, 1.0]]), 8)[0]) == (0, 3)
    assert rounded(PIdentity([[1.0, 1.0]]), 8)[1] == 2
    for A in (Eye(3), Ones(1, 3), Dense([[1, 2]]), Cumulative(2), Permuted(Eye(2), [1, 0])):
        assert rounded(A, 8)[1] == 1


def test_a_sign_or_a_factor_before_a_matrix_changes_only_the_weight() -> None:
    theta = [[0.3, 0.9]]
    plain, q = rounded(PIdentity(theta), 8)
    other, c = rounded(Scaled(-0.5, PIdentity(theta)), 8)
    assert (to_dense(plain) == to_dense(other)).all()
    assert c == 2 * q
    with pytest.raises(StrategyError, match="measures nothing"):
        rounded(Scaled(0, Eye(2)), 8)


@every
@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_rounding_costs_little_and_the_error_is_the_lattices(name: str, noise: hdmm.Noise) -> None:
    strategy, workload = FAMILIES[name], asks(FAMILIES[name])
    lattice = Lattice.of(strategy, noise, workload=workload)
    before, after = unit_error(workload, strategy, noise=noise), unit_error(workload, lattice.strategy, noise=noise)
    assert after <= before * (1 + 1e-3)
    A = np.vstack([w * B for w, B in dense_blocks(lattice.strategy)])
    W = to_dense(workload.matrix)
    norm = np.abs(A).sum(axis=0).max() if noise == Noise.LAPLACE else np.sqrt((A**2).sum(axis=0).max())
    if name != "direct":
        assert after == pytest.approx(norm**2 * np.sum((W @ np.linalg.pinv(A)) ** 2), rel=1e-6)


def test_as_many_bits_as_the_error_asks_for() -> None:
    """8 unless rounding costs more than a thousandth; as many as there are where it never gets cheap."""
    easy = Strategy(Domain({"x": 8}), (Block(1.0, ((0, PIdentity(families.rng.uniform(size=(2, 8)))),)),))
    w = Workload.product(easy.domain, x=Prefix())
    assert entries(Lattice.of(easy, Noise.LAPLACE, workload=w).blocks[0].factors[0][1])[1] <= 2**8
    steep = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1.0, 0.0], [0.0, 1.45 * 2.0**-8]])),)),))
    w = Workload.marginals(steep.domain, k=1)
    most = entries(Lattice.of(steep, Noise.LAPLACE, workload=w).blocks[0].factors[0][1])[1]
    assert most > 2**8
    worse = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1.0, 0.0], [0.0, 1.45 * 2.0**-16]])),)),))
    assert entries(Lattice.of(worse, Noise.LAPLACE, workload=w).blocks[0].factors[0][1])[1] == 2**16


def test_fewer_bits_where_eight_do_not_fit_and_an_error_where_three_do_not() -> None:
    domain = Domain({f"a{i}": 2 for i in range(6)})
    strategy = Strategy(domain, (Block(1.0, tuple((i, PIdentity([[0.3, 0.8]])) for i in range(6))),))
    for rows in (2**12, 2**13, 2**24, 2**36):
        lattice = Lattice.of(strategy, Noise.LAPLACE, max_rows=rows)
        assert max(lattice.largest_answers(rows)) <= MAX_ANSWER
    with pytest.raises(StrategyError, match="could exceed 2\\*\\*60"):
        Lattice.of(strategy, Noise.LAPLACE, max_rows=2**55)


def sums(lattice: Lattice) -> set[int]:
    """What the columns of its factors sum to: 2 to the power of the bits, for identities with rows below."""
    return {int(s) for block in lattice.blocks for _, A in block.factors for s in to_dense(A).sum(axis=0)}


@pytest.mark.parametrize(("rows", "bits"), [(52, 8), (53, 7), (54, 6), (55, 5), (56, 4), (57, 3), (58, None)])
def test_the_most_bits_that_fit_are_kept(rows: int, bits: int | None) -> None:
    """Of [I; Θ]/1.3 the largest entry is 10/13 of 2ᵇ: rounded, 197, 98, 49, 25, 12 or 6."""
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, PIdentity([[0.3, 0.8]])),)),))
    if bits is None:
        with pytest.raises(StrategyError, match="could exceed"):
            Lattice.of(strategy, Noise.LAPLACE, max_rows=2**rows)
    else:
        assert sums(Lattice.of(strategy, Noise.LAPLACE, max_rows=2**rows)) == {2**bits}


@pytest.mark.parametrize("bits", [3, 5, 8, 9, 16, 20])
def test_bits_that_are_asked_for_are_those_that_are_kept(bits: int) -> None:
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, PIdentity([[0.3, 0.8]])),)),))
    workload = Workload.marginals(strategy.domain, k=1)
    assert sums(Lattice.of(strategy, Noise.LAPLACE, bits=bits)) == {2**bits}
    assert sums(Lattice.of(strategy, Noise.LAPLACE, bits=bits, workload=workload)) == {2**bits}
    with pytest.raises(StrategyError, match="could exceed"):  # and no fewer
        Lattice.of(strategy, Noise.LAPLACE, bits=bits, max_rows=2**60)


SMALL = (1.45 * 2.0**-8, 1.0007 * 2.0**-10, 1.0625 * 2.0**-8, 1.3 * 2.0**-12, 1.02 * 2.0**-13, 1.45 * 2.0**-16)


@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("most", [8, 10, 12, 14, 16])
def test_the_fewest_bits_whose_rounding_costs_a_thousandth_at_most(small: float, most: int) -> None:
    """Two cells, one counted twice and one with little weight: the error of their counts goes as ½ + 1/little²."""
    domain = Domain({"x": 2})
    strategy = Strategy(domain, (Block(3.0, ((0, Dense([[1.0, 0.0], [1.0, 0.0], [0.0, small]])),)),))
    rows = 2 ** (60 - most)  # so that entries of 2ᵐᵒˢᵗ fit, and no larger ones

    def cost(bits: int) -> float:
        kept = round(small * 2**bits) / 2**bits
        return (0.5 + 1 / kept**2) / (0.5 + 1 / small**2) - 1 if kept else math.inf

    tried = [b for b in (8, 9, 10, 11, 12, 14, 16) if b <= most]
    expected = next((b for b in tried if cost(b) <= 1e-3), tried[-1])
    for noise in Noise:
        found = partial(Lattice.of, strategy, noise, max_rows=rows, workload=Workload.marginals(domain, k=1))
        if math.isinf(cost(expected)):
            with pytest.raises(StrategyError, match="no longer measures"):
                found()
        else:
            assert entries(found().blocks[0].factors[0][1])[1] == 2**expected


def test_eight_bits_where_no_error_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a workload, of one that asks nothing, and where the error has no formula."""
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1.0, 0.0], [0.0, 1.45 * 2.0**-8]])),)),))
    workload = Workload.marginals(strategy.domain, k=1)

    def largest(workload: Workload | None) -> int:
        return entries(Lattice.of(strategy, Noise.LAPLACE, workload=workload).blocks[0].factors[0][1])[1]

    assert largest(workload) == largest(1e-3 * workload) > 2**8
    assert largest(None) == largest(0.0 * workload) == 2**8

    def unknown(*args: object, **words: object) -> float:
        raise NoClosedFormError("It has none.")

    monkeypatch.setattr(hdmm.strategy.lattice, "unit_error", unknown)
    assert largest(workload) == 2**8


def test_what_rounding_makes_unanswerable_is_refused() -> None:
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1.0, 0.0], [0.0, 1e-7]])),)),))
    with pytest.raises(StrategyError, match="no longer measures"):
        Lattice.of(strategy, Noise.LAPLACE, workload=Workload.marginals(strategy.domain, k=1))


def test_queries_that_are_not_whole_are_not_measured_directly() -> None:
    """What is answered without inference is answered from integers: all of its factors must be, not only some."""
    domain = Domain({"x": 2, "y": 2})
    whole, halves = Dense([[1, 2]]), Dense([[0.5, 1.0]])
    for factors in (((0, whole), (1, halves)), ((0, halves), (1, halves))):
        with pytest.raises(StrategyError, match="coefficients that are not integers"):
            Lattice.of(Strategy(domain, (Block(1.0, factors),), inference="none"), Noise.LAPLACE)
    Lattice.of(Strategy(domain, (Block(1.0, ((0, whole), (1, whole))),), inference="none"), Noise.LAPLACE)
    Lattice.of(Strategy(domain, (Block(1.0, ((0, whole), (1, halves))),)), Noise.LAPLACE)


def test_a_weight_that_rounding_makes_0_is_refused() -> None:
    """Its block would take endless noise: 5e-324 is the least number above 0, and its factors multiply by 2⁸ each."""
    factors = tuple((i, PIdentity([[0.3, 0.8]])) for i in range(2))
    strategy = Strategy(Domain({"x": 2, "y": 2}), (Block(1.0, ()), Block(5e-324, factors)))
    with pytest.raises(StrategyError, match="A block over 2 attributes is too large for integers"):
        Lattice.of(strategy, Noise.LAPLACE)


def test_a_strategy_of_zeros_is_refused() -> None:
    nothing = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[0, 0]])),)),))
    with pytest.raises(StrategyError, match="measures nothing"):
        Lattice.of(nothing, Noise.LAPLACE).scales(PureDP(1))


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "3"])
def test_rows_are_a_positive_integer(bad: object) -> None:
    with pytest.raises(StrategyError, match="max_rows"):
        Lattice.of(FAMILIES["identity"], Noise.LAPLACE, max_rows=bad)  # type: ignore[arg-type]


def test_floats_are_no_lattice() -> None:
    for A in (PIdentity([[0.5]]), Dense([[0.5]]), Diag([1]), Scaled(0.5, Eye(1)), RowScaled([0.5], Eye(1))):
        with pytest.raises(MatrixError):
            entries(A)
    with pytest.raises(MatrixError):
        Lattice(FAMILIES["product"]).loss([Fraction(1)], Noise.LAPLACE, Unit())


def test_a_sensitivity_in_floats_is_no_sensitivity() -> None:
    """S1: integers whose column norms are computed in floats may be off by one beyond 2⁵³."""
    rows = RowScaled([1, 2, 3, 4], Haar(4))
    assert entries(rows) == (-4, 4)
    lattice = Lattice(Strategy(Domain({"x": 4}), (Block(1.0, ((0, rows),)),)))
    with pytest.raises(StrategyError, match="sensitivity of a factor is not exact"):
        lattice.scales(PureDP(1))
    with pytest.raises(StrategyError, match="sensitivity of a factor is not exact"):
        lattice.loss([Fraction(1)], Noise.LAPLACE, Unit())


def test_noise_is_fine_enough_to_look_continuous() -> None:
    for scale in (Fraction(1, 1000), Fraction(63), Fraction(64), Fraction(10**9)):
        for noise, power in ((Noise.LAPLACE, 1), (Noise.GAUSSIAN, 2)):
            r = resolution(scale, noise)
            assert scale * r**power >= 64**power
            assert r == 1 or scale * (r // 2) ** power < 64**power


INTEGERS: dict[str, Matrix] = {
    "eye": Eye(4),
    "ones": Ones(2, 4),
    "cumulative": Cumulative(4),
    "intervals": Intervals(4, [0, 1, 3], [2, 1, 3]),
    "all intervals": AllIntervals(4),
    "dense": Dense([[1, -7, 0, 3]]),
    "bytes": Dense(np.array([[100, -100, 127, -128]], dtype=np.int8)),
    "unsigned bytes": Dense(np.array([[200, 255, 0, 1]], dtype=np.uint8)),
    "sparse": Sparse(sp.csr_array(np.array([[0, 2, 0, -5], [1, 0, 3, 0]]))),
    "nested": Nested([[1, 2, 3, 4]], [2]),
    "augmented": ExtendedDiagonal(Dense([[5, -6, 7, 8]]), [1, 2, 3, 4]),
    "permuted": Permuted(ExtendedDiagonal(Dense([[5, 6, 7, 8]]), [1, 2, 3, 4]), [2, 0, 3, 1]),
    "stack": Stack((Eye(4), Scaled(3, Ones(1, 4)))),
    "row-scaled": RowScaled([2, -3, 4, 0], Cumulative(4)),
    "kron": Kron((Eye(2), Dense([[1, 2]]))),
    "signed kron": Kron((Dense([[-2, 3]]), Dense([[5, -7]]))),
    "kron of what is below 0": Kron((Dense([[-2, -3]]), Dense([[-5, -7]]), Dense([[-1]]))),
    "haar": Haar(4),
    "residual": Residual(4),
    "forest": Forest([[1, -2, 9, 4], [4, 5, 6, 7]], [[0, 1, 0, 2], [0, 0, 0, 0]]),
    "scaled": Scaled(-3, Dense([[1, 2, 0, -1]])),
    "row-scaled by what is below 0": RowScaled([-2, -3], Dense([[1, 2, 3, 4], [0, 1, 2, 5]])),
    "all above 0": Dense([[7, 8, 9, 10]]),
    "all below 0": Stack((Dense([[-7, -8, -9, -10]]), Scaled(-3, Ones(1, 4)))),
    "rows below an identity": ExtendedDiagonal(Dense([[-5, -6, -7, -8]]), [1, 2, 3, 11]),
}


def python(factors: list[Matrix], x: np.ndarray) -> list[int]:
    """(⊗ factors)x in Python's integers."""
    out = x.astype(object)
    for k, A in enumerate(factors):
        out = np.moveaxis(np.tensordot(np.rint(to_dense(A)).astype(int).astype(object), out, axes=(1, k)), 0, k)
    return [int(v) for v in out.ravel()]


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("name", INTEGERS)
def test_entries_are_the_extremes(name: str) -> None:
    A = to_dense(INTEGERS[name])
    assert entries(INTEGERS[name]) == (min(A.min(), 0), max(A.max(), 0))


@pytest.mark.parametrize(
    ("A", "expected"),
    [
        (Residual(1), (0, 0)),
        (Residual(2), (-1, 1)),
        (Haar(1), (-1, 1)),
        (Sparse(sp.csr_array((2, 3), dtype=int)), (0, 0)),
        (Dense([[-2, -3]]), (-3, 0)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_entries_where_there_are_few(A: Matrix, expected: tuple[int, int]) -> None:
    """The least and the largest, or a little more: a bound on answers, and signs where there may be some."""
    assert entries(A) == expected


@pytest.mark.parametrize("name", INTEGERS)
def test_a_lattice_is_signed_where_an_entry_is_below_0(name: str) -> None:
    """Replacing a row costs twice as much under Gaussian noise if columns may be opposed."""
    lattice = Lattice(Strategy(Domain({"x": 4, "y": 1}), (Block(1.0, ((1, Eye(1)), (0, INTEGERS[name]))),)))
    assert lattice.signed == (to_dense(INTEGERS[name]).min() < 0)
    assert lattice.largest_answers(7) == (7 * np.abs(to_dense(INTEGERS[name])).max(),)


@pytest.mark.parametrize("first", INTEGERS)
@pytest.mark.parametrize("second", ["eye", "dense", "augmented", "all intervals"])
def test_answers_are_exact(first: str, second: str) -> None:
    factors = [INTEGERS[first], INTEGERS[second]]
    x = np.random.default_rng(0).integers(0, 1000, size=(4, 4))
    found = exact_answers(factors, x)
    assert found.dtype == np.int64
    assert found.tolist() == python(factors, x)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("near", [2**53, 2**60, 2**62])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_answers_around_the_bounds(name: str, near: int, off: int) -> None:
    """S2: against Python's integers, at ±1 of 2⁵³ and 2⁶⁰, all rows in one cell, and modulo 2⁶⁴ beyond."""
    A = INTEGERS[name]
    rows = near // max(map(abs, entries(A))) + off
    for cell in range(4):
        x = np.zeros(4, dtype=np.int64)
        x[cell] = rows - 1
        x[(cell + 1) % 4] += 1
        assert exact_answers([A], x).tolist() == [wrapped(v) for v in python([A], x)]


@example(counts=[2**38] * 4)
@examples(200)
@given(counts=st.lists(st.integers(0, 2**62), min_size=4, max_size=4))
def test_more_rows_than_declared_are_answered_modulo(counts: list[int]) -> None:
    """S2: whatever the counts, every answer is right modulo 2⁶⁴."""
    for factors in ([INTEGERS["augmented"]], [INTEGERS["dense"]], [INTEGERS["cumulative"]]):
        x = np.array(counts)
        assert exact_answers(factors, x).tolist() == [wrapped(v) for v in python(factors, x)]


def test_a_sum_of_counts_that_wraps_is_not_taken_for_a_small_table() -> None:
    """OpenDP #2925: 4 · 2⁶² is 0 modulo 2⁶⁴."""
    x = np.array([2**62, 2**62, 2**62, 2**62 + 1])
    A = Dense([[1, 1, 1, 3]])
    assert exact_answers([A], x).tolist() == [wrapped(v) for v in python([A], x)]


def test_slabs_and_one_piece_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = [ExtendedDiagonal(Dense([[1, 1, 0, -2, 1]]), [1, 2, 3, 4, 5]), Ones(1, 3), AllIntervals(4)]
    x = np.random.default_rng(1).integers(0, 99, size=(5, 3, 4))
    whole = exact_answers(factors, x)
    monkeypatch.setattr(hdmm.strategy.slabs, "_SLAB", 7)
    assert exact_answers(factors, x).tolist() == whole.tolist() == python(factors, x)
    assert exact_answers([], np.array(7)).tolist() == [7]


@pytest.mark.parametrize(
    "head", [Ones(1, 6), Dense([[1, 2, 3, 4, 5, 6]]), Eye(6), ExtendedDiagonal(Dense([[1] * 6] * 2), [1] * 6)]
)
def test_an_answer_is_no_view_of_the_counts(head: Matrix) -> None:
    """Rows of the working array that are not answers hold counts: they must not travel with the release."""
    x = np.arange(12).reshape(6, 2)
    y = exact_answers([head, Eye(2)], x)
    base = y
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert base.size == y.size
    assert not np.shares_memory(base, x)


def test_answers_do_not_depend_on_the_order_of_rows() -> None:
    """S3: a table and its rows in another order, bit for bit."""
    generator = np.random.default_rng(5)
    rows = generator.integers(0, 4, size=(1000, 2))
    factors = [rounded(PIdentity(generator.uniform(size=(2, 4))), 8)[0], AllIntervals(4)]
    answers = []
    for _ in range(5):
        generator.shuffle(rows)
        x = np.zeros((4, 4), dtype=np.int64)
        np.add.at(x, tuple(rows.T), 1)
        answers.append(exact_answers(factors, x).tobytes())
    assert len(set(answers)) == 1


_THREADS = """
import hashlib, numpy as np
from hdmm.strategy.slabs import exact_answers
from hdmm.matrix.integers import rounded
from hdmm.matrix import Dense, PIdentity
g = np.random.default_rng(0)
x = g.integers(0, 2**20, size=(300, 200))
A = [rounded(PIdentity(g.uniform(size=(40, 300))), 12)[0], rounded(Dense(g.normal(size=(150, 200))), 12)[0]]
print(hashlib.sha256(exact_answers(A, x).tobytes()).hexdigest())
"""


def test_answers_do_not_depend_on_threads() -> None:
    """S3: one thread and several, bit for bit, where floats do the work."""
    seen = set()
    for threads in ("1", "2", "5"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        seen.add(subprocess.run([sys.executable, "-c", _THREADS], env=env, capture_output=True, check=True).stdout)
    assert len(seen) == 1


def test_floats_are_used_only_where_they_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """N1: whatever the counts, the floats that a dense factor is multiplied by leave no partial sum beyond 2⁵³."""
    largest = []
    multiply = hdmm.matrix.elementary.multiply_along

    def spy(A: np.ndarray, X: np.ndarray) -> np.ndarray:
        if X.dtype == np.float64:
            largest.append(int(np.abs(A).max()) * A.shape[1] * int(np.abs(X).max()))
        return multiply(A, X)

    monkeypatch.setattr(hdmm.matrix.elementary, "multiply_along", spy)
    generator = np.random.default_rng(3)
    for most in (1, 2**8, 2**16, 2**27):
        A = Dense(generator.integers(-most, most + 1, size=(40, 32)))
        x = generator.integers(-(2**63), 2**63 - 1, size=(32, 8))
        x[:, 0], x[:, 1] = -(2**63), 2**63 - 1
        assert exact_answers([A, Eye(8)], x).tolist() == [wrapped(v) for v in python([A, Eye(8)], x)]
    assert max(largest) < 2**53
    assert max(largest) > 2**51  # and they are used


@pytest.mark.parametrize(
    "second", [Eye(4), AllIntervals(4), Dense(np.arange(-80, 80).reshape(40, 4))], ids=["eye", "ranges", "dense"]
)
def test_the_steps_of_answering_do_not_depend_on_the_counts(second: Matrix) -> None:
    """Tables within the declared rows, around them, far beyond and empty: the same calls, in the same order."""
    dense = Dense(np.random.default_rng(4).integers(0, 256, size=(40, 30)))
    seen = set()
    exact_answers([dense, second], np.zeros((30, 4), dtype=np.int64))  # what NumPy does once is done
    for count in (0, 1, 2**20, 2**33, 2**38, 2**62):
        steps: list[str] = []

        def note(frame: FrameType, event: str, argument: object, steps: list[str] = steps) -> None:
            if event in ("call", "c_call"):
                steps.append(getattr(argument, "__qualname__", frame.f_code.co_qualname))

        x = np.full((30, 4), count)
        gc.disable()  # what others left behind is not finalised between the steps
        sys.setprofile(note)
        try:
            exact_answers([dense, second], x)
        finally:
            sys.setprofile(None)
            gc.enable()
        seen.add(tuple(steps))
    assert len(seen) == 1
    assert len(next(iter(seen))) > 20


def test_a_tree_is_charged_for_all_its_levels() -> None:
    """OpenDP #2924: the sensitivity of a b-ary tree is its levels, not its branching."""
    levels = [Dense(np.kron(np.eye(8 // width, dtype=int), np.ones((1, width), dtype=int))) for width in (1, 2, 4, 8)]
    strategy = Strategy(Domain({"x": 8}), tuple(Block(1.0, ((0, A),)) for A in levels))
    assert Lattice.of(strategy, Noise.LAPLACE).scales(PureDP(1)) == (Fraction(4),) * 4
    stacked = Strategy(Domain({"x": 8}), (Block(1.0, ((0, Stack(tuple(levels))),)),))
    assert Lattice.of(stacked, Noise.LAPLACE).scales(PureDP(1)) == (Fraction(4),)
    ranges = Workload.product(Domain({"x": 8}), x=AllRange())
    assert Lattice.of(Strategy.direct(ranges), Noise.LAPLACE).scales(PureDP(1)) == (Fraction(20),)


@pytest.mark.parametrize("bits", [3, 8])
def test_the_diagonal_of_an_identity_with_rows_below_is_rounded_to_the_nearest(bits: int) -> None:
    theta = np.random.default_rng(3).uniform(0, 2, size=(2, 50))
    for A in (PIdentity(theta), TreeIdentity(theta, [2, 4])):
        found, q = rounded(A, bits)
        assert isinstance(found, ExtendedDiagonal)
        assert np.abs(found.diagonal - q / (1 + theta.sum(axis=0))).max() <= 0.5


def test_a_factor_too_large_to_write_out_is_refused() -> None:
    rows = AllIntervals(645).shape[0]  # 645 times as many entries: a little over 2²⁷
    with pytest.raises(StrategyError, match="too large to write out"):
        rounded(RowScaled(np.full(rows, 0.3), AllIntervals(645)), 8)


def test_a_factor_is_written_out_in_a_gibibyte_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 8 * hdmm.matrix.integers._LARGEST_DENSE == 2**30
    floats = Dense(np.full((3, 5), 0.3))
    monkeypatch.setattr(hdmm.matrix.integers, "_LARGEST_DENSE", 15)
    assert rounded(floats, 8)[0].shape == (3, 5)
    monkeypatch.setattr(hdmm.matrix.integers, "_LARGEST_DENSE", 14)
    with pytest.raises(StrategyError, match=r"A factor of shape \(3, 5\) \(Dense\) .* too large to write out"):
        rounded(floats, 8)


def test_weights_keep_12_bits() -> None:
    """Weights that differ by less are one weight, so that their blocks share the sampler; what is kept is near."""
    x = ((0, Eye(4)),)
    weights = (0.1 + 0.2, 0.3, 1e-9, 1 / 3, 7.0)
    strategy = Strategy(Domain({"x": 4}), tuple(Block(w, x) for w in weights))
    kept = [block.weight for block in Lattice.of(strategy, Noise.LAPLACE).blocks]
    np.testing.assert_allclose(kept, weights, rtol=2.0**-12)
    assert kept[0] == kept[1]
    assert all((2**12 * math.frexp(weight)[0]).is_integer() for weight in kept)


def test_a_product_of_weight_0_is_not_measured() -> None:
    domain = Domain({"x": 3, "y": 2})
    both = Workload.product(domain, x=Prefix()) + 0.0 * Workload.product(domain, y=Prefix())
    lattice = Lattice.of(Strategy.direct(both), Noise.LAPLACE)
    assert len(lattice.blocks) == 1
    assert lattice.scales(PureDP(1)) == (3,)
    with pytest.raises(StrategyError, match="every product of the workload has weight 0"):
        Strategy.direct(0.0 * both)


@pytest.mark.parametrize("slab", [1, 3, 7, 40])
def test_a_slab_is_at_least_a_row_and_a_column(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a row or a column is: memory is bounded where it can be, and nothing fails where it cannot."""
    factors = [ExtendedDiagonal(Dense([[1, 1, 0, -2, 1]]), [1, 2, 3, 4, 5]), Eye(3), AllIntervals(4)]
    x = np.random.default_rng(2).integers(0, 99, size=(5, 3, 4))
    monkeypatch.setattr(hdmm.strategy.slabs, "_SLAB", slab)
    assert exact_answers(factors, x).tolist() == python(factors, x)


def test_the_block_of_the_largest_answers_decides_how_many_bits_fit() -> None:
    """S2: a total beside a product whose answers would pass 2⁶⁰ does not hide it."""
    domain = Domain({f"a{i}": 2 for i in range(6)})
    product = Block(1.0, tuple((i, PIdentity([[0.3, 0.8]])) for i in range(6)))
    strategy = Strategy(domain, (Block(1.0, ()), product))
    lattice = Lattice.of(strategy, Noise.LAPLACE, max_rows=2**24)
    assert max(lattice.largest_answers(2**24)) <= MAX_ANSWER
    with pytest.raises(StrategyError, match="could exceed 2\\*\\*60"):
        Lattice.of(strategy, Noise.LAPLACE, max_rows=2**55)


@pytest.mark.parametrize("largest", [0.013, 1.0, 37.0])
def test_a_matrix_of_floats_takes_all_its_bits_whatever_its_size(largest: float) -> None:
    A = largest * np.array([[1.0, -0.7310585786], [0.3678794412, 0.0]])
    found, q = rounded(Dense(A), 8)
    assert max(map(abs, entries(found))) == 2**8
    np.testing.assert_allclose(to_dense(found) / q, A, atol=0.5 / q)


def test_blocks_of_one_shape_are_answered_together() -> None:
    """Whatever comes together, each block has the exact answers that it has by itself, modulo 2⁶⁴ too."""
    rng = np.random.default_rng(3)
    kinds = [(Residual(3), Eye(4)), (Residual(3), Residual(3)), (Dense([[1, -2, 3]]), Eye(4)), ()]
    blocks = [Block(1.0, list(enumerate(kinds[j % 4]))) for j in range(50)]
    counts = [rng.integers(-(2**62), 2**62, [A.shape[1] for _, A in block.factors]) for block in blocks]
    for block, x, y in zip(
        blocks, counts, exact_answers_of(BlockTable.of(blocks), range(len(blocks)), counts), strict=True
    ):
        np.testing.assert_array_equal(y, exact_answers([A for _, A in block.factors], x))
