"""Nothing is published that the ledger did not pay for (security L7)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
import hdmm.privacy.ledger as ledger_module
from hdmm import (
    ZCDP,
    ApproxDP,
    Domain,
    GaussianDP,
    Ledger,
    LedgerError,
    PureDP,
    Release,
    Spec,
    Strategy,
    StrategyError,
    Unit,
    combine,
    from_array,
    load_release,
    load_spec,
)
from hdmm.apps.cli import run
from hdmm.apps.studio.spec_file import StudioFile
from hdmm.apps.studio.work import publish_kept, write_synthetic_rows
from hdmm.base.exceptions import HdmmError, NoiseError
from hdmm.matrix import Dense, Eye, PIdentity
from hdmm.measure.measure import measure
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.ledger import Receipt
from hdmm.publication.preflight import load_verified
from hdmm.publication.publish import publish, resume, rewrite_report
from hdmm.publication.spec.origin import open_data
from hdmm.strategy.blocks import Block
from tests.support.effort import examples
from tests.support.families import FAMILIES, strategies
from tests.support.spec_cases import SPEC, planned, prepared

Captured = pytest.CaptureFixture[str]
Way = Callable[[Spec], object]
DATASET = "people-2026"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    found = load_spec(prepared(folder))
    publish(found, planned(found))
    publish(found.redirected(None, folder / "second"), planned(found))
    return folder


@pytest.fixture
def spec(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """A publication with its ledger, in a folder of its own."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return load_spec("people.toml")


BY_SPEC: dict[str, list[str]] = {
    "report": ["report", "people.toml"],
    "registry": ["report", "people.toml", "--registry", "--xlsx"],
    "resume": ["release", "people.toml", "--resume"],
}
BY_FOLDER: dict[str, list[str]] = {
    "rows": ["rows", "out"],
    "combine": ["combine", "second", "out", "--output", "both"],
    "combine with tables": ["combine", "second", "out", "--output", "both", "--spec", "people.toml", "--same-rows"],
    "since": ["report", "people.toml", "--output", "second", "--since", "out"],
    "studio rows": ["rows"],
    "studio resume": ["resume"],
}
WAYS = BY_SPEC | BY_FOLDER  # all that publish from a release: see test_whoever_reads_a_release_is_listed
STUDIO = {"rows": write_synthetic_rows, "resume": publish_kept}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[*BY_SPEC, "studio resume"])
def spec_way(request: pytest.FixtureRequest) -> str:
    """A way that compares the release with the whole specification first."""
    return request.param


def done(way: str, capsys: Captured) -> str | None:
    """What a command that publishes from the release says when it refuses; None if it publishes."""
    if not way.startswith("studio"):
        code = run(WAYS[way])
        assert code in (0, 4)
        return capsys.readouterr().err if code else None
    file = StudioFile(Path("people.toml"), {})
    heard, server = Pipe(duplex=False)
    publishing: Any = STUDIO[WAYS[way][0]]
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGHUP)}
    try:  # in a process of its own, it ignores these
        publishing(file, file.snapshot().digest, *([False] if way == "studio resume" else []), server)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    said = json.loads(heard.recv_bytes())
    return None if said["state"] == "done" else f"error: {said['message']}"


def told(way: str, capsys: Captured) -> str:
    """What it says when it refuses; nothing is written."""
    if "resume" in way:
        aside()
    before = written()
    said = done(way, capsys)
    assert said is not None
    assert written() == before
    assert said.startswith("error: Nothing is published from ")
    return said


def named_by(way: str) -> str:
    """What names the ledger."""
    return "--ledger" if way in ("rows", "combine") else "[ledger] of people.toml"


def aside() -> None:
    """The publication as a run leaves it that failed after it had measured."""
    if os.path.exists("out"):
        os.rename("out", "out.unpublished")
        for name in ("metadata.json", "datapackage.json", "report.html", "tables"):
            path = Path("out.unpublished") / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def written() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def edit(change: Callable[[dict[str, Any]], object]) -> None:
    path = Path("out/release/release.json")
    envelope = json.loads(path.read_text())
    change(envelope["content"])
    path.write_text(json.dumps(envelope))


def saved(release: Release) -> None:
    """Another release in the place of the published one."""
    shutil.rmtree("out/release")
    release.save("out/release")


