"""A message shows what a user gave, but not all of it: an array in the place of a number does not fill the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hdmm import (
    Bins,
    Domain,
    HdmmError,
    Integers,
    Labels,
    PureDP,
    Shuffled,
    Unit,
    Vectors,
    Weighted,
    Width,
    Workload,
    from_array,
    from_table,
    optimize,
)
from hdmm.describe.predicates import Identity

DOMAIN = Domain({"age": 99, "sex": ["m", "f"]})
ROWS = pa.table({"age": [1], "sex": ["m"]})
CALLS: dict[str, Callable[[Any], object]] = {
    "first": lambda given: Integers(given, 3),
    "step": lambda given: Integers(0, 3, step=given),
    "edge": lambda given: Bins([0, given]),
    "label": lambda given: Labels([given, given]),
    "values": lambda given: Domain({"a": [given]}),
    "counts": lambda given: from_array(DOMAIN, given),
    "rows_bound": lambda given: from_table(DOMAIN, ROWS, rows_bound=given),
    "max_rows": lambda given: from_table(DOMAIN, ROWS, id="age", max_rows_per_id=given),
    "column": lambda given: from_table(DOMAIN, ROWS, columns={"age": given}),
    "table": lambda given: from_table(DOMAIN, ROWS, table=given),
    "source": lambda given: from_table(DOMAIN, given),
    "width": lambda given: Workload.product(DOMAIN, age=Width(given)),
    "vectors": lambda given: Workload.product(DOMAIN, age=Vectors([given[:98]])),
    "weights": lambda given: Workload.product(DOMAIN, sex=Weighted(Identity(), given)),
    "order": lambda given: Workload.product(DOMAIN, sex=Shuffled(Identity(), given)),
    "predicates": lambda given: Workload.product(DOMAIN, age=given),
    "epsilon": lambda given: PureDP(given),
    "unit": lambda given: Unit(rows=given),
    "workload": lambda given: optimize(given),
    "target": lambda given: optimize({"t": Workload.marginals(DOMAIN, k=1)}, targets={"t": given}),
}


@pytest.mark.parametrize("given", [np.arange(99), [float(n) for n in range(99)]], ids=["array", "list"])
@pytest.mark.parametrize("name", CALLS)
def test_an_array_in_the_wrong_place_does_not_fill_the_screen(name: str, given: Any) -> None:
    with pytest.raises((HdmmError, TypeError, ValueError)) as error:
        CALLS[name](given)
    assert len(str(error.value)) < 400
