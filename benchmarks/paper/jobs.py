"""What cells compute, each a function of plain values that returns a dict of figures."""

from __future__ import annotations

import gzip
import importlib
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import hdmm
from benchmarks.competitors.dawa import dawa as by_buckets
from benchmarks.competitors.privbayes import privbayes as private_bayes
from benchmarks.paper.limits import NoDataError
from benchmarks.targets import plane, shuffled
from benchmarks.workloads import adult_domain, cps_domain, paper_workloads, sf1, up_to_k_way
from hdmm import AllRange, Domain, Identity, Prefix, PureDP, Strategy, Total, Workload, baselines, from_array
from hdmm.baselines.fixed import require_attributes
from hdmm.measure.measure import measure
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import Operator
from hdmm.select.problem import Problem

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "Identity": baselines.identity,
    "LM": baselines.laplace,
    "MM": baselines.matrix_mechanism,
    "LRM": baselines.low_rank,
    "Privelet": baselines.privelet,
    "HB": baselines.hb,
    "Quadtree": baselines.quadtree,
    "GreedyH": baselines.greedy_h,
    "DataCube": baselines.datacube,
}
CAPPED = {
    "MM": ("hdmm.baselines.searched", "_MATRIX_CELLS"),
    "LRM": ("hdmm.baselines.searched", "_LOW_RANK_CELLS"),
    "DAWA": ("benchmarks.competitors.dawa", "_MOST"),
}
LINES = {"Prefix": Prefix(), "All Range": AllRange()}
LETTERS = {"P": Prefix(), "R": AllRange(), "T": Total(), "I": Identity()}


def workload(name: str) -> Workload:
    """The workload a row is about: "main/…", "1d/…/n", "2d/…/n" or "marginals/K"."""
    table, _, rest = name.partition("/")
    match table:
        case "main":
            return sf1(plus=rest == "SF1+") if rest.startswith("SF1") else paper_workloads()[rest]
        case "1d":
            kind, _, n = rest.rpartition("/")
            if kind == "Permuted Range":
                return shuffled(int(n))
            return Workload.product(Domain({"x": int(n)}), x=LINES[kind])
        case "2d":
            kind, _, n = rest.rpartition("/")
            pairs = [part.strip("() ").split(" x ") for part in kind.split(" u ")]
            return plane(int(n), *((LETTERS[x], LETTERS[y]) for x, y in pairs))()
        case "marginals":
            return up_to_k_way(int(rest))
        case _:
            raise ValueError(f"No table is called {table!r}")


def selected(name: str, time_limit: float) -> dict[str, Any]:
    """HDMM: one call of hdmm.optimize with its defaults."""
    w = workload(name)
    plan = hdmm.optimize(w, seed=0, time_limit=time_limit, workers=1, progress=False)
    return {"rmse": math.sqrt(plan.error / w.queries), "operator": plan.operator, "stopped": plan.stopped}


def baseline(name: str, method: str, uncapped: bool = False, **options: str) -> dict[str, Any]:
    """A data-independent competitor. `uncapped` lifts its own limit on cells, so that time and memory decide."""
    if uncapped:
        _lift(method)
    w = workload(name)
    return {"rmse": math.sqrt(hdmm.unit_error(w, STRATEGIES[method](w, **options)) / w.queries)}


def dawa(
    name: str, dataset: str, epsilon: str, share: str, trials: int, data: str, uncapped: bool = False
) -> dict[str, Any]:
    """DAWA with GreedyH on a data set, averaged over trials."""
    w = workload(name)
    require_attributes(w, "dawa", most=2)
    if uncapped:
        _lift("DAWA")
    x = _histogram(dataset, w.domain, data)
    return _dawa(w, x, "greedy_h", epsilon, share, trials, 0.0)


def dawa_stage(
    dataset: str, n: int, size: int, stage: str, epsilon: str, share: str, trials: int, opt_0_seconds: float, data: str
) -> dict[str, Any]:
    """DAWA on Prefix with one of its second stages, on a sample of `size` rows from a data set of DPBench."""
    w = Workload.product(Domain({"x": n}), x=Prefix())
    x = sampled(dataset, n, size, data)
    return _dawa(w, x, stage, epsilon, share, trials, opt_0_seconds)


def sampled(dataset: str, n: int, size: int, data: str) -> np.ndarray:
    """`size` rows drawn from a data set of DPBench, as counts of n cells; always the same."""
    shape = _line(dataset, n, data).astype(float)
    return np.random.default_rng(0).multinomial(size, shape / shape.sum())


def privbayes(name: str, dataset: str, epsilon: str, trials: int, data: str) -> dict[str, Any]:
    """PrivBayes on a data set, averaged over trials."""
    w = workload(name)
    x = _histogram(dataset, w.domain, data)
    return _averaged(
        [_error(w, private_bayes(w.domain, x, Fraction(epsilon)) - x) for _ in range(trials)], w.queries, epsilon
    )


def scale(family: str, method: str, n: int, time_limit: float, repeat: int) -> dict[str, Any]:
    """Seconds to select, and to measure and reconstruct on data of zeros: a point of the scalability figures."""
    w = _scaled(family, n)
    begun = time.monotonic()
    if method in STRATEGIES:
        _lift(method)
        strategy = STRATEGIES[method](w)
    else:  # HDMM, or one of its operators
        chosen = None if method == "HDMM" else _operator(w, method)
        strategy = hdmm.optimize(
            w, restarts=repeat, time_limit=time_limit, operators=chosen, workers=1, progress=False
        ).strategy
    selecting = time.monotonic() - begun
    data = from_array(w.domain, np.zeros(w.domain.shape, dtype=np.int8))
    begun = time.monotonic()
    release = measure(strategy, data, PureDP(1), ledger=None)
    assert release.estimate is not None
    return {"cells": w.domain.size, "select": selecting, "measure": time.monotonic() - begun}


