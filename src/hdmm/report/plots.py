"""Plots of a table as SVG: dots with whiskers, a line with its band, points in order, a heat map.

Pictures have a height in pixels and no width: positions across are percentages, so a narrow page squeezes the plot
and never its text. Labels stand in a gutter to the left whose width the style sheet knows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, final

import numpy as np

from hdmm.matrix import Array
from hdmm.report.markup import Markup, tag
from hdmm.report.model import ReportTable
from hdmm.report.numbers import figure
from hdmm.sql.blocks import ALL

LEVELS: Final = 7
MOST_DOTS: Final = 60
MOST_POINTS: Final = 600
_MOST_ROWS, _MOST_COLUMNS = 64, 160  # of a heat map
_FEW = 4  # a short heat map with a side of fewer would hide the margins for no gain
_FEW_HEADS = 10  # of a heat map that a narrow page has room for
_HEIGHT = 240  # of plots whose rows go across
_TOP = 8  # pixels above the first row
_LEGIBLE = 13  # pixels between labels
_NUMBER = re.compile(r"-?[0-9][0-9,]*\.?[0-9]*")
_THINNEST = 1e-200  # a scale no wider is none: its steps would be no ordinary numbers


@final
@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and what its caption says: the marks in words, and a key of (class of a swatch, meaning)."""

    svg: Markup
    caption: str
    key: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers to percentages of an axis."""

    low: float
    high: float

    @classmethod
    def of(cls, *arrays: Array) -> Scale:
        """The scale that holds all numbers, and 0."""
        low = min(0.0, *(float(each.min(initial=0)) for each in arrays))
        high = max(0.0, *(float(each.max(initial=0)) for each in arrays))
        return cls(low, high if high - low > _THINNEST else low + 1)

    def at(self, value: float) -> float:
        """Where a number lies, 0 to 100."""
        # Halved first: the difference of two large floats may be infinite.
        return round(100 * (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2), 2)

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


def plot(table: ReportTable, level: str, anchor: str) -> Plot:
    """The plot that suits the table, without its totals. `level` in percent is for the caption."""
    parts = [k for k, labels in enumerate(table.labels) if ALL not in labels]
    if 0 < len(parts) < len(table):
        drawn = _suited(_taken(table, parts), level, anchor)
        return replace(drawn, caption=f"{drawn.caption} Rows of {ALL} are not drawn.")
    return _suited(table, level, anchor)


def _suited(table: ReportTable, level: str, anchor: str) -> Plot:
    grid = _grid(table)
    if grid is not None:
        return _heat_map(table, *grid, anchor)
    if len(table) <= MOST_DOTS:
        return _dots(table, level, anchor)
    return _line(table, level, anchor) if _is_ordered(table) else _points(table, level, anchor)


def _taken(table: ReportTable, rows: Sequence[int]) -> ReportTable:
    """Some rows of a table. On its own scale a total would leave the parts no room."""
    estimate, stddev, lower, upper = (a[rows] for a in (table.estimate, table.stddev, table.lower, table.upper))
    labels = [table.labels[k] for k in rows]
    return replace(table, labels=labels, estimate=estimate, stddev=stddev, lower=lower, upper=upper)


def picture(anchor: str, title: str, description: str, height: float, *children: str, kind: str) -> Markup:
    """An SVG that says in words what it shows."""
    return tag(
        "svg",
        tag("title", title, id=f"{anchor}-title"),
        tag("desc", description, id=f"{anchor}-desc"),
        *children,
        class_=f"plot {kind}",
        role="img",
        aria_labelledby=f"{anchor}-title {anchor}-desc",
        height=height,
    )


def stretched(width: float, height: float, *children: str) -> Markup:
    """A nested picture with coordinates of its own, pulled to fill its parent; strokes keep their width."""
    return tag("svg", *children, viewBox=f"0 0 {width:g} {height:g}", preserveAspectRatio="none", class_="fill")


def area(height: float, *children: str, y: float = 0) -> Markup:
    """The part right of the gutter."""
    return tag("svg", *children, class_="area", x="30%", width="66%", y=y, height=height)


def gutter(labels: Sequence[str], pitch: float, top: float) -> Markup:
    """Row labels, as many as are legible, cut off at the gutter's edge."""
    step = max(1, math.ceil(_LEGIBLE / pitch))
    bottom = top + pitch * len(labels) + _LEGIBLE
    words = (
        tag("text", shortened(label, 40), x=0, y=round(top + pitch * (k + 0.5) + 4, 1))
        for k, label in enumerate(labels)
        if k % step == 0
    )
    return tag("svg", *words, class_="gutter", width="28%", height=bottom)


