"""How far draws may be from what is expected, so that a test fails by accident with a chance of at most 1e-7.

Where no such bound is known, as of what an iteration finds in noise, `settled` draws the same noise at every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import shake_256
from itertools import count
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from hdmm import Answers
from hdmm.answers.margins import half_width

_CHANCE = 1e-7


@contextmanager
def settled(salt: str) -> Iterator[None]:
    """The operating system's random bytes replaced by fixed ones, which differ from call to call."""
    calls = count()
    with patch.object(os, "urandom", lambda size: shake_256(f"{salt} {next(calls)}".encode()).digest(size)):
        yield


def fewest(trials: int, chance: float, among: int = 1) -> int:
    """The least number of trials that succeed, if each does with at least this chance; of all of several counts."""
    return int(binom.ppf(_CHANCE / among, trials, chance))


def near(answers: Answers, truth: npt.ArrayLike) -> bool:
    """Whether all answers are as near to the truth as their noise leaves them."""
    off = np.abs(answers.values - np.asarray(truth))
    return bool((off <= half_width(answers.stddev, 1 - _CHANCE / len(off), answers.noise)).all())
