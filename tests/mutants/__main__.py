"""`python -m tests.mutants [PART…]`: try the sample of mutants, or those whose names contain a part, with the tests.

It fails if a mutant survives that equivalent.toml does not list, or if a listed mutant is noticed or no longer exists.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import monotonic

from tests.mutants.mutate import Mutant, mutants
from tests.mutants.trial import Tree

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FEWEST = 200


@dataclass(frozen=True, slots=True)
class Case:
    """A mutant, the file it is of, and the tests that are to notice it."""

    mutant: Mutant
    file: str
    tests: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only mutants whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--one-in", type=int, help="another sample: 1 for all mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
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
    start = monotonic()
    survivors = survived(chosen, asked.jobs, equivalent=listed)
    names = [case.mutant.name for case in chosen]
    found = complaints(names, survivors, listed, whole=not asked.parts and asked.one_in is None)
    known = len(survivors & set(listed))
    print(
        f"{len(names)} mutants: {len(names) - len(survivors)} killed, {known} equivalent, "
        f"{len(survivors) - known} survived; {monotonic() - start:.0f} s"
    )
    print(*found, sep="\n")
    return 1 if found else 0


def cases(tests: Mapping[str, Collection[str]], one_in: int) -> Iterator[Case]:
    """The sample of the mutants of all files."""
    source = PROJECT / "src" / "hdmm"
    for pattern, wanted in tests.items():
        for path in sorted(source.glob(pattern)):
            if "*" in pattern and path.relative_to(source).as_posix() in tests:
                continue
            file = path.relative_to(PROJECT).as_posix()
            for mutant in mutants(path.relative_to(source).as_posix(), path.read_text(), one_in=one_in):
                yield Case(mutant, file, (file, *wanted))


def survived(chosen: Collection[Case], jobs: int, *, equivalent: Collection[str]) -> set[str]:
    """The names of the mutants that no test notices; each outcome is printed when it is known."""
    with TemporaryDirectory(prefix="hdmm-mutants-") as place, ThreadPoolExecutor(jobs) as pool:
        Path(place).chmod(0o711)  # tests of file permissions run as another user
        trees = SimpleQueue[Tree]()
        for job in range(jobs):
            trees.put(Tree.copy(PROJECT, Path(place) / str(job)))
        groups = {case.tests[1:] for case in chosen}
        limits = dict(pool.map(lambda tests: (tests, _limit(trees, tests)), groups))

        def trial(case: Case) -> tuple[str, bool]:
            tree = trees.get()
            try:
                tried = tree.tried(case.file, case.mutant.source, case.tests, limit=limits[case.tests[1:]])
            finally:
                trees.put(tree)
            print(
                f"{'SURVIVED' if tried.passed else 'killed':8} {tried.seconds:5.1f} s  {case.mutant.name}", flush=True
            )
            return case.mutant.name, tried.passed

        running = [pool.submit(trial, case) for case in chosen]
        try:
            return {name for name, passed in (done.result() for done in as_completed(running)) if passed}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C no further one is begun


def _limit(trees: SimpleQueue[Tree], tests: tuple[str, ...]) -> float:
    """The seconds after which a mutant counts as killed: far more than the tests take without one."""
    tree = trees.get()
    try:
        plain = tree.run(tests, limit=3600)
    finally:
        trees.put(tree)
    if not plain.passed:
        raise SystemExit(f"{' '.join(tests)} fail without any mutant:\n{plain.output}")
    return 60 + 5 * plain.seconds


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
