"""Loans: what all tasks of a step share, in the memory of each worker, for as long as their driver renews it.

A worker may outlive the driver of a release: if that is killed, nobody takes its key back. So a loan to another process
is a lease. It ends by itself unless the driver renews it, and then the key is overwritten. A worker whose loan has
ended while its driver was merely slow says that the key is not here, and is lent it again.

Only this copy of the key can be overwritten. The messages in which it came were in the memory of Dask and of the
operating system, and stay there until that memory is used again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, final

from hdmm.noise import KeyNotHereError, ReleaseKey, SealedKey

_LENT: dict[str, Loan] = {}  # to this process
_UNTIL: dict[str, float] = {}  # when leases end, by the clock that is never set
_LOCK = threading.RLock()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """What the tasks of one step share: their work, and the key of the release."""

    work: Any = field(repr=False)
    sealed: SealedKey | ReleaseKey | None = field(repr=False)

    @property
    def key(self) -> ReleaseKey:
        """The key; KeyNotHereError if none was lent."""
        if self.sealed is None:
            raise KeyNotHereError("No key was lent.")
        return self.sealed.opened() if isinstance(self.sealed, SealedKey) else self.sealed

    def overwrite(self) -> None:
        """Overwrite a key that came from another process; where it was made, its release does that."""
        if isinstance(self.sealed, ReleaseKey):
            self.sealed.forget()


def lent(name: str) -> Loan:
    """What was lent to this process; KeyNotHereError if nothing was."""
    found = _LENT.get(name)
    if found is None:
        raise KeyNotHereError("The key of the release is not here. Lend it again.")
    return found


def take(name: str, loan: Loan, seconds: float | None = None) -> None:
    """Keep what is lent in this process, for so many seconds unless that is renewed. What is here already stays."""
    with _LOCK:
        held = _LENT.setdefault(name, loan)
        if held is not loan:
            loan.overwrite()  # a task may be using the one that is here
        if seconds is not None:
            watched = name in _UNTIL
            _UNTIL[name] = time.monotonic() + seconds
            if not watched:
                threading.Thread(target=_watch, args=(name,), daemon=True).start()


def renew(name: str, seconds: float) -> None:
    """Keep what is lent for so many seconds from now on, if it is still here."""
    with _LOCK:
        if name in _UNTIL:
            _UNTIL[name] = time.monotonic() + seconds


def give_back(name: str) -> None:
    """Forget what was lent, and overwrite its key."""
    with _LOCK:
        loan = _LENT.pop(name, None)
        _UNTIL.pop(name, None)
    if loan is not None:
        loan.overwrite()


def _watch(name: str) -> None:
    """Give back what is lent when its lease ends."""
    while True:
        with _LOCK:
            left = _UNTIL.get(name, 0.0) - time.monotonic()
            if left <= 0:
                give_back(name)
                return
        time.sleep(left)
