"""The kernels' sources compiled for the processor, where one thread makes all draws."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdmm.noise.device_noise import kernel_source

HOST = """
#include <cmath>
using std::exp; using std::fabs;
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __syncthreads()
struct Index { unsigned x; };
static Index threadIdx{0}, blockDim{1}, blockIdx{0};
static unsigned atomicAdd(unsigned* at, unsigned by) { unsigned old = *at; *at += by; return old; }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
"""


@cache
def compiled_kernel(name: str, folder: Path) -> Any:
    """The kernel as a function of its parameters, among them the `size` of what it draws."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    kernel = kernel_source(name)
    found = re.search(rf"__global__ void {name}\((.*?)\)", kernel, re.DOTALL)
    assert found is not None
    arguments = ", ".join(parameter.split()[-1] for parameter in found[1].split(","))
    loop = f"for (u64 i = 0; i * PER < size + 3; i++) {{ blockIdx.x = (unsigned)i; {name}({arguments}); }}"
    source = f'{HOST}{kernel}extern "C" void drawn({found[1]}) {{ {loop} }}'
    (folder / f"{name}.cpp").write_text(source)
    flags = ["-O1", "-shared", "-fPIC", "-w", "-o", str(folder / f"{name}.so")]
    subprocess.run([compiler, *flags, str(folder / f"{name}.cpp")], check=True)
    return ctypes.CDLL(str(folder / f"{name}.so")).drawn


class Held(np.ndarray):
    """An array of `OnHost`."""

    def get(self) -> Any:
        return np.array(self)


class OnHost:
    """What the noise uses of CuPy, in the memory of this process, with kernels that are compiled for the processor."""

    int64, uint32, uint64 = np.int64, np.uint32, np.uint64

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def empty(self, size: int, dtype: Any) -> Any:
        return np.full(size, 77, dtype).view(Held)

    def zeros(self, size: int, dtype: Any) -> Any:
        return np.zeros(size, dtype).view(Held)

    def asarray(self, values: Any) -> Any:
        return np.array(values).view(Held)

    def RawKernel(self, source: str, name: str, options: tuple[str, ...]) -> Any:
        assert source == kernel_source(name)
        kernel = compiled_kernel(name, self.folder)
        return lambda blocks, threads, arguments: kernel(*map(_passed, arguments))


def _passed(argument: Any) -> Any:
    """A pointer to an array, or a number of its own width."""
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return np.ctypeslib.as_ctypes_type(argument.dtype)(int(argument))
