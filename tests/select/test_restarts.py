"""Restarts on an executor: the plan of one process, whoever runs them, and a search that always ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import hdmm
from hdmm import AllRange, Domain, Plan, Prefix, StrategyError, Workload
from hdmm.base.cores import usable_cores
from hdmm.engines.workers import cluster_here
from hdmm.select import opt_hdmm, restarts
from hdmm.select.opt_hdmm import INTERRUPTED, Candidate
from hdmm.select.search import Job, Operator

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


def helped_by(monkeypatch: pytest.MonkeyPatch, pool: Executor) -> list[bool]:
    """Every search is long from now on, and helped by this pool; what is returned says how often one was asked for."""
    used = list[bool]()

    @contextmanager
    def instead(workers: int, executor: Executor | None = None, *, apart: bool = False) -> Generator[Executor]:
        used.extend([apart] if executor is None else [])
        yield executor or pool

    monkeypatch.setattr(restarts, "_LONG", 0.0)
    monkeypatch.setattr(restarts, "_pool", instead)
    monkeypatch.setattr(opt_hdmm, "usable_cores", lambda: 2)
    return used


@pytest.mark.parametrize("workload", [UNION, MARGINALS], ids=str)
def test_helpers_find_what_one_process_finds(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = found(planned(workload, workers=1))
    with ThreadPoolExecutor(2) as pool:
        used = helped_by(monkeypatch, pool)
        assert found(planned(workload)) == alone
        assert used == [True]


def test_a_search_goes_on_alone_if_its_helpers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(ThreadPoolExecutor):
        """The third and every later job finds that a process was ended."""

        jobs = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.jobs += fn is restarts._elsewhere  # pyright: ignore[reportPrivateUsage]
            if self.jobs < 3:
                return super().submit(fn, *args, **kwargs)
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor())
            return future

    alone = found(planned(UNION, workers=1))
    with Ending(2) as pool:
        assert helped_by(monkeypatch, pool) == []
        assert found(planned(UNION)) == alone
        assert pool.jobs >= 3


def test_helpers_are_for_long_searches_on_several_cores_whose_jobs_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(2) as pool:
        used = helped_by(monkeypatch, pool)
        mine = [Operator("mine", lambda problem, _: hdmm.Strategy.identity(problem.workload.domain), patience=9)]
        alone = planned(UNION, operators=mine)  # a function that another process could not find
        planned(UNION, executor=Late())
        planned(UNION, workers=1)
        for name, value in (("_LONG", 1e9), ("_most_in_memory", lambda: 1), ("_MOST_SENT", 100)):
            with monkeypatch.context() as patch:
                patch.setattr(restarts, name, value)
                planned(UNION)
        monkeypatch.setattr(opt_hdmm, "usable_cores", lambda: 1)
        planned(UNION)
        assert used == []
        assert alone.error == hdmm.optimize(UNION, restarts=1, operators=mine, progress=False).error


def test_what_only_the_callers_program_has_is_not_sent() -> None:
    job = Job(Operator("here", opt_hdmm.select), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    assert restarts._can_be_sent(job)  # pyright: ignore[reportPrivateUsage]
    theirs = type("Theirs", (), {"__module__": "__main__", "__qualname__": "Theirs"})
    sys.modules["__main__"].Theirs = theirs  # type: ignore[attr-defined]
    try:
        assert not restarts._can_be_sent(replace(job, problem=theirs()))  # pyright: ignore[reportPrivateUsage]
    finally:
        del sys.modules["__main__"].Theirs  # type: ignore[attr-defined]


def test_cores_are_those_that_threads_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"):
        monkeypatch.delenv(name, raising=False)
    most = usable_cores()
    assert most >= 1
    for name in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"):
        for limit, cores in (("1", 1), ("100000", most), ("0", most), ("", most), ("4,2", most)):
            with monkeypatch.context() as patch:
                patch.setenv(name, limit)
                assert usable_cores() == cores


UNGUARDED = """
import hdmm, sys
from hdmm import AllRange, Domain, Prefix, Workload
from hdmm.select import opt_hdmm, restarts
print("the program runs", flush=True)
restarts._LONG, opt_hdmm.usable_cores = 0.0, lambda: 2
plane = Domain({"x": 5, "y": 3})
both = Workload.product(plane, x=Prefix()) + Workload.product(plane, x=AllRange(), y=Prefix())
begun, jobs = restarts.BatchExecutor._begun, []
restarts.BatchExecutor._begun = lambda *given: (jobs.append(1), begun(*given))[1]
plan = hdmm.optimize(both, restarts=25, seed=7, time_limit=None, progress=False, workers=int(sys.argv[1]) or None)
print(len(jobs) > 0, plan.error.hex(), len(plan.candidates))
"""


@pytest.mark.slow
def test_a_program_without_a_guard_is_not_run_by_its_helpers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNGUARDED.replace("restarts=25", "restarts=200"))
    said = [
        subprocess.run(
            [sys.executable, "program.py", workers], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        for workers in ("0", "1")
    ]
    helped, alone = (each.stdout.splitlines() for each in said)
    assert [each.stderr for each in said] == ["", ""]
    assert len(helped) == len(alone) == 2
    assert helped[1].split()[1:] == alone[1].split()[1:]


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
