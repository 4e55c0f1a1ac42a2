"""Known counts of groups of values: reproduced exactly, and all other answers are least squares under that condition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdmm import (
    ZCDP,
    Domain,
    DomainError,
    Groups,
    Identity,
    Integers,
    Known,
    Labels,
    Ledger,
    Prefix,
    PureDP,
    Strategy,
    StrategyError,
    Workload,
    from_array,
    load_plan,
    load_release,
    optimize,
)
from hdmm.attribute import Attribute
from hdmm.known import known_counts, known_products
from hdmm.matrix import to_dense
from hdmm.measure import measure
from hdmm.privacy import Privacy
from hdmm.release import Release
from hdmm.strategy.informed import Conditioned, Informed
from tests.families import FAMILIES, asks
from tests.test_known import INFERRED, constrained

rng = np.random.default_rng(11)


def with_levels(domain: Domain) -> Domain:
    """The domain whose every attribute of three values or more has two levels: `coarse`, and `across`, which overlap."""
    found: list[Attribute] = []
    for attribute in domain.attributes:
        codes = np.arange(attribute.size)
        levels = {f"{attribute.name} coarse": (codes * 2 // attribute.size).tolist()}
        levels[f"{attribute.name} across"] = (codes % 2).tolist()
        values = attribute.values.with_levels(levels) if attribute.size > 2 else attribute.values
        found.append(Attribute(attribute.name, values))
    return Domain(found)


def table(domain: Domain, counts: np.ndarray, *names: str) -> Known:
    """The known table by attributes or levels, counted cell by cell."""
    columns = domain.columns(names, "counted")
    out = np.zeros([values.size for _, values, _ in columns], np.int64)
    for cell in np.ndindex(*domain.shape):
        out[tuple(cell[i] if codes is None else codes[cell[i]] for i, _, codes in columns)] += counts[cell]
    return Known(domain, names, out)


def check(release: Release, given: list[Known], workload: Workload) -> None:
    """Answers and variances against dense constrained least squares; what is known has no variance at all."""
    found = release.answer(workload, known=given)
    x, covariance = constrained(release, list(known_counts(release.domain, given)))
    W = to_dense(workload.matrix)
    scale = np.abs(W).sum(axis=1).max() * 90
    np.testing.assert_allclose(found.values, W @ x, rtol=1e-6, atol=1e-7 * scale)
    variances = np.einsum("ij,jk,ik->i", W, covariance, W)
    np.testing.assert_allclose(found.stddev**2, variances, rtol=1e-6, atol=1e-9 * variances.max(initial=1.0))
    for each in given:
        told = release.answer(Workload(release.domain, (each.product,)), known=given)
        assert (told.values == each.counts.ravel()).all()
        assert (told.stddev == 0).all()


@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
@pytest.mark.parametrize("name", INFERRED)
def test_known_groups_inform_every_strategy(name: str, privacy: Privacy) -> None:
    """One level; a level by another attribute; nested and overlapping ones; groups beside the values themselves."""
    strategy = FAMILIES[name]
    domain = with_levels(strategy.domain)
    strategy = replace(strategy, domain=domain)
    counts = rng.integers(0, 90, size=domain.shape)
    release = measure(strategy, from_array(domain, counts), privacy, ledger=None)
    leveled = [a.name for a in domain.attributes if a.values.levels]
    first, last = leveled[0], leveled[-1]
    others = [n for n in domain.names if n != first]
    cases = [[(f"{first} coarse",)], [(f"{first} coarse",), (f"{first} across",)]]
    if others:
        cases += [[(f"{first} across", others[-1])], [(f"{first} coarse",), (others[0],)]]
    if first != last:
        cases += [[(f"{first} coarse", f"{last} across")], [(f"{first} coarse",), (f"{last} coarse",)]]
    for names in cases:
        check(release, [table(domain, counts, *each) for each in names], asks(strategy))
