"""The engine that works on arrays of one namespace: NumPy's here, and CuPy's where there is a GPU."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdmm import (
    ZCDP,
    Domain,
    EngineError,
    Ledger,
    Prefix,
    PureDP,
    Strategy,
    StrategyError,
    Unit,
    Workload,
    from_array,
    load_spec,
    optimize,
)
from hdmm.apps.cli import run
from hdmm.engines import Device, device, gpu
from hdmm.matrix import (
    Cumulative,
    Dense,
    Eye,
    Matrix,
    Ones,
    PIdentity,
    diagonal,
    gram,
    gram_inverse,
    trace_product,
)
from hdmm.matrix.integers import rounded
from hdmm.measure.measure import measure
from hdmm.noise import DeviceNoise
from hdmm.select import opt_0 as p_identity
from hdmm.select.minimize import minimize_projected
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search, first_search
from hdmm.select.theta import DenseTheta, WindowedTheta, Windows
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import resolution
from hdmm.strategy.slabs import exact_answers
from tests.noise.exact import edges, laplace_below, p_value
from tests.support.devices import namespaces, on_host
from tests.support.spec_cases import planned, prepared

RNG = np.random.default_rng(5)
FACTORS: list[Matrix] = [
    Dense(RNG.integers(-200, 200, (5, 4))),
    Eye(3),
    Ones(1, 6),
    Cumulative(7),
    rounded(PIdentity(RNG.random((2, 17))), 8)[0],
]
SHAPE = [A.shape[1] for A in FACTORS]


@pytest.mark.parametrize("xp", namespaces())
@pytest.mark.parametrize("most", [10, 2**30, 2**62])
def test_answers_are_the_exact_answers_even_beyond_64_bits(xp: Any, most: int) -> None:
    x = RNG.integers(-most, most, SHAPE)
    assert np.array_equal(on_host(Device(xp).answers(FACTORS, x)), exact_answers(FACTORS, x))
    assert np.array_equal(on_host(Device(xp).answers([], np.array([3]))), [3])


def test_a_kernel_that_does_not_compile_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is drawn before the debit."""

    def fails(*_: object) -> None:
        raise EngineError("The kernel does not compile.")

    domain, ledger = Domain({"a": 4}), Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    monkeypatch.setattr(DeviceNoise, "draw", fails)
    with pytest.raises(EngineError, match="not compile"):
        measure(Strategy.identity(domain), from_array(domain, [1] * 4), PureDP(1), ledger=ledger, engine=Device(np))
    assert ledger.spent == 0


