"""The public names: what `import hdmm` offers, and what it does not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import hdmm

STUB = Path(hdmm.__file__).with_suffix(".pyi")
HEAVY = {"numpy", "scipy.linalg", "scipy.optimize", "scipy.sparse", "rich", "cryptography", "duckdb", "pyarrow"}


def loaded_by(code: str) -> set[str]:
    """The modules a fresh Python holds after the code."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return set(shown.stdout.split())


def test_importing_hdmm_is_light() -> None:
    assert not loaded_by("import hdmm") & HEAVY


def test_declaring_a_workload_loads_no_optimiser() -> None:
    heavy = HEAVY - {"numpy", "scipy.linalg", "scipy.sparse"}
    assert not loaded_by("from hdmm import Domain, Workload, Identity") & heavy


def test_every_public_name_is_there() -> None:
    assert len(hdmm.__all__) == len(set(hdmm.__all__))
    assert set(hdmm.__all__) <= set(dir(hdmm))
    for name in hdmm.__all__:
        assert getattr(hdmm, name).__name__.split(".")[-1] == name
    everything: dict[str, object] = {}
    exec("from hdmm import *", everything)
    assert set(hdmm.__all__) <= set(everything)


def test_the_stub_is_the_one_list_of_names() -> None:
    """What type checkers read in __init__.pyi is there when it runs, and __init__.py names nothing itself."""
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    stub = [(alias, node.module) for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias, _ in stub)  # else it would not be re-exported
    assert [alias.name for alias, _ in stub] == hdmm.__all__
    for alias, home in stub:
        assert getattr(import_module(str(home)), alias.name) is getattr(hdmm, alias.name)
    named = {
        node.value for node in ast.walk(ast.parse(Path(hdmm.__file__).read_text())) if isinstance(node, ast.Constant)
    }
    assert not named & set(hdmm.__all__)


def test_no_public_name_is_a_module() -> None:
    """Importing hdmm.x sets hdmm.x: a function of that name would become the module."""
    modules = {module.name for module in iter_modules(hdmm.__path__)}
    assert set(hdmm.__all__) & modules == {"baselines", "engines", "matrix", "sql"}


def test_other_names_are_missing() -> None:
    with pytest.raises(AttributeError, match="'hdmm' has no attribute 'optimise'"):
        hdmm.optimise  # noqa: B018
    with pytest.raises(ImportError, match="optimise"):
        exec("from hdmm import optimise")
