"""A copy of the project in which mutants are tried: the working tree is never changed."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

PARTS = ("src", "tests", "examples", "pyproject.toml")  # what the tests of the private path read
SERVER = Path(__file__).parent / "server.py"
NONE_FOUND = 5  # pytest's exit status if no test was run
WRONG_PATH, NOT_IMPORTED = 4, "ImportError while loading conftest"  # its status is the same if a mutant prevents this


@dataclass(frozen=True, slots=True)
class Trial:
    """How the tests ended: whether they passed, after how many seconds of the processor, and what they printed."""

    passed: bool
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a test: its seconds of the processor, and the lines of each file that it reaches."""

    seconds: float
    lines: Mapping[str, Collection[int]]


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of a project, and the server that runs its tests.

    A test has failed after `patience` seconds of the processor and ten times what it is known to take.
    """

    root: Path
    server: subprocess.Popen[str]
    patience: float

    @classmethod
    def copy(cls, project: Path, root: Path, *, patience: float = 20) -> Tree:
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
        env = os.environ | {"PYTHONPATH": os.fspath(root / "src"), "TMPDIR": os.fspath(root / "tmp")}
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        env["PYTHONDONTWRITEBYTECODE"] = ""  # tests are compiled once
        command = [sys.executable, "-P", os.fspath(SERVER)]
        pipe = subprocess.PIPE
        return cls(root, subprocess.Popen(command, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True), patience)

    def close(self) -> None:
        self.server.terminate()
        self.server.communicate()

    def put(self, file: str, source: str) -> None:
        """Write a file. Its bytecode goes, which is told from older bytecode by seconds and sizes alone."""
        path = self.root / file
        path.write_text(source)
        Path(cache_from_source(os.fspath(path))).unlink(missing_ok=True)

    def tried(self, file: str, source: str, tests: Sequence[Sequence[str]], seconds: Mapping[str, float]) -> Trial:
        """The tests with this source in place of a file's, the later lists if the earlier ones pass.

        The file is put back.
        """
        kept = (self.root / file).read_text()
        self.put(file, source)
        spent, tried = 0.0, Trial(True, 0.0, "")
        try:
            for some in tests:
                if tried.passed:
                    paths = list(dict.fromkeys(name.split("::")[0] for name in some))
                    tried = self.run(paths, only=some, seconds=seconds)
                    spent += tried.seconds
            return replace(tried, seconds=spent)
        finally:
            self.put(file, kept)

    def recorded(self, tests: Sequence[str], files: Collection[str]) -> dict[str, Known]:
        """What each of these tests reaches in the files. All must pass, in their own order and from the quickest on."""
        inside = {os.fspath(self.root / file): file for file in files}
        results: list[Any] = []
        order: list[str] | None = None
        for record in (list(inside), []):
            plain = self.run(tests, only=order, record=record)
            if not plain.passed:
                raise RuntimeError(f"{' '.join(tests)} fail without any mutant:\n{plain.output}")
            results.append(json.loads((self.root / "result").read_text()))
            order = sorted(results[0]["seconds"], key=results[0]["seconds"].__getitem__)
        return {
            name: Known(seconds, {inside[path]: lines for path, lines in results[0]["lines"][name].items()})
            for name, seconds in results[1]["seconds"].items()
        }

    def run(
        self,
        tests: Sequence[str],
        *,
        only: Sequence[str] | None = None,
        seconds: Mapping[str, float] | None = None,
        record: Sequence[str] = (),
    ) -> Trial:
        """The tests of these paths, or `only` some of them in this order, stopped at the first that fails."""
        if not tests:
            return Trial(True, 0.0, "")
        output, result = self.root / "output", self.root / "result"
        request = {"tests": tests, "only": only, "seconds": seconds or {}, "record": record}
        request |= {"output": os.fspath(output), "result": os.fspath(result)}
        request["patience"] = self.patience
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps(request), file=self.server.stdin, flush=True)
        answer = json.loads(self.server.stdout.readline())
        text = output.read_text(errors="replace")
        temporary = self.root / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(exist_ok=True)
        status = answer["status"]
        if status == WRONG_PATH and NOT_IMPORTED not in text:
            raise RuntimeError(f"pytest could not run {' '.join(tests)}:\n{text}")
        return Trial(status in (0, NONE_FOUND), answer["seconds"], text)
