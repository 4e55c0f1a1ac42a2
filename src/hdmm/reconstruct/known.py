"""Known: counts that are public already. They cost nothing, are reproduced exactly, and inform all other answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Annotated, Any, final

import numpy as np
import scipy.sparse as sp
from msgspec import UNSET, Meta, UnsetType
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components

from hdmm.base.exceptions import DomainError, FileError, StrategyError
from hdmm.describe.attribute import Column
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Groups, Identity, PredicateSet
from hdmm.describe.product import Attributes, Product
from hdmm.io import StrictRecord
from hdmm.matrix import Array
from hdmm.matrix.matrix import frozen
from hdmm.reconstruct.estimate import Estimate, all_values
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form
from hdmm.strategy.informed import WithExactBlocks, determines, needed, same_within
from hdmm.strategy.slabs import kron_slabs

_MOST = 2**53  # counts up to here are exact as floats
_MOST_PARTS = 1 << 15  # cells on which it is worked out whether known tables can hold together: a second
_INFEASIBLE = 2  # what linprog calls it


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Known:
    """A table that is public: the exact number of rows for each combination of values of some attributes or levels.

    `counts` has one axis per name, in the order given; for no names it is one number, the total. Whoever declares
    counts as known says that they were public before the release: they are published without noise, and nothing
    protects them. They must count the same rows as the data does.

    >>> from hdmm import Labels
    >>> domain = Domain({"sex": ["M", "F"], "age": 3})
    >>> Known(domain, ["sex"], [120, 134]), Known(domain, [], 254)
    (Known(sex, 254 rows), Known(total, 254 rows))
    >>> tracts = Labels(["T1", "T2", "T3"], levels={"state": ["North", "South", "North"]})
    >>> Known(Domain({"tract": tracts}), ["state"], [80, 40]).product.queries
    2
    """

    domain: Domain
    product: Product  # what was counted: every value, or every group of values
    counts: Array  # the answers to the product: one axis per attribute that it does not total
    attributes: tuple[str, ...]  # and levels, in the order of the domain
    listed: Array  # the counts by these names

    def __init__(self, domain: Domain, attributes: Iterable[str], counts: object) -> None:
        names = attributes if isinstance(attributes, str) else tuple(attributes)
        columns = domain.columns(names, "with known counts")
        held = _checked(counts, [column.values.size for column in columns], names)
        order = sorted(range(len(columns)), key=lambda k: columns[k].axis)
        held = held.transpose(order)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "attributes", tuple(names[k] for k in order))
        object.__setattr__(self, "listed", frozen(np.array(held, order="C")))
        factors: list[tuple[int, PredicateSet]] = []
        for i in sorted({column.axis for column in columns}):
            here = [columns[k] for k in order if columns[k].axis == i]
            p, held = _grouped(held, len(factors), here, domain.shape[i])
            factors += [] if p is None else [(i, p)]
        object.__setattr__(self, "product", Product(domain, tuple(factors)))
        object.__setattr__(self, "counts", frozen(np.array(held, order="C")))

    @property
    def axes(self) -> Attributes:
        """The attributes that are not totalled, ascending."""
        return self.product.axes

    @property
    def total(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())

    def summed(self, axes: Sequence[int]) -> Array:
        """The counts of values or groups of some of its attributes, ascending."""
        return np.asarray(self.counts.sum(axis=tuple(k for k, i in enumerate(self.axes) if i not in axes)))

    def over(self, axes: Sequence[int]) -> Array:
        """The counts over some of its attributes, in this order; the whole count of a group is at its first value.

        Any attribute of one value may be among them.
        """
        found, left = self.summed(axes), [(i, p) for i, p in self.product.factors if i in axes]
        for k, (i, p) in enumerate(left):
            if isinstance(p, Groups):
                placed = np.zeros([*found.shape[:k], self.domain.shape[i], *found.shape[k + 1 :]], np.int64)
                placed[*[slice(None)] * k, np.unique(np.asarray(p.codes), return_index=True)[1]] = found
                found = placed
        placed = [i for i, _ in left]
        found = found.transpose([placed.index(i) for i in axes if i in placed])
        return found.reshape([self.domain.shape[i] for i in axes])

    def __repr__(self) -> str:
        return f"Known({' × '.join(self.attributes) or 'total'}, {self.total:,} rows)"


def known_counts(domain: Domain, given: Known | Iterable[Known] | None) -> tuple[Known, ...]:
    """Known tables over one domain that agree with each other; those that others imply are left out.

    StrategyError if two of them differ on what both count, or if no rows can have all these counts.
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
        if not np.array_equal(*_shared(one, other, both)):
            shared = " × ".join(domain.names[i] for i in both)
            raise StrategyError(
                f"{one!r} and {other!r} contradict each other: they have different counts by {shared}. Correct one."
                if both
                else f"{one!r} and {other!r} contradict each other: their totals differ. Correct one."
            )
    by_product = {each.product: each for each in held}
    left = tuple(by_product[product] for product in needed(list(by_product)))
    if not _possible(left):
        raise StrategyError(
            f"{', '.join(map(repr, left))} contradict each other: no rows can have all these counts. Correct one."
        )
    return left


