"""hdmm: tables about people, published under differential privacy with the least error.

Declare a Domain, build a Workload of counting queries, and ask for the exact expected error of a strategy.
"""

from __future__ import annotations

import ast
from importlib import import_module


def _homes() -> dict[str, str]:
    """The public names and the modules they come from, as `__init__.pyi`, the one list of them, has them."""
    with open(f"{__file__}i", encoding="utf-8") as stub:
        imports = [node for node in ast.parse(stub.read()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{node.module}" for node in imports for alias in node.names}


_HOME = _homes()

__version__ = "0.1.0"
__all__ = [*_HOME]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """A name is imported when it is first used: all of them take 0.9 s, most of it SciPy's optimisers."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    value = import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
