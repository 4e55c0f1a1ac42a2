"""Impossible cells: combinations of values that no record can have, declared as conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.sql.comparisons import Column
from hdmm.sql.conditions import Scope, condition
from hdmm.sql.formula import Formula, complement, conjunction, disjunction
from hdmm.sql.syntax import statements
from hdmm.sql.text import SqlText


def possible(columns: Mapping[str, Column], impossible: Sequence[str]) -> Formula:
    """The cells where none of the conditions holds; WorkloadError if a condition cannot be read or leaves no cell."""
    if isinstance(impossible, str):
        raise WorkloadError(f"The impossible cells are given as the text {impossible!r}. Give a list of conditions.")
    left = conjunction(complement(_holds(columns, text)) for text in impossible)
    if left is False or disjunction([left]) is False:
        raise WorkloadError("The impossible conditions leave no cell in which a record could be. Remove one of them.")
    return left


def _holds(columns: Mapping[str, Column], text: str) -> Formula:
    source = SqlText(f"SELECT COUNT(*) FROM t WHERE {text}")  # only parsed, never run  # nosec B608
    try:
        found = list(statements(source, names=columns))
        tree = found[0].tree
        if len(found) > 1 or not isinstance(tree, exp.Select) or tree.args.get("group") is not None:
            raise WorkloadError("Write one condition, as after WHERE.")
        return condition(Scope(source, columns, "t"), tree.args["where"].this)
    except SqlError as error:
        reason = str(error).partition(": ")[2].partition("\n")[0]
        raise WorkloadError(f"The impossible condition {text!r} cannot be read. {reason}") from None
