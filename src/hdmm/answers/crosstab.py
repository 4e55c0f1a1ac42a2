"""CrossTab: which column of a table goes across, and which labels go down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from hdmm.describe.entries import ALL

RowLabels: TypeAlias = Sequence[tuple[str, ...]]

MOST_ACROSS: Final = 12
MOST_DOWN: Final = 200


@final
@dataclass(frozen=True, slots=True)
class CrossTab:
    """The rows of a table as lines of cells: every label in `down` meets every label in `heads`.

    `across` is the place of the column whose labels are the heads. A table of one column has one head, without a label.

    >>> labels = [("F", "old"), ("F", "young"), ("F", "(all)"), ("M", "old"), ("M", "young"), ("M", "(all)")]
    >>> crossed(labels)
    CrossTab(across=1, down=(('F',), ('M',)), heads=('old', 'young'))
    """

    across: int | None
    down: tuple[tuple[str, ...], ...]
    heads: tuple[str, ...]

    def row(self, down: tuple[str, ...], head: str) -> tuple[str, ...]:
        """The labels of the row in a line and under a head; (all) stands for a total."""
        return down if self.across is None else (*down[: self.across], head, *down[self.across :])

    @property
    def everything(self) -> tuple[str, ...]:
        """What goes down in the line of totals."""
        return (ALL,) * len(self.down[0])


def crossed(labels: RowLabels) -> CrossTab | None:
    """The cross-tab of a table with these labels; None if its rows, totals left out, do not cross completely.

    The column with the fewest labels goes across, the last of several.
    """
    parts = [row for row in labels if ALL not in row]
    if not parts or not parts[0] or len(set(labels)) < len(labels):
        return None
    if len(parts[0]) == 1:
        return CrossTab(None, tuple(parts), ("",))
    found = [list(dict.fromkeys(each)) for each in zip(*parts, strict=True)]
    across = min(reversed(range(len(found))), key=lambda k: len(found[k]))
    down = tuple(dict.fromkeys((*row[:across], *row[across + 1 :]) for row in parts))
    if len(down) * len(found[across]) != len(parts):
        return None
    return CrossTab(across, down, tuple(found[across]))


def fits(tab: CrossTab) -> bool:
    """Whether a cross-tab has a place on a page."""
    return len(tab.heads) <= MOST_ACROSS and len(tab.down) <= MOST_DOWN
