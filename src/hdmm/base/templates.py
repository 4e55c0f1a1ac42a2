"""Templates: documents with places for values, in a folder `templates` of the package that fills them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from hdmm.base.lazy import Lazy

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = Lazy("jinja2")

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # not in XML or UTF-8


@cache
def templates(package: str, **filters: Callable[..., object]) -> jinja2.Environment:
    """The templates of a package. Values are escaped except in TOML and YAML (security O1), and are never templates."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=jinja2.select_autoescape(disabled_extensions=("toml", "yaml"), default=True),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    cast(dict[str, object], found.filters).update(filters)
    return found


def html_page(found: jinja2.Environment, name: str, **values: object) -> str:
    """A template filled with values, in which a character that no document may contain becomes U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", found.get_template(name).render(values))
