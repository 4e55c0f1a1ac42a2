"""A studio that is killed in the middle of a release: the ledger is debited once, and the next one says what to do."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from hdmm import load_spec
from hdmm.publication.budget import budget_of
from hdmm.publication.unpublished import is_kept
from tests.apps.studio.serving import studio
from tests.support.spec_cases import SPEC, planned, prepared

pytestmark = pytest.mark.slow


def releasable(folder: Path, text: str = SPEC) -> Path:
    path = prepared(folder, text)
    spec = load_spec(path)
    planned(spec).save(spec.plan.folder)
    return path


def debits(path: Path) -> list[str]:
    found = budget_of(load_spec(path))
    return [found.shown(entry.amount) for entry in found.entries if entry.kind == "debit"]


def test_killed_after_the_measurement(tmp_path: Path) -> None:
    path = releasable(tmp_path)
    with studio(path, "hdmm.publication.publish.answer_tables = killed") as first:
        first.release()
        assert first.process.wait(600) == -signal.SIGKILL
    assert debits(path) == ["ε = 0.5"]
    assert is_kept(load_spec(path))
    with studio(path) as second:
        state = second.ask("state")
        assert "paid for and kept" in state["published"]["kept"]
        assert not state["published"]["running"]
        second.ask("resume", {"replace": False}, seen=state["digest"])
        assert second.done("release")["state"] == "done"
        assert second.ask("state")["published"]["kept"] is None
    assert debits(path) == ["ε = 0.5"]
    assert (tmp_path / "out" / "report.html").exists()


def test_killed_between_the_debit_and_the_measurement(tmp_path: Path) -> None:
    path = releasable(tmp_path)
    with studio(path, "hdmm.measure.measure.exact_answers_of = killed") as first:
        first.release()
        assert first.process.wait(600) == -signal.SIGKILL
    assert debits(path) == ["ε = 0.5"]
    with studio(path) as second:
        assert "The ledger debited ε = 0.5 for these tables" in second.ask("state")["published"]["lost"]
        assert second.ask("state")["budget"]["left"] == "ε = 3.5"


def test_killed_before_the_debit(tmp_path: Path) -> None:
    path = releasable(tmp_path)
    with studio(path, "hdmm.publication.publish.paying_ledger = killed") as first:
        first.release()
        assert first.process.wait(600) == -signal.SIGKILL
    assert debits(path) == []
    with studio(path) as second:
        state = second.ask("state")
        assert state["published"]["lost"] is state["published"]["kept"] is None
        second.release()
        assert second.done("release")["state"] == "done"
    assert debits(path) == ["ε = 0.5"]


def test_a_release_outlasts_its_server(tmp_path: Path) -> None:
    """What is paid for is finished though the server is killed."""
    path = releasable(tmp_path)
    patch = (
        "answer = hdmm.publication.publish.answer_tables\n"
        "def alone(*given):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return answer(*given)\n"
        "hdmm.publication.publish.answer_tables = alone"
    )
    with studio(path, patch) as first:
        first.release()
        assert first.process.wait(600) == -signal.SIGKILL
    for _ in range(6000):
        if (tmp_path / "out" / "report.html").exists() and not is_kept(load_spec(path)):
            break
        time.sleep(0.1)
    with studio(path) as second:
        published = second.ask("state")["published"]
        assert published["report"]
        assert published["kept"] is published["lost"] is None
    assert debits(path) == ["ε = 0.5"]


def test_a_process_that_is_killed_is_told(tmp_path: Path) -> None:
    """The server goes on if only the release is killed, and says what is left to do."""
    path = releasable(tmp_path)
    with studio(path, "hdmm.publication.publish.answer_tables = lambda *_: os.kill(os.getpid(), 9)") as served:
        served.release()
        run = served.done("release")
        assert run["state"] == "failed"
        assert "ended from outside" in run["message"]
        assert "paid for and kept" in served.ask("state")["published"]["kept"]
    assert debits(path) == ["ε = 0.5"]


def test_a_search_is_cancelled_and_the_best_plan_kept(tmp_path: Path) -> None:
    text = SPEC.replace("time_limit = 1\nrestarts = 1\n", "time_limit = 300\nrestarts = 100000\n")
    # Restarts that agree would end the search by themselves.
    patch = (
        "import hdmm.select.opt_hdmm as select\n"
        "select._Tried.settled = lambda *_: False\n"
        "select._Tried.stale = lambda *_: False"
    )
    path = prepared(tmp_path, text)
    with studio(path, patch) as served:
        digest = served.ask("state")["digest"]
        served.ask("plan", {}, seen=digest)
        served.ask("plan", {}, seen=digest)  # a second click starts no second search
        while served.ask("pulse")["plan"].get("start", 0) < 2:
            time.sleep(0.1)
        served.ask("cancel", {})
        run = served.done("plan")
        assert (run["state"], run["interrupted"], run["outcome"]) == ("done", True, "saved")
        assert served.ask("outlook")["state"] == "ready"
    assert debits(path) == []
