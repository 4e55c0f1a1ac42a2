"""Statistical audits of whole releases (N8): the loss seen is no more than promised, and planted faults are caught.

One release of A ⊗ I over a domain with an attribute of m copies is m independent releases of A: a row of one copy
changes only answers of that copy, so the noise is A's own (which is asserted). So a million runs go through all of
`measure` in one call: rounding, scales, exact answers, noise, clamp. What it does not cover is what differs from call
to call: the key of the noise, which tests/noise looks at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta, binom

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Prefix, PureDP, Strategy, Workload, from_array
from hdmm.matrix import Eye, PIdentity, to_dense
from hdmm.measure.measure import measure
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import Privacy
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import Lattice, resolution
from tests.support.copies import copied
from tests.support.families import FAMILIES, asks, dense_blocks
from tests.support.planted import five_percent_more, one_block_left_out, one_less

pytestmark = pytest.mark.slow

ALPHA = 1e-6  # of one audit to fail by chance
COPIES = 1 << 20
PURE, RHO = PureDP(3), ZCDP(2)

TINY = Domain({"x": 3, "y": 2})
STRATEGIES: dict[str, Strategy] = {
    "product": Strategy(TINY, (Block(1.0, ((0, PIdentity([[0.7, 1.3, 0.2]])), (1, Eye(2)))),)),
    "two products": Strategy(
        TINY, (Block(0.6, ((0, PIdentity([[0.7, 1.3, 0.2]])),)), Block(0.4, ((0, Eye(3)), (1, Eye(2)))))
    ),
    "marginals": Strategy(TINY, (Block(0.5, ((0, Eye(3)),)), Block(0.3, ((1, Eye(2)),)), Block(0.2, ()))),
    "direct": Strategy.direct(Workload.product(TINY, x=Prefix()) + Workload.product(TINY, y=Identity())),
    "merged": Strategy(TINY, (Block(1.0, [((0, 1), PIdentity([[0.5] * 6]))]),)),
}


def runs(strategy: Strategy, x: np.ndarray, privacy: Privacy, copies: int = COPIES) -> tuple[np.ndarray, Release]:
    """Noisy answers to all blocks, one column a run, in units of Âx."""
    wide = copied(strategy, copies)
    counts = np.repeat(x.reshape(*strategy.domain.shape, 1), copies, axis=-1)
    release = measure(wide, from_array(wide.domain, counts, rows_bound=2**20), privacy, ledger=None)
    rows = []
    for y, scale in zip(release.measurements, release.scales, strict=True):
        rows.append(y.reshape(-1, copies) / resolution(scale, privacy.noise))
    return np.concatenate(rows), release


def worst_move(strategy: Strategy, privacy: Privacy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Â, the scale of every row, the cell whose row is the most telling), by the definition."""
    lattice = Lattice.of(strategy, privacy.noise)
    scales = lattice.scales(privacy)
    A = np.vstack([B for _, B in dense_blocks(lattice.strategy)])
    s = np.concatenate(
        [np.full(len(B), float(t)) for (_, B), t in zip(dense_blocks(lattice.strategy), scales, strict=True)]
    )
    loss = np.sum(np.abs(A) / s[:, None], axis=0) if privacy.noise == "laplace" else np.sum(A**2 / s[:, None], axis=0)
    return A, s, np.eye(A.shape[1], dtype=int)[loss.argmax()]


def audited(strategy: Strategy, privacy: Privacy) -> float:
    """A lower bound at confidence 1 − ALPHA on ε, or on μ = √(2ρ) of Gaussian noise, from runs on two neighbours.

    The event is a threshold on the likelihood ratio, chosen on the first halves and bounded on the second.
    """
    A, s, person = worst_move(strategy, privacy)
    x = np.arange(A.shape[1])
    answers = A @ x, A @ (x + person)
    samples = []
    for data in (x, x + person):
        y, release = runs(strategy, data, privacy)
        assert set(release.scales) == set(Lattice.of(strategy, privacy.noise).scales(privacy))
        if privacy.noise == "laplace":
            ratio = sum((np.abs(y[i] - answers[0][i]) - np.abs(y[i] - answers[1][i])) / s[i] for i in range(len(y)))
        else:
            ratio = sum(y[i] * (answers[1][i] - answers[0][i]) / s[i] for i in range(len(y)))
        samples.append(np.asarray(ratio))
    without, with_ = samples
    return max(bound(with_, without, privacy), bound(-without, -with_, privacy))


def bound(p: np.ndarray, q: np.ndarray, privacy: Privacy) -> float:
    """Of {ratio ≥ t}: log p/q, or Φ⁻¹(p) − Φ⁻¹(q)."""
    half = len(p) // 2
    thresholds = np.quantile(p[:half], np.linspace(0.02, 0.999, 200)) - 1e-9
    t = max(thresholds, key=lambda t: gap(p[:half] >= t, q[:half] >= t, privacy))
    return gap(p[half:] >= t, q[half:] >= t, privacy)


def gap(p: np.ndarray, q: np.ndarray, privacy: Privacy) -> float:
    """At the Clopper-Pearson ends of both, each at confidence 1 − ALPHA/4: two directions, two ends."""
    low = beta.ppf(ALPHA / 4, p.sum(), len(p) - p.sum() + 1) if p.any() else 0.0
    high = beta.ppf(1 - ALPHA / 4, q.sum() + 1, len(q) - q.sum()) if not q.all() else 1.0
    if low <= 0 or high >= 1:
        return -math.inf
    return math.log(low / high) if privacy.noise == "laplace" else float(ndtri(low) - ndtri(high))


