"""Known counts in a specification: read, checked before anything is spent, reproduced, and marked."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hdmm import SpecError, load_spec, publish
from hdmm.apps.cli import run
from hdmm.publication.planning import make_plan, plan_for
from hdmm.publication.published import asked_tables, open_published
from hdmm.publication.spec import Spec
from tests.support.spec_cases import SPEC, people, prepared, write_spec

Captured = pytest.CaptureFixture[str]


def truth() -> dict[str, int]:
    """Rows by sex that are in the domain."""
    rows = people().to_pylist()
    kept = [row for row in rows if 0 <= row["age"] <= 19 and 0 <= row["income"] < 100]
    return {sex: sum(row["sex"] == sex for row in kept) for sex in ("M", "F")}


def known(text: str) -> str:
    return f"{SPEC}\n{text}\n"


def test_known_counts_are_published_as_they_are_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = truth()
    (tmp_path / "sexes.csv").write_text(f"sex,persons\nF,{counts['F']}\nM,{counts['M']}\n")
    prepared(tmp_path, known('[[known]]\nattributes = ["sex"]\ncounts = "sexes.csv"'))
    assert run(["plan", "people.toml", "--quiet"]) == 0
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    stated = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert stated["published_without_noise"] == [{"attributes": ["sex"], "rows": sum(counts.values())}]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Published without noise:</strong> counts by sex" in page
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    assert run(["report", "people.toml", "--xlsx", "--quiet"]) == 0
    guide = openpyxl.load_workbook(tmp_path / "out" / "report.xlsx")["Notes"]
    assert ("Without noise", "Counts by sex, and all that follows from them alone.") in guide.values
    table = pq.read_table(tmp_path / "out" / "tables" / "P12.parquet").to_pylist()
    for sex, count in counts.items():
        assert sum(row["estimate"] for row in table if row["sex"] == sex) == pytest.approx(count, abs=1e-6)


def test_a_release_is_asked_and_reported_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    total = sum(truth().values())
    prepared(tmp_path, known(f"[known]\ncounts = {total}"))
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["query", "out", "SELECT COUNT(*) FROM t", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert row == {
        "estimate": total, "stddev": 0.0, "lower": total, "upper": total, "reliable": True, "note": "good",
    }  # fmt: skip
    assert run(["report", "people.toml"]) == 0
    assert "counts of all rows" in (tmp_path / "out" / "report.html").read_text()
    text = (tmp_path / "people.toml").read_text()
    (tmp_path / "people.toml").write_text(text.replace(f"counts = {total}", f"counts = {total + 1}"))
    assert run(["report", "people.toml"]) == 1
    assert "other known counts" in capsys.readouterr().err


def test_counts_by_a_level_are_read_published_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a CSV file with the names of the groups, to the report, the metadata and questions in SQL."""
    monkeypatch.chdir(tmp_path)
    rows = [row for row in people().to_pylist() if 0 <= row["age"] <= 19 and 0 <= row["income"] < 100]
    young = sum(row["age"] < 10 for row in rows)
    text = known('[known]\nattributes = ["half"]\ncounts = "halves.csv"')
    halves = ", ".join(['"young"'] * 10 + ['"old"'] * 10)
    text = text.replace("last = 19 }", f"last = 19, levels = {{ half = [{halves}] }} }}")
    (tmp_path / "halves.csv").write_text(f"count,half\n{len(rows) - young},old\n{young},young\n")
    prepared(tmp_path, text)
    assert run(["plan", "people.toml", "--quiet"]) == 0
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    stated = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert stated["published_without_noise"] == [{"attributes": ["half"], "rows": len(rows)}]
    assert "Published without noise:</strong> counts by half" in (tmp_path / "out" / "report.html").read_text()
    (answer,) = asked_tables(open_published(tmp_path / "out"), "SELECT COUNT(*) FROM t WHERE age < 10", level=None)
    assert (answer.estimate[0], answer.stddev[0]) == (young, 0.0)
    assert run(["report", "people.toml"]) == 0
    (tmp_path / "halves.csv").write_text("count,half\n3,old\n4,middle\n")
    with pytest.raises(SpecError, match="'middle' is not a value of half"):
        load_spec(tmp_path / "people.toml")


