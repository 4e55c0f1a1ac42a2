"""Requirement N11: no socket that hdmm opens obeys another user of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hdmm.apps.studio import serve
from tests.apps.studio.serving import studio
from tests.support.second_user import listening, obeyed, shown_to_all, tree
from tests.support.spec_cases import prepared

LOOPBACK = "0100007F"
HTTP = ["/", "/health", "/metrics", "/status", "/info/main/workers.html", "/json/counts.json", "/api/v1/get_workers"]
HTTP += ["/proxy/22/127.0.0.1/", "/statics/css/base.css", "/sitemap.json"]
NOTHING = '/sitemap.json: 200 {"paths": ["/sitemap.json"]}'  # the one page that Dask always has: a list of its pages
pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc, which lists the ports here")

ENGINE = """
import sys, tempfile
import hdmm
from hdmm.noise import ReleaseKey

if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    engine = hdmm.engines.dask(None, sys.argv[1] + "/chunks")
    with ReleaseKey() as key, engine.lending(None, key):
        print("lent", flush=True)
        sys.stdin.readline()
    engine.client.cluster.close()
    engine.client.close()
"""


@contextmanager
def engine_here(folder: Path) -> Generator[subprocess.Popen[str]]:
    """A process that has started workers here, and lent them a key."""
    script = folder / "engine.py"
    script.write_text(ENGINE)
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Dask reports connections that it refused
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "lent\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
def test_a_cluster_without_certificates_obeys_anybody() -> None:
    """What the second user tries in these tests does work where nothing prevents it."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0", host="127.0.0.1"
    )
    with cluster:
        told = obeyed(sorted(listening(os.getpid()).tcp), HTTP)
    ways = [way for _, way, _ in told]
    assert ways.count("plain") == 2  # the scheduler and its worker
    assert ways.count("http") == 2
    assert any(os.getcwd() in said for _, way, said in told if way == "plain")  # a function of theirs ran here


@pytest.mark.slow
def test_workers_that_hdmm_starts_obey_no_other_user(tmp_path: Path) -> None:
    """Neither the scheduler nor a worker, its nanny or their pages; by Dask, by TLS and by HTTP."""
    pytest.importorskip("distributed")
    with engine_here(tmp_path) as process:
        found = listening(process.pid)
        assert len(tree(process.pid)) > 1
        assert len(found.tcp) >= 3  # or this test looks in the wrong place
        assert set(found.tcp.values()) == {LOOPBACK}
        assert found.unix == []
        told = obeyed(sorted(found.tcp), HTTP)
        assert {(way, said) for _, way, said in told} == {("http", NOTHING)}
        assert "BEGIN" not in shown_to_all(process.pid)  # a certificate or its key
        folders = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert [path.stat().st_mode & 0o077 for path in folders] == [0]  # Dask imports modules from there
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


STUDIO = ["/", "/api/state", "/api/pulse", "/api/outlook", "/api/step?value=1", "/report/x", "/report/..%2Fpeople.toml"]
STUDIO += ["/docs", "/openapi.json", "/people.toml", "/../people.toml", "//etc/passwd"]


@pytest.mark.slow
def test_the_studio_obeys_no_other_user(tmp_path: Path) -> None:
    """Whoever has no token gets the empty page, and cannot change, spend or read anything; nothing shows the token."""
    prepared(tmp_path)
    with studio(tmp_path / "people.toml") as served:
        pid, (base, _, token) = served.process.pid, served.address.partition("/#token=")
        found = listening(pid)
        assert list(found.tcp.items()) == [(int(base.rpartition(":")[2]), LOOPBACK)]
        assert found.unix == []
        ((_, way, said),) = obeyed(sorted(found.tcp), STUDIO)
        page = (Path(serve.__file__).parent / "static" / "studio.html").read_text()
        assert (way, said) == ("http", f"/: 200 {page}")
        assert token not in shown_to_all(pid)
        for name in ("try", "edit", "plan", "cancel", "offer", "release", "resume"):
            for guess in ({}, {"x-hdmm-token": ""}, {"x-hdmm-token": token[:-1]}, {"cookie": f"x-hdmm-token={token}"}):
                answer = httpx.post(
                    f"{base}/api/{name}?x-hdmm-token={token}", json={}, headers={"origin": base} | guess
                )
                assert answer.status_code == 403
        assert served.ask("pulse")["release"] is None


def test_nobody_else_can_take_the_port_before_the_studio_listens() -> None:
    """A page of theirs would be opened with the token in its address."""
    with serve._listening(0) as listener, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(listener.getsockname())
