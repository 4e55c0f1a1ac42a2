"""Known: counts that are public already. They cost nothing, are reproduced exactly, and inform all other answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import DomainError, StrategyError
from hdmm.lattice import kron_slabs
from hdmm.matrix import Array
from hdmm.matrix.checks import frozen
from hdmm.nonnegative import MOST_FITTED, information, nonnegative
from hdmm.predicates import Identity
from hdmm.reconstruct import Estimate, GroupedEstimate, all_values, in_cells, reconstruct
from hdmm.strategy.blocks import Attributes, Block
from hdmm.strategy.coupled import Coupled
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.informed import Conditioned, Informed
from hdmm.strategy.iterative import Unknown, Written
from hdmm.whole_numbers import rounded
from hdmm.workload import Product

_MOST = 2**53  # counts up to here are exact as floats
_ROUNDS = 1000  # of proportional fitting
_CLOSE = 1e-12  # of the total
_LITTLE = 1e-3  # of the mean count
_HEAVY = 10.0  # times the largest weight: known counts among measurements where only a penalty can be had


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Known:
    """A marginal that is public: the exact number of rows for each combination of values of some attributes.

    `counts` has one axis per attribute, in the order given; for no attributes it is one number, the total. Whoever
    declares counts as known says that they were public before the release: they are published without noise, and
    nothing protects them. They must count the same rows as the data does.

    >>> domain = Domain({"sex": ["M", "F"], "age": 3})
    >>> Known(domain, ["sex"], [120, 134]), Known(domain, [], 254)
    (Known(sex, 254 rows), Known(total, 254 rows))
    """

    domain: Domain
    axes: Attributes  # ascending
    counts: Array  # one axis per attribute, in the order of the domain

    def __init__(self, domain: Domain, attributes: Iterable[str], counts: object) -> None:
        chosen = [domain.axis(attribute.name) for attribute in domain.named(attributes, "with known counts")]
        held = _checked(counts, [domain.shape[i] for i in chosen], [domain.names[i] for i in chosen])
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "axes", tuple(sorted(chosen)))
        object.__setattr__(self, "counts", frozen(np.array(held.transpose(np.argsort(chosen)), order="C")))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return tuple(self.domain.names[i] for i in self.axes)

    @property
    def total(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())

    def over(self, axes: Sequence[int]) -> Array:
        """The counts over some of its attributes, in this order."""
        summed = self.counts.sum(axis=tuple(k for k, i in enumerate(self.axes) if i not in axes))
        left = [i for i in self.axes if i in axes]
        return np.asarray(summed).transpose([left.index(i) for i in axes])

    def __repr__(self) -> str:
        return f"Known({' × '.join(self.attributes) or 'total'}, {self.total:,} rows)"


def known_counts(domain: Domain, given: Known | Iterable[Known] | None) -> tuple[Known, ...]:
    """Known marginals over one domain that agree with each other; those that others imply are left out.

    StrategyError if two of them differ on what both count.
    """
    held = [given] if isinstance(given, Known) else list(given or ())
    for each in held:
        if not isinstance(each, Known):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise StrategyError(f"Known counts are a {type(each).__name__}. Give Known(domain, attributes, counts).")
        if each.domain != domain:
            raise StrategyError(
                f"The counts by {' × '.join(each.attributes) or 'nothing'} are known over another domain. Build both "
                "on one Domain."
            )
    for one, other in itertools.combinations(held, 2):
        both = [i for i in one.axes if i in other.axes]
        if not np.array_equal(one.over(both), other.over(both)):
            shared = " × ".join(domain.names[i] for i in both)
            raise StrategyError(
                f"{one!r} and {other!r} contradict each other: they have different counts by {shared}. Correct one."
                if both
                else f"{one!r} and {other!r} contradict each other: their totals differ. Correct one."
            )
    distinct = {each.axes: each for each in held}
    return tuple(each for axes, each in distinct.items() if not any(set(axes) < set(other) for other in distinct))


def known_axes(known: Iterable[Known]) -> tuple[Attributes, ...]:
    """The attributes of each, as a strategy holds them."""
    return tuple(each.axes for each in known)


def known_answers(blocks: Sequence[Block], known: Sequence[Known]) -> tuple[Array, ...]:
    """The exact answers to blocks, each over attributes of a known marginal."""
    found: list[Array] = []
    for block in blocks:
        counts = next(each for each in known if set(block.axes) <= set(each.axes)).over(block.axes)
        found.append(kron_slabs([A for _, A in block.factors], counts.astype(np.float64), np.float64).ravel())
    return tuple(found)


def exactly(estimate: Estimate, known: Sequence[Known]) -> Estimate:
    """The estimate, with what known marginals tell by themselves taken from them, to the last digit."""
    return _Exact(estimate, tuple(known)) if known else estimate


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Exact(Estimate):
    inner: Estimate
    known: tuple[Known, ...]

    def values(self, product: Product) -> Array:
        found = self.told(product)
        return self.inner.values(product) if found is None else found

    def told(self, product: Product) -> Array | None:
        """The answers by a known marginal that has all attributes of the product; None if none has."""
        axes = [i for on, _ in product.sets for i in on]
        one = next((known for known in self.known if set(axes) <= set(known.axes)), None)
        if one is None:
            return None
        factors = [p.matrix(product.cells(on)) for on, p in product.sets]
        return kron_slabs(factors, one.over(axes).astype(np.float64), np.float64).ravel()


@all_values.register
def _(estimate: _Exact, products: Sequence[Product]) -> Array:
    out = all_values(estimate.inner, products)
    ends = np.cumsum([0, *(product.queries for product in products)]).tolist()
    for product, start, stop in zip(products, ends[:-1], ends[1:], strict=True):
        told = estimate.told(product)
        if told is not None:
            out[start:stop] = told
    return out


@reconstruct.register
def _(form: Informed, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return reconstruct(form.inner, answers, units)


@reconstruct.register
def _(form: Conditioned, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    held = len(answers) if form.stacked else len(answers) - len(form.known)
    inner = reconstruct(form.inner, answers[:held], units[:held])
    pairs = zip(answers[-len(form.known) :], form.known_blocks, strict=True)
    exact = np.concatenate([_in_order(y, block) for y, block in pairs])
    return _ConditionedEstimate(form, inner, exact - all_values(inner, form.known))


def _in_order(counts: Array, block: Block) -> Array:
    """The answers to a block of identities, in the order of the cells of its attributes."""
    shape = [A.shape[1] for _, A in block.factors]
    return counts.reshape(shape).transpose(np.argsort(block.axes)).ravel()


@final
@dataclass(frozen=True, slots=True, eq=False)
class _ConditionedEstimate(Estimate):
    form: Conditioned
    inner: Estimate
    off: Array  # what the known counts are above their estimates

    def values(self, product: Product) -> Array:
        return self.inner.values(product) + self.form.correction(product, self.off)


@nonnegative.register(Informed)
@nonnegative.register(Conditioned)
def _(form: Informed | Conditioned, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    """The same with the known counts as measurements of large weight, which `fitted` makes exact."""
    groups, core = (form.inner.groups, form.inner.inner) if isinstance(form.inner, Grouped) else (None, form.inner)
    if not isinstance(core, Coupled | Diagonal | Grid | Written):
        raise StrategyError(f"There is no rule for estimates from a {type(core).__name__}. This is a fault of hdmm.")
    count = len(form.known_blocks)
    measured = core.blocks[: len(answers) - count]
    heavy = _HEAVY * max(block.weight for block in measured)
    known = (block if groups is None else groups.block(block) for block in form.known_blocks)
    blocks = (*measured, *(Block(heavy, block.factors) for block in known))
    raw = estimate.inner if isinstance(estimate, _ConditionedEstimate) else estimate  # it is only where to start
    raw = raw.inner if isinstance(raw, GroupedEstimate) else raw
    found = nonnegative(Unknown("", core.domain, blocks), answers, units, raw)
    return found if groups is None else GroupedEstimate(groups, found)


def fitted(estimate: Estimate, domain: Domain, axes: Sequence[int], known: Sequence[Known]) -> Estimate:
    """The estimate, none of whose counts is negative, in proportions that have the sums of the known marginals.

    On the cells of the measured and known attributes, `axes`, if these are few; else each table by itself.
    """
    return _Fitted(estimate, domain, tuple(axes), tuple(known)) if known else estimate


def fitted_integers(form: Form, estimate: Estimate, axes: Sequence[int], known: Known) -> Estimate:
    """The same in whole numbers, beside one known marginal, whose sums stay; check_nonnegative says where."""
    core = form.inner if isinstance(form, Informed | Conditioned) else form
    if not isinstance(core, Coupled | Diagonal | Grid | Written) or not isinstance(form, Informed | Conditioned):
        raise StrategyError(f"There is no rule for estimates from a {type(core).__name__}. This is a fault of hdmm.")
    domain, shape = known.domain, [known.domain.shape[i] for i in axes]
    told = isinstance(form, Informed) or form.stacked
    measured = core.blocks[: len(core.blocks) - len(form.known_blocks)] if told else core.blocks
    x = _Fitted(estimate, domain, tuple(axes), (known,)).cells.ravel()
    places = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    groups = np.zeros(shape, np.int64)
    for i in known.axes:
        groups = groups * domain.shape[i] + places[axes.index(i)]
    return in_cells(domain, axes, rounded(information(domain, axes, measured), x, groups.ravel()))


@final
@dataclass(frozen=True, eq=False)
class _Fitted(Estimate):
    inner: Estimate
    domain: Domain
    axes: Attributes
    known: tuple[Known, ...]

    def values(self, product: Product) -> Array:
        whole = math.prod(self.domain.shape[i] for i in self.axes) <= MOST_FITTED
        axes = self.axes if whole else product.axes
        return in_cells(self.domain, axes, self.cells if whole else self._table(axes)).values(product)

    @cached_property
    def cells(self) -> Array:
        return self._table(self.axes)

    def _table(self, axes: Attributes) -> Array:
        """Iterative proportional fitting: the known sums over and over, until all hold."""
        cells = Product(self.domain, tuple((i, Identity()) for i in axes))
        table = self.inner.values(cells).reshape([self.domain.shape[i] for i in axes])
        if len(self.known) > 1:  # where zeros leave no way to have all sums
            table = table + _LITTLE * (table.sum() + 1) / table.size
        for _ in range(_ROUNDS):
            off = 0.0
            for known in self.known:
                shared = [i for i in axes if i in known.axes]
                others = tuple(k for k, i in enumerate(axes) if i not in shared)
                target = np.expand_dims(known.over(shared).astype(np.float64), others)
                sums = table.sum(axis=others, keepdims=True)
                table = np.where((sums == 0) & (target > 0), 1.0, table)
                sums = table.sum(axis=others, keepdims=True)
                off = max(off, float(np.abs(sums - target).max(initial=0.0)))
                table = table * np.divide(target, sums, out=np.zeros_like(sums), where=sums > 0)
            if off <= _CLOSE * max([1, *(known.total for known in self.known)]):
                break
        return table


def _checked(counts: object, shape: list[int], names: list[str]) -> Array:
    """Counts as exact integers of this shape; errors say what was wrong, and no count."""
    what = f"The known counts by {' × '.join(names)}" if names else "The known total"
    try:
        held: Any = np.asarray(counts)
    except ValueError:  # ragged
        held = np.empty(0)
    if held.shape != tuple(shape):
        expected = f"{' × '.join(map(str, shape))} numbers" if names else "one number"
        raise DomainError(f"{what} have the shape {held.shape}. Give {expected}, one for each combination of values.")
    if held.dtype.kind not in "iuf" or (
        held.dtype.kind == "f" and not (np.isfinite(held) & (held == np.rint(held))).all()
    ):
        raise DomainError(f"{what} are not all whole numbers. Counts are numbers of rows: give integers from 0 on.")
    if (held < 0).any() or (held > _MOST).any() or math.fsum(held.ravel().tolist()) > _MOST:
        raise DomainError(f"{what} are negative, or beyond 2**53. Counts are numbers of rows: give integers from 0 on.")
    return held.astype(np.int64)
