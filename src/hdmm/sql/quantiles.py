"""Groups and quantiles in SQL's words."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Attribute


def quoted(name: str) -> str:
    """A name as SQL writes it.

    >>> quoted('say "age"')
    '"say ""age""\"'
    """
    return '"{}"'.format(name.replace('"', '""'))


def select_sql(by: Sequence[str], aggregates: Sequence[str]) -> str:
    """The statement that has these aggregates by columns of these names.

    >>> select_sql(["sex"], ["COUNT(*)"])
    'SELECT "sex", COUNT(*) FROM t GROUP BY "sex"'
    """
    groups = ", ".join(map(quoted, by))
    columns = ", ".join([*map(quoted, by), *aggregates])
    return " ".join(["SELECT", columns, "FROM t", *(["GROUP BY", groups] if by else [])])


def quantile_sql(attribute: Attribute, q: Sequence[float], of: str = "") -> list[str]:
    """One column per quantile; WorkloadError if the values have no order, or a number is not between 0 and 1.

    >>> from hdmm import Integers
    >>> quantile_sql(Attribute("age", Integers(0, 114)), [0.5], "of age")
    ['QUANTILE("age", 0.5) AS "quantile 0.5 of age"']
    """
    if not attribute.ordered:
        raise WorkloadError(f"{attribute.name} has no order, so it has no quantiles. Count its values instead.")
    if not len(q) or len(set(q)) < len(q):
        raise WorkloadError("The quantiles are not a list of different numbers. Give for example [0.25, 0.5, 0.75].")
    for each in q:
        if isinstance(each, bool) or not isinstance(each, numbers.Real) or not 0 < each < 1:
            raise WorkloadError(f"The quantile {each!r} is not between 0 and 1. Use for example 0.5 for the median.")
    name = quoted(attribute.name)
    return [f"QUANTILE({name}, {float(p):.17g}) AS {quoted(f'quantile {p} {of}'.strip())}" for p in q]
