"""What is drawn of a table: dots with whiskers, curves with their bands, points in order, a heat map.

This file computes the places of the marks; templates/figures.html draws them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

import numpy as np

from hdmm.answers.picture import Picture
from hdmm.base.numbers import figure, many, percent
from hdmm.describe.table_column import rise
from hdmm.matrix import Array
from hdmm.publication.report.labels import PITCH, grouped, gutter, heads, row_label, wrapped

LEVELS: Final = 7
MOST_DOTS: Final = 60
MOST_POINTS: Final = 600
_MOST_GROUPS = 4  # curves beside each other
_LEAST_STEPS = 20  # of each of them
_MOST_ROWS, _MOST_COLUMNS = 64, 160  # of a heat map
_FEW = 4  # a short heat map with a side shorter than this would hide the margins and gain nothing
_HEIGHT = 240  # of plots whose rows go across
AXIS = 72  # pixels that the numbers of a vertical axis take
_TOP = 8  # pixels above the first row
_WITH_BINS = " Thin lines are the interval with bins; they go to the edge where it is unbounded."
_THINNEST = 1e-200  # a narrower scale is not drawn, because its steps would be subnormal numbers

Stroke: TypeAlias = tuple[str, str]
"""The class of a mark, and its path."""


@final
@dataclass(frozen=True, slots=True)
class Plot:
    """A picture, in words and numbers: `marks` are the arguments of the macro that draws this kind.

    `key` has (class of a swatch, meaning).
    """

    kind: Literal["dots", "long", "heat", "blocks", "base"]
    title: str
    description: str
    height: float
    marks: Mapping[str, object]
    caption: str
    key: tuple[tuple[str, str], ...] = ()
    gutter: int = 0  # pixels to the left, for labels
    heading: str = ""


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers to percentages of an axis."""

    low: float
    high: float

    @classmethod
    def of(cls, picture: Picture) -> Scale:
        """The scale that holds all intervals that have ends, and 0."""
        ends = np.concatenate([picture.lower, picture.upper, *picture.widest])
        ends = ends[np.isfinite(ends)]
        low, high = float(ends.min(initial=0)), float(ends.max(initial=0))
        return cls(low, high if high - low > _THINNEST else low + 1)

    def at(self, value: float) -> float:
        """Where a number lies, 0 to 100; one beyond the scale at its end."""
        value = min(max(value, self.low), self.high)
        # Halved first: the difference of two large floats may be infinite.
        return round(100 * (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2), 2)

    def up(self, values: Array) -> list[float]:
        """Where numbers lie on a vertical axis, with 1000 at the bottom."""
        return [round(1000 - 10 * self.at(value), 1) for value in values.tolist()]

    def ticks(self) -> list[float]:
        """Two to seven round numbers on the axis.

        >>> Scale(-12.0, 41.0).ticks()
        [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0]
        """
        width = self.high / 2 - self.low / 2
        power = 10.0 ** math.floor(math.log10(width))
        step = next(m for m in (0.25, 0.5, 1.0, 2.0, 5.0) if width / (m * power) <= 3) * power
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [k * step for k in range(first, last + 1)]

    def marked(self) -> list[tuple[float, str, bool]]:
        """(place, number written as short as possible, whether it is 0) of each tick."""
        return [(self.at(value), f"{value:,.10g}".replace("-", "−"), value == 0) for value in self.ticks()]


def plots_of(picture: Picture) -> list[Plot]:
    """The plots that suit a picture; none if there is nothing to draw."""
    if not len(picture):
        return []
    whole = not (picture.suppressed or picture.unknown)
    curves = (_ranges(picture) or _grouped(picture)) if whole else []
    return curves or [_plot(picture)]


def _ranges(picture: Picture) -> list[Plot]:
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
        _curve(picture, rows, words, scale, ", ".join(filter(None, (_named(picture.heads, g), f"each {name}"))))
        for g, rows in shortest.items()
    ]
    if len(groups) == 1 and len(picture.columns) == 2:
        up = next(iter(groups[()].values()))
        found.append(_curve(picture, up, words, None, f"From the first {name} up to each"))
    return found


def _grouped(picture: Picture) -> list[Plot]:
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
            return [_curve(picture, g, words, scale, _named(heads, name)) for name, g in groups.items()]
    return []


def _named(heads: Sequence[str], group: Sequence[str]) -> str:
    return ", ".join(f"{head}: {label}" for head, label in zip(heads, group, strict=False))


def _curve(picture: Picture, rows: Sequence[int], words: Sequence[str], scale: Scale | None, heading: str) -> Plot:
    drawn = replace(picture.at(rows), labels=[(words[k],) for k in rows])
    return _line_or_points(drawn, line=True, scale=scale, heading=heading[:1].upper() + heading[1:])


