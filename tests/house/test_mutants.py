"""The mutator makes the changes it names, and a trial distinguishes tested code from untested code."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from tests.mutants.__main__ import FEWEST, HERE, Case, cases, complaints, ordered
from tests.mutants.mutate import mutants
from tests.mutants.trial import Known, Tree

CHANGES = {
    "a < b": ["a <= b"],
    "0 < a <= b": ["0 <= a <= b", "0 < a < b", "1 < a <= b", "-1 < a <= b"],
    "a == b": ["a != b"],
    "a in b": ["a not in b"],
    "a + b": ["a - b"],
    "a // b": ["a * b"],
    "a ** b": ["a * b"],
    "a << b": ["a >> b"],
    "a | b": ["a", "b"],
    "a and b": ["a or b", "b", "a"],
    "a or b or c": ["a and b and c", "b or c", "a or c", "a or b"],
    "not a": ["a"],
    "-a": ["a"],
    "a = 7": ["a = 6", "a = 8", "a = 14"],
    "a = 2.5": ["a = 5.0"],
    "a = f(b, c=True)": ["a = f(b)", "a = f(b, c=False)"],
    "a = zip(b, c, strict=True)": [],  # an assertion
    "a = Point(x=b)": [],  # it would not be made
    "a = min(b, c)": ["a = max(b, c)"],
    "a = np.floor(b)": ["a = np.ceil(b)", "a = np.rint(b)"],
    "a = floor(b)": [],  # the file knows no ceil
    "a = floor(b), ceil(b)": ["a = ceil(b), ceil(b)", "a = floor(b), floor(b)"],
    "a = rounding('down')": ["a = rounding('up')"],
    "a if b else c": ["c if b else a"],
    "a[b:c]": ["a[:c]", "a[b:]"],
    "raise Wrong(f'{a + b} is less than 7') from None": ["pass", "raise Wrong(f'{a + b} is less than 7')"],
    "raise Wrong from error": ["pass"],
    "f(a)": ["pass"],
    "a += b": ["pass"],
    "a.b = c": ["pass"],
    "a[b] = c": ["pass"],
    "a = b": [],
    "a: int | None = b": [],
    "a = Literal[1, 2]": [],
    "with f(a):\n    b": ["if True:\n    b"],
    "with f(a) as c:\n    b": [],
    "with a, b as c:\n    d": ["with b as c:\n    d"],
    "if a:\n    b": ["if not a:\n    b"],
    "for a in b:\n    continue": ["for a in b:\n    pass"],
    "'A text of 7 words.'": [],
}


@pytest.mark.parametrize(("source", "expected"), CHANGES.items(), ids=CHANGES)
def test_changes(source: str, expected: list[str]) -> None:
    made = [mutant.source for mutant in mutants("f.py", source)]
    assert sorted(made) == sorted(ast.unparse(ast.parse(text)) + "\n" for text in expected)


def test_a_name_tells_the_file_the_function_and_the_change() -> None:
    source = (
        "class C:\n    def f(self, a):\n        if a <= 0:\n            raise Wrong('words')\n        return g(a)[0]"
    )
    assert {mutant.name for mutant in mutants("noise/bits.py", source)} == {
        "noise/bits.py C.f: `if a <= 0:` as `if a < 0:`",
        "noise/bits.py C.f: `if a <= 0:` as `if a <= 1:`",
        "noise/bits.py C.f: `if a <= 0:` as `if a <= -1:`",
        "noise/bits.py C.f: `if a <= 0: raise Wrong(...)` as `pass`",
        "noise/bits.py C.f: `return g(a)[0]` as `return g(a)[1]`",
        "noise/bits.py C.f: `return g(a)[0]` as `return g(a)[-1]`",
    }


def test_names_outlive_lines_and_other_functions() -> None:
    source = "def f(a, b):\n    return a + b < 7 and a - b < 7"
    moved = f'"""New."""\n\nimport math\n\n\ndef new(a):\n    return a + 1\n\n\n{source}  # why\n'
    names = {mutant.name for mutant in mutants("f.py", source)}
    assert names == {mutant.name for mutant in mutants("f.py", moved) if " f: " in mutant.name}
    sample = {mutant.name for mutant in mutants("f.py", source, one_in=2)}
    assert sample == {mutant.name for mutant in mutants("f.py", moved, one_in=2) if " f: " in mutant.name}
    assert 0 < len(sample) < len(names)


def test_the_sample_is_large_enough_and_its_names_differ() -> None:
    sample = sampled()
    assert len(sample) == len(set(sample)) >= FEWEST


def test_what_is_listed_as_equivalent_is_in_the_sample() -> None:
    """An edit may take a mutant off the sample: then its line in equivalent.toml goes too."""
    equivalent = tomllib.loads((HERE / "equivalent.toml").read_text())
    assert complaints(sampled(), set(equivalent), equivalent, whole=True) == []


@cache
def sampled() -> list[str]:
    settings = tomllib.loads((HERE / "private_path.toml").read_text())
    return [case.mutant.name for case in cases(settings["tests"], settings["one_in"])]


def test_the_lines_of_a_mutant_are_those_of_its_statement() -> None:
    source = "def f(a, b=1):\n    if (a\n            < b):\n        return g(\n            a, b + 1)\n    return 0\n"
    lines = {mutant.name.split(" as ")[1]: mutant.lines for mutant in mutants("f.py", source)}
    assert lines["`if a <= b:`"] == range(2, 4)
    assert lines["`return g(a, b - 1)`"] == range(4, 6)
    assert lines["`return 1`"] == range(6, 7)


@pytest.mark.parametrize(
    ("pattern", "test"),
    [
        ("area.py", "tests/house/test_mutants.py"),
        ("base/numbers.py", "tests/house/test_nothing.py"),
        ("base/numbers.py", "tests/house/test_mutants.py::test_nothing"),
    ],
)
def test_a_line_that_names_nothing_is_an_error(pattern: str, test: str) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        list(cases({pattern: [test]}, 6))


def test_tests_that_reach_a_change_come_first_and_no_test_is_left_out() -> None:
    (mutant,) = mutants("area.py", "def area(a, b):\n    return a * b")
    tests = {
        "slow": Known(9.0, {"src/area.py": [2]}),
        "elsewhere": Known(0.1, {"src/area.py": [1], "src/other.py": [2]}),
        "quick": Known(0.1, {"src/area.py": [1, 2]}),
    }
    assert ordered(Case(mutant, "src/area.py", ()), tests) == [["quick", "slow"], ["elsewhere"]]
    assert ordered(Case(mutant, "src/other.py", ()), tests) == [["elsewhere"], ["quick", "slow"]]
    unknown = {name: Known(test.seconds, {"src/area.py": [1]}) for name, test in tests.items()}
    assert ordered(Case(mutant, "src/area.py", ()), unknown) == [["elsewhere", "quick", "slow"], []]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    project, root = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("copy")
    for name, text in {
        "src/planted/__init__.py": "",
        "src/planted/area.py": AREA,
        "tests/test_area.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    made = Tree.copy(project, root, patience=1)
    yield made
    made.close()


AREA = """
def area(a, b):
    return a * b


