"""Unit: whose rows a guarantee is about, and by what that multiplies the sensitivity of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from hdmm.base.exceptions import PrivacyError
from hdmm.base.hints import brief
from hdmm.privacy.exact_number import as_given
from hdmm.privacy.guarantee import Noise


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of privacy: at most `rows` rows of one person, which are added or removed, or replaced by others.

    `id` is the column that says whose row it is; without one, the unit is any `rows` rows.

    >>> Unit(rows=3).factor(Noise.LAPLACE, signed=False), Unit(rows=3).factor(Noise.GAUSSIAN, signed=False)
    (3, 9)
    >>> str(Unit(neighbours="replace"))
    'one row replaced by another'
    """

    rows: int = 1
    neighbours: Literal["add-remove", "replace"] = "add-remove"
    id: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or not 1 <= self.rows < 2**31:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PrivacyError(
                f"A unit of privacy cannot have {brief(self.rows)} rows. Give an integer from 1 to 2**31 - 1."
            )
        if self.neighbours not in ("add-remove", "replace"):
            raise PrivacyError(f"The neighbours {brief(self.neighbours)} are unknown. Use 'add-remove' or 'replace'.")
        if self.id is not None and (not isinstance(self.id, str) or not self.id):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PrivacyError(f"The column of ids is {as_given(self.id)}. Give the name of a column, or None.")

    def factor(self, noise: Noise, *, signed: bool) -> int:
        """The factor by which the sensitivity of one row (squared for Gaussian noise) is multiplied.

        Replacing a row changes the answers by a − b: ‖a − b‖₁ ≤ 2Δ₁, and ‖a − b‖₂² ≤ 2Δ₂² for a, b ≥ 0, else 4Δ₂².
        """
        replaced = self.neighbours == "replace"
        return self.rows**noise.order * ((2 if noise.order == 1 or not signed else 4) if replaced else 1)

    def __str__(self) -> str:
        person = " of one person" if self.rows > 1 or self.id is not None else ""
        rows = f"{'one row' if self.rows == 1 else f'up to {self.rows:,} rows'}{person}"
        return (
            f"{rows} replaced by {'another' if self.rows == 1 else 'others'}"
            if self.neighbours == "replace"
            else (f"{rows} added or removed")
        )
