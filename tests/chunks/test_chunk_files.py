"""Chunks on disk: how few bytes they take, and what their size may depend on."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import FileError, from_array, from_chunks
from hdmm.chunks.chunk_files import clear, read_chunk, width_of, write_chunk, write_whole
from hdmm.measure.chunked_release import _noise_width, load_chunked
from hdmm.measure.plan import Plan
from hdmm.privacy.guarantee import Noise
from tests.engines.test_engines import (
    CHUNK,
    DOMAIN,
    TABLES,
    Here,
    X,
    counts,
    here,
    measured,
    plan,
    written,
)

__all__ = ["plan"]  # a fixture


@given(
    st.lists(st.integers(-(2**61), 2**61) | st.integers(-130, 130), min_size=1, max_size=60),
    st.integers(1, 5),
)
def test_a_chunk_is_read_as_it_was_written(tmp_path_factory: Any, numbers: list[int], columns: int) -> None:
    path = tmp_path_factory.mktemp("chunks") / "chunk"
    array = np.resize(np.array(numbers, dtype=np.int64), (len(numbers), columns))
    digest = write_chunk(path, array)
    assert np.array_equal(read_chunk(path, digest, columns), array)
    assert path.stat().st_size <= 16 + 8 * array.size
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileError, match="was altered"):
        read_chunk(path, digest, columns)


def test_narrower_integers_are_written_as_wider_ones_are(tmp_path: Path) -> None:
    array = np.array([[1, 2], [3, 2**30], [4, 5], [6, 7], [8, 9], [10, 11]], dtype=np.int32)
    digest = write_chunk(tmp_path / "chunk", array)
    assert digest == write_chunk(tmp_path / "wide", array.astype(np.int64))
    assert np.array_equal(read_chunk(tmp_path / "chunk", digest, 2), array)


def test_a_chunk_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: sizes.append(os.fstat(opened).st_size))
    write_whole(tmp_path / "chunk", [b"one", b"three"])
    write_whole(tmp_path / "again", [b"one"], lasting=False)
    assert sizes == [8]


def test_what_another_process_has_removed_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiles-0", "tiles-1", "noise-0"):
        (tmp_path / name).touch()
    found = [*tmp_path.glob("*"), tmp_path / "tiles-2"]
    monkeypatch.setattr(Path, "glob", lambda _, pattern: [path for path in found if fnmatch(path.name, pattern)])
    clear(tmp_path, "tiles")
    assert [path.name for path in tmp_path.iterdir()] == ["noise-0"]


@pytest.mark.parametrize(("scale", "width"), [(3, 1), (300, 2), (2**24, 4), (2**40, 8)])
def test_a_chunk_is_as_narrow_as_most_of_its_numbers(tmp_path: Path, scale: int, width: int) -> None:
    """A few large numbers, as sums of many cells are, take place only for themselves."""
    array = np.random.default_rng(0).integers(-5 * scale, 5 * scale, (100, 50))
    array[3, :10] = 2**60
    write_chunk(tmp_path / "chunk", array)
    assert (tmp_path / "chunk").stat().st_size <= 16 + width * array.size + 12 * 10
    assert width_of(5 * scale) == width


def test_exact_numbers_take_as_much_disk_whatever_they_are(plan: Plan, tmp_path: Path) -> None:
    """O4: their encryption hides how large they are, so the size of their files does not tell it either."""
    sizes: list[dict[str, int]] = []

    class Looks(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            if task.__name__ == "_noisy_chunk":
                sizes.append({name: len(content) for name, content in written(self).items()})
            return super().run(task, items)

    for name, x in (("none", np.zeros_like(X)), ("many", np.full_like(X, 2**30))):
        measured(plan, Looks(tmp_path / name, CHUNK, "float64"), from_array(DOMAIN, x))
    assert sizes[0] == sizes[1]
    assert sum(sizes[0].values()) > 8 * DOMAIN.size


class OneByOne(Here):
    """Gives each result before it runs the next task, and notes how many tiles there are then."""

    def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:  # type: ignore[override]
        for item in items:
            self.checks.append(f"{task.__name__} {len([name for name in written(self) if 'tiles' in name])}")
            yield task(item)


def test_tiles_go_as_soon_as_their_chunk_is_written(plan: Plan, tmp_path: Path) -> None:
    engine = OneByOne(tmp_path / "chunks", CHUNK, "float64")
    release = measured(plan, engine, from_chunks(DOMAIN, counts))
    _ = release.estimate
    for task in ("_noisy_chunk", "_give_estimates"):
        left = [int(line.split()[1]) for line in engine.checks if line.startswith(task)]
        assert len(left) > 2
        assert all(first > then for first, then in itertools.pairwise(left))
        assert left[-1] == left[0] // len(left)  # only those of the last chunk
    assert not [name for name in written(engine) if "tiles" in name]


def test_float32_moves_answers_by_much_less_than_noise(plan: Plan, tmp_path: Path) -> None:
    """Tiles and estimates take half of the disk, and are rounded to 24 bits."""
    release = measured(plan, here(tmp_path))
    exact = release.answer(TABLES)
    taken = sum(len(content) for name, content in written(release.engine).items() if "estimates" in name)
    for path in release.engine.folder.glob("estimates-*"):
        path.unlink()
    rounded = load_chunked(here(tmp_path, precision="float32"))
    answers = rounded.answer(TABLES)
    assert (np.abs(answers.values - exact.values) / exact.stddev).max() < 1e-4
    assert not np.array_equal(answers.values, exact.values)
    less = sum(len(content) for name, content in written(release.engine).items() if "estimates" in name)
    assert less < 0.7 * taken  # each chunk has a digest of 32 bytes besides


def test_room_is_taken_for_noise_of_32_times_its_scale() -> None:
    """The scale of Gaussian noise is given by its variance."""
    for power in (10, 20, 30):
        width = width_of(32 << power)
        assert _noise_width(Fraction(2**power), Noise.LAPLACE) == width
        assert _noise_width(Fraction(4**power), Noise.GAUSSIAN) == width
