"""Hypothesis and searches have no deadline, because to be slow is not a fault on a busy machine; and Ctrl-C works."""

from __future__ import annotations

import signal

from hypothesis import settings

from hdmm import optimize
from tests.support.effort import examples

settings.register_profile("hdmm", examples(100), deadline=None)
settings.load_profile("hdmm")


def pytest_configure() -> None:
    """Heed Ctrl-C even if the tests are a background job of a shell, which ignores it: tests send it to themselves.

    A search ends when it is done, and finds the same on any machine, unless a test gives it a time limit.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    optimize.__kwdefaults__["time_limit"] = None
