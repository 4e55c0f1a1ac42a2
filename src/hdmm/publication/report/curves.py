"""Curves: what is drawn of a table over all ranges, and of one whose long column rises in a few groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hdmm.answers.crosstab import RowLabels
from hdmm.answers.table import Table
from hdmm.describe.entries import ALL
from hdmm.publication.report.plots import Plot, Scale, is_rising, line_or_points, plot, rows_of

_MOST_GROUPS: Final = 4
_LEAST_STEPS: Final = 20  # of a curve


def pictures_of(table: Table, labels: RowLabels, level: str) -> list[Plot]:
    """The plots that suit a table; none if there is nothing to draw. `level` in percent is for the captions."""
    curves = _ranges(table, labels, level) or _grouped(table, labels, level)
    if curves:
        return curves
    single = plot(table, labels, level)
    return [] if single is None else [single]


def is_ranges(table: Table) -> bool:
    """Whether the last two columns are the ends of ranges."""
    names = table.attributes[-2:]
    return len(names) == 2 and names[0].endswith("_from") and names[1] == f"{names[0][:-5]}_to"


def _ranges(table: Table, labels: RowLabels, level: str) -> list[Plot]:
    """The shortest ranges as a curve; without groups, also the ranges that begin with the first value."""
    if not is_ranges(table) or not _is_drawable(table):
        return []
    name = table.heads[-2].removesuffix("_from").removesuffix(" from")
    groups: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for k, (*group, first, _) in enumerate(labels):
        groups.setdefault(tuple(group), {}).setdefault(first, []).append(k)
    shortest = {group: [rows[0] for rows in by.values()] for group, by in groups.items()}
    if len(groups) > _MOST_GROUPS or min(map(len, shortest.values())) < 2:
        return []
    scale = Scale.of(rows_of(table, [k for rows in shortest.values() for k in rows]))
    words = [row[-2] if row[-2] == row[-1] else f"{row[-2]} – {row[-1]}" for row in labels]
    found = [
        _curve(table, rows, words, level, scale, ", ".join(filter(None, (_named(table.heads, group), f"each {name}"))))
        for group, rows in shortest.items()
    ]
    if len(groups) == 1 and not labels[0][:-2]:
        whole = next(iter(groups[()].values()))
        found.append(_curve(table, whole, words, level, None, f"From the first {name} up to each"))
    return found


def _grouped(table: Table, labels: RowLabels, level: str) -> list[Plot]:
    """One curve per group, on one scale, if a long column rises within a few groups."""
    if len(table.attributes) < 2 or not _is_drawable(table):
        return []
    parts = [k for k, row in enumerate(labels) if ALL not in row]
    for column in reversed(range(len(table.attributes))):
        groups: dict[tuple[str, ...], list[int]] = {}
        for k in parts:
            groups.setdefault((*labels[k][:column], *labels[k][column + 1 :]), []).append(k)
        if not 1 < len(groups) <= _MOST_GROUPS:
            continue
        if all(len(g) >= _LEAST_STEPS and is_rising([labels[k][column] for k in g]) for g in groups.values()):
            scale = Scale.of(rows_of(table, parts))
            words = [row[column] for row in labels]
            heads = [head for k, head in enumerate(table.heads) if k != column]
            return [_curve(table, g, words, level, scale, _named(heads, name)) for name, g in groups.items()]
    return []


def _named(heads: Sequence[str], group: Sequence[str]) -> str:
    return ", ".join(f"{head}: {label}" for head, label in zip(heads, group, strict=False))


def _curve(
    table: Table, rows: Sequence[int], words: Sequence[str], level: str, scale: Scale | None, heading: str
) -> Plot:
    shown = [(words[k],) for k in rows]
    heading = heading[:1].upper() + heading[1:]
    return line_or_points(rows_of(table, rows), shown, level, line=True, scale=scale, heading=heading)


def _is_drawable(table: Table) -> bool:
    return len(table) > 0 and not bool(np.any(table.suppressed | table.unknown))
