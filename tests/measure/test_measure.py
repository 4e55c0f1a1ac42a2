"""The one private step: what is refused before the debit, in which order things happen, and what a release holds."""

from __future__ import annotations

import ast
import gc
import inspect
import io
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import (
    ZCDP,
    ApproxDP,
    BudgetError,
    Data,
    DataError,
    Domain,
    HdmmError,
    Identity,
    Ledger,
    LedgerError,
    Prefix,
    PrivacyError,
    PureDP,
    Strategy,
    StrategyError,
    Unit,
    Workload,
    from_array,
    from_table,
)
from hdmm.base.exceptions import NoiseError
from hdmm.matrix import Dense, Eye, Ones, PIdentity
from hdmm.measure.measure import measure, measure_prepared
from hdmm.measure.prepare import prepare
from hdmm.noise import discrete_laplace
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import Lattice
from tests.support.families import FAMILIES, PLANE, SOLID, asks

every = pytest.mark.parametrize("name", FAMILIES)
CANARY = 987_654_321_123

SAMPLER = {"laplace": "discrete_laplace", "gaussian": "rounded_gaussian"}


@dataclass(frozen=True, slots=True, eq=False)
class Watched(Data):
    """Data that writes down what is asked of it, and may fail."""

    domain: Domain
    rows_bound: int = 2**33
    max_rows_per_id: int | None = None
    events: list[str] = field(default_factory=list)
    fails: Exception | None = None
    missing: HdmmError | None = None
    count: int = 5

    def check(self) -> None:
        self.events.append("check")
        if self.missing is not None:
            raise self.missing

    def _marginals(self, wanted: Sequence[tuple[int, ...]]) -> Iterator[np.ndarray]:
        self.events.append("read")
        for axes in wanted:
            if self.fails is not None:
                raise self.fails
            yield np.full([self.domain.shape[i] for i in axes], self.count, dtype=np.int64)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "budget.db", dataset="people", cap=ZCDP(100))


def counts(domain: Domain) -> Data:
    return from_array(domain, np.random.default_rng(0).integers(0, 50, size=domain.shape))


