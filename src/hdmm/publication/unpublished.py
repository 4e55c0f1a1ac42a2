"""The folder `<output>.unpublished`, in which a publication is made, so that what was paid for is not only in memory.

Once the measurement ends, it holds the release and its plan; when everything else is written, it takes the output
folder's name. If a step fails or the process is killed, it stays, and can be published later without spending again.

An earlier publication and the new one exchange their names, so the earlier one is then in this folder for the moment
until it is removed. A mark, which the new one has from before that until after it, shows which of them is which if the
process is killed in between. Whoever works in the folder holds a lock on it, and removes it only while it is the one
that was locked: under its name there may be another's by then.

Room on the disk for a release is taken in it before the debit, so that a disk that fills up meanwhile cannot lose it.
What a release will hold is known before it is measured, but for the numbers and the receipt, and both have a known
size. So files of these sizes are made, each block on the disk (`posix_fallocate`), and removed right before
the release is written. File systems that compress or copy on write promise less.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hdmm.base.durable import make_parents, sync_folder
from hdmm.base.exceptions import FileError
from hdmm.base.lazy import Lazy
from hdmm.io import file_sizes_of
from hdmm.io.folder import as_file_error, exchange, restore, write_file
from hdmm.measure.prepare import Prepared
from hdmm.measure.provenance import MeasuredPart
from hdmm.measure.release_file import release_file
from hdmm.privacy.rows_of import RowsOf, new_mark
from hdmm.publication.spec import Spec

PARTS = frozenset(
    {
        "metadata.json",
        "datapackage.json",
        "report.html",
        "report.xlsx",
        "registry.yaml",
        "tables",
        "release",
        "plan",
        "rows",
    }
)
_PAID = frozenset({"release", "plan"})
MARK = ".hdmm-new"
ROOM = ".hdmm-room"
_RECEIPT = 4096  # bytes: its amounts have up to 400 digits each; the dataset's name is counted besides
_ESCAPED = 12  # bytes of JSON for one character of a name at most
_PIECE = 1 << 20

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
    return os.path.lexists(unpublished(spec) / "release") and not _is_replaced(spec)


def _is_replaced(spec: Spec) -> bool:
    """Whether the folder holds an earlier publication: a process was killed when it had replaced it."""
    return os.path.lexists(spec.output.folder / MARK) and not os.path.lexists(unpublished(spec) / MARK)


def in_use(spec: Spec) -> bool:
    """Whether another process is releasing into the output folder at this moment."""
    try:
        with _closing(_opened(unpublished(spec))) as fd:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
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
    with as_file_error(f"{place} cannot be written"):
        make_parents(place)
        with suppress(FileExistsError):
            os.mkdir(place)
        opened = _opened(place)
    with _closing(opened) as fd:
        with as_file_error(f"{place} cannot be written"):
            _lock(fd, place)
            _settle(spec, place)
            clear(place)
            sync_folder(place.parent)
        try:
            yield place
        finally:
            if _is_at(fd, place) and not is_kept(spec):
                shutil.rmtree(place, ignore_errors=True)


def put_in_place(spec: Spec, place: Path, there: os.stat_result | None) -> None:
    """Give the folder the output folder's name, and remove the earlier publication that is `there`.

    Once it has the name, it is published: what cannot be removed then is left to the next run.
    """
    _remove(place, set(os.listdir(place)) - PARTS)  # what an earlier step could not remove
    write_file(place / MARK, lambda file: file)
    sync_folder(place)
    with _holding(spec.output.folder, there), _closing(_opened(place)) as new:
        old = exchange(place, spec.output.folder, there)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        if old is None or not os.path.lexists(old):
            with suppress(OSError):
                os.unlink(MARK, dir_fd=new)
                os.fsync(new)


def clear(place: Path) -> None:
    """Remove what a run left behind, except for a release with its plan."""
    names = set(os.listdir(place))
    strange = next((name for name in names - PARTS if not name.startswith(".hdmm-")), None)
    if strange is not None:
        raise FileError(f"{place} holds {strange[:60]!r}, which hdmm did not put there. Move it elsewhere.")
    _remove(place, names - _PAID if "release" in names else names)


def _settle(spec: Spec, place: Path) -> None:
    """Finish what a process was doing that was killed when it had put a publication in place; under the lock."""
    restore(spec.output.folder)
    if os.path.lexists(spec.output.folder / MARK):
        if _is_replaced(spec):
            _remove(place, set(os.listdir(place)))
        os.unlink(spec.output.folder / MARK)


def _remove(place: Path, names: Set[str]) -> None:
    for name in names:
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
    if not _is_at(folder, place):
        raise FileError(
            f"{place} was just published or removed by another process. Look at the output folder before you release "
            "again."
        )


@contextmanager
def _holding(target: Path, there: os.stat_result | None) -> Generator[None]:
    """The lock of the folder that is replaced, so that nobody works in it while it has this folder's name."""
    if there is None:
        yield
        return
    with _closing(_opened(target)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)  # its own process may be about to end
        yield


@contextmanager
def _closing(fd: int) -> Generator[int]:
    try:
        yield fd
    finally:
        os.close(fd)  # and the lock with it


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: int, place: Path) -> bool:
    """Whether an open folder is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(folder), os.lstat(place))
    except FileNotFoundError:
        return False


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
