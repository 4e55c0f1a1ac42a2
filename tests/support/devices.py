"""The array namespaces that tests of engines run with: NumPy always, CuPy where there is a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdmm.base.exceptions import EngineError
from hdmm.engines import gpu


def namespaces() -> list[Any]:
    """Parameters of a test: one namespace each."""
    try:
        return [pytest.param(np, id="numpy"), pytest.param(gpu().xp, id="cupy")]
    except EngineError:
        return [pytest.param(np, id="numpy")]


def on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()