def known_products(known: Iterable[Known]) -> tuple[Product, ...]:
    """What is known, as a strategy holds it."""
    return tuple(each.product for each in known)


def by_group(table: Array, k: int, codes: Array) -> Array:
    """The sums of a table over the groups along axis k, each of which has a value."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(int(codes.max()) + 1))
    return np.add.reduceat(table.take(order, axis=k), starts, axis=k)


def codes_of(p: PredicateSet, n: int) -> Array:
    """The group of every value, each its own if there are no groups."""
    return np.asarray(p.codes) if isinstance(p, Groups) else np.arange(n)


@singledispatch
def known_answers(form: Form, known: Sequence[Known]) -> tuple[Array, ...]:
    """The exact answers to the known blocks of a form, each of which a known table determines; none for most forms."""
    return ()


@known_answers.register
def _(form: WithExactBlocks, known: Sequence[Known]) -> tuple[Array, ...]:
    found: list[Array] = []
    for block in form.known_blocks:
        counts = next(each for each in known if _answers(each, block)).over(block.axes)
        found.append(kron_slabs([A for _, A in block.factors], counts.astype(np.float64), np.float64).ravel())
    return tuple(found)


def exactly(estimate: Estimate, known: Sequence[Known]) -> Estimate:
    """The estimate, with what known marginals determine by themselves taken from them, to the last digit."""
    return KnownEstimate(estimate, tuple(known)) if known else estimate


@final
@dataclass(frozen=True, slots=True, eq=False)
class KnownEstimate(Estimate):
    """An estimate beside known counts: moved so that they hold, if there is a correction, or replaced by them."""

    inner: Estimate
    known: tuple[Known, ...] = ()
    correction: Callable[[Product], Array] | None = None

    def values(self, product: Product) -> Array:
        return all_values(self, [product])

    def determined(self, product: Product) -> Array | None:
        """The answers by a known table that determines them; None if none does."""
        axes = [i for on, _ in product.sets for i in on]
        one = next((known for known in self.known if determines(known.product, product)), None)
        if one is None:
            return None
        factors = [p.matrix(product.cells(on)) for on, p in product.sets]
        return kron_slabs(factors, one.over(axes).astype(np.float64), np.float64).ravel()


@all_values.register
def _(estimate: KnownEstimate, products: Sequence[Product]) -> Array:
    determined = [estimate.determined(product) for product in products]
    left = [product for product, values in zip(products, determined, strict=True) if values is None]
    # The inner estimate need not have an answer to what is determined.
    rest = all_values(estimate.inner, left) if left else np.empty(0)
    if estimate.correction is not None:
        rest = rest + np.concatenate([np.empty(0), *map(estimate.correction, left)])
    ends = iter(np.split(rest, np.cumsum([product.queries for product in left[:-1]])))
    return np.concatenate([next(ends) if values is None else values for values in determined])


@reconstruct.register
def _(form: WithExactBlocks, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    if not form.conditions:
        return reconstruct(form.inner, answers, units)
    held = len(answers) if form.stacked else len(answers) - len(form.conditions)
    inner = reconstruct(form.inner, answers[:held], units[:held])
    pairs = zip(answers[-len(form.conditions) :], form.known_blocks, strict=True)
    exact = np.concatenate([_in_order(y, block) for y, block in pairs])
    off = exact - all_values(inner, form.conditions)  # what the known counts are above their estimates
    return KnownEstimate(inner, correction=lambda product: form.correction(product, off))


def _in_order(counts: Array, block: Block) -> Array:
    """The answers to a block, in the order of its attributes."""
    shape = [A.shape[0] for _, A in block.factors]
    return counts.reshape(shape).transpose(np.argsort(block.axes)).ravel()


def _grouped(held: Array, k: int, columns: Sequence[Column], n: int) -> tuple[PredicateSet | None, Array]:
    """The predicates of an attribute with n values whose columns are counted, and the counts, with one axis for it.

    `held` has the columns from axis k on. Groups of one value each are the values, and a single group is the total.
    """
    if len(columns) == 1 and columns[0].whole and n > 1:
        return Identity(), held
    sizes = [column.values.size for column in columns]
    cells = np.ravel_multi_index([column.codes for column in columns], sizes)
    found, codes = np.unique(cells, return_inverse=True)
    held = held.reshape(*held.shape[:k], -1, *held.shape[k + len(columns) :])
    name = " × ".join(column.name for column in columns)
    if held.take(found, axis=k).sum() < held.sum():
        raise DomainError(f"The known counts by {name} count rows in combinations that no value has. Give 0 for these.")
    held = held.take(found, axis=k)
    if len(found) == 1:
        return None, held.sum(axis=k)
    if len(found) == n:
        return Identity(), held.take(codes, axis=k)
    at = zip(*np.unravel_index(found, sizes), strict=True)
    labels = (" × ".join(str(c.values.label(int(code))) for c, code in zip(columns, each, strict=True)) for each in at)
    return Groups(name, codes, tuple(labels)), held


def _answers(known: Known, block: Block) -> bool:
    """Whether known counts determine the answers to a block."""
    groups = {i: p for i, p in known.product.factors if isinstance(p, Groups)}
    return set(block.axes) <= set(known.axes) and all(
        len(axes) == 1 and same_within(A, groups[axes[0]])
        for axes, A in block.factors
        if any(i in groups for i in axes)
    )


def _shared(one: Known, other: Known, both: Sequence[int]) -> tuple[Array, Array]:
    """The counts of what both tables count: of unions of groups that are groups of values in both."""
    found = [one.over(both), other.over(both)]
    for k, i in enumerate(both):
        pair = [dict(known.product.factors)[i] for known in (one, other)]
        if any(isinstance(p, Groups) for p in pair):
            a, b = (codes_of(p, one.domain.shape[i]) for p in pair)
            graph = sp.coo_array((np.ones(len(a)), (a, b + a.max() + 1)), shape=[int(a.max() + b.max()) + 2] * 2)
            unions = connected_components(graph, directed=False)[1][a]
            found = [by_group(table, k, np.unique(unions, return_inverse=True)[1]) for table in found]
    return found[0], found[1]


def _possible(known: Sequence[Known]) -> bool:
    """Whether some table without negative counts has all these sums; on too many cells, or where it must, True.

    Two tables that agree on what both count always have one, unless groups of values overlap.
    """
    axes = sorted({i for each in known for i in each.axes})
    codes = [
        [codes_of(p, each.domain.shape[i]) for each in known for j, p in each.product.factors if j == i] for i in axes
    ]
    parts = [np.unique(np.stack(each), axis=1) for each in codes]  # what the tables together distinguish
    if math.prod(part.shape[1] for part in parts) > _MOST_PARTS:
        return True
    if len(known) <= 2 and all(min(part.shape) == 1 or part.shape[1] == part.max() + 1 for part in parts):
        return True
    rows: list[Any] = []
    taken = [iter(part) for part in parts]
    for each in known:
        G: Any = sp.csr_array(np.ones((1, 1)))
        for i, mine, part in zip(axes, taken, parts, strict=True):
            held = next(mine) if i in each.axes else np.zeros(part.shape[1], np.int64)
            ones = np.ones(len(held))
            G = sp.kron(G, sp.csr_array((ones, (held, np.arange(len(held))))), format="csr")
        rows.append(G)
    total = max(1, *(each.total for each in known))
    sums = np.concatenate([each.counts.ravel() for each in known]) / total
    cells = math.prod(part.shape[1] for part in parts)
    found: Any = linprog(np.zeros(cells), A_eq=sp.vstack(rows), b_eq=sums, method="highs")
    return found.status != _INFEASIBLE


def _checked(counts: object, shape: Sequence[int], names: Sequence[str]) -> Array:
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


class KnownRecord(StrictRecord, frozen=True):
    """A table that was public: its attributes or levels, and its counts in the order of their combinations."""

    attributes: list[str]
    counts: list[Annotated[int, Meta(ge=0, le=2**53)]]


def known_records(known: Sequence[Known]) -> list[KnownRecord] | UnsetType:
    """Known counts as a file holds them; nothing if there are none, so that files are as they were."""
    return [KnownRecord(list(k.attributes), k.listed.ravel().tolist()) for k in known] if known else UNSET


def read_known(domain: Domain, records: list[KnownRecord] | UnsetType, at: str) -> tuple[Known, ...]:
    """The known counts that a file holds; FileError if they do not fit the domain or each other."""
    if isinstance(records, UnsetType):
        return ()
    try:
        found = []
        for record in records:
            shape = [column.values.size for column in domain.columns(record.attributes, "with known counts")]
            if math.prod(shape) != len(record.counts):
                raise DomainError(f"{len(record.counts)} counts for {math.prod(shape)} cells.")
            found.append(Known(domain, record.attributes, np.array(record.counts, dtype=np.int64).reshape(shape)))
        return known_counts(domain, found)
    except (DomainError, StrategyError) as wrong:
        raise FileError(f"{at}: {wrong}") from None
