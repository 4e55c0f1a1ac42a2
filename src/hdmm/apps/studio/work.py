"""Work in processes of their own: the search for a plan, and the release, which alone opens the data.

The server never holds data, and a process that is interrupted or killed leaves what the command line would: they call
the same functions.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from fractions import Fraction
from multiprocessing.connection import Connection
from typing import Any, Literal, final

from hdmm.apps.studio.spec_file import ChangedError, StudioFile
from hdmm.apps.studio.view import budget_number, record_of
from hdmm.base.exceptions import BudgetError, HdmmError, StrategyError
from hdmm.io.strict_json import Json
from hdmm.io.strict_records import StrictRecord
from hdmm.measure.plan import load_plan
from hdmm.privacy.guarantee import PureDP
from hdmm.publication.budget import check_payable
from hdmm.publication.planning import make_plan, suits
from hdmm.publication.preflight import ledger_of, preflight
from hdmm.publication.publish import publish_ready, resume
from hdmm.publication.published import open_published
from hdmm.publication.row_files import FOLDER as ROWS_FOLDER
from hdmm.publication.row_files import make_rows
from hdmm.publication.spec import Spec
from hdmm.select.opt_hdmm import Candidate

_SPAWN = multiprocessing.get_context("spawn")  # the server has threads, which a fork would lose


class ReleaseRequest(StrictRecord, frozen=True, kw_only=True):
    """What a user has confirmed: the file and the ledger as they were seen, and the amount as it was typed.

    It has a key of its own, so that it is done once.
    """

    key: str
    digest: str
    record: str
    amount: str
    replace: bool = False
    new_dataset: bool = False


@final
class ChildRun:
    """One process and what it last said. It ends with `done` or `failed`, also if it is killed."""

    def __init__(self, kind: Literal["plan", "release", "resume", "rows"], *arguments: object) -> None:
        self.kind = kind
        self.begun = time.monotonic()
        self.cancelled = False
        self._begun = threading.Event()
        self._said: dict[str, Json] = {"state": "running"}
        received, sent = _SPAWN.Pipe(duplex=False)
        # Python ends a daemon with the server: a search is not worth finishing then, but what is paid for is.
        self._process = _SPAWN.Process(
            target=_TARGETS[kind], args=(*arguments, sent), daemon=kind in ("plan", "rows"), name=f"hdmm-{kind}"
        )
        self._process.start()
        sent.close()
        threading.Thread(target=self._listen, args=(received,), daemon=True).start()

    @property
    def running(self) -> bool:
        return self._said["state"] == "running"

    def view(self) -> dict[str, Json]:
        """What the page shows of it."""
        seconds = time.monotonic() - self.begun
        return {"kind": self.kind, "seconds": round(seconds, 1), "cancelled": self.cancelled, **self._said}

    def cancel(self) -> None:
        """End a search; the best plan so far is kept, as by Ctrl-C. A release goes on, because it is paid for."""
        if self.kind == "plan" and self.running:
            self.cancelled = True
            self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt a search that has begun; one that has not is interrupted when it says so."""
        if self.running and self._begun.is_set() and self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    def _listen(self, received: Connection) -> None:
        said: dict[str, Json] = dict(self._said)
        with received, suppress(EOFError, OSError):
            while said["state"] == "running":
                said = json.loads(received.recv_bytes())
                self._said = said
                if not self._begun.is_set():
                    self._begun.set()
                    if self.cancelled:
                        self._interrupt()
        self._process.join()
        if said["state"] == "running":
            self._said = {"state": "failed", "message": _unheard(self.kind)}


def _unheard(kind: str) -> str:
    if kind == "plan":
        return "The search was ended from outside. Nothing was spent. Plan again."
    if kind == "rows":
        return "The process was ended from outside. Nothing was spent. Make the rows again."
    return (
        "The process was ended from outside. The budget below says whether it was debited, and the notices on this "
        "page say what is left to do."
    )


