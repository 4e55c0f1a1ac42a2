"""Letterhead: who publishes the tables, about which period and region, and for what; it is for people to read."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from hdmm.base.exceptions import FileError

_MOST_LOGO = 2**20
_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@final
@dataclass(frozen=True, slots=True)
class Letterhead:
    """What a report says of its publisher. `logo` is a data URL, so that the page needs no other file."""

    organisation: str | None = None
    contact: str | None = None
    period: str | None = None
    region: str | None = None
    use: str | None = None
    logo: str | None = None


NOBODY: Final = Letterhead()
"""Where nothing is said."""


def read_logo(path: Path) -> str:
    """A picture as a data URL. A browser runs nothing in a picture, an SVG included, that it shows as one."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_LOGO + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}. Give the path of a picture.") from None
    if len(data) > _MOST_LOGO:
        raise FileError(
            f"{path} has more than {_MOST_LOGO:,} bytes. Every report holds the logo, so give a smaller one."
        )
    kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
    if kind is None and b"<svg" in data[:4096]:
        kind = "image/svg+xml"
    if kind is None:
        raise FileError(f"{path} is not a picture that pages show. Give an SVG, PNG, JPEG or GIF file.")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
