"""The folder `<output>.unpublished`, in which a publication is made, so that what was paid for is not only in memory.

Once the measurement ends, it holds the release and its plan; when everything else is written, it takes the output
folder's name. If a step fails or the process is killed, it stays, and can be published later without spending again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hdmm.durable import sync_folder
from hdmm.exceptions import FileError
from hdmm.io.folder import telling
from hdmm.lazy import Lazy
from hdmm.spec import Spec

PARTS = frozenset({"metadata.json", "datapackage.json", "report.html", "report.xlsx", "tables", "release", "plan"})
_PAID = frozenset({"release", "plan"})

if TYPE_CHECKING:
    import fcntl
else:
    fcntl = Lazy("fcntl")  # which Windows has not


def unpublished(spec: Spec) -> Path:
    """The folder next to the output folder in which a release is kept until it is published."""
    folder = spec.output.folder
    if folder.name in ("", ".."):
        raise FileError(f"{str(folder)!r} has no name of its own. Give [output] the path of a folder.")
    return folder.with_name(f"{folder.name}.unpublished")


def is_kept(spec: Spec) -> bool:
    """Whether there is a release that was paid for and not published."""
    return os.path.lexists(unpublished(spec) / "release")


def in_use(spec: Spec) -> bool:
    """Whether another process is releasing into the output folder at this moment."""
    try:
        fd = os.open(unpublished(spec), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)  # and the lock with it
    return False


def how_to_publish(spec: Spec, options: Sequence[str] = ()) -> str:
    """What to do with a release that is kept; `options` name the engine that has its chunks, if it is in chunks."""
    place, where = unpublished(spec), ""
    if not options and (place / "release" / "chunks.json").is_file():
        options, where = ("--engine", "dask", "--engine-folder", "FOLDER"), " FOLDER is where its chunks are."
    command = " ".join(["hdmm release", spec.command, *map(quote, options), "--resume"])
    return (
        f"The release is paid for and kept in {place}. To publish it without reading data or spending anything, run "
        f"{command}.{where}"
    )


@contextmanager
def workplace(spec: Spec) -> Generator[Path]:
    """The folder to make a publication in, locked; it is removed at the end unless it holds a release."""
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
    """Remove what a run left behind, except for a release with its plan."""
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
    """Keep other processes out until this one ends; an earlier process may just have published the folder."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileError(f"{place} is in use: another process is releasing there. Wait until it is done.") from None
    if not os.path.samestat(os.fstat(folder), os.lstat(place)):
        raise FileError(f"{place} was just published by another process. Look at it before you release again.")