def test_merged_attributes_take_known_counts_of_their_parts(tmp_path: Path) -> None:
    base = SPEC.replace("sex = [", 'white = ["n", "y"]\nblack = ["n", "y"]\nasian = ["n", "y"]\nsex = [').replace(
        "GROUP BY sex, age", "WHERE (white = 'y' AND black = 'y') OR (white = 'y' AND asian = 'y') GROUP BY sex, age"
    )
    base = base.replace('[[table]]\nname = "pairs"\nmarginals = 2\nweight = 2\n', "")

    def read(text: str) -> Spec:
        return load_spec(write_spec(tmp_path, f"{base}\n{text}"))

    plain = read("")
    assert "black+asian" in plain.domain.names
    spec = read('[known]\nattributes = ["asian", "black", "white"]\ncounts = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]')
    assert spec.known[0].counts.tolist() == [[1, 5, 3, 7], [2, 6, 4, 8]]
    assert read("[known]\ncounts = 36").known[0].total == 36
    (one,) = read('[known]\nattributes = ["black"]\ncounts = [1, 2]').known
    assert (one.counts.tolist(), one.product.queries) == ([1, 2], 2)
    assert one.over(one.axes).tolist() == [1, 0, 2, 0]  # black, then asian, in one attribute


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[known]\nattributes = ["sex"]\ncounts = [1, 2, 3]', "line 43, known.counts: .*shape"),
        ('[known]\nattributes = ["sex"]\ncounts = [1, -2]', "negative"),
        ('[known]\nattributes = ["sex"]\ncounts = [1, 2.5]', "whole numbers"),
        (
            '[known]\nattributes = ["sexes"]\ncounts = [1, 2]',
            "known.attributes: .*not in the domain.*Did you mean 'sex'",
        ),
        ('[known]\nattributes = ["sex"]', "counts"),
        ("[known]\ncounts = true", "a number, a list of numbers, or the path"),
        ('[known]\ncounts = "nowhere.csv"', "nowhere.csv, line 1: There is no such file"),
        ('[[known]]\nattributes = ["sex"]\ncounts = [1, 2]\n[[known]]\ncounts = 4', "line 41, known: .*totals differ"),
        ('[known]\nattributes = ["sex"]\ncounts = "a.csv"', "They must be sex, count"),
        ('[known]\nattributes = ["sex"]\ncounts = "b.csv"', "b.csv, line 3: 'X' is not a value of sex"),
        ('[known]\nattributes = ["sex"]\ncounts = "c.csv"', "c.csv, line 3: '-4' is not a count"),
        ('[known]\nattributes = ["sex"]\ncounts = "d.csv"', "no count for 1 of 2"),
        ('[known]\nattributes = ["sex"]\ncounts = "e.csv"', "line 4: There are two rows for one combination"),
        ('[known]\nattributes = ["sex"]\ncounts = "f.csv"', "not text in UTF-8"),
    ],
)
def test_known_counts_that_do_not_fit_are_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    files = {
        "a": "age,count\n1,2\n",
        "b": "sex,count\nM,3\nX,4\n",
        "c": "sex,count\nM,3\nF,-4\n",
        "d": "sex,count\nM,3\n",
        "e": "sex,count\nM,3\nF,4\nF,4\n",
    }
    for name, content in files.items():
        (tmp_path / f"{name}.csv").write_text(content)
    (tmp_path / "f.csv").write_bytes("sex,count\nM\xe4,3\n".encode("latin-1"))
    with pytest.raises(SpecError, match=words):
        load_spec(write_spec(tmp_path, known(text)))


def test_a_file_of_counts_is_not_measured_by_what_is_declared(tmp_path: Path) -> None:
    """Values are not listed where there cannot be a row for each."""
    (tmp_path / "counts.csv").write_text("wealth,count\n1,2\n")
    text = known('[known]\nattributes = ["wealth"]\ncounts = "counts.csv"')
    text = text.replace("marginals = 2", 'marginals = [["sex"]]').replace(
        "[domain]\n", "[domain]\nwealth = { first = 1, last = 1_000_000_000_000 }\n"
    )
    with pytest.raises(SpecError, match="no count for 999,999,999,999 of 1,000,000,000,000 combinations"):
        load_spec(write_spec(tmp_path, text))


def test_a_plan_beside_other_known_counts_is_made_again(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    plain = load_spec(path)
    made = make_plan(plain).plan
    assert plan_for(plain).operator == made.operator
    spec = load_spec(write_spec(tmp_path, path.read_text() + "\n[known]\ncounts = 400\n"))
    assert [k.total for k in plan_for(spec).known] == [400]
    other = load_spec(write_spec(tmp_path, path.read_text().replace("counts = 400", "counts = 401")))
    assert publish(other, plan_for(other)).release.known[0].total == 401  # a plan serves any counts


def test_counts_that_cannot_be_made_beside_known_ones_are_refused_before_the_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    counts = truth()
    two = f'[[known]]\nattributes = ["sex"]\ncounts = [{counts["M"]}, {counts["F"]}]\n'
    two += f'[[known]]\nattributes = ["income"]\ncounts = [{sum(counts.values())}, 0, 0]\n'
    two += f'[[known]]\nattributes = ["age"]\ncounts = [{sum(counts.values())}{", 0" * 19}]'
    text = known(two).replace('folder = "out"', 'folder = "out"\ncounts = "integers"')
    text = text.replace('[[table]]\nname = "ages"\nranges = ["age"]\n', "")
    prepared(tmp_path, text)
    assert run(["plan", "people.toml"]) == 0
    assert (
        "would be refused. Beside known counts, whole numbers are made if these are one table"
        in capsys.readouterr().out
    )
    assert run(["release", "people.toml", "--yes"]) == 1
    assert "whole numbers are made if these are one table" in capsys.readouterr().err
    assert not (tmp_path / "budget.db").exists()
