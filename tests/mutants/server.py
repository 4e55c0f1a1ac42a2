"""A process that has imported what the tests import from others; each run of tests is a fork of it.

To start Python and to import pytest, NumPy and SciPy takes longer than most tests. The tested project and its tests are
imported after the fork, so that every run sees the files as they are then. Each line of the standard input asks for a
run (tests/mutants/trial.py), and each line of the output says how it ended.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from time import process_time
from types import FrameType
from typing import Any

import pytest

_IMPORTED = (
    *("numpy", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.special", "scipy.stats"),
    *("hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy", "gmpy2", "mpmath", "msgspec", "sqlglot"),
    *("duckdb", "pyarrow.csv", "pyarrow.dataset", "pyarrow.parquet", "sqlite3", "threadpoolctl", "tomllib"),
    *("click", "jinja2", "rich.console", "rich.progress", "rich.table", "multiprocessing.queues"),
    *("concurrent.futures.process", "cryptography.hazmat.primitives.ciphers.aead", "doctest", "pdb"),
)
_MOST_MEMORY = 8 << 30  # bytes: a mutant that never stops growing ends here
# Hypothesis takes its examples from a fixed seed, so that a mutant it finds today it finds tomorrow.
_OPTIONS = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0")
_TIMES = 10  # a test may take as many times as long as without a mutant


class Run:
    """A plugin of pytest that chooses and orders the tests, ends those that never end, and records what they reach."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.only: list[str] | None = request["only"]  # in this order
        self.patience: float = request["patience"]
        self.limits: dict[str, float] = request["seconds"]
        self.files = set[str](request["record"])  # lines of these files are recorded
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[str, list[int]]] = {}
        self._reached: dict[str, set[int]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.only is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[name] for name in self.only if name in found]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        limit(self.patience + _TIMES * self.limits.get(item.nodeid, 0.0))
        self._reached = {name: set() for name in self.files}
        if self.files:
            sys.settrace(self._call)
            threading.settrace(self._call)
        start = process_time()
        try:
            return (yield)
        finally:
            if self.files:
                sys.settrace(None)
            self.seconds[item.nodeid] = process_time() - start
            self.lines[item.nodeid] = {name: sorted(lines) for name, lines in self._reached.items() if lines}

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename in self._reached:
            return self._line(frame, event, argument)
        return None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self._reached[frame.f_code.co_filename].add(frame.f_lineno)
        return self._line


def limit(seconds: float) -> None:
    """End this process after so many more seconds of the processor, or six times as many that it waits or works."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, resource.RLIM_INFINITY))
    faulthandler.dump_traceback_later(6 * seconds, exit=True)


def tests(request: dict[str, Any]) -> int:
    """pytest's exit status; what was recorded is written before."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    limit(request["patience"])
    from hypothesis import Phase, settings

    # A failing example is as good as the smallest one.
    settings.register_profile(
        "mutants", phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False, database=None
    )
    settings.load_profile("mutants")
    if request["record"]:
        os.environ["HDMM_EXAMPLES"] = "few"
    run = Run(request)
    status = int(pytest.main([*_OPTIONS, *request["tests"]], plugins=[run]))
    with open(request["result"], "w") as file:
        json.dump({"seconds": run.seconds, "lines": run.lines}, file)
    return status


def serve() -> None:
    for name in _IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()  # pytest collects garbage three times in each run
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for what tests start
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 3  # pytest's own: something unexpected
            try:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                with open(request["output"], "wb") as output, open(os.devnull) as nothing:
                    os.dup2(nothing.fileno(), 0)
                    os.dup2(output.fileno(), 1)
                    os.dup2(output.fileno(), 2)
                status = tests(request)
                sys.stdout.flush()
            finally:
                os._exit(status)
        try:
            _, status, used = os.wait4(child, 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what it started may outlive it
        answer = {"status": os.waitstatus_to_exitcode(status), "seconds": used.ru_utime + used.ru_stime}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        serve()
    os._exit(0)  # extensions have much to say about what they leave behind