def with_receipt(release: Release, receipt: Receipt | None) -> Release:
    return replace(release, parts=(replace(release.parts[0], receipt=receipt),))


def measured(spec: Spec, ledger: Ledger | None = None, **more: Any) -> Release:
    return planned(spec).measure(open_data(spec), more.pop("privacy", spec.privacy), ledger=ledger, **more)


def opened() -> Ledger:
    return Ledger("budget.db", dataset=DATASET)


def test_what_was_paid_is_published_again_and_again(spec: Spec) -> None:
    """The same numbers: it costs nothing, from a copy too."""
    shutil.copytree("out/release", "copy/release")
    shutil.copytree("out/plan", "copy/plan")
    rewrite_report(spec)
    aside()
    first = resume(spec)
    os.rename("copy", "out.unpublished")
    again = resume(spec, force=True)
    assert first.release.receipt == again.release.receipt
    assert sum(entry.kind == "debit" for entry in opened().entries()) == 2  # `out` and `second`


def test_a_release_without_a_receipt(spec: Spec, way: str, capsys: Captured) -> None:
    edit(lambda content: content.update(receipt=None))
    assert "has no receipt" in told(way, capsys)


def test_a_release_that_was_measured_without_a_ledger(spec: Spec, way: str, capsys: Captured) -> None:
    saved(measured(spec))
    assert "measured without a ledger" in told(way, capsys)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("amount", "1", "different amount"),
        ("balance", "4", "different balance"),
        ("timestamp", "2020-01-01T00:00:00+00:00", "different timestamp"),
        ("parameter", "rho", "different parameter"),
        ("hash", "0" * 64, "does not hold the debit of receipt 3"),
        ("sequence", 2, "does not hold the debit of receipt 2"),
        ("sequence", 4, "does not hold the debit of receipt 4"),
        ("dataset", "firms-2026", "for dataset 'firms-2026'"),
    ],
)
def test_an_edited_receipt(spec: Spec, way: str, capsys: Captured, key: str, value: object, words: str) -> None:
    edit(lambda content: content["receipt"].update({key: value}))
    assert words in told(way, capsys)


def test_a_record_that_is_no_debit(spec: Spec, way: str, capsys: Captured) -> None:
    """The declaration of the account has a hash in the chain too."""
    declared = opened().entries()[1]
    edit(lambda content: content["receipt"].update(sequence=2, hash=declared.hash, amount="4", balance="4"))
    assert "does not hold the debit of receipt 2" in told(way, capsys)


def test_another_datasets_receipt(spec: Spec, spec_way: str, capsys: Captured) -> None:
    other = Ledger("budget.db", dataset="firms-2026", cap=PureDP(4))
    saved(measured(spec, other))
    assert "for dataset 'firms-2026'" in told(spec_way, capsys)


def test_another_datasets_receipt_under_this_name(spec: Spec, way: str, capsys: Captured) -> None:
    other = measured(spec, Ledger("budget.db", dataset="firms-2026", cap=PureDP(4)))
    saved(other)
    edit(lambda content: content["receipt"].update(dataset=DATASET))
    assert "different dataset" in told(way, capsys)


def test_a_specification_of_another_dataset(spec: Spec, spec_way: str, capsys: Captured) -> None:
    Path("people.toml").write_text(Path("people.toml").read_text().replace('"people-2026"', '"firms-2026"'))
    assert "for dataset 'people-2026', but people.toml says 'firms-2026'" in (said := told(spec_way, capsys))
    assert "Write the dataset that it was measured on" in said


def test_a_ledger_put_back_from_a_backup(spec: Spec, way: str, capsys: Captured) -> None:
    for name in ("budget.db", "budget.db.head"):
        shutil.copy(name, f"backup-{name}")
    publish(spec, planned(spec), force=True)
    for name in ("budget.db", "budget.db.head"):
        shutil.copy(f"backup-{name}", name)
    said = told(way, capsys)
    assert "does not hold the debit of receipt 5. It was rolled back" in said
    assert "docs/reference/ledger.md" in said
    opened().debit(PureDP("0.5"), "spent otherwise meanwhile")  # the same number, another record
    assert "does not hold the debit of receipt 5" in told(way, capsys)


