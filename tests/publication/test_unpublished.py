"""What was paid for is not lost: a release is on disk before it is used, and is published once (L1, F5)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import FileError, Ledger, LedgerError, PureDP, Release, Spec, load_plan, load_release, load_spec
from hdmm.apps.cli import run
from hdmm.publication import files
from hdmm.publication import publish as folder_module
from hdmm.publication import unpublished as unpublished_module
from hdmm.publication.preflight import _MOST as MOST_OF_A_LINE
from hdmm.publication.preflight import _short, check_replaceable
from hdmm.publication.publish import publish, resume
from hdmm.publication.unpublished import MARK, PARTS, how_to_publish, in_use, is_kept, workplace
from tests.measure.test_faults import ended, forked
from tests.support.spec_cases import planned, prepared

Captured = pytest.CaptureFixture[str]
CANARY = "CANARY-7f3a"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """In an empty folder: a specification, its data, and a plan."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    found = load_spec("people.toml")
    planned(found).save(found.plan.folder)
    return found


def fail(monkeypatch: pytest.MonkeyPatch, wrong: BaseException) -> None:
    """The report cannot be made."""

    def broken(*_: object) -> str:
        raise wrong

    monkeypatch.setattr(folder_module, "render", broken)


def debits() -> int:
    return sum(entry.kind == "debit" for entry in Ledger("budget.db", dataset="people-2026").entries())


