"""Room on disk for a release, taken before the debit, so that a disk that fills up meanwhile cannot lose it.

What a release will hold is known before it is measured, but for the numbers and the receipt, and both have a known
size. So files of these sizes are made, of which each block is on the disk (`posix_fallocate`), and removed right
before the release is written. File systems that compress or copy on write promise less.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from hdmm.base.durable import sync_folder
from hdmm.base.exceptions import FileError
from hdmm.io import file_sizes_of
from hdmm.measure.prepare import Prepared
from hdmm.measure.provenance import MeasuredPart
from hdmm.measure.release import release_file
from hdmm.privacy.rows_of import RowsOf, new_mark

ROOM = ".hdmm-room"
_RECEIPT = 4096  # bytes: its amounts have up to 400 digits each; the dataset's name is counted besides
_ESCAPED = 12  # bytes of JSON for one character of a name at most
_PIECE = 1 << 20


def release_sizes(prepared: Prepared, dataset: str) -> dict[str, int]:
    """At least the bytes of each file of the release that will be measured, paid for by an account of this name."""
    part = MeasuredPart(new_mark(), RowsOf.in_memory(), None)  # as long as any other
    file = release_file(prepared, (part,), prepared.known)
    sizes = file_sizes_of("release", file, measurements=sum(block.rows for block in prepared.strategy.blocks))
    return sizes | {"release.json": sizes["release.json"] + _RECEIPT + _ESCAPED * len(dataset)}


def take_room(folder: Path, sizes: Mapping[str, int]) -> None:
    """Make files of these sizes in a new folder; FileError if the disk has no room for them."""
    try:
        os.mkdir(folder)
        for name, size in sizes.items():
            fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                _fill(fd, size)
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(folder)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise FileError(f"{folder.parent} cannot be written: {error.strerror}. Nothing was spent.") from None
        raise FileError(
            f"The release takes up to {sum(sizes.values()):,} bytes, for which there is no room at {folder.parent}: "
            f"{error.strerror}. Nothing was spent. Free some space, and run again."
        ) from None


def _fill(fd: int, size: int) -> None:
    """Give a file so many bytes on the disk."""
    try:
        os.posix_fallocate(fd, 0, max(size, 1))
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        for start in range(0, size, _PIECE):  # macOS has no such call, and some file systems refuse it
            os.write(fd, bytes(min(_PIECE, size - start)))
