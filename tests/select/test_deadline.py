"""A time limit is kept to a tenth, by a clock that counts evaluations; and Ctrl-C keeps the best so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import AllRange, Domain, Prefix, StrategyError, Workload
from hdmm.privacy.guarantee import Noise
from hdmm.select import gaussian_optimum as gaussian
from hdmm.select import marginal_weights
from hdmm.select import opt_x as product
from hdmm.select.goal import Goal
from hdmm.select.loss import BasesLoss
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import INTERRUPTED, Candidate
from hdmm.select.pairs import PairsLoss
from hdmm.select.problem import Problem
from hdmm.select.restarts import held_interrupts
from hdmm.select.search import Search
from hdmm.select.theta import DenseTheta, WindowedTheta
from hdmm.select.tree import Tree

LIMIT = 100
PLANE = Domain({"x": 12, "y": 10})
CUBE = Domain({"a": 4, "b": 5, "c": 6})
CROSS = Workload.product(PLANE, x=Prefix()) + Workload.product(PLANE, y=AllRange())
WORKLOADS = {
    "one attribute": Workload.product(Domain({"x": 100}), x=Prefix()),
    "union": CROSS + Workload.product(PLANE, x=Prefix(), y=Prefix()),
    "marginals": Workload.marginals(CUBE, k=range(3)),
}


class Clock:
    """A clock on which every evaluation of a loss takes a second, and nothing else takes any time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.now += 1
            return function(*arguments, **more)

        return counted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    for owner, name in (
        (marginal_weights, "slopes"),
        (product, "product_loss"),
        (gaussian, "_primal"),
        (BasesLoss, "at"),
        (PairsLoss, "at"),
        (DenseTheta, "loss"),
        (WindowedTheta, "loss"),
        (Tree, "loss"),
    ):
        monkeypatch.setattr(owner, name, clock.counting(getattr(owner, name)))
    return clock


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("objective", ["total", "worst"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_time_limit_is_kept_to_a_tenth(clock: Clock, name: str, objective: str, noise: str) -> None:
    plan = hdmm.optimize(WORKLOADS[name], objective=objective, noise=noise, time_limit=LIMIT, progress=False)
    assert clock.now <= 1.1 * LIMIT, [(c.operator, c.seconds) for c in plan.candidates]
    assert hdmm.supports(WORKLOADS[name], plan.strategy)


@pytest.mark.parametrize("restart", [1, 2])
@pytest.mark.parametrize("objective", ["total", "worst"])
def test_later_restarts_of_a_union_keep_their_deadline(clock: Clock, objective: str, restart: int) -> None:
    """The second one has many groups, whose weights are a descent of their own within each step."""
    problem = Problem.of(Goal.of(WORKLOADS["marginals"], objective), Noise.LAPLACE)
    (union,) = (operator for operator in operators_for(problem) if operator.name == "OPT_+")
    taken: list[float] = []
    for limit in (4, 20):
        begun = clock.now
        with suppress(StrategyError):  # no time was left for more than one product
            union.run(problem, Search(np.random.default_rng(0), restart, deadline=begun + limit))
        taken.append(clock.now - begun - limit)
    assert max(taken) <= 8  # evaluations after the deadline: what was found is finished


def test_a_step_that_would_not_end_in_time_is_not_begun(clock: Clock) -> None:
    """An eigenproblem over 3,000 values takes half a minute, and nothing interrupts it: a tree takes its place."""
    w = Workload.product(Domain({"x": 3000}), x=Prefix())
    plan = hdmm.optimize(w, noise="gaussian", time_limit=2, restarts=1, progress=False)
    assert clock.now <= 4
    assert hdmm.supports(w, plan.strategy)


def interrupting(after: int) -> Callable[[Candidate, Candidate], None]:
    heard: list[Candidate] = []

    def listen(candidate: Candidate, _: Candidate) -> None:
        heard.append(candidate)
        if len(heard) > after:
            raise KeyboardInterrupt

    return listen


def test_ctrl_c_keeps_the_best_plan_so_far() -> None:
    plan = hdmm.optimize(CROSS, restarts=5, keep_interrupted=True, listener=interrupting(2), progress=False)
    assert plan.stopped == INTERRUPTED
    assert len(plan.candidates) == 3
    assert plan.error == min(candidate.error for candidate in plan.candidates)
    assert "interrupted by the user" in plan.explain()


def test_ctrl_c_interrupts_a_script_so_that_it_does_not_go_on_to_spend() -> None:
    with pytest.raises(KeyboardInterrupt):
        hdmm.optimize(CROSS, restarts=5, listener=interrupting(2), progress=False)
    with pytest.raises(KeyboardInterrupt):  # before there is anything to keep
        hdmm.optimize(CROSS, restarts=5, keep_interrupted=True, listener=interrupting(0), progress=False)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another signal there")
def test_ctrl_c_waits_until_it_is_asked_for_and_a_second_one_does_not() -> None:
    """Raised in the middle of what a future does, KeyboardInterrupt left its lock taken, and the search hung."""
    said: list[bool] = []

    def press(times: int) -> None:
        with held_interrupts() as interrupted:
            said.append(interrupted())
            for _ in range(times):
                press_ctrl_c()
            said.append(interrupted())

    press(0)
    with pytest.raises(KeyboardInterrupt):  # at the end of the block, where nobody has raised it
        press(1)
    with pytest.raises(KeyboardInterrupt):  # at once
        press(2)
    assert said == [False, False, False, True, False]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another signal there")
def test_ctrl_c_ends_the_wait_for_an_executor() -> None:
    release = threading.Event()

    class Stuck(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
            press_ctrl_c()
            return super().submit(release.wait, 60)

    with Stuck(1) as executor:
        try:
            plan = hdmm.optimize(CROSS, restarts=1, executor=executor, keep_interrupted=True, progress=False)
        finally:
            release.set()
    assert plan.stopped == INTERRUPTED
    assert [candidate.operator for candidate in plan.candidates] == ["Identity"]


SEARCHING = """
import hdmm
from hdmm import AllRange, Domain, Prefix, Workload

if __name__ == "__main__":
    domain = Domain({"x": 300, "y": 200})
    w = Workload.product(domain, x=Prefix(), y=AllRange()) + Workload.product(domain, x=AllRange(), y=Prefix())
    heard = lambda candidate, best: print("heard", flush=True)
    plan = hdmm.optimize(
        w, restarts=1000, workers=2, time_limit=600, keep_interrupted=True, listener=heard, progress=False
    )
    print(plan.stopped, plan.error == min(candidate.error for candidate in plan.candidates))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another signal there")
@pytest.mark.parametrize("everyone", [True, False], ids=["as a terminal sends it", "to the parent alone"])
def test_ctrl_c_with_workers_keeps_the_best_plan_so_far(everyone: bool, tmp_path: Path) -> None:
    script = tmp_path / "searching.py"
    script.write_text(SEARCHING)
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["heard\n"] * 2  # Identity, and the result of a worker
        (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
        printed, wrong = process.communicate(timeout=120)
    assert process.returncode == 0, wrong
    assert printed.endswith(f"{INTERRUPTED} True\n")
    assert not wrong
