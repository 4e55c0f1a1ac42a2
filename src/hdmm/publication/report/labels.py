"""Labels in pictures: text does not wrap there by itself, so that lines and widths are decided here."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from hdmm.answers.totals import RowLabels
from hdmm.describe.entries import ALL

_LINE: Final = 22  # characters of a line: half of a narrow page
_CHARACTER: Final = 7.2  # pixels, of a wide font
_FEW_HEADS = 10  # column labels of a heat map that fit a narrow page
_SLANT = 0.75  # how far a slanted label reaches to the left, as a part of its length
PITCH: Final = 14
"""Pixels from one line of a label to the next."""


def wrapped(label: str) -> list[str]:
    """The lines of a label: whole words where they fit.

    >>> wrapped("two or more races, or none"), wrapped("Donaudampfschifffahrtsgesellschaft")
    (['two or more races, or', 'none'], ['Donaudampfschifffahrts', 'gesellschaft'])
    """
    lines = [""]
    for word in label.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(joined) <= _LINE:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for character in word:
            if _width(lines[-1] + character) > _LINE:
                lines.append("")
            lines[-1] += character
    return lines


@final
@dataclass(frozen=True, slots=True)
class Heads:
    """Labels of columns: (place, word, whether a narrow page leaves it out) of each that is drawn."""

    height: int = 0
    slant: bool = False
    words: tuple[tuple[str, str, bool], ...] = ()
    reach: float = 0.0  # how many characters they reach to the left of the first column


def gutter(labels: Iterable[Sequence[str]], above: Heads | None = None) -> int:
    """The pixels to the left of a picture that its longest line takes, or the first slanted label of a column."""
    longest = max((_width(line) for lines in labels for line in lines), default=0)
    return math.ceil(_CHARACTER * max(longest, 0.0 if above is None else above.reach)) + 14


def heads(labels: Sequence[str]) -> Heads:
    """As many labels of columns as are legible, slanted if they are long; if many, a narrow page shows every other."""
    words = [shortened(label, 30) for label in labels]
    longest = max(map(_width, words))
    shown = range(0, len(words), math.ceil(len(words) / 24))
    drawn = tuple(
        (f"{100 * (k + 0.5) / len(words):.2f}", words[k], bool(place % 2) and len(words) > _FEW_HEADS)
        for place, k in enumerate(shown)
    )
    slant = longest > 3
    return Heads(18 + 5 * longest if slant else 18, slant, drawn, _SLANT * longest if slant else 0.0)


def shortened(label: str, most: int) -> str:
    """The label, or its beginning and an ellipsis.

    >>> shortened("Luxembourg", 6)
    'Luxem…'
    """
    return label if len(label) <= most else f"{label[: most - 1]}…"


def row_label(row: Iterable[str]) -> str:
    """All labels of a row.

    >>> row_label(["F", "(all)"]), row_label([])
    ('F, Total', 'Total')
    """
    return ", ".join(map(shown, row)) or "Total"


def shown(label: str) -> str:
    """A label as readers see it."""
    return "Total" if label == ALL else label


def grouped(labels: RowLabels) -> list[str]:
    """Row labels in which what repeats the row above is replaced by an indent.

    >>> grouped([("F", "young"), ("F", "old"), ("M", "young")])
    ['F, young', '\u2003old', 'M, young']
    """
    words: list[str] = []
    for k, row in enumerate(labels):
        repeats = k > 0 and len(row) > 1 and row[:-1] == labels[k - 1][:-1]
        words.append("\u2003" + "".join(row[-1:]) if repeats else row_label(row))
    return words


def _width(text: str) -> int:
    """Characters, those of Chinese, Japanese and Korean twice."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
