"""A job in a process of its own, under a limit of time and one of memory, reported as what happened."""

from __future__ import annotations

import importlib
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, get_args

from hdmm import HdmmError, NotApplicableError
from hdmm.base.exceptions import MatrixError

Status = Literal[
    "done", "not applicable", "too large", "timed out", "out of memory", "no data", "refused", "failed", "skipped"
]
STATUSES: tuple[Status, ...] = get_args(Status)
_PRELOAD = ["benchmarks.paper.jobs"]


class NoDataError(Exception):
    """A file that a job needs is not there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, and bytes of address space."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to: its figures where it is done, else a note that says why not."""

    status: Status
    figures: dict[str, Any]
    seconds: float
    note: str = ""


def limited(job: str, arguments: Mapping[str, Any], limits: Limits) -> Outcome:
    """The outcome of the function `job` ("module:name"), which returns a dict of figures."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, job, dict(arguments), limits.memory))
    begun = time.monotonic()
    process.start()
    sender.close()
    try:
        if not receiver.poll(limits.seconds):
            return Outcome("timed out", {}, time.monotonic() - begun, f"stopped after {limits.seconds:g} s")
        status, figures, note = receiver.recv()
    except EOFError:  # killed from outside, or by a library that does not check its memory
        process.join()
        return Outcome("out of memory", {}, time.monotonic() - begun, f"died with exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()
    return Outcome(status, figures, time.monotonic() - begun, note)


def _child(sender: Connection, job: str, arguments: dict[str, Any], memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sender.send(_attempt(_named(job), arguments))
    sender.close()


def _attempt(job: Callable[..., dict[str, Any]], arguments: dict[str, Any]) -> tuple[Status, dict[str, Any], str]:
    try:
        return "done", job(**arguments), ""
    except NotApplicableError as why:
        return "not applicable", {}, str(why)
    except MatrixError as why:
        return "too large", {}, str(why)
    except MemoryError as why:
        return "out of memory", {}, str(why)
    except NoDataError as why:
        return "no data", {}, str(why)
    except HdmmError as why:
        return "refused", {}, str(why)
    except Exception as why:  # a cell that fails is a result of its own; the others go on
        return "failed", {}, f"{type(why).__name__}: {why}"


def _named(job: str) -> Callable[..., dict[str, Any]]:
    module, _, name = job.partition(":")
    return getattr(importlib.import_module(module), name)
