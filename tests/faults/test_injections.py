"""A release that is killed, interrupted or refused at any call that changes the disk (L1, L7, F5, O4).

Whatever happens, and before anybody repairs anything: nothing is published that was not paid for, nothing is paid for
twice, the old publication or the new one is in place and whole, what was paid for is published or can be resumed (or
is charged, and said to be), and what was said is true.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import Ledger, from_table, load_release, load_spec
from hdmm.publication.publish import publish
from hdmm.publication.unpublished import MARK, is_kept
from tests.faults.injector import Action, begin, command_in
from tests.support.spec_cases import SPEC, people, planned, prepared

_OTHERS = SPEC[SPEC.index('[[table]]\nname = "pairs"') : SPEC.index("[privacy]")]
TEXT = SPEC.replace(_OTHERS, "").replace('cap = { epsilon = "4" }', 'cap = { epsilon = "100" }')
PARTS = {"datapackage.json", "metadata.json", "plan", "release", "report.html", "tables"}
COMMANDS = {
    "first": ["release", "people.toml", "--yes"],
    "force": ["release", "people.toml", "--yes", "--force"],
    "without exchange": ["release", "people.toml", "--yes", "--force"],
    "resume": ["release", "people.toml", "--resume", "--force"],
}
UNCERTAIN = "The debit may or may not be recorded"  # so says the ledger if the disk fails while it commits


@dataclass(frozen=True)
class State:
    """What a folder holds: the number of debits, and which release is published, by the hash of its receipt."""

    debits: int
    published: str | None


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each scenario, as it is before the command."""
    first, force, resume = (tmp_path_factory.mktemp(name) / "start" for name in ("first", "force", "resume"))
    first.mkdir()
    spec = load_spec(prepared(first, TEXT))
    planned(spec).save(spec.plan.folder)
    shutil.copytree(first, force)
    publish(load_spec(force / "people.toml"), planned(spec))
    shutil.copytree(force, resume)
    at = call_of(calls_in(force), "create", "report.html")
    assert command_in(resume, COMMANDS["force"], at=at, action="SIGKILL")[0] == -9
    assert is_kept(load_spec(resume / "people.toml"))
    return {"first": first, "force": force, "without exchange": force, "resume": resume}


@pytest.fixture(scope="module")
def calls(starts: dict[str, Path]) -> dict[str, list[str]]:
    """The calls that a release with --force makes, with and without the exchange of folders."""
    return {
        scenario: calls_in(starts[scenario], swaps=scenario == "force") for scenario in ("force", "without exchange")
    }


def calls_in(folder: Path, *, swaps: bool = True) -> list[str]:
    copy = folder.with_name("counted")
    shutil.copytree(folder, copy)
    code, said, calls = command_in(copy, COMMANDS["force"], swaps=swaps)
    assert code == 0, said
    shutil.rmtree(copy)
    return calls


def call_of(calls: list[str], name: str, ending: str) -> int:
    """The number of the first call of this name on a path that ends so."""
    return next(k for k, call in enumerate(calls, 1) if f" {name} " in call and call.endswith(ending))


def state_of(folder: Path) -> State:
    """The chain of the ledger is verified; what is published is paid for, whole, and made from its release."""
    spec = load_spec(folder / "people.toml")
    if not spec.output.folder.exists() and not spec.ledger.path.exists():
        return State(0, None)
    ledger = Ledger(spec.ledger.path, dataset="people-2026", cap=spec.ledger.cap)
    debits = sum(entry.kind == "debit" for entry in ledger.entries())
    if not spec.output.folder.exists():
        return State(debits, None)
    release = load_release(spec.output.folder / "release")
    release.verify(ledger)
    assert release.receipt is not None
    assert set(os.listdir(spec.output.folder)) - {MARK} == PARTS
    for table in spec.tables:
        found = pq.read_table(spec.output.folder / "tables" / f"{table.name}.parquet").column("estimate").to_numpy()
        np.testing.assert_array_equal(found, release.answer(table.workload).values)
    return State(debits, release.receipt.hash)


def assert_no_counts(folder: Path) -> None:
    """O4: no file but the data holds the true counts: six neighbours of the table, which noise gives by no chance."""
    exact = from_table(load_spec(folder / "people.toml").domain, people()).marginal(["sex", "age"]).reshape(-1)[:6]
    needles = [exact.astype(kind).tobytes() for kind in ("<i8", "<i4", "<f8")]
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "people.parquet":
            content = path.read_bytes()
            assert not any(needle in content for needle in needles), path


def assert_true(said: str, before: State, after: State, kept: bool) -> None:
    """What a command said, against what is there."""
    spent = after.debits > before.debits
    new = after.published != before.published
    if "Nothing was spent" in said or "Nothing was debited" in said or "costs nothing" in said:
        assert not spent, said
    if "stays charged" in said and UNCERTAIN not in said:
        assert spent, said
    if "is lost" in said:
        assert not kept, said
        assert not new, said
    if "kept in" in said:
        assert kept, said
    if "tables are published" in said or "Published" in said:
        assert new, said
        assert not kept, said
    if spent and not new:  # charged, and told what is left of it
        assert kept == ("--resume" in said), said
        assert kept or "stays charged" in said or UNCERTAIN in said, said