def test_a_release_can_be_charged_again_after_a_restore(spec: Spec) -> None:
    """What docs/reference/ledger.md says to do."""
    for name in ("budget.db", "budget.db.head"):
        os.unlink(name)
    ledger = Ledger("budget.db", dataset=DATASET, cap=PureDP(4))
    release = load_release("out/release")
    with pytest.raises(LedgerError):
        release.verify(ledger)
    paid = release.charged_again(ledger, "restored: tables of 3 March")
    assert ledger.spent == Fraction(1, 2)
    saved(paid)
    rewrite_report(spec)
    assert load_release("out/release").receipt == paid.receipt
    np.testing.assert_array_equal(np.concatenate(paid.measurements), np.concatenate(release.measurements))


def test_a_ledger_that_was_moved(spec: Spec, way: str, capsys: Captured) -> None:
    os.mkdir("kept")
    for name in ("budget.db", "budget.db.head"):
        os.rename(name, f"kept/{name}")
    said = told(way, capsys)
    assert f"{named_by(way)} names budget.db, which does not exist" in said
    assert "If the ledger was moved, write its path there" in said
    assert not os.path.exists("budget.db")
    if named_by(way) == "--ledger":
        assert run([*WAYS[way], "--ledger", "kept/budget.db"]) == 0
    else:
        Path("people.toml").write_text(Path("people.toml").read_text().replace('"budget.db"', '"kept/budget.db"'))
        assert done(way, capsys) is None


@pytest.mark.parametrize("account", [DATASET, "firms-2026"])
def test_another_ledger(spec: Spec, way: str, capsys: Captured, account: str) -> None:
    for name in ("budget.db", "budget.db.head"):
        os.unlink(name)
    Ledger("budget.db", dataset=account, cap=PureDP(4)).debit(PureDP("0.5"), "tables P12, pairs, ages")
    said = told(way, capsys)
    assert ("does not hold the debit" if account == DATASET else "has no account for dataset 'people-2026'") in said
    assert f"{named_by(way)} names budget.db" in said


def test_a_ledger_that_cannot_be_trusted(spec: Spec, way: str, capsys: Captured) -> None:
    os.unlink("budget.db.head")
    assert "head is missing" in told(way, capsys)


# One debit pays for one measurement


def test_a_receipt_does_not_pay_for_another_release(spec: Spec, spec_way: str, capsys: Captured) -> None:
    """Of the same plan and guarantee, over more rows per person: nothing but the scales and the unit differ."""
    paid = load_release("out/release")
    other = measured(spec, unit=Unit(3))
    with pytest.raises(LedgerError, match=r"Receipt 3 of .* paid for another release"):
        with_receipt(other, paid.receipt).verify(opened())
    cells = measure(Strategy.identity(spec.domain), open_data(spec), spec.privacy, ledger=None)
    with pytest.raises(LedgerError, match="paid for another release"):
        with_receipt(cells, paid.receipt).verify(opened())
    less = with_receipt(measured(spec, privacy=PureDP("0.25")), paid.receipt)
    with pytest.raises(LedgerError, match="paid for another release"):
        less.verify(opened())
    saved(less)
    Path("people.toml").write_text(Path("people.toml").read_text().replace('epsilon = "0.5"', 'epsilon = "0.25"'))
    assert "paid for another release" in told(spec_way, capsys)


def test_a_debit_for_something_else_pays_for_no_release(spec: Spec, way: str, capsys: Captured) -> None:
    other = opened().debit(PureDP("0.5"), "answers of another mechanism")
    saved(with_receipt(measured(spec), other))
    assert "paid for another release" in told(way, capsys)


def test_edited_factors_are_noticed(spec: Spec, way: str, capsys: Captured) -> None:
    """Scales that are larger spend less, so that the file itself is a lawful release."""

    def double(content: dict[str, Any]) -> None:
        content["scales"] = [str(2 * Fraction(scale)) for scale in content["scales"]]

    edit(double)
    load_release("out/release")  # which needs no ledger
    assert "paid for another release" in told(way, capsys)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_known_by_its_debit_when_it_is_read_again(name: str, tmp_path: Path) -> None:
    strategy = FAMILIES[name]
    x = np.random.default_rng(0).integers(0, 50, size=strategy.domain.shape)
    ledger = Ledger(tmp_path / "budget.db", dataset=DATASET, cap=ZCDP(4))
    digests = set[str | None]()
    for number, privacy in enumerate((PureDP("0.5"), ZCDP("0.125"))):
        release = measure(strategy, from_array(strategy.domain, x), privacy, ledger=ledger)
        load_release(release.save(tmp_path / str(number))).verify(ledger)
        digests.add(release.digest)
    assert len(digests) == 2
    assert [entry.pays_for for entry in ledger.entries() if entry.kind == "debit"][-1] == release.digest
    assert {entry.text for entry in ledger.entries() if entry.kind == "debit"} == {"release"}


