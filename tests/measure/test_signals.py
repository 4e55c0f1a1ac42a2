"""Signals wait while what was paid for is finished, and every error after a debit says what it has cost (L1)."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from copy import copy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from hdmm import DataError, FileError, Interrupted, Ledger, PureDP, Release, Spec, from_array, load_release, load_spec
from hdmm.apps.cli import run
from hdmm.base.exceptions import EngineError, HdmmError
from hdmm.base.signals import ending_as_interrupt, finishing
from hdmm.data.arrays import Histogram
from hdmm.measure.measure import measure
from hdmm.publication import publish as folder_module
from hdmm.publication import unpublished
from hdmm.publication.publish import publish
from tests.support.families import FAMILIES, PLANE
from tests.support.spec_cases import planned, prepared

Captured = pytest.CaptureFixture[str]
X = np.arange(12).reshape(4, 3)
CANARY = "CANARY-51c9"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of a plain Python, set again afterwards; a test that does not set them again fails."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    found = signal.getsignal(signal.SIGINT)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert found is signal.default_int_handler


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)
    found = load_spec("people.toml")
    planned(found).save(found.plan.folder)
    return found


@pytest.fixture(autouse=True)
def heeded() -> Generator[None]:
    """Signals take effect, though a parent (nohup) may have had them ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


def counting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something while data is counted."""
    marginals = Histogram.marginals

    def acts(self: Histogram, wanted: object) -> object:
        act()
        return marginals(self, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(Histogram, "marginals", acts)


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    seen = list[str]()

    def work() -> None:
        with finishing() as signals:
            send(signal.SIGINT, signal.SIGINT)
            seen.append("first")
            with finishing() as inner:
                assert inner is signals
                send(signal.SIGINT)
            seen.append("second")
        seen.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["first", "second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_handles_a_signal_gets_it_in_the_end(number: int) -> None:
    got = list[int]()
    signal.signal(number, lambda each, _: got.append(each))
    with finishing():
        send(number)
        assert not got
    assert got == [number]
    signal.signal(number, signal.SIG_IGN)  # as nohup does
    with finishing() as signals:
        send(number)
    assert signals.noted == []
    assert signal.getsignal(number) is signal.SIG_IGN
    signal.signal(number, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), ending_as_interrupt():
        send(number)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_handler_that_was_not_set_from_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says None of it, and could not set it again."""
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    changed: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", lambda *given: changed.append(given))
        with finishing():
            pass
    assert changed == []


def test_it_is_said_once_and_only_after_a_debit(capsys: Captured) -> None:
    def work() -> None:
        with finishing() as signals:
            send(signal.SIGINT)
            assert capsys.readouterr().err == ""
            signals.debit()
            send(signal.SIGINT, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work()
    said = capsys.readouterr().err
    assert said.count("The budget has been debited; finishing") == 1
    assert f"kill -9 {os.getpid()}" in said


def test_arrow_reads_on() -> None:
    """It has handlers of its own, which stop it however Python's handler takes the signal."""
    text = b"x\n" + b"1\n" * 3_000_000
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.001):
            send(signal.SIGINT)

    thread, rows = threading.Thread(target=disturb), list[int]()

    def read() -> None:
        with finishing():
            thread.start()
            try:
                rows.extend(pa_csv.read_csv(pa.BufferReader(text)).num_rows for _ in range(3))
            finally:
                stop.set()
                thread.join()

    with pytest.raises(KeyboardInterrupt):
        read()
    assert rows == [3_000_000] * 3


def test_other_threads_measure_as_ever(ledger: Ledger) -> None:
    """Python cannot set handlers there, and Ctrl-C does not reach them."""
    found = list[object]()
    thread = threading.Thread(
        target=lambda: found.append(measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger))
    )
    thread.start()
    thread.join()
    assert isinstance(found[0], Release)


