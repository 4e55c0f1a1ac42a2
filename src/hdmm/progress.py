"""The progress of a selection, shown in a terminal."""

from __future__ import annotations

import math
from typing import final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from hdmm.strategy.restart import Candidate
from hdmm.strategy.select import Listener


@final
class Reporter:
    """Shows progress in a terminal and prints nothing elsewhere; the caller's listener is called in both cases."""

    def __init__(self, *, shown: bool, time_limit: float | None, listener: Listener | None) -> None:
        self.listener = listener
        self.first = math.inf
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column()),  # wrapped below 80 columns
            TimeElapsedColumn(),
            TextColumn("" if time_limit is None else f"of {time_limit:g} s"),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self.task = self.progress.add_task("selecting a strategy")

    def __enter__(self) -> Reporter:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, candidate: Candidate, best: Candidate) -> None:
        if candidate.operator == "Identity":
            self.first = candidate.error
        gain = math.sqrt(self.first / best.error) if best.error > 0 else math.inf
        self.progress.update(
            self.task,
            description=f"Start {candidate.start + 1}: {gain:.4g} × better than noise per cell; Ctrl-C: stop",
        )
        if self.listener is not None:
            self.listener(candidate, best)
