"""What `hdmm.optimize` returns can be measured and answered, whatever was asked for, within stated memory."""

import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Prefix, PureDP, Total, Workload, from_table

MEMORY = 1 << 28  # bytes that a release may hold beyond what was there before
FAMILIES = {
    "marginals": Identity(),
    "prefixes": Prefix(),
    "ranges": AllRange(),
    "unions": Identity() | Total(),
}


def asked(domain: Domain, family: str) -> Workload:
    """Queries of one kind on every attribute, or of two kinds in turn, on one and on two attributes at a time."""
    names = domain.names
    if family == "mixed":
        sets = {name: [Identity(), Prefix()][i % 2] for i, name in enumerate(names)}
    else:
        sets = dict.fromkeys(names, FAMILIES[family])
    single = [Workload.product(domain, {name: sets[name]}) for name in names]
    pairs = [Workload.product(domain, {a: sets[a], b: sets[b]}) for a, b in itertools.pairwise(names)]
    each = [*single, *pairs]
    return sum(each[1:], start=each[0])


@pytest.mark.parametrize("d", [1, 3, *(pytest.param(d, marks=pytest.mark.slow) for d in (5, 9, 26))])
@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_a_plan_can_be_released(family: str, privacy: PureDP | ZCDP, d: int) -> None:
    domain = Domain({f"a{i}": 4 for i in range(d)})
    w = asked(domain, family)
    plan = hdmm.optimize(w, noise=privacy.noise, restarts=1, time_limit=5, progress=False)
    rng = np.random.default_rng(d)
    rows = {name: rng.integers(0, 4, 500, dtype=np.int8) for name in domain.names}
    tracemalloc.start()
    try:
        answers = plan.measure(from_table(domain, pa.table(rows)), privacy, ledger=None).answer(w)
        assert np.isfinite(answers.values).all()
        assert (answers.stddev > 0).all()
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    expected = float(privacy.variance_factor) * plan.error
    assert float((answers.stddev**2).sum()) == pytest.approx(expected, rel=0.02)


def test_many_tables_are_answered_as_one_by_one() -> None:
    """300 marginals are counted, measured and answered together; each has what it would have by itself."""
    domain = Domain({f"a{i}": n for i, n in enumerate([2, 3, 4, 3, 2, 3, 4, 2, 3, 2, 4, 3, 2])})
    w = Workload.marginals(domain, 3)
    rng = np.random.default_rng(0)
    rows = {
        a.name: rng.integers(0, n, 400, dtype=np.int8) for a, n in zip(domain.attributes, domain.shape, strict=True)
    }
    data = from_table(domain, pa.table(rows))
    release = hdmm.optimize(w, noise="gaussian", progress=False).measure(data, ZCDP(10**9), ledger=None)
    answers = release.answer(w)
    start = 0
    for product in w.products:
        stop = start + product.queries
        alone = release.answer(Workload(domain, (product,)))
        np.testing.assert_allclose(answers.values[start:stop], alone.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(answers.stddev[start:stop], alone.stddev, rtol=1e-9)
        truth = data.marginal([domain.names[i] for i, _ in product.factors]).ravel()
        np.testing.assert_allclose(answers.values[start:stop], truth, atol=0.1)
        start = stop
