"""Results as Markdown and CSV: tables, and where we differ from the paper, and why."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.paper.cells import Published, Result
from benchmarks.paper.reasons import NEAR, known, paper_rmse, reason
from benchmarks.paper.tables import PUBLISHED, dawa_row

TITLES = {
    "table-main": "Error ratios on all workloads (the paper's main table, ε = 1 where it matters)",
    "table-1d": "One attribute",
    "table-2d": "Two attributes",
    "table-marginals": "Up-to-K-way marginals on 10⁸ cells",
    "table-dawa": "DAWA with OPT_0 as its second stage (ε = √2, Prefix)",
}

CLOSE = 0.02  # for errors that are formulas: what counts as the paper's figure
WORSE = 0.005  # HDMM's error above the paper's that needs a reason
TRIALS = ("DAWA", "PrivBayes")  # averages over trials
DAWA = (
    "Averages over trials whose errors vary (see the intervals), on one sample of each data set; the share of the "
    "first stage is inferred. On 1,000 rows our first stage makes half as many buckets as there are cells, so that the "
    "second stage matters; the paper's makes fewer, it seems (docs/research/baselines.md)."
)


@dataclass(frozen=True, slots=True)
class Line:
    """A cell's ratio to HDMM beside the paper's."""

    result: Result
    ours: float | None
    low: float | None
    high: float | None
    gain: float | None  # the paper's HDMM error over ours

    @property
    def paper(self) -> Published:
        return self.result.cell.paper

    @property
    def apart(self) -> float | None:
        """ours over the paper's, less 1."""
        return None if self.ours is None or not isinstance(self.paper, int | float) else self.ours / self.paper - 1

    @property
    def against_paper(self) -> float | None:
        """The method's error over the paper's HDMM error, beside the paper's ratio: free of how good our HDMM is."""
        return None if self.ours is None else self.ours / (self.gain or 1.0)

    @property
    def shown(self) -> str:
        outcome = self.result.outcome
        if self.ours is None:
            return {"done": "?", "skipped": "not run", "not applicable": "–"}.get(outcome.status, outcome.status)
        text = number(self.ours)
        return text if self.low is None or self.high is None else f"{text} ({number(self.low)}–{number(self.high)})"


def lines(results: Sequence[Result]) -> list[Line]:
    """The ratio of every result to HDMM's of its row."""
    by_row: dict[str, dict[str, Result]] = {}
    for result in results:
        by_row.setdefault(result.cell.row, {})[result.cell.method] = result
    out: list[Line] = []
    for result in results:
        row = by_row[result.cell.row]
        best = row["HDMM"].rmse if "HDMM" in row else None
        identity = row["Identity"].rmse if "Identity" in row else None
        known = paper_rmse(result.cell, identity)
        gain = None if best is None or known is None else known / best
        figures = result.outcome.figures
        ratio = [None if best is None or figures.get(k) is None else figures[k] / best for k in ("rmse", "low", "high")]
        out.append(Line(result, *ratio, gain))
    return out


def markdown(table: str, results: Sequence[Result]) -> str:
    """The table: ours / the paper's in every cell."""
    if table == "table-dawa":
        return _dawa_markdown(results)
    found = {(line.result.cell.row, line.result.cell.method): line for line in lines(results)}
    rows = list(dict.fromkeys(row for row, _ in found))
    methods = [method for method in _columns(table) if any((row, method) in found for row in rows)]
    text = [f"## {TITLES[table]}", "", "Ours / the paper's, as ratios to HDMM's root mean squared error.", ""]
    text += [f"| workload | HDMM's error | {' | '.join(m for m in methods if m != 'HDMM')} |"]
    text += ["|" + "---|" * (len(methods) + 1)]
    for row in rows:
        best = found[row, "HDMM"]
        error = best.shown if best.result.rmse is None else f"{best.result.rmse:.4g}"
        gain = f" / {best.result.rmse * best.gain:.4g}" if best.result.rmse is not None and best.gain else ""
        cells = [_pair(found[row, method]) for method in methods if method != "HDMM"]
        text.append(f"| {row} | {error}{gain} | {' | '.join(cells)} |")
    return "\n".join([*text, ""])


def _columns(table: str) -> list[str]:
    sources = {
        "table-main": "table_main",
        "table-1d": "table_lowd_1d",
        "table-2d": "table_lowd_2d",
        "table-marginals": "table_highd_marginals",
    }
    return PUBLISHED[sources[table]]["columns"]


