"""The text of a debit: its purpose in plain words, what it spends, whom it hides, what it pays for (L7, L8).

All are stored in one text, so that the format of ledgers has not changed: the hash of a record covers all of them, and
debits of early versions, which lack some of it, can still be read.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias

from hdmm.base.exceptions import LedgerError
from hdmm.privacy.hidden import hidden_text, read_hidden
from hdmm.privacy.unit_of_privacy import Unit

_PAYS_FOR: Final = re.compile(r"(.*) \[pays for (?:no release|release ([0-9a-f]{64}))\]", re.DOTALL)
_HIDES: Final = re.compile(r"(.*) \[hides (.*)\]", re.DOTALL)
_SPENDS: Final = re.compile(r"(.*) \[spends (?:(rho|gaussian)|epsilon ([1-9][0-9]*(?:/[1-9][0-9]*)?))\]", re.DOTALL)
_THE_SAME: Final = "what the account hides"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


Spends: TypeAlias = Fraction | Literal["gaussian", "rho"]
"""A pure ε; or what Gaussian noise of the amount's ρ guarantees, and not only ρ-zCDP; or no more than ρ-zCDP."""


class DebitText(NamedTuple):
    """What the text of a debit says.

    `pays_for` is "" if it pays for no release. It is None if that is not stated, and `unit` if no unit is.
    """

    purpose: str
    pays_for: str | None
    unit: Unit | None
    spends: Spends = "rho"


def debit_text(purpose: str, pays_for: str | None, unit: Unit | None, spends: Spends) -> str:
    """The text of a debit that pays for the release with this digest, or for no release.

    All notes are always written, so that no purpose can be taken for one of them.

    >>> debit_text("ages by sex", None, Unit(id="who"), Fraction(1, 2))
    'ages by sex [spends epsilon 1/2] [hides 1 rows by "who" add-remove] [pays for no release]'
    """
    kind = f"epsilon {spends}" if isinstance(spends, Fraction) else spends
    text = f"{purpose} [spends {kind}] [hides {_THE_SAME if unit is None else hidden_text(unit)}]"
    if pays_for is None:
        return f"{text} [pays for no release]"
    if not _SHA256.fullmatch(pays_for):
        raise LedgerError(f"pays_for is {pays_for[:80]!a}; it must be a SHA-256 in 64 hexadecimal digits, or None.")
    return f"{text} [pays for release {pays_for}]"


def read_debit(text: str) -> DebitText:
    """What a text says.

    >>> found = read_debit("ages by sex [spends gaussian] [hides what the account hides] [pays for no release]")
    >>> found, read_debit("ages by sex").spends
    (DebitText(purpose='ages by sex', pays_for='', unit=None, spends='gaussian'), 'rho')
    """
    pays = _PAYS_FOR.fullmatch(text)
    if pays is None:
        return DebitText(text, None, None)
    hides = _HIDES.fullmatch(pays[1])
    unit = None if hides is None else read_hidden(hides[2])
    if hides is None or (unit is None and hides[2] != _THE_SAME):
        return DebitText(pays[1], pays[2] or "", None)
    spends = _SPENDS.fullmatch(hides[1])
    if spends is None:
        return DebitText(hides[1], pays[2] or "", unit)
    kind = Fraction(spends[3]) if spends[3] else "gaussian" if spends[2] == "gaussian" else "rho"
    return DebitText(spends[1], pays[2] or "", unit, kind)
