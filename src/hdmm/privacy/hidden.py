"""Whom the amounts of an account hide: its unit of privacy, and when those of another can be added (security L8)."""

from __future__ import annotations

import json
import re
from math import ceil
from typing import Any, Final, Literal, cast

from hdmm.base.exceptions import BudgetError, PrivacyError
from hdmm.privacy.unit_of_privacy import Unit

_HIDDEN: Final = re.compile(r"([1-9][0-9]{0,9}) rows (?:of anyone|by (\".*\")) (add-remove|replace)")


def hidden_text(unit: Unit) -> str:
    """A unit as a record holds it: in ASCII, which `read_hidden` reads back.

    >>> hidden_text(Unit(2, id="person")), hidden_text(Unit(neighbours="replace"))
    ('2 rows by "person" add-remove', '1 rows of anyone replace')
    """
    whose = "of anyone" if unit.id is None else f"by {json.dumps(unit.id)}"
    return f"{unit.rows} rows {whose} {unit.neighbours}"


def read_hidden(text: str) -> Unit | None:
    """The unit that `hidden_text` wrote; None if it wrote no such text."""
    match = _HIDDEN.fullmatch(text)
    if match is None:
        return None
    try:
        name: Any = None if match[2] is None else json.loads(match[2])
        found = Unit(int(match[1]), cast(Literal["add-remove", "replace"], match[3]), name)
    except (ValueError, PrivacyError):
        return None
    return found if hidden_text(found) == text else None


def shown_unit(unit: Unit) -> str:
    """A unit in words. Of a person, the number of rows does not matter to an account: noise is larger by it.

    >>> shown_unit(Unit(3, id="person")), shown_unit(Unit(3, "replace"))
    ("one person by column 'person', added or removed", 'any 3 rows replaced by others')
    """
    if unit.id is None:
        return str(unit).replace(f"up to {unit.rows:,} rows of one person", f"any {unit.rows:,} rows")
    change = "added or removed" if unit.neighbours == "add-remove" else "replaced by another"
    return f"one person by column {unit.id!r}, {change}"


def steps(kept: Unit, given: Unit) -> int | None:
    """How many neighbouring tables of the given unit lead from a table to a neighbour by the unit of an account.

    If t steps do, what is ε-differentially private for the given unit is tε-differentially private for the account's,
    and what is ρ-zCDP is t²ρ-zCDP (group privacy: Bun and Steinke 2016, Proposition 1.9), so that it can be charged.

    - Of one column of ids, a person is a person: at most k rows of each are counted, and the noise is scaled by k, so
      that ε is that of all rows of a person whatever k is. One step.
    - Without ids, any a rows are ⌈a/b⌉ times at most b rows: a step for each.
    - To replace is to remove and to add: with steps that add or remove, twice as many.
    - Steps that replace keep the number of rows, and never lead to a table with one more: None.
    - A row says nothing about a person, who may have any number of rows. A person does say something about a row, but
      which rows are a person's depends on the column, and persons of one column (households) may hold those of
      another or share them: None for another column, or for a column on one side only.

    >>> steps(Unit(neighbours="replace"), Unit()), steps(Unit(), Unit(neighbours="replace"))
    (2, None)
    >>> steps(Unit(5), Unit(2)), steps(Unit(5, id="who"), Unit(2, id="who")), steps(Unit(id="who"), Unit())
    (3, 1, None)
    """
    if kept.id != given.id or (kept.neighbours, given.neighbours) == ("add-remove", "replace"):
        return None
    groups = 1 if kept.id is not None else ceil(kept.rows / given.rows)
    return groups * (1 if kept.neighbours == given.neighbours else 2)


def steps_between(dataset: str, kept: Unit | None, given: Unit | None) -> int:
    """The steps by which a spend is multiplied; BudgetError if no number of them is enough.

    An account that has no unit yet takes any, and a spend that names none is in the unit of its account.
    """
    found = 1 if kept is None or given is None else steps(kept, given)
    if found is None and kept is not None and given is not None:
        raise BudgetError(
            f"The account of dataset {dataset!r} adds up what is spent on {shown_unit(kept)}; this would be spent on "
            f"{shown_unit(given)}, and such amounts do not add up. Nothing was debited. {_advice(kept, given)}"
        )
    return found or 1


def _advice(kept: Unit, given: Unit) -> str:
    if kept.id == given.id:
        return "Declare the same neighbours as before, or give another dataset name, which has a budget of its own."
    if kept.id is None:
        return "Leave out id as before, or give another dataset name, which has a budget of its own."
    return (
        f"If the table is about the same persons, give it the column {kept.id!r} as id (with max_rows_per_id = 1 where "
        "each has one row). If not, give another dataset name, which has a budget of its own."
    )
