"""What a notebook shows: cards without anything private or executable, tables by name, frames, and progress."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hdmm
from hdmm import Bins, Domain, Identity, Ledger, Prefix, PureDP, Table, Workload
from hdmm.answers.margins import Reliability
from hdmm.base.notebook import MOST_SHOWN, Card, NotebookValue, html
from hdmm.base.steps import NotebookLine, in_notebook, shown_steps
from hdmm.describe.table_column import named_columns
from hdmm.publication.files import write_csv, write_parquet
from hdmm.select.opt_hdmm import Candidate
from hdmm.strategy.form import NoForm

HOSTILE = "<script>alert('x')</script>"
SECRET = 7_654_321
DOMAIN = Domain({f"sex {HOSTILE}": ["M", HOSTILE], "income": Bins([0, 10, 50])})
TABLES = {
    f"both {HOSTILE}": Workload.marginals(DOMAIN, k=2),
    "incomes": Workload.product(DOMAIN, income=Prefix()),
    "marginals": Workload.marginals(DOMAIN, k=1),
}


@pytest.fixture(scope="module")
def plan() -> hdmm.Plan:
    return hdmm.optimize(TABLES, restarts=1)


@pytest.fixture(scope="module")
def release(plan: hdmm.Plan, tmp_path_factory: pytest.TempPathFactory) -> hdmm.Release:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "budget.db", dataset=HOSTILE, cap=PureDP(2))
    return plan.measure(hdmm.from_array(DOMAIN, np.full(DOMAIN.shape, SECRET)), PureDP(1), ledger=ledger)


def test_cards_escape_all_they_show(plan: hdmm.Plan, release: hdmm.Release, tmp_path: Path) -> None:
    answers = release.answer(TABLES)
    ledger = Ledger(tmp_path / "budget.db", dataset=HOSTILE, cap=PureDP(2))
    ledger.debit(PureDP(1), HOSTILE)
    values = [DOMAIN, TABLES["marginals"], plan, release, answers, answers["marginals"], ledger]
    for value in [*values, hdmm.from_array(DOMAIN, np.zeros(DOMAIN.shape, dtype=int))]:
        text = value._repr_html_()
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text, type(value)
        assert "<script" not in text
    title = html(Card(HOSTILE, {HOSTILE: HOSTILE}, [HOSTILE], [[HOSTILE]]))
    assert title.count("&lt;script&gt;") == 5


def test_a_card_has_nothing_that_a_file_cannot_hold() -> None:
    assert html(Card("a\ud800b\x00")).count("\ufffd") == 2


def test_the_card_of_data_has_none_of_its_contents(tmp_path: Path) -> None:
    """Security O3: neither counts nor rows nor labels, and the same for neighbouring data."""
    cards = set()
    for rows in (["M,5"], ["M,5", "F,49"] * 3):
        path = tmp_path / f"{len(rows)}.csv"
        path.write_text("\n".join(["sex,income", *rows]))
        domain = Domain({"sex": ["M", "F"], "income": Bins([0, 10, 50])})
        cards.add(hdmm.from_table(domain, path)._repr_html_())
    (text,) = cards
    assert "sex, income" in text
    array = hdmm.from_array(DOMAIN, np.full(DOMAIN.shape, SECRET))
    assert not any(str(number) in array._repr_html_().replace(",", "") for number in (SECRET, 4 * SECRET))


def test_a_card_shows_the_first_rows_and_counts_the_others() -> None:
    domain = Domain({"age": 115})
    text = Workload.marginals(Domain({f"a{k}": 2 for k in range(30)}), k=1)._repr_html_()
    assert text.count("<tr>") == MOST_SHOWN + 1
    assert "… 10 more" in text
    assert "0, 1, 2 … 114" in domain._repr_html_()


def test_the_card_of_a_ledger_says_what_is_left(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(2))
    ledger.debit(PureDP("0.5"), "ages by sex")
    text = ledger._repr_html_()
    for words in ("Cap: ", "ε = 2", "ε = 1.5", "ages by sex", "declare"):
        assert words in text
    assert str(tmp_path) not in text


def test_every_value_of_a_notebook_has_a_card() -> None:
    names = ["Domain", "Workload", "Plan", "Release", "Answers", "Table", "Data", "Ledger"]
    assert all(issubclass(getattr(hdmm, name), NotebookValue) for name in names)


def test_answers_without_variances_have_a_card() -> None:
    w, counts = Workload.marginals(DOMAIN, k=1), np.arange(4.0)
    answers = hdmm.Answers(w, counts, counts, NoForm(DOMAIN, (), "a mechanism"), hdmm.Noise.LAPLACE)
    assert "<td" in answers._repr_html_()


def test_a_suppressed_count_is_not_shown() -> None:
    number = np.array([1.0, 1234.0])
    table = Table("t", "t", named_columns("a"), lambda: [("x",), ("y",)], number, number, number - 9, number + 9, 0.95)
    hidden = replace(table, reliability=Reliability(suppress=1.0))
    for shown in (str(hidden), hidden._repr_html_()):
        assert "1,234" in shown
        assert "10.0" not in shown


def test_answers_by_name(release: hdmm.Release) -> None:
    answers = release.answer(TABLES)
    assert [table.name for table in answers.tables()] == list(TABLES)
    incomes = answers["incomes"]
    assert list(incomes.labels()) == [("≤ [0, 10)",), ("≤ [10, 50)",)]
    alone = release.answer(TABLES["incomes"]).tables()[0]
    for one, other in zip(incomes.numbers, alone.numbers, strict=True):
        np.testing.assert_allclose(one, other)
    with pytest.raises(hdmm.WorkloadError, match=r"no table 'income'\. Did you mean 'incomes'\? The tables are: .both"):
        answers["income"]


def test_a_named_workload_of_several_products_is_one_table(release: hdmm.Release) -> None:
    table = release.answer(TABLES)["marginals"]
    assert table.attributes == DOMAIN.names
    assert list(table.labels()) == [("M", None), (HOSTILE, None), (None, "[0, 10)"), (None, "[10, 50)")]
    each = release.answer(TABLES["marginals"]).tables()
    np.testing.assert_allclose(table.estimate, np.concatenate([one.estimate for one in each]))
    np.testing.assert_allclose(table.lower, np.concatenate([one.lower for one in each]))


def test_answers_to_one_workload_have_the_names_of_their_attributes(release: hdmm.Release) -> None:
    answers = release.answer(TABLES["marginals"] + TABLES["incomes"])
    assert len(answers[DOMAIN.names[0]]) == 2
    with pytest.raises(hdmm.WorkloadError, match="2 tables are named 'income'"):
        answers["income"]
    assert len(answers.tables()) == 3


@pytest.mark.parametrize("rule", [Reliability(), Reliability(suppress=1e-9, written=True)], ids=["plain", "suppressed"])
def test_frames_are_what_files_hold(release: hdmm.Release, rule: Reliability) -> None:
    table = replace(release.answer(TABLES)["marginals"], reliability=rule)
    text, parquet = io.BytesIO(), io.BytesIO()
    write_csv(table, text)
    write_parquet(table, parquet)
    header, *rows = csv.reader(text.getvalue().decode().splitlines())
    arrow, pandas, polars = table.to_arrow(), table.to_pandas(), table.to_polars()
    assert arrow == pq.read_table(parquet)
    assert header == arrow.column_names == list(pandas.columns) == polars.columns
    assert arrow.to_pylist() == polars.to_dicts()
    assert len(rows) == len(pandas) == len(table)
    for k, name in enumerate(header):
        if name in ("estimate", "lower", "upper"):
            written = [float(row[k]) if row[k] else np.nan for row in rows]
            np.testing.assert_allclose(pandas[name].astype(float), written, atol=1)
            assert pandas[name].isna().all() == (rule.suppress is not None)


def test_frames_of_answers_name_their_tables(release: hdmm.Release) -> None:
    answers = release.answer(TABLES)
    frame = answers.to_pandas(level=0.9)
    assert list(frame.columns[:3]) == ["table", *DOMAIN.names]
    assert list(dict.fromkeys(frame["table"])) == list(TABLES)
    narrow = frame[frame["table"] == "incomes"]
    np.testing.assert_allclose(narrow["lower"], answers.tables(0.9)[1].lower)
    assert answers.to_polars(0.9).to_dicts() == answers.to_arrow(0.9).to_pylist()


@pytest.mark.parametrize(
    ("module", "call", "message"),
    [
        ("pandas", lambda t: t.to_pandas(), "Data frames of pandas need pandas, which is not installed. Run pip"),
        ("polars", lambda t: t.to_polars(), "Data frames of polars need polars, which is not installed. Run pip"),
        ("altair", lambda t: t.plot(), r"Plots need altair, which is not installed. Run pip install 'hdmm\[plots\]'."),
    ],
)
def test_a_missing_library_is_named(
    module: str,
    call: Callable[[Table], object],
    message: str,
    release: hdmm.Release,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = release.answer(TABLES)["incomes"]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(hdmm.PackageError, match=message):
        call(table)


class Cell:
    """Stands for the area below a cell: what each display shows at last, and how often it was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import IPython.display

        self.texts: dict[str, list[str]] = {}
        monkeypatch.setattr(IPython.display, "display", self.display)
        monkeypatch.setattr(IPython.display, "update_display", self.display)
        monkeypatch.setattr("hdmm.base.steps.in_notebook", lambda: True)
        monkeypatch.setattr("hdmm.data.engines.engine.in_notebook", lambda: True)
        monkeypatch.setattr("hdmm.measure.optimize.in_notebook", lambda: True)

    def display(self, data: dict[str, str], *, raw: bool, display_id: str) -> None:
        assert raw
        self.texts.setdefault(display_id, []).append(data["text/plain"])


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    cell = Cell(monkeypatch)
    heard: list[Candidate] = []
    w = Workload.product(Domain({"age": 8}), age=Identity())
    hdmm.optimize(w, restarts=1, listener=lambda candidate, best: heard.append(candidate))
    (texts,) = cell.texts.values()
    assert texts[0] == "Selecting a strategy"
    assert "× better than noise per cell; interrupt the kernel" in texts[1]
    assert texts[-1] == ""
    assert heard
    hdmm.optimize(w, restarts=1, progress=False)
    assert len(cell.texts) == 1
    assert capfd.readouterr() == ("", "")


