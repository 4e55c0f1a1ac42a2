"""A folder on disk: one strict JSON file `<kind>.json` and the .npy arrays that it lists.

It is written whole or not at all, and read without trust: sizes and types are checked before contents, only what the
JSON lists is opened, and only regular files are read (security F1, F2, F5).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias, cast

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from hdmm.base.durable import require_posix, swapped, sync_folder
from hdmm.base.exceptions import FileError, HdmmError
from hdmm.io.npy import array_digest, file_bytes, read_array, stored, write_array
from hdmm.io.strict_json import MOST_BYTES, Json, dump, parse
from hdmm.io.strict_records import MisfitError, StrictRecord, convert
from hdmm.matrix import Array

AnyPath: TypeAlias = str | os.PathLike[str]

VERSION = 1
MOST_ARRAY_BYTES = 2**35  # of all arrays of a folder: twice the measurements that `hdmm.measure.prepare` allows
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # of kinds and arrays: no separator, no dot, one case
_ARRAY_NAME = Meta(pattern=rf"\A{_NAME.pattern}\Z", extra={"expected": "the plain name of an array"})

_OTHERWISE = {
    "release": " Without one, nothing can be published from it: its debit stays charged, and only another one buys "
    "new measurements.",
    "plan": " Without one, plan again: that costs nothing.",
}


class _Envelope(StrictRecord, frozen=True):
    """`<kind>.json` of every kind."""

    format: str
    version: int
    arrays: list[Annotated[str, _ARRAY_NAME]]
    content: dict[str, Any]
    digests: dict[str, str] | UnsetType = UNSET  # of the arrays; a folder written by hand may have none


def save_folder(path: AnyPath, kind: str, content: Mapping[str, Json], arrays: Mapping[str, Array]) -> Path:
    """The path of the folder, written whole: under a temporary name first, synced to disk, then renamed.

    A folder of the same kind, or an empty one, is replaced; anything else at the path is refused. If saving
    fails, what was there stays.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     saved = save_folder(f"{parent}/ages", "table", {"of": "ages"}, {"counts": np.array([3, 4])})
    ...     load_folder(saved, "table")
    ({'of': 'ages'}, {'counts': array([3, 4])})
    """
    target = Path(path)
    _check_names(kind, *arrays)
    kept = {name: stored(array, f"{name}.npy") for name, array in arrays.items()}
    text = _written(kind, content, {name: array_digest(array) for name, array in kept.items()})
    with whole_folder(target, lambda: _replaceable(target, kind)) as temporary:
        for name, array in kept.items():
            write_file(temporary / f"{name}.npy", lambda file, array=array: write_array(file, array))
        write_file(temporary / f"{kind}.json", lambda file: file.write(text))
    return target


def file_sizes(kind: str, content: Mapping[str, Json], arrays: Mapping[str, Array], **more: int) -> dict[str, int]:
    """The bytes of each file that `save_folder` would write of these, and of more arrays of so many numbers."""
    digests = dict.fromkeys([*arrays, *more], array_digest(np.zeros(0)))
    counts = {name: array.size for name, array in arrays.items()} | more
    sizes = {f"{name}.npy": file_bytes(count) for name, count in counts.items()}
    return {f"{kind}.json": len(_written(kind, content, digests)), **sizes}


def _written(kind: str, content: Mapping[str, Json], digests: Mapping[str, str]) -> bytes:
    """The JSON file of a folder whose arrays have these digests."""
    envelope: dict[str, Json] = {
        "format": f"hdmm {kind}",
        "version": VERSION,
        "arrays": list(digests),
        "digests": dict(digests),
        "content": content,
    }
    return dump(envelope, f"{kind}.json")


@contextmanager
def whole_folder(target: Path, replaceable: Callable[[], os.stat_result | None]) -> Generator[Path]:
    """An empty folder to fill, which takes the target's place when the block ends, or is removed if it fails.

    `replaceable` gives the folder that is there to be replaced, if there is one, and raises if something must not be
    replaced; it is called before the block and after it. What is written inside must be synced: see `write_file`.
    """
    require_posix(f"Saving {target.name!r}")
    if target.name in ("", ".."):
        raise FileError(f"{str(target)!r} has no name of its own. Give the path of the folder to write.")
    temporary = target.with_name(f".hdmm-{secrets.token_hex(8)}")
    with as_file_error(f"{target} cannot be saved"):
        replaceable()
        os.mkdir(temporary)
        old = temporary
        try:
            yield temporary
            sync_folder(temporary)
            old = exchange(temporary, target, replaceable()) or temporary
        finally:
            shutil.rmtree(old, ignore_errors=True)  # what was replaced, or what a step that failed has left


def load_folder(
    path: AnyPath, kind: str, *, max_bytes: int = MOST_ARRAY_BYTES
) -> tuple[Mapping[str, Json], dict[str, Array]]:
    """The content and the arrays (read-only) of a folder of this kind; FileError for anything else.

    `max_bytes` bounds the total size of the arrays.

    >>> load_folder("no/such/folder", "plan")
    Traceback (most recent call last):
    hdmm.base.exceptions.FileError: There is no folder no/such/folder. Check the path.
    """
    _check_names(kind)
    folder = Path(path)
    with as_file_error(f"{folder} cannot be read"), _opened_folder(folder) as fd:
        name = str(folder / f"{kind}.json")
        if f"{kind}.json" not in os.listdir(fd):
            raise FileError(f"{folder} holds no {kind}.json{_others(fd)}. Check the path, or load what it holds.")
        with _opened(fd, folder / f"{kind}.json", MOST_BYTES) as (file, _):
            envelope = parse(file.read(MOST_BYTES + 1), name)
        found = _opened_envelope(envelope, kind, name)
        arrays: dict[str, Array] = {}
        for each in found.arrays:
            with _opened(fd, folder / f"{each}.npy", max_bytes) as (file, size):
                max_bytes -= size
                arrays[each] = read_array(file, size, str(folder / f"{each}.npy"))
                if found.digests is not UNSET and found.digests.get(each) != array_digest(arrays[each]):
                    raise FileError(
                        f"{folder / each}.npy has changed since it was saved: its SHA-256 is not the one that {name} "
                        f"has. Restore the folder from a backup.{_OTHERWISE.get(kind, '')}"
                    )
    return found.content, arrays


def _opened_envelope(envelope: Json, kind: str, name: str) -> _Envelope:
    """The envelope; format and version are checked first, because they decide the keys."""
    found = envelope.get("format") if isinstance(envelope, dict) else None
    if not isinstance(envelope, dict) or not isinstance(found, str) or not found.startswith("hdmm "):
        raise FileError(f"{name} has no key 'format' that says it is a file of hdmm. Check the path.")
    if found != f"hdmm {kind}":
        raise FileError(f"{name} has the format {found[:60]!r}, not 'hdmm {kind}'. Load it as what it is.")
    version = envelope.get("version")
    if type(version) is not int or version < 1:
        raise FileError(f"{name}: version is not a whole number from 1. The file is damaged; save it again.")
    if version > VERSION:
        raise FileError(f"{name} has version {version}; this hdmm reads {VERSION}. Upgrade hdmm to read it.")
    try:
        found = cast(_Envelope, convert(envelope, _Envelope))
    except MisfitError as wrong:
        raise wrong.in_file(name) from None
    if len(set(found.arrays)) < len(found.arrays):
        raise FileError(f"{name}: arrays lists a name twice. List each array once.")
    return found


@contextmanager
def _opened_folder(folder: Path) -> Generator[int]:
    """A descriptor of the folder itself, so that all files are read from one folder even if it is replaced."""
    require_posix(f"Reading {folder.name!r}")
    restore(folder)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileError(f"There is no folder {folder}. Check the path.") from None
    except NotADirectoryError:
        raise FileError(f"{folder} is a file or a symbolic link. Give the path of the folder itself.") from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(folder: int, path: Path, most: int) -> Generator[tuple[BinaryIO, int]]:
    """A regular file in the folder with at most `most` bytes, and its size. A pipe is refused without waiting."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path.name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise FileError(f"{path} is missing. The folder is incomplete; save it again.") from None
    except OSError as error:
        raise FileError(f"{path} is not a regular file that can be read: {error.strerror}.") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise FileError(f"{path} is not a regular file. Put the file itself there.")
    with open(fd, "rb") as file:
        if status.st_size > most:
            raise FileError(
                f"{path} has {status.st_size:,} bytes; at most {most:,} may be read, which is more than hdmm writes. "
                "Restore the folder from a backup."
            )
        yield file, status.st_size


