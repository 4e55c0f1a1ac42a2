"""Charts by Altair: estimates as bars or curves with their intervals, and errors against the privacy parameter.

Every chart has a title, titled axes and tooltips. What is drawn are the numbers given: no interval is computed here.
Labels are values of fields with names of our own, because Vega-Lite reads dots and brackets in names of fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, final

from hdmm.base.lazy import Lazy, require
from hdmm.describe.entries import ALL
from hdmm.privacy.guarantee import Privacy, error_factor, parameter, scaled

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Lazy("altair")

Chart: TypeAlias = "alt.LayerChart | alt.VConcatChart"

_MOST_BARS = 60
_MOST_POINTS = 1000  # of one curve
_MOST_SERIES = 10  # that colours tell apart
_LEAST_STEPS = 12  # of a curve; fewer are bars
_MOST_GROUPED = 4  # bars side by side
_WIDTH = 480  # pixels
_TIMES = [Fraction(round(1000 * 2 ** (k / 4)), 1000) for k in range(-8, 9)]  # a quarter to four times
_NUMBER = re.compile(r"[^\w-]*(-?[0-9][0-9,]*\.?[0-9]*)")  # before any word: tract 7 is a name


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """One row of a table: its labels, its estimate, and the ends of its interval."""

    labels: tuple[str, ...]
    estimate: float
    lower: float
    upper: float


def check_altair() -> None:
    """PackageError if Altair is not installed."""
    require("altair", "Plots", "pip install 'hdmm[plots]'")


def estimates_chart(
    title: str, columns: Sequence[str], rows: Sequence[Interval], *, measure: str, level: float, notes: Sequence[str]
) -> alt.LayerChart:
    """Estimates with their intervals: curves with a band along a column of rising numbers, else bars with whiskers."""
    check_altair()
    parts = [row for row in rows if ALL not in row.labels] or list(rows)
    left = [f"Rows of {ALL} are not drawn."] * (len(parts) < len(rows))
    axis = f"{measure}: estimate and {100 * level:g} % interval"
    scale = _scale([row.labels for row in parts])
    if scale is None:
        return _bars(title, columns, parts, axis, [*notes, *left])
    return _curves(title, columns, parts, axis, [*notes, *left], scale)


def stacked_charts(charts: Sequence[alt.LayerChart]) -> Chart:
    """The chart, or several of different units, one above the other."""
    return charts[0] if len(charts) == 1 else alt.vconcat(*charts).resolve_scale(color="independent")


def errors_chart(
    title: str,
    errors: Mapping[str, float],
    privacy: Privacy,
    *,
    names: str,
    upward: str,
    targets: Mapping[str, float] | None = None,
) -> alt.LayerChart:
    """Errors, given by name at one privacy, as they are at a quarter of its ε or ρ up to four times, on log axes.

    Targets are errors that the curve of the same name shall not exceed.
    """
    check_altair()
    errors = {name: error for name, error in errors.items() if 0 < error < math.inf}  # what a log axis can show
    symbol, here = parameter(privacy)
    across = f"privacy budget {symbol}"
    others = [scaled(privacy, times) for times in _TIMES]
    factors = [(parameter(other)[1], error_factor(privacy, other)) for other in others]
    records = [{"name": name, "x": x, "y": factor * e} for name, e in errors.items() for x, factor in factors]
    x = alt.X(field="x", type="quantitative", title=across, scale=alt.Scale(type="log", nice=False))
    y = alt.Y(field="y", type="quantitative", title=upward, scale=alt.Scale(type="log"))
    name, colour = alt.Tooltip(field="name", type="nominal", title=names), _colour("name", names, list(errors))
    tips = [name, _figure("x", across), _figure("y", upward)]
    lines = alt.Chart(alt.InlineData(values=records)).encode(x=x, y=y, color=colour, tooltip=tips)
    rule = alt.Chart(alt.InlineData(values=[{"x": here}])).mark_rule().encode(x=x, tooltip=[_figure("x", across)])
    layers = [rule, lines.mark_line(), lines.mark_point(filled=True, size=30)]
    notes = [f"The vertical line is at {symbol.partition(' ')[0]} = {here:g}."]
    if targets:
        asked = [{"name": table, "y": most} for table, most in targets.items()]
        dashed = alt.Chart(alt.InlineData(values=asked)).mark_rule(strokeDash=[4, 4])
        layers.append(dashed.encode(y=y, color=colour, tooltip=[name, _figure("y", "target")]))
        notes.append("The dashed lines are the targets.")
    return _titled(layers, title, notes, f"{upward} against {across}.")


def _bars(
    title: str, columns: Sequence[str], rows: Sequence[Interval], axis: str, notes: Sequence[str]
) -> alt.LayerChart:
    shown = rows[:_MOST_BARS]
    last = list(dict.fromkeys(row.labels[-1] for row in shown)) if len(columns) > 1 else []
    grouped = 1 < len(last) <= _MOST_GROUPED and len({row.labels for row in shown}) == len(shown)
    names = [_joined(row.labels[:-1] if grouped else row.labels) for row in shown]
    named = names if grouped else _distinct(names)  # rows of one name would be drawn over each other
    records = [
        _record(row) | {"row": name, "series": row.labels[-1] if grouped else ""}
        for row, name in zip(shown, named, strict=True)
    ]
    place = alt.Y(field="row", type="nominal", sort=None, title=_joined(columns[:-1] if grouped else columns))
    base = alt.Chart(alt.InlineData(values=records)).encode(y=place, tooltip=_tips(columns))
    bars, whiskers = base.mark_bar(opacity=0.8), base.mark_rule(strokeWidth=2)
    if grouped:
        beside = alt.YOffset(field="series", type="nominal", sort=last)
        bars = bars.encode(yOffset=beside, color=_colour("series", columns[-1], last))
        whiskers = whiskers.encode(yOffset=beside)
    x, lower = (alt.X(field=name, type="quantitative", title=axis) for name in ("estimate", "lower"))
    layers = [bars.encode(x=x.stack(None)), whiskers.encode(x=lower, x2=alt.X2(field="upper"))]
    return _titled(layers, title, [*notes, *_first(len(shown), len(rows), "rows")], f"Bars of {axis}.")


def _curves(
    title: str, columns: Sequence[str], rows: Sequence[Interval], axis: str, notes: Sequence[str], scale: _Scale
) -> alt.LayerChart:
    others = [k for k in range(len(columns)) if k != scale.column]
    names = {row.labels: _joined([row.labels[k] for k in others]) for row in rows}
    series = list(dict.fromkeys(names.values()))
    steps, told = scale.steps[:_MOST_POINTS], series[:_MOST_SERIES]
    drawn = set(steps), set(told)
    records = [
        _record(row) | {"row": row.labels[scale.column], "series": names[row.labels]}
        for row in rows
        if row.labels[scale.column] in drawn[0] and names[row.labels] in drawn[1]
    ]
    # The axis has the labels themselves, in their order, because a bin or a range is not at one number.
    ticks = alt.Axis(labelOverlap="parity", labelAngle=0)
    x = alt.X(field="row", type="ordinal", sort=None, title=columns[scale.column], axis=ticks)
    base = alt.Chart(alt.InlineData(values=records)).encode(x=x, tooltip=_tips(columns))
    if others:
        base = base.encode(color=_colour("series", _joined([columns[k] for k in others]), told))
    y, lower = (alt.Y(field=name, type="quantitative", title=axis) for name in ("estimate", "lower"))
    layers = [
        base.mark_area(opacity=0.3).encode(y=lower, y2=alt.Y2(field="upper")),
        base.mark_line().encode(y=y),
        base.mark_point(filled=True, size=12).encode(y=y),
    ]
    left = ["Of all ranges, the shortest are drawn."] * scale.ranges
    left += [*_first(len(told), len(series), "curves"), *_first(len(steps), len(scale.steps), "values")]
    return _titled(layers, title, [*notes, *left], f"Curves of {axis}.")


@final
@dataclass(frozen=True, slots=True)
class _Scale:
    """The column along which curves run, and its labels in order; `ranges` if there are longer ranges of them."""

    column: int
    steps: list[str]
    ranges: bool


def _scale(labels: Sequence[tuple[str, ...]]) -> _Scale | None:
    """The column whose labels are steps of one scale, the longest of several; None if no scale has many steps.

    No two rows of a curve may stand at one step, so that rows with equal labels have none.
    """
    found: list[_Scale] = []
    for k in range(len(labels[0]) if len(set(labels)) == len(labels) > 0 else 0):
        values = list(dict.fromkeys(row[k] for row in labels))
        steps = _steps(values)
        if len(steps) >= _LEAST_STEPS:
            found.append(_Scale(k, steps, len(steps) < len(values)))
    return max(found, key=lambda scale: len(scale.steps), default=None)


def _steps(values: Sequence[str]) -> list[str]:
    """The labels that are steps of one scale: all if their numbers rise; of all ranges, the shortest; or none.

    >>> _steps(["≤ 0", "≤ 1", "≤ 2"]), _steps(["0", "0 – 1", "1"]), _steps(["north", "south"])
    (['≤ 0', '≤ 1', '≤ 2'], ['0', '1'], [])
    """
    ends = [each for each in map(_ends, values) if each is not None]
    if len(ends) < len(values) or not all(a < b for a, b in pairwise(ends)):
        return []
    shortest = {start: value for value, (start, _) in reversed(list(zip(values, ends, strict=True)))}
    n = len(shortest)
    return list(shortest.values())[::-1] if len(values) in (n, n * (n + 1) // 2) else []


def _ends(label: str) -> tuple[float, float] | None:
    """The numbers with which a label, or the ends of a range of labels, begin."""
    parts = label.split(" – ")
    first, last = _NUMBER.match(parts[0]), _NUMBER.match(parts[-1])
    if first is None or last is None:
        return None
    return float(first[1].replace(",", "")), float(last[1].replace(",", ""))


def _record(row: Interval) -> dict[str, object]:
    """What a mark and its tooltip show of a row."""
    labels: dict[str, object] = {f"label{k}": label for k, label in enumerate(row.labels)}
    return labels | {"estimate": row.estimate, "lower": row.lower, "upper": row.upper}


def _tips(columns: Sequence[str]) -> list[alt.Tooltip]:
    labels = [alt.Tooltip(field=f"label{k}", type="nominal", title=name) for k, name in enumerate(columns)]
    return [*labels, *(_figure(name, name) for name in ("estimate", "lower", "upper"))]


def _figure(field: str, title: str) -> alt.Tooltip:
    return alt.Tooltip(field=field, type="quantitative", title=title, format=",.6~g")


def _colour(field: str, title: str, order: Sequence[str]) -> alt.Color:
    return alt.Color(field=field, type="nominal", title=title, sort=list(order), legend=alt.Legend(symbolLimit=0))


def _titled(layers: Sequence[alt.Chart], title: str, notes: Sequence[str], description: str) -> alt.LayerChart:
    heading = alt.TitleParams(text=title, subtitle=list(notes), anchor="start")
    said = " ".join([f"{title}.", description, *notes])  # read aloud to those who do not see the picture
    return alt.LayerChart(layer=list(layers)).properties(title=heading, width=_WIDTH, description=said)


def _first(shown: int, there: int, what: str) -> list[str]:
    return [f"The first {shown:,} of {there:,} {what} are drawn."] if shown < there else []


def _joined(words: Sequence[str]) -> str:
    return ", ".join(words)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where one occurs again.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    seen: dict[str, int] = {}
    found: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
