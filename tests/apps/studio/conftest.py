"""A studio for tests: a small specification with its data, and a client that speaks as the page does."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hdmm import load_spec
from hdmm.apps.studio import work
from hdmm.apps.studio.server import application
from hdmm.apps.studio.spec_file import StudioFile
from hdmm.publication.budget import budget_of
from tests.apps.studio.serving import ended
from tests.support.spec_cases import SPEC, planned, prepared

with warnings.catch_warnings():  # the client speaks through httpx, for which newer versions want a successor
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

TOKEN = "a token of this test"
PORT = 8765
HOST = f"127.0.0.1:{PORT}"

COMMENTED = "# For the office of statistics.\n" + SPEC.replace(
    'name = "P12"\n', 'name = "P12"  # as in the census\n'
).replace("[privacy]\n", "# Decided by the board on 12 March.\n[privacy]\n").replace(
    'epsilon = "0.5"\n', 'epsilon = "0.5"  # half a unit\n'
)


@dataclass
class Page:
    """What the page does: the token and the origin in every request, and the digest that it has seen."""

    client: TestClient
    path: Path
    digest: str = ""

    def get(self, name: str) -> Any:
        return self.checked(self.client.get(f"/api/{name}", headers=self.headers()))

    def post(self, name: str, body: object = None, code: int = 200) -> Any:
        sent = self.client.post(f"/api/{name}", json=body or {}, headers=self.headers())
        return self.checked(sent, code)

    def look(self) -> Any:
        """The state, whose digest the page then has."""
        found = self.get("state")
        self.digest = found["digest"]
        return found

    def headers(self) -> dict[str, str]:
        return {"x-hdmm-token": TOKEN, "origin": f"http://{HOST}", "if-match": f'"{self.digest}"'}

    def checked(self, answer: Any, code: int = 200) -> Any:
        assert answer.status_code == code, answer.text
        return answer.json()

    def order(self, **more: object) -> dict[str, object]:
        """A release as the user confirms it: what was offered, and the amount typed."""
        offer = self.post("offer")
        return {
            "key": "1",
            "digest": offer["digest"],
            "record": offer["record"],
            "amount": offer["type"],
            "replace": False,
            "new_dataset": False,
        } | more

    def done(self, kind: str) -> Any:
        """The run of this kind, once it has ended."""
        return ended(lambda: self.get("pulse")[kind])

    def spent(self) -> str:
        found = budget_of(load_spec(self.path))
        return found.shown(found.spent)


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., Page]:
    """Serve a specification; called again, it is a second studio of the same file."""

    def serve(text: str = COMMENTED) -> Page:
        path = tmp_path / "people.toml"
        if not path.exists():
            prepared(tmp_path, text)
        app = application(StudioFile(path, {}), token=TOKEN, port=PORT)
        page = Page(TestClient(app, base_url=f"http://{HOST}"), path)
        page.look()
        return page

    return serve


@pytest.fixture
def page(served: Callable[..., Page]) -> Page:
    return served()


@pytest.fixture
def releasable(page: Page) -> Page:
    """A page whose specification has a plan."""
    spec = load_spec(page.path)
    planned(spec).save(spec.plan.folder)
    return page


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are threads, which begin at once; that they may be processes of their own is tested by itself."""

    class Told:
        """The end of a pipe that a thread shares with the server, which closes its own copy."""

        def __init__(self, connection: Any) -> None:
            self.send_bytes = connection.send_bytes

        def close(self) -> None:
            pass

    class Context:
        @staticmethod
        def Pipe(duplex: bool) -> tuple[Any, Any]:
            heard, told = spawn.Pipe(duplex=duplex)
            return heard, Told(told)

        @staticmethod
        def Process(*, target: Any, args: Any, daemon: bool, name: str) -> Any:
            thread = threading.Thread(target=target, args=args, daemon=daemon, name=name)
            thread.pid = None  # type: ignore[attr-defined]
            return thread

    spawn = work._SPAWN
    monkeypatch.setattr(work, "_SPAWN", Context)
    monkeypatch.setattr(work, "_finish_whatever_happens", lambda: None)
