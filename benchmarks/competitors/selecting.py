"""MST and AIM: synthetic rows from tables that are chosen by looking at the data, privately.

Written from the papers on top of `mbi` (PyPI), which fits the graphical model. hdmm is not imported, because mbi has an
environment of its own: `python -m venv build/mbi && build/mbi/bin/pip install mbi`, then
`build/mbi/bin/python benchmarks/competitors/selecting.py METHOD CODES.npz EPSILON DELTA ROWS.npz` reads `codes` (rows
by attributes) and `sizes`, and writes `codes` of synthetic rows and its `seconds` of the processor. AIM takes hours for
14 attributes by its published settings; two more arguments, megabytes and rounds per attribute, make it smaller.

References: McKenna, Miklau, Sheldon, "Winning the NIST contest: a scalable and general approach to differentially
private synthetic data" (JPC 2021); McKenna, Mullins, Sheldon, Miklau, "AIM: an adaptive and iterative mechanism for
differentially private synthetic data" (VLDB 2022).
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.optimize import minimize_scalar

jax.config.update("jax_enable_x64", True)

import mbi  # noqa: E402  after the precision is set, or it warns

Axes = tuple[int, ...]

_FINAL_STEPS, _STEPS = 10_000, 1000  # of mirror descent: as in the published code, ended once the loss stands still
_STANDS = 1e-5
_MEGABYTES, _ROUNDS = 80.0, 16  # the published limit of AIM's model, and its rounds per attribute
_SELECTED = 0.1  # the share of the budget that AIM chooses with


def zcdp_of(epsilon: float, delta: float) -> float:
    """The largest ρ with which ρ-zCDP is (ε, δ)-private, by Canonne, Kamath and Steinke (2020)."""

    def log_delta(rho: float) -> float:
        def at(log_order: float) -> float:
            order = 1 + math.exp(log_order)
            power = (order - 1) * (order * rho - epsilon) + order * math.log1p(-1 / order)
            return power - math.log(order - 1)

        return float(minimize_scalar(at, bounds=(-7, 12), method="bounded").fun)

    low, high = 0.0, epsilon + 1
    for _ in range(60):
        rho = (low + high) / 2
        low, high = (rho, high) if log_delta(rho) <= math.log(delta) else (low, rho)
    return low


@dataclass(frozen=True)
class Table:
    """A table of codes whose marginals are measured and compared."""

    codes: np.ndarray
    sizes: tuple[int, ...]
    rng: np.random.Generator

    @property
    def domain(self) -> mbi.Domain:
        """The attributes by their numbers, as mbi wants it."""
        return mbi.Domain(tuple(range(len(self.sizes))), self.sizes)

    def marginal(self, axes: Axes) -> np.ndarray:
        """The counts of the cells of some attributes."""
        shape = [self.sizes[i] for i in axes]
        cells = np.ravel_multi_index([self.codes[:, i] for i in axes], shape)
        return np.bincount(cells, minlength=math.prod(shape)).astype(float)

    def measured(self, axes: Axes, sigma: float) -> mbi.LinearMeasurement:
        """A marginal with Gaussian noise."""
        x = self.marginal(axes)
        return mbi.LinearMeasurement(x + self.rng.normal(scale=sigma, size=x.size), axes, sigma)

    def chosen(self, scores: np.ndarray, epsilon: float, sensitivity: float) -> int:
        """The exponential mechanism."""
        likely = np.exp(epsilon / (2 * sensitivity) * (scores - scores.max()))
        return int(self.rng.choice(len(scores), p=likely / likely.sum()))


def fitted(domain: mbi.Domain, measurements: list[mbi.LinearMeasurement], steps: int, start: Any = None) -> Any:
    """The graphical model that mbi fits to measurements."""
    descent = mbi.estimation.MirrorDescent()
    return descent.estimate(domain, measurements, iters=steps, warm_start=start, tol=_STANDS)


def as_rows(model: Any, d: int) -> np.ndarray:
    """The codes of the synthetic rows that mbi makes of a model."""
    made = model.synthetic_data().to_dict()
    return np.stack([np.asarray(made[i], dtype=np.int64) for i in range(d)], axis=1)


def mst(table: Table, rho: float) -> np.ndarray:
    """One-way tables, a tree of pairs that these predict badly, and these pairs, each with a third of the budget."""
    d, sigma = len(table.sizes), math.sqrt(3 / (2 * rho))
    singles = [table.measured((i,), sigma * math.sqrt(d)) for i in range(d)]
    often = [np.flatnonzero(np.asarray(single.noisy_measurement) >= 3 * single.stddev) for single in singles]
    small, merged = _merged(table, singles, often)
    tree = _tree(small, fitted(small.domain, merged, _STEPS), rho / 3)
    pairs = [small.measured(axes, sigma * math.sqrt(d - 1)) for axes in tree]
    found = as_rows(fitted(small.domain, merged + pairs, _FINAL_STEPS), d)
    for i, kept in enumerate(often):
        rare = np.setdiff1d(np.arange(table.sizes[i]), kept)
        any_of_these = table.rng.choice(rare, len(found)) if len(rare) else np.zeros(len(found), int)
        found[:, i] = np.where(found[:, i] == len(kept), any_of_these, np.append(kept, 0)[found[:, i]])
    return found


def _merged(
    table: Table, singles: list[mbi.LinearMeasurement], often: list[np.ndarray]
) -> tuple[Table, list[mbi.LinearMeasurement]]:
    """The table and what was measured of it, with one value, the last, for all values that do not occur often."""
    codes, sizes, found = table.codes.copy(), list(table.sizes), list(singles)
    for i, kept in enumerate(often):
        rare = table.sizes[i] - len(kept)
        if rare:
            places = np.full(table.sizes[i], len(kept))
            places[kept] = np.arange(len(kept))
            codes[:, i], sizes[i] = places[codes[:, i]], len(kept) + 1
            y = np.asarray(singles[i].noisy_measurement)
            scales = np.append(np.ones(len(kept)), 1 / math.sqrt(rare))  # their sum then has the noise of the others
            query = mbi.WeightedQuery(scales)
            y = np.append(y[kept], y.sum() - y[kept].sum()) * scales
            found[i] = mbi.LinearMeasurement(y, (i,), singles[i].stddev, query)
    return Table(codes, tuple(sizes), table.rng), found


def _tree(table: Table, model: Any, rho: float) -> list[Axes]:
    """A spanning tree of pairs, each edge chosen by how far the model is from the pair's table."""
    d = len(table.sizes)
    pairs = list(itertools.combinations(range(d), 2))
    off = {p: float(np.abs(table.marginal(p) - model.project(p).datavector()).sum()) for p in pairs}
    joined, tree = DisjointSet(range(d)), list[Axes]()
    while len(tree) < d - 1:
        left = [p for p in pairs if not joined.connected(*p)]
        tree.append(left[table.chosen(np.array([off[p] for p in left]), math.sqrt(8 * rho / (d - 1)), 1.0)])
        joined.merge(*tree[-1])
    return tree


