"""Data flows one way: a file imports only from files above it in this list (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"

ORDER = """
exceptions
matrix.base matrix.checks matrix.blocks matrix.intervals matrix.p_identity matrix.tree matrix.wrapped matrix.compose
matrix.blocked matrix.dense matrix.grams matrix.norms matrix.traces matrix.inverses matrix.products matrix.quadratics
matrix.largest matrix.unions matrix.storage matrix.rules matrix
values domain predicates compact workload privacy
strategy strategy.mixture strategy.spectrum strategy.diagonal strategy.iterative strategy.base strategy.minimize
strategy.tree strategy.windows strategy.gaussian strategy.order strategy.starts strategy.p_identity
strategy.jointly strategy.terms strategy.product strategy.pair strategy.parameter strategy.grouping strategy.union
strategy.merged
error bounds
baselines.identity baselines.laplace baselines
"""
ORDER = [f"hdmm.{name}" for name in ORDER.split()] + ["hdmm"]


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """The hdmm modules a file imports, doctests not counted."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "hdmm"}


def test_every_file_is_in_the_order() -> None:
    assert set(modules()) == set(ORDER)


def test_files_import_only_upward() -> None:
    place = {name: i for i, name in enumerate(ORDER)}
    for name, path in modules().items():
        for used in imports(path):
            if used in place and not (name == "hdmm" or name == used):
                assert place[used] < place[name], f"{name} imports {used}, which is below it"


def test_imports_are_at_the_top() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inner, f"{name}.{node.name} imports inside a function"


def test_randomness_lives_only_in_strategy() -> None:
    """Requirement N1: no seeded or global randomness in src outside strategy/."""
    for name, path in modules().items():
        text = path.read_text()
        if not name.startswith("hdmm.strategy"):
            assert "np.random" not in text, name
            assert "import random" not in text, name
