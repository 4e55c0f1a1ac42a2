"""Elements of HTML and SVG in which text is escaped by construction: only `tag` makes Markup (security O1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final, final

# Written `<br />`: HTML has no end tag for the first group, SVG needs none for the second.
_EMPTY: Final = frozenset({"br", "col", "link", "meta", "circle", "line", "path", "polygon", "polyline", "rect"})
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # in XML, or in UTF-8


@final
class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(given: str) -> Markup:
    """The text escaped for element content and attributes; what no document may contain becomes U+FFFD.

    >>> text("<b> & \\x00")
    '&lt;b&gt; &amp; \ufffd'
    """
    return given if isinstance(given, Markup) else Markup(escape(_FORBIDDEN.sub("\ufffd", given)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. Children that are not Markup are escaped, and so are attributes; None leaves one out.

    An underscore in an attribute's name stands for a hyphen, a trailing one is dropped.

    >>> tag("th", "1 < 2", scope="row", class_='"a"', id=None)
    '<th scope="row" class="&quot;a&quot;">1 &lt; 2</th>'
    >>> tag("circle", r=3)
    '<circle r="3" />'
    """
    head = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{head} />" if name in _EMPTY else f"<{head}>{join(children)}</{name}>")


def join(parts: Iterable[str], between: str = "") -> Markup:
    """The parts one after the other, escaped where they are not Markup.

    >>> join(["a < b", tag("br")], " ")
    'a &lt; b <br />'
    """
    return Markup(text(between).join(map(text, parts)))