def test_what_python_has_measured_is_not_lost(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    counting(monkeypatch, lambda: send(signal.SIGINT))
    with pytest.raises(Interrupted, match="attribute `release`") as stop:
        measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
    assert "The budget has been debited" in capsys.readouterr().err
    assert (stop.value.__cause__, stop.value.__suppress_context__) == (None, True)  # one error, not two
    assert isinstance(stop.value.release, Release)
    stop.value.release.save(tmp_path / "release")
    assert load_release(tmp_path / "release").receipt == stop.value.release.receipt
    assert ledger.spent == 1


def too_large() -> MemoryError:
    """The error of NumPy for an array that fits in no memory."""
    with pytest.raises(MemoryError) as caught:
        np.zeros(1 << 58)
    return caught.value


WRONG = [
    MemoryError(CANARY),
    too_large(),
    OSError(28, "No space left on device"),
    RuntimeError(CANARY),
    DataError("The source cannot be read."),
    EngineError("The GPU has too little memory."),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("where", ["counting", "noise"])
def test_every_error_after_the_debit_says_so(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, wrong: Exception, where: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise copy(wrong)

    if where == "counting":
        counting(monkeypatch, fails)
    else:
        monkeypatch.setattr("hdmm.measure.measure.draw", fails)
    with pytest.raises(HdmmError) as caught:
        measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
    said = str(caught.value)
    assert said.count("The budget was debited and stays charged") == 1
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert ledger.spent == 1
    if where == "counting" or isinstance(wrong, HdmmError):
        with pytest.raises(HdmmError) as caught:
            measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=None)
        assert "debited" not in str(caught.value)


def test_no_error_before_the_debit_says_so(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise DataError("The source is gone.")

    monkeypatch.setattr(Histogram, "check", fails)
    with pytest.raises(DataError) as caught:
        measure(FAMILIES["product"], from_array(PLANE, X), PureDP(1), ledger=ledger)
    assert str(caught.value) == "The source is gone."
    assert ledger.spent == 0


@pytest.mark.parametrize("wrong", [MemoryError(CANARY), RuntimeError(CANARY), FileError("The disk is full.")])
def test_measurements_that_cannot_be_saved(spec: Spec, monkeypatch: pytest.MonkeyPatch, wrong: Exception) -> None:
    def fails(*_: object) -> None:
        raise wrong

    monkeypatch.setattr(Release, "save", fails)
    with pytest.raises(FileError, match=r"debited and stays charged, and what was measured is lost") as caught:
        publish(spec, planned(spec))
    assert CANARY not in str(caught.value)
    assert not Path("out.unpublished").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_release_that_is_stopped_while_it_measures_is_kept(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Captured, number: int
) -> None:
    measured = folder_module.measure_prepared

    def stopped(*args: object, **more: object) -> object:
        send(number)
        return measured(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "measure_prepared", stopped)
        assert run(["release", "people.toml", "--yes"]) == 130
    said = capsys.readouterr().err
    assert said.index("The budget has been debited; finishing") < said.index("error: Interrupted. The release is paid")
    assert "hdmm release people.toml --resume" in said
    assert run(["release", "people.toml", "--resume"]) == 0


def test_a_release_that_is_stopped_and_fails_says_what_it_has_cost(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fails(*_: object) -> None:
        send(signal.SIGINT)
        raise FileError("The disk is full.")

    monkeypatch.setattr(Release, "save", fails)
    assert run(["release", "people.toml", "--yes"]) == 130
    assert "Interrupted. The disk is full. The budget was debited and stays charged" in capsys.readouterr().err


def test_whoever_stops_the_last_clean_up_learns_that_all_is_published(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    exchanged = unpublished.exchange

    def stopped(*args: object) -> object:
        found = exchanged(*args)  # type: ignore[arg-type]
        send(signal.SIGINT)
        return found

    monkeypatch.setattr(unpublished, "exchange", stopped)
    assert run(["release", "people.toml", "--yes"]) == 130
    assert "Interrupted. The tables are published in out." in capsys.readouterr().err
    assert run(["show", "out"]) == 0
    assert sorted(os.listdir()) == [
        "budget.db",
        "budget.db.head",
        "out",
        "people.parquet",
        "people.plan",
        "people.toml",
    ]


@pytest.mark.parametrize("wrong", [KeyboardInterrupt(), BrokenPipeError(), FileError("No ledger.")])
def test_what_fails_when_all_is_published_says_so(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Captured, wrong: BaseException
) -> None:
    def fails(*_: object) -> None:
        raise wrong

    monkeypatch.setattr("hdmm.apps.cli.release_command.budget_facts", fails)
    assert run(["release", "people.toml", "--yes"]) != 0
    assert "The tables are published in out." in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [KeyboardInterrupt(), RuntimeError(CANARY)])
def test_what_fails_while_planning_has_spent_nothing(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: Captured, wrong: BaseException
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise wrong

    monkeypatch.setattr("hdmm.apps.cli.release_command.plan_for", fails)
    assert run(["release", "people.toml", "--yes"]) != 0
    said = capsys.readouterr().err
    assert "Nothing was spent." in said
    assert "charged" not in said
