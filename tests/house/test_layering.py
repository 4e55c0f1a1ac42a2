"""Data flows one way: a room imports only from rooms above it in this list, and no files of a room form a cycle."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

# docs/architecture.md says what each holds.
ROOMS = (
    *("base", "matrix", "describe", "sql", "privacy", "strategy", "select", "bounds", "io", "noise", "data", "engines"),
    *("reconstruct", "chunks", "answers", "measure", "baselines", "publication", "apps"),
)


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(name: str) -> str:
    return name.split(".")[1]


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a file, of which the first is the module."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """The hdmm modules and names a file imports, doctests not counted."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "hdmm"}


def test_nothing_lies_loose() -> None:
    assert {path.stem for path in (SRC / "hdmm").glob("*.py")} == {"__init__", "__main__"}
    assert {room(name) for name in modules() if name.count(".")} == {*ROOMS, "__main__"}


def test_a_file_name_occurs_once() -> None:
    names = Counter(path.name for path in modules().values() if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_every_room_has_a_guide() -> None:
    """What a room is for, what flows in and out, and which file to open first."""
    for name in ROOMS:
        guide = ast.get_docstring(ast.parse(modules()[f"hdmm.{name}"].read_text())) or ""
        assert 3 <= len(guide.splitlines()) <= 14, name


def test_rooms_import_only_from_rooms_above() -> None:
    for name, path in modules().items():
        if name not in ("hdmm", "hdmm.__main__"):
            for used in imports(path) & modules().keys() - {"hdmm"}:
                assert ROOMS.index(room(used)) <= ROOMS.index(room(name)), f"{name} imports {used}, of a room below"


def test_no_files_of_a_room_form_a_cycle() -> None:
    known = modules()
    packages = {name for name, path in known.items() if path.name == "__init__.py"}
    graph = {name: (imports(path) & known.keys()) - packages for name, path in known.items() if name not in packages}
    list(TopologicalSorter(graph).static_order())


def test_imports_are_at_the_top() -> None:
    for name, path in modules().items():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inner, f"{name}.{node.name} imports inside a function"


def test_randomness_lives_only_in_the_search() -> None:
    """Requirement N1: no seeded or global randomness in src outside select/."""
    for name, path in modules().items():
        if not name.startswith("hdmm.select"):
            assert not (words(path) & {"random", "default_rng", "RandomState", "rvs"}), name


# Two things of one name, until one of them is renamed.
NAMED_TWICE: set[str] = set()


def test_no_public_name_is_defined_twice() -> None:
    """One word is one thing: a class, an alias or a constant that others may import has a name of its own."""
    homes: dict[str, set[str]] = {}
    for name, path in modules().items():
        for node in ast.iter_child_nodes(nodes(path)[0]):
            match node:
                case ast.ClassDef(name=defined) | ast.AnnAssign(target=ast.Name(id=defined)):
                    homes.setdefault(defined, set()).add(name)
                case ast.Assign(targets=[ast.Name(id=defined)]):
                    homes.setdefault(defined, set()).add(name)
                case _:
                    pass
    twice = {defined: found for defined, found in homes.items() if len(found) > 1 and not defined.startswith("_")}
    assert set(twice) - {"T"} <= NAMED_TWICE, twice  # T is what typing calls any type


def test_one_file_joins_data_and_noise() -> None:
    """There is one door by which anything about the data leaves: hdmm.measure.measure counts it and adds the noise."""
    reached = {name: {".".join(used.split(".")[:2]) for used in imports(path)} for name, path in modules().items()}
    assert [name for name, used in reached.items() if {"hdmm.data", "hdmm.noise"} <= used] == ["hdmm.measure.measure"]
    drawing = {"draw", "discrete_laplace", "rounded_gaussian", "DeviceNoise"}
    outside = {name: path for name, path in modules().items() if not name.startswith("hdmm.noise")}
    assert [name for name, path in outside.items() if words(path) & drawing] == ["hdmm.measure.measure"]


def test_only_the_noise_itself_reaches_its_bits() -> None:
    """Requirement N7: what a release can call takes no bits and no seed; the parts that do are for tests."""
    for name, path in modules().items():
        inner = {used for used in imports(path) if used.startswith("hdmm.noise.")}
        public = {"hdmm.noise.discrete_laplace", "hdmm.noise.rounded_gaussian"}
        public |= {"hdmm.noise.LARGEST_SCALE", "hdmm.noise.LARGEST_NOISE"}
        public |= {"hdmm.noise.exact_scale", "hdmm.noise.check_scale", "hdmm.noise.draw", "hdmm.noise.DeviceNoise"}
        public |= {"hdmm.noise.ReleaseKey", "hdmm.noise.SealedKey", "hdmm.noise.KeyNotHereError", "hdmm.noise.HIDING"}
        assert name.split(".")[:2] == ["hdmm", "noise"] or inner <= public, name
        if name.startswith("hdmm.noise"):
            assert not any("seed" in word.lower() for word in words(path)), name


def test_noise_has_floats_only_in_the_filter() -> None:
    """Requirement N1: integers and fractions, but for the Gaussian filter, whose error is bounded where it stands."""
    for name, path in modules().items():
        if name.startswith("hdmm.noise") and name != "hdmm.noise.gaussian":
            assert not (words(path) & {"float", "float64", "float32", "double", "longdouble"}), name
            assert not any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in nodes(path)), name


@cache
def words(path: Path) -> set[str]:
    """Every name, attribute, parameter and part of an imported name in a file."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= set(node.module.split("."))
    return found
