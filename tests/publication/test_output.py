"""What [output] and several tables in one change in a publication: counts, columns, blanks, files, the page."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import SpecError, StrategyError, load_spec
from hdmm.publication.publish import Publication, publish
from hdmm.publication.spec import read_spec
from hdmm.publication.spec.tables import MOST_TABLES
from hdmm.reconstruct import nonnegative
from tests.support.spec_cases import SPEC, planned, prepared

WORDS = {"unbiased": "published as they are", "nonnegative": "none is below\n0,", "integers": "all are whole numbers"}


def published(folder: Path, output: str, text: str = SPEC) -> Publication:
    spec = load_spec(prepared(folder, text.replace('folder = "out"', f'folder = "out"\n{output}')))
    return publish(spec, planned(spec))


def rows(publication: Publication, name: str) -> list[dict[str, str]]:
    with open(publication.folder / "tables" / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", ["unbiased", "nonnegative", "integers"])
def test_counts_are_as_asked_and_pages_say_so(tmp_path: Path, kind: str) -> None:
    found = published(tmp_path, f'counts = "{kind}"')
    numbers = np.concatenate([table.estimate for table in found.tables])
    assert (numbers.min() < 0) == (kind == "unbiased")
    assert np.array_equal(numbers, np.rint(numbers)) == (kind == "integers")
    for table in found.tables:
        assert table.biased == (kind != "unbiased")
        assert ((table.lower <= table.estimate) & (table.estimate <= table.upper)).all()
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    assert {words: words in page for words in WORDS.values()} == {WORDS[each]: each == kind for each in WORDS}
    assert ("biased</strong>" in page) == (kind != "unbiased")
    said = json.loads((found.folder / "metadata.json").read_text(encoding="utf-8"))["counts"]
    assert said["kind"] == kind
    assert ("This makes" in said["meaning"]) == (kind != "unbiased")


@pytest.mark.parametrize("kind", ["nonnegative", "integers"])
def test_tables_agree(tmp_path: Path, kind: str) -> None:
    found = published(tmp_path, f'counts = "{kind}"')
    tables = {table.name: table for table in found.tables}
    by_sex = [
        tables[name].estimate.reshape(2, -1).sum(axis=1)
        for name in ("P12", "pairs_sex_age", "pairs_sex_smokes", "pairs_sex_income")
    ]
    everyone = dict(zip(tables["ages"].labels(), tables["ages"].estimate, strict=True))["0", "19"]
    for counts in by_sex:
        np.testing.assert_allclose(counts, by_sex[0], rtol=1e-9)
        assert counts.sum() == pytest.approx(everyone)


def test_a_table_of_pairs_is_a_table_per_pair(tmp_path: Path) -> None:
    found = published(tmp_path, "")
    names = [table.name for table in found.tables]
    assert {path.name for path in (found.folder / "tables").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("csv", "parquet")
    }
    listed = json.loads((found.folder / "metadata.json").read_text(encoding="utf-8"))["tables"]
    assert [file for table in listed for file in table["files"]] == [
        f"tables/{name}.{kind}" for name in names for kind in ("csv", "parquet")
    ]
    assert [table["asked_by"] for table in listed] == ["P12", *["pairs"] * 6, "ages"]
    assert list(rows(found, "pairs_age_smokes")[0])[:3] == ["age", "smokes", "estimate"]
    assert {(row["age_from"], row["age_to"]) for row in rows(found, "ages")} == {
        (str(low), str(high)) for low in range(20) for high in range(low, 20)
    }
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    assert all(f"<bdi>{table.title}</bdi></h2>" in page for table in found.tables)
    assert page.count('<table class="cross"') == 7


def test_cross_tabs_have_the_numbers_of_the_table(tmp_path: Path) -> None:
    found = published(tmp_path, 'counts = "integers"')
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    at = page.index("Table 5: pairs: age × smokes")
    body = page[at : page.index("</table>", at)]
    assert '<th scope="col" class="number" dir="auto">other</th>' in body
    line = body[body.index('<th scope="row" dir="auto">7</th>') :].partition("</tr>")[0]
    shown = [cell.partition(" ")[0] for cell in line.split('<td class="number">')[1:]]
    counts = found.tables[4].estimate.reshape(20, 3)[7]
    assert shown == [f"{count:,.0f}" for count in (*counts, counts.sum())]


def test_unreliable_counts_are_marked(tmp_path: Path) -> None:
    found = published(tmp_path, "flag = { relative_margin = 0.5 }")
    for table in found.tables:
        for row, read in zip(
            rows(found, table.name),
            pq.read_table(found.folder / "tables" / f"{table.name}.parquet").to_pylist(),
            strict=True,
        ):
            size = abs(read["estimate"])
            margin = max(read["upper"] - read["estimate"], read["estimate"] - read["lower"])
            assert (row["reliable"] == "yes") == read["reliable"] == (margin <= 0.5 * size)
            assert row["note"] == read["note"] in ("good", "fair", "rough", "may be 0")
            assert (row["note"] in ("good", "fair")) == read["reliable"]
    assert {row["reliable"] for row in rows(found, "ages")} == {"yes", "no"}


def test_suppressed_counts_are_blank_in_files_and_on_the_page(tmp_path: Path) -> None:
    found = published(tmp_path, "suppress = { relative_margin = 2 }")
    table = found.tables[4]
    blank = table.suppressed
    assert 0 < blank.sum() < len(table)
    read = pq.read_table(found.folder / "tables" / f"{table.name}.parquet").to_pylist()
    for row, other, gone in zip(rows(found, table.name), read, blank.tolist(), strict=True):
        for column in ("estimate", "lower", "upper"):
            assert (row[column] == "") == (other[column] is None) == gone
        assert float(row["stddev"]) > 0
        assert (row["note"] == "suppressed") == gone
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    at = page.index("Table 5: pairs: age × smokes, with")
    assert page[at : page.index("</table>", at)].count("– <span") == blank.sum() + table.totals.suppressed.sum()
    assert "Suppressed counts are not drawn." in page


def test_without_rules_files_have_the_columns_they_had(tmp_path: Path) -> None:
    assert list(rows(published(tmp_path, ""), "P12")[0]) == [
        "sex",
        "age",
        "estimate",
        "stddev",
        "lower",
        "upper",
    ]


def test_a_release_too_large_for_whole_numbers_is_refused_before_the_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonnegative, "MOST_CELLS", 100)
    with pytest.raises(StrategyError, match="Ask for nonnegative counts"):
        published(tmp_path, 'counts = "integers"')
    assert not (tmp_path / "budget.db").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "key", "says"),
    [
        ('counts = "rounded"', "output.counts", "integers"),
        ("counts = 1", "output.counts", ""),
        ("flag = true", "output.flag", ""),
        ("flag = { relative_margin = 0 }", "output.flag.relative_margin", ""),
        ("suppress = { margin = 3 }", "output.suppress.margin", "unknown"),
    ],
)
def test_wrong_keys_are_named(line: str, key: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(SPEC.replace('folder = "out"', line).encode(), Path("people.toml"))
    assert caught.value.key == key
    assert says in str(caught.value)


def test_names_of_parts_are_safe_and_different() -> None:
    domain = '"a b" = 2\n"a/b" = 2\n"../c" = 2\n'
    text = SPEC.replace('sex = ["M", "F"]', domain + 'sex = ["M", "F"]').replace("marginals = 2", "marginals = [0, 1]")
    text = text.replace('name = "ages"', 'name = "pairs_SEX"')
    names = [table.name for table in read_spec(text.encode(), Path("people.toml")).tables]
    assert names[1:6] == ["pairs_total", "pairs_a-b", "pairs_a-b_2", "pairs_-c", "pairs_sex_2"]
    assert len({name.casefold() for name in names}) == len(names)


def test_too_many_tables_in_one_are_refused() -> None:
    wide = "\n".join(f"a{i} = 2" for i in range(150))
    text = SPEC.replace('sex = ["M", "F"]', wide + '\nsex = ["M", "F"]')
    with pytest.raises(SpecError, match="List the sets of attributes") as caught:
        read_spec(text.encode(), Path("people.toml"))
    assert caught.value.key == "table[2].marginals"
    assert f"{MOST_TABLES:,}" in str(caught.value)
