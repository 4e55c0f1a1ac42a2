"""Sums of Kronecker products over cells: every way of evaluating them, compared with the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import StrategyError
from hdmm.strategy import mixture
from hdmm.strategy.mixture import Mixture, box_keys, quotient_sum
from hdmm.strategy.subsets import Subsets, members, subset_of
from tests.support import brute


@st.composite
def mixtures(draw: st.DrawFn, *, classes: int = 4) -> Mixture:
    d, k = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    widths = [draw(st.integers(1, 3)) for _ in range(d)]
    sizes = [draw(st.integers(1, classes)) for _ in range(d)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = tuple(rng.integers(0, 3, (c, r)) * rng.random((c, r)) for c, r in zip(sizes, widths, strict=True))
    choices = np.stack([rng.integers(0, r, k) for r in widths], axis=1)
    return Mixture(rng.random(k), choices, tables)


def plain(m: Mixture) -> np.ndarray:
    return sum(
        c * brute.kron([t[:, [j]] for t, j in zip(m.tables, row, strict=True)])[:, 0]
        for c, row in zip(m.coefficients, m.choices, strict=True)
    )  # type: ignore[return-value]


@given(mixtures())
def test_values(m: Mixture) -> None:
    np.testing.assert_allclose(m.values(), plain(m), atol=1e-12)


@given(mixtures(), st.sampled_from([1, 2, 7]))
def test_slabs_cover_all_cells_in_order(m: Mixture, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "SLAB_CELLS", limit)
        boxes = list(m.slabs())
        pieces = [m.restricted(box).values() for box in boxes]
    assert all(len(piece) <= limit for piece in pieces)
    np.testing.assert_allclose(np.concatenate(pieces), plain(m), atol=1e-12)


@given(mixtures(classes=2))
def test_sparse_cells(m: Mixture) -> None:
    boxes = [np.arange(len(t)) for t in m.tables]
    keys = box_keys(dict(enumerate(boxes)), len(boxes))
    np.testing.assert_allclose(m.sparse.at(keys), plain(m), atol=1e-12)
    np.testing.assert_allclose(m.at(keys), plain(m), atol=1e-12)
    np.testing.assert_allclose(m.by_subset[keys.numbers()], plain(m), atol=1e-12)


@given(mixtures(classes=2))
def test_quotients_agree_in_both_forms(m: Mixture) -> None:
    other = Mixture(m.coefficients[::-1], m.choices, tuple(t + 0.5 for t in m.tables))
    t, lam = plain(m), plain(other)
    assert quotient_sum(m, other) == pytest.approx(np.sum(t / lam))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "_MAX_DENSE", 0)
        assert quotient_sum(m, other) == pytest.approx(np.sum(t / lam))
    alone = [Mixture(np.ones(1), m.choices[[k]], m.tables) for k in range(len(m.choices))]
    np.testing.assert_allclose(other.quotients(m), [quotient_sum(one, other) for one in alone])
    assert not other.missing(m).any()


def test_very_many_terms_on_many_attributes_are_summed_over_subsets() -> None:
    """10,000 terms over 20 attributes took minutes: their cells, one by one, are 10¹⁰."""
    rng = np.random.default_rng(0)
    chosen = np.argsort(rng.random((10_000, 20)), axis=1)[:, :2]
    choices = np.zeros((10_000, 20), dtype=np.int64)
    choices[np.arange(10_000)[:, None], chosen] = rng.integers(1, 50, chosen.shape)
    ones = np.ones((1, 49))
    tables = (np.hstack([[[1.0], [0.0]], np.vstack([ones, rng.random((1, 49))])]),) * 20
    t = Mixture(np.ones(10_000), choices, tables)
    lam = Mixture(np.ones(1), np.ones((1, 20), dtype=np.int64), (np.array([[0.0, 1.0], [0.0, 1.0]]),) * 20)
    assert quotient_sum(t, lam) == pytest.approx(lam.quotients(t).sum())


def test_an_unmeasured_cell_is_infinite() -> None:
    t = Mixture(np.ones(1), np.zeros((1, 1), dtype=int), (np.array([[1.0], [1.0]]),))
    lam = Mixture(np.ones(1), np.zeros((1, 1), dtype=int), (np.array([[1.0], [0.0]]),))
    assert quotient_sum(t, lam) == math.inf
    assert quotient_sum(lam, lam) == 1.0


@pytest.mark.parametrize("d", [0, 1, 5, 63, 64, 65, 128, 200])
def test_many_subsets_are_what_their_integers_are(d: int) -> None:
    rng = np.random.default_rng(d)
    numbers = [int.from_bytes(rng.bytes(-(-d // 8) or 1), "little") % (1 << d) for _ in range(40)]
    numbers += [1 << i for i in range(d)] + [0x20 << 8 * k for k in range(d // 8)] + numbers[:7] + [0]
    found = Subsets.of(numbers, d)
    assert found.numbers() == numbers
    assert [subset_of(np.flatnonzero(row).tolist()) for row in found.membership()] == numbers
    assert Subsets.single(d).numbers() == [1 << i for i in range(d)]
    unique, places = found.distinct()
    assert unique.numbers() == sorted(set(numbers))
    assert [unique.numbers()[k] for k in places] == numbers
    known = unique[np.arange(0, len(unique), 2)]
    expected = {s: k for k, s in enumerate(known.numbers())}
    assert known.places(found).tolist() == [expected.get(s, -1) for s in numbers]
    assert known[np.arange(0)].places(found).tolist() == [-1] * len(numbers)
    sizes = list(found.by_size)
    assert sorted(np.concatenate([rows for rows, _ in sizes]).tolist()) == list(range(len(numbers)))
    assert all(members(numbers[k]) == axes for rows, each in sizes for k, axes in zip(rows, each.tolist(), strict=True))
    assert [each.shape[1] for _, each in sizes] == sorted({s.bit_count() for s in numbers})


def test_too_many_cells_are_refused() -> None:
    wide = Mixture(np.ones(1), np.zeros((1, 4), dtype=int), (np.ones((1000, 1)),) * 4)
    with pytest.raises(StrategyError, match="which are too many"):
        quotient_sum(wide, wide)
    deep = Mixture(np.ones(1), np.zeros((1, 40), dtype=int), (np.ones((2, 1)),) * 40)
    with pytest.raises(StrategyError, match="40 out of 40 attributes"):
        quotient_sum(deep, deep)
