"""StudioFile: the specification on disk, read whole with its digest and replaced only if it is still what was read."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from hdmm.base.exceptions import HdmmError
from hdmm.io.folder import as_file_error, replace_file
from hdmm.publication.spec import Spec, read_spec
from hdmm.publication.spec.document import MOST_SPEC_BYTES

_TRIES = 20
_PAUSE = 0.05  # seconds between tries: a save holds the lock for milliseconds, a release for as long as it takes


class ChangedError(HdmmError):
    """What the page has seen is not what is there now, so that nothing was done."""


@final
@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes of a specification, as they were at one moment."""

    data: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, by which a page says what it has seen."""
        return hashlib.sha256(self.data).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class StudioFile:
    """A specification file, and what the command line says in place of its own words."""

    path: Path
    variables: dict[str, str]
    source: str | None = None
    output: Path | None = None

    def snapshot(self) -> Snapshot:
        """The file as it is now."""
        with as_file_error(f"{self.path} cannot be read"), open(self.path, "rb") as file:
            return Snapshot(file.read(MOST_SPEC_BYTES + 1))

    def spec(self, found: Snapshot) -> Spec:
        """The specification that a snapshot spells."""
        return read_spec(found.data, self.path, self.variables).redirected(self.source, self.output)

    @contextmanager
    def locked(self, seen: str) -> Generator[Snapshot]:
        """The file as the page has seen it, while no other studio saves or releases it; ChangedError if it differs."""
        with _locked(self.path):
            found = self.snapshot()
            if found.digest != seen:
                raise ChangedError(
                    f"{self.path.name} was changed elsewhere since this page read it. Nothing was done. Reload the "
                    "page to see the file as it is now."
                )
            yield found

    def replace(self, made: Snapshot) -> None:
        """Put other bytes in the place of the file, whole or not at all; call it while the file is locked."""
        with as_file_error(f"{self.path} cannot be saved"):
            target = Path(os.path.realpath(self.path))  # a link stays a link
            replace_file(target, lambda file: file.write(made.data), mode=os.stat(target).st_mode & 0o777)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock of a file."""
    fd = _lock(path)
    try:
        yield
    finally:
        os.close(fd)


def _lock(path: Path) -> int:
    """The file, locked. Saving replaces a file, so that a lock counts only if it is on the one that is there now."""
    for _ in range(_TRIES):
        with as_file_error(f"{path} cannot be read"):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
            except BlockingIOError:
                time.sleep(_PAUSE)
            os.close(fd)
    raise ChangedError(
        f"Another studio is saving or releasing {path.name} at this moment. Nothing was done. Try again later."
    )
