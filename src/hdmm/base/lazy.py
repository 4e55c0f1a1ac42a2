"""Lazy imports: libraries that take long to import and that not every user needs are imported on first use."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import final

from hdmm.base.exceptions import PackageError


@final
@dataclass(frozen=True, slots=True)
class Lazy:
    """A module that is imported when one of its attributes is first used.

    >>> Lazy("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """

    name: str

    def __getattr__(self, attribute: str) -> object:
        return getattr(importlib.import_module(self.name), attribute)


def loaded(name: str) -> bool:
    """Whether a module has been imported; if it has not, no object can be an instance of its classes.

    >>> loaded("sys"), loaded("no_such_module")
    (True, False)
    """
    return name in sys.modules


def require(name: str, purpose: str, install: str) -> None:
    """Import a library that only this purpose needs; PackageError, which says how to install it, if it is missing.

    >>> require("no_such_module", "Plots", "pip install 'hdmm[plots]'")
    Traceback (most recent call last):
    hdmm.base.exceptions.PackageError: Plots need no_such_module, which is not installed. Run pip install 'hdmm[plots]'.
    """
    try:
        importlib.import_module(name)
    except ImportError:
        raise PackageError(f"{purpose} need {name}, which is not installed. Run {install}.") from None
