"""`hdmm studio` as a process of its own, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

SCRIPT = """
import os, signal
import hdmm.measure.measure, hdmm.publication.publish

def killed(*_, **__):
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

{patch}

if __name__ == "__main__":  # a process that the studio starts reads this file, too, and has what is above
    from hdmm.apps.cli import main
    main()
"""


@dataclass
class Served:
    """A studio that runs, and a client of it."""

    process: subprocess.Popen[str]
    address: str
    client: httpx.Client

    def ask(self, name: str, body: object = None, *, seen: str = "") -> Any:
        headers = {"if-match": f'"{seen}"'}
        if body is None:
            answer = self.client.get(f"/api/{name}", headers=headers)
        else:
            answer = self.client.post(f"/api/{name}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def done(self, kind: str) -> Any:
        return ended(lambda: self.ask("pulse")[kind])

    def release(self, **more: object) -> None:
        """Confirm a release, and post it."""
        offer = self.ask("offer", {}, seen=self.ask("state")["digest"])
        order = {"key": "1", "digest": offer["digest"], "record": offer["record"], "amount": offer["type"]}
        with suppress(httpx.TransportError):  # the server may be killed before it answers
            self.ask("release", order | more)


def ended(ask: Callable[[], Any]) -> Any:
    """The run that is asked for, once it has ended."""
    for _ in range(600):
        run = ask()
        if run["state"] != "running":
            return run
        time.sleep(0.1)
    raise AssertionError(f"The run did not end: {run}")


@contextmanager
def studio(path: Path, patch: str = "") -> Generator[Served]:
    """The studio of a file; `patch` is run in it and in the processes that it starts."""
    script = path.with_name("studio_under_test.py")
    script.write_text(SCRIPT.format(patch=patch))
    sources = os.pathsep.join(each for each in sys.path if each)
    process = subprocess.Popen(
        [sys.executable, "-u", str(script), "studio", str(path), "--no-browser"],
        env=os.environ | {"PYTHONPATH": sources, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = next(found.group() for line in process.stdout if (found := re.search(r"http://\S+", line)))
        base, _, token = address.partition("/#token=")
        with httpx.Client(base_url=base, headers={"x-hdmm-token": token, "origin": base}, timeout=60) as client:
            yield Served(process, address, client)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()
