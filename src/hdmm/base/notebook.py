"""How values show themselves in a notebook: a title, some facts and some rows, as one escaped piece of HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, final

from hdmm.base.templates import html_page, templates

MOST_SHOWN: Final = 20
"""Rows that are shown of a value; the rest is counted."""


@final
@dataclass(frozen=True, slots=True)
class Card:
    """What a notebook shows of a value: its title, its facts, and the first of its `total` rows.

    The first `texts` columns are text, and the others numbers.
    """

    title: str
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    header: Sequence[str] = ()
    rows: Iterable[Sequence[str]] = ()
    texts: int = 1
    total: int = 0


class NotebookValue(ABC):
    """A value that a notebook shows as a card."""

    __slots__ = ()

    @abstractmethod
    def _card(self) -> Card:
        """What is shown: public facts, found in little time."""

    def _repr_html_(self) -> str:
        return html(self._card())


def html(card: Card) -> str:
    """The card as HTML; everything in it is escaped (security O1).

    >>> html(Card("<b>", header=["a"], rows=[["1 < 2"]])).count("&lt;")
    2
    """
    shown = list(islice(card.rows, MOST_SHOWN))
    more = max(card.total - len(shown), 0)
    return html_page(templates("hdmm.base"), "card.html", card=card, rows=shown, more=more)
