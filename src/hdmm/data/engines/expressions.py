"""The place of a row's cell among those an attribute declares, as an expression of SQL; NULL outside the declaration.

Every comparison is between values of one type, on literals that are exact in it, because engines convert between types
in ways of their own. An attribute whose column has no such expression is not counted by the database.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialect import Dialect, Expression, unchanged
from hdmm.data.engines.numerals import WHOLE_DIGITS, with_numerals
from hdmm.describe.amount import Amount
from hdmm.describe.entries import INT64_END, NUMBERS, Codes, Label, as_element
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

Branches: TypeAlias = list[tuple[Expression, int]]  # conditions on a row, and the positions of their cells

_MOST_CASES = 1000
_HUGE_DIGITS = 38
_LARGEST_EXACT = 2**53  # floats hold all integers up to it exactly
_FLOATS_END = Decimal(2**1024 - 2**970)  # the least decimal that is not a float, because it would be infinite
_NOTHING = Decimal("1e-300")  # what is below it in size is 0 to every amount, and PostgreSQL fails on some
_EXACT = Context(prec=1500)  # digits: every float has fewer
_MOST_CELLS = 2**53  # of a word: some engines divide integers as floats, which is exact up to here


@final
@dataclass(frozen=True, slots=True)
class Packing:
    """Attributes of these sizes as words: each is a row-major index over some of them, in their order.

    >>> Packing((2, 3)).codes([np.array([0, 5])])
    [array([0, 1]), array([0, 2])]
    """

    sizes: tuple[int, ...]

    @property
    def words(self) -> list[list[int]]:
        """The places of the attributes in each word. An attribute with more cells than others has is a word itself."""
        found: list[list[int]] = []
        cells = 1
        for place, size in enumerate(self.sizes):
            cells *= size
            if not found or cells > _MOST_CELLS:
                found.append([])
                cells = size
            found[-1].append(place)
        return found

    def packed(self, codes: Sequence[Expression]) -> list[Expression]:
        """The words, as expressions of the codes."""
        return [
            sum((codes[place] * _integer(stride) for place, stride in self._strides(word)), start=_integer(0))
            for word in self.words
        ]

    def unpacked(self, words: Sequence[Expression]) -> list[Expression]:
        """The codes, as expressions of the words."""
        return [
            _between(words[number], stride, stride * self.sizes[place])
            for number, word in enumerate(self.words)
            for place, stride in self._strides(word)
        ]

    def codes(self, words: Sequence[Codes]) -> list[Codes]:
        """The codes in words that have been fetched."""
        return [
            code
            for word, index in zip(self.words, words, strict=True)
            for code in np.unravel_index(index, [self.sizes[place] for place in word])
        ]

    def _strides(self, word: Sequence[int]) -> list[tuple[int, int]]:
        sizes = [self.sizes[place] for place in word]
        return list(zip(word, [math.prod(sizes[i + 1 :]) for i in range(len(sizes))], strict=True))


def cell(
    rows: ibis.Table, column: str, values: Values, dialect: Dialect | None
) -> tuple[ibis.Table, Expression | None]:
    """The place of a row's cell among the declared ones, and the table with what it refers to; None if inexact."""
    if rows[column].type().is_string() and _reads_numbers(values):
        return (rows, None) if dialect is None else _cell_of_spelled(rows, column, values, dialect)
    return rows, _position(rows[column], values, dialect)


def _reads_numbers(values: Values) -> bool:
    """Whether text may spell a value: see values.py."""
    return not isinstance(values, Labels) or any(isinstance(label, NUMBERS) for label in values.values)


def _cell_of_spelled(
    rows: ibis.Table, column: str, values: Values, dialect: Dialect
) -> tuple[ibis.Table, Expression | None]:
    """Text is a label, or spells an integer (compared exactly), or another number (compared as a float)."""
    if isinstance(values, Amount):
        rows, spelled = with_numerals(rows, column, dialect)
        return rows, _position_of_float(spelled.real(whole=True), values)
    if _beyond(values, 10**WHOLE_DIGITS):
        return rows, None
    rows, spelled = with_numerals(rows, column, dialect)
    if f"{column}_i" not in rows.columns:
        rows = dialect.computed(rows, **{f"{column}_i": spelled.integer(), f"{column}_f": spelled.real()})
    found = [_position(rows[f"{column}_{kind}"], values, dialect) for kind in "if"]
    if isinstance(values, Labels):
        found.insert(0, _case(_branches_of_text(rows[column], values, dialect)))
    if any(position is None for position in found):
        return rows, None
    return rows, ibis.coalesce(*found)


def _beyond(values: Values, most: int) -> bool:
    if isinstance(values, Integers):
        return max(abs(values.first), abs(values.last)) >= most
    numbers = values.edges if isinstance(values, Bins) else values.values if isinstance(values, Labels) else ()
    return any(isinstance(number, NUMBERS) and abs(number) >= most for number in numbers)