def shortened(label: str, most: int) -> str:
    """The label, or its beginning and an ellipsis.

    >>> shortened("Luxembourg", 6)
    'Luxem…'
    """
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _dots(table: ReportTable, level: str, anchor: str) -> Plot:
    pitch = 22 if len(table) <= 24 else 15
    height = pitch * len(table) + 2 * _TOP
    scale = Scale.of(table.lower, table.upper)
    marks: list[Markup] = []
    for k, (value, low, high, faint) in enumerate(
        zip(table.estimate, table.lower, table.upper, table.may_be_zero, strict=True)
    ):
        y = _TOP + pitch * (k + 0.5)
        at = f"{scale.at(float(value))}%"
        marks.append(tag("line", class_="whisker", x1=f"{scale.at(low)}%", x2=f"{scale.at(high)}%", y1=y, y2=y))
        marks.append(tag("circle", class_="dot faint" if faint else "dot", cx=at, cy=y, r=3.5))
    svg = picture(
        anchor,
        f"{table.title}: estimates with {level} intervals",
        _summary(table),
        height + 24,
        gutter(_grouped(table.labels), pitch, _TOP),
        area(height + 24, *_across(scale, height), *marks),
        kind="dots",
    )
    return Plot(svg, f"The dot is the estimate, hollow where it may be 0; the line through it is the {level} interval.")


def _line(table: ReportTable, level: str, anchor: str) -> Plot:
    shown = _drawn(table)
    scale = Scale.of(table.lower, table.upper)
    x = np.linspace(0, 1000, len(shown))
    low, high, middle = (_path(x, array[shown], scale) for array in (table.lower, table.upper, table.estimate))
    marks = (
        tag("polygon", points=" ".join([*high, *reversed(low)]), class_="band"),
        tag("polyline", points=" ".join(middle), class_="estimate"),
    )
    caption = f"The line is the estimate, the band its {level} interval.{_thinned(table, shown)}"
    return Plot(_long(table, level, anchor, scale, marks, [table.labels[k] for k in shown]), caption)


def _points(table: ReportTable, level: str, anchor: str) -> Plot:
    shown = _drawn(table)
    scale = Scale.of(table.lower, table.upper)
    x = np.linspace(0, 1000, 2 * len(shown) + 1)[1::2]
    y = [[_height(scale, float(v)) for v in array[shown]] for array in (table.lower, table.upper, table.estimate)]
    # A dot is a line of no length with round ends: unlike a circle it stays round when the picture is pulled.
    whiskers = "".join(f"M{a:.1f} {b:g}V{c:g}" for a, b, c in zip(x, y[0], y[1], strict=True))
    dots = "".join(f"M{a:.1f} {b:g}h0" for a, b in zip(x, y[2], strict=True))
    marks = (tag("path", d=whiskers, class_="thin whisker"), tag("path", d=dots, class_="mark"))
    caption = f"The dot is the estimate, the line through it the {level} interval; rows in the order of the table."
    caption += _thinned(table, shown)
    return Plot(_long(table, level, anchor, scale, marks, [table.labels[k] for k in shown]), caption)


def _long(
    table: ReportTable,
    level: str,
    anchor: str,
    scale: Scale,
    marks: Iterable[Markup],
    labels: Sequence[tuple[str, ...]],
) -> Markup:
    """A plot whose rows go across and whose counts go up."""
    lines: list[Markup] = []
    words: list[Markup] = []
    for value in scale.ticks():
        y = round(_TOP + _HEIGHT * (1 - scale.at(value) / 100), 1)
        lines.append(tag("line", class_="zero" if value == 0 else "grid", x1=0, x2="100%", y1=y, y2=y))
        words.append(tag("text", _tick(value), x="100%", y=y + 4, text_anchor="end"))
    for part, side in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        label = shortened(_row_label(labels[round(part * (len(labels) - 1))]), 18)
        lines.append(tag("text", label, x=f"{100 * part:g}%", y=_HEIGHT + _TOP + 20, text_anchor=side))
    inner = tag("svg", stretched(1000, 1000, *marks), y=_TOP, height=_HEIGHT, class_="spill")
    return picture(
        anchor,
        f"{table.title}: estimates with {level} intervals, in the order of the table",
        _summary(table),
        _HEIGHT + _TOP + 28,
        tag("svg", *words, class_="axis", width="12%", height=_HEIGHT + 2 * _TOP),
        tag("svg", *lines, inner, class_="area", x="14%", width="84%", height=_HEIGHT + _TOP + 28),
        kind="long",
    )


