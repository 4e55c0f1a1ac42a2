"""Chunks on disk: how few bytes they take, and what their size may depend on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import FileError, from_array, from_chunks
from hdmm.chunks.chunk_files import read_chunk, width_of, write_chunk
from hdmm.measure.chunked_release import load_chunked
from hdmm.measure.plan import Plan
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
