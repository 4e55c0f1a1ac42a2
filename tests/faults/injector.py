"""Injector: the n-th call that changes the disk is where this process is killed or interrupted, or where it fails."""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hdmm.apps.cli import run
from hdmm.io import folder as folder_module

Action = Literal["SIGKILL", "SIGINT", "SIGTERM", "ENOSPC", "EIO"]

_CALLS = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir", "posix_fallocate")
_STATEMENTS = ("BEGIN IMMEDIATE", "INSERT", "COMMIT", "CREATE", "ROLLBACK")


class Injector:
    """Counts the calls; at the `at`-th, counted from 1, it acts. With `at=0` it only counts."""

    def __init__(self, at: int, action: Action, journal: Path) -> None:
        self.at, self.action, self.count = at, action, 0
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def install(self) -> None:
        """Wrap what changes the disk, in this process, for good."""
        for name in _CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        folder_module.swapped = self._counted("exchange", folder_module.swapped)
        opened, opens = os.open, builtins.open
        injector = self

        def low(path: Any, flags: int, *args: Any, **more: Any) -> int:
            if flags & os.O_CREAT:
                injector.hit("create", path)
            return opened(path, flags, *args, **more)

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                injector.hit("write", self.name)
                return super().write(data)

        def high(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if "b" not in mode or not set("wxa+") & set(mode):
                return opens(file, mode, *args, **more)
            if not isinstance(file, int):
                injector.hit("create", file)
            return io.BufferedWriter(Raw(file, mode.replace("b", "")))

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> Any:
                if sql.startswith(_STATEMENTS):
                    injector.hit(sql.split(maxsplit=1)[0], "the ledger", full=_no_room)
                return super().execute(sql, *args)

        os.open, builtins.open, io.open = low, high, high  # type: ignore[assignment]
        sqlite3.connect = functools.partial(sqlite3.connect, factory=Connection)  # type: ignore[assignment]

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            self.hit(name, args[0] if args else "")
            return call(*args, **more)

        return counted

    def hit(self, name: str, what: object, full: Callable[[int], Exception] | None = None) -> None:
        """Count a call, and act if it is the one."""
        self.count += 1
        os.write(self.journal, f"{self.count} {name} {what}\n".encode())
        if self.count != self.at:
            return
        if self.action.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.action))
            return
        number = getattr(errno, self.action)
        raise OSError(number, os.strerror(number)) if full is None else full(number)


def _no_room(number: int) -> Exception:
    error = sqlite3.OperationalError("database or disk is full" if number == errno.ENOSPC else "disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL if number == errno.ENOSPC else sqlite3.SQLITE_IOERR
    return error


@dataclass(frozen=True)
class Begun:
    """A command in a process of its own: a fork of this one, which has hdmm loaded."""

    child: int
    said: Path
    journal: Path

    def ended(self) -> tuple[int, str, list[str]]:
        """Its exit code, what it said, and the calls that it made. A code below 0 is the signal that ended it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        calls = self.journal.read_text().splitlines() if self.journal.exists() else []
        return code, self.said.read_text() if self.said.exists() else "", calls


def begin(
    folder: Path, arguments: list[str], *, at: int = 0, action: Action = "SIGKILL", swaps: bool = True, name: str = ""
) -> Begun:
    """Run a command in a folder, with a fault at a call; processes at the same time have different names."""
    said, journal = (folder.with_name(f"{folder.name}{name}.{kind}") for kind in ("said", "calls"))
    for path in (said, journal):
        path.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stdout = sys.stderr = open(said, "w", buffering=1)  # noqa: SIM115 - for the rest of this process
            if not swaps:
                folder_module.swapped = lambda *_: False
            Injector(at, action, journal).install()
            code = run(arguments)
        finally:
            os._exit(code)
    return Begun(child, said, journal)


def command_in(folder: Path, arguments: list[str], **more: Any) -> tuple[int, str, list[str]]:
    """The same, when it has ended."""
    return begin(folder, arguments, **more).ended()
