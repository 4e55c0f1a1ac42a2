"""Libraries that take long to import and are not needed by everyone: imported where they are first used."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Lazy:
    """A module that is imported when something of it is first asked for.

    >>> Lazy("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """

    name: str

    def __getattr__(self, attribute: str) -> object:
        return getattr(importlib.import_module(self.name), attribute)


def loaded(name: str) -> bool:
    """Whether someone has imported a module: if not, nothing can be an instance of its classes.

    >>> loaded("sys"), loaded("no_such_module")
    (True, False)
    """
    return name in sys.modules
