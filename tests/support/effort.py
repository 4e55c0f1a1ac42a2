"""How hard properties are tried: a third of the examples in `make test`, all of them if HDMM_EXAMPLES is "all"."""

from __future__ import annotations

import os

from hypothesis import settings

ALL = os.environ.get("HDMM_EXAMPLES") == "all"
FEWEST = 10


def examples(count: int) -> settings:
    """This many examples, or a third of them; they are new ones in every run."""
    return settings(max_examples=count if ALL else max(count // 3, min(count, FEWEST)))