def search(file: StudioFile, digest: str, server: Connection) -> None:
    """Plan, and report every candidate; Ctrl-C or a cancelled run ends it with the best plan so far."""
    first = math.inf

    def listener(candidate: Candidate, best: Candidate) -> None:
        nonlocal first
        first = candidate.error if candidate.operator == "Identity" else first
        gain = math.sqrt(first / best.error) if 0 < best.error < math.inf else 1.0
        try:
            send(server, state="running", start=candidate.start + 1, gain=gain)
        except OSError:  # the server is gone
            raise KeyboardInterrupt from None

    with reporting(server, "Nothing was spent."):
        send(server, state="running", start=0, gain=1.0)
        with file.locked(digest) as found:
            spec = file.spec(found)
        made = make_plan(spec, progress=False, listener=listener)
        send(server, state="done", outcome=made.outcome, interrupted=made.interrupted, stopped=made.plan.stopped)


def spend(file: StudioFile, order: ReleaseRequest, server: Connection) -> None:
    """Release what was confirmed: everything that can be refused is refused, then the ledger is debited, and so on."""
    _finish_whatever_happens()
    with reporting(server, "Look at the budget: what was debited stays charged."), file.locked(order.digest) as found:
        spec = file.spec(found)
        _check_amount(spec, order)
        if not spec.plan.folder.exists() or not suits(plan := load_plan(spec.plan.folder), spec):
            raise StrategyError("The plan was made for other tables, margins or noise. Nothing was spent. Plan again.")
        ready = preflight(spec, force=order.replace)
        if record_of(ready.account) != order.record:
            raise ChangedError(
                "The ledger has another record than when you confirmed: somebody else has spent, or this release is "
                "done already. Nothing was spent now. Look at the budget before you release."
            )
        check_payable(spec, ready.account)
        done = publish_ready(ready, plan, new_dataset=order.new_dataset)
        send(server, state="done", folder=str(done.folder), tables=len(done.tables))


def publish_kept(file: StudioFile, digest: str, replace: bool, server: Connection) -> None:
    """Publish a release that is paid for and kept, as `hdmm release --resume` does. Spends nothing."""
    _finish_whatever_happens()
    with reporting(server, "Nothing was spent."), file.locked(digest) as found:
        done = resume(file.spec(found), force=replace)
        send(server, state="done", folder=str(done.folder), tables=len(done.tables))


def write_synthetic_rows(file: StudioFile, digest: str, server: Connection) -> None:
    """Make synthetic rows from what was published, as `hdmm rows` does, in place of earlier ones. Spends nothing."""
    with reporting(server, "Nothing was spent."), file.locked(digest) as found:
        spec = file.spec(found)
        folder = spec.output.folder
        made = make_rows(open_published(folder), folder / ROWS_FOLDER, ledger_of(spec), force=True)
        send(server, state="done", folder=str(folder / ROWS_FOLDER), rows=len(made))


def _finish_whatever_happens() -> None:
    """Ctrl-C in the terminal, or closing it, ends the server; a release that has begun goes on to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _check_amount(spec: Spec, order: ReleaseRequest) -> None:
    """Refuse unless the amount that was typed is the one in the file."""
    asked: Fraction = budget_number(spec.privacy)
    try:
        typed = PureDP(order.amount.strip()).epsilon
    except HdmmError:
        typed = None
    if typed != asked:
        raise BudgetError("The amount that was typed is not the one this release spends. Nothing was spent.")


@contextmanager
def reporting(server: Connection, rest: str) -> Generator[None]:
    """Report errors in our words; of an unexpected one only its type: its message could hold data (security O3).

    If the server is gone, nobody hears them, and nothing is printed either.
    """
    try:
        yield
        return
    except HdmmError as wrong:
        message = str(wrong)
    except KeyboardInterrupt:
        message = f"Stopped before there was a plan. {rest}"
    except Exception as wrong:
        message = f"Something unexpected went wrong ({type(wrong).__name__}). {rest}"
    with suppress(OSError):
        send(server, state="failed", message=message)


def send(server: Connection, **words: Any) -> None:
    """One message to the server, as JSON."""
    server.send_bytes(json.dumps(words, allow_nan=False).encode())


_TARGETS = {"plan": search, "release": spend, "resume": publish_kept, "rows": write_synthetic_rows}
