"""The folder `<output>.unpublished`, in which a publication is made: what was paid for is never only in memory.

From the end of the measurement on it holds the release and its plan; when all else is written, it takes the output
folder's name. Where a step fails or the process is killed, it stays, and is published later without spending again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from hdmm.durable import sync_folder
from hdmm.exceptions import FileError
from hdmm.io.folder import telling
from hdmm.spec import Spec

PARTS = frozenset({"metadata.json", "report.html", "tables", "release", "plan"})
_PAID = frozenset({"release", "plan"})


def unpublished(spec: Spec) -> Path:
    """Where a release is kept until it is published: beside the output folder."""
    folder = spec.output.folder
    if folder.name in ("", ".."):
        raise FileError(f"{str(folder)!r} does not name a folder of its own. Give [output] the path of one.")
    return folder.with_name(f"{folder.name}.unpublished")


def is_kept(spec: Spec) -> bool:
    """Whether a release is there that was paid for and not published."""
    return os.path.lexists(unpublished(spec) / "release")


def how_to_publish(spec: Spec) -> str:
    """What to do with a release that is kept, in a sentence."""
    return (
        f"The release is paid for and kept in {unpublished(spec)}: hdmm release {quote(str(spec.path))} --resume "
        "publishes it, reads no data and spends nothing."
    )


@contextmanager
def workplace(spec: Spec) -> Generator[Path]:
    """The folder to make a publication in, locked; removed in the end unless it holds a release."""
    place = unpublished(spec)
    with telling(f"{place} cannot be written"):
        with suppress(FileExistsError):
            os.mkdir(place)
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with telling(f"{place} cannot be written"):
            _lock(fd, place)
            clear(place)
            sync_folder(place.parent)
        try:
            yield place
        finally:
            if not is_kept(spec):
                shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(fd)


def clear(place: Path) -> None:
    """Remove what a run left behind, but for a release with its plan."""
    names = set(os.listdir(place))
    strange = next((name for name in names - PARTS if not name.startswith(".hdmm-")), None)
    if strange is not None:
        raise FileError(f"{place} holds {strange[:60]!r}, which hdmm did not put there. Move it elsewhere.")
    for name in names - _PAID if "release" in names else names:
        if os.path.isdir(place / name) and not os.path.islink(place / name):
            shutil.rmtree(place / name)
        else:
            os.unlink(place / name)


def _lock(folder: int, place: Path) -> None:
    """Keep other processes out, until this one ends; the one before may just have published the folder."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileError(f"{place} is in use: another process is releasing there. Wait until it is done.") from None
    if not os.path.samestat(os.fstat(folder), os.lstat(place)):
        raise FileError(f"{place} was just published by another process. Look at it before you release again.")
