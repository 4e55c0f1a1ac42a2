"""nbytes: what a matrix holds in memory."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hdmm.matrix.matrix import Matrix


def nbytes(A: Matrix) -> int:
    """Bytes of the arrays that A and its parts hold; an array held twice is counted once. O(parts).

    >>> from hdmm.matrix import Dense, Eye, Kron
    >>> D = Dense(np.ones((2, 3)))
    >>> nbytes(Kron((D, Eye(10**6), D)))
    48
    """
    sizes: dict[int, int] = {}  # by address
    todo: list[Any] = [A]
    while todo:
        part = todo.pop()
        if isinstance(part, np.ndarray):
            sizes[part.ctypes.data] = part.nbytes
        elif isinstance(part, tuple):
            todo.extend(part)
        elif sp.issparse(part):
            todo.extend((part.data, part.indices, part.indptr))
        elif isinstance(part, Matrix) and is_dataclass(part):
            todo.extend(getattr(part, f.name) for f in fields(part))
    return sum(sizes.values())
