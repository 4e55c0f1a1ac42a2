"""The progress of long work: where it is shown, and work in steps."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.progress import Progress

from hdmm.base.lazy import Lazy, loaded

if TYPE_CHECKING:
    import IPython
    from ipykernel import zmqshell
    from IPython import display as ipython_display
else:
    IPython, ipython_display, zmqshell = Lazy("IPython"), Lazy("IPython.display"), Lazy("ipykernel.zmqshell")


@contextmanager
def shown_steps(what: str, most: int, *, long: bool) -> Generator[Callable[[], None]]:
    """A function to call at every step; work that is not `long` is not shown.

    >>> with shown_steps("Counting", 3, long=False) as step:
    ...     step()
    """
    if long and in_notebook():
        yield from _in_notebook(what, most)
        return
    shown = long and sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=most)
        yield lambda: progress.advance(task)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows what is displayed below the cell that runs.

    >>> in_notebook()
    False
    """
    return loaded("ipykernel.zmqshell") and isinstance(IPython.get_ipython(), zmqshell.ZMQInteractiveShell)


@final
class NotebookLine:
    """A line below a cell of a notebook, which is written again and again, and empty in the end.

    Rich needs ipywidgets for that; a display with an identity does not.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._id = uuid.uuid4().hex
        ipython_display.display({"text/plain": text}, raw=True, display_id=self._id)

    def write(self, text: str) -> None:
        """Show this text in place of the last one."""
        if text != self.text:
            self.text = text
            ipython_display.update_display({"text/plain": text}, raw=True, display_id=self._id)

    def close(self) -> None:
        """Leave nothing."""
        self.write("")


def _in_notebook(what: str, most: int) -> Generator[Callable[[], None]]:
    line, done = NotebookLine(what), 0

    def step() -> None:
        nonlocal done
        done += 1
        line.write(f"{what}: {100 * done // max(most, 1)} %")

    try:
        yield step
    finally:
        line.close()
