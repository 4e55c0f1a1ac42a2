"""Level: a public grouping of an attribute's values, such as the county of every tract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.base.frozen import assign
from hdmm.describe.entries import Label, comparison_key, plain_value

LevelsLike: TypeAlias = "Mapping[str, Sequence[Label]] | Mapping[str, Sequence[Label] | Level] | Sequence[Level]"


@final
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Level:
    """A name, the names of its groups, and the group of every value of an attribute, in the order of the values.

    Groups are in the order in which the values first mention them.

    >>> county = Level.of("county", ["Kent", "Essex", "Kent"])
    >>> county.groups, county.codes
    (('Kent', 'Essex'), array([0, 1, 0]))
    """

    name: str
    groups: tuple[Label, ...]
    codes: npt.NDArray[np.int64]
    _runs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = field(repr=False)
    """The runs of neighbouring values of one group, sorted by group: (first, last) × run, and each group's start."""

    def __init__(self, name: str, groups: Sequence[Label], codes: npt.ArrayLike) -> None:
        given = np.array(codes)
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(f"A level has the name {name!r}. Use a text that is not empty as its name.")
        if given.ndim != 1 or not given.size or given.dtype.kind not in "iu" or given.min() < 0:
            raise DomainError(f"The groups of level {name!r} are not a list of whole numbers from 0.")
        held = given.astype(np.int64)
        if held.max() >= len(groups) or (np.bincount(held, minlength=len(groups)) == 0).any():
            raise DomainError(f"Level {name!r} has {len(groups)} groups, but its values are not in exactly these.")
        if len(set(map(comparison_key, groups))) < len(groups):
            raise DomainError(f"Two groups of level {name!r} are equal. Name each group once.")
        held.setflags(write=False)
        assign(
            self,
            name=str(name),
            groups=tuple(_group(name, group) for group in groups),
            codes=held,
            _runs=_runs(held, len(groups)),
        )

    @classmethod
    def of(cls, name: str, given: Sequence[Label]) -> Level:
        """The level that gives each value the group of this name."""
        if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"Level {name!r} is given as type {type(given).__name__}. Give a list with one group name per value."
            )
        if not len(given):
            raise DomainError(f"Level {name!r} has no group names. Give one per value.")
        numbers: dict[tuple[type, Label], int] = {}
        groups: list[Label] = []
        codes: list[int] = []
        for each in given:
            group = each if type(each) is str and each else _group(name, each)
            code = numbers.setdefault(comparison_key(group), len(groups))
            if code == len(groups):
                groups.append(group)
            codes.append(code)
        return cls(name, groups, np.array(codes, np.int64))

    def runs(self, group: int) -> Iterator[tuple[int, int]]:
        """The first and last value of each run of neighbouring values that are in a group."""
        ends, starts = self._runs
        at = slice(int(starts[group]), int(starts[group + 1]))
        return cast(Iterator[tuple[int, int]], zip(ends[0, at].tolist(), ends[1, at].tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Level)
            and (self.name, self.groups) == (other.name, other.groups)
            and tuple(map(type, self.groups)) == tuple(map(type, other.groups))
            and np.array_equal(self.codes, other.codes)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.groups, len(self.codes)))

    def __repr__(self) -> str:
        return f"Level({self.name!r}, {len(self.groups):,} groups of {len(self.codes):,} values)"


def checked_levels(given: LevelsLike, values: int) -> tuple[Level, ...]:
    """The levels of an attribute with this many declared values; DomainError if they do not fit it."""
    pairs: Any = given.items() if isinstance(given, Mapping) else [(level.name, level) for level in given]
    found = tuple(each if isinstance(each, Level) else Level.of(name, each) for name, each in pairs)
    for level in found:
        if len(level.codes) != values:
            raise DomainError(
                f"Level {level.name!r} has {len(level.codes):,} group names for {values:,} values. Give one per value."
            )
    names = [level.name for level in found]
    if len(set(names)) < len(names):
        raise DomainError("Two levels have the same name. Give every level a different name.")
    return found


def _group(level: str, given: object) -> Label:
    group = str(given) if isinstance(given, np.str_) else plain_value(given)
    missing = group is None or group == "" or (isinstance(group, float | Decimal) and group != group)
    if missing or not isinstance(group, str | bool | int | float | Decimal):
        raise DomainError(
            f"Level {level!r} has a group that is {'missing' if missing else f'a {type(given).__name__}'}. Every value "
            "is in one group, whose name is a text or a number."
        )
    return group


def _runs(codes: npt.NDArray[np.int64], groups: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    first = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
    last = np.append(first[1:], len(codes)) - 1
    order = np.argsort(codes[first], kind="stable")
    starts = np.searchsorted(codes[first][order], np.arange(groups + 1))
    return np.stack([first[order], last[order]]), starts
