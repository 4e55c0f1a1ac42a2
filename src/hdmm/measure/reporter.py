"""The progress of a selection, shown in a terminal or a notebook."""

from __future__ import annotations

import math
import sys
from typing import final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from hdmm.base.steps import NotebookLine, in_notebook
from hdmm.select.opt_hdmm import Listener
from hdmm.select.search import Candidate


@final
class Reporter:
    """Shows progress in a terminal or a notebook, if it is to be shown; the caller's listener is called in any case.

    By default it is shown where someone watches: nothing is printed in a script whose output goes to a file.
    """

    def __init__(self, *, shown: bool | None, time_limit: float | None, listener: Listener | None) -> None:
        self.listener = listener
        self.first = math.inf
        notebook = in_notebook()
        shown = (notebook or sys.stderr.isatty()) if shown is None else shown
        self.line = NotebookLine("Selecting a strategy") if notebook and shown else None
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column()),  # wrapped below 80 columns
            TimeElapsedColumn(),
            TextColumn("" if time_limit is None else f"of {time_limit:g} s"),
            console=Console(stderr=True),
            transient=True,
            disable=notebook or not shown,
        )
        self.task = self.progress.add_task("selecting a strategy")

    def __enter__(self) -> Reporter:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.line is not None:
            self.line.close()

    def __call__(self, candidate: Candidate, best: Candidate) -> None:
        if candidate.operator == "Identity":
            self.first = candidate.error
        gain = math.sqrt(self.first / best.error) if best.error > 0 else math.inf
        told = f"Start {candidate.start + 1}: {gain:.4g} × better than noise per cell"
        self.progress.update(self.task, description=f"{told}; Ctrl-C: stop")
        if self.line is not None:
            self.line.write(f"{told}; interrupt the kernel to take the best so far")
        if self.listener is not None:
            self.listener(candidate, best)
