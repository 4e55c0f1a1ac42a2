"""Requirement N9: a private choice takes the same steps for all scores, and has exactly its probabilities."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from fractions import Fraction
from types import FrameType

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.base.exceptions import NoiseError
from hdmm.noise import choice, exponential_choice, probability
from hdmm.noise.bits import Bits, ChaCha20Bits, Octets
from hdmm.noise.choice import chosen
from hdmm.noise.probability import Exponential
from tests.noise.sources import Scripted
from tests.support.effort import examples

ONES = 2**64 - 1


class Counted(Bits):
    """Real bits, and how many bytes of them were drawn in how many calls."""

    def __init__(self) -> None:
        self.rest = ChaCha20Bits()
        self.asked: list[int] = []

    def octets(self, count: int) -> Octets:
        self.asked.append(count)
        return self.rest.octets(count)


def extremes(K: int) -> list[list[Fraction]]:
    """Gaps of K scores: all alike, one far ahead, all far apart, nearly alike, at chance, and mixed."""
    tiny, huge = Fraction(1, 2**700), Fraction(2**600)
    return [
        [Fraction(0)] * K,
        [Fraction(0)] + [huge] * (K - 1),
        [huge] * (K - 1) + [Fraction(0)],
        [Fraction(10**9 * i) for i in range(K)],
        [tiny * i for i in range(K)],
        [Fraction(i, 7) for i in range(K)],
        [Fraction(0), *(tiny if i % 2 else huge for i in range(K - 1))],
    ]


@pytest.mark.parametrize("K", [1, 2, 7, 40])
def test_a_choice_draws_the_same_bits_and_takes_the_same_steps_whatever_the_scores(K: int) -> None:
    seen = set()
    for gaps in extremes(K):
        for _ in range(5):
            bits = Counted()
            steps: Counter[str] = Counter()

            def note(frame: FrameType, event: str, argument: object, steps: Counter[str] = steps) -> None:
                steps[event] += 1

            gc.disable()  # what others left behind is not finalised between the steps
            sys.setprofile(note)
            try:
                chosen(bits, gaps)
            finally:
                sys.setprofile(None)
                gc.enable()
            seen.add((tuple(bits.asked), steps["call"], steps["c_call"]))
    assert len(seen) == 1, seen
    ((asked, calls, _),) = seen
    assert asked == (8, 8, 8)
    assert calls > K  # the count sees what is done for each score


def test_a_choice_computes_one_exponential_for_each_score(monkeypatch: pytest.MonkeyPatch) -> None:
    around, asked = Exponential.around, list[tuple[Fraction, int]]()

    def spy(self: Exponential, places: int) -> tuple[int, int]:
        asked.append((self.exponent, places))
        return around(self, places)

    monkeypatch.setattr(Exponential, "around", spy)
    for scores in ([5] * 9, [0] * 8 + [10**12], list(range(9))):
        asked.clear()
        exponential_choice(scores, Fraction(2))
        assert asked == [(Fraction(max(scores) - score, 2), 192) for score in scores]


def index_of(gaps: list[Fraction], U: Fraction) -> int:
    """The number of Cᵢ that U·S reaches, at 2,000 bits."""
    with mpmath.workprec(2000):
        weights = [mpmath.exp(-mpmath.mpf(gap.numerator) / gap.denominator) for gap in gaps]
        at = mpmath.mpf(U.numerator) / U.denominator * mpmath.fsum(weights)
        return sum(mpmath.fsum(weights[: i + 1]) <= at for i in range(len(gaps) - 1))


gap_lists = st.lists(
    st.fractions(0, 12, max_denominator=50) | st.sampled_from([Fraction(0), Fraction(1, 2**300), Fraction(2**300)]),
    max_size=7,
).map(lambda gaps: [*gaps, Fraction(0)])


@examples(200)
@given(gap_lists, st.integers(0, 2**192 - 1))
def test_a_choice_is_the_one_that_its_uniform_number_falls_on(gaps: list[Fraction], uniform: int) -> None:
    words = [uniform >> 128, uniform >> 64 & ONES, uniform & ONES]
    first = index_of(gaps, Fraction(uniform, 2**192))
    last = index_of(gaps, Fraction(uniform + 1, 2**192) - Fraction(1, 2**400))
    assert first <= chosen(Scripted(*words), gaps) <= last  # but for a few, one number


@examples(150)
@given(gap_lists, st.integers(1, 14), st.data())
def test_what_is_certain_and_what_is_possible_are_so(gaps: list[Fraction], places: int, data: st.DataObject) -> None:
    """Of few places and few guard bits: the bounds hold the index of every U that begins with these places."""
    uniform = data.draw(st.integers(0, 2**places - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probability, "_GUARD", 2)
        certainly, possibly = choice._reached(gaps, uniform, places)
    first = index_of(gaps, Fraction(uniform, 2**places))
    last = index_of(gaps, Fraction(uniform + 1, 2**places) - Fraction(1, 2**400))
    assert 0 <= certainly <= first <= last <= possibly < len(gaps)


@pytest.mark.parametrize(
    ("alike", "uniform", "places", "expected"),
    [
        (3, 0, 1, (0, 2)),  # U in [0, ½): U·S below 4.5 by what is known, and the second cell begins between 2 and 3
        (3, 1, 1, (1, 2)),  # U in [½, 1): U·S is at least 3, which is the most that the first cell may end at
        (2, 2**63 - 2, 64, (0, 0)),  # the last U before the doubt about ½
        (2, 2**63 - 1, 64, (0, 1)),
        (2, 2**63, 64, (0, 1)),
        (2, 2**63 + 1, 64, (1, 1)),  # and the first behind it
        (4, 0, 1, (0, 2)),  # U·S is below 6, where the third cell ends at the earliest
        (3, 2**64 - 1, 64, (2, 2)),
        (1, 2**64 - 1, 64, (0, 0)),
    ],
)
def test_the_bounds_of_equal_scores_by_hand(alike: int, uniform: int, places: int, expected: tuple[int, int]) -> None:
    """e⁰ lies in [2ᴮ, 2ᴮ + 1)·2⁻ᴮ, so the end of the i-th cell in [i·2ᴮ, i·2ᴮ + i)."""
    assert Exponential(Fraction(0)).around(places) == (2**places, 2**places + 1)
    assert choice._reached([Fraction(0)] * alike, uniform, places) == expected


def test_a_doubt_draws_more_places_until_it_ends() -> None:
    """Of two equal scores the second begins at U = ½; three words each leave that open, or do not."""
    half, alike = 2**63, [Fraction(0)] * 2
    for words, index in (
        ([half, 0, 0, 0, 0, 4], 1),
        ([half, 0, 0, 0, 0, 0, 1, 0, 0], 1),
        ([half - 1, ONES, ONES, ONES - 1, 0, 0], 0),
        ([half - 1, ONES, ONES - 4], 0),
        ([half, 0, 4], 1),
    ):
        bits = Scripted(*words)
        assert chosen(bits, alike) == index
        assert (bits.script, bits.calls) == ([], 0)


class Short(Bits):
    """Real bits, in words of 2."""

    def __init__(self) -> None:
        self.bits = ChaCha20Bits()

    def octets(self, count: int) -> Octets:
        return self.bits.octets(count)

    def word(self) -> int:
        return int(self.bits.octets(1)[0] & 3)


@pytest.mark.parametrize("scores", [[0] * 7, [0, 3, 1, 3], [Fraction(-1, 2), 0, 0, 2, 0, 1, 1], [5]], ids=str)
def test_choices_have_the_probabilities_of_the_exponential_mechanism(
    scores: list[Fraction | int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With words of 2 bits nearly every choice has doubts; with words of 64, none."""
    expected = np.exp(np.array(scores, dtype=float) / 1.5)
    expected /= expected.sum()
    gaps = [(Fraction(max(scores)) - score) / Fraction(3, 2) for score in scores]
    found = [[exponential_choice(scores, Fraction(3, 2)) for _ in range(1500)]]
    monkeypatch.setattr(choice, "WORD", 2)
    monkeypatch.setattr(choice, "_WORDS", 1)
    monkeypatch.setattr(probability, "_GUARD", 2)
    found.append([chosen(Short(), gaps) for _ in range(1500)])
    for drawn in found:
        frequency = np.bincount(drawn, minlength=len(scores)) / len(drawn)
        assert (np.abs(frequency - expected) <= 6 * np.sqrt(expected * (1 - expected) / len(drawn))).all()


def test_a_choice_needs_scores_and_a_scale() -> None:
    with pytest.raises(NoiseError, match="nothing to choose from"):
        exponential_choice([], 1)
    with pytest.raises(NoiseError):
        exponential_choice([1], 0)
