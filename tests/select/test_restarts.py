"""Restarts on an executor: the plan of one process, whoever runs them, and a search that always ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any, cast

import pytest

import hdmm
from hdmm import AllRange, Domain, Plan, Prefix, StrategyError, Workload
from hdmm.engines.workers import cluster_here
from hdmm.select import restarts
from hdmm.select.opt_hdmm import INTERRUPTED, Candidate

PLANE = Domain({"x": 5, "y": 3})
UNION = Workload.product(PLANE, x=Prefix()) + Workload.product(PLANE, x=AllRange(), y=Prefix())
MARGINALS = Workload.marginals(Domain({"a": 2, "b": 3}), k=range(3))
RESTARTS = 3


def planned(workload: Workload, **options: Any) -> Plan:
    return hdmm.optimize(workload, restarts=RESTARTS, seed=7, time_limit=None, progress=False, **options)


def found(plan: Plan) -> object:
    """All that was tried, with exact errors, and the strategy itself."""
    blocks = [(block.weight, [(on, hdmm.matrix.to_dense(A).tolist()) for on, A in block.factors])
              for block in plan.strategy.blocks]  # fmt: skip
    return [(c.operator, c.start, c.error, c.note) for c in plan.candidates], plan.stopped, plan.operator, blocks


class Late(Executor):
    """An executor that runs the last of what was submitted first, in one thread, and only when it is waited for."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = _Awaited(self)
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_all(self) -> None:
        while self.jobs:
            future, run = self.jobs.pop()
            if future.set_running_or_notify_cancel():
                future.set_result(run())


class _Awaited(Future[Any]):
    def __init__(self, executor: Late) -> None:
        super().__init__()
        self.executor = executor

    def result(self, timeout: float | None = None) -> Any:
        self.executor.run_all()
        return super().result(timeout)


@pytest.mark.parametrize(
    ("workload", "noise"), [(UNION, "laplace"), (MARGINALS, "laplace"), (MARGINALS, "gaussian")], ids=str
)
def test_an_executor_finds_what_one_process_finds(workload: Workload, noise: str) -> None:
    """Whatever the order in which restarts run; those that were given too little are run again."""
    alone = planned(workload, noise=noise)
    with ThreadPoolExecutor(3) as threads:
        assert found(planned(workload, noise=noise, executor=threads)) == found(alone)
        assert threads.submit(int).result() == 0  # it stays open
    assert found(planned(workload, noise=noise, executor=Late())) == found(alone)


@pytest.mark.slow
def test_processes_of_an_executor_find_what_one_process_finds() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert found(planned(UNION, executor=pool)) == found(planned(UNION))


@pytest.mark.slow
def test_a_client_of_dask_finds_what_one_process_finds() -> None:
    distributed = pytest.importorskip("distributed")
    cluster = cluster_here(n_workers=2, threads_per_worker=1, processes=False)
    with cluster, distributed.Client(cluster) as client:
        assert found(planned(UNION, executor=client.get_executor())) == found(planned(UNION))


class Stuck(Executor):
    """An executor whose workers never answer."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


def test_a_time_limit_holds_although_no_worker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def never(self: Future[Any], timeout: float) -> Any:
        waited.append(timeout)
        raise TimeoutError

    begun = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: begun + sum(waited), time=time.time)  # on which only waiting takes time
    monkeypatch.setattr(Future, "result", never)
    monkeypatch.setattr(restarts, "time", clock)
    plan = hdmm.optimize(UNION, time_limit=30, executor=Stuck(), progress=False)
    assert plan.stopped == "the time limit was reached"
    assert plan.operator == "Identity"
    assert 20 < sum(waited) <= 30 * 1.1 + 1


def test_the_deadline_is_told_by_the_clock_of_the_day() -> None:
    """time.monotonic() counts from a machine's start: on another machine it says something else."""
    seen: list[float] = []

    class Elsewhere(Late):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            seen.append(args[1])
            return super().submit(fn, *args, **kwargs)

    hdmm.optimize(UNION, restarts=1, time_limit=1000, executor=Elsewhere(), progress=False)
    assert all(0 < until - time.time() <= 1000 for until in seen)


def test_ctrl_c_keeps_the_best_and_drops_what_waits() -> None:
    started = threading.Event()
    heard: list[Candidate] = []

    def listen(candidate: Candidate, _: Candidate) -> None:
        heard.append(candidate)
        if len(heard) == 3:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        plan = planned(UNION, executor=pool, keep_interrupted=True, listener=listen)
        pool.submit(started.set)
        assert started.wait(60)  # what was begun early has ended or was cancelled: the pool is free
    assert plan.stopped == INTERRUPTED
    assert len(plan.candidates) == 3


def test_a_failing_executor_is_a_clear_error() -> None:
    class Broken(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(ConnectionError("no scheduler"))
            return future

    with pytest.raises(StrategyError, match=r"failed on the executor \(ConnectionError\)\. Check"):
        planned(UNION, executor=Broken())
    with pytest.raises(StrategyError, match="The executor is a str"):
        hdmm.optimize(UNION, executor=cast(Executor, "tcp://nowhere"))
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(StrategyError, match="failed on the executor"):
        planned(UNION, executor=pool)