def aim(table: Table, rho: float, megabytes: float = _MEGABYTES, each: float = _ROUNDS) -> np.ndarray:
    """One table after the other, each chosen by how much measuring it should help with all pairs.

    The noise is halved whenever a table that was measured came out as the model had it.
    """
    d, domain = len(table.sizes), table.domain
    singles, pairs = [(i,) for i in range(d)], list(itertools.combinations(range(d), 2))
    weights = {axes: sum(len({*axes} & {*pair}) for pair in pairs) for axes in (*singles, *pairs)}
    answers = {axes: table.marginal(axes) for axes in weights}
    rounds = each * d
    sigma, epsilon = math.sqrt(rounds / (2 * (1 - _SELECTED) * rho)), math.sqrt(8 * _SELECTED * rho / rounds)
    measured = [table.measured(axes, sigma) for axes in singles]
    model, used, last = fitted(domain, measured, _STEPS), d / (2 * sigma**2), False
    while not last:
        if rho - used < 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):
            last = True
            sigma, epsilon = (
                math.sqrt(1 / (2 * (1 - _SELECTED) * (rho - used))),
                math.sqrt(8 * _SELECTED * (rho - used)),
            )
        used += 1 / (2 * sigma**2) + epsilon**2 / 8
        small = _affordable(model, weights, megabytes * used / rho)
        noise = math.sqrt(2 / math.pi) * sigma
        scores = [
            weights[axes]
            * (np.abs(answers[axes] - model.project(axes).datavector()).sum() - noise * answers[axes].size)
            for axes in small
        ]
        axes = small[table.chosen(np.array(scores), epsilon, max(weights[axes] for axes in small))]
        before = np.asarray(model.project(axes).datavector())
        jax.clear_caches()  # every model is compiled anew, and hundreds of them end in a segmentation fault
        measured.append(table.measured(axes, sigma))
        model = fitted(domain, measured, _STEPS, model)
        print(f"{used / rho:.3f} of the budget, {axes}", file=sys.stderr, flush=True)
        if np.abs(np.asarray(model.project(axes).datavector()) - before).sum() <= noise * before.size:
            sigma, epsilon = sigma / 2, epsilon * 2
    return as_rows(model, d)


def _affordable(model: Any, wanted: dict[Axes, int], megabytes: float) -> list[Axes]:
    """The tables that the model has already, or with which it stays small."""
    cliques = [tuple(c) for c in model.cliques]
    return [
        axes
        for axes in wanted
        if any({*axes} <= {*c} for c in cliques)
        or mbi.junction_tree.hypothetical_model_size(model.domain, [*cliques, axes]) <= megabytes
    ]


def main() -> None:
    """Read codes, write synthetic ones."""
    method, source, epsilon, delta, target, *smaller = sys.argv[1:]
    held = np.load(source)
    table = Table(held["codes"], tuple(held["sizes"].tolist()), np.random.default_rng())
    start = time.process_time()
    rho = zcdp_of(float(epsilon), float(delta))
    found = mst(table, rho) if method == "mst" else aim(table, rho, *map(float, smaller))
    np.savez_compressed(Path(target), codes=found, seconds=time.process_time() - start)


if __name__ == "__main__":
    main()
