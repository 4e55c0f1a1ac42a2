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
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias, cast

from msgspec import Meta

from hdmm.durable import require_posix, sync_folder
from hdmm.exceptions import FileError, HdmmError
from hdmm.io.npy import read_array, stored, write_array
from hdmm.io.records import MisfitError, StrictRecord, convert
from hdmm.io.strict_json import MOST_BYTES, Json, dump, parse
from hdmm.matrix import Array

AnyPath: TypeAlias = str | os.PathLike[str]

VERSION = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # of kinds and arrays: no separator, no dot, one case
_ARRAY_NAME = Meta(pattern=rf"\A{_NAME.pattern}\Z", extra={"expected": "the plain name of an array"})


class _Envelope(StrictRecord, frozen=True):
    """`<kind>.json` of every kind."""

    format: str
    version: int
    arrays: list[Annotated[str, _ARRAY_NAME]]
    content: dict[str, Any]


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
    envelope = {"format": f"hdmm {kind}", "version": VERSION, "arrays": list(arrays), "content": content}
    text = dump(envelope, f"{kind}.json")
    kept = {name: stored(array, f"{name}.npy") for name, array in arrays.items()}
    with whole_folder(target, lambda: _replaceable(target, kind)) as temporary:
        for name, array in kept.items():
            write_file(temporary / f"{name}.npy", lambda file, array=array: write_array(file, array))
        write_file(temporary / f"{kind}.json", lambda file: file.write(text))
    return target


@contextmanager
def whole_folder(target: Path, replaceable: Callable[[], bool]) -> Generator[Path]:
    """An empty folder to fill, which takes the target's place when the block ends, or is removed if it fails.

    `replaceable` says whether a folder is there to be replaced, and raises if something must not be replaced; it is
    called before the block. What is written inside must be synced: see `write_file`.
    """
    require_posix(f"Saving {target.name!r}")
    if target.name in ("", ".."):
        raise FileError(f"{str(target)!r} has no name of its own. Give the path of the folder to write.")
    temporary = target.with_name(f".hdmm-{secrets.token_hex(8)}")
    with telling(f"{target} cannot be saved"):
        there = replaceable()
        os.mkdir(temporary)
        try:
            yield temporary
            sync_folder(temporary)
            exchange(temporary, target, there)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # it still exists only if a step failed


def load_folder(path: AnyPath, kind: str, *, max_bytes: int = 2**32) -> tuple[Mapping[str, Json], dict[str, Array]]:
    """The content and the arrays (read-only) of a folder of this kind; FileError for anything else.

    `max_bytes` bounds the total size of the arrays.

    >>> load_folder("no/such/folder", "plan")
    Traceback (most recent call last):
    hdmm.exceptions.FileError: There is no folder no/such/folder. Check the path.
    """
    _check_names(kind)
    folder = Path(path)
    with telling(f"{folder} cannot be read"), _opened_folder(folder) as fd:
        name = str(folder / f"{kind}.json")
        if f"{kind}.json" not in os.listdir(fd):
            raise FileError(f"{folder} holds no {kind}.json{_others(fd)}. Check the path, or load what it holds.")
        with _opened(fd, folder / f"{kind}.json", MOST_BYTES) as (file, _):
            envelope = parse(file.read(MOST_BYTES + 1), name)
        content, listed = _opened_envelope(envelope, kind, name)
        arrays: dict[str, Array] = {}
        for each in listed:
            with _opened(fd, folder / f"{each}.npy", max_bytes) as (file, size):
                max_bytes -= size
                arrays[each] = read_array(file, size, str(folder / f"{each}.npy"))
    return content, arrays


def _opened_envelope(envelope: Json, kind: str, name: str) -> tuple[Mapping[str, Json], list[str]]:
    """The content and the names of the arrays; format and version are checked first, because they decide the keys."""
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
    return found.content, found.arrays


@contextmanager
def _opened_folder(folder: Path) -> Generator[int]:
    """A descriptor of the folder itself, so that all files are read from one folder even if it is replaced."""
    require_posix(f"Reading {folder.name!r}")
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
                f"{path} has {status.st_size:,} bytes; at most {most:,} may be read. Raise max_bytes if it holds "
                "arrays and you trust it."
            )
        yield file, status.st_size


def _others(folder: int) -> str:
    found = sorted(name[:60] for name in os.listdir(folder) if name.endswith(".json"))
    return f", but {', '.join(found[:3])}" if found else ""


def _replaceable(target: Path, kind: str) -> bool:
    """Whether a folder exists that may be replaced; FileError if something else is there."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise FileError(f"{target} exists and is not a folder (links are not followed). Choose another path.")
    with _opened_folder(target) as fd:
        names = os.listdir(fd)
        strange = next((name for name in names if not _is_part(fd, name, kind)), None)
        if strange is not None:
            raise FileError(
                f"{target} exists and holds {strange[:60]!r}, which is not part of a {kind}. Choose another path."
            )
        if not names:
            return True
        start = f'{{"format":"hdmm {kind}",'.encode()
        with _opened(fd, target / f"{kind}.json", 2**63) as (file, _):
            if file.read(len(start)) != start:
                raise FileError(f"{target / f'{kind}.json'} exists and was not saved by hdmm. Choose another path.")
    return True


def _is_part(folder: int, name: str, kind: str) -> bool:
    named = name == f"{kind}.json" or (name.endswith(".npy") and _NAME.fullmatch(name.removesuffix(".npy")))
    return bool(named) and stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def exchange(new: Path, target: Path, there: bool) -> None:
    """Put `new` at the target and remove what was there; if a step fails, all is as it was."""
    aside = new.with_name(f".hdmm-{secrets.token_hex(8)}-old")
    if there:
        os.rename(target, aside)
    try:
        os.rename(new, target)
        sync_folder(target.parent)
    except BaseException:
        if not os.path.lexists(new):
            os.rename(target, new)
        if there:
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def write_file(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file that must not exist yet, and sync it to disk."""
    with open(path, "xb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


def _check_names(*names: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise FileError(f"{name[:60]!r} cannot name a file. Use a-z, 0-9, - and _, at most 64 of them.")


@contextmanager
def telling(failure: str) -> Generator[None]:
    """Turn errors of the system, and of invalid paths, into a FileError that begins with `failure`."""
    try:
        yield
    except HdmmError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "too large"
        raise FileError(f"{failure}: {reason}. Check the path, the permissions and the space left.") from None
