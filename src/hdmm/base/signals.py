"""Signals that would end a process wait while it finishes what was paid for.

Between a debit and the moment at which the measurements are on disk, nothing can be taken up again later: the budget
would be spent for nothing. So SIGINT (Ctrl-C), SIGTERM and SIGHUP are noted there, however often they come, and take
effect when that is done. Nothing holds off SIGKILL. (SIGQUIT, Ctrl-\\, does not wait either, but may leave a core dump,
which holds counts.)

Python handles signals in its main thread only, so elsewhere nothing is held off, nor needs to be: Ctrl-C does not
interrupt other threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, final

from hdmm.base.lazy import Lazy, loaded

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

_ENDING = (1, 2, 15)  # SIGHUP, which Windows has not, SIGINT and SIGTERM
_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


@final
class Finishing:
    """What came while a block was finished, and whether the budget is debited by now."""

    def __init__(self) -> None:
        self.noted: list[int] = []
        self.debited = False
        self._told = False

    def debit(self) -> None:
        """From here on the budget is debited; whoever has already asked to stop is warned."""
        self.debited = True
        self._tell()

    def note(self, number: int, _: FrameType | None) -> None:
        """Take note of a signal."""
        if number not in self.noted:
            self.noted.append(number)
        self._tell()

    def _tell(self) -> None:
        if not (self.debited and self.noted) or self._told:
            return
        self._told = True
        words = (
            "The budget has been debited; finishing what it has paid for before stopping. "
            f"(To stop at once and lose it, run kill -9 {os.getpid()}.)\n"
        )
        try:
            print(words, end="", file=sys.stderr, flush=True)
        except Exception:  # a terminal that is gone, or that was being written to when the signal came
            return


_ACTIVE: list[Finishing] = []  # of the main thread: the outermost block


@contextmanager
def finishing() -> Generator[Finishing]:
    """Signals that would end the process are held off until the outermost such block ends, and then take effect.

    >>> with finishing() as signals:
    ...     signals.noted
    []
    """
    if threading.current_thread() is not threading.main_thread():
        yield Finishing()
        return
    if _ACTIVE:
        yield _ACTIVE[0]
        return
    signals = Finishing()
    before = _handlers(lambda handler: handler is not signal.SIG_IGN)
    _ACTIVE.append(signals)
    for number in before:
        signal.signal(number, signals.note)
    if loaded("pyarrow"):
        pa.enable_signal_handlers(False)  # else Arrow stops reading CSV at a signal, whatever its handler does
    try:
        yield signals
    finally:
        if loaded("pyarrow"):
            pa.enable_signal_handlers(True)
        _ACTIVE.clear()
        for number, handler in reversed(before.items()):  # SIGINT last, so that Ctrl-C finds all others as they were
            signal.signal(number, handler)
        for number in sorted(signals.noted, reverse=True):  # and what ends the process before what raises
            _deliver(number, before[number])


@contextmanager
def ending_as_interrupt() -> Generator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the block, as Ctrl-C does, where they would end the process."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = _handlers(lambda handler: handler is signal.SIG_DFL)
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handlers(wanted: Callable[[_Handler], bool]) -> dict[int, _Handler]:
    """The handlers of the signals, where they are wanted and were set from Python, so that they can be set again."""
    found: dict[int, _Handler] = {each: signal.getsignal(each) for each in signal.valid_signals() if each in _ENDING}
    return {
        number: handler
        for number, handler in sorted(found.items(), key=lambda each: each[0] != signal.SIGINT)
        if handler is not None and wanted(handler)
    }


def _deliver(number: int, handler: _Handler) -> None:
    if callable(handler):
        handler(number, None)
    else:
        signal.raise_signal(number)
