"""Data: where counts come from. It is asked for marginals, never for its rows."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DataError
from hdmm.base.hints import brief
from hdmm.base.notebook import Card, NotebookValue
from hdmm.describe.amount import MOST_PARTS
from hdmm.describe.domain import Domain
from hdmm.privacy.rows_of import UNKNOWN, RowsOf

Counts: TypeAlias = npt.NDArray[np.int64]
Axes: TypeAlias = tuple[int, ...]  # positions of attributes in the domain

DEFAULT_ROWS_BOUND = 2**33  # more rows than there are people
LARGEST_ROWS_BOUND = 2**38  # the sum of 2²⁰ such counts is an int64
MOST_MARGINAL_CELLS = 2**31  # of one marginal: 16 GiB
_LARGEST_COUNT = 2**62
_MOST_DIMENSIONS = 64  # NumPy's


class Data(NotebookValue):
    """Counts of a table over a domain.

    `check` looks at the schema alone, and `check_marginals` at sizes: both are called before a budget is debited.
    `marginals` reads data and is called only after that.
    """

    __slots__ = ()

    domain: Domain
    rows_bound: int  # public: no cell of a marginal counts more, because larger counts are clipped to it
    rows_of: RowsOf = UNKNOWN  # public: which rows are counted
    max_rows_per_id: int | None  # how many rows of one person are counted; None if a row is a person

    @property
    def id_column(self) -> str | None:
        """The column that says whose row it is; None if a row is a person."""
        return None

    @abstractmethod
    def check(self) -> None:
        """Raise DataError if the source is not there or lacks a column. Reads no values."""

    @abstractmethod
    def _marginals(self, wanted: Sequence[Axes]) -> Iterator[Counts]:
        """The marginals on these attributes, which are in the order of the domain and within the limits."""

    def check_marginals(self, wanted: Iterable[Sequence[str]]) -> None:
        """Raise if these marginals are too large to count, or one names no attribute. Reads no values."""
        refuse_passes(self, _sorted(_requests(self.domain, wanted)))

    def marginals(self, wanted: Iterable[Sequence[str]]) -> Iterator[Counts]:
        """The marginal on each of these lists of attributes, in the order given.

        Marginals that are asked for together share passes over the data, and count the same rows of each person.
        """
        requests = _requests(self.domain, wanted)
        refuse_passes(self, _sorted(requests))
        return self._transposed(requests)

    def marginal(self, attributes: Sequence[str]) -> Counts:
        """How many rows have each combination of these attributes' cells, in the order given; with amounts, how many
        parts of rows: a row has one for each step of each amount.

        >>> from hdmm import Domain, from_array
        >>> data = from_array(Domain({"sex": ["M", "F"], "age": 3}), [[5, 0, 1], [2, 2, 2]])
        >>> data.marginal(["age"]), data.marginal([])
        (array([7, 2, 3]), array(12))
        """
        return next(self.marginals([attributes]))

    def _card(self) -> Card:
        """What is public about the data: never its counts, its rows or where it is."""
        rows = "one" if self.max_rows_per_id is None else f"at most {self.max_rows_per_id:,} are counted"
        facts = {
            "Attributes": ", ".join(self.domain.names),
            "Cells of the domain": f"{self.domain.size:,}",
            "Rows per person": rows,
            "Contents": "not shown, because they are private",
        }
        return Card("Data", facts)

    def _transposed(self, requests: Sequence[Axes]) -> Iterator[Counts]:
        wanted = _sorted(requests)
        for axes, ordered, counts in zip(requests, wanted, self._marginals(wanted), strict=True):
            np.minimum(counts, min(self.rows_bound * grain(self.domain, axes), _LARGEST_COUNT), out=counts)
            if axes != ordered:
                counts = counts.transpose([ordered.index(axis) for axis in axes])
            yield np.asarray(counts, order="C")


@singledispatch
def refuse_passes(data: Data, wanted: Sequence[Axes]) -> None:
    """Raise DataError if these marginals need the data more often than they can be read. Reads no values."""
    # Most data can be read again.


@contextmanager
def withholding() -> Generator[None]:
    """Withhold what an engine says while it reads rows, because it may reveal a value (security O3)."""
    try:
        yield
    except DataError:  # ours, about files and columns
        raise
    except Exception:  # of the engine that reads, or of memory
        raise DataError(
            "The data could not be read to the end. The engine's message is withheld, because it may hold data. Check "
            "that the source is complete and that the machine has memory left."
        ) from None


def cells(domain: Domain, axes: Axes) -> int:
    """The number of cells of a marginal."""
    shape = domain.shape
    return math.prod([shape[axis] for axis in axes])


def grain(domain: Domain, axes: Axes) -> int:
    """The parts of a row that a marginal counts: 1, or with amounts the product of their steps.

    >>> from hdmm import Amount
    >>> grain(Domain({"sex": ["M", "F"]}, amounts={"wage": Amount(0, 1000)}), (0, 1))
    1000
    """
    grains = domain.grains
    return math.prod([grains[axis] for axis in axes])


def _sorted(requests: Sequence[Axes]) -> list[Axes]:
    """Attributes in the order of the domain."""
    return [tuple(sorted(axes)) for axes in requests]


def checked_rows_bound(given: int | None) -> int:
    """The declared bound on rows, or the default one."""
    if given is None:
        return DEFAULT_ROWS_BOUND
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= LARGEST_ROWS_BOUND:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"The bound on rows is {brief(given)}. Give an integer from 1 to 2**38.")
    return given


def _requests(domain: Domain, wanted: Iterable[Sequence[str]]) -> list[Axes]:
    """Positions of the attributes of each marginal; one that is too large to write out is refused (security I4).

    So is one whose counts of parts of rows could leave 64 bits if there are more rows than declared (S2): clipping a
    number modulo 2⁶⁴ would let one row move it by any amount.
    """
    place = {name: axis for axis, name in enumerate(domain.names)}
    most = min(MOST_MARGINAL_CELLS, machine_memory() // 16)
    found: list[Axes] = []
    for names in wanted:
        axes = () if isinstance(names, str) else tuple([place.get(name, -1) for name in names])
        if isinstance(names, str) or -1 in axes or len(set(axes)) < len(axes):
            domain.named(names, "of a marginal")  # raises, and says what is wrong
        if grain(domain, axes) > MOST_PARTS:
            raise DataError(
                f"A marginal would divide each row into {grain(domain, axes):,} parts; at most {MOST_PARTS:,} are "
                "counted exactly. Give amounts larger steps, or ask about fewer of them at once."
            )
        if cells(domain, axes) > most or len(axes) > _MOST_DIMENSIONS:
            raise DataError(
                f"A marginal on {len(axes)} attributes has {cells(domain, axes)} cells; the limits on this machine are "
                f"{_MOST_DIMENSIONS} attributes and {most} cells. Measure marginals on fewer attributes."
            )
        found.append(axes)
    return found


def machine_memory() -> int:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system says
        return 16 * MOST_MARGINAL_CELLS
