"""The mutator makes the changes it names, and a trial distinguishes tested code from untested code."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.mutants.__main__ import FEWEST, HERE, cases, complaints
from tests.mutants.mutate import mutants
from tests.mutants.trial import Tree

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


def sampled() -> list[str]:
    settings = tomllib.loads((HERE / "private_path.toml").read_text())
    return [case.mutant.name for case in cases(settings["tests"], settings["one_in"])]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    project = tmp_path / "project"
    for name, text in {
        "src/planted/__init__.py": "",
        "src/planted/area.py": AREA,
        "tests/test_area.py": "from planted.area import area\n\n\ndef test_it():\n    assert area(3, 4) == 12\n",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (tmp_path / "copy").mkdir()
    return Tree.copy(project, tmp_path / "copy")


AREA = """
def area(a, b):
    return a * b


def unused(a, b):
    return a * b
"""


def test_what_is_tested_is_killed_and_what_is_not_survives(tree: Tree) -> None:
    passed: dict[str, bool] = {}
    for mutant in mutants("area.py", AREA):
        trial = tree.tried("src/planted/area.py", mutant.source, ["tests/test_area.py"], limit=20)
        passed[mutant.name] = trial.passed
    assert passed == {
        "area.py area: `return a * b` as `return a + b`": False,
        "area.py unused: `return a * b` as `return a + b`": True,
    }
    assert tree.run(["tests/test_area.py"], limit=60).passed  # the file was put back


def test_a_mutant_that_never_ends_is_killed(tree: Tree) -> None:
    endless = AREA.replace("return a * b", "while True:\n        pass")
    assert not tree.tried("src/planted/area.py", endless, ["tests/test_area.py"], limit=2).passed


def test_a_path_without_tests_is_no_kill(tree: Tree) -> None:
    with pytest.raises(RuntimeError, match="could not run"):
        tree.run(["tests/test_nothing.py"], limit=60)


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
