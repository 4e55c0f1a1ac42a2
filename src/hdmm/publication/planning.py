"""The plan of a specification: made, kept in its folder, and used again while tables and goal stay the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from hdmm.base.durable import make_parents
from hdmm.base.exceptions import FileError, HdmmError
from hdmm.engines import Device
from hdmm.io.folder import as_file_error
from hdmm.measure.optimize import optimize
from hdmm.measure.plan import Plan, load_plan
from hdmm.publication.spec import Spec
from hdmm.reconstruct.known import known_products
from hdmm.select.opt_hdmm import INTERRUPTED, Listener


@final
@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan and what became of it: it was saved, or a saved one is as good and was kept, or it is a trial."""

    plan: Plan
    outcome: Literal["saved", "kept", "trial"]
    interrupted: bool


def make_plan(
    spec: Spec,
    *,
    force: bool = False,
    trial: bool = False,
    progress: bool | None = None,
    listener: Listener | None = None,
    engine: Device | None = None,
) -> Planned:
    """A plan for the specification, saved in its plan folder unless it is a trial. Reads no data, spends nothing.

    A saved plan for the same tables, noise and goal that is as good is kept, unless `force` replaces it. Ctrl-C ends
    the search with the best plan so far. An engine, `hdmm.engines.gpu()`, is for the search.
    """
    folder = spec.plan.folder
    if not trial:
        check_parent(folder)  # said before a minute is spent on what could not be kept
    plan = optimize(
        spec.goal,
        known=spec.known,
        noise=spec.privacy.noise,
        restarts=spec.plan.restarts,
        seed=spec.plan.seed,
        time_limit=spec.plan.time_limit,
        progress=progress,
        listener=listener,
        engine=engine,
        keep_interrupted=True,
    )
    interrupted = plan.stopped == INTERRUPTED
    if trial:
        return Planned(plan, "trial", interrupted)
    saved = None if force else _saved(spec)
    if saved is not None and suits(saved, spec) and saved.value <= plan.value:
        return Planned(saved, "kept", interrupted)
    with as_file_error(f"{folder} cannot be saved"):
        make_parents(folder)
    plan.save(folder)
    return Planned(plan, "saved", interrupted)


def check_parent(folder: Path) -> None:
    """Raise FileError if a folder cannot be made at this path, with the folders above it that are missing."""
    there = next(parent for parent in folder.absolute().parents if os.path.lexists(parent))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise FileError(f"{folder} cannot be saved: {there} is not a folder, or may not be written. Check the path.")


def plan_for(
    spec: Spec, folder: Path | None = None, *, progress: bool | None = None, engine: Device | None = None
) -> Plan:
    """The plan in a folder, or the one saved for the specification; a new one where that does not suit it any more.

    Where the search for a new one is interrupted, the best plan so far is saved, and the interruption goes on: nobody
    who pressed Ctrl-C wants a release.
    """
    if folder is not None:
        plan = load_plan(folder)
        if not answers(plan, spec):
            raise FileError(
                f"The plan in {folder} was made for other tables, another domain or other noise. Plan again."
            )
        return plan
    if os.path.lexists(spec.plan.folder):
        plan = load_plan(spec.plan.folder)
        if suits(plan, spec):
            return plan
    made = make_plan(spec, progress=progress, engine=engine)
    if made.interrupted:
        raise KeyboardInterrupt
    return made.plan


def answers(plan: Plan, spec: Spec) -> bool:
    """Whether a plan was made for these tables, weights, domain and noise, beside such known counts, for any goal."""
    same = known_products(plan.known) == known_products(spec.known)
    return same and plan.workload == spec.workload and plan.noise == spec.privacy.noise


def suits(plan: Plan, spec: Spec) -> bool:
    """Whether a plan was made for these tables, weights, domain, noise and goal; at which level does not matter."""
    made, goal = plan.goal, spec.goal
    return answers(plan, spec) and (made.tables, made.objective, made.targets) == (
        goal.tables,
        goal.objective,
        goal.targets,
    )


def _saved(spec: Spec) -> Plan | None:
    try:
        return load_plan(spec.plan.folder) if os.path.lexists(spec.plan.folder) else None
    except HdmmError:  # what cannot be read is replaced, as ever
        return None
