"""What works without the calls that only POSIX has, and what is refused in words (docs/faq.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# The libraries come first: what they do on Windows is their own concern. Then whatever Windows lacks is taken away.
AS_IF_ON_WINDOWS = """
import asyncio, concurrent.futures.process, multiprocessing.connection, os, platform, shutil, sqlite3, subprocess, sys
import click, duckdb, numpy, pyarrow.csv, pyarrow.dataset, rich.console, rich.progress, scipy.optimize, threadpoolctl
sys.modules["fcntl"] = None
for name in "register_at_fork fork O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_CLOEXEC getuid sysconf".split():
    if hasattr(os, name):
        delattr(os, name)
sys.platform = "win32"
import hdmm
from hdmm import Domain, Ledger, Prefix, PureDP, Workload
domain = Domain({"sex": ["M", "F"], "age": 10})
w = Workload.marginals(domain, k=2) + Workload.product(domain, age=Prefix())
"""


def as_if_on_windows(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_IF_ON_WINDOWS + code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_planning_and_releasing_without_a_ledger_work(tmp_path: Path) -> None:
    code = """
plan = hdmm.optimize(w, restarts=1, progress=False)
(tmp := __import__("pathlib").Path("rows.csv")).write_text("sex,age\\nM,3\\nF,4\\n")
release = plan.measure(hdmm.from_table(domain, tmp), PureDP(1), ledger=None)
print(len(release.answer(w).tables()))
"""
    done = as_if_on_windows(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_what_needs_posix_says_so(tmp_path: Path) -> None:
    code = """
from hdmm.apps.cli import run
plan = hdmm.optimize(w, restarts=1, progress=False)
for act in (
    lambda: Ledger("budget.db", dataset="people", cap=PureDP(1)),
    lambda: plan.save("plan"),
    lambda: hdmm.load_plan("plan"),
):
    try:
        act()
    except hdmm.HdmmError as wrong:
        print(type(wrong).__name__, wrong)
print(run(["schema"]))
"""
    done = as_if_on_windows(code, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["LedgerError", "FileError", "FileError", "1"]
    assert all("run hdmm in WSL 2" in line for line in [*lines[:3], done.stderr])
    assert list(tmp_path.iterdir()) == []