def test_the_digest_stays_what_it_is() -> None:
    """Ledgers keep it for good: another digest of the same measurement would refuse all that was paid before."""
    domain = Domain({"x": 3, "sex": ["M", "F"]})
    blocks = Block(0.5, ((0, PIdentity([[1.0, 1.0, 1.0]])), (1, Eye(2)))), Block(0.5, ((1, Dense([[1.0, 3.0]])),))
    data = from_array(domain, np.ones((3, 2), dtype=int))
    release = measure(Strategy(domain, blocks), data, PureDP("0.5"), ledger=None, unit=Unit(2))
    assert release.digest == "b559bda6fc3902e051bc2ab80acb268d5239f220af3c1d04322dd2be92b2e803"


def test_debits_of_earlier_versions_are_still_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_way: str, capsys: Captured
) -> None:
    """Their records name no release; the receipt is verified all the same."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, SPEC)
    spec = load_spec("people.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "debit_text", lambda purpose, *_: purpose)
        publish(spec, planned(spec))
    debit = opened().entries()[-1]
    assert (debit.text, debit.pays_for) == ("People: tables P12, pairs, ages from people.parquet by people.toml", None)
    rewrite_report(spec)
    edit(lambda content: content["receipt"].update(amount="3/4"))
    assert "different amount" in told(spec_way, capsys)


def test_a_combination_is_published_only_if_all_its_parts_were_paid_for(spec: Spec, capsys: Captured) -> None:
    assert run(["combine", "out", "second", "--output", "both"]) == 0
    both = load_release("both/release")
    both.verify(opened())
    assert run(["rows", "both"]) == 0
    firms = Ledger("budget.db", dataset="firms-2026", cap=PureDP(4)).debit(PureDP("0.5"), "tables of firms")
    less = opened().debit(PureDP("0.25"), "some other tables")
    other = opened().debit(PureDP("0.5"), "tables of other people", unit=Unit(2))
    first, second = both.parts
    for receipt, words in (
        (None, "has no receipt"),
        (firms, "is for dataset 'firms-2026'"),
        (replace(second.receipt or less, hash="0" * 64), "does not hold the debit of receipt 4"),
        (replace(second.receipt or less, amount=Fraction(1)), "different amount"),
        (less, "not for all that it has measured"),
        (first.receipt, "not for all that it has measured"),
        (other, "not for all that it has measured"),
    ):
        forged = replace(both, parts=(first, replace(second, receipt=receipt)))
        with pytest.raises(LedgerError, match=words):
            forged.verify(opened())
        shutil.rmtree("both/release")
        forged.save("both/release")
        before = written()
        assert run(["rows", "both", "--force"]) == 4
        assert words in capsys.readouterr().err
        assert written() == before


@pytest.mark.parametrize("cap", [PureDP(4), ZCDP(4), GaussianDP(4)])
@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125"), ApproxDP(1, "1e-6")])
def test_combinations_are_known_in_every_account(tmp_path: Path, cap: Privacy, privacy: Privacy) -> None:
    data = from_array(Domain({"sex": ["M", "F"]}), [5, 7])
    ledger = Ledger(tmp_path / "budget.db", dataset=DATASET, cap=cap)
    if isinstance(cap, PureDP) and not isinstance(privacy, PureDP):
        return  # which no ε bounds
    parts = [measure(Strategy.identity(data.domain), data, each, ledger=ledger) for each in (privacy, privacy, privacy)]
    both = combine(parts)
    both.verify(ledger)
    more = combine([*parts, measure(Strategy.identity(data.domain), data, privacy, ledger=None)])
    unpaid = replace(more, parts=both.parts)
    with pytest.raises(LedgerError, match="not for all that it has measured"):
        unpaid.verify(ledger)


READERS = {
    "measure/release.py": "defines it",
    "measure/chunked_release.py": "defines it",
    "publication/preflight.py": "load_verified, which compares with the ledger",
    "publication/published.py": "open_published, whose callers are listed too",
    "publication/publish.py": "report --since, which requires both to be paid for",
    "apps/studio/work.py": "makes rows, which requires it",
    "apps/cli/published_commands.py": "rows and combine require it; query, show and diff write to the terminal alone: "
    "whoever may read the folder learns no more from them than it says",
    "apps/cli/plan_command.py": "plan --with looks at margins, not at numbers, and publishes nothing",
}
"""The files that read a release which lies on disk, and why nothing unpaid is published there."""


def test_whoever_reads_a_release_is_listed() -> None:
    src = Path(hdmm.__file__).parent
    reading = re.compile(r"\b(load_release|load_chunked|open_published)\(")
    found = {path.relative_to(src).as_posix() for path in src.rglob("*.py") if reading.search(path.read_text())}
    assert found == set(READERS)


def test_what_only_reads_writes_nothing(spec: Spec) -> None:
    """Neither the ledger nor anything else is asked for by what prints to the terminal: nothing is published."""
    for name in ("budget.db", "budget.db.head"):
        os.unlink(name)
    before = written()
    for command in (
        ["query", "out", "SELECT sex, COUNT(*) FROM t GROUP BY sex"],
        ["show", "out", "sex"],
        ["diff", "out", "second"],
    ):
        assert run(command) == 0
    assert written() == before


@pytest.mark.parametrize("bad", ["", "x", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_what_is_no_digest_is_refused_without_a_debit(tmp_path: Path, bad: str) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset=DATASET, cap=PureDP(4))
    with pytest.raises(LedgerError, match="64 hexadecimal digits"):
        ledger.debit(PureDP(1), "tables", pays_for=bad)
    assert ledger.spent == 0


def test_a_purpose_cannot_name_a_release(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset=DATASET, cap=PureDP(4))
    purpose = f"tables [pays for release {'0' * 64}]"
    ledger.debit(PureDP(1), purpose)
    assert (ledger.entries()[-1].text, ledger.entries()[-1].pays_for) == (purpose, "")


@examples(30)
@given(data=st.data())
def test_any_release_keeps_its_digest_on_disk(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Else what was paid for could never be published."""
    strategy = data.draw(strategies())
    nobody = from_array(strategy.domain, np.zeros(strategy.domain.shape, dtype=int))
    try:
        release = measure(strategy, nobody, data.draw(st.sampled_from([PureDP(1), ZCDP(1)])), ledger=None)
    except (StrategyError, NoiseError):
        return
    folder = tmp_path_factory.mktemp("any") / "release"
    assert release.digest is not None
    assert load_release(release.save(folder)).digest == release.digest