def cached(a, b):
    return a * b


def unused(a, b):
    return a * b
"""
TESTS = """
import subprocess, sys
from planted.area import area, cached

def test_it():
    assert area(3, 4) == 12

def test_another_process():
    subprocess.run([sys.executable, "-c", "from planted.area import cached; assert cached(3, 4) == 12"], check=True)
"""
FILE = "src/planted/area.py"


def test_what_is_tested_is_killed_and_what_is_not_survives(tree: Tree) -> None:
    """Also where only a process that a test starts reaches the change."""
    known = tree.recorded(["tests/test_area.py"], {FILE})
    assert {name.split("::")[1]: dict(test.lines) for name, test in known.items()} == {
        "test_it": {FILE: [2, 3]},
        "test_another_process": {},
    }
    passed: dict[str, bool] = {}
    for mutant in mutants("area.py", AREA):
        tests = ordered(Case(mutant, FILE, ()), known)
        passed[mutant.name] = tree.tried(FILE, mutant.source, tests, {}).passed
    assert passed == {
        "area.py area: `return a * b` as `return a + b`": False,
        "area.py cached: `return a * b` as `return a + b`": False,
        "area.py unused: `return a * b` as `return a + b`": True,
    }
    assert tree.run(["tests/test_area.py"]).passed  # the file was put back


@pytest.mark.parametrize("endless", ["while True:\n        pass", "import threading\n    threading.Event().wait()"])
def test_a_mutant_that_never_ends_is_killed(tree: Tree, endless: str) -> None:
    source = AREA.replace("return a * b", endless, 1)
    assert not tree.tried(FILE, source, [["tests/test_area.py::test_it"]], {}).passed


def test_tests_that_fail_without_a_mutant_are_no_evidence(tree: Tree) -> None:
    tree.put(
        "tests/test_order.py", "done = []\n\ndef test_b():\n    done.append(1)\n\ndef test_a():\n    assert done\n"
    )
    with pytest.raises(RuntimeError, match="fail without any mutant"):
        tree.recorded(["tests/test_order.py::test_a"], {FILE})


def test_a_mutant_that_cannot_be_imported_by_what_tests_share_is_killed(tree: Tree) -> None:
    (tree.root / "tests/shared").mkdir()
    tree.put("tests/shared/test_it.py", "def test_it():\n    pass\n")
    tree.put("tests/shared/conftest.py", f"import {FILE.removeprefix('src/').removesuffix('.py').replace('/', '.')}\n")
    assert tree.tried(FILE, "raise TypeError\n", [["tests/shared/test_it.py::test_it"]], {}).passed is False


def test_a_path_without_tests_is_no_kill(tree: Tree) -> None:
    with pytest.raises(RuntimeError, match="could not run"):
        tree.run(["tests/test_nothing.py"])


def test_complaints() -> None:
    names, survivors = ["a", "b", "c"], {"a", "b"}
    assert complaints(names, survivors, {"a": "why", "b": "why"}, whole=True) == []
    assert complaints(names, survivors, {"a": "why"}, whole=True) == ["No test notices b"]
    assert complaints(names, survivors, {"a": "why", "b": " "}, whole=True) == ["equivalent.toml gives no reason for b"]
    listed = {"a": "why", "b": "why", "c": "why", "d": "why"}
    assert complaints(names, survivors, listed, whole=True) == [
        "equivalent.toml lists, but a test notices c",
        "equivalent.toml lists, but there is no d",
    ]
    assert complaints(["a"], {"a"}, {"a": "why", "d": "why"}, whole=False) == []