def _plot(picture: Picture) -> Plot:
    """The plot that suits the picture."""
    drawn = _suited(picture)
    left = ["Totals are not drawn."] * bool(picture.totals)
    left += ["Suppressed counts are not drawn."] * bool(picture.suppressed)
    left += ["Rows without an estimate are not drawn."] * bool(picture.unknown)
    return replace(drawn, caption=" ".join([drawn.caption, *left]))


def _suited(picture: Picture) -> Plot:
    crossing = _crossing(picture)
    if crossing is not None:
        return _heat_map(picture, *crossing)
    if len(picture) <= MOST_DOTS:
        return _dots(picture)
    ordered = len(picture.columns) == 1 and rise([row[0] for row in picture.labels], picture.columns[0].ends())
    return _line_or_points(picture, line=ordered)


def _dots(picture: Picture) -> Plot:
    words, level = [wrapped(label) for label in grouped(picture.labels)], percent(picture.level)
    lines = max(map(len, words))
    pitch = PITCH * lines + 8 if lines > 1 else 22 if len(picture) <= 24 else 15
    scale = Scale.of(picture)
    numbers = (picture.estimate, picture.lower, picture.upper, *picture.widest)
    places = [map(scale.at, each.tolist()) for each in numbers]
    return Plot(
        "dots",
        f"{picture.title}: estimates with {level} intervals",
        _summary(picture),
        pitch * len(picture) + 2 * _TOP + 24,
        {
            "labels": words,
            "pitch": pitch,
            "top": _TOP,
            "rows": list(zip(*places, picture.may_be_zero.tolist(), strict=True)),
            "bins": picture.bins is not None,
            "ticks": scale.marked(),
        },
        f"The dot is the estimate, hollow where it may be 0; the line through it is the {level} interval."
        + _WITH_BINS * (picture.bins is not None),
        gutter=gutter(words),
    )


def _line_or_points(picture: Picture, *, line: bool, scale: Scale | None = None, heading: str = "") -> Plot:
    """A plot with rows across and counts upward: a line if the rows are in order, else points."""
    step, level = math.ceil(len(picture) / MOST_POINTS), percent(picture.level)
    shown = slice(None, None, step)
    scale = scale or Scale.of(picture)
    middle, low, high = (scale.up(each[shown]) for each in (picture.estimate, picture.lower, picture.upper))
    if line:
        paths = _band(middle, low, high)
        caption = f"The line is the estimate, the band its {level} interval."
    else:
        paths = _points(middle, low, high)
        caption = f"The dot is the estimate, the line through it the {level} interval; rows in the order of the table."
    if picture.bins is not None:
        paths = [_outer(*(scale.up(each[shown]) for each in picture.bins), line=line), *paths]
        caption += _WITH_BINS
    if step > 1:
        caption += f" One in {step} of {len(picture):,} rows is drawn, {len(middle):,} in all."
    ends = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    return Plot(
        "long",
        ", ".join(filter(None, [f"{picture.title}: estimates with {level} intervals", heading, "in order"])),
        _summary(picture),
        _HEIGHT + _TOP + 28,
        {
            "height": _HEIGHT,
            "top": _TOP,
            "ticks": scale.marked(),
            "ends": [
                (f"{100 * part:g}", side, row_label(picture.labels[shown][round(part * (len(middle) - 1))]))
                for part, side in ends
            ],
            "paths": paths,
        },
        caption,
        gutter=AXIS,
        heading=heading,
    )


