"""Hypothesis has no deadline, because on a busy machine a slow example is not a fault; and Ctrl-C reaches the tests."""

from __future__ import annotations

import signal

from hypothesis import settings

from tests.support.effort import examples

settings.register_profile("hdmm", examples(100), deadline=None)
settings.load_profile("hdmm")


def pytest_configure() -> None:
    """Heed Ctrl-C even if the tests are a background job of a shell, which ignores it: tests send it to themselves."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
