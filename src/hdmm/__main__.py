"""The command hdmm, also as python -m hdmm: Ctrl-C while its modules are imported ends it without a traceback."""

from __future__ import annotations

import signal
from importlib import import_module


def main() -> None:
    """Run the command line and exit."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not if a parent ignores Ctrl-C
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    command_line = import_module("hdmm.apps.cli")
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line.main()


if __name__ == "__main__":
    main()