def alone(operator: str, size: int, time_limit: float) -> dict[str, Any]:
    """Seconds of one core for one start of OPT_0 on all ranges of `size` values, or of OPT_M on `size` attributes."""
    if operator == "OPT_0":
        w = Workload.product(Domain({"x": size}), x=AllRange())
    else:
        domain = Domain({f"a{i}": 10 for i in range(size)})
        w = Workload.marginals(domain, k=range(min(size, 3) + 1))
    begun, since = time.process_time(), time.monotonic()
    plan = hdmm.optimize(
        w, restarts=1, time_limit=time_limit, operators=_operator(w, operator), seed=0, workers=1, progress=False
    )
    seconds, ended = time.process_time() - begun, time.monotonic() - since >= time_limit
    return {"seconds": seconds, "rmse": math.sqrt(plan.error / w.queries), "ended": ended}


def _operator(w: Workload, name: str) -> list[Operator]:
    return [operator for operator in operators_for(Problem(w)) if operator.name == name]


def _scaled(family: str, n: int) -> Workload:
    match family:
        case "1D Prefix":
            return Workload.product(Domain({"x": n}), x=Prefix())
        case "3D Prefix":
            return Workload.product(Domain({"x": n, "y": n, "z": n}), x=Prefix(), y=Prefix(), z=Prefix())
        case "8D 3-way marginals":
            return Workload.marginals(Domain({f"a{i}": n for i in range(8)}), k=3)
        case "3D union":
            domain = Domain({"x": n, "y": n, "z": n})
            one = Workload.product(domain, x=Prefix(), y=Prefix(), z=Identity())
            return one + Workload.product(domain, x=Identity(), y=Prefix(), z=Prefix())
        case _:
            raise ValueError(f"No family is called {family!r}")


def _dawa(
    w: Workload, x: np.ndarray, stage: str, epsilon: str, share: str, trials: int, seconds: float
) -> dict[str, Any]:
    chosen = {"second_stage": stage, "share": Fraction(share), "time_limit": seconds}
    found = [_error(w, by_buckets(w, x, Fraction(epsilon), **chosen) - x) for _ in range(trials)]
    return _averaged(found, w.queries, epsilon)


def _error(w: Workload, apart: np.ndarray) -> float:
    """‖W(x̂ − x)‖², by the gram, because most workloads have too many queries."""
    return float(apart @ w.gram.matmat(apart[:, None])[:, 0])


def _averaged(errors: list[float], queries: int, epsilon: str) -> dict[str, Any]:
    """The mean squared error as an RMSE at unit noise, with a 95 % interval for the mean (Student's)."""
    mean, trials = float(np.mean(errors)), len(errors)
    half = (
        float(student.ppf(0.975, trials - 1) * np.std(errors, ddof=1) / math.sqrt(trials)) if trials > 1 else math.nan
    )
    unit = float(PureDP(epsilon).variance_factor) * queries
    return {
        "rmse": math.sqrt(mean / unit),
        "low": math.sqrt(max(mean - half, 0.0) / unit) if trials > 1 else None,
        "high": math.sqrt((mean + half) / unit) if trials > 1 else None,
        "relative_error": half / mean if trials > 1 and mean > 0 else None,
        "trials": trials,
    }


def _histogram(dataset: str, domain: Domain, data: str) -> np.ndarray:
    """The data set of a row of the main table, as counts of the domain's cells."""
    match dataset:
        case "Patent":
            return _line("PATENT", domain.size, data)
        case "Taxi":
            return _file(data, "dpbench_2d/BeijingTaxiE_256x256.npy", np.load).astype(np.int64).ravel()
        case "Adult":
            codes = _file(data, "adult.csv.gz", _table)
            return _counted([codes[name] for name in adult_domain().names], adult_domain())
        case "CPS":
            raw = _file(data, "cps.csv.gz", _table)
            # The binning "income100_age50" of cps-domain.json: the order and the sizes that the paper prints.
            codes = [raw["income"] // 10_000, raw["age"] // 2, raw["marital"] - 1, raw["race"] - 1, raw["sex"] - 1]
            return _counted(codes, cps_domain())
        case _:
            raise NoDataError(f"There is no public table of the schema of {dataset}; the paper's is not published.")


def _line(dataset: str, n: int, data: str) -> np.ndarray:
    return _file(data, f"dpbench_1d/{dataset}_4096.npy", np.load).astype(np.int64).reshape(n, -1).sum(axis=1)


def _counted(codes: list[np.ndarray], domain: Domain) -> np.ndarray:
    clipped = [np.clip(code, 0, n - 1) for code, n in zip(codes, domain.shape, strict=True)]
    return np.bincount(np.ravel_multi_index(clipped, domain.shape), minlength=domain.size)


def _table(path: Path) -> dict[str, np.ndarray]:
    with gzip.open(path, "rt") as file:
        names = file.readline().strip().split(",")
        values = np.loadtxt(file, delimiter=",", dtype=np.int64)
    return dict(zip(names, values.T, strict=True))


def _file(data: str, name: str, read: Callable[[Path], Any]) -> Any:
    path = Path(data) / name
    if not data:
        raise NoDataError(f"{name} is needed. Say where it lies with --data DIR.")
    if not path.exists():
        raise NoDataError(f"{name} is missing in the folder that --data names.")
    return read(path)


def _lift(method: str) -> None:
    """Take away a baseline's own limit on cells, in this process."""
    if method in CAPPED:
        module, limit = CAPPED[method]
        setattr(importlib.import_module(module), limit, 1 << 62)
