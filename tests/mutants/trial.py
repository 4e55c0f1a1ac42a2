"""A copy of the project in which mutants are tried: the working tree is never changed."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from time import monotonic

PARTS = ("src", "tests", "examples", "pyproject.toml")  # what the tests of the private path read
_MOST_MEMORY = 8 << 30  # bytes: a mutant that never stops growing ends here
_CHILD = f"""
import resource, sys, pytest
resource.setrlimit(resource.RLIMIT_DATA, ({_MOST_MEMORY}, {_MOST_MEMORY}))
sys.exit(pytest.main(sys.argv[1:]))
"""
# No bytecode is written: it is told from older bytecode by seconds and sizes, which two mutants may share. Hypothesis
# takes its examples from a fixed seed, so that a mutant it finds today it finds tomorrow.
_OPTIONS = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0")


@dataclass(frozen=True, slots=True)
class Trial:
    """How the tests ended: whether they passed, after how many seconds, and what they printed."""

    passed: bool
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of a project."""

    root: Path

    @classmethod
    def copy(cls, project: Path, root: Path) -> Tree:
        """A copy of the project at `root`, compiled."""
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for part in PARTS:
            if (project / part).is_dir():
                shutil.copytree(project / part, root / part, ignore=ignored)
            elif (project / part).exists():
                shutil.copy(project / part, root / part)
        (root / "tmp").mkdir()
        for path in (root / "src").rglob("*.py"):
            py_compile.compile(os.fspath(path))
        return cls(root)

    def tried(self, file: str, source: str, tests: Sequence[str], *, limit: float) -> Trial:
        """The tests with this source in place of a file's; the file is put back. A run past the limit has failed."""
        path = self.root / file
        kept = path.read_bytes()
        try:
            path.write_text(source)
            Path(cache_from_source(os.fspath(path))).unlink(missing_ok=True)
            return self.run(tests, limit=limit)
        finally:
            path.write_bytes(kept)
            py_compile.compile(os.fspath(path))

    def run(self, tests: Sequence[str], *, limit: float) -> Trial:
        """The tests, stopped at the first that fails and after `limit` seconds."""
        temporary = self.root / "tmp"
        env = os.environ | {"PYTHONPATH": os.fspath(self.root / "src"), "TMPDIR": os.fspath(temporary)}
        env |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        start = monotonic()
        with open(self.root / "output", "w+b") as output:
            command = [sys.executable, "-c", _CHILD, *_OPTIONS, *tests]
            process = subprocess.Popen(
                command, cwd=self.root, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(limit)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it started may outlive it
                process.wait()
            seconds = monotonic() - start
            output.seek(0)
            text = output.read().decode(errors="replace")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(exist_ok=True)
        if process.returncode in (4, 5):  # pytest's own: a wrong path, or no test found
            raise RuntimeError(f"pytest could not run {' '.join(tests)}:\n{text}")
        return Trial(process.returncode == 0, seconds, text)
