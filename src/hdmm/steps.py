"""The progress of long work in steps, shown in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def shown_steps(what: str, most: int, *, long: bool) -> Generator[Callable[[], None]]:
    """A function to call at every step; work that is not `long` is not shown.

    >>> with shown_steps("Counting", 3, long=False) as step:
    ...     step()
    """
    shown = long and sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=most)
        yield lambda: progress.advance(task)