def _heat_map(
    table: ReportTable,
    down: Sequence[str],
    across: Sequence[str],
    flipped: bool,
    anchor: str,
) -> Plot:
    shape = (len(across), len(down)) if flipped else (len(down), len(across))
    values, faint = (array.reshape(shape) for array in (table.estimate, table.may_be_zero))
    if flipped:
        values, faint = values.T, faint.T
    bounds = level_bounds(values)
    cells = level_paths(np.searchsorted(bounds, values, side="right"))
    rows, columns = np.nonzero(faint)
    slashes = "".join(f"M{c} {r + 1}L{c + 1} {r}" for r, c in zip(rows.tolist(), columns.tolist(), strict=True))
    pitch = 20 if len(down) <= 24 else 10
    top, names_across = heads(across)
    height = pitch * len(down)
    names = table.columns[::-1] if flipped else table.columns
    svg = picture(
        anchor,
        f"{table.title}: heat map of {names[0]} by {names[1]}",
        f"Rows are {names[0]}, columns {names[1]}; darker cells in light mode, lighter ones in dark mode, are larger "
        f"counts. {_summary(table)}",
        top + height + _TOP,
        gutter(down, pitch, top),
        area(top, *names_across),
        area(height, stretched(len(across), len(down), *cells, tag("path", d=slashes, class_="slash")), y=top),
        kind="heat",
    )
    edges = [figure(float(bound)) for bound in bounds]
    words = [f"below {edges[0]}", *(f"{a} to {b}" for a, b in pairwise(edges)), f"{edges[-1]} up"]
    key = [(f"q{k}", word) for k, word in enumerate(words)]
    if faint.any():
        key.append(("slash", "may be 0: the interval includes it"))
    return Plot(svg, f"Rows: {names[0]}; columns: {names[1]}. Colour is the estimate:", tuple(key))


def heads(labels: Sequence[str]) -> tuple[int, list[Markup]]:
    """Column labels, as many as are legible, slanted where they are long; and the height they take."""
    words = [shortened(label, 16) for label in labels]
    longest = max(map(len, words))
    slant = longest > 3
    top = 18 + 5 * longest if slant else 18
    style = {"transform": "rotate(-42)"} if slant else {"text_anchor": "middle"}
    step = math.ceil(len(labels) / 24)
    drawn = [
        tag(
            "svg",
            tag("text", words[k], **style),
            x=f"{100 * (k + 0.5) / len(words):.2f}%",
            y=top - 6,
            class_="spill wide" if place % 2 and len(words) > _FEW_HEADS else "spill",  # a narrow page has every other
        )
        for place, k in enumerate(range(0, len(words), step))
    ]
    return top, drawn


def level_bounds(values: Array) -> Array:
    """The LEVELS − 1 numbers between the colours: squares, since a few large counts are the rule.

    >>> level_bounds(np.array([0.0, 49.0])).tolist()
    [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]
    """
    largest = max(float(np.max(values, initial=0)), 0.0) or 1.0
    return np.arange(1, LEVELS) ** 2 * (largest / LEVELS**2)


def level_paths(levels: Array, least: int = 0) -> list[Markup]:
    """One path a colour: the cells of unit size at that level, neighbours of one level in a row joined. O(cells)."""
    paths: list[list[str]] = [[] for _ in range(LEVELS)]
    for r, row in enumerate(levels):
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(row)], strict=True):
            paths[int(row[start])].append(f"M{start} {r}h{end - start}v1h{start - end}z")
    return [tag("path", d="".join(cells), class_=f"q{k}") for k, cells in enumerate(paths) if cells and k >= least]


