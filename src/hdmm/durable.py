"""Names on disk: what a folder lists outlasts a loss of power only once the folder itself is synced."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk; call it after files in it are created, renamed or removed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
