"""Files of chunks: written whole or not at all, and checked by a digest when they are read.

Measurements are noisy and public, so a chunk of them is written in integers that are as narrow as most of its numbers
permit, and the others follow with their places: on three attributes noise takes 4 bytes, and only few sums of many
cells take more. That says nothing that the numbers do not say. Exact numbers are never written so, because there the
width alone would reveal something.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hdmm.base.exceptions import FileError
from hdmm.matrix import Array

_DIGEST = 32  # bytes of SHA-256
_WIDTHS = (1, 2, 4, 8)  # bytes of an integer
_BEYOND = 12  # bytes of one that does not fit: the number, and its place
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_chunk(path: Path, array: Array) -> str:
    """Write the noisy integers of a chunk; its digest."""
    pieces = _narrowed(array)
    write_whole(path, pieces)
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def read_chunk(path: Path, digest: str, columns: int) -> Array:
    """The integers of a chunk, in rows of so many columns; FileError if they are not those that were written."""
    content = content_of(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise FileError(f"{path} was altered since it was written. Put the folder back as it was.")
    return _widened(content, columns)


def write_signed(path: Path, array: Array, of: str) -> None:
    """Write a chunk that can be computed again, followed by a digest of it and of what it was computed from."""
    content = np.ascontiguousarray(array).data.cast("B")
    write_whole(path, [content, _signature(content, of)])


def read_signed(path: Path, of: str, dtype: str, columns: int) -> Array:
    """The numbers of such a chunk; FileError if they are not those that were computed from this."""
    content = memoryview(content_of(path))
    if bytes(content[-_DIGEST:]) != _signature(content[:-_DIGEST], of):
        raise FileError(f"{path} was altered since it was written. Remove it, and load the release again.")
    return np.frombuffer(content[:-_DIGEST], dtype=dtype).reshape(-1, columns)


def content_of(path: Path) -> bytes:
    """What a file holds; FileError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as wrong:
        raise FileError(f"{path} cannot be read: {wrong.strerror}. Put the folder back as it was.") from None


def write_whole(path: Path, pieces: Iterable[bytes | memoryview], *, lasting: bool = True) -> None:
    """Write a file under a name of its own, then give it its name: a task that runs twice leaves one whole file.

    Only what is `lasting` outlives a crash.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}-{path.name}")
    try:
        with open(temporary, "xb") as file:
            for piece in pieces:
                file.write(piece)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as wrong:
        raise FileError(f"{path} cannot be written: {wrong.strerror}. {_advice(wrong, path.parent)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _advice(wrong: OSError, folder: Path) -> str:
    """What to do about a file that cannot be written."""
    if wrong.errno in _FULL:
        return f"The disk of {folder} is full: free some space there, or give a folder on a larger disk."
    return f"Check that all workers can write to {folder}."


def clear(folder: Path, *names: str) -> None:
    """Remove the files of these names, and what a task left of them."""
    for name in names:
        for path in folder.glob(f"*{name}-*"):
            path.unlink(missing_ok=True)


def width_of(most: int) -> int:
    """The bytes of the narrowest integers that reach from -most to most.

    >>> width_of(127), width_of(128)
    (1, 2)
    """
    return next((width for width in _WIDTHS if most < 1 << 8 * width - 1), _WIDTHS[-1])


def _narrowed(array: Array) -> list[bytes | memoryview]:
    """The width, all numbers in so many bytes, then the numbers that do not fit, and their places."""
    flat = np.ascontiguousarray(array, dtype="<i8").reshape(-1)
    sizes = {8: 8 * flat.size}
    for width in (1, 2, 4):
        sizes[width] = width * flat.size + _BEYOND * int(np.count_nonzero(flat != flat.astype(f"<i{width}")))
    width = min(sizes, key=lambda width: (sizes[width], width))
    narrow = flat.astype(f"<i{width}")
    places = np.flatnonzero(narrow != flat)
    head = np.array([width, len(places)], dtype="<i8")
    return [each.data.cast("B") for each in (head, narrow, flat[places], places.astype("<u4"))]


def _widened(content: bytes, columns: int) -> Array:
    """What `_narrowed` wrote, in rows of so many columns."""
    width, beyond = np.frombuffer(content, "<i8", 2).tolist()
    end = len(content) - beyond * _BEYOND
    found = np.frombuffer(content, f"<i{width}", (end - 16) // width, offset=16).astype(np.int64)
    found[np.frombuffer(content, "<u4", offset=end + 8 * beyond)] = np.frombuffer(content, "<i8", beyond, offset=end)
    return found.reshape(-1, columns)


def _signature(content: memoryview, of: str) -> bytes:
    digest = hashlib.sha256(of.encode())
    digest.update(content)
    return digest.digest()
