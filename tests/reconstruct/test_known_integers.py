"""Whole numbers beside known counts: these are reproduced, tables add up, and no estimate leaves its interval."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import null_space

from hdmm import ZCDP, Domain, Known, PureDP, StrategyError, Workload, from_array, optimize
from hdmm.reconstruct.whole_numbers import _controlled
from tests.support.effort import examples

DOMAIN = Domain({"sex": ["M", "F"], "age": 12, "income": 4})
COUNTS = np.random.default_rng(3).poisson(0.6, DOMAIN.shape)
PAIRS = Workload.marginals(DOMAIN, [0, 1, 2])


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")])
@pytest.mark.parametrize("names", [[], ["sex"], ["income"], ["sex", "income"]])
def test_whole_numbers_keep_known_counts_and_add_up(privacy: PureDP | ZCDP, names: list[str]) -> None:
    others = tuple(i for i, name in enumerate(DOMAIN.names) if name not in names)
    known = Known(DOMAIN, names, COUNTS.sum(axis=others))
    plan = optimize(PAIRS, known=known, noise=privacy.noise, restarts=1)
    release = plan.measure(from_array(DOMAIN, COUNTS), privacy, ledger=None)
    answers = release.answer(PAIRS, integers=True)
    assert (answers.values == np.rint(answers.values)).all()
    assert (answers.values >= 0).all()
    lower, upper = answers.interval()
    assert ((lower <= answers.values) & (answers.values <= upper)).all()
    told = release.answer(Workload.marginals(DOMAIN, [tuple(names)]), integers=True).values
    np.testing.assert_array_equal(told, known.counts.ravel())
    table = release.answer(Workload.marginals(DOMAIN, [("sex", "age")]), integers=True).values.reshape(2, 12)
    sexes = release.answer(Workload.marginals(DOMAIN, [("sex",)]), integers=True).values
    np.testing.assert_array_equal(table.sum(axis=1), sexes)
    # Rounding hardly moves the measured tables, although most cells are below 1.
    near = release.answer(PAIRS, nonnegative=True).values
    assert np.sqrt(np.mean((answers.values - near) ** 2)) < 1.5


def by(*names: str) -> Known:
    return Known(DOMAIN, names, COUNTS.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in names)))


@pytest.mark.parametrize("sets", [[("sex",), ("age",)], [("sex", "age"), ("sex", "income")], [("age",), ("income",)]])
def test_whole_numbers_keep_two_known_tables(sets: list[tuple[str, ...]]) -> None:
    known = [by(*names) for names in sets]
    plan = optimize(PAIRS, known=known, noise="gaussian", restarts=1)
    release = plan.measure(from_array(DOMAIN, COUNTS), ZCDP("0.5"), ledger=None)
    for i, j in itertools.combinations(range(3), 2):
        pair = Workload.marginals(DOMAIN, [(DOMAIN.names[i], DOMAIN.names[j])])
        cells = release.answer(pair, integers=True).values.reshape(DOMAIN.shape[i], DOMAIN.shape[j])
        assert (cells == np.rint(cells)).all()
        assert (cells >= 0).all()
        for each in known:
            if set(each.axes) <= {i, j}:
                others = tuple(k for k, axis in enumerate((i, j)) if axis not in each.axes)
                np.testing.assert_array_equal(cells.sum(axis=others), each.counts)
    near = release.answer(PAIRS, nonnegative=True).values
    assert np.sqrt(np.mean((release.answer(PAIRS, integers=True).values - near) ** 2)) < 1.5


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))
def test_rounding_keeps_the_sums_of_two_groupings(seed: int, rows: int, columns: int, cells: int) -> None:
    """Every number is rounded up or down, and the sums, which are whole, stay."""
    draw = np.random.default_rng(seed)
    groupings = [np.unique(draw.integers(0, k, cells), return_inverse=True)[1] for k in (rows, columns)]
    whole = draw.integers(0, 4, cells).astype(float)
    A = np.vstack([np.eye(g.max() + 1)[:, g] for g in groupings])
    null = null_space(A)
    x = whole + (null @ draw.normal(size=null.shape[1]) if null.size else 0.0)
    x = whole + (x - whole) * min(
        1.0, 0.9 * float(np.min(np.where(x < whole, whole / np.maximum(whole - x, 1e-12), 9)))
    )
    n = _controlled(x, groupings)
    assert (n >= 0).all()
    assert (np.abs(n - x) < 1 + 1e-6).all()
    np.testing.assert_array_equal(A @ n, np.rint(A @ whole))


def test_three_known_tables_are_refused() -> None:
    known = [by("sex"), by("age"), by("income")]
    release = optimize(PAIRS, known=known, restarts=1).measure(from_array(DOMAIN, COUNTS), PureDP(1), ledger=None)
    with pytest.raises(StrategyError, match="if these are one table"):
        release.answer(PAIRS, integers=True)
