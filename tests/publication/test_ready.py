"""Between the command and the debit everything is examined once, and what changes meanwhile is noticed in time."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import hdmm.data.sources.table_files as files
from hdmm import (
    BudgetError,
    DataError,
    FileError,
    Ledger,
    LedgerError,
    PrivacyError,
    PureDP,
    Spec,
    from_array,
    from_table,
    load_spec,
)
from hdmm.apps.cli import run
from hdmm.measure.measure import measure_prepared
from hdmm.privacy.store import Store
from hdmm.publication import preflight as preflight_module
from hdmm.publication import publish as folder_module
from hdmm.publication.forecast import as_measured
from hdmm.publication.preflight import Preflight, preflight
from hdmm.publication.publish import publish_ready
from hdmm.strategy.lattice import Lattice
from tests.support.spec_cases import SPEC, people, planned, write_csv, write_spec

WITH_IDS = SPEC.replace("[domain]", 'id = "who"\nmax_rows_per_id = 2\n\n[domain]')


def released(folder: Path, kind: str, text: str = SPEC) -> Spec:
    """A specification with its data and a plan."""
    if kind == "csv":
        write_csv(people(), folder / "people.csv")
    else:
        pq.write_table(people(), folder / "people.parquet")
    spec = load_spec(write_spec(folder, text.replace("people.csv", f"people.{kind}")))
    planned(spec).save(spec.plan.folder)
    return spec


def counting(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], Counter[str]]:
    """How often each step was taken by now, and by the debit."""
    now, then = Counter[str](), Counter[str]()

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: object, **named: object) -> object:
            now[name] += 1
            return call(*given, **named)

        return counted

    debit = Ledger.debit

    def debited(*given: object, **named: object) -> object:
        then.update(now)
        return debit(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Lattice, "of", noted("lattice", Lattice.of))
    monkeypatch.setattr(files, "csv_header", noted("columns", files.csv_header))
    monkeypatch.setattr(pq, "read_schema", noted("columns", pq.read_schema))
    monkeypatch.setattr(Store, "_audited", noted("audit", Store._audited))
    for module in (folder_module, preflight_module):
        monkeypatch.setattr(module, "check_output", noted("output", preflight_module.check_output))
    monkeypatch.setattr(Ledger, "debit", debited)
    return now, then


@pytest.mark.parametrize("account", ["opened before", "opened now", "no ledger yet"])
@pytest.mark.parametrize(("kind", "text"), [("csv", SPEC), ("parquet", SPEC), ("csv", WITH_IDS)])
def test_a_release_prepares_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, text: str, account: str
) -> None:
    spec = released(tmp_path, kind, text)
    if account != "no ledger yet":
        name = spec.data.dataset if account == "opened before" else "others"
        Ledger(spec.ledger.path, dataset=name, cap=spec.ledger.cap).debit(PureDP(1), "before")
    now, then = counting(monkeypatch)
    assert run(["release", str(spec.path), "--yes", "--quiet"]) == 0
    # The folder is looked at before anyone is asked or a plan is made, and again under its lock.
    assert then == {"lattice": 1, "columns": 1, "audit": 1, "output": 2}
    assert now["lattice"] == 1


def test_a_plan_is_rounded_once_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = released(tmp_path, "csv")
    _, then = counting(monkeypatch)
    folder_module.publish(spec, planned(spec))
    assert then == {"lattice": 1, "columns": 1, "audit": 1, "output": 2}


@pytest.fixture
def ready(tmp_path: Path) -> Preflight:
    spec = released(tmp_path, "csv")
    Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap)
    return preflight(spec)


def spent(spec: Spec) -> Fraction:
    return Ledger(spec.ledger.path, dataset=spec.data.dataset).spent


def test_a_column_that_was_renamed_meanwhile_costs_nothing(ready: Preflight) -> None:
    source = ready.spec.path.with_name("people.csv")
    source.write_text(source.read_text().replace("sex", "gender", 1))
    with pytest.raises(DataError, match="Column 'sex' is not in the data"):
        publish_ready(ready, planned(ready.spec))
    assert spent(ready.spec) == 0


def test_a_file_that_is_gone_costs_nothing(ready: Preflight) -> None:
    ready.spec.path.with_name("people.csv").unlink()
    with pytest.raises(DataError):
        publish_ready(ready, planned(ready.spec))
    assert spent(ready.spec) == 0


def test_a_file_that_grew_is_released(ready: Preflight) -> None:
    with ready.spec.path.with_name("people.csv").open("a") as file:
        file.write("M,1,1,20,1\n")
    publish_ready(ready, planned(ready.spec))
    assert spent(ready.spec) == Fraction("0.5")


def test_what_was_spent_meanwhile_counts(ready: Preflight) -> None:
    Ledger(ready.spec.ledger.path, dataset=ready.spec.data.dataset).debit(PureDP("3.9"), "another process")
    with pytest.raises(BudgetError, match=r"0\.1 left"):
        publish_ready(ready, planned(ready.spec))
    assert spent(ready.spec) == Fraction("3.9")


def test_a_ledger_put_back_meanwhile_is_refused(ready: Preflight) -> None:
    database, dataset = ready.spec.ledger.path, ready.spec.data.dataset
    pair = (database, database.with_name(f"{database.name}.head"))
    for file in pair:
        shutil.copy(file, f"{file}.older")
    Ledger(database, dataset=dataset).debit(PureDP(1), "forgotten")
    later = preflight(ready.spec)
    for file in pair:
        shutil.copy(f"{file}.older", file)
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        publish_ready(later, planned(ready.spec))
    assert spent(ready.spec) == 0


def test_an_account_that_was_opened_meanwhile_is_the_one_that_pays(tmp_path: Path) -> None:
    spec = released(tmp_path, "csv")
    Ledger(spec.ledger.path, dataset="others", cap=PureDP(1))
    ready = preflight(spec)
    Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap).debit(PureDP("3.9"), "another process")
    with pytest.raises(BudgetError, match=r"0\.1 left"):
        publish_ready(ready, planned(spec))


def test_a_folder_that_was_published_meanwhile_stays(ready: Preflight) -> None:
    publish_ready(preflight(ready.spec), planned(ready.spec))
    with pytest.raises(FileError, match="holds an earlier publication"):
        publish_ready(ready, planned(ready.spec))
    assert spent(ready.spec) == Fraction("0.5")


def test_what_was_prepared_for_fewer_rows_or_a_smaller_unit_is_not_measured(ready: Preflight) -> None:
    prepared = as_measured(ready.spec, planned(ready.spec))
    ledger = Ledger(ready.spec.ledger.path, dataset=ready.spec.data.dataset)
    more = from_array(ready.spec.domain, [0] * ready.spec.domain.size, rows_bound=2 * prepared.rows_bound)
    with pytest.raises(DataError, match="Prepare it for as many"):
        measure_prepared(prepared, more, ledger=ledger, purpose="too many rows")
    persons = from_table(ready.spec.domain, people(), id="who", max_rows_per_id=2)
    with pytest.raises(PrivacyError, match="keeps up to 2 rows of a person, but the unit protects 1"):
        measure_prepared(prepared, persons, ledger=ledger, purpose="too small a unit")
    assert ledger.spent == 0
