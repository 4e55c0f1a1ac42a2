"""Rows and tables from a distribution that is fitted to a release: post-processing, which costs no privacy."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.mixing import fixed_uniforms
from hdmm.describe.attribute import columns
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, Matrix, column_norms
from hdmm.reconstruct.components import Components, fitted_components, made_up, normals
from hdmm.reconstruct.drawn import MOST_CODES, Possible, Required, cells_of_rows, drawn, required, whole_counts
from hdmm.reconstruct.estimate import Estimate
from hdmm.reconstruct.known import Known, exactly
from hdmm.reconstruct.nonnegative import check_nonnegative, estimated_total, in_integers, nonnegative
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form
from hdmm.strategy.slabs import kron_slabs

FITS = 1.2
"""χ² per answer up to which the distribution says all that was measured; whole numbers of all cells may say more."""

_HEAVY = 10.0  # times the largest weight: what has no noise, which rows have exactly in the end
_MOST_BOXES = 1 << 10  # of impossible cells that the distribution leaves out
_DEPENDENT = 10  # components of made-up people whose attributes depend on each other
_NOISE = 1 << 41  # the first stream of simulated noise
_MOST_CELLS = 4  # per row, up to which rows are whole numbers of cells


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """All that rows are made from: what was measured, least squares from it, and what is known."""

    form: Form
    answers: tuple[Array, ...]  # to the blocks of the form, then to its known blocks
    estimate: Estimate
    known: tuple[Known, ...]

    @property
    def domain(self) -> Domain:
        """What the rows are over."""
        return self.form.domain

    @property
    def measured(self) -> tuple[tuple[Block, ...], tuple[Array, ...]]:
        """The blocks that were measured, and the answers to them."""
        return tuple(self.form.blocks), self.answers[: len(self.form.blocks)]

    @cached_property
    def total(self) -> float:
        """How many rows there are by estimate; StrategyError if that was not measured, or is none."""
        found = self.known[0].total if self.known else estimated_total(self.form, self.estimate)
        if found is None:
            raise StrategyError(
                "The release does not show how many rows there are, so none can be made. Measure the total, or a table "
                "whose sum it is."
            )
        if round(found) < 1:
            raise StrategyError("By the release there are no rows, so none are made from it.")
        return float(found)

    @cached_property
    def components(self) -> Components:
        """The distribution that fits what was measured, and known counts nearly."""
        return self.fitted(())

    def fitted(self, empty: Sequence[Block]) -> Components:
        """The same, with queries whose answers are 0."""
        return _fitted(self.form, self.answers, self.total, empty)

    @cached_property
    def modelled(self) -> Estimate:
        """Answers to any queries, by the distribution."""
        return exactly(self.components.estimate, self.known)

    @cached_property
    def near(self) -> Estimate:
        """Counts that are not negative: of the distribution if it fits, else of least squares if they can be."""
        if self.components.misfit > FITS:
            with suppress(StrategyError):
                found = nonnegative(self.form, self.answers, self._units, self.estimate, self.known)
                return exactly(found, self.known)
        return self.modelled

    def codes(self, n: int, by: Sequence[str], impossible: Sequence[str]) -> list[Array]:
        """The codes of n rows that have all tables that they must have, and none of which is impossible.

        Where the cells are few for the rows, these are whole numbers near the counts of cells; else they are drawn.
        """
        if len(self.components.unmeasured) == len(self.domain):
            raise StrategyError("The release says nothing about any attribute, so rows would have no columns.")
        possible, empty = _possible(self.domain, impossible)
        fit = self.fitted(empty) if empty else self.components
        whole = self._whole_cells(n, fit)
        exact = [(known.product, whole_counts(known.counts.ravel(), n)) for known in self.known]
        if by:
            columns = self.domain.columns(by, "by which rows are exact")
            product = Known(self.domain, by, np.zeros([column.values.size for column in columns], np.int64)).product
            exact.append((product, self._rounded(product, n, exact)))
        if whole is None:
            return drawn(fit, n, exact, possible)
        codes = _expanded(self.domain, whole)
        required(fit, codes, exact, possible)
        return codes

    def _rounded(self, product: Product, n: int, exact: Sequence[Required]) -> Array:
        """The table of the fit over a product in whole numbers that have the sums of the largest table it implies."""
        values, axes = np.maximum(self.near.values(product), 0.0), product.axes
        held = [pair for pair in exact if set(pair[0].axes) <= set(axes)]
        if not held or any(p != Identity() for _, p in product.factors):
            return whole_counts(values, n)
        within, sums = max(held, key=lambda pair: len(pair[1]))
        places = np.indices([self.domain.shape[i] for i in axes]).reshape(len(axes), -1)
        groups = cells_of_rows(within, [places[axes.index(i) if i in axes else 0] for i in range(len(self.domain))])
        found = np.zeros(len(values), np.int64)
        for group, count in enumerate(sums):
            cells = groups == group
            found[cells] = whole_counts(values[cells], int(count))
        return found

    def _whole_cells(self, n: int, fit: Components) -> tuple[list[int], Array] | None:
        """Whole numbers, n in all, of the cells of what was measured, and its attributes; None if they are too many."""
        axes = [i for i in range(len(self.domain)) if i not in fit.unmeasured]
        if math.prod(self.domain.shape[i] for i in axes) > _MOST_CELLS * n:
            return None
        cells, found = _cells(self.domain, axes), fit.scaled(n).estimate
        with suppress(StrategyError):
            found = found if fit.misfit <= FITS else self.near
            check_nonnegative(self.form, integers=True)
            known = self.known if n == self.total else ()
            found = in_integers(self.form, self.answers, self._units, found, known)
        return axes, whole_counts(found.values(cells), n)

    @property
    def _units(self) -> list[float]:
        return [1.0] * len(self.answers)


def expected_distances(form: Form, workload: Workload, rows: int) -> tuple[float, float]:
    """How far rows will be from data of so many rows: the mean total variation of the tables of a workload.

    First where no attribute depends on another, then where all do strongly. It is simulated: made-up people are
    measured with the noise of the form, and the fit to that is compared with them. No data are looked at. Where
    predicates overlap, as ranges do, the table is that of all values; sums are left out.
    """
    found: dict[Product, None] = {}
    for product in workload.products:
        matrices = [(i, p, p.matrix(workload.domain.shape[i])) for i, p in product.factors]
        if all(np.allclose(column_norms(A, 1), column_norms(A, 2)) for _, _, A in matrices):  # entries of 0 and 1
            disjoint = tuple((i, p if column_norms(A, 1).max() <= 1 else Identity()) for i, p, A in matrices)
            found[Product(workload.domain, disjoint)] = None
    if not found:
        raise StrategyError("No table counts rows, so it cannot be said how near rows would come. Ask for a count.")
    tables = list(found)
    return _distance(form, tables, rows, 1), _distance(form, tables, rows, _DEPENDENT)


def _distance(form: Form, tables: Sequence[Product], rows: int, components: int) -> float:
    people = made_up(form.domain, float(rows), components)
    answers: list[Array] = []
    for j, block in enumerate((*form.blocks, *form.exact_blocks)):
        table = people.table(block.axes).reshape([A.shape[1] for _, A in block.factors])
        y = kron_slabs([A for _, A in block.factors], table, np.float64)
        measured = j < len(form.blocks)
        answers.append(y + normals(y.shape, stream=_NOISE + j) / block.weight if measured else y)
    fit = _fitted(form, answers, float(rows)).estimate
    off = (np.abs(fit.values(table) - people.estimate.values(table)).sum() for table in tables)
    return float(np.mean([each / (2 * rows) for each in off]))


def _fitted(form: Form, answers: Sequence[Array], total: float, empty: Sequence[Block] = ()) -> Components:
    """The distribution that fits the answers to the blocks of a form, and has no rows where queries are empty."""
    blocks = form.blocks
    heavy = _HEAVY * max((block.weight for block in blocks), default=1.0)
    sure = [(Block(heavy, b.factors), y) for b, y in zip(form.exact_blocks, answers[len(blocks) :], strict=True)]
    none = [(Block(heavy, block.factors), np.zeros(block.rows)) for block in empty]
    return fitted_components(form.domain, blocks, answers[: len(blocks)], total, exact=[*sure, *none])


def rows_asked(n: int | None, total: float, attributes: int) -> int:
    """How many rows to make: as many as asked for, or as the release counts; StrategyError if they are too many."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StrategyError(f"The number of rows is {n!r}. Use a whole number of at least 1, or none for the total.")
    wanted = round(total) if n is None else int(n)
    if wanted * attributes > MOST_CODES:
        raise StrategyError(
            f"{wanted:,} rows of {attributes} attributes are too many at once; up to {MOST_CODES // attributes:,} can "
            "be made. Ask for fewer."
        )
    return wanted


