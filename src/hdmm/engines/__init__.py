"""Engines: where a release is computed if not by this machine's processor and memory.

`gpu()` takes a GPU through CuPy; `dask()` takes workers and a disk, for vectors beyond memory. `device` has the GPU's
Kronecker products, exact on integers; `workers` starts Dask so that it obeys nobody else, and runs tasks on it; and
`lending` gives workers what they need, a release's key among it, until it is taken back. Open `device`, then `workers`.
"""

from hdmm.engines.device import Device, gpu
from hdmm.engines.lending import Loan, lent
from hdmm.engines.workers import Workers, dask

__all__ = ["Device", "Loan", "Workers", "dask", "gpu", "lent"]
