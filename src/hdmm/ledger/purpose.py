"""The text of a debit: its purpose in plain words, and the release that it pays for (security L7).

Both are stored in one text, so that the format of ledgers has not changed: the hash of a record covers both, and
debits of early versions, which name no release, can still be read.
"""

from __future__ import annotations

import re
from typing import Final

from hdmm.exceptions import LedgerError

_DEBIT_TEXT: Final = re.compile(r"(.*) \[pays for (?:no release|release ([0-9a-f]{64}))\]", re.DOTALL)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def debit_text(purpose: str, pays_for: str | None) -> str:
    """The text of a debit that pays for the release with this digest, or for no release.

    >>> debit_text("ages by sex", None)
    'ages by sex [pays for no release]'
    """
    if pays_for is None:
        return f"{purpose} [pays for no release]"
    if not _SHA256.fullmatch(pays_for):
        raise LedgerError(f"pays_for is {pays_for[:80]!a}; it must be a SHA-256 in 64 hexadecimal digits, or None.")
    return f"{purpose} [pays for release {pays_for}]"


def read_debit(text: str) -> tuple[str, str | None]:
    """(purpose, digest of the release); the digest is "" if the debit pays for no release, None if it is not stated.

    >>> read_debit("ages by sex [pays for no release]"), read_debit("ages by sex")
    (('ages by sex', ''), ('ages by sex', None))
    """
    match = _DEBIT_TEXT.fullmatch(text)
    return (text, None) if match is None else (match[1], match[2] or "")
