"""Whole numbers beside known counts: these are reproduced, tables add up, and no estimate leaves its interval."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm import ZCDP, Domain, Known, PureDP, StrategyError, Workload, from_array, optimize

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


def test_several_known_tables_are_refused() -> None:
    known = [Known(DOMAIN, [name], COUNTS.sum(axis=others)) for name, others in (("sex", (1, 2)), ("age", (0, 2)))]
    release = optimize(PAIRS, known=known, restarts=1).measure(from_array(DOMAIN, COUNTS), PureDP(1), ledger=None)
    with pytest.raises(StrategyError, match="if these are one table"):
        release.answer(PAIRS, integers=True)
