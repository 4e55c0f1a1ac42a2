"""The head file: the last record of a ledger, kept next to the database so that an older copy is noticed (L6)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.base.durable import sync_folder
from hdmm.privacy.chain import Broken

_LINE = re.compile(rb"hdmm-ledger-head 1 ([1-9][0-9]{0,17}) ([0-9a-f]{64})\n")
_MOST_HEAD_BYTES = 200


@final
@dataclass(frozen=True, slots=True)
class Head:
    """The last record, as the head file names it."""

    sequence: int
    hash: str


def head_path(path: Path) -> Path:
    """The path of a ledger's head file.

    >>> head_path(Path("budget.db")).name
    'budget.db.head'
    """
    return path.with_name(path.name + ".head")


def read_head(path: Path) -> Head | None:
    """The head of the ledger at this path; None if there is no head file."""
    try:
        file = os.open(head_path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        match = _LINE.fullmatch(opened.read(_MOST_HEAD_BYTES))
    if match is None:
        raise Broken(f"its head file {head_path(path).name} is not in the format of a head file")
    return Head(int(match[1]), match[2].decode("ascii"))


def write_head(path: Path, head: Head) -> None:
    """Replace the head file: temporary file, fsync, rename, fsync of the folder. The caller holds the lock."""
    target = head_path(path)
    temporary = target.with_name(target.name + ".new")
    temporary.unlink(missing_ok=True)  # left by a killed process, because the lock excludes all others
    # O_EXCL refuses whatever was put there meanwhile, including links.
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(f"hdmm-ledger-head 1 {head.sequence} {head.hash}\n".encode("ascii"))
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(target)
    sync_folder(path.parent)
