"""Names on disk: what a folder lists outlasts a loss of power only once the folder itself is synced.

Windows cannot sync a folder, and opens files in another way than the ledger and the folders of plans and releases rely
on (docs/how-to/windows.md), so these are refused there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hdmm.exceptions import FileError, HdmmError


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
