"""What the golden numbers are about: workloads, each with a strategy that is given, so that no search decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations

import numpy as np

import hdmm
from hdmm import (
    AllRange,
    Amounts,
    Bins,
    DifferenceAtMost,
    Domain,
    Groups,
    Identity,
    Integers,
    Known,
    Labels,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    Strategy,
    SumAtMost,
    Total,
    Vectors,
    Weighted,
    Width,
    Workload,
)
from hdmm.matrix import Dense, Eye, Matrix, Permuted, PIdentity, Residual, TreeIdentity, to_dense

product, marginals = Workload.product, Workload.marginals
Block = type(Strategy.identity(Domain({"x": 1})).blocks[0])  # it has no public name, and its file may move


@dataclass(frozen=True, eq=False)
class Case:
    """A workload or tables, a strategy that is given (none if the case is about the search), what is public, a goal."""

    asked: Workload | Mapping[str, Workload]
    strategy: Strategy | None = None
    known: Sequence[Known] = ()
    goal: Mapping[str, object] = field(default_factory=dict)
    restarts: int = 1
    search: bool = True  # not where another case has the same workload, or where it takes very long

    @property
    def domain(self) -> Domain:
        return (self.asked if isinstance(self.asked, Workload) else next(iter(self.asked.values()))).domain


def counts(domain: Domain) -> np.ndarray:
    """Made-up counts of every cell: many small ones, some of them 0, and few large ones."""
    rng = np.random.default_rng(domain.size)
    return (rng.integers(0, 9, size=domain.shape) * rng.integers(1, 9, size=domain.shape) ** 2 // 4).astype(np.int64)


def theta(n: int, p: int = 2, seed: int = 0) -> Matrix:
    return PIdentity(np.random.default_rng([n, p, seed]).uniform(0.1, 1.5, size=(p, n)).round(3))


def rows(m: int, n: int, seed: int = 0) -> Matrix:
    return Dense(np.random.default_rng([m, n, seed]).integers(-3, 4, size=(m, n)))


def measured(domain: Domain, *blocks: tuple[float, Mapping[int | tuple[int, ...], Matrix]]) -> Strategy:
    return Strategy(domain, tuple(Block(weight, list(factors.items())) for weight, factors in blocks))


def by_marginals(domain: Domain, weights: Mapping[tuple[int, ...], float], **bases: Matrix) -> Strategy:
    each = [bases.get(name, Eye(n)) for name, n in zip(domain.names, domain.shape, strict=True)]
    return measured(domain, *((weight, {i: each[i] for i in axes}) for axes, weight in weights.items()))


def centred(domain: Domain, *axes: int) -> Matrix:
    """Integers that see no total over any of these attributes."""
    each = [domain.shape[i] * np.eye(domain.shape[i], dtype=np.int64) - 1 for i in axes]
    return Dense(reduce(np.kron, each))


def known(domain: Domain, *names: Sequence[str]) -> tuple[Known, ...]:
    """What `counts` has for these attributes."""
    x = counts(domain)
    axes = [[domain.axis(name) for name in each] for each in names]
    summed = [x.sum(axis=tuple(i for i in range(x.ndim) if i not in kept)) for kept in axes]
    return tuple(Known(domain, each, table) for each, table in zip(names, summed, strict=True))


ONE = Domain({"only": 1})
LINE = Domain({"x": 16})
PLANE = Domain({"x": 8, "y": 5})
SOLID = Domain({"x": 6, "sex": ["M", "F"], "y": 4})
UNEVEN = Domain({"x": 5, "y": 7})
FLAT = Domain({"one": 1, "x": 5, "alone": 1})
WIDE = Domain({"x": 70, "y": 60})  # beyond what is written out
TRACTS = Labels([f"T{i}" for i in range(9)], levels={"state": [*"AABBBCCCC"], "side": [*"NNNNNSSSS"]})
PLACES = Domain({"tract": TRACTS, "sex": ["M", "F"]})
EARNERS = Domain({"sex": ["M", "F"], "age": Integers(18, 29), "income": Bins([0, 10, 25, 50, 100])})
TWELVE = Domain({f"a{i}": 2 + i // 11 for i in range(12)})
HUNDRED = Domain({f"a{i}": 2 + i % 5 for i in range(100)})
PAIRS = {(0, 1): 0.5, (1, 2): 0.3, (0, 2): 0.2, (): 0.1}
OWN = {name: theta(n) for name, n in zip(SOLID.names, SOLID.shape, strict=True)}

ranges = product(LINE, x=AllRange())
unions = product(PLANE, x=AllRange()) + 2.0 * product(PLANE, x=Identity(), y=Prefix()) + product(PLANE, y=Identity())
ages = {"sex": marginals(SOLID, [("sex",)]), "ranges": product(SOLID, x=AllRange(), y=Identity())}
twelve = marginals(TWELVE, range(3))
sums = product(EARNERS, sex=Identity(), age=Amounts.of(EARNERS["age"])) + product(EARNERS, sex=Identity())
tenths = [np.kron(np.eye(5, dtype=np.int64), np.ones((1, n // 5), dtype=np.int64)) for n in WIDE.shape]
mixed = [{i: Dense(to_dense(rows(5, 5, 2 * s + i)) @ tenths[i]) for i in (0, 1)} for s in range(3)]
wide = product(WIDE, x=Vectors(tenths[0]), y=Vectors(tenths[1])) + 2.0 * product(
    WIDE, x=Vectors(np.cumsum(tenths[0], axis=0))
)
squares = product(UNEVEN, x=AllRange(), y=Prefix())
close = product(PLANE, {("x", "y"): SumAtMost()}) + product(PLANE, {("x", "y"): DifferenceAtMost()})
spaces = [b for size in range(4) for b in combinations(range(3), size)]
beside = {(0, 1): 0.6, (1,): 0.3, (0,): 0.2}  # of what is measured where counts are known

CASES: dict[str, Case] = {
    "a single value": Case(product(ONE, only=Identity()), Strategy.identity(ONE)),
    "attributes of one value": Case(marginals(FLAT, [1, 2]), by_marginals(FLAT, {(0, 1): 0.5, (1, 2): 0.2, (2,): 0.1})),
    "identity": Case(product(LINE, x=Identity()), Strategy.identity(LINE)),
    "total": Case(product(PLANE, {}), measured(PLANE, (1.0, {}))),
    "prefix by a p-identity": Case(product(LINE, x=Prefix()), measured(LINE, (1.0, {0: theta(16)}))),
    "ranges by identity": Case(ranges, search=False, strategy=Strategy.identity(LINE)),
    "ranges by a p-identity": Case(ranges, measured(LINE, (1.0, {0: theta(16, 3)}))),
    "ranges by a hierarchy": Case(ranges, search=False, strategy=hdmm.baselines.hb(ranges)),
    "ranges by wavelets": Case(ranges, search=False, strategy=hdmm.baselines.privelet(ranges)),
    "ranges by a tree": Case(
        ranges,
        measured(LINE, (1.0, {0: TreeIdentity(np.linspace(0.2, 1.4, 32).reshape(2, 16).round(3), [2, 8])})),
        search=False,
    ),
    "ranges of one width": Case(product(LINE, x=Width(5)), hdmm.baselines.greedy_h(product(LINE, x=Width(5)))),
    "permuted ranges": Case(
        product(LINE, x=Shuffled(AllRange(), np.random.default_rng(1).permutation(16).tolist())),
        measured(LINE, (1.0, {0: Permuted(theta(16, 3), np.random.default_rng(1).permutation(16).tolist())})),
    ),
    "listed ranges, sets and vectors": Case(
        product(LINE, x=Ranges([(0, 3), (2, 9), (5, 15)]) | Sets([[0, 5], [1, 2, 15]]))
        + product(LINE, x=Vectors(to_dense(rows(3, 16)))),
        measured(LINE, (0.8, {0: Eye(16)}), (0.2, {})),
    ),
    "weighted prefixes": Case(
        product(LINE, x=Weighted(Prefix(), np.linspace(1, 4, 16))), measured(LINE, (1.0, {0: theta(16, 1)}))
    ),
    "products": Case(
        product(PLANE, x=AllRange(), y=Prefix()), measured(PLANE, (1.0, {0: theta(8), 1: theta(5)})), restarts=2
    ),
    "marginals up to two": Case(marginals(SOLID, range(3)), by_marginals(SOLID, PAIRS)),
    "marginals with weights": Case(
        3.0 * marginals(SOLID, [1]) + 0.5 * marginals(SOLID, [2]) + marginals(SOLID, [3]),
        by_marginals(SOLID, {(0, 1, 2): 0.5, (1,): 0.3, (0, 2): 0.2}),
    ),
    "marginals over bases": Case(Workload.range_marginals(SOLID, [1, 2]), by_marginals(SOLID, PAIRS, **OWN)),
    "ranges and totals": Case(
        Workload.range_marginals(SOLID), hdmm.baselines.identity(Workload.range_marginals(SOLID))
    ),
    "marginals by their cube": Case(marginals(SOLID, [1, 2]), hdmm.baselines.datacube(marginals(SOLID, [1, 2]))),
    "two products": Case(
        unions, measured(PLANE, (0.5, {0: theta(8), 1: theta(5)}), (0.5, {0: theta(8, 3), 1: theta(5, 1)}))
    ),
    "three products, written out": Case(
        unions, measured(PLANE, *((w, {0: theta(8, 2, s), 1: theta(5, 2, s)}) for s, w in enumerate([0.5, 0.3, 0.2])))
    ),
    "three products, partly": Case(
        product(PLANE, x=Prefix()), measured(PLANE, *((w, {0: theta(8, 2, s)}) for s, w in enumerate([0.5, 0.3, 0.2])))
    ),
    "a base of each block's own": Case(
        Workload.range_marginals(SOLID, [1, 2], ranges=["x"]),
        measured(
            SOLID,
            (0.5, {0: theta(6, 2, 1), 1: Eye(2)}),
            (0.3, {0: theta(6, 2, 2), 2: Eye(4)}),
            (0.2, {0: theta(6, 2, 3)}),
            (0.4, {1: Eye(2), 2: Eye(4)}),
        ),
    ),
    "two bases of each block's own": Case(
        Workload.range_marginals(SOLID, [1, 2], ranges=["x", "y"]),
        measured(
            SOLID,
            (0.5, {0: theta(6, 2, 1), 1: Eye(2)}),
            (0.3, {0: theta(6, 2, 2), 2: theta(4, 2, 2)}),
            (0.4, {1: Eye(2), 2: theta(4, 2, 1)}),
        ),
    ),
    "beyond what is written out": Case(wide, measured(WIDE, *((1.0, each) for each in mixed)), search=False),
    "as it is": Case(unions, Strategy.direct(unions), search=False),
    "trees of squares": Case(squares, hdmm.baselines.quadtree(squares), search=False),
    "duplicates and weight 0": Case(
        unions + unions + 0.0 * product(PLANE, x=Prefix()), measured(PLANE, (1.0, {0: theta(8), 1: theta(5)}))
    ),
    "pairs by their sum": Case(close, measured(PLANE, (1.0, {(0, 1): theta(40)}))),
    "overlapping pairs": Case(
        product(SOLID, {("x", "y"): SumAtMost(), "sex": Identity()}) + marginals(SOLID, [2]),
        measured(
            SOLID,
            (0.5, {(0, 1): theta(12), 2: Eye(4)}),
            (0.3, {(1, 2): theta(8)}),
            (0.2, {0: Eye(6), 2: theta(4)}),
        ),
    ),
    "a pair beside singles": Case(
        product(SOLID, {("x", "y"): SumAtMost()}) + marginals(SOLID, [1]),
        measured(SOLID, (0.5, {(0, 2): theta(24)}), (0.5, {0: Eye(6), 1: Eye(2), 2: Eye(4)})),
    ),
    "residual spaces of pairs": Case(
        product(SOLID, {("x", "y"): SumAtMost()}) + marginals(SOLID, [2]),
        measured(SOLID, *((0.5 ** len(b), {b: centred(SOLID, *b)} if b else {}) for b in spaces)),
    ),
    "residual spaces": Case(
        marginals(SOLID, range(3)),
        measured(SOLID, *((0.7 ** len(b), {i: Residual(SOLID.shape[i]) for i in b}) for b in spaces)),
    ),
    "levels": Case(
        product(PLACES, tract=Groups("state"), sex=Identity())
        + product(PLACES, tract=Groups("side"))
        + product(PLACES, tract=Identity()),
        measured(PLACES, (0.6, {0: Eye(9), 1: Eye(2)}), (0.4, {0: Groups("state").on(PLACES["tract"]).matrix(9)})),
    ),
    "sums": Case(sums, by_marginals(EARNERS, {(0, 1): 0.7, (0,): 0.3})),
    "a known total": Case(
        marginals(SOLID, range(3)), by_marginals(SOLID, {(0, 1): 0.5, (1, 2): 0.3, (0, 2): 0.2}), known(SOLID, [])
    ),
    "a known table": Case(
        Workload.range_marginals(SOLID, [1, 2]), by_marginals(SOLID, PAIRS, **OWN), known(SOLID, ["sex"])
    ),
    "known beside residual spaces": Case(
        marginals(SOLID, [2]),
        measured(
            SOLID, *((0.7 ** len(b), {i: Residual(SOLID.shape[i]) for i in b}) for b in spaces if b not in [(), (1,)])
        ),
        known(SOLID, ["sex"]),
    ),
    "known without a closed form": Case(
        unions,
        measured(PLANE, *((w, {0: theta(8, 2, s), 1: theta(5, 2, s)}) for s, w in enumerate([0.5, 0.3, 0.2]))),
        known(PLANE, ["y"]),
    ),
    "a known level": Case(
        marginals(PLACES, [1, 2]),
        by_marginals(PLACES, beside),
        (Known(PLACES, ["state"], np.add.reduceat(counts(PLACES).sum(axis=1), [0, 2, 5])),),
    ),
    "known levels that cross": Case(
        marginals(PLACES, [1, 2]),
        measured(PLACES, (0.5, {0: theta(9), 1: Eye(2)}), (0.5, {0: theta(9, 3)})),
        (Known(PLACES, ["state"], np.add.reduceat(counts(PLACES).sum(axis=1), [0, 2, 5])),),
    ),
    "tables": Case(ages, Strategy.identity(SOLID)),
    "the worst query": Case(ages, by_marginals(SOLID, {(0, 2): 0.6, (1,): 0.4}, **OWN), goal={"objective": "worst"}),
    "the sum over tables": Case(ages, by_marginals(SOLID, {(0, 1, 2): 0.9, (1,): 0.1}), goal={"objective": "total"}),
    "targets": Case(
        ages,
        by_marginals(SOLID, {(0, 2): 0.6, (1,): 0.4}, **OWN),
        goal={"targets": {"sex": 6.0, "ranges": 30.0}},
    ),
    "the worst marginal": Case(
        {"one": marginals(SOLID, [1]), "two": 2.0 * marginals(SOLID, [2])},
        by_marginals(SOLID, PAIRS | {(1,): 0.4}),
        goal={"objective": "worst"},
    ),
    "twelve attributes": Case(
        twelve,
        by_marginals(TWELVE, dict.fromkeys(combinations(range(12), 2), 1.0) | {(): 2.0}),
    ),
    "a hundred attributes": Case(marginals(HUNDRED, [1, 2])),
    "ranges of 128": Case(product(Domain({"x": 128}), x=AllRange())),
    "large products": Case(
        product(Domain({"x": 20, "sex": 2, "y": 10}), x=AllRange(), sex=Identity() | Total(), y=Prefix()),
    ),
    "range marginals of four": Case(
        Workload.range_marginals(Domain({"x": 12, "y": 8, "sex": 2, "region": 4}), [1, 2]),
        restarts=2,
    ),
}

# Of which the search is long, by noise; and of which much else is.
SLOW = {
    "given": {"a known table", "twelve attributes"},
    "laplace": {
        "a hundred attributes",
        "a known table",
        "a pair beside singles",
        "duplicates and weight 0",
        "known without a closed form",
        "large products",
        "levels",
        "marginals over bases",
        "overlapping pairs",
        "pairs by their sum",
        "products",
        "range marginals of four",
        "sums",
        "tables",
        "targets",
        "the sum over tables",
        "the worst marginal",
        "the worst query",
        "twelve attributes",
        "two bases of each block's own",
        "three products, written out",
        "two products",
    },
    "gaussian": {
        "duplicates and weight 0",
        "large products",
        "range marginals of four",
        "two bases of each block's own",
    },
}
