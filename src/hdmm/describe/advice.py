"""Advice about a domain and about margins, from what is declared alone: never from data."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.values import Labels

_PLACES = (
    *("block", "tract", "ward", "parish", "zip", "zipcode", "postcode", "municipality", "commune", "city", "district"),
    *("county", "province", "department", "state", "region", "country", "nuts1", "nuts2", "nuts3"),
)


def advice(domain: Domain) -> list[str]:
    """What a user may want to change, in full sentences; nothing if there is nothing to say.

    Attributes that are places, by their names or because each label of one begins with a label of the other, as codes
    of places do, are perhaps levels of one attribute. O(labels).

    >>> [line[:42] for line in advice(Domain({"state": 5, "county": 60, "sex": 2}))]
    ['county and state are 2 attributes with 300']
    """
    parts = [part for attribute in domain.attributes for part in attribute.parts]
    places = [part for part in parts if part.name.casefold() in _PLACES]
    found = places if len(places) > 1 else next(([a, b] for a in parts for b in parts if _extends(b, a)), [])
    if not found:
        return []
    finest = max(found, key=lambda part: part.size)
    others = [part.name for part in found if part is not finest]
    cells = math.prod(part.size for part in found)
    groups = ", ".join(f"{name} = […]" for name in others)
    return [
        (
            f"{' and '.join([finest.name, *others])} are {len(found)} attributes with {cells:,} combinations. If each "
            f"{finest.name} lies in one {' and one '.join(others)}, declare {finest.name} alone, with levels = "
            f"{{ {groups} }}: its {finest.size:,} values are then all the cells there are, and combinations that do "
            "not exist are neither published nor paid for. If they do not, write advice = false in [plan]."
        )
    ]


def small_margins(margins: Mapping[str, float]) -> list[str]:
    """What to write in place of margins of error, by table, that are less than one row, because a part was meant.

    >>> small_margins({"ages": 0.02, "sexes": 20})[0][-88:]
    'for 2 % of a count of 1,000, write 20, or in a specification "2 %" with expected = 1000.'
    """
    return [
        f"The margin of error of table {name!r} is {margin:g}, which is less than one row. A margin is a number of "
        f"rows: for {100 * margin:g} % of a count of 1,000, write {1000 * margin:g}, or in a specification "
        f'"{100 * margin:g} %" with expected = 1000.'
        for name, margin in margins.items()
        if margin < 1
    ]


def _extends(finer: Attribute, coarser: Attribute) -> bool:
    """Whether every label of one attribute is a label of the other with more characters after it."""
    a, b = coarser.values, finer.values
    if not isinstance(a, Labels) or not isinstance(b, Labels) or not 1 < len(a.values) < len(b.values):
        return False
    if not all(isinstance(label, str) for label in (*a.values, *b.values)):
        return False
    starts = {str(label) for label in a.values}
    lengths = {len(start) for start in starts}
    return all(any(len(str(label)) > k and str(label)[:k] in starts for k in lengths) for label in b.values)
