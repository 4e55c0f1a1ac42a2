"""How values show themselves in a notebook: a title, some facts and some rows, as one escaped piece of HTML."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from hdmm.base.lazy import Lazy

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = Lazy("jinja2")

MOST_SHOWN: Final = 20
"""Rows that are shown of a value; the rest is counted."""

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # not in XML or UTF-8
# No colours, so that it suits light and dark notebooks, and no scripts.
_CARD = """\
{% macro side(place) %}style="text-align: {{ 'left' if place < card.texts else 'right' }}"{% endmacro %}
<div>
<p><strong dir="auto">{{ card.title }}</strong></p>
{% if card.facts %}
<ul>
{% for name, value in card.facts.items() %}
<li>{{ name }}: <span dir="auto">{{ value }}</span></li>
{% endfor %}
</ul>
{% endif %}
{% if card.header %}
<table>
<thead><tr>
{% for name in card.header %}
<th scope="col" dir="auto" {{ side(loop.index0) }}>{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for cell in row %}<td dir="auto" {{ side(loop.index0) }}>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if more %}
<p>… {{ "{:,}".format(more) }} more</p>
{% endif %}
</div>
"""


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
    text = _template().render(card=card, rows=shown, more=max(card.total - len(shown), 0))
    return FORBIDDEN.sub("\ufffd", text)


@cache
def _template() -> jinja2.Template:
    found = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.from_string(_CARD)
