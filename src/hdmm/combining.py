"""combine: several releases of one dataset as one, by generalised least squares."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array
from hdmm.matrix.checks import frozen
from hdmm.privacy import ZCDP, Privacy, PureDP
from hdmm.release import Release, charged
from hdmm.strategy.base import Strategy
from hdmm.strategy.blocks import Block
from hdmm.strategy.iterative import Unknown

_SEVERAL = 8  # numbers that two draws of noise share with a probability below 10⁻¹⁶: each has 64 steps or more


def combine(releases: Sequence[Release]) -> Release:
    """One release that holds all that these measured, and answers by least squares from all of it.

    Each block keeps its own noise, so what was measured precisely counts for more; releases of one plan add their
    precisions. Nothing is measured again and nothing is spent. The guarantee is that of all releases together, so the
    budgets add; there is no receipt, because each release has its own. The releases must be of the same rows.

    >>> from hdmm import Domain, Workload, from_array
    >>> from hdmm.measure import measure
    >>> data = from_array(Domain({"sex": ["M", "F"]}), [5, 7])
    >>> once, again = (measure(Strategy.identity(data.domain), data, PureDP(1), ledger=None) for _ in range(2))
    >>> both = combine([once, again])
    >>> both.privacy, both.answer(Workload.marginals(data.domain, k=1)).stddev.round(3)
    (PureDP('2'), array([1., 1.]))
    """
    given = list(releases)
    _check(given)
    first = given[0]
    if len(given) == 1:
        return first
    blocks = tuple(block for release in given for block in release.strategy.blocks)
    strategy = Strategy(first.domain, blocks)
    answers = (y for release in given for y in release.measurements)
    combined = Release(
        strategy,
        tuple(_reordered(y, *both) for y, *both in zip(answers, blocks, strategy.blocks, strict=True)),
        tuple(scale for release in given for scale in release.scales),
        composed([release.privacy for release in given]),
        first.unit,
        None,
    )
    if known := [each for release in given for each in release.known]:
        combined = combined.informed(known)
    if isinstance(combined.form, Unknown):
        raise StrategyError(
            "These releases measured with bases that have no common form, on too many cells to write out, so they have "
            "no combined margins of error. Combine releases of one plan, or plan the later one with the same tables."
        )
    return combined


def share_measurements(releases: Sequence[Release]) -> bool:
    """Whether a measurement is there twice, alone or within a combination: noise on several numbers is never equal."""
    receipts = [release.receipt.hash for release in releases if release.receipt is not None]
    held = [y.tobytes() for release in releases for y in release.measurements if len(y) >= _SEVERAL]
    numbers = [id(release) for release in releases]
    return any(len(set(each)) < len(each) for each in (receipts, held, numbers))


def composed(privacies: Sequence[Privacy]) -> PureDP | ZCDP:
    """The guarantee of several releases, which compose: the sum of ε, or of ρ."""
    amounts = [charged(privacy) for privacy in privacies]
    epsilon = sum((amount.epsilon for amount in amounts if isinstance(amount, PureDP)), start=Fraction(0))
    rho = sum((amount.rho for amount in amounts if isinstance(amount, ZCDP)), start=Fraction(0))
    return PureDP(epsilon) if epsilon else ZCDP(rho)


def _check(releases: Sequence[Release]) -> None:
    """Refuse releases that do not add up."""
    if not releases:
        raise StrategyError("There are no releases to combine. Give at least one, as in combine([first, second]).")
    first = releases[0]
    for release in releases[1:]:
        first.strategy.check_domain(release.domain)
        if release.unit != first.unit:
            raise StrategyError(
                f"One release hides {first.unit}, another {release.unit}, so no one guarantee holds for both. Combine "
                "releases with the same unit of privacy."
            )
    check_alike(releases, first.privacy)
    if share_measurements(releases):
        raise StrategyError(
            "A release is given twice. It says the same each time, so counting it again would make margins of error "
            "too small. Give each release once."
        )


def check_alike(releases: Sequence[Release], privacy: Privacy, *datasets: str) -> None:
    """Refuse releases with another kind of noise than a guarantee adds, or of several datasets, these included."""
    for release in releases:
        if release.privacy.noise != privacy.noise:
            raise StrategyError(
                f"A release has {release.privacy.noise} noise ({release.privacy}), but {privacy} adds {privacy.noise} "
                "noise. Combine releases with the same kind of noise."
            )
    named = sorted({*datasets, *(release.receipt.dataset for release in releases if release.receipt is not None)})
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
