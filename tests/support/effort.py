"""How hard properties are tried: a third of the examples in `make test`, all of them if HDMM_EXAMPLES is "all".

"few" is for a quick look while a change is made.
"""

from __future__ import annotations

import os

from hypothesis import settings

SHARE = {"all": 1, "few": 20}.get(os.environ.get("HDMM_EXAMPLES", ""), 3)
FEWEST = 10
THOROUGH = SHARE == 1


def examples(count: int) -> settings:
    """This many examples, or a share of them; they are new ones in every run."""
    return settings(max_examples=max(count // SHARE, min(count, FEWEST)))


def tries(count: int) -> int:
    """The same share of what a test draws by itself."""
    return max(count // SHARE, 1)