def _pair(line: Line) -> str:
    paper = number(line.paper) if isinstance(line.paper, int | float) else (line.paper or "")
    text = f"{line.shown} / {paper.replace('*', chr(92) + '*')}"
    return f"**{text}**" if line.apart is not None and abs(line.apart) > NEAR else text


def dawa_ratios(results: Sequence[Result], n: int, size: int) -> dict[str, tuple[float, float | None]]:
    """By data set: √(error with GreedyH / error with OPT_0), and half of its 95 % interval by the delta method."""
    found = {(r.cell.row, r.cell.method): r for r in results}
    out: dict[str, tuple[float, float | None]] = {}
    for dataset in PUBLISHED["table_dawa"]["datasets"]:
        pair = [found.get((dawa_row(dataset, n, size), method)) for method in ("GreedyH", "OPT_0")]
        rmses = [r.rmse for r in pair if r is not None and r.rmse is not None]
        if len(rmses) == 2:
            spreads = [r.outcome.figures["relative_error"] for r in pair if r is not None]
            ratio = rmses[0] / rmses[1]
            half = None if None in spreads else ratio * (spreads[0] ** 2 + spreads[1] ** 2) ** 0.5 / 2
            out[dataset] = ratio, half
    return out


def dawa_summary(ratios: dict[str, tuple[float, float | None]]) -> dict[str, float]:
    """min, median and max over the data sets, where all of them are there."""
    values = [ratio for ratio, _ in ratios.values()]
    if len(values) < len(PUBLISHED["table_dawa"]["datasets"]):
        return {}
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def _dawa_markdown(results: Sequence[Result]) -> str:
    text = [f"## {TITLES['table-dawa']}", ""]
    text += ["Error of DAWA with GreedyH over that with OPT_0: above 1 is better with OPT_0. Ours / the paper's.", ""]
    text += [
        "| cells | rows | min | median | max | by data set (± half a 95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for row in PUBLISHED["table_dawa"]["rows"]:
        for size in (1000, 10_000_000):
            ratios = dawa_ratios(results, row["domain"], size)
            published = row[f"data_size_{size}"]
            ours = dawa_summary(ratios)
            cells = [f"{number(ours[k]) if ours else 'not run'} / {number(published[k])}" for k in published]
            each = ", ".join(f"{name} {r:.2f}" + (f" ± {h:.2f}" if h else "") for name, (r, h) in ratios.items())
            text.append(f"| {row['domain']} | {size:,} | {' | '.join(cells)} | {each or 'not run'} |")
    return "\n".join([*text, ""])


def as_csv(results: Sequence[Result]) -> str:
    """One line per cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["table", "row", "method", "status", "ratio", "low", "high", "paper", "rmse", "seconds", "trials", "note"]
    )
    for line in lines(results):
        cell, outcome = line.result.cell, line.result.outcome
        ratio = ["" if v is None else f"{v:.6g}" for v in (line.ours, line.low, line.high)]
        rmse = "" if line.result.rmse is None else f"{line.result.rmse:.6g}"
        paper = "" if cell.paper is None else cell.paper
        tail = [f"{outcome.seconds:.2f}", outcome.figures.get("trials", ""), outcome.note]
        writer.writerow([*cell.key, outcome.status, *ratio, paper, rmse, *tail])
    return out.getvalue()


def differences(results_by_table: dict[str, Sequence[Result]]) -> str:
    """Every cell that is more than 5 % from the paper's, with the reason; what does not scale or was not run."""
    text = [
        "# Where we differ from the paper, and why",
        "",
        "Every cell that is more than 5 % from the paper's figure.",
        "",
    ]
    unlike: list[str] = []
    apart = agree = missing = 0
    for table, results in results_by_table.items():
        rows = _dawa_differences(results) if table == "table-dawa" else []
        apart += len(rows)
        for line in lines(results):
            cell, outcome = line.result.cell, line.result.outcome
            if line.apart is None or cell.method == "HDMM":
                if outcome.status in ("skipped", "no data", "failed"):
                    missing += 1
                elif table != "table-dawa" and (
                    isinstance(cell.paper, str) != (line.ours is None) or cell.paper == "*"
                ):
                    unlike.append(f"| {table} | {cell.row} | {cell.method} | {cell.paper} | {_happened(line)} |")
                continue
            if abs(line.apart) <= NEAR:
                agree += 1
                continue
            apart += 1
            assert line.ours is not None
            interval = None if line.low is None or line.high is None else (line.low, line.high)
            why = reason(cell, line.ours, float(cell.paper or 0), line.gain, interval)
            change = f"{100 * line.apart:+.0f} %"
            rows.append(f"| {cell.row} | {cell.method} | {line.shown} | {number(cell.paper)} | {change} | {why} |")
        if rows:
            text += [
                f"## {TITLES[table]}",
                "",
                "| workload | method | ours | paper | apart | why |",
                "|---|---|---|---|---|---|",
            ]
            text += [*rows, ""]
    summary = f"{agree} cells agree to 5 %, {apart} do not, {missing} have not been run or lack data."
    text[3:3] = ["", summary, "", *_formulas(results_by_table), *_ours(results_by_table)]
    if unlike:
        text += ["## Cells where the paper has no number, or we have none", ""]
        text += ["| table | workload | method | paper | what happened here |", "|---|---|---|---|---|"]
        text += [line.replace("| * |", "| \\* |") for line in unlike]
        text += [""]
    text += ["## Slips of the paper that were found on the way", ""]
    text += [f"- {slip}" for slip in PUBLISHED["discrepancies"]]
    return "\n".join([*text, ""])


def _formulas(results_by_table: dict[str, Sequence[Result]]) -> list[str]:
    """Data-independent methods, whose error is a formula: the cells more than 2 % from the paper's, and why."""
    rows: list[str] = []
    cells = 0
    for table, results in results_by_table.items():
        for line in lines(results):
            cell, ours = line.result.cell, line.against_paper
            if cell.method in (*TRIALS, "HDMM") or ours is None or not isinstance(cell.paper, int | float):
                continue
            cells += 1
            if abs(ours / cell.paper - 1) > CLOSE:
                change = f"{100 * (ours / cell.paper - 1):+.1f} %"
                shown = f"{number(ours)} | {number(cell.paper)} | {change} | {known(cell)}"
                rows.append(f"| {table} | {cell.row} | {cell.method} | {shown} |")
    said = (
        f"Their errors are formulas. Over the paper's HDMM error (ours where that is not known), {cells - len(rows)} of"
    )
    said += f" {cells} cells are within {100 * CLOSE:g} % of the paper's. The others:"
    return [
        "## Methods that do not look at data",
        "",
        said,
        "",
        "| table | workload | method | ours over the paper's HDMM | paper | apart | why |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _ours(results_by_table: dict[str, Sequence[Result]]) -> list[str]:
    """HDMM's column: how often it is better than the paper's, and where worse."""
    found = [line for results in results_by_table.values() for line in lines(results)]
    gains = [(line.result.cell, line.gain) for line in found if line.result.cell.method == "HDMM" and line.gain]
    worse = [
        f"| {cell.table} | {cell.row} | {100 * (1 / gain - 1):+.1f} % | {known(cell)} |"
        for cell, gain in gains
        if 1 / gain - 1 > WORSE
    ]
    said = f"Against the error that the paper's cells imply, ours is at most {100 * WORSE:g} % above it in"
    said += f" {len(gains) - len(worse)} of {len(gains)} rows, and more than {100 * WORSE:g} % below it in"
    said += f" {sum(gain - 1 > WORSE for _, gain in gains)}. SF1's rows imply none. Above it:"
    return [
        "## HDMM itself",
        "",
        said,
        "",
        "| table | workload | HDMM's error | why |",
        "|---|---|---|---|",
        *worse,
        "",
    ]


def _dawa_differences(results: Sequence[Result]) -> list[str]:
    rows: list[str] = []
    for row in PUBLISHED["table_dawa"]["rows"]:
        for size in (1000, 10_000_000):
            summary = dawa_summary(dawa_ratios(results, row["domain"], size))
            for name, ours in summary.items():
                paper = row[f"data_size_{size}"][name]
                if abs(ours / paper - 1) > NEAR:
                    what = f"{row['domain']} cells, {size:,} rows | {name} of data sets"
                    change = f"{100 * (ours / paper - 1):+.0f} %"
                    rows.append(f"| {what} | {number(ours)} | {number(paper)} | {change} | {DAWA} |")
    return rows


def _happened(line: Line) -> str:
    outcome = line.result.outcome
    if line.ours is not None:
        return f"{line.shown} in {outcome.seconds:.0f} s"
    return f"{outcome.status} after {outcome.seconds:.0f} s: {outcome.note}".replace("|", "/")


def number(value: Published) -> str:
    """Three digits or so; thousands whole."""
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}" if value < 100_000 else f"{value:.3g}"