def test_steps_in_a_notebook_are_written_once_per_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch)
    with shown_steps("Rounding", 1000, long=True) as step:
        for _ in range(1000):
            step()
    (texts,) = cell.texts.values()
    assert texts[1] == "Rounding: 0 %"
    assert texts[-2:] == ["Rounding: 100 %", ""]
    assert len(texts) == 103
    with shown_steps("Rounding", 1000, long=False) as step:
        step()
    assert len(cell.texts) == 1


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option", "ignore:fetch_arrow_table:DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"id": "who", "max_rows_per_id": 1}])
@pytest.mark.parametrize("wanted", [[["a"]], [["a"], ["b"]]])
def test_the_number_of_rows_leaves_no_line(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], wanted: list[list[str]]
) -> None:
    """O3: a database is asked once or several times, depending on it; what is left below the cell is the same."""
    cell, domain = Cell(monkeypatch), Domain({"a": 2000, "b": 2000})
    left: list[int] = []
    for rows in (1, 4000, 4001):
        column = [0] * rows
        table = ibis.memtable(pa.table({"a": column, "b": column, "who": list(range(rows))}))
        list(hdmm.from_table(domain, table, **options).marginals(wanted))
        assert all(texts[-1] == "" for texts in cell.texts.values())
        left.append(len(cell.texts))
        cell.texts.clear()
    assert left == [left[0]] * 3


def test_a_script_is_no_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    import ipykernel.zmqshell

    assert ipykernel.zmqshell
    assert not in_notebook()
    hdmm.optimize(Workload.marginals(Domain({"age": 8}), k=1), restarts=1)
    assert capfd.readouterr() == ("", "")


def test_a_line_is_written_if_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(monkeypatch)
    line = NotebookLine("a")
    line.write("a")
    line.write("b")
    line.close()
    assert list(cell.texts.values()) == [["a", "b", ""]]
