"""The text of a debit: its purpose in plain words, whom it hides, and the release that it pays for (security L7, L8).

All are stored in one text, so that the format of ledgers has not changed: the hash of a record covers all of them, and
debits of early versions, which name no unit or no release, can still be read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hdmm.base.exceptions import LedgerError
from hdmm.privacy.guarantee import Unit
from hdmm.privacy.hidden import hidden_text, read_hidden

_PAYS_FOR: Final = re.compile(r"(.*) \[pays for (?:no release|release ([0-9a-f]{64}))\]", re.DOTALL)
_HIDES: Final = re.compile(r"(.*) \[hides (.*)\]", re.DOTALL)
_THE_SAME: Final = "what the account hides"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class DebitText(NamedTuple):
    """What the text of a debit says.

    `pays_for` is "" if it pays for no release. It is None if that is not stated, and `unit` if no unit is.
    """

    purpose: str
    pays_for: str | None
    unit: Unit | None


def debit_text(purpose: str, pays_for: str | None, unit: Unit | None) -> str:
    """The text of a debit that pays for the release with this digest, or for no release.

    Both notes are always written, so that no purpose can be taken for one of them.

    >>> debit_text("ages by sex", None, Unit(id="who"))
    'ages by sex [hides 1 rows by "who" add-remove] [pays for no release]'
    """
    text = f"{purpose} [hides {_THE_SAME if unit is None else hidden_text(unit)}]"
    if pays_for is None:
        return f"{text} [pays for no release]"
    if not _SHA256.fullmatch(pays_for):
        raise LedgerError(f"pays_for is {pays_for[:80]!a}; it must be a SHA-256 in 64 hexadecimal digits, or None.")
    return f"{text} [pays for release {pays_for}]"


def read_debit(text: str) -> DebitText:
    """What a text says.

    >>> read_debit("ages by sex [hides what the account hides] [pays for no release]"), read_debit("ages by sex").unit
    (DebitText(purpose='ages by sex', pays_for='', unit=None), None)
    """
    pays = _PAYS_FOR.fullmatch(text)
    if pays is None:
        return DebitText(text, None, None)
    hides = _HIDES.fullmatch(pays[1])
    unit = None if hides is None else read_hidden(hides[2])
    stated = hides is not None and (unit is not None or hides[2] == _THE_SAME)
    return DebitText(hides[1] if hides is not None and stated else pays[1], pays[2] or "", unit)