def published(release: Release, spec: Spec) -> bool:
    """Whether the output folder holds the answers of this release."""
    for table in spec.tables:
        found = pq.read_table(spec.output.folder / "tables" / f"{table.name}.parquet").column("estimate").to_numpy()
        np.testing.assert_array_equal(found, release.answer(table.workload).values)
    return {"datapackage.json", "metadata.json", "plan", "release", "report.html", "tables"} == set(
        os.listdir(spec.output.folder)
    )


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        (ValueError(CANARY), 1, "Something unexpected went wrong (ValueError)"),
        (PermissionError(13, "Permission denied", CANARY), 1, "out cannot be written: Permission denied"),
        (MemoryError(CANARY), 1, "(MemoryError)"),
        (KeyboardInterrupt(CANARY), 130, "Interrupted."),
    ],
)
def test_a_report_that_fails_costs_no_second_budget(
    spec: Spec, capsys: Captured, wrong: BaseException, code: int, words: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, wrong)
        assert run(["release", "people.toml", "--yes"]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "kept in out.unpublished. To publish it without reading data or spending anything, run" in said
    assert CANARY not in said
    assert not Path("out").exists()
    kept = load_release("out.unpublished/release")

    assert run(["release", "people.toml", "--yes"]) == 1  # and spends nothing
    said = capsys.readouterr().err
    assert "was not published" in said
    assert "hdmm release people.toml --resume" in said
    assert debits() == 1

    assert run(["check", "people.toml"]) == 1
    assert "run hdmm release people.toml --resume" in capsys.readouterr().err
    Path("people.parquet").unlink()  # data is not read again
    assert run(["release", "people.toml", "--resume", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert kept.receipt is not None
    assert told["receipt"] == {"sequence": kept.receipt.sequence, "hash": kept.receipt.hash}
    assert published(kept, spec)
    assert json.loads(Path("out/metadata.json").read_text())["receipt"]["hash"] == kept.receipt.hash
    assert debits() == 1
    assert not Path("out.unpublished").exists()
    assert run(["release", "people.toml", "--resume"]) == 1
    assert "to resume" in capsys.readouterr().err


def test_a_failed_run_says_so_in_json(spec: Spec, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, KeyboardInterrupt())
    assert run(["release", "people.toml", "--yes", "--json"]) == 130
    told = json.loads(capsys.readouterr().err)
    assert (told["kind"], told["exit"]) == ("Interrupted", 130)
    assert "--resume" in told["error"]
    assert run(["release", "people.toml", "--resume", "--plan", "people.plan"]) == 2


def test_the_publication_is_the_one_that_would_have_been(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte."""
    publish(spec, planned(spec))
    first = {path.relative_to("out"): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    Path("out.unpublished").mkdir()
    for name in ("release", "plan"):
        os.rename(Path("out") / name, Path("out.unpublished") / name)
    os.rename("out", "elsewhere")
    resume(spec)
    assert {path.relative_to("out"): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == first


def test_an_earlier_publication_stays_until_the_new_one_stands(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(spec, planned(spec))
    before = Path("out/metadata.json").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, RuntimeError(CANARY))
        with pytest.raises(FileError, match="--resume"):
            publish(spec, planned(spec), force=True)
    assert Path("out/metadata.json").read_bytes() == before
    with pytest.raises(FileError, match="earlier publication"):
        resume(spec)
    kept = load_release("out.unpublished/release")
    resume(spec, force=True)
    assert published(kept, spec)


def test_a_full_disk_keeps_the_release(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    write = files.write_file

    def full(path: Path, fill: object) -> None:
        if path.name == "ages.parquet":
            raise OSError(28, "No space left on device")
        write(path, fill)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write_file", full)
    with pytest.raises(FileError, match=r"out cannot be written: No space left on device. The release is paid for"):
        publish(spec, planned(spec))
    assert set(os.listdir("out.unpublished")) == {"release", "plan"}  # the room that tables took is free again
    assert not Path("out").exists()
    assert debits() == 1
    with pytest.raises(FileError, match="No space left"):
        resume(spec)
    assert set(os.listdir("out.unpublished")) == {"release", "plan"}


@pytest.mark.parametrize("limit", [100, 8_000, 60_000])
def test_files_that_may_not_grow(spec: Spec, limit: int) -> None:
    """The system refuses: whatever of release, tables or report is the first that does not fit."""
    Ledger("budget.db", dataset="people-2026", cap=PureDP(4))

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises((FileError, LedgerError)):
            publish(spec, planned(spec))

    assert ended(forked(work)) == 0
    assert not Path("out").exists()
    kept = Path("out.unpublished/release").exists()
    assert kept == (limit == 60_000)  # else nothing was measured, or it did not fit
    if kept:
        release = load_release("out.unpublished/release")
        resume(spec)
        assert published(release, spec)
        assert debits() == 1


def test_a_disk_without_room_is_noticed_before_the_debit(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FileError, match=r"no room at out.unpublished: No space left on device\. Nothing was spent"):
        publish(spec, planned(spec))
    assert not Path("budget.db").exists()
    assert not Path("out.unpublished").exists()


def test_a_measurement_that_fails_leaves_nothing(spec: Spec) -> None:
    Path("people.parquet").write_bytes(Path("people.parquet").read_bytes()[:-200] + b"PAR1")
    assert run(["release", "people.toml", "--yes"]) == 1
    assert not Path("out.unpublished").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("weight = 2", "weight = 3", "other tables"),
        ('epsilon = "0.5"', 'epsilon = "0.25"', "released at ε = 0.5"),
        ("[domain]", 'neighbours = "replace"\n[domain]', "people.toml now says otherwise"),
    ],
)
def test_a_specification_that_changed_is_noticed(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, old: str, new: str, words: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, RuntimeError())
        with pytest.raises(FileError):
            publish(spec, planned(spec))
    text = Path("people.toml").read_text()
    assert old in text
    Path("people.toml").write_text(text.replace(old, new))
    with pytest.raises(FileError, match=words):
        resume(load_spec("people.toml"))
    assert not Path("out").exists()
    Path("people.toml").write_text(text)
    resume(load_spec("people.toml"))


@pytest.mark.parametrize("what", ["file", "link", "strange"])
def test_what_is_in_the_way_is_not_touched(spec: Spec, what: str) -> None:
    Path("elsewhere").mkdir()
    place = Path("out.unpublished")
    if what == "file":
        place.write_text("mine")
    elif what == "link":
        place.symlink_to("elsewhere")
    else:
        place.mkdir()
        (place / "mine.txt").write_text("mine")
    with pytest.raises(FileError, match="unpublished"):
        publish(spec, planned(spec))
    assert not Path("budget.db").exists()
    assert list(Path("elsewhere").iterdir()) == []
    mine = {"file": place, "link": place, "strange": place / "mine.txt"}[what]
    assert mine.is_symlink() if what == "link" else mine.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_the_name_of_the_folder_is_on_disk_before_anything_is_paid(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power after the debit could take away the folder with the release in it."""
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    with workplace(spec) as place:
        assert place.exists()
        assert flushed == [tmp_path]


def test_a_link_to_a_folder_that_is_in_use_is_not_in_use(spec: Spec) -> None:
    os.mkdir("elsewhere")
    os.symlink("elsewhere", "out.unpublished")
    held = os.open("elsewhere", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not in_use(spec)
        os.unlink("out.unpublished")
        os.rename("elsewhere", "out.unpublished")
        assert in_use(spec)
    finally:
        os.close(held)


def test_who_says_where_the_chunks_are_need_not_say_it_again(spec: Spec) -> None:
    place = Path("out.unpublished/release")
    place.mkdir(parents=True)
    assert how_to_publish(spec).endswith(" --resume.")
    (place / "chunks.json").touch()
    assert how_to_publish(spec).endswith(
        " --engine dask --engine-folder FOLDER --resume. FOLDER is where its chunks are."
    )
    assert how_to_publish(spec, ["--engine-folder", "my chunks"]).endswith(" --engine-folder 'my chunks' --resume.")


@pytest.mark.parametrize("step", ["make_parents", "_settle", "clear", "sync_folder"])
def test_a_folder_that_the_system_refuses_is_named(spec: Spec, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(unpublished_module, step, refused)
    with pytest.raises(FileError, match=r"out\.unpublished cannot be written: Permission denied"), workplace(spec):
        pytest.fail("nothing is done there")


@pytest.mark.parametrize("reserves", [True, False])
def test_room_is_as_large_as_what_it_is_for(reserves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system cannot reserve it, and bytes are written piece by piece."""
    if not reserves:

        def refused(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "posix_fallocate", refused)
    monkeypatch.setattr(unpublished_module, "_PIECE", 4)
    sizes = {"one": 1, "piece": 4, "pieces": 10}
    unpublished_module.take_room(tmp_path / "room", sizes)
    assert {file.name: file.stat().st_size for file in (tmp_path / "room").iterdir()} == sizes


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_all_of_a_publication_is_on_disk_before_it_has_its_name(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark, too, which says which folder is the new one if the power is lost in between."""
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    exchange, before = unpublished_module.exchange, list[Path]()

    def noted(place: Path, *given: Any) -> Path | None:
        before.extend(flushed)
        return exchange(place, *given)

    monkeypatch.setattr(unpublished_module, "exchange", noted)
    publish(spec, load_plan(spec.plan.folder))
    place = tmp_path / "out.unpublished"
    assert before[-2:] == [place / MARK, place]


def test_one_process_at_a_time(spec: Spec) -> None:
    """A second release into the same folder is refused before it spends."""
    Path("out.unpublished").mkdir()
    other = os.open("out.unpublished", os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FileError, match="in use"):
            publish(spec, planned(spec))
    finally:
        os.close(other)
    assert not Path("budget.db").exists()
    publish(spec, planned(spec))


_KILLED = """
import os, signal, sys
from hdmm import load_spec, load_plan
from hdmm.publication import files, publish as publishing
write = files.write_file
def stop(path, fill):
    if path.name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, fill)
files.write_file = publishing.write_file = stop
spec = load_spec("people.toml")
publishing.publish(spec, load_plan(spec.plan.folder))
"""


@pytest.mark.parametrize("moment", ["P12.csv", "report.html"])
def test_kill_9_before_the_publication_stands(spec: Spec, moment: str) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not Path("out").exists()
    kept = load_release("out.unpublished/release")
    assert run(["release", "people.toml", "--yes"]) == 1
    assert run(["release", "people.toml", "--resume", "--quiet"]) == 0
    assert published(kept, spec)
    assert debits() == 1


@pytest.mark.slow
def test_kill_9_at_any_moment(spec: Spec) -> None:
    """After each kill the next release goes on, or says what is kept; what was kept is published, paid for once."""
    Path("people.toml").write_text(Path("people.toml").read_text().replace('epsilon = "4"', 'epsilon = "4000"'))
    spec = load_spec("people.toml")
    moments, seen, resumed = random.Random(3), set[int](), 0

    def work() -> None:
        publish(spec, load_plan(spec.plan.folder), force=True)

    publish(spec, planned(spec))
    for kill in range(600):
        if kill >= 60 and resumed:  # a busy machine needs more and later ones for a release to be kept at all
            break
        child = forked(work)
        time.sleep(moments.uniform(0.0, 0.4) * (1 + kill // 60))
        os.kill(child, signal.SIGKILL)
        ended(child)
        if Path("out.unpublished/release").exists():
            kept = load_release("out.unpublished/release")
            before = debits()
            with pytest.raises(FileError, match="--resume"):
                publish(spec, planned(spec), force=True)
            resume(spec, force=True)
            assert debits() == before
            assert published(kept, spec)
            resumed += 1
        receipt = load_release("out/release").receipt  # the old one or the new one, at every moment
        assert receipt is not None
        seen.add(receipt.sequence)
    assert resumed
    assert len(seen) <= debits()
    publish(spec, planned(spec), force=True)


def test_two_releases_into_one_folder_exclude_each_other(spec: Spec) -> None:
    with workplace(spec) as place:
        with pytest.raises(FileError, match="in use"), workplace(spec):
            pass
        assert place.exists()
    with workplace(spec):
        pass


def test_the_last_clean_up_spares_what_another_process_has_begun(spec: Spec) -> None:
    """It had removed the folder by its name, and with it what another process was about to pay for."""
    with workplace(spec) as place:
        os.rename(place, "out")
        os.mkdir(place)
        (place / "plan").mkdir()
    assert (place / "plan").exists()


def test_an_earlier_publication_is_removed_before_another_process_may_begin(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(spec, planned(spec))
    removed, seen = unpublished_module.shutil.rmtree, list[str]()

    def meanwhile(path: Path, **more: object) -> None:
        if Path(path).name == "out.unpublished":
            with pytest.raises(FileError, match="in use"), workplace(spec):
                pass
            seen.append("refused")
        removed(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(unpublished_module.shutil, "rmtree", meanwhile)
    publish(spec, planned(spec), force=True)
    assert "refused" in seen
    assert not Path("out.unpublished").exists()


def test_what_was_replaced_is_no_release_that_waits(spec: Spec) -> None:
    """A process was killed when the earlier publication and the new one had exchanged their names."""
    publish(spec, planned(spec))
    old = load_release("out/release")
    os.rename("out", "out.unpublished")
    publish_aside(spec)
    Path("out", MARK).touch()
    assert not is_kept(spec)
    with pytest.raises(FileError, match="to resume"):
        resume(spec)
    assert run(["show", "out"]) == 0
    publish(spec, planned(spec), force=True)
    assert sorted(os.listdir("out")) == sorted(PARTS - {"report.xlsx", "registry.yaml", "rows"})
    assert not Path("out.unpublished").exists()
    assert load_release("out/release").receipt != old.receipt


def publish_aside(spec: Spec) -> None:
    """Publish though the place for that is taken."""
    os.rename("out.unpublished", "kept")
    publish(spec, planned(spec))
    os.rename("kept", "out.unpublished")


def test_a_link_in_the_folder_is_removed_and_not_followed(spec: Spec, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    Path("out.unpublished").mkdir()
    Path("out.unpublished/tables").symlink_to(elsewhere)
    Path("out.unpublished/plan").mkdir()
    with workplace(spec) as place:
        assert not os.listdir(place)
    assert os.listdir(elsewhere) == ["kept"]


def test_a_publication_that_was_set_aside_is_in_its_place_again(spec: Spec) -> None:
    """By a --force that was killed between two renames: the next command finds it, and needs --force as well."""
    release = publish(spec, load_plan(spec.plan.folder)).release
    os.rename("out", ".hdmm-replaced-out")
    with pytest.raises(FileError, match="holds an earlier publication"):
        check_replaceable(spec, force=False)
    assert published(release, spec)


def test_a_link_is_no_folder_to_publish_in(spec: Spec) -> None:
    os.mkdir("elsewhere")
    os.symlink("elsewhere", "out")
    with pytest.raises(FileError, match="links are not followed"):
        check_replaceable(spec, force=True)


def test_a_pipe_in_the_place_of_a_publication_is_not_waited_for(spec: Spec) -> None:
    os.mkdir("out")
    os.mkfifo("out/metadata.json")
    with pytest.raises(FileError, match="did not publish"):
        check_replaceable(spec, force=True)


@pytest.mark.parametrize("spare", [1, 0, -1])
def test_a_line_of_the_ledger_is_shortened_only_if_it_must(spare: int) -> None:
    line = "x" * (MOST_OF_A_LINE - spare)
    assert (_short(line) == line) == (spare >= 0)
    assert len(_short(line)) <= MOST_OF_A_LINE
