"""Unions, marginals and merged strategies in chunks: what a release in memory says, from the same measurements."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdmm import (
    DataError,
    Domain,
    FileError,
    Identity,
    Ledger,
    Prefix,
    PureDP,
    StrategyError,
    Total,
    Workload,
    from_array,
    from_chunks,
)
from hdmm.chunked import ChunkedRelease, load_chunked
from hdmm.matrix import Eye, Matrix, PIdentity
from hdmm.measure import measure_in_chunks
from hdmm.passage import Slabs
from hdmm.privacy import ZCDP
from hdmm.release import Release
from hdmm.strategy.base import Strategy
from hdmm.strategy.blocks import Block
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.grouped import Grouped
from tests.test_engines import CHUNK, Here, here, measurements, written


def with_rows(n: int, kind: int) -> Matrix:
    """A factor that distinguishes all cells; two kinds of it on one attribute diagonalise together."""
    return Eye(n) if kind == 0 else PIdentity(np.full((1, n), 0.5) + 0.25 * np.arange(n))


@st.composite
def unions(draw: st.DrawFn) -> Strategy:
    """One to four blocks on all or some attributes; sometimes two attributes are measured together."""
    shape = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
    together = draw(st.sampled_from([None, (0, 1), (0, len(shape) - 1)]))
    blocks: list[Block] = []
    for _ in range(draw(st.integers(1, 4))):
        factors: list[tuple[tuple[int, ...], Matrix]] = []
        for i, n in enumerate(shape):
            if together is not None and i in together:
                continue
            kind = draw(st.integers(-1, 1))
            if kind >= 0:
                factors.append(((i,), with_rows(n, kind)))
        if together is not None and draw(st.booleans()):
            factors.append((together, with_rows(shape[together[0]] * shape[together[1]], draw(st.integers(0, 1)))))
        blocks.append(Block(draw(st.sampled_from([0.25, 0.5, 1.0])), sorted(factors, key=lambda each: each[0])))
    return Strategy(domain, tuple(blocks))


def in_memory(release: ChunkedRelease) -> Release:
    """The release with the same measurements in memory."""
    return Release(
        release.strategy, tuple(measurements(release)), release.scales, release.privacy, release.unit, release.receipt
    )


def tables(strategy: Strategy) -> list[Workload]:
    """Tables that the strategy supports, among marginals, and prefixes with attributes in another order."""
    domain = strategy.domain
    last, first = domain.names[-1], domain.names[0]
    asked = [Workload.marginals(domain, k=[k]) for k in range(len(domain) + 1)]
    asked.append(Workload.product(domain, **{last: Prefix(), first: Identity()}))
    found = [Workload(domain, (product,)) for w in asked for product in w.products]
    return [w for w in found if math.isfinite(strategy.total_variance(w))]


@settings(max_examples=60, deadline=None)
@given(unions(), st.sampled_from([PureDP(1), ZCDP("0.5")]), st.sampled_from([CHUNK, 2**11, 2**16]), st.booleans())
def test_answers_are_those_of_the_same_measurements_in_memory(
    strategy: Strategy, privacy: Any, chunk_bytes: int, in_chunks: bool
) -> None:
    domain = strategy.domain
    x = (np.arange(domain.size) * 7 % 50).reshape(domain.shape)
    order = strategy.groups.keeps_order
    data = from_chunks(domain, lambda a, b: x.reshape(-1)[a:b]) if in_chunks and order else from_array(domain, x)
    form = strategy.form.inner if isinstance(strategy.form, Grouped) else strategy.form
    with tempfile.TemporaryDirectory() as folder:
        engine = here(Path(folder), chunk_bytes=chunk_bytes)
        if not isinstance(form, Diagonal):
            with pytest.raises(StrategyError, match="no diagonal form"):
                measure_in_chunks(strategy, data, privacy, engine, ledger=None)
            return
        release = measure_in_chunks(strategy, data, privacy, engine, ledger=None)
        assert not [name for name in written(engine) if "tiles" in name]
        inside = in_memory(release)
        asked = [product for w in tables(release.strategy) for product in w.products]
        if asked:
            whole = Workload(domain, tuple(asked))
            found, expected = release.answer(whole), inside.answer(whole)
            assert found.values == pytest.approx(expected.values, rel=1e-9, abs=1e-9 * np.abs(expected.values).max())
            assert found.stddev == pytest.approx(expected.stddev, rel=1e-12)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4),
    st.integers(1, 9),
)
def test_slabs_hold_every_row_once(axes: list[tuple[int, bool]], step: int) -> None:
    sizes, held = tuple(n for n, _ in axes), tuple(kept for _, kept in axes)
    rows = Slabs(sizes, step, held)
    places = [at for at in np.ndindex(*sizes) if all(kept or i == 0 for i, kept in zip(at, held, strict=True))]
    ends = [rows.slab(j) for j in range(rows.slabs)]
    assert [i for slab in ends for i in range(slab.start, slab.stop)] == list(range(len(places)))
    for j, slab in enumerate(ends):
        flat = [int(np.ravel_multi_index(places[i], sizes)) if sizes else 0 for i in range(slab.start, slab.stop)]
        here_ = rows.places(j)
        assert all(here_.start <= place < here_.stop for place in flat)
