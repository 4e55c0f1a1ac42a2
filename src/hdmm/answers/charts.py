"""Charts by Altair: estimates as bars or curves with their intervals, and errors against the privacy parameter.

Every chart has a title, titled axes and tooltips. What is drawn are the numbers given: no interval is computed here.
Labels are values of fields with names of our own, because Vega-Lite reads dots and brackets in names of fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, final

from hdmm.answers.picture import Picture, steps
from hdmm.base.lazy import Lazy, require
from hdmm.describe.entries import ALL
from hdmm.describe.table_column import named_columns
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Privacy, error_factor, parameter, scaled

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Lazy("altair")

Chart: TypeAlias = "alt.LayerChart | alt.VConcatChart"

_MOST_BARS = 60
_MOST_POINTS = 1000  # of one curve
_MOST_SERIES = 10  # that colours distinguish
_LEAST_STEPS = 12  # of a curve; fewer are bars
_MOST_GROUPED = 4  # bars side by side
_WITH_BINS = "The wider intervals also cover where in their bins values lie; unbounded ones are not drawn."
_WIDTH = 480  # pixels
_TIMES = [Fraction(round(1000 * 2 ** (k / 4)), 1000) for k in range(-8, 9)]  # a quarter to four times


def check_altair() -> None:
    """PackageError if Altair is not installed."""
    require("altair", "Plots", "pip install 'hdmm[plots]'")


def estimates_chart(picture: Picture) -> alt.LayerChart:
    """Estimates with their intervals: curves with a band along a column of rising numbers, else bars with whiskers."""
    check_altair()
    joined = picture.joined
    words = [tuple(label or "–" for label in row) or ("total",) for row in joined.labels]
    shown = replace(joined, columns=joined.columns or named_columns("total"), labels=words)
    hidden = picture.suppressed + picture.unknown
    notes = [f"{hidden:,} suppressed or unknown rows are not drawn."] * (hidden > 0)
    notes += ["The estimates are biased."] * picture.biased
    notes += [_WITH_BINS] * (picture.bins is not None)
    notes += [f"Rows of {ALL} are not drawn."] * (picture.totals > 0)
    scale = _scale(shown)
    return _bars(shown, notes) if scale is None else _curves(shown, notes, scale)


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

    Targets are errors that the curve of the same name must not exceed.
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


def _bars(picture: Picture, notes: Sequence[str]) -> alt.LayerChart:
    heads, shown = list(picture.heads), picture.labels[:_MOST_BARS]
    last = list(dict.fromkeys(row[-1] for row in shown)) if len(heads) > 1 else []
    grouped = 1 < len(last) <= _MOST_GROUPED and len(set(shown)) == len(shown)
    names = [_joined(row[:-1] if grouped else row) for row in shown]
    named = names if grouped else _distinct(names)  # rows of one name would be drawn over each other
    records = [_record(picture, k, named[k], row[-1] if grouped else "") for k, row in enumerate(shown)]
    place = alt.Y(field="row", type="nominal", sort=None, title=_joined(heads[:-1] if grouped else heads))
    base = alt.Chart(alt.InlineData(values=records)).encode(y=place, tooltip=_tips(picture))
    x = alt.X(field="estimate", type="quantitative", title=_axis(picture))
    layers = [base.mark_bar(opacity=0.8).encode(x=x.stack(None))]
    for (lower, upper), width in zip(_intervals(picture), (2, 1), strict=False):
        end = alt.X(field=lower, type="quantitative", title=_axis(picture))
        layers.append(base.mark_rule(strokeWidth=width).encode(x=end, x2=alt.X2(field=upper)))
    if grouped:
        beside = alt.YOffset(field="series", type="nominal", sort=last)
        layers = [layer.encode(yOffset=beside) for layer in layers]
        layers[0] = layers[0].encode(color=_colour("series", heads[-1], last))
    left = _first(len(shown), len(picture), "rows")
    return _titled(layers, picture.title, [*notes, *left], f"Bars of {_axis(picture)}.")


def _curves(picture: Picture, notes: Sequence[str], scale: _Scale) -> alt.LayerChart:
    heads, column = picture.heads, scale.column
    others = [k for k in range(len(heads)) if k != column]
    names = [_joined([row[k] for k in others]) for row in picture.labels]
    series = list(dict.fromkeys(names))
    shown, drawn_series = scale.steps[:_MOST_POINTS], series[:_MOST_SERIES]
    inside = set(shown), set(drawn_series)
    records = [
        _record(picture, k, row[column], names[k])
        for k, row in enumerate(picture.labels)
        if row[column] in inside[0] and names[k] in inside[1]
    ]
    # The axis has the labels themselves, in their order, because a bin or a range is not at one number.
    ticks = alt.Axis(labelOverlap="parity", labelAngle=0)
    x = alt.X(field="row", type="ordinal", sort=None, title=heads[column], axis=ticks)
    base = alt.Chart(alt.InlineData(values=records)).encode(x=x, tooltip=_tips(picture))
    if others:
        base = base.encode(color=_colour("series", _joined([heads[k] for k in others]), drawn_series))
    y = alt.Y(field="estimate", type="quantitative", title=_axis(picture))
    layers = [base.mark_line().encode(y=y), base.mark_point(filled=True, size=12).encode(y=y)]
    for k, (lower, upper) in enumerate(_intervals(picture)):
        end = alt.Y(field=lower, type="quantitative", title=_axis(picture))
        layers.insert(k, base.mark_area(opacity=0.3 - 0.15 * k).encode(y=end, y2=alt.Y2(field=upper)))
    left = ["Of all ranges, the shortest are drawn."] * scale.ranges
    left += [*_first(len(drawn_series), len(series), "curves"), *_first(len(shown), len(scale.steps), "values")]
    return _titled(layers, picture.title, [*notes, *left], f"Curves of {_axis(picture)}.")


@final
@dataclass(frozen=True, slots=True)
class _Scale:
    """The column along which curves run, and its labels in order; `ranges` if there are longer ranges of them."""

    column: int
    steps: list[str]
    ranges: bool


def _scale(picture: Picture) -> _Scale | None:
    """The column whose labels are steps of one scale, the longest of several; None if no scale has many steps.

    No two rows of a curve may stand at one step, so that rows with equal labels have none.
    """
    found: list[_Scale] = []
    distinct = len(set(picture.labels)) == len(picture) > 0
    for k, column in enumerate(picture.columns if distinct else ()):
        values = list(dict.fromkeys(row[k] for row in picture.labels))
        there = steps(values, column.ends())
        if len(there) >= _LEAST_STEPS:
            found.append(_Scale(k, there, len(there) < len(values)))
    return max(found, key=lambda scale: len(scale.steps), default=None)


def _axis(picture: Picture) -> str:
    return f"{picture.measure}: estimate and {100 * picture.level:g} % interval"


def _record(picture: Picture, k: int, row: str, series: str) -> dict[str, object]:
    """The fields of a row that a mark and its tooltip show."""
    labels: dict[str, object] = {f"label{at}": label for at, label in enumerate(picture.labels[k])}
    numbers = {name: float(each[k]) if math.isfinite(each[k]) else None for name, each in _numbers(picture).items()}
    return labels | numbers | {"row": row, "series": series}


def _numbers(picture: Picture) -> dict[str, Array]:
    """The numbers of all rows, by field."""
    found = {"estimate": picture.estimate, "lower": picture.lower, "upper": picture.upper}
    if picture.bins is not None:
        found["lower_with_bins"], found["upper_with_bins"] = picture.bins
    return found


def _intervals(picture: Picture) -> list[tuple[str, str]]:
    """The fields of the ends of intervals: of that of the noise, and of the wider one with bins if there are some."""
    wider = [] if picture.bins is None else [("lower_with_bins", "upper_with_bins")]
    return [("lower", "upper"), *wider]


def _tips(picture: Picture) -> list[alt.Tooltip]:
    labels = [alt.Tooltip(field=f"label{k}", type="nominal", title=name) for k, name in enumerate(picture.heads)]
    return [*labels, *(_figure(name, name.replace("_", " ")) for name in _numbers(picture))]


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
