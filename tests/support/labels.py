"""Label columns for tables that a test writes down: labels that hold numbers stand where these are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from hdmm.describe.table_column import TableColumn

NUMBER = re.compile(r"[^\w-]*(-?[0-9][0-9,]*\.?[0-9]*)")  # before any word: tract 7 is a name


def labelled(names: Sequence[str], labels: Sequence[Sequence[str | None]]) -> tuple[TableColumn, ...]:
    """The columns of these labels; x_from and x_to are the ends of ranges of x."""
    found: list[TableColumn] = []
    for k, name in enumerate(names):
        ends = {label: end for row in labels if (label := row[k]) is not None and (end := numbers(label)) is not None}
        base, _, kind = name.rpartition("_")
        kinds = {"from": "from", "to": "to"} if {f"{base}_from", f"{base}_to"} <= set(names) else {}
        found.append(TableColumn(name, kind=kinds.get(kind, "labels"), ends=partial(dict, ends), ranged=base))
    return tuple(found)


def numbers(label: str) -> tuple[float, float] | None:
    """The numbers with which a label, or the ends of a range of labels, begin."""
    parts = label.split(" – ")
    first, last = NUMBER.match(parts[0]), NUMBER.match(parts[-1])
    if first is None or last is None:
        return None
    return float(first[1].replace(",", "")), float(last[1].replace(",", ""))