def test_the_debit_comes_before_the_data_and_after_all_checks(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1."""
    data = Watched(PLANE)
    debit, laplace = Ledger.debit, discrete_laplace
    monkeypatch.setattr(Ledger, "debit", lambda *args, **more: (data.events.append("debit"), debit(*args, **more))[1])
    monkeypatch.setattr(
        hdmm.noise.draws, "discrete_laplace", lambda *args: (data.events.append("noise"), laplace(*args))[1]
    )
    release = measure(FAMILIES["identity"], data, PureDP(1), ledger=ledger)
    assert data.events == ["check", "debit", "read", "noise"]
    assert release.receipt is not None
    assert ledger.verify(release.receipt) == 3
    assert release.receipt.amount == Fraction(1, 2)  # ε = 1 in an account of ρ


def test_the_form_that_a_forecast_has_built_serves_the_answers() -> None:
    """It may take minutes to build, and is not built again."""
    for built in (True, False):
        prepared = prepare(FAMILIES["identity"], PureDP(1), unit=Unit(), rows_bound=2**33)
        if built:
            assert prepared.form is not None
        release = measure_prepared(prepared, counts(PLANE), ledger=None, purpose="test")
        assert ("form" in vars(release)) == built
        assert not built or vars(release)["form"] is prepared.form


HUGE = Domain({f"a{i}": 10 for i in range(12)})  # 1e12 cells
NO_QUERY = Block(1.0, ((0, Dense([[0, 0, 0, 0]])),))
ZEROS, SOME_ZEROS = Strategy(PLANE, (NO_QUERY,)), Strategy(PLANE, (NO_QUERY, Block(1.0, ((0, Eye(4)),))))
REFUSED: dict[str, tuple[type[HdmmError], Callable[[], tuple[Strategy, Data, Privacy, dict[str, Any]]]]] = {
    "another domain": (DataError, lambda: (FAMILIES["product"], Watched(SOLID), PureDP(1), {})),
    "a smaller unit than the data keeps": (
        PrivacyError,
        lambda: (FAMILIES["product"], Watched(PLANE, max_rows_per_id=3), PureDP(1), {"unit": Unit(2)}),
    ),
    "1e12 measurements": (
        StrategyError,
        lambda: (Strategy.identity(HUGE), Watched(HUGE, rows_bound=100), PureDP(1), {}),
    ),
    "a marginal of 1e12 cells": (
        DataError,
        lambda: (
            Strategy(HUGE, (Block(1.0, tuple((i, Dense(np.ones((1, 10), int))) for i in range(12))),)),
            Watched(HUGE, rows_bound=100),
            PureDP(1),
            {},
        ),
    ),
    "too little noise": (StrategyError, lambda: (FAMILIES["product"], Watched(PLANE), PureDP(2**40), {})),
    "too little noise on one block of two": (
        StrategyError,
        lambda: (
            Strategy(PLANE, (Block(1.0, ((0, Eye(4)),)), Block(2.0**-30, ()))),
            Watched(PLANE),
            PureDP(2**40),
            {},
        ),
    ),
    "too much noise": (NoiseError, lambda: (FAMILIES["product"], Watched(PLANE), PureDP(Fraction(1, 2**60)), {})),
    "too much Gaussian noise": (
        NoiseError,
        lambda: (FAMILIES["product"], Watched(PLANE), ZCDP(Fraction(1, 2**200)), {}),
    ),
    "a strategy of zeros": (StrategyError, lambda: (ZEROS, Watched(PLANE), PureDP(1), {})),
    "a block of zeros": (StrategyError, lambda: (SOME_ZEROS, Watched(PLANE), PureDP(1), {})),
    "a column that is not there": (
        DataError,
        lambda: (FAMILIES["product"], Watched(PLANE, missing=DataError("Column 'x' is not there.")), PureDP(1), {}),
    ),
    "no purpose": (LedgerError, lambda: (FAMILIES["product"], Watched(PLANE), PureDP(1), {"purpose": ""})),
    "more than is left": (BudgetError, lambda: (FAMILIES["product"], Watched(PLANE), ZCDP(101), {})),
    "a workload that is not supported": (
        StrategyError,
        lambda: (
            FAMILIES["the total"],
            Watched(PLANE),
            PureDP(1),
            {"workload": Workload.product(PLANE, x=Identity())},
        ),
    ),
    "a bound on rows that is none": (
        StrategyError,
        lambda: (FAMILIES["product"], Watched(PLANE, rows_bound=0), PureDP(1), {}),
    ),
    "queries that are not integers, directly": (
        StrategyError,
        lambda: (
            Strategy.direct(Workload.product(PLANE, x=hdmm.Vectors([[0.5, 0.1, 0.2, 0.3]]))),
            Watched(PLANE),
            PureDP(1),
            {},
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_costs_nothing(name: str, ledger: Ledger) -> None:
    """I4, L5: before a budget is debited or data read, and at once."""
    error, made = REFUSED[name]
    strategy, data, privacy, options = made()
    start = time.process_time()  # whatever else the machine does
    with pytest.raises(error):
        measure(strategy, data, privacy, ledger=ledger, **options)
    assert time.process_time() - start < 1
    assert ledger.spent == 0
    assert isinstance(data, Watched)
    assert "read" not in data.events


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0, -1, True, 5e-324, "1e-400", "", None])
def test_an_epsilon_that_is_none_never_gets_so_far(bad: Any) -> None:
    """L5; SmartNoise #317: what is missing never means no noise."""
    for kind in (PureDP, ZCDP, lambda value: ApproxDP(value, "1e-6"), lambda value: ApproxDP(1, value)):
        with pytest.raises(PrivacyError):
            kind(bad)


def test_a_plan_refuses_the_other_noise(ledger: Ledger) -> None:
    w = Workload.marginals(PLANE, k=1)
    data = Watched(PLANE)
    with pytest.raises(StrategyError, match="gaussian noise"):
        hdmm.optimize(w, restarts=1).measure(data, ZCDP(1), ledger=ledger)
    assert ledger.spent == 0
    assert not data.events


def test_nobody_keeping_the_budget_must_be_said() -> None:
    w = Workload.marginals(PLANE, k=1)
    plan = hdmm.optimize(w, restarts=1)
    with pytest.raises(TypeError):
        measure(FAMILIES["product"], counts(PLANE), PureDP(1))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        plan.measure(counts(PLANE), PureDP(1))  # type: ignore[call-arg]
    assert plan.measure(counts(PLANE), PureDP(1), ledger=None).receipt is None


class LeakyError(Exception):
    pass


def test_our_own_errors_in_counting_keep_their_words(ledger: Ledger) -> None:
    """They hold nothing of the data, and say what to do: what an engine says is withheld, not what we say."""
    wrong = DataError("The database has gone away. Start it and run again.")
    with pytest.raises(DataError) as caught:
        measure(FAMILIES["product"], Watched(PLANE, fails=wrong), PureDP(1), ledger=ledger)
    assert caught.value is wrong


@pytest.mark.parametrize("error", [LeakyError, ValueError, KeyError, MemoryError, OSError, RecursionError])
def test_a_run_that_fails_stays_charged_and_tells_nothing(
    error: type[Exception], ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """L1, O3; OpenDP's filters did not charge for a query that failed."""
    data = Watched(PLANE, fails=error(f"row of Jane Doe, {CANARY}"))
    caplog.set_level(logging.DEBUG)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(DataError) as caught:
        measure(FAMILIES["product"], data, ZCDP(1), ledger=ledger)
    assert ledger.spent == 1
    said = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    assert str(CANARY) not in said + out.getvalue() + err.getvalue()
    assert "Jane" not in said
    assert "stays charged" in str(caught.value)


def test_what_a_debit_is_of(tmp_path: Path) -> None:
    """ρ for (ε, δ); ε²/2 for ε in an account of ρ; (ε, δ) never in an account of ε."""
    rho = Ledger(tmp_path / "rho.db", dataset="d", cap=ZCDP(10))
    approx = ApproxDP(1, "1e-6")
    receipt = measure(FAMILIES["product"], counts(PLANE), approx, ledger=rho).receipt
    assert receipt is not None
    assert receipt.parameter == "rho"
    assert approx.rho <= receipt.amount <= approx.rho + Fraction(1, 10**20)
    measure(FAMILIES["product"], counts(PLANE), PureDP("0.5"), ledger=rho)
    assert rho.spent == receipt.amount + Fraction(1, 8)
    epsilon = Ledger(tmp_path / "epsilon.db", dataset="d", cap=PureDP(10))
    for privacy in (approx, ZCDP("0.1")):
        with pytest.raises(BudgetError):
            measure(FAMILIES["product"], counts(PLANE), privacy, ledger=epsilon)
    assert epsilon.spent == 0
    measure(FAMILIES["product"], counts(PLANE), PureDP("0.5"), ledger=epsilon)
    assert epsilon.spent == Fraction(1, 2)


def reached(root: object) -> list[object]:
    """Everything that an object leads to, modules and classes left out."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        this = todo.pop()
        if id(this) in seen or inspect.ismodule(this) or isinstance(this, type) or inspect.isroutine(this):
            continue
        seen[id(this)] = this
        todo += gc.get_referents(this)
        if isinstance(this, np.ndarray) and this.base is not None:
            todo.append(this.base)
    return list(seen.values())


@every
@pytest.mark.parametrize("privacy", [PureDP("0.001"), ZCDP("0.00001")], ids=[Noise.LAPLACE, Noise.GAUSSIAN])
def test_a_release_holds_no_true_answer(name: str, privacy: Privacy) -> None:
    """No array in reach of it has the true counts, or anything that the noise is not on; nor has the data changed."""
    strategy = FAMILIES[name]
    x = np.arange(strategy.domain.size).reshape(strategy.domain.shape) * 1_000_003 + CANARY
    kept = x.copy()
    data = from_array(strategy.domain, x, rows_bound=2**36)
    if name == "all merged":
        data = from_array(strategy.domain, x, rows_bound=2**38)
    release = measure(strategy, data, privacy, ledger=None)
    assert (x == kept).all()
    released = {id(y) for y in release.measurements}
    size = sum(y.size for y in release.measurements)
    for thing in reached(release):
        assert thing is not x
        assert thing is not data
        if isinstance(thing, np.ndarray) and thing.dtype.kind in "iu" and id(thing) not in released:
            assert not np.isin(kept, thing).any()
            assert thing.size <= size or not (thing > 10**9).any()
        if isinstance(thing, np.ndarray) and any(np.shares_memory(thing, y) for y in release.measurements):
            assert thing.nbytes <= size * 8
    for y in release.measurements:
        assert y.dtype == np.int64
        assert not y.flags.writeable
        base = y
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert base.nbytes == y.nbytes  # no rows beside those released


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
@every
def test_every_draw_is_used_once(name: str, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenDP #2344: one draw on many cells. Here numbers are counted out instead of drawn."""
    sizes: list[int] = []

    def counted(scale: Fraction, size: int) -> np.ndarray:
        start = 10**6 + sum(sizes)
        sizes.append(size)
        return np.arange(start, start + size)

    monkeypatch.setattr(hdmm.noise.draws, SAMPLER[noise], counted)
    monkeypatch.setattr(hdmm.measure.measure, "_DRAWN", 5)  # pieces of blocks, and blocks in one piece
    privacy = PureDP("0.001") if noise == Noise.LAPLACE else ZCDP("0.000001")
    release = measure(
        FAMILIES[name],
        from_array(FAMILIES[name].domain, np.zeros(FAMILIES[name].domain.shape, int)),
        privacy,
        ledger=None,
    )
    drawn = np.concatenate(release.measurements)
    assert sorted(drawn.tolist()) == list(range(10**6, 10**6 + len(drawn)))
    assert sum(sizes) == len(drawn)
    assert max(sizes) <= 5


def test_scales_and_clamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise asked for is of the block's scale times its resolution; sums stop at ±2⁶¹ (S2)."""
    asked = []

    def largest(scale: Fraction, size: int) -> np.ndarray:
        asked.append(scale)
        return np.full(size, 2**62)

    monkeypatch.setattr(hdmm.noise.draws, "discrete_laplace", largest)
    release = measure(FAMILIES["marginals"], counts(SOLID), PureDP(1), ledger=None)
    assert all((y == 2**61).all() for y in release.measurements)
    lattice = Lattice.of(FAMILIES["marginals"], Noise.LAPLACE)
    assert set(asked) == {s * hdmm.strategy.lattice.resolution(s, Noise.LAPLACE) for s in lattice.scales(PureDP(1))}
    assert min(asked) >= 64


@pytest.mark.parametrize("name", ["product", "marginals", "signed", "merged, not neighbours", "direct"])
def test_units_multiply_the_noise(name: str) -> None:
    def scales(privacy: Privacy, unit: Unit | None) -> list[Fraction]:
        return list(measure(FAMILIES[name], counts(FAMILIES[name].domain), privacy, ledger=None, unit=unit).scales)

    one = scales(PureDP(1), None)
    assert scales(PureDP(1), Unit(3)) == [3 * s for s in one]
    assert scales(PureDP(1), Unit(3, "replace")) == [6 * s for s in one]
    square = scales(ZCDP(1), None)
    assert scales(ZCDP(1), Unit(3)) == [9 * s for s in square]
    assert scales(ZCDP(1), Unit(3, "replace")) == [(36 if name == "signed" else 18) * s for s in square]


def test_the_unit_is_what_the_data_keeps_of_a_person() -> None:
    import pandas as pd

    frame = pd.DataFrame({"who": [1, 1, 1, 2], "x": [0, 1, 2, 3], "y": [0, 1, 2, 0]})
    data = from_table(PLANE, frame, id="who", max_rows_per_id=2)
    assert measure(FAMILIES["product"], data, PureDP(1), ledger=None).unit == Unit(2, id="who")
    with pytest.raises(PrivacyError, match="keeps up to 2 rows"):
        measure(FAMILIES["product"], data, PureDP(1), ledger=None, unit=Unit(1))
    assert measure(FAMILIES["product"], data, PureDP(1), ledger=None, unit=Unit(5)).unit == Unit(5, id="who")


def test_two_releases_differ() -> None:
    """N7: no seed anywhere."""
    for privacy in (PureDP("0.01"), ZCDP("0.0001")):
        one, two = (measure(FAMILIES["product"], counts(PLANE), privacy, ledger=None) for _ in range(2))
        assert (one.measurements[0] != two.measurements[0]).mean() > 0.5
    assert "seed" not in "".join(inspect.signature(measure).parameters)


@every
def test_the_noise_lies_on_the_exact_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise of 0 a release answers exactly: every family asks for the right counts and lays them out right."""
    monkeypatch.setattr(hdmm.noise.draws, "discrete_laplace", lambda scale, size: np.zeros(size, np.int64))
    strategy = FAMILIES[name]
    x = np.random.default_rng(1).integers(0, 50, size=strategy.domain.shape)
    w = asks(strategy)
    answers = measure(strategy, from_array(strategy.domain, x), PureDP(1), ledger=None).answer(w)
    np.testing.assert_allclose(answers.values, w.matrix.matmat(x.reshape(-1, 1))[:, 0], rtol=1e-7, atol=1e-5)


def outcome(strategy: Strategy, data: Data) -> tuple[object, ...]:
    """All that a run shows beside the numbers: shapes, types, text, warnings, log."""
    log, out, err = io.StringIO(), io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            release = measure(strategy, data, PureDP(1), ledger=None)
    except HdmmError as wrong:
        return (type(wrong), str(wrong))
    finally:
        logging.getLogger().removeHandler(handler)
    shapes = [(y.shape, y.dtype) for y in release.measurements]
    return (shapes, release.scales, repr(release), log.getvalue(), out.getvalue(), err.getvalue())


@pytest.mark.parametrize("name", ["product", "marginals", "direct", "merged, not neighbours"])
def test_neighbours_look_alike(name: str) -> None:
    """I1, O3; SmartNoise #572, diffprivlib #107, Google #40: whatever is counted, nothing but numbers changes."""
    strategy = FAMILIES[name]
    shape = strategy.domain.shape
    tables = [
        np.zeros(shape, int),
        np.full(shape, 7),
        np.full(shape, 2**33),
        np.full(shape, 2**62),
        -np.ones(shape, int),
    ]
    tables += [np.eye(1, int(np.prod(shape)), k, dtype=int).reshape(shape) for k in range(3)]
    seen = [outcome(strategy, from_array(strategy.domain, x)) for x in tables]
    assert all(each == seen[0] for each in seen)


def test_rows_out_of_the_domain_change_nothing_but_counts() -> None:
    """I1, I2; OpenDP #2944: codes come from the declaration, so that a new category or a null is no event."""
    import pandas as pd

    domain = Domain({"sex": ["M", "F"], "age": 3})
    strategy = Strategy.identity(domain)
    frames = [
        pd.DataFrame({"sex": ["M", "F"], "age": [0, 2]}),
        pd.DataFrame({"sex": ["M", "F", "X", None, "=1"], "age": [0, 2, 99, None, float("nan")]}),
        pd.DataFrame({"sex": pd.Series([], dtype="string"), "age": pd.Series([], dtype=float)}),
        pd.DataFrame({"sex": ["M", "F", "F"], "age": ["0", "2", "1e400"]}),
    ]
    seen = [outcome(strategy, from_table(domain, frame)) for frame in frames]
    assert all(each == seen[0] for each in seen)


def test_no_count_passes_the_bound() -> None:
    """Google PR #405, #40: counts are clipped, as integers, and nothing wraps or raises."""
    x = np.array([2**63 - 1, 2**62, -(2**63), 0, 1, 2, 3, 4, 5, 6, 7, 8]).reshape(4, 3)
    release = measure(FAMILIES["identity"], from_array(PLANE, x, rows_bound=100), PureDP(50), ledger=None)
    found = release.answer(Workload.marginals(PLANE, k=2)).values
    np.testing.assert_allclose(found[:4], [100, 100, 0, 0], atol=3)


def test_a_table_of_more_rows_than_declared_is_no_event() -> None:
    """The bound is a promise of the operator; a table that breaks it gets noise, not an error."""
    x = np.full(PLANE.shape, 1000)
    release = measure(FAMILIES["product"], from_array(PLANE, x, rows_bound=1000), PureDP(1), ledger=None)
    found = release.answer(Workload.marginals(PLANE, k=0)).values
    assert found == pytest.approx(12_000, abs=100)


def test_no_float_on_the_private_path() -> None:
    """N1: up to the release, prepare.py and measure.py have integers and fractions; floats only in what is public."""
    tree = ast.parse("".join(Path(inspect.getfile(each)).read_text() for each in (prepare, measure)))
    assert not any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(tree))
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert not (names | attributes) & {"float", "float64", "float32", "random", "astype", "round", "rint"}
    assert not any(isinstance(n, ast.Div) for n in ast.walk(tree))


@every
def test_every_kind_of_privacy_and_bits_fit(name: str) -> None:
    strategy = FAMILIES[name]
    for privacy in (PureDP("0.1"), PureDP(20), ZCDP("0.5"), ApproxDP(1, "1e-9")):
        release = measure(strategy, counts(strategy.domain), privacy, ledger=None, workload=asks(strategy))
        spent = Lattice(release.strategy).loss(release.scales, privacy.noise, release.unit)
        assert spent == (privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho)
        assert np.isfinite(release.answer(asks(strategy)).values).all()


def test_a_total_may_be_listed_as_a_factor() -> None:
    strategy = Strategy(PLANE, (Block(1.0, ((0, Eye(4)), (1, Ones(1, 3)))),))
    release = measure(strategy, counts(PLANE), PureDP(1), ledger=None)
    assert release.answer(Workload.product(PLANE, x=Prefix())).values.shape == (4,)


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_from_a_workload_to_answers(noise: hdmm.privacy.guarantee.Noise, ledger: Ledger, tmp_path: Path) -> None:
    """The whole way, through a plan on disk and a release on disk."""
    w = Workload.product(SOLID, x=Prefix(), y=Identity()) + 2.0 * Workload.marginals(SOLID, k=2)
    privacy = PureDP(2) if noise == Noise.LAPLACE else ZCDP(2)
    plan = hdmm.load_plan(hdmm.optimize(w, noise=noise, restarts=2).save(tmp_path / "plan"))
    x = np.random.default_rng(0).integers(100, 200, size=SOLID.shape)
    release = plan.measure(from_array(SOLID, x), privacy, ledger=ledger, purpose="a test")
    answers = hdmm.load_release(release.save(tmp_path / "release")).answer(w)
    assert (np.abs(answers.values - w.matrix.matmat(x.reshape(-1, 1))[:, 0]) < 20 * answers.stddev).all()
    assert np.sqrt(np.mean(answers.stddev**2)) == pytest.approx(plan.rmse(privacy), rel=2e-3)
    assert ledger.spent == 2


def test_few_rows_of_many_attributes_leave_room_for_noise() -> None:
    """Eight bits on each of six attributes would ask for noise beyond 2⁵²."""
    domain = Domain({f"a{i}": 2 for i in range(6)})
    strategy = Strategy(domain, (Block(1.0, tuple((i, PIdentity([[0.3, 0.8]])) for i in range(6))),))
    data = from_array(domain, np.zeros(domain.shape, int), rows_bound=100)
    for privacy in (PureDP("0.001"), ZCDP("0.000001")):
        assert measure(strategy, data, privacy, ledger=None).privacy == privacy


@pytest.mark.parametrize(
    ("unit", "large"), [(PureDP(1), 2**52), (ZCDP(1), 2**103)], ids=[Noise.LAPLACE, Noise.GAUSSIAN]
)
def test_the_largest_noise_is_measured_and_no_larger(unit: PureDP | ZCDP, large: int) -> None:
    """A scale of 2⁵² and a variance of 2¹⁰² are the most that the samplers take, and a release may have them."""
    identity = FAMILIES["identity"]
    kind = type(unit)
    release = measure(identity, counts(PLANE), kind(Fraction(1, large)), ledger=None)
    assert release.scales == ((2**52,) if kind is PureDP else (2**102,))
    data = Watched(PLANE)
    with pytest.raises(NoiseError, match="of the noise must be from"):
        measure(identity, data, kind(Fraction(1, large + 1)), ledger=None)
    assert not data.events


def test_noise_far_below_one_row_is_measured_on_a_finer_lattice() -> None:
    """ε = 2⁴⁶ on one row: the scale is 2⁻⁴⁶, drawn as 64 on a lattice 2⁵² times as fine."""
    row = from_array(PLANE, np.eye(1, PLANE.size, dtype=np.int64).reshape(PLANE.shape), rows_bound=1)
    for privacy in (PureDP(2**46), ZCDP(2**91)):
        release = measure(FAMILIES["identity"], row, privacy, ledger=None)
        assert release.scales == (Fraction(1, 2**46) if isinstance(privacy, PureDP) else Fraction(1, 2**92),)
        np.testing.assert_allclose(release.measurements[0] / 2.0**52, np.eye(1, PLANE.size)[0], atol=2.0**-40)


@pytest.mark.parametrize(("shape", "in_chunks"), [((2**16, 2**15), False), ((2**20, 2**20), True)])
def test_exactly_as_many_measurements_as_the_limit(shape: tuple[int, int], in_chunks: bool) -> None:
    """I4: 2³¹ in memory and 2⁴⁰ in chunks are prepared, and not one more."""
    cells = Strategy.identity(Domain({"x": shape[0], "y": shape[1]}))
    words: dict[str, Any] = {"unit": Unit(), "rows_bound": 100} | ({"in_chunks": True} if in_chunks else {})
    assert prepare(cells, PureDP(1), **words).scales == (1,)
    with_total = replace(cells, blocks=(*cells.blocks, Block(1.0, ())))
    with pytest.raises(StrategyError, match=f"the limit is {shape[0] * shape[1]:,}"):
        prepare(with_total, PureDP(1), **words)


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("1/2")], ids=str)
def test_answers_fit_in_steps_of_the_lattice_exactly(privacy: Privacy) -> None:
    """S2: noise of scale 1 is drawn 64 times as fine, so answers to 2⁵⁴ become 2⁶⁰; a total beside cells counts too."""
    prepared = prepare(FAMILIES["identity"], privacy, unit=Unit(), rows_bound=2**54)
    assert prepared.scales == (1,)
    with pytest.raises(StrategyError, match="do not fit 64-bit integers with so little noise"):
        prepare(FAMILIES["identity"], privacy, unit=Unit(), rows_bound=2**54 + 1)


def test_as_many_measurements_as_16_gib_hold(ledger: Ledger) -> None:
    """I4: 2³¹ are not refused for their number (here the marginal they need is), and more are."""
    for size, error, message in ((2**15, DataError, "cells"), (3 * 2**14, StrategyError, "3.22e\\+09 measurements")):
        domain = Domain({"x": 2**16, "y": size})
        data = Watched(domain, rows_bound=100)
        with pytest.raises(error, match=message):
            measure(Strategy.identity(domain), data, PureDP(1), ledger=ledger)
        assert "read" not in data.events
    assert ledger.spent == 0
