"""Who may speak to the studio: the page it served, with its token, from this machine."""

from __future__ import annotations

import shutil
import socket
import webbrowser

import pytest

from hdmm.apps.studio import server as studio_app
from hdmm.apps.studio.serve import _listening, _opened
from hdmm.base.exceptions import HdmmError
from tests.apps.studio.conftest import HOST, PORT, TOKEN, Page, TestClient

WRITES = ("try", "edit", "plan", "cancel", "offer", "release", "resume", "rows")
READS = ("state", "pulse", "outlook", "step?value=1")


@pytest.mark.parametrize("name", [*READS, *WRITES])
@pytest.mark.parametrize("token", [None, "", "another", TOKEN[:-1], TOKEN + "x"])
def test_nothing_is_said_or_done_without_the_token(page: Page, name: str, token: str | None) -> None:
    headers = {"origin": f"http://{HOST}"} | ({} if token is None else {"x-hdmm-token": token})
    sent = page.client.post if name in WRITES else page.client.get
    answer = sent(f"/api/{name}", headers=headers)
    assert answer.status_code == 403
    assert "people" not in answer.text
    assert "Open the address that the terminal shows" in answer.text


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "", f"[::1]:{PORT}", "127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/", "/studio.js", "/api/state"])
def test_another_name_of_this_machine_is_refused(page: Page, host: str, path: str) -> None:
    """A site whose name leads here (DNS rebinding) sends its own name."""
    answer = page.client.get(path, headers={"x-hdmm-token": TOKEN, "host": host})
    assert answer.status_code == 421


def test_localhost_is_this_machine(page: Page) -> None:
    headers = {"x-hdmm-token": TOKEN, "host": f"localhost:{PORT}", "origin": f"http://localhost:{PORT}"}
    assert page.client.get("/api/state", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1:1", f"https://{HOST}"])
def test_a_request_from_another_page_does_nothing(page: Page, origin: str | None) -> None:
    headers = page.headers() | {"origin": origin or ""}
    if origin is None:
        del headers["origin"]
    before = page.path.read_bytes()
    edit = {"type": "goals", "budget": "1", "margins": {}}
    assert page.client.post("/api/edit", json=edit, headers=headers).status_code == 403
    assert page.path.read_bytes() == before


def test_a_request_that_a_browser_calls_cross_site_does_nothing(page: Page) -> None:
    headers = page.headers() | {"sec-fetch-site": "cross-site"}
    assert page.client.post("/api/plan", headers=headers).status_code == 403


@pytest.mark.parametrize("path", ["/", "/studio.js", "/studio.css", "/api/state", "/report/x", "/nothing"])
def test_every_answer_has_the_policy(page: Page, path: str) -> None:
    headers = page.client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers


def test_the_page_names_no_other_machine_and_no_inline_script(page: Page) -> None:
    for path in ("/", "/studio.js", "/studio.css"):
        text = page.client.get(path).text
        assert "https://" not in text
        assert "http://" not in text
    html = page.client.get("/").text
    assert html.count("<script") == 1
    assert '<script type="module" src="/studio.js"></script>' in html
    assert " style=" not in html
    assert "innerHTML" not in page.client.get("/studio.js").text


def test_what_is_too_large_is_refused(page: Page) -> None:
    answer = page.client.post("/api/try", content=b"[" * (2**20 + 1), headers=page.headers())
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"type":"other"}', b'{"type":"remove","name":"P12","more":1}', b"\xff"]
)
def test_what_is_no_request_is_refused(page: Page, body: bytes) -> None:
    before = page.path.read_bytes()
    answer = page.client.post("/api/edit", content=body, headers=page.headers())
    assert answer.status_code == 400
    assert "Reload the page" in answer.json()["error"]
    assert page.path.read_bytes() == before


def test_an_unexpected_error_shows_its_type_alone(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the data")

    monkeypatch.setattr(studio_app, "budget_of", fail)
    answer = page.client.get("/api/state", headers=page.headers())
    assert answer.status_code == 500
    assert "RuntimeError" in answer.text
    assert "secret" not in answer.text


def test_only_this_machine_is_listened_to() -> None:
    with _listening(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.family == socket.AF_INET
        listener.listen()
        with pytest.raises(HdmmError, match=r"cannot be used.*Leave out --port"):
            _listening(listener.getsockname()[1])


def test_the_token_is_not_among_the_arguments_of_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users of the machine see these; a file that they cannot read leads the browser to the address."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    folder = _opened("http://127.0.0.1:8765/#token=secret")
    try:
        assert [each.startswith("file://") and "secret" not in each for each in opened] == [True]
        assert folder.stat().st_mode & 0o077 == 0
        assert "url=http://127.0.0.1:8765/#token=secret" in (folder / "open.html").read_text()
    finally:
        shutil.rmtree(folder)


def test_the_report_needs_its_key(page: Page, tmp_path: object) -> None:
    out = page.path.parent / "out"
    out.mkdir()
    (out / "report.html").write_text("<p>Released.</p>")
    link = page.look()["published"]["link"]
    plain = TestClient(page.client.app, base_url=f"http://{HOST}")
    answer = plain.get(link)
    assert answer.text == "<p>Released.</p>"
    assert answer.headers["content-security-policy"].startswith("sandbox ")
    assert "allow-same-origin" not in answer.headers["content-security-policy"]
    assert plain.get(link[:-1]).status_code == 404
    assert plain.get("/report/..%2Fpeople.toml").status_code == 404
