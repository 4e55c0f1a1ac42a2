"""Which rows the tables are about, in sentences: a true number is that of the rows that are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from hdmm.base.numbers import many
from hdmm.describe.domain import Domain
from hdmm.sql.column import Column, columns

_MOST_NAMED: Final = 20  # columns of the data
_NOWHERE = "in no table and in no total"


def counted_rows(
    domain: Domain,
    headings: Mapping[str, str] | None = None,
    *,
    most_rows: int | None = None,
    impossible: Sequence[str] = (),
) -> list[str]:
    """What the domain declares, what happens to other values, and how many rows of a person are counted.

    >>> counted_rows(Domain({"sex": ["M", "F"]}), {"sex": "Sex"}, most_rows=1)[2]
    'At most 1 row of each person is counted: others of the same person, and rows that do not say whose they are, ...'
    """
    known = {(headings or {}).get(name, name): column for name, column in columns(domain).items()}
    others = [name for name, column in known.items() if column.values.outside == "other"]
    shown = [f"{name} ({_range(column)})" for name, column in islice(known.items(), _MOST_NAMED)]
    shown += [many(len(known) - _MOST_NAMED, "more column")] if len(known) > _MOST_NAMED else []
    said = [f"Rows are counted by {listed(shown)}."]
    if others:
        said.append(f"Rows with another value, or no value, in {listed(others)} are counted as “other”.")
    if len(others) < len(known):
        rest = "any of the others" if others else "any of them"
        said.append(f"A row with another value, or no value, in {rest} is {_NOWHERE}.")
    if impossible:
        said.append(f"Nor is a row for which this holds, which was declared impossible: {'; '.join(impossible)}.")
    if most_rows is not None:
        count = f"{many(most_rows, 'row')} of each person {'is' if most_rows == 1 else 'are'} counted"
        said.append(
            f"At most {count}: others of the same person, and rows that do not say whose they are, are {_NOWHERE}."
        )
    return [*said, "“True” numbers are those of the rows that are counted."]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _range(column: Column) -> str:
    """The declared values of a column: all if they are few, else the first and the last."""
    labels = [str(column.values.label(code)) for code in sorted({*range(min(column.declared, 3)), column.declared - 1})]
    if column.declared <= 4:
        return ", ".join(labels)
    return f"{labels[0]} … {labels[-1]}, {column.declared:,} values"
