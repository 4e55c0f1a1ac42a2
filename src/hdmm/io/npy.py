"""Arrays in NumPy's .npy format, version 1.0, of float64 and int64 only.

The header is matched against the one form that NumPy writes, never evaluated, and the data are taken as numbers:
there is no path from a file to a Python object.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import BinaryIO

import numpy as np

from hdmm.base.exceptions import FileError
from hdmm.matrix import Array

_MAGIC = b"\x93NUMPY"
_VERSION = b"\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[^']*)', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>|[0-9]{1,18},|[0-9]{1,18}(?:, [0-9]{1,18}){1,7})\), \} *\n"
)
_DTYPES = {b"<f8": np.dtype("<f8"), b"<i8": np.dtype("<i8")}
_AGAIN = "It is damaged or was not written by hdmm; save it again."


def read_array(file: BinaryIO, size: int, name: str) -> Array:
    """The read-only array in a file of `size` bytes; what the header declares is checked before the data are read.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> write_array(file, np.arange(3))
    >>> size = file.tell()
    >>> _ = file.seek(0)
    >>> read_array(file, size, "x.npy")
    array([0, 1, 2])
    """
    start = file.read(10)
    if len(start) < 10 or start[:6] != _MAGIC:
        raise FileError(f"{name} is not a .npy file. {_AGAIN}")
    if start[6:8] != _VERSION:
        raise FileError(f"{name} has version {start[6]}.{start[7]} of the .npy format; 1.0 is read. Save it again.")
    length = int.from_bytes(start[8:], "little")
    header = _HEADER.fullmatch(file.read(length))
    if header is None:
        raise FileError(f"{name} has a header that NumPy does not write for numbers. {_AGAIN}")
    dtype = _DTYPES.get(header["dtype"])
    if dtype is None:
        raise FileError(f"{name} holds values of type {header['dtype'][:20]!r}; float64 and int64 are read. {_AGAIN}")
    shape = tuple(int(n) for n in header["shape"].split(b",") if n)
    declared, held = math.prod(shape) * dtype.itemsize, size - 10 - length
    if declared != held:
        raise FileError(f"{name} declares the shape {shape}, {declared:,} bytes, but holds {held:,}. {_AGAIN}")
    data = file.read(declared)
    try:
        array = np.ndarray(shape, dtype, buffer=data, order="F" if header["fortran"] == b"True" else "C")
    except (TypeError, ValueError):  # the file has shrunk since, or a side is longer than an array's may be
        raise FileError(f"{name} does not hold an array of the shape {shape}. {_AGAIN}") from None
    array = array.astype(dtype.newbyteorder("="), copy=False)
    array.flags.writeable = False
    return _finite(array, name)


def write_array(file: BinaryIO, array: Array) -> None:
    """Write what `stored` returned, in its own memory order."""
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)


def stored(array: Array, name: str) -> Array:
    """The array as float64 or int64 with the same values; FileError if that is impossible.

    >>> stored(np.array([True, False]), "x").dtype
    dtype('int64')
    """
    if array.dtype.kind not in "biuf":
        raise FileError(f"The array {name} holds {array.dtype} values. Only numbers are saved.")
    kept = array.astype("<f8" if array.dtype.kind == "f" else "<i8", copy=False)
    if array.dtype.itemsize >= 8 and kept.dtype != array.dtype and not np.array_equal(kept, array):
        raise FileError(f"The array {name} of {array.dtype} holds values that no {kept.dtype} equals. Round it first.")
    return _finite(kept, name)


def array_digest(array: Array) -> str:
    """SHA-256 of the numbers of an array in the order in which a file has them.

    >>> array_digest(np.arange(3)) == array_digest(np.array([0, 1, 3]))
    False
    """
    turned = array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array
    return hashlib.sha256(np.ascontiguousarray(turned).reshape(-1).data).hexdigest()


def file_bytes(count: int) -> int:
    """The most bytes of the file of so many numbers."""
    return 256 + 8 * count  # a header that names eight long sides takes less than 256 bytes


def _finite(array: Array, name: str) -> Array:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FileError(f"{name} holds NaN or infinity; every entry must be finite. Correct the array.")
    return array