def inject(start: Path, scenario: str, at: int, action: Action, place: Path) -> bool:
    """Whether the call was made; all that must hold after it, and after the next ordinary command."""
    folder, swaps = place / "run", scenario != "without exchange"
    shutil.copytree(start, folder)
    before = state_of(folder)
    code, said, calls = command_in(folder, COMMANDS[scenario], at=at, action=action, swaps=swaps)
    where = f"{scenario}, {action} at {calls[-1] if action == 'SIGKILL' else calls[at - 1 : at]}:\n{said}"
    assert "Traceback" not in said, where
    assert_no_counts(folder)
    if len(calls) < at:
        shutil.rmtree(place)
        return False
    spec = load_spec(folder / "people.toml")
    if not swaps and before.published is not None:
        assert command_in(folder, ["show", "out"], swaps=False)[0] == 0, where  # which puts it back if need be
    after, kept = state_of(folder), is_kept(spec)
    extra = after.debits - before.debits
    new = after.published != before.published
    assert extra in ((0,) if scenario == "resume" else (0, 1)), where
    assert after.published is not None or before.published is None, where
    assert not new or extra == 1 or scenario == "resume", where
    if action != "SIGKILL":
        assert_true(said, before, after, kept)
        assert code != 0 or new, where
    if action in ("SIGINT", "SIGTERM"):
        assert code in (0, 130), where
        assert extra == 0 or new or kept, where  # what was paid for is never lost
    if scenario == "resume":
        assert new or kept, where
    # the next ordinary command
    if kept:
        code, said, _ = command_in(folder, COMMANDS["force"], swaps=swaps)
        assert (code, "--resume" in said) == (1, True), where + said
        code, said, _ = command_in(folder, COMMANDS["resume"], swaps=swaps)
        assert (code, state_of(folder).debits) == (0, after.debits), where + said
    else:
        code, said, _ = command_in(folder, COMMANDS["force"], swaps=swaps)
        assert (code, state_of(folder).debits) == (0, after.debits + 1), where + said
    assert state_of(folder).published not in (before.published, None), where
    assert {path.name for path in folder.iterdir()} == {
        "people.toml", "people.parquet", "people.plan", "budget.db", "budget.db.head", "out"
    }, where  # fmt: skip
    assert set(os.listdir(folder / "out")) == PARTS, where
    assert_no_counts(folder)
    shutil.rmtree(place)
    return True


# Where a release was found to fall short, and one call of every stage, by the calls that a release with --force makes.
SAMPLE: list[tuple[str, Action, str, str]] = [
    ("force", "SIGKILL", "exchange", "out.unpublished"),
    ("force", "SIGKILL", "unlink", "P12.csv"),
    ("force", "SIGKILL", "rmdir", "out.unpublished"),
    ("force", "SIGKILL", "unlink", MARK),
    ("without exchange", "SIGKILL", "rename", "out.unpublished"),  # the old one is set aside
    ("force", "SIGKILL", "COMMIT", "the ledger"),
    ("force", "SIGINT", "COMMIT", "the ledger"),
    ("force", "SIGTERM", "posix_fallocate", ""),
    ("force", "SIGTERM", "create", "measurements.npy"),
    ("force", "SIGINT", "create", "P12.csv"),
    ("force", "SIGINT", "unlink", MARK),
    ("force", "ENOSPC", "create", "P12.parquet"),
    ("force", "EIO", "unlink", "measurements.npy"),  # of the room that was taken for it
]


@pytest.mark.parametrize(("scenario", "action", "name", "ending"), SAMPLE)
def test_a_fault_at_a_call(
    starts: dict[str, Path],
    calls: dict[str, list[str]],
    tmp_path: Path,
    scenario: str,
    action: Action,
    name: str,
    ending: str,
) -> None:
    """A dozen of all those that the slow test goes through."""
    at = call_of(calls[scenario], name, ending)
    assert inject(starts[scenario], scenario, at, action, tmp_path / "place")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "action"),
    [(scenario, action) for scenario in ("first", "force", "resume") for action in get_args(Action)]
    + [("without exchange", "SIGKILL")],
)
def test_a_fault_at_every_call(starts: dict[str, Path], tmp_path: Path, scenario: str, action: Action) -> None:
    at = 1
    while inject(starts[scenario], scenario, at, action, tmp_path / f"at-{at}"):
        at += 1
    assert at > 40


@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario", ["first", "force"])
def test_releases_at_the_same_time(starts: dict[str, Path], tmp_path: Path, scenario: str, rounds: int) -> None:
    """Into one folder: each is published and paid for, or refused and not paid for; none is lost."""
    for number in range(rounds):
        folder = tmp_path / f"{number}"
        shutil.copytree(starts[scenario], folder)
        before = state_of(folder)
        running = [begin(folder, COMMANDS[scenario], name=f"-{k}") for k in range(3)]
        ended = [each.ended() for each in running]
        after = state_of(folder)
        published = [code for code, _, _ in ended if code == 0]
        assert after.debits - before.debits == len(published) >= 1, ended
        assert after.published not in (before.published, None)
        assert not is_kept(load_spec(folder / "people.toml"))
        for code, said, _ in ended:
            assert code in (0, 1), said
            assert code == 0 or "charged" not in said, said
        assert not (folder / "out.unpublished").exists()
        assert set(os.listdir(folder / "out")) == PARTS
