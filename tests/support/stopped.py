"""A process that is killed at its n-th system call, wherever that is: in Python, in SQLite or in the C library."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

import pytest

_TRACEME, _CONT, _SYSCALL, _SETOPTIONS, _EXITKILL = 0, 7, 24, 0x4200, 0x100000
_ENDED = 77  # the exit code of a child that did its work to the end


def killed_at(call: int, work: Callable[[], None]) -> bool:
    """Do the work in a child that is killed at this stop before or after a system call; whether it came so far.

    Every call makes two stops: before the kernel does it, and after. A child that fails by itself fails the test.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if libc.ptrace(_TRACEME, 0, None, None) != 0:
                os._exit(2)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            code = _ENDED
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        pytest.skip("this system lets no process be traced")
    libc.ptrace(_SETOPTIONS, child, None, ctypes.c_void_p(_EXITKILL))
    for _ in range(call):
        passed = 0 if os.WSTOPSIG(status) in (signal.SIGTRAP, signal.SIGSTOP) else os.WSTOPSIG(status)
        libc.ptrace(_SYSCALL, child, None, ctypes.c_void_p(passed))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == _ENDED
            return False
        assert os.WIFSTOPPED(status)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True
