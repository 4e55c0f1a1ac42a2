"""Where the keys of a TOML file stand: the line of every key and item, which Python's parser does not give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import final

from hdmm.io.strict_records import Place

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TEXT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|' + r"'''(?:[^']|'(?!''))*'{3,5}" + r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]*")
MOST_DEEP = 32
"""Parts of a place: dots of a key, tables and lists around it. A specification needs five."""


class TooDeepError(ValueError):
    """A key or value is nested deeper than MOST_DEEP; `line` says where."""

    def __init__(self, line: int) -> None:
        super().__init__(f"deeper than {MOST_DEEP}")
        self.line = line


@final
@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a text that Python's parser accepts; in other texts, as far as they can be followed.

    >>> lines = Lines.of('[a]\\nb = 1\\n[[c]]\\nd = [\\n  2,\\n  3]\\n')
    >>> lines.line(("a", "b")), lines.line(("c", 0, "d", 1)), lines.line(("c", 0, "missing"))
    (2, 6, 3)
    """

    found: dict[Place, int]
    begins: dict[Place, int] = field(default_factory=dict[Place, int])

    @classmethod
    def of(cls, text: str) -> Lines:
        """The lines of a text; TooDeepError if keys or brackets go deeper than MOST_DEEP. O(characters)."""
        scan = _Scan(text)
        scan.document()
        return cls(scan.found, scan.begins)

    def line(self, place: Place) -> int:
        """The line of a value, or of the nearest table around it."""
        while place and place not in self.found:
            place = place[:-1]
        return self.found.get(place, 1)

    def begin(self, place: Place) -> int:
        """The line on which the characters of a text begin; for a text in three quotes this is often the next line."""
        return self.begins.get(place, self.line(place))


class _Scan:
    """One pass over the text; `at` is the current place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.counted = 0  # characters whose newlines are in `number`
        self.number = 1
        self.found: dict[Place, int] = {}
        self.begins: dict[Place, int] = {}
        self.lengths: dict[Place, int] = {}  # of arrays of tables

    def document(self) -> None:
        table: Place = ()
        while self._skip(_BLANK) < len(self.text):
            before = self.at
            if self._take("[["):
                table = self._appended(self._key())
                self._take("]]")
            elif self._take("["):
                table = self._inside(self._key())
                self._mark(table)
                self._take("]")
            else:
                self._pair(table)
            if self.at == before:
                return  # not TOML: the parser says so

    def _pair(self, table: Place) -> None:
        start = self._line()
        place = self._shallow((*table, *self._key()))
        for length in range(len(table) + 1, len(place) + 1):  # a.b = 1 makes a, too
            self.found.setdefault(place[:length], start)
        if self._take("="):
            self._value(place)

    def _value(self, place: Place) -> None:
        self._skip(_SPACE)
        if self._take("{"):
            for _ in self._items("}"):
                self._pair(place)
        elif self._take("["):
            for item in self._items("]"):
                self._mark(self._shallow((*place, item)))
                self._value((*place, item))
        elif match := _TEXT.match(self.text, self.at):
            self.begins[place] = self._line() + bool(re.match(r"(\"\"\"|''')\r?\n", match.group()))
            self.at = match.end()
        else:
            self._skip(_SCALAR)

    def _items(self, end: str) -> Iterator[int]:
        """The number of each item up to the closing bracket; whoever asks for the next one has passed the last."""
        for item in count():
            before = self._skip(_BLANK)
            if before == len(self.text) or self._take(end):
                return
            yield item
            self._skip(_BLANK)
            self._take(",")
            if self.at == before:
                return

    def _key(self) -> Place:
        """A key and the keys after its dots."""
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if match := _TEXT.match(self.text, self.at):
                parts.append(_plain(match.group()))
            elif match := _KEY.match(self.text, self.at):
                parts.append(match.group())
            else:
                return tuple(parts)
            self.at = match.end()
            self._skip(_SPACE)
            if not self._take("."):
                return tuple(parts)
            self._shallow(tuple(parts))

    def _inside(self, key: Place) -> Place:
        """The place of a header; under an array of tables it is in the last item."""
        place: Place = ()
        for part in key:
            place = (*place, part)
            if place in self.lengths:
                place = (*place, self.lengths[place] - 1)
        return place

    def _appended(self, key: Place) -> Place:
        array = (*self._inside(key[:-1]), *key[-1:])
        item = self.lengths.get(array, 0)
        self.lengths[array] = item + 1
        self._mark(array)
        place = (*array, item)
        self._mark(place)
        return place

    def _mark(self, place: Place) -> None:
        self.found.setdefault(place, self._line())

    def _shallow(self, place: Place) -> Place:
        if len(place) > MOST_DEEP:
            raise TooDeepError(self._line())
        return place

    def _line(self) -> int:
        self.number += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.number

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _take(self, word: str) -> bool:
        here = self.text.startswith(word, self.at)
        self.at += len(word) * here
        return here


def _plain(quoted: str) -> str:
    """A key without its quotes. A key with escapes keeps them, so its line is that of the table around it."""
    return quoted[1:-1]
