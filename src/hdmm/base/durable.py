"""Names on disk: what a folder lists outlasts a loss of power only once the folder itself is synced.

Two folders exchange their names in one step on Linux (`renameat2`), so that whoever looks, or is killed, finds one or
the other. Python has no function for that.

Windows cannot sync a folder, and opens files in another way than the ledger and the folders of plans and releases rely
on (docs/faq.md), so these are refused there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from hdmm.base.exceptions import FileError, HdmmError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})
"""What a system, a file system or a sandbox without that call says."""


def require_posix(what: str, error: type[HdmmError] = FileError) -> None:
    """Raise the error on Windows; do nothing elsewhere."""
    if sys.platform == "win32":
        raise error(f"{what} needs Linux or macOS. On Windows, run hdmm in WSL 2, with its files on WSL's own disk.")


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk; call it after files in it are created, renamed or removed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_parents(path: Path) -> None:
    """Make the folders above a path that are missing, each synced to disk."""
    missing = [parent for parent in path.absolute().parents if not os.path.lexists(parent)]
    for parent in reversed(missing):
        with suppress(FileExistsError):  # another process has just made it
            os.mkdir(parent)
        sync_folder(parent.parent)


def swapped(one: Path, other: Path) -> bool:
    """Whether two folders have exchanged their names, in one step; False if that cannot be done here."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    reason = ctypes.get_errno()
    if reason in _CANNOT:
        return False
    raise OSError(reason, os.strerror(reason), str(other))