@pytest.mark.parametrize("step", [401, pytest.param(3, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_changes_nothing(spec: Spec, step: int) -> None:
    """Of what --resume reads: the numbers by their digest, the rest by the debit that it must agree with."""
    aside()
    folder = Path("out.unpublished")
    release, _, _ = load_verified(spec, folder)
    before = [release.answer(table.workload) for table in spec.tables]
    refused, tried = 0, 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for at in range(0, len(content), step):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            tried += 1
            try:
                found, _, _ = load_verified(spec, folder)
            except HdmmError:
                refused += 1
                continue
            assert path.name != "measurements.npy", at
            for table, was in zip(spec.tables, before, strict=True):
                now = found.answer(table.workload)
                assert np.array_equal(now.values, was.values), (path, at)
                assert np.array_equal(now.stddev, was.stddev), (path, at)
        path.write_bytes(content)
    load_verified(spec, folder)
    assert refused > tried // 2


def test_flipped_measurements_say_what_to_do(spec: Spec, capsys: Captured) -> None:
    aside()
    path = Path("out.unpublished/release/measurements.npy")
    content = path.read_bytes()
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 16]) + content[-2:])
    assert run(["release", "people.toml", "--resume"]) == 1
    said = capsys.readouterr().err
    assert "measurements.npy has changed since it was saved" in said
    assert "Restore the folder from a backup. Without one, nothing can be published from it: its debit stays" in said
    assert not Path("out").exists()