def _band(middle: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[Stroke]:
    up, back = line_through(high), "L".join(reversed(line_through(low)[1:].split("L")))
    return [("band", f"{up}L{back}z"), ("estimate", line_through(middle))]


def line_through(heights: Sequence[float]) -> str:
    """The path of a line through these heights, from left to right.

    >>> line_through([0.0, 250.0, 1000.0])
    'M0.0 0L500.0 250L1000.0 1000'
    """
    x = _across(len(heights), line=True)
    return f"M{'L'.join(f'{a} {b:g}' for a, b in zip(x, heights, strict=True))}"


def _points(middle: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[Stroke]:
    x = _across(len(middle), line=False)
    # A dot is a line of length 0 with round ends: unlike a circle, it stays round when the picture is stretched.
    return [
        ("thin whisker", _whiskers(low, high)),
        ("mark", "".join(f"M{a} {b:g}h0" for a, b in zip(x, middle, strict=True))),
    ]


def _outer(low: Sequence[float], high: Sequence[float], *, line: bool) -> Stroke:
    """The intervals with bins: a line along either end, or a thin whisker for each."""
    return "outer", line_through(low) + line_through(high) if line else _whiskers(low, high)


def _whiskers(low: Sequence[float], high: Sequence[float]) -> str:
    x = _across(len(low), line=False)
    return "".join(f"M{a} {b:g}V{c:g}" for a, b, c in zip(x, low, high, strict=True))


def _across(count: int, *, line: bool) -> list[str]:
    """Where rows stand from left to right: of a line from edge to edge, else in the middle of as many parts."""
    places = np.linspace(0, 1000, count) if line else np.linspace(0, 1000, 2 * count + 1)[1::2]
    return [f"{each:.1f}" for each in places.tolist()]


def _heat_map(picture: Picture, down: Sequence[str], across: Sequence[str], flipped: bool) -> Plot:
    shape = (len(across), len(down)) if flipped else (len(down), len(across))
    values, faint = (array.reshape(shape) for array in (picture.estimate, picture.may_be_zero))
    names = picture.heads
    if flipped:
        values, faint, names = values.T, faint.T, names[::-1]
    bounds = level_bounds(values)
    slashes = "".join(f"M{c} {r + 1}L{c + 1} {r}" for r, c in np.argwhere(faint).tolist())
    words = [wrapped(label) for label in down]
    lines = max(map(len, words))
    pitch = PITCH * lines + 4 if lines > 1 else 20 if len(down) <= 24 else 10
    heading = heads(across)
    edges = [figure(bound) for bound in bounds.tolist()]
    meanings = [f"below {edges[0]}", *(f"{a} to {b}" for a, b in pairwise(edges)), f"{edges[-1]} up"]
    key = [(f"q{k}", word) for k, word in enumerate(meanings)]
    if faint.any():
        key.append(("slash", "may be 0: the interval includes it"))
    return Plot(
        "heat",
        f"{picture.title}: heat map of {names[0]} by {names[1]}",
        f"Rows are {names[0]}, columns {names[1]}; darker cells in light mode, lighter ones in dark mode, are larger "
        f"counts. {_summary(picture)}",
        heading.height + pitch * len(down) + _TOP,
        {
            "labels": words,
            "pitch": pitch,
            "top": heading.height,
            "across": heading,
            "columns": len(across),
            "paths": [*level_paths(np.searchsorted(bounds, values, side="right")), ("slash", slashes)],
        },
        f"Rows: {names[0]}; columns: {names[1]}. Colour is the estimate:",
        tuple(key),
        gutter(words, heading),
    )


def level_bounds(values: Array) -> Array:
    """The LEVELS − 1 numbers between the colours, spaced as squares because a few counts are usually large.

    >>> level_bounds(np.array([0.0, 49.0])).tolist()
    [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]
    """
    largest = max(float(np.max(values, initial=0)), 0.0) or 1.0
    return np.arange(1, LEVELS) ** 2 * (largest / LEVELS**2)


def level_paths(levels: Array, least: int = 0) -> list[Stroke]:
    """One path per colour: the unit cells at that level; neighbours of one level in a row are joined. O(cells)."""
    paths: list[list[str]] = [[] for _ in range(LEVELS)]
    for r, row in enumerate(levels):
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(row)]):
            paths[int(row[start])].append(f"M{start} {r}h{end - start}v1h{start - end}z")
    return [(f"q{k}", "".join(cells)) for k, cells in enumerate(paths) if cells and k >= least]


def _crossing(picture: Picture) -> tuple[list[str], list[str], bool] | None:
    """(labels down, labels across, whether the first column goes across) if two columns cross completely."""
    if len(picture.columns) != 2:
        return None
    first, second = (list(dict.fromkeys(row[k] for row in picture.labels)) for k in range(2))
    if len(first) * len(second) != len(picture) or list(picture.labels) != list(itertools.product(first, second)):
        return None
    if min(len(first), len(second)) < (_FEW if len(picture) <= MOST_DOTS else 2):
        return None
    flipped = len(first) > len(second)
    down, across = (second, first) if flipped else (first, second)
    return (down, across, flipped) if len(down) <= _MOST_ROWS and len(across) <= _MOST_COLUMNS else None


def _summary(picture: Picture) -> str:
    """What a reader who cannot see the picture should know; the numbers follow in the table."""
    least, most = int(picture.estimate.argmin()), int(picture.estimate.argmax())
    return (
        f"{many(len(picture), 'row')}. The largest estimate is "
        f"{figure(float(picture.estimate[most]))} ({row_label(picture.labels[most])}), the smallest "
        f"{figure(float(picture.estimate[least]))} ({row_label(picture.labels[least])}); "
        f"{int(picture.may_be_zero.sum()):,} may be 0. All numbers are in the table that follows."
    )