def _cells(domain: Domain, axes: Iterable[int]) -> Product:
    return Product(domain, tuple((i, Identity()) for i in axes))


def _expanded(domain: Domain, cells: tuple[list[int], Array]) -> list[Array]:
    """As many rows of every cell as there are, in a fixed order that says nothing."""
    axes, counts = cells
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.unravel_index(rows[np.argsort(fixed_uniforms(len(rows), stream=0))], [domain.shape[i] for i in axes])
    codes = [np.zeros(len(rows), np.int64)] * len(domain)
    for i, held in zip(axes, places, strict=True):
        codes[i] = held
    return codes


def _possible(domain: Domain, impossible: Sequence[str]) -> tuple[Possible | None, list[Block]]:
    """Which rows can be, by conditions in SQL, and the cells in which none can as queries, if these are few."""
    if not impossible:
        return None, []
    # Imported by name because only those who use SQL should wait for its parser.
    conditions, formula = (importlib.import_module(f"hdmm.sql.{name}") for name in ("conditions", "formula"))
    found = conditions.SqlDomain.of(
        domain, conditions.impossible_conditions(impossible, columns(domain.attributes))
    ).possible
    empty = formula.boxes(formula.complement(found))
    blocks = [Block(1.0, [_indicator(domain, place, cells) for place, cells in box.items()]) for box in empty]
    holds = partial(formula.holds, found, shape=domain.shape)
    return Possible(holds, tuple(sorted(formula.axes(found)))), blocks if len(blocks) <= _MOST_BOXES else []


def _indicator(domain: Domain, place: int | tuple[int, int], cells: Iterable[int]) -> tuple[Attributes, Matrix]:
    """One query: whether a row is in these cells of an attribute, or of two in the order given."""
    axes = (place,) if isinstance(place, int) else place
    held = np.zeros(math.prod(domain.shape[i] for i in axes))
    held[list(cells)] = 1.0
    if list(axes) != sorted(axes):
        held = held.reshape([domain.shape[i] for i in axes]).T.ravel()
    return tuple(sorted(axes)), Dense(held[None])
