"""Room that is taken before the debit is enough for what is written after it (L1, F5)."""

from __future__ import annotations

import errno
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdmm import ZCDP, ApproxDP, Domain, FileError, Known, Ledger, PureDP, Strategy, from_array
from hdmm.measure.measure import measure_prepared
from hdmm.measure.prepare import prepare
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.publication.unpublished import release_sizes, take_room
from tests.support.effort import examples
from tests.support.families import FAMILIES, marginals, strategies

GUARANTEES: list[Privacy] = [PureDP("0.1"), PureDP(Fraction(10**40 - 1, 10**41)), ZCDP("0.3"), ApproxDP(1, "1e-9")]
CAPS = {PureDP: PureDP(4), ZCDP: ZCDP(4), ApproxDP: ZCDP(4)}


def check(strategy: Strategy, privacy: Privacy, dataset: str, known: tuple[Known, ...], folder: Path) -> None:
    """Every file of the release takes at most what was counted for it, and not much less."""
    data = from_array(strategy.domain, np.ones(strategy.domain.shape, dtype=int))
    prepared = prepare(strategy, privacy, unit=Unit(), rows_bound=data.rows_bound, known=known)
    sizes = release_sizes(prepared, dataset)
    number = len(os.listdir(folder))
    ledger = Ledger(folder / f"{number}.db", dataset=dataset, cap=CAPS[type(privacy)])
    saved = measure_prepared(prepared, data, ledger=ledger, purpose="test").save(folder / f"{number}")
    assert sorted(sizes) == sorted(os.listdir(saved))
    for path in saved.iterdir():
        assert path.stat().st_size <= sizes[path.name] <= path.stat().st_size + 4096 + 256 + 12 * len(dataset)


@pytest.mark.parametrize("privacy", GUARANTEES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_strategy_has_room(family: str, privacy: Privacy, tmp_path: Path) -> None:
    """Products, marginals, unions, trees and the rest, with Laplace and with Gaussian noise."""
    check(FAMILIES[family], privacy, "people", (), tmp_path)


@given(
    strategy=strategies(),
    privacy=st.sampled_from(GUARANTEES),
    dataset=st.sampled_from(["d", "é" * 500, "\U0001f642" * 250]),
)
@settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_strategy_has_room(strategy: Strategy, privacy: Privacy, dataset: str, tmp_path: Path) -> None:
    check(strategy, privacy, dataset, (), tmp_path)


def test_many_blocks_and_known_counts_have_room(tmp_path: Path) -> None:
    domain = Domain({f"a{i}": 3 for i in range(8)})
    many = marginals(domain, {(i, j): 1.0 + i for i in range(8) for j in range(i)} | {(i,): 1.0 for i in range(8)})
    check(many, PureDP(1), "people", (Known(domain, ["a0", "a1"], np.full((3, 3), 3**6)),), tmp_path)


def test_room_is_on_the_disk(tmp_path: Path) -> None:
    take_room(tmp_path / "room", {"release.json": 100_000, "measurements.npy": 0})
    taken = os.stat(tmp_path / "room" / "release.json")
    assert taken.st_blocks * 512 >= 100_000
    with pytest.raises(FileError, match="cannot be written: File exists"):
        take_room(tmp_path / "room", {})


@pytest.mark.parametrize("how", ["no such call", "refused"])
def test_room_is_taken_without_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As on macOS, or on a file system that does not know it."""

    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if how == "refused":
        monkeypatch.setattr(os, "posix_fallocate", refused)
    else:
        monkeypatch.delattr(os, "posix_fallocate")
    take_room(tmp_path / "room", {"release.json": 3_000_000})
    assert os.stat(tmp_path / "room" / "release.json").st_size == 3_000_000
