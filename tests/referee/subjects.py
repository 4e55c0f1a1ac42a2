"""What the referee looks at: plans, two neighbouring tables, and many outputs of `plan.measure` on both.

An output is what a release publishes: the integers of `release.measurements`. There are two ways to many of them.

- `separate`: one call per output, of a table of persons, as a user makes it. It takes a millisecond or more.
- `together`: one call for many copies of the table, in a domain with one more attribute. A row of one copy moves only
  that copy's numbers, so that copies of a right release are independent, which `testers.echo` looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import hdmm
from hdmm import AllRange, Domain, Identity, Prefix, Strategy, Workload, from_array, from_table
from hdmm.data import Data
from hdmm.matrix import Eye, PIdentity
from hdmm.measure.plan import Plan
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.strategy.blocks import Block
from tests.referee.claims import Floats
from tests.support.copies import copied, copied_workload

PAIR = Domain({"x": 3, "y": 2})


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A plan, the rows of a table, and the cell of the person that the neighbouring table has besides."""

    plan: Plan
    rows: tuple[tuple[int, ...], ...]
    person: tuple[int, ...]

    @property
    def domain(self) -> Domain:
        return self.plan.workload.domain


def counts(noise: Noise) -> Subject:
    """A count for each of 4 values: a row moves one number by 1."""
    workload = Workload.product(Domain({"x": 4}), x=Identity())
    return Subject(hdmm.optimize(workload, noise=noise, restarts=1), ((0,), (1,), (1,), (3,)), (1,))


def ranges(noise: Noise) -> Subject:
    """All ranges over 4 values, the strategy optimised: for Laplace noise the 4 counts, for Gaussian noise not."""
    workload = Workload.product(Domain({"x": 4}), x=AllRange())
    return Subject(hdmm.optimize(workload, noise=noise, restarts=1), ((0,), (1,), (1,), (3,)), (1,))


def shares(noise: Noise) -> Subject:
    """Counts with a weighted sum below, rounded to columns of 256: a row moves 2 numbers by unequal steps.

    Every value moves them by 256 in all; the last, whose steps are the least alike, by the most in squares.
    """
    domain = Domain({"x": 3})
    workload = Workload.product(domain, x=Prefix())
    strategy = Strategy(domain, (Block(1.0, ((0, PIdentity([[0.7, 1.3, 0.2]])),)),))
    return Subject(replace(hdmm.optimize(workload, noise=noise, restarts=1), strategy=strategy), ((0,), (1,)), (2,))


def marginals(noise: Noise) -> Subject:
    """A marginal for each attribute and the total, each a block with its share: a row moves 3 numbers, by 1 each."""
    blocks = (Block(0.5, ((0, Eye(3)),)), Block(0.3, ((1, Eye(2)),)), Block(0.2, ()))
    workload = Workload.product(PAIR, x=Identity()) + Workload.product(PAIR, y=Identity())
    plan = replace(hdmm.optimize(workload, noise=noise, restarts=1), strategy=Strategy(PAIR, blocks))
    return Subject(plan, ((0, 0), (1, 1), (2, 0)), (2, 1))


def direct(noise: Noise) -> Subject:
    """Queries measured as they are asked: a row of the first value moves 3 sums and a count, by 1 each."""
    workload = Workload.product(PAIR, x=Prefix()) + Workload.product(PAIR, y=Identity())
    plan = replace(hdmm.optimize(workload, noise=noise, restarts=1), strategy=Strategy.direct(workload))
    return Subject(plan, ((0, 0), (1, 1), (2, 0)), (0, 1))


SUBJECTS = (counts, ranges, shares, marginals, direct)


def together(subject: Subject, privacy: Privacy, copies: int) -> tuple[Floats, Floats]:
    """Outputs on the table with the person and on the one without: one release of each, of all copies, from counts."""
    wide = _copied(subject, copies)
    outputs: list[Floats] = []
    for rows in ((*subject.rows, subject.person), subject.rows):
        cells = np.zeros((*subject.domain.shape, copies), dtype=np.int64)
        for cell in rows:
            cells[cell] += 1
        outputs.append(_output(wide, from_array(wide.domain, cells, rows_bound=2**24), privacy, copies))
    return outputs[0], outputs[1]


def separate(subject: Subject, privacy: Privacy, calls: int, copies: int = 1) -> tuple[Floats, Floats]:
    """The same from many releases of a table of persons. The person has two rows, of which one may count."""
    wide = _copied(subject, copies) if copies > 1 else subject
    outputs: list[Floats] = []
    for own in (2, 0):
        rows = np.array([*subject.rows, *[subject.person] * own])
        persons = np.minimum(np.arange(len(rows)), len(subject.rows))
        columns = {name: np.tile(rows[:, i], copies) for i, name in enumerate(subject.domain.names)}
        copy = np.repeat(np.arange(copies), len(rows))
        table = pa.table({**columns, "copy": copy, "person": np.tile(persons, copies) + len(rows) * copy})
        releases = []
        for _ in range(calls):
            data = from_table(wide.domain, table, id="person", max_rows_per_id=1)
            releases.append(_output(wide, data, privacy, copies))
        outputs.append(np.concatenate(releases))
    return outputs[0], outputs[1]


def _output(subject: Subject, data: Data, privacy: Privacy, copies: int) -> Floats:
    """All numbers of one release, one row for each copy."""
    release = subject.plan.measure(data, privacy, ledger=None)
    return np.concatenate([y.reshape(-1, copies) for y in release.measurements]).T.astype(np.float64)


def _copied(subject: Subject, copies: int) -> Subject:
    strategy = copied(subject.plan.strategy, copies)
    workload = copied_workload(subject.plan.workload, copies)
    return replace(subject, plan=replace(subject.plan, strategy=strategy, workload=workload))
