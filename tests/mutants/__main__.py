"""`python -m tests.mutants [PART…]`: try the sample of mutants, or those whose names contain a part, with the tests.

It fails if a mutant survives that equivalent.toml does not list, or if a listed mutant is noticed or no longer exists.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from math import log10
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.mutate import Mutant, mutants
from tests.mutants.trial import Known, Tree

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FEWEST = 200


@dataclass(frozen=True, slots=True)
class Case:
    """A mutant, the file it is of, and the tests that are to notice it."""

    mutant: Mutant
    file: str
    tests: tuple[str, ...]

    def outcome(self, word: str) -> str:
        """A line of the log: what became of this change of this very file."""
        return f"{word:8} {sha256(self.mutant.source.encode()).hexdigest()[:12]} {self.mutant.name}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only mutants whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--one-in", type=int, help="another sample: 1 for all mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--log", type=Path, help="add outcomes to this file; skip what it says was killed in a like file"
    )
    asked = parser.parse_args()
    settings = tomllib.loads((HERE / "private_path.toml").read_text())
    sample = list(cases(settings["tests"], asked.one_in or settings["one_in"]))
    if asked.one_in is None and len(sample) < FEWEST:
        raise SystemExit(f"The sample has {len(sample)} mutants; it needs {FEWEST}. Lower one_in in private_path.toml.")
    chosen = [case for case in sample if not asked.parts or any(part in case.mutant.name for part in asked.parts)]
    if asked.list:
        print(*(case.mutant.name for case in chosen), sep="\n")
        return 0
    listed = tomllib.loads((HERE / "equivalent.toml").read_text())
    done = set(asked.log.read_text().splitlines()) if asked.log and asked.log.exists() else set[str]()
    survivors = survived([case for case in chosen if case.outcome("killed") not in done], asked.jobs, asked.log)
    names = [case.mutant.name for case in chosen]
    found = complaints(names, survivors, listed, whole=not asked.parts and asked.one_in is None)
    known = len(survivors & set(listed))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(names)} mutants: {len(names) - len(survivors)} killed, {known} equivalent, "
        f"{len(survivors) - known} survived; {used.ru_utime + used.ru_stime:.0f} s of the processor"
    )
    print(*found, sep="\n")
    return 1 if found else 0


def cases(tests: Mapping[str, Collection[str]], one_in: int) -> Iterator[Case]:
    """The sample of the mutants of all files."""
    source = PROJECT / "src" / "hdmm"
    for pattern, wanted in tests.items():
        paths = [path.relative_to(source).as_posix() for path in sorted(source.glob(pattern))]
        for name in (*(name for name in wanted if not _exists(name)), *(() if paths else (f"src/hdmm/{pattern}",))):
            raise SystemExit(f"private_path.toml names {name}, which does not exist.")
        for path in paths:
            if not wanted or (path != pattern and path in tests):
                continue
            file = f"src/hdmm/{path}"
            for mutant in mutants(path, (source / path).read_text(), one_in=one_in):
                yield Case(mutant, file, (file, *wanted))


def _exists(test: str) -> bool:
    path, _, function = test.partition("::")
    place = PROJECT / path
    return place.exists() and (not function or f"def {function}(" in place.read_text())


def survived(chosen: Collection[Case], jobs: int, log: Path | None) -> set[str]:
    """The names of the mutants that no test notices; each outcome is printed when it is known."""
    with TemporaryDirectory(prefix="hdmm-mutants-") as place, ThreadPoolExecutor(jobs) as pool:
        Path(place).chmod(0o711)  # tests of file permissions run as another user
        trees = SimpleQueue[Tree]()
        for job in range(jobs):
            trees.put(Tree.copy(PROJECT, Path(place) / str(job)))

        @contextmanager
        def lent() -> Iterator[Tree]:
            tree = trees.get()
            try:
                yield tree
            finally:
                trees.put(tree)

        def recorded(tests: str) -> dict[str, Known]:
            with lent() as tree:
                found = tree.recorded([tests], {case.file for case in chosen if tests in case.tests})
            print(f"{len(found):4} tests {sum(test.seconds for test in found.values()):5.1f} s  {tests}", flush=True)
            return found

        def trial(case: Case) -> tuple[str, bool]:
            known = {name: test for tests in case.tests for name, test in everything[tests].items()}
            seconds = {name: test.seconds for name, test in known.items()}
            with lent() as tree:
                tried = tree.tried(case.file, case.mutant.source, ordered(case, known), seconds)
            outcome = "SURVIVED" if tried.passed else "killed"
            print(f"{outcome:8} {tried.seconds:5.1f} s  {case.mutant.name}", flush=True)
            if log is not None:
                with log.open("a") as file:
                    print(case.outcome(outcome), file=file)
            return case.mutant.name, tried.passed

        try:
            found, everything = set[str](), dict[str, dict[str, Known]]()
            for tests, group in groupby(chosen, key=lambda case: case.tests):  # a log that is cut off has whole files
                units = [unit for unit in tests if unit not in everything]
                everything |= zip(units, pool.map(recorded, units), strict=True)
                running = [pool.submit(trial, case) for case in group]
                found |= {name for name, passed in (done.result() for done in as_completed(running)) if passed}
            return found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C no further one is begun
            for _ in range(jobs):
                trees.get().close()


def ordered(case: Case, tests: Mapping[str, Known]) -> list[list[str]]:
    """The tests that reach what is changed (its file, if none does), quick ones first; and all others after them.

    So the order does not decide whether a mutant is noticed. More may reach it than is known: what a test starts in
    another process, or finds in a cache that an earlier test has filled.
    """
    names = sorted(
        tests, key=lambda name: round(log10(max(tests[name].seconds, 0.01)))
    )  # those of a file stay together
    lines = {name: tests[name].lines.get(case.file, ()) for name in names}
    first = [name for name in names if not set(case.mutant.lines).isdisjoint(lines[name])]
    first = first or [name for name in names if lines[name]]
    return [first, [name for name in names if name not in set(first)]]


def complaints(
    names: Collection[str], survivors: Collection[str], equivalent: Mapping[str, str], *, whole: bool
) -> list[str]:
    """What is wrong: survivors that are not listed, and (of a whole sample) listed ones that did not survive."""
    found = [f"No test notices {name}" for name in names if name in survivors and name not in equivalent]
    for name, reason in equivalent.items():
        if not reason.strip():
            found.append(f"equivalent.toml gives no reason for {name}")
        if name in names and name not in survivors:
            found.append(f"equivalent.toml lists, but a test notices {name}")
        if whole and name not in names:
            found.append(f"equivalent.toml lists, but there is no {name}")
    return found


if __name__ == "__main__":
    sys.exit(main())
