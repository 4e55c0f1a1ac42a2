"""The kernels' sources compiled for the processor, where one thread makes all draws."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

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


def compiled_kernel(name: str, parameters: str, arguments: str, folder: Path) -> Any:
    """The kernel as a function of its parameters, among them the `size` of what it draws."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    loop = f"for (u64 i = 0; i * PER < size + 3; i++) {{ blockIdx.x = (unsigned)i; {name}({arguments}); }}"
    source = f'{HOST}{kernel_source(name)}extern "C" void drawn({parameters}) {{ {loop} }}'
    (folder / "host.cpp").write_text(source)
    flags = ["-O1", "-shared", "-fPIC", "-w", "-o", str(folder / "host.so")]
    subprocess.run([compiler, *flags, str(folder / "host.cpp")], check=True)
    return ctypes.CDLL(str(folder / "host.so")).drawn
