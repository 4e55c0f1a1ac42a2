"""hdmm: tables about people, published under differential privacy with the least error.

Declare a Domain, build a Workload of counting queries, and ask for the exact expected error of a strategy.
"""

from __future__ import annotations

from importlib import import_module

# The public names by home. A home is imported when one of its names is first used: all of them take 0.9 s, most of
# it SciPy's optimisers, and few programs need them all. `__init__.pyi` says the same to type checkers and editors.
_HOMES = {
    "hdmm.answer": ("Answers",),
    "hdmm.bounds": ("lower_bound",),
    "hdmm.data": ("Data", "from_array", "from_table"),
    "hdmm.domain": ("Attribute", "Domain"),
    "hdmm.error": ("expected_error", "query_variance", "rmse", "supports", "unit_error"),
    "hdmm.exceptions": (
        "BudgetError",
        "DataError",
        "DomainError",
        "FileError",
        "HdmmError",
        "LedgerError",
        "NotApplicableError",
        "PrivacyError",
        "SpecError",
        "SqlError",
        "StrategyError",
        "WorkloadError",
    ),
    "hdmm.ledger": ("Ledger", "Receipt"),
    "hdmm.plan": ("Plan", "load_plan", "optimize"),
    "hdmm.predicates": (
        "AllRange",
        "Identity",
        "PredicateSet",
        "Prefix",
        "Ranges",
        "Sets",
        "Shuffled",
        "Total",
        "Vectors",
        "Weighted",
        "Width",
    ),
    "hdmm.privacy": ("ZCDP", "ApproxDP", "Noise", "PureDP", "Unit"),
    "hdmm.publication": ("Publication", "publish"),
    "hdmm.release": ("Release", "load_release"),
    "hdmm.spec": ("Spec", "load_spec"),
    "hdmm.strategy.base": ("Strategy",),
    "hdmm.table": ("Table",),
    "hdmm.values": ("Bins", "Integers", "Labels"),
    "hdmm.workload": ("Product", "Workload"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("baselines", "matrix", "sql")

__version__ = "0.1.0"
__all__ = [*_HOME, *_MODULES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
