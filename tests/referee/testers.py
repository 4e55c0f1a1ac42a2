"""Three black-box testers of a privacy claim, written from their published definitions.

Each takes outputs of a mechanism on two neighbouring tables, all drawn independently. Each learns from the first third
(2¹⁶ outputs at most): scores from one half of it, which event to look at from the other, for scores fit what they were
learned from too well. It looks at the rest once, at that one event. With the Clopper-Pearson ends of the event's two
probabilities, each at confidence 1 − α/2, it finds a violation only if the claim permits no two probabilities between
them. So a mechanism that keeps its claim is accused with probability at most α, however the event was learned and
whatever the mechanism is; what learning decides is power alone.

- `histogram_tester`: DP-Auditorium's histograms of one feature of the output.
- `hockey_stick_tester`: DP-Auditorium's hockey-stick divergence, P(S) − e^ε·Q(S) of the event of a classifier.
- `siege`: Delta-Siege: the event of a classifier that shows the largest parameter along the privacy curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from tests.referee.claims import Claim, Floats
from tests.referee.events import Event, Family, Score, classifier_scores, families, histogram_scores

ALPHA = 2e-7  # of one tester to accuse a mechanism that keeps its claim
MOST_LEARNED = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a tester found in the outputs that it had not learned from."""

    event: Event
    p: float  # at least this probable on the table that the event favours
    q: float  # at most this probable on the other
    found: float  # at least this much privacy is spent
    violated: bool


Tester = Callable[..., Verdict]


def histogram_tester(first: Floats, second: Floats, claim: Claim, alpha: float = ALPHA) -> Verdict:
    """Is there a set of bins of one feature that is more probable than the claim permits?"""
    return _tested(histogram_scores, clearest_excess, first, second, claim, alpha)


def hockey_stick_tester(first: Floats, second: Floats, claim: Claim, alpha: float = ALPHA) -> Verdict:
    """Does a classifier's event exceed the hockey-stick divergence that the claim permits?"""
    return _tested(classifier_scores, clearest_excess, first, second, claim, alpha)


def siege(first: Floats, second: Floats, claim: Claim, alpha: float = ALPHA) -> Verdict:
    """Which parameter on the privacy curve does the best event of a classifier prove to be spent?"""
    return _tested(classifier_scores, highest_level, first, second, claim, alpha)


TESTERS: tuple[Tester, ...] = (histogram_tester, hockey_stick_tester, siege)


def clearest_excess(family: Family, claim: Claim, n: int, m: int, alpha: float) -> Floats:
    """How far p is above what is permitted at q, in standard deviations of both."""
    p, q = (family.favoured + 1) / (n + 2), (family.other + 1) / (m + 2)
    spread_p, spread_q = np.sqrt(p * (1 - p) / n), np.sqrt(q * (1 - q) / m)
    permitted = claim.permitted(q)
    shift = claim.permitted(np.minimum(q + spread_q, 1.0)) - permitted
    return (p - permitted) / np.hypot(spread_p, shift)


def highest_level(family: Family, claim: Claim, n: int, m: int, alpha: float) -> Floats:
    """The parameter proved by the outputs learned from, were the event not chosen by them."""
    return claim.level(at_least(family.favoured, n, alpha / 2), at_most(family.other, m, alpha / 2))


def at_least(count: Floats, n: int, alpha: float) -> Floats:
    """The lower Clopper-Pearson end of a probability seen `count` times in n."""
    count = np.asarray(count, dtype=np.float64)
    return np.where(count > 0, beta.ppf(alpha, np.maximum(count, 1), n - count + 1), 0.0)


def at_most(count: Floats, n: int, alpha: float) -> Floats:
    """The upper Clopper-Pearson end."""
    count = np.asarray(count, dtype=np.float64)
    return np.where(count < n, beta.isf(alpha, count + 1, np.maximum(n - count, 1)), 1.0)


def echo(outputs: Floats) -> float:
    """The largest correlation of the numbers of all outputs with those at any distance from them, in deviations.

    The numbers are taken as one long row, as a release of many copies holds them. If they are independent, this is the
    largest of as many standard normal numbers; noise that was used twice, at whatever distance, gives √(n·k) times the
    share of numbers that it was used for.
    """
    centred = (outputs - outputs.mean(axis=0)) / np.maximum(outputs.std(axis=0), 1e-300)
    row = centred.T.reshape(-1)
    spectrum = np.abs(np.fft.rfft(row, n=2 * len(row))) ** 2
    reach = len(row) - len(row) // 16  # fewer pairs than a sixteenth are not near enough to a normal sum
    correlation = np.fft.irfft(spectrum)[1:reach]
    return float(np.max(np.abs(correlation) / np.sqrt(len(row) - np.arange(1, reach))))


def _tested(
    scores: Callable[[Floats, Floats], Iterator[tuple[str, Score]]],
    quality: Callable[[Family, Claim, int, int, float], Floats],
    first: Floats,
    second: Floats,
    claim: Claim,
    alpha: float,
) -> Verdict:
    trained, chosen, held = zip(*(_split(outputs) for outputs in (first, second)), strict=True)
    best, event = -np.inf, None
    for family in families(scores(*trained), *chosen):
        n, m = (len(chosen[i]) for i in ((1, 0) if family.swapped else (0, 1)))
        found = quality(family, claim, n, m, alpha) if len(family.thresholds) else np.full(1, -np.inf)
        if event is None or found.max() > best:
            best, event = float(found.max()), family.event(int(found.argmax()))
    assert event is not None
    return _judged(event, held[::-1] if event.swapped else held, claim, alpha)


def _split(outputs: Floats) -> tuple[Floats, Floats, Floats]:
    """For the scores, for the choice of the event, and for the verdict."""
    cut = min(len(outputs) // 3, MOST_LEARNED)
    return outputs[: cut // 2], outputs[cut // 2 : cut], outputs[cut:]


def _judged(event: Event, held: tuple[Floats, ...], claim: Claim, alpha: float) -> Verdict:
    on, off = (np.asarray([event.seen(outputs).sum()], dtype=np.float64) for outputs in held)
    p, q = at_least(on, len(held[0]), alpha / 2), at_most(off, len(held[1]), alpha / 2)
    violated = bool((p > claim.permitted(q)).item())
    return Verdict(event, p.item(), q.item(), float(claim.level(p, q).item()), violated)