@pytest.mark.parametrize("xp", namespaces())
def test_numbers_copied_to_the_engine_and_back_are_the_same(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_PIECE", 1000)
    x = RNG.integers(-(2**62), 2**62, (7, 3000))
    there = Device(xp).from_host(x)
    assert np.array_equal(Device(xp).to_host(there), x.ravel())
    there[:] = 0
    assert x.any()


@pytest.mark.parametrize("xp", namespaces())
def test_the_loss_is_that_of_windows(xp: Any) -> None:
    windows, V = Windows.of(200, (4, 16, 64)), gram(Cumulative(200))
    family, d = WindowedTheta.of(windows), diagonal(V).astype(np.float64)
    packed = np.zeros(family.free.shape)
    packed[family.free] = x = RNG.random(int(family.free.sum()))
    free = np.flatnonzero(windows.unpacked(family.free.astype(np.float64)))
    dense = DenseTheta.within(windows.unpacked(packed), free, xp)
    value, slope = dense.loss(dense.start, V, xp.asarray(d))
    expected, by_window = family.loss(x, V, d)
    packed[family.free] = by_window
    assert value == pytest.approx(expected, rel=1e-11)
    np.testing.assert_allclose(on_host(slope), windows.unpacked(packed).flat[free], rtol=1e-8, atol=1e-8 * value)


@pytest.mark.parametrize("xp", namespaces())
def test_opt_0_is_as_good_as_on_the_processor(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p_identity, "_ON_DEVICE", 600)
    V = gram(Cumulative(640))
    losses = [
        trace_product(gram_inverse(A), V) for A in (opt_0(V, replace(first_search(), xp=xp)), opt_0(V, first_search()))
    ]
    assert losses[0] < 1.002 * losses[1]


@pytest.mark.parametrize("xp", namespaces())
def test_a_search_takes_the_engine_to_opt_0(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def recording(namespace: Any, *arguments: Any, **named: Any) -> Any:
        taken.append(namespace)
        return minimize_projected(namespace, *arguments, **named)

    monkeypatch.setattr(p_identity, "_ON_DEVICE", 600)
    monkeypatch.setattr(p_identity, "minimize_projected", recording)
    workload = Workload.product(Domain({"a": 640}), a=Prefix())
    here = optimize(workload, restarts=1, time_limit=None)
    assert not taken
    there = optimize(workload, restarts=1, time_limit=None, engine=Device(xp))
    assert taken
    assert all(namespace is xp for namespace in taken)
    assert there.error < 1.002 * here.error


def test_a_search_refuses_engines_that_it_cannot_use() -> None:
    workload = Workload.product(Domain({"a": 4}), a=Prefix())
    with pytest.raises(StrategyError, match=r"The engine is a str\."):
        optimize(workload, engine="gpu")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StrategyError, match="runs in one process"):
        optimize(workload, engine=Device(np), workers=2)
    with ThreadPoolExecutor(1) as executor, pytest.raises(StrategyError, match="runs in one process"):
        optimize(workload, engine=Device(np), executor=executor)


def test_the_projected_descent_ends_at_its_deadline_and_at_a_callback_that_stops_it() -> None:
    def loss(x: Any) -> tuple[float, Any]:
        return float(((x - 3) ** 4).sum()) + 1, 4 * (x - 3) ** 3

    def stop(step: int, value: float) -> None:
        raise StopIteration

    late, told = Search(np.random.default_rng(0), deadline=0.0), Search(np.random.default_rng(0), progress=stop)
    found = minimize_projected(np, loss, np.zeros(4), late, upper=10.0, tolerance=1e-9)
    assert (found.iterations, found.converged) == (0, False)
    assert minimize_projected(np, loss, np.zeros(4), told, upper=10.0, tolerance=1e-9).iterations == 1
    least = minimize_projected(np, loss, np.zeros(4), first_search(), upper=2.0, tolerance=1e-9)
    assert least.x.tolist() == [2.0] * 4


DOMAIN = Domain({"a": 40, "b": 50})
STRATEGY = Strategy(DOMAIN, (Block(0.5, [(0, Eye(40)), (1, Eye(50))]), Block(0.5, [(1, Cumulative(50))])))
COUNTS = RNG.integers(0, 9, DOMAIN.shape)


@pytest.mark.parametrize("xp", namespaces())
@pytest.mark.parametrize("privacy", [PureDP("1e6"), ZCDP("1e11")], ids=str)
def test_a_release_of_an_engine_holds_the_answers_of_the_data(xp: Any, privacy: Any) -> None:
    """With next to no noise; the noise is exact at any scale."""
    data = from_array(DOMAIN, COUNTS, rows_bound=2**20)
    release = measure(STRATEGY, data, privacy, ledger=None, engine=Device(xp))
    pairs = zip(release.measurements, release.scales, strict=True)
    cells, sums = (y / resolution(scale, privacy.noise) for y, scale in pairs)
    np.testing.assert_allclose(cells, COUNTS.ravel(), atol=0.02)
    np.testing.assert_allclose(sums, COUNTS.sum(axis=0).cumsum(), atol=0.02)


@pytest.mark.parametrize("xp", namespaces())
def test_a_release_of_an_engine_has_noise_of_its_scale(xp: Any) -> None:
    domain = Domain({"a": 200, "b": 300})
    strategy = Strategy(domain, (Block(1.0, [(0, Eye(200)), (1, Eye(300))]),))
    data = from_array(domain, COUNTS[:1].repeat(1200).reshape(200, 300))
    (y,) = measure(strategy, data, PureDP("0.01"), ledger=None, engine=Device(xp)).measurements
    noise = y - COUNTS[:1].repeat(1200)
    parts = edges(laplace_below(Fraction(100)), 100.0)
    assert p_value(noise, laplace_below(Fraction(100)), parts) > 1e-9
    assert p_value(noise, laplace_below(Fraction(95)), parts) < 1e-9


@pytest.mark.parametrize("privacy", [PureDP(1000), ZCDP(100_000)], ids=str)
def test_noise_is_drawn_for_answers_that_are_multiplied(privacy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By r where the scale is small: a scale of Laplace noise by r as well, and a variance of Gaussian noise by r²."""
    draw, drawn = DeviceNoise.draw, []
    monkeypatch.setattr(DeviceNoise, "draw", lambda self, *given: drawn.append(given) or draw(self, *given))
    release = measure(STRATEGY, from_array(DOMAIN, COUNTS), privacy, ledger=None, engine=Device(np))
    noise = privacy.noise
    multiples = [resolution(scale, noise) for scale in release.scales]
    expected = {(noise, scale * r**noise.order) for scale, r in zip(release.scales, multiples, strict=True)}
    assert max(multiples) > 2
    assert {given[:2] for given in drawn[1:]} == expected  # the first is a trial


def test_what_does_not_fit_the_engine_is_refused_before_the_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.db", dataset="people", cap=PureDP(1))
    monkeypatch.setattr(Device, "_memory", lambda self: 1000.0)
    with pytest.raises(EngineError, match="GB are free"):
        measure(STRATEGY, from_array(DOMAIN, COUNTS), PureDP(1), ledger=ledger, unit=Unit(), engine=Device(np))
    monkeypatch.setattr(device, "_LARGEST_FACTOR", 100)
    with pytest.raises(EngineError, match=r"shape \(40, 40\)"):
        measure(STRATEGY, from_array(DOMAIN, COUNTS), PureDP(1), ledger=ledger, unit=Unit(), engine=Device(np))
    assert ledger.spent == 0


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EngineError, match=r"Install hdmm\[gpu\]"):
        gpu()


def test_without_a_gpu_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        CUDARuntimeError = OSError

        @staticmethod
        def getDeviceCount() -> int:
            raise OSError("no driver")

    class Cupy:
        class cuda:  # noqa: N801
            runtime = Runtime

    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    with pytest.raises(EngineError, match="no GPU"):
        gpu()


def test_a_plan_without_a_gpu_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert run(["plan", "people.toml", "--engine", "gpu"]) == 1
    assert "Install hdmm[gpu]" in capsys.readouterr().err
    assert not load_spec("people.toml").plan.folder.exists()


def test_the_command_measures_by_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    spec = load_spec("people.toml")
    planned(spec).save(spec.plan.folder)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert run(["release", "people.toml", "--yes", "--engine", "gpu"]) == 1
    assert "Install hdmm[gpu]" in capsys.readouterr().err
    used = list[int]()

    class Counted:
        xp = np

        def __init__(self) -> None:
            self.device = Device(np)

        def __getattr__(self, name: str) -> Any:
            used.append(1)
            return getattr(self.device, name)

    monkeypatch.setattr("hdmm.apps.cli.release_command.gpu", Counted)
    assert run(["release", "people.toml", "--yes", "--engine", "gpu"]) == 0
    assert used
    assert load_spec("people.toml").output.folder.exists()
