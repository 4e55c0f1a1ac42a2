"""The GPU engine: exact answers and exact noise of a release in the memory of a GPU, through CuPy.

All of it works on arrays of one namespace, so that the tests run the same code with NumPy's. (A₁ ⊗ … ⊗ A_d) x takes one
product of two matrices per attribute. x is laid out as n₁ × rest; its transpose times A₁ᵀ is rest × m₁, in which the
next attribute comes first; after d products, the attributes are in order again. Factors are written out: on a GPU a
dense product with 63 rows takes little longer than reading and writing x.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm.base.cores import run_parallel
from hdmm.base.exceptions import EngineError
from hdmm.matrix import Array, Dense, Eye, Matrix, Ones, to_dense
from hdmm.matrix.elementary import multiply_along
from hdmm.matrix.integers import entries
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_LARGEST_FACTOR = 2**27  # entries of a factor that is written out: 1 GiB
_COPIES = 4  # of the largest array on the way to a block's answers: before and after a product, and the noise
_PIECE = 2**22  # numbers that a thread copies at a time: 32 MiB
_MOVERS = 8  # threads that copy
_SOURCE = Path(__file__).with_name("product.cu")
_ROWS = 16  # ROWS in product.cu
_THREADS = 128


def gpu() -> Device:
    """The engine of the GPU of this machine, for `optimize` and `plan.measure`; EngineError if there is none."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        raise EngineError(
            "The GPU engine needs CuPy, which is not installed. Install hdmm[gpu], or leave the engine out."
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count == 0:
        raise EngineError(
            "CuPy finds no GPU on this machine. Check the NVIDIA driver with nvidia-smi, or leave the engine out."
        )
    return Device(cupy)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """Arrays of one namespace: CuPy's on a GPU, or NumPy's, which computes the same numbers.

    >>> from hdmm.matrix import Eye, Ones
    >>> Device(np).answers([Eye(2), Ones(1, 2)], np.array([[1, 2], [3, 4]]))
    array([3, 7])
    """

    xp: Any

    def check(self, strategy: Strategy) -> None:
        """Refuse what does not fit the engine, from public sizes alone: a factor, or a block in the GPU's memory."""
        for _, A in strategy.table.distinct:
            if math.prod(A.shape) > _LARGEST_FACTOR or max(map(abs, entries(A))) >= 2**53:
                raise EngineError(
                    f"A factor of shape {A.shape} is too large to write out on a GPU. Measure without an engine."
                )
        needed, free = 8 * _COPIES * max(map(_widest, strategy.blocks), default=0), self._memory()
        if needed > free:
            raise EngineError(
                f"Measuring the largest block takes {needed / 1e9:.1f} GB on the GPU, and {free / 1e9:.1f} GB are "
                "free. Free its memory, use a larger GPU, or measure without an engine."
            )
        self.answers([Dense([[1, 1]])], np.array([1, 1]))  # a kernel that does not compile fails here

    def answers(self, factors: Sequence[Matrix], x: Array) -> Any:
        """(⊗ factors) x as int64 in the engine's memory: the same numbers as lattice.exact_answers."""
        return exact_kron_product(self.xp, factors, self.from_host(x.astype(np.int64, copy=False)))

    def from_host(self, x: Array) -> Any:
        """A copy of the numbers in the engine's memory, flat."""
        if self.xp is np:
            return x.flatten()
        out = self.xp.empty(x.size, dtype=x.dtype)
        self._copy(np.ascontiguousarray(x).reshape(-1), out, back=False)
        return out

    def to_host(self, y: Any) -> Array:
        """A flat array's numbers in this machine's memory."""
        if self.xp is np:
            return y
        out = np.empty(y.size, dtype=y.dtype)
        self._copy(out, y, back=True)
        return out

    def _copy(self, here: Array, there: Any, *, back: bool) -> None:
        """Copy all numbers to the GPU, or back, by several threads: one alone takes 5 s for 8 GB (measured)."""
        cuda, size = self.xp.cuda, here.size
        cuda.Device().synchronize()

        def move(first: int) -> None:
            stream, memory = cuda.Stream(non_blocking=True), cuda.alloc_pinned_memory(_PIECE * here.itemsize)
            buffer = np.frombuffer(memory, dtype=here.dtype, count=_PIECE)
            for start in range(first * _PIECE, size, _MOVERS * _PIECE):
                stop = min(start + _PIECE, size)
                held = buffer[: stop - start]
                if back:
                    there[start:stop].get(stream=stream, out=held)
                    here[start:stop] = held
                else:
                    held[...] = here[start:stop]
                    there[start:stop].set(held, stream=stream)
                    stream.synchronize()

        run_parallel(move, range(min(_MOVERS, -(-size // _PIECE))))

    def _memory(self) -> float:
        return math.inf if self.xp is np else float(self.xp.cuda.runtime.memGetInfo()[0])


def _widest(block: Block) -> int:
    """The most numbers on the way from a block's counts to its answers, one attribute after the other."""
    widest = size = math.prod(A.shape[1] for _, A in block.factors)
    for _, A in block.factors:
        size = size // A.shape[1] * A.shape[0]
        widest = max(widest, size)
    return widest


def exact_kron_product(xp: Any, factors: Sequence[Matrix], x: Any) -> Any:
    """(⊗ factors) x for integers, modulo 2⁶⁴: the same numbers as lattice.exact_answers, whatever x holds.

    The steps taken depend on the factors and on the shapes alone, so that their time reveals nothing about x.

    >>> exact_kron_product(np, [Ones(1, 2), Eye(2)], np.array([[1, 2], [3, 2**62]]))
    array([                  4, 4611686018427387906])
    """
    for A in factors:
        x = x.reshape(A.shape[1], -1)
        match A:
            case Eye():
                x = xp.ascontiguousarray(x.T)
            case Ones(1, _):
                x = x.sum(axis=0)
            case _ if xp is np:
                x = multiply_along(to_dense(A).astype(np.int64), x[None])[0].T
            case _:
                x = _by_kernel(xp, to_dense(A), x)
    return x.reshape(-1)


def _by_kernel(cp: Any, A: Array, x: Any) -> Any:
    m, n = A.shape
    length = x.shape[1]
    out = cp.empty((length, m), dtype=cp.int64)
    if out.size:
        padded = np.zeros((n, -(-m // _ROWS) * _ROWS), dtype=np.int64)
        padded[:, :m] = A.T
        sizes = np.int32(m), np.int32(padded.shape[1]), np.int32(n), np.uint64(length)
        _kernel(cp)((-(-length // _THREADS),), (_THREADS,), (cp.asarray(padded), x, out, *sizes))
    return out


@lru_cache(maxsize=1)
def _kernel(cp: Any) -> Any:
    return cp.RawKernel(_SOURCE.read_text(encoding="utf-8"), "product", options=("-std=c++14",))
