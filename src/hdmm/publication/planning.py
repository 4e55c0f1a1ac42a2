"""The plan of a specification: made, kept in its folder, and used again as long as the tables stay the same."""

from __future__ import annotations

import os
from pathlib import Path

from hdmm.exceptions import FileError
from hdmm.plan import Plan, load_plan, optimize
from hdmm.spec import Spec


def make_plan(spec: Spec, *, progress: bool | None = None) -> Plan:
    """A plan for the specification, saved in its plan folder. Reads no data, spends nothing."""
    folder = spec.plan.folder
    if not os.access(folder.parent, os.W_OK):  # refused before a minute is spent on a plan that could not be kept
        raise FileError(f"{folder} cannot be saved: {folder.parent} does not exist or is not writable. Check the path.")
    plan = optimize(
        spec.workload,
        noise=spec.privacy.noise,
        restarts=spec.plan.restarts,
        seed=spec.plan.seed,
        time_limit=spec.plan.time_limit,
        progress=progress,
    )
    plan.save(folder)
    return plan


def plan_for(spec: Spec, folder: Path | None = None, *, progress: bool | None = None) -> Plan:
    """The plan in a folder, or the one saved for the specification; a new one if that no longer suits it."""
    if folder is not None:
        plan = load_plan(folder)
        if not suits(plan, spec):
            raise FileError(
                f"The plan in {folder} was made for other tables, another domain or other noise. Plan again."
            )
        return plan
    if os.path.lexists(spec.plan.folder):
        plan = load_plan(spec.plan.folder)
        if suits(plan, spec):
            return plan
    return make_plan(spec, progress=progress)


def suits(plan: Plan, spec: Spec) -> bool:
    """Whether a plan was made for these tables, weights, domain and noise."""
    return plan.workload == spec.workload and plan.noise == spec.privacy.noise
