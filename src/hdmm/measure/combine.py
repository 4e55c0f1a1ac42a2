"""combine: several releases of one dataset as one, by generalised least squares."""

from __future__ import annotations

from collections.abc import Sequence

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array
from hdmm.matrix.matrix import frozen
from hdmm.measure.measurement import charged
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.rows_of import RowsOf
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_SEVERAL = 8  # numbers that two draws of noise share with a probability below 10⁻¹⁶: each has 64 steps or more


def combine(releases: Sequence[Release], *, same_rows: bool = False) -> Release:
    """One release that holds all that these measured, and answers by least squares from all of it.

    Each block keeps its own noise, so what was measured precisely counts for more; releases of one plan add their
    precisions. Nothing is measured again and nothing is spent. The guarantee is that of all releases together, so the
    budgets add; there is no receipt, because each release has its own, which `parts` keeps.

    The releases must be of the same rows: of one dataset, source, table and period, and of the same rows of persons.
    Others are refused. If you know that the rows are the same though the releases do not say so, state it:
    `same_rows=True`.

    >>> from hdmm import Domain, PureDP, Workload, from_array
    >>> from hdmm.measure.measure import measure
    >>> data = from_array(Domain({"sex": ["M", "F"]}), [5, 7])
    >>> once, again = (measure(Strategy.identity(data.domain), data, PureDP(1), ledger=None) for _ in range(2))
    >>> both = combine([once, again])
    >>> both.privacy, both.answer(Workload.marginals(data.domain, k=1)).stddev.round(3)
    (PureDP('2'), array([1., 1.]))
    """
    given = list(releases)
    _check(given, same_rows=same_rows)
    first = given[0]
    if len(given) == 1:
        return first
    blocks = tuple(block for release in given for block in release.strategy.blocks)
    strategy = Strategy(first.domain, blocks)
    answers = (y for release in given for y in release.measurements)
    combined = Release(
        strategy,
        tuple(scale for release in given for scale in release.scales),
        charged(*(release.spending for release in given)),
        first.unit,
        tuple(_reordered(y, *both) for y, *both in zip(answers, blocks, strategy.blocks, strict=True)),
        tuple(part for release in given for part in release.parts),
        exact_gaussian=all(release.exact_gaussian for release in given),
    )
    if known := [each for release in given for each in release.known]:
        combined = combined.informed(known)
    if not combined.form.closed:
        raise StrategyError(
            "These releases measured with bases that have no common form, on too many cells to write out, so they have "
            "no combined margins of error. Combine releases of one plan, or plan the later one with the same tables."
        )
    return combined


def share_measurements(releases: Sequence[Release]) -> bool:
    """Whether a measurement is there twice, alone or within a combination: its mark, receipt or numbers are equal."""
    parts = [part for release in releases for part in release.parts]
    receipts = [part.receipt.hash for part in parts if part.receipt is not None]
    marks = [part.mark for part in parts]
    held = [y.tobytes() for release in releases for y in release.measurements if len(y) >= _SEVERAL]
    return any(len(set(each)) < len(each) for each in (receipts, marks, held))


def _check(releases: Sequence[Release], *, same_rows: bool) -> None:
    """Refuse releases that do not add up."""
    if not releases:
        raise StrategyError("There are no releases to combine. Give at least one, as in combine([first, second]).")
    first = releases[0]
    for release in releases[1:]:
        first.strategy.check_domain(release.domain)
        check_unit(first.unit, release.unit)
    check_alike(releases, first.privacy)
    if share_measurements(releases):
        raise StrategyError(
            "A release is given twice. It says the same each time, so counting it again would make margins of error "
            "too small. Give each release once."
        )
    if not same_rows:
        check_same_rows([part.rows for release in releases for part in release.parts])


def check_same_rows(rows: Sequence[RowsOf]) -> None:
    """Refuse what is not known to be of the same rows, and say why."""
    for each in rows[1:]:
        differing = rows[0].differences(each)
        if not differing:
            continue
        raise StrategyError(
            f"Nothing shows that the releases are of the same rows: {_listed(differing)} may differ. Releases of other "
            "rows, such as those of another month, say nothing about these, and combined margins of error would hold "
            "for neither. If you know that the rows are the same, state it: same_rows=True, or --same-rows."
        )


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def check_unit(one: Unit, two: Unit) -> None:
    """Refuse two units of privacy."""
    if one != two:
        by = "" if one.id == two.id else " The columns of ids differ."
        raise StrategyError(
            f"One release hides {one}, another {two}, so no one guarantee holds for both.{by} Combine releases with "
            "the same unit of privacy."
        )


def check_alike(releases: Sequence[Release], privacy: Privacy, *datasets: str) -> None:
    """Refuse releases with another kind of noise than a guarantee adds, or of several datasets, these included."""
    for release in releases:
        if release.privacy.noise != privacy.noise:
            raise StrategyError(
                f"A release has {release.privacy.noise} noise ({release.privacy}), but {privacy} adds {privacy.noise} "
                "noise. Combine releases with the same kind of noise."
            )
    paid = (part.receipt for release in releases for part in release.parts)
    named = sorted({*datasets, *(receipt.dataset for receipt in paid if receipt is not None)})
    if len(named) > 1:
        raise StrategyError(
            f"These are different datasets: {', '.join(map(repr, named))}. Combine releases of one dataset."
        )


def _reordered(y: Array, before: Block, after: Block) -> Array:
    """The answers to a block whose factors were put in another order, because blocks now share groups of attributes."""
    if before.factors == after.factors:
        return y
    order = [before.factors.index(factor) for factor in after.factors]
    return frozen(y.reshape([A.shape[0] for _, A in before.factors]).transpose(order).ravel())
