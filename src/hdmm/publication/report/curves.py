"""Curves: what is drawn of a table over all ranges, and of one whose long column rises in a few groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hdmm.answers.picture import Picture
from hdmm.describe.table_column import rise
from hdmm.publication.report.plots import Plot, Scale, line_or_points, plot

_MOST_GROUPS: Final = 4
_LEAST_STEPS: Final = 20  # of a curve


def plots_of(picture: Picture, level: str) -> list[Plot]:
    """The plots that suit a picture; none if there is nothing to draw. `level` in percent is for the captions."""
    if not len(picture):
        return []
    whole = not (picture.suppressed or picture.unknown)
    curves = (_ranges(picture, level) or _grouped(picture, level)) if whole else []
    return curves or [plot(picture, level)]


def _ranges(picture: Picture, level: str) -> list[Plot]:
    """The shortest ranges as a curve; without groups, also the ranges that begin with the first value."""
    name = picture.ranged
    if name is None:
        return []
    groups: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for k, (*group, first, _) in enumerate(picture.labels):
        groups.setdefault(tuple(group), {}).setdefault(first, []).append(k)
    shortest = {group: [rows[0] for rows in by.values()] for group, by in groups.items()}
    if len(groups) > _MOST_GROUPS or min(map(len, shortest.values())) < 2:
        return []
    scale = Scale.of(picture.at([k for rows in shortest.values() for k in rows]))
    words = [row[-1] for row in picture.joined.labels]
    found = [
        _curve(picture, rows, words, level, scale, ", ".join(filter(None, (_named(picture.heads, g), f"each {name}"))))
        for g, rows in shortest.items()
    ]
    if len(groups) == 1 and len(picture.columns) == 2:
        up = next(iter(groups[()].values()))
        found.append(_curve(picture, up, words, level, None, f"From the first {name} up to each"))
    return found


def _grouped(picture: Picture, level: str) -> list[Plot]:
    """One curve per group, on one scale, if a long column rises within a few groups."""
    if len(picture.columns) < 2:
        return []
    for column in reversed(range(len(picture.columns))):
        groups: dict[tuple[str, ...], list[int]] = {}
        for k, row in enumerate(picture.labels):
            groups.setdefault((*row[:column], *row[column + 1 :]), []).append(k)
        if not 1 < len(groups) <= _MOST_GROUPS:
            continue
        ends, words = picture.columns[column].ends(), [row[column] for row in picture.labels]
        if all(len(g) >= _LEAST_STEPS and rise([words[k] for k in g], ends) for g in groups.values()):
            scale = Scale.of(picture)
            heads = [head for k, head in enumerate(picture.heads) if k != column]
            return [_curve(picture, g, words, level, scale, _named(heads, name)) for name, g in groups.items()]
    return []


def _named(heads: Sequence[str], group: Sequence[str]) -> str:
    return ", ".join(f"{head}: {label}" for head, label in zip(heads, group, strict=False))


def _curve(
    picture: Picture, rows: Sequence[int], words: Sequence[str], level: str, scale: Scale | None, heading: str
) -> Plot:
    drawn = replace(picture.at(rows), labels=[(words[k],) for k in rows])
    return line_or_points(drawn, level, line=True, scale=scale, heading=heading[:1].upper() + heading[1:])
