"""What is drawn besides tables: what each block measures, its share of the budget, the sums on one attribute; and the
errors of an attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

import numpy as np

from hdmm.base.numbers import percent
from hdmm.describe.domain import Domain
from hdmm.matrix import Array, ExtendedDiagonal, Eye, Matrix, Ones, Permuted
from hdmm.privacy.guarantee import Noise
from hdmm.publication.protection import Protection
from hdmm.publication.report.labels import PITCH, Heads, gutter, heads, wrapped
from hdmm.publication.report.plots import AXIS, LEVELS, Plot, Scale, level_paths, line_through
from hdmm.strategy.strategy import Strategy

MOST_BLOCKS: Final = 40
MOST_BASES: Final = 12
_MOST_AXES = 40
_MOST_SUMS = 48
_BUCKETS = 128
_MOST_NUMBERS = 1 << 24  # in a base's rows over the buckets
_PITCH = 26


def trade_off_picture(protection: Protection) -> Plot | None:
    """The least probability of a miss for every probability of a false alarm; None if it is not known."""
    if protection.guess is None:
        return None
    misses = np.array([protection.misses(each) for each in np.linspace(0, 1, 101).tolist()])
    scale, straight = Scale(0.0, 1.0), np.array([1.0, 0.0])
    curve, blind = (line_through(scale.up(each)) for each in (misses, straight))
    height = 180
    return Plot(
        "long",
        "The two errors of whoever attacks the release",
        "A curve from 1 to 0 below a straight line. "
        f"Where both errors are equal, each is {percent(1 - protection.guess)}.",
        height + 36,
        {
            "height": height,
            "top": 8,
            "ticks": scale.marked(),
            "ends": [("0", "start", "no false alarm"), ("50", "middle", "0.5"), ("100", "end", "always an alarm")],
            "paths": [("thin whisker", blind), ("estimate", curve)],
        },
        "Across: the probability to say that the rows are there when they are not (first type of error). Upward: the "
        "least probability to say that they are not there when they are (second type). The straight line is that of "
        "guessing without the release; no attack is below the curve.",
        gutter=AXIS,
    )


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """One block: its share of the budget, and the matrix on each attribute that is not totalled."""

    share: float
    factors: dict[int, Matrix]


def measured(strategy: Strategy, noise: Noise) -> tuple[Domain, list[Measured]]:
    """The blocks, largest share first, and the domain in which their attributes are numbered.

    A block with noise of one scale costs its weight times its largest column norm (squared, for Gaussian noise).
    """
    groups = strategy.groups
    if groups.overlap(strategy.blocks):  # shown on each attribute: merged, they would all be one
        domain, blocks = strategy.domain, [{i: A for axes, A in b.factors for i in axes} for b in strategy.blocks]
    else:
        domain, blocks = groups.domain, [groups.block(block).by_axis for block in strategy.blocks]
    found = [Measured(float(s), factors) for s, factors in zip(strategy.shares(noise), blocks, strict=True)]
    return domain, sorted(found, key=lambda block: -block.share)


def over(block: Measured, domain: Domain) -> str:
    """What a block counts, in words.

    >>> over(Measured(1.0, {0: Eye(2)}), Domain({"sex": ["M", "F"]}))
    'sex'
    """
    return " × ".join(domain.names[i] for i in block.factors) or "the total"


def block_picture(domain: Domain, blocks: Sequence[Measured]) -> Plot:
    """Blocks by attributes, with the share of each block as a bar."""
    shown = blocks[:MOST_BLOCKS]
    used = sorted({i for block in shown for i in block.factors})
    axes = used[:_MOST_AXES]
    heading = heads([domain.names[i] for i in axes]) if axes else Heads()
    largest = max(block.share for block in shown)
    words_down = [wrapped(over(block, domain)) for block in shown]
    pitch = max(_PITCH, PITCH * max(map(len, words_down)) + 4)
    words = "; ".join(f"{over(block, domain)}, {percent(block.share)}" for block in shown[:10])
    caption = (
        "Each row is one block of counts. A square means that every value of the attribute is counted, a ringed dot "
        "that values and sums of values are, and no mark that the attribute is summed over. Bars show the share of the "
        "budget."
    )
    if len(blocks) > len(shown):
        caption += f" The {len(shown)} largest of {len(blocks):,} blocks are shown."
    if len(used) > len(axes):
        caption += f" Marks are shown for {len(axes)} of {len(used)} attributes."
    return Plot(
        "blocks",
        "What was measured, block by block",
        f"{len(blocks):,} blocks; the largest and their shares of the budget: {words}.",
        heading.height + pitch * len(shown) + 6,
        {
            "labels": words_down,
            "pitch": pitch,
            "top": heading.height,
            "across": heading,
            "rows": [(_marks(block, axes), block.share, 46 * block.share / largest) for block in shown],
        },
        caption,
        gutter=gutter(words_down, heading),
    )


def _marks(block: Measured, axes: Sequence[int]) -> list[tuple[str, bool]]:
    """(horizontal place, whether only values are counted) of each attribute that a block does not sum over."""
    return [
        (f"{100 * (k + 0.5) / len(axes):.2f}", _is_plain(A))
        for k, A in enumerate(map(block.factors.get, axes))
        if A is not None and not isinstance(A, Ones)
    ]


def bases(domain: Domain, blocks: Sequence[Measured]) -> list[tuple[str, Matrix]]:
    """(attribute, matrix) of each distinct matrix on one attribute that measures more than its values.

    Not of an amount: its cells are its two ends, which are nothing that a reader knows.
    """
    every = ((i, A) for block in blocks for i, A in block.factors.items() if not _is_plain(A))
    found = {A: domain.names[i] for i, A in every if not domain.attributes[i].values.divided}
    return [(name, A) for A, name in found.items()]


def base_picture(name: str, A: Matrix) -> Plot | None:
    """The sums that are measured on one attribute, as a heat map of rows by values; None if it is too large.

    Sums are sorted from wide to narrow; values of long attributes are drawn in buckets.
    """
    n = A.shape[1]
    buckets = min(n, _BUCKETS)
    if A.shape[0] * buckets > _MOST_NUMBERS:
        return None
    edges = np.linspace(0, n, buckets + 1).astype(int)
    means = np.zeros((n, buckets))
    for k, (start, end) in enumerate(pairwise(edges.tolist())):
        means[start:end, k] = 1 / (end - start)
    rows = np.abs(A.matmat(means))[_first_sum(A) :]
    rows = rows[rows.max(axis=1, initial=0) > 1e-6 * rows.max(initial=0)]
    if not len(rows):
        return None
    shown = _sorted(rows)
    levels = np.ceil(shown / shown.max() * (LEVELS - 1)).astype(int)
    height = (8 if len(shown) > 12 else 14) * len(shown)
    step = f"; a column is about {n / buckets:.3g} values" if buckets < n else ""
    caption = f"Each row is one sum, from wide to narrow; colour is the weight of a value in it{step}."
    if len(shown) < len(rows):
        caption += f" {len(shown)} of {len(rows):,} sums are shown."
    return Plot(
        "base",
        f"Sums measured on {name}",
        f"{len(rows):,} weighted sums over {n:,} values; each row is a sum, coloured where a value counts in it.",
        height + 22,
        {"height": height, "rows": len(shown), "columns": buckets, "paths": level_paths(levels, least=1)},
        caption,
    )


def _sorted(rows: Array) -> Array:
    """Wide rows first, then from left to right; at most _MOST_SUMS, evenly chosen from that order."""
    support = rows > 0.01 * rows.max(axis=1, keepdims=True)
    wide = -np.floor(np.log2(support.sum(axis=1)))
    order = np.lexsort((support.argmax(axis=1), wide))
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_SUMS)).round().astype(int))
    return rows[order][chosen]


def _first_sum(A: Matrix) -> int:
    """The number of leading rows that only count one value each."""
    match A:
        case ExtendedDiagonal():
            return A.shape[1]
        case Permuted(inner, _):
            return _first_sum(inner)
        case _:
            return 0


def _is_plain(A: Matrix) -> bool:
    return isinstance(A, Eye | Ones)