def _position(column: Expression, values: Values, dialect: Dialect | None) -> Expression | None:
    """The place of the cell among the declared ones; None if there is no exact expression."""
    kind = column.type()
    if kind.is_boolean():
        bits = [(condition, ibis.literal(bit, "int64")) for condition, bit in ((column, 1), (~column, 0))]
        return _position(ibis.cases(*bits), values, dialect)  # not every engine casts truth values to numbers
    if isinstance(values, Amount) and (kind.is_integer() or kind.is_decimal()):
        return _position_of_float(_nearest_float(column), values)
    if kind.is_integer() and kind.bounds.upper < INT64_END:  # not every engine writes larger numbers
        return _position_of_integer(column.cast("int64"), values)
    if kind.is_floating():
        return _position_of_float(column.cast("float64"), values)
    if kind.is_decimal():
        return _position_of_decimal(column, values, dialect)
    if kind.is_string() and isinstance(values, Labels):
        return _case(_branches_of_text(column, values, dialect))
    if kind.is_date() or kind.is_time() or kind.is_timestamp():
        return _position_of_time(column, values)
    return None


def _position_of_integer(column: Expression, values: Values) -> Expression | None:
    if isinstance(values, Integers):
        low, high = max(values.first, -INT64_END), min(values.last, INT64_END - 1)
        beyond = low - values.first  # so many declared integers are in no column
        if low > high or high - low >= INT64_END or (beyond and values.step > 1):
            return None
        offset = column.between(low, high).ifelse(column, ibis.null()) - low
        if values.step == 1:
            return offset + beyond if beyond else offset
        step = ibis.literal(values.step, "int64")
        return (offset % step == 0).ifelse((offset - offset % step) // step, ibis.null())
    if isinstance(values, Bins):
        # For an integer v, v < e is v < ⌈e⌉; engines would round large integers to compare them with a float.
        edges = [math.ceil(edge) for edge in values.edges]
        if not -INT64_END <= edges[0] <= edges[-1] < INT64_END:
            return None
        return _bin(column, [ibis.literal(edge, "int64") for edge in edges])
    return _case([(column == ibis.literal(n, "int64"), place) for n, place in _exact(values, np.dtype(np.int64))])


def _position_of_float(column: Expression, values: Values) -> Expression | None:
    if isinstance(values, Integers):
        if max(abs(values.first), abs(values.last)) > _LARGEST_EXACT:
            return None
        near = column.between(_float(values.first), _float(values.last)).ifelse(column, ibis.null()).try_cast("int64")
        return _position_of_integer((near.cast("float64") == column).ifelse(near, ibis.null()), values)
    if isinstance(values, Bins):
        return _bin(column, [_float(edge) for edge in values.edges])
    if isinstance(values, Amount):
        low, high, most = _float(values.low), _float(values.high), _float(sys.float_info.max)
        finite = column.between(-most, most).ifelse(column, ibis.null())
        none = (finite > -_float(float(_NOTHING))) & (finite < _float(float(_NOTHING)))
        inside = ibis.cases((none, _float(0.0)), else_=finite)
        inside = ibis.cases((inside < low, low), (inside > high, high), else_=inside)
        whole, left = values.steps_of(inside, lambda steps: steps.floor())  # pyright: ignore[reportUnknownLambdaType]
        return whole.cast("int64") + ibis.cases((left >= _float(0.5), ibis.literal(1, "int64")), else_=_integer(0))
    return _case([(column == _float(n), place) for n, place in _exact(values, np.dtype(np.float64))])


def _position_of_decimal(column: Expression, values: Values, dialect: Dialect | None) -> Expression | None:
    kind = column.type()
    if dialect is not None and dialect.wide_integers and (kind.precision, kind.scale) == (_HUGE_DIGITS, 0):
        if _beyond(values, 10**_HUGE_DIGITS):
            return None
        # The engine fails on one of 39 digits. Ibis writes no cast to the same type.
        column = column.cast("string").try_cast(kind)
    if kind.scale == 0 and kind.precision is not None and kind.precision <= WHOLE_DIGITS:
        most = _literal(_most(column), column)
        number = column.between(_literal(-_most(column), column), most)  # not NaN, which PostgreSQL has
        return _position_of_integer(number.ifelse(column, ibis.null()).cast("int64"), values)
    if isinstance(values, Bins):
        return _bin_of_decimal(column, values)
    if isinstance(values, Integers) and values.size > _MOST_CASES:
        return None
    labels = range(values.first, values.last + 1, values.step) if isinstance(values, Integers) else _labels(values)
    exact = [(_decimal(n, kind.scale), place) for place, n in enumerate(labels) if isinstance(n, NUMBERS)]
    held = [(n, place) for n, place in exact if n is not None and abs(n) <= _most(column)]
    return _case([(column == _literal(n, column), place) for n, place in held])


def _bin_of_decimal(column: Expression, values: Bins) -> Expression | None:
    """Among decimals of a scale, v < e is v < e′ for the least decimal e′ of that scale that is not below e."""
    most, branches = _most(column), Branches()
    for place, edge in enumerate(values.edges):
        least = _decimal(edge, column.type().scale, upward=True)
        if least is None:
            return None
        if least > most:
            branches.append((column <= _literal(most, column), place - 1))  # of every number, but not of NaN
        elif least > -most:
            branches.append((column < _literal(least, column), place - 1))
    return _case(branches)


def _position_of_time(column: Expression, values: Values) -> Expression | None:
    """Dates equal dates alone. No time equals a number or text, and labels of other types are not compared here."""
    labels = _labels(values)
    days = [(label, place) for place, label in enumerate(labels) if type(label) is date and column.type().is_date()]
    if len(days) + sum(isinstance(label, (str, *NUMBERS)) for label in labels) < len(labels):
        return None
    return _case([(column == ibis.literal(day), place) for day, place in days])


def _branches_of_text(column: Expression, values: Labels, dialect: Dialect | None) -> Branches | None:
    """Labels that are text, and the words for truth values."""
    words = ["true", "True", "TRUE", "false", "False", "FALSE"] if bool in map(type, values.values) else []
    texts = [label for label in (*values.values, *words) if isinstance(label, str)]
    if not all(isinstance(label, (str, *NUMBERS)) for label in values.values) or not all(map(str.isprintable, texts)):
        return None
    places = {text: int(values.encode([text])[0]) for text in texts}
    bytes_of = unchanged if dialect is None else dialect.bytes_of  # other engines compare text as they will
    return [
        (bytes_of(column) == bytes_of(ibis.literal(text)), place)
        for text, place in places.items()
        if 0 <= place < len(values.values)
    ]


def _labels(values: Values) -> Sequence[Label]:
    return values.values if isinstance(values, Labels) else ()


def _exact(values: Values, kind: np.dtype[np.generic]) -> list[tuple[int | float, int]]:
    """The labels that are numbers of a type, with their places."""
    found = ((as_element(label, kind), place) for place, label in enumerate(_labels(values)))
    return [(number, place) for number, place in found if number is not None]


def _nearest_float(column: Expression) -> Expression:
    """The floats nearest to integers or decimals, NULL if there is none, 0 for _NOTHING; text is rounded alike."""
    kind = column.type()
    if not kind.is_decimal():
        return column.cast("float64")
    if _most(column) >= _FLOATS_END:
        column = _within(column, _FLOATS_END).ifelse(column, ibis.null())
    found = column.cast("string").try_cast("float64")
    fine = kind.scale is None or kind.scale > -_NOTHING.adjusted()
    return ibis.cases((_within(column, _NOTHING), _float(0.0)), else_=found) if fine else found


def _within(column: Expression, end: Decimal) -> Expression:
    return (column > _literal(-end, column)) & (column < _literal(end, column))


def _float(number: float) -> Expression:
    """A float, written so that no engine takes it for a decimal."""
    return ibis.literal(repr(float(number))).cast("float64")


def _decimal(number: object, scale: int | None, *, upward: bool = False) -> Decimal | None:
    """A number as a decimal with so many digits after the point, or any number of them; None if there is none."""
    if not isinstance(number, NUMBERS) or not math.isfinite(number):
        return None
    ratio = Fraction(number)
    if scale is None:
        exact = _EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
        return exact if Fraction(exact) == ratio else None
    scaled = ratio * 10**scale
    if scaled.denominator != 1 and not upward:
        return None
    return _EXACT.scaleb(Decimal(math.ceil(scaled)), -scale)


def _most(column: Expression) -> Decimal:
    """The largest number of a column's decimal type; more than any float if the type has no bound."""
    kind = column.type()
    if kind.precision is None or kind.scale is None:
        return Decimal("1e400")
    return _EXACT.scaleb(Decimal(10**kind.precision - 1), -kind.scale)


def _literal(number: Decimal, column: Expression) -> Expression:
    return ibis.literal(format(number, "f")).cast(column.type())


def _bin(column: Expression, edges: Sequence[Expression]) -> Expression | None:
    return _case([(column < edge, place - 1) for place, edge in enumerate(edges)])


def _case(branches: Branches | None) -> Expression | None:
    if branches is None or len(branches) > _MOST_CASES:
        return None
    if not branches:
        return ibis.null("int64")  # no value of the column's type is inside
    return ibis.cases(*((condition, ibis.literal(place, "int64")) for condition, place in branches)).nullif(
        ibis.literal(-1, "int64")
    )


def _between(word: Expression, stride: int, cells: int) -> Expression:
    """The digit of a word whose place has this value; all larger places are taken away by `cells`."""
    rest = word % _integer(cells)
    return (rest - word % _integer(stride)) // _integer(stride) if stride > 1 else rest


def _integer(number: int) -> Expression:
    """An integer of 64 bits, written so that no engine multiplies in fewer, in which a product might not fit."""
    return ibis.literal(str(number)).cast("int64")