def promised(privacy: Privacy) -> float:
    return float(privacy.epsilon) if isinstance(privacy, PureDP) else math.sqrt(2 * float(privacy.rho))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("privacy", [PURE, RHO], ids=["laplace", "gaussian"])
def test_the_loss_seen_is_no_more_than_promised(name: str, privacy: Privacy) -> None:
    """N8; and it is near the promise, so that the audit has power."""
    found = audited(STRATEGIES[name], privacy)
    assert 0.85 * promised(privacy) < found <= promised(privacy)


@pytest.mark.parametrize("fault", [one_less, one_block_left_out, five_percent_more], ids=lambda f: f.__name__)
@pytest.mark.parametrize("privacy", [PURE, RHO], ids=["laplace", "gaussian"])
def test_planted_faults_are_caught(
    fault: Callable[..., tuple[Fraction, ...]], privacy: Privacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N8: the same audit, of a library that is wrong."""
    monkeypatch.setattr(Lattice, "scales", fault)
    assert audited(STRATEGIES["marginals"], privacy) > promised(privacy)


ZOO = ["identity", "product", "two products", "marginals", "marginals over bases", "direct", "merged, not neighbours"]


def deviation_of_total(strategy: Strategy, w: Workload, privacy: Privacy, expected: float) -> float:
    """√(2‖Q‖²_F + κ·ΣQ_ii²), Q = (WA⁺)ᵀWA⁺, for noise of excess kurtosis κ, in proportion to the expected total."""
    WA = to_dense(w.matrix) @ np.linalg.pinv(to_dense(strategy.matrix))
    Q = WA.T @ WA
    kurtosis = 3 if privacy.noise == "laplace" else 0
    return expected * math.sqrt(2 * np.sum(Q**2) + kurtosis * np.sum(np.diag(Q) ** 2)) / np.trace(Q)


@pytest.mark.parametrize("name", [*ZOO, "no closed form", "nested splits"])
@pytest.mark.parametrize("privacy", [PureDP("0.3"), ZCDP("0.02")], ids=["laplace", "gaussian"])
def test_the_error_of_many_releases_is_the_one_expected(name: str, privacy: Privacy) -> None:
    """200 separate releases: their mean squared error against release.error, and that near expected_error."""
    strategy, w = FAMILIES[name], asks(FAMILIES[name])
    x = np.random.default_rng(4).integers(0, 50, size=strategy.domain.shape)
    truth = w.matrix.matmat(x.reshape(-1, 1))[:, 0]
    totals, expected = [], 0.0
    for _ in range(200):
        release = measure(strategy, from_array(strategy.domain, x), privacy, ledger=None, workload=w)
        expected = release.error(w)
        totals.append(float(np.sum((release.answer(w).values - truth) ** 2)))
    before = hdmm.expected_error(w, strategy, privacy)  # of the strategy that was not rounded
    assert 0.98 * before < expected < 1.0011 * before
    # Where large errors happen to be missing, the deviation seen is too small; so it is at least that of the formula.
    spread = max(float(np.std(totals, ddof=1)), deviation_of_total(strategy, w, privacy, expected))
    assert abs(np.mean(totals) - expected) < 6 * spread / math.sqrt(len(totals))


@pytest.mark.parametrize("name", ["product", "two products", "marginals", "direct", "merged"])
@pytest.mark.parametrize("privacy", [PureDP("0.3"), ZCDP("0.02")], ids=["laplace", "gaussian"])
def test_every_query_has_its_deviation_and_its_level(name: str, privacy: Privacy) -> None:
    """20,000 independent runs: the variance of every query, and how often its interval holds the truth."""
    copies = 20_000
    strategy = copied(STRATEGIES[name], copies)
    domain = strategy.domain
    x = np.arange(6).reshape(3, 2)
    release = measure(
        strategy, from_array(domain, np.repeat(x[..., None], copies, axis=-1), rows_bound=2**20), privacy, ledger=None
    )
    w = Workload.product(domain, x=Prefix(), copy=Identity()) + Workload.product(domain, y=Identity(), copy=Identity())
    if name == "product":
        w = w + Workload.product(domain, x=AllRange(), y=Identity(), copy=Identity())
    answers = release.answer(w)
    truth = w.matrix.matmat(np.repeat(x.reshape(-1, 1), copies, axis=1).reshape(-1, 1))[:, 0]
    errors = (answers.values - truth).reshape(-1, copies)
    deviations = answers.stddev.reshape(-1, copies)
    assert np.ptp(deviations, axis=1).max() < 1e-9 * deviations.max()
    squares = errors**2 / deviations**2
    off = (squares.mean(axis=1) - 1) / (squares.std(axis=1) / math.sqrt(copies))
    assert np.abs(off).max() < 6
    assert np.abs(errors.mean(axis=1) / deviations[:, 0] * math.sqrt(copies)).max() < 6  # unbiased
    for level in (0.5, 0.9, 0.95, 0.99):
        lower, upper = answers.interval(level)
        held = ((lower <= truth) & (truth <= upper)).reshape(-1, copies).sum(axis=1)
        # At least the level, up to the steps of the lattice (docs/guide/accuracy.md): 1 part in 128 of what is outside.
        assert held.min() >= binom.ppf(ALPHA, copies, level - (1 - level) / 128)
        if privacy.noise == "gaussian":
            assert held.max() <= binom.ppf(1 - ALPHA, copies, level + 0.01 * (1 - level))
