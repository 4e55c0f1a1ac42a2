"""Long work on arrays, distributed over the cores of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def run_parallel(job: Callable[[T], None], items: Sequence[T]) -> None:
    """Run the job for every item, in threads: NumPy releases the interpreter lock in its long loops.

    BLAS is limited to one thread meanwhile, because on thin factors its threads mostly wait for each other (3 times
    slower at 256³). OMP_THREAD_LIMIT limits these threads, too: workers of an engine have one each.

    >>> done = list[int]()
    >>> run_parallel(done.append, [1])
    >>> done
    [1]
    """
    if len(items) < 2:
        for item in items:
            job(item)
        return
    threads = min(len(items), _limited(os.cpu_count() or 1, "OMP_THREAD_LIMIT"))
    with _libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(job, items):
            pass


def usable_cores() -> int:
    """The cores that other processes of ours may use: none besides this one where threads are limited to one."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _limited(_limited(found, "OMP_NUM_THREADS"), "OMP_THREAD_LIMIT")


def _limited(cores: int, variable: str) -> int:
    limit = os.environ.get(variable, "")
    return min(cores, int(limit)) if limit.isdecimal() and int(limit) else cores


@cache
def _libraries() -> ThreadpoolController:
    """The libraries with threads of their own; found once, because that reads the list of all that is loaded (9 ms)."""
    return ThreadpoolController()
