"""Ctrl-C while the command line is being imported."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Importing is replaced by a Ctrl-C at that moment, and by a command line that reports that it was reached.
INTERRUPTED_WHILE_IMPORTING = """
import hdmm.__main__ as command, os, signal, types
def interrupted(name):
    os.kill(os.getpid(), signal.SIGINT)
    return types.SimpleNamespace(main=lambda: print("reached", signal.getsignal(signal.SIGINT)))
command.import_module = interrupted
command.main()
"""


@pytest.mark.parametrize(("ignored", "code", "printed"), [(False, -signal.SIGINT, ""), (True, 0, "reached 1\n")])
def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(ignored: bool, code: int, printed: str) -> None:
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING],
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.replace("Handlers.SIG_IGN", "1") == printed


def test_commands_are_interrupted_as_ever_once_they_run() -> None:
    script = "import hdmm.apps.cli, hdmm.__main__ as command, signal; hdmm.apps.cli.main = lambda: print("
    script += "signal.getsignal(signal.SIGINT) is signal.default_int_handler); command.main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