def swatch(kind: str) -> Markup:
    """A small square of a colour or pattern, for a key. It prints, where a background would not."""
    square = tag("rect", width=14, height=14, class_="q0" if kind == "slash" else kind)
    lines = [tag("path", d="M0 14L14 0", class_="slash")] if kind == "slash" else []
    return tag("svg", square, *lines, width=14, height=14, class_="swatch", aria_hidden="true")


def _across(scale: Scale, height: float) -> Iterable[Markup]:
    """Grid lines and numbers of an axis below."""
    for value in scale.ticks():
        x = f"{scale.at(value)}%"
        yield tag("line", class_="zero" if value == 0 else "grid", x1=x, x2=x, y1=0, y2=height)
        yield tag("text", _tick(value), x=x, y=height + 16, text_anchor="middle")


def _tick(value: float) -> str:
    """The shortest writing of a round number.

    >>> _tick(-2500.0), _tick(3 * 0.1)
    ('−2,500', '0.3')
    """
    return f"{value:,.10g}".replace("-", "−")


def _grid(table: ReportTable) -> tuple[list[str], list[str], bool] | None:
    """(labels down, labels across, whether the first column goes across) where two columns cross completely."""
    if len(table.columns) != 2:
        return None
    first = list(dict.fromkeys(label[0] for label in table.labels))
    second = list(dict.fromkeys(label[1] for label in table.labels))
    shorter = min(len(first), len(second))
    if len(first) * len(second) != len(table) or shorter < (_FEW if len(table) <= MOST_DOTS else 2):
        return None
    if any(label != (first[k // len(second)], second[k % len(second)]) for k, label in enumerate(table.labels)):
        return None
    flipped = len(first) > len(second)
    down, across = (second, first) if flipped else (first, second)
    return (down, across, flipped) if len(down) <= _MOST_ROWS and len(across) <= _MOST_COLUMNS else None


def _is_ordered(table: ReportTable) -> bool:
    """Whether the rows are steps of one scale: the first number in each label rises."""
    if len(table.columns) != 1:
        return False
    found = [_NUMBER.search(label[0]) for label in table.labels]
    values = [float(match[0].replace(",", "")) for match in found if match is not None]
    return len(values) == len(table) and all(a < b for a, b in pairwise(values))


def _drawn(table: ReportTable) -> Array:
    """The rows that are drawn: all, or every k-th."""
    return np.arange(0, len(table), math.ceil(len(table) / MOST_POINTS))


def _thinned(table: ReportTable, shown: Array) -> str:
    step = math.ceil(len(table) / MOST_POINTS)
    return "" if step == 1 else f" Of {len(table):,} rows one in {step} is drawn, {len(shown):,} in all."


def _path(x: Array, values: Array, scale: Scale) -> list[str]:
    return [f"{a:.1f},{_height(scale, float(v)):g}" for a, v in zip(x, values, strict=True)]


def _height(scale: Scale, value: float) -> float:
    """The vertical coordinate, 1000 at the bottom."""
    return round(1000 - 10 * scale.at(value), 1)


def _row_label(label: tuple[str, ...]) -> str:
    return ", ".join(label) or "Total"


def _grouped(labels: Sequence[tuple[str, ...]]) -> list[str]:
    """Row labels in which what repeats from the row above is only indented.

    >>> _grouped([("F", "young"), ("F", "old"), ("M", "young")])
    ['F, young', '\u2003old', 'M, young']
    """
    words: list[str] = []
    for k, label in enumerate(labels):
        repeats = k > 0 and len(label) > 1 and label[:-1] == labels[k - 1][:-1]
        words.append("\u2003" + "".join(label[-1:]) if repeats else _row_label(label))
    return words


def _summary(table: ReportTable) -> str:
    """What a reader who cannot see the picture should know; the numbers follow in the table."""
    least, most = int(table.estimate.argmin()), int(table.estimate.argmax())
    return (
        f"{len(table):,} {'row' if len(table) == 1 else 'rows'}. The largest estimate is "
        f"{figure(float(table.estimate[most]))} ({_row_label(table.labels[most])}), the smallest "
        f"{figure(float(table.estimate[least]))} ({_row_label(table.labels[least])}); "
        f"{int(table.may_be_zero.sum()):,} may be 0. All numbers are in the table that follows."
    )