def _others(folder: int) -> str:
    found = sorted(name[:60] for name in os.listdir(folder) if name.endswith(".json"))
    return f", but {', '.join(found[:3])}" if found else ""


def _replaceable(target: Path, kind: str) -> os.stat_result | None:
    """The folder that exists and may be replaced; None if there is nothing, FileError if something else is there."""
    restore(target)
    try:
        there = os.lstat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(there.st_mode):
        raise FileError(f"{target} exists and is not a folder (links are not followed). Choose another path.")
    with _opened_folder(target) as fd:
        names = os.listdir(fd)
        strange = next((name for name in names if not _is_part(fd, name, kind)), None)
        if strange is not None:
            raise FileError(
                f"{target} exists and holds {strange[:60]!r}, which is not part of a {kind}. Choose another path."
            )
        if not names:
            return there
        start = f'{{"format":"hdmm {kind}",'.encode()
        with _opened(fd, target / f"{kind}.json", 2**63) as (file, _):
            if file.read(len(start)) != start:
                raise FileError(f"{target / f'{kind}.json'} exists and was not saved by hdmm. Choose another path.")
    return there


def _is_part(folder: int, name: str, kind: str) -> bool:
    named = name == f"{kind}.json" or (name.endswith(".npy") and _NAME.fullmatch(name.removesuffix(".npy")))
    return bool(named) and stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def exchange(new: Path, target: Path, there: os.stat_result | None) -> Path | None:
    """Put `new` at the target; the path at which the folder that was `there` is now, for the caller to remove.

    If a step fails, all is as it was. A process that is killed leaves the old folder or the new one at the target;
    where the system cannot exchange them in one step, it may leave the old one aside, from where `restore` brings it.
    """
    aside = _aside(target)
    if there is None:
        os.rename(new, target)
        old, undo = None, lambda: os.rename(target, new)
    elif swapped(new, target):
        old, undo = new, lambda: swapped(new, target)
    else:
        shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed when it had replaced its folder
        os.rename(target, aside)
        try:
            os.rename(new, target)
        except BaseException:
            restore(target)
            raise
        old, undo = aside, lambda: (os.rename(target, new), restore(target))
    try:
        if old is not None and there is not None and not os.path.samestat(os.lstat(old), there):
            raise FileError(f"{target} was replaced by another process just now. Look at it before you replace it.")
        sync_folder(target.parent)
    except BaseException:
        undo()
        raise
    return old


def restore(target: Path) -> None:
    """Put a folder back that a process had set aside when it was killed, before another was in its place."""
    if not os.path.lexists(target) and os.path.lexists(_aside(target)):
        with suppress(FileNotFoundError):  # another process has just done so
            os.rename(_aside(target), target)


def _aside(target: Path) -> Path:
    return target.with_name(f".hdmm-replaced-{target.name}")


def write_file(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file that must not exist yet, and sync it to disk."""
    with open(path, "xb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


def replace_file(target: Path, fill: Callable[[BinaryIO], object], *, mode: int | None = None) -> None:
    """Put a file in the place of the one there, whole or not at all, with these permissions if they are given."""
    temporary = target.with_name(f".hdmm-{secrets.token_hex(8)}")
    try:
        write_file(temporary, fill)
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _check_names(*names: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise FileError(f"{name[:60]!r} cannot name a file. Use a-z, 0-9, - and _, at most 64 of them.")


@contextmanager
def as_file_error(failure: str) -> Generator[None]:
    """Turn errors of the system, and of invalid paths, into a FileError that begins with `failure`."""
    try:
        yield
    except HdmmError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "too large"
        raise FileError(f"{failure}: {reason}. Check the path, the permissions and the space left.") from None
