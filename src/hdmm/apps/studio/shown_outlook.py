"""Promised: the margins that the saved plan promises, kept until the specification or the plan changes."""

from __future__ import annotations

import math
import os
import threading
from typing import final

from hdmm.apps.cli.plan_command import table_facts
from hdmm.apps.studio.view import short
from hdmm.base.exceptions import HdmmError
from hdmm.io.strict_json import Json
from hdmm.measure.plan import Plan, load_plan
from hdmm.measure.prepare import Prepared
from hdmm.publication.forecast import as_measured
from hdmm.publication.outlook import least_privacy_for, refusal, table_outlooks
from hdmm.publication.planning import answers, suits
from hdmm.publication.spec import Spec


@final
class Promised:
    """What was last computed about a plan. Threads ask one after the other, so that nothing is computed twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: object = None
        self._found: dict[str, Json] = {}

    def at(self, spec: Spec) -> dict[str, Json]:
        """The margins by the plan that is saved for a specification, as JSON; what is the matter if there are none."""
        with self._lock:
            key = (spec.digest, _state_of(spec))
            if key != self._key:
                self._found = _look(spec)
                self._key = key
            return self._found


def _look(spec: Spec) -> dict[str, Json]:
    """What the saved plan promises for the tables as they are now, also for those it was not made for."""
    if not os.path.lexists(spec.plan.folder):
        return {"state": "none"}
    try:
        plan = load_plan(spec.plan.folder)
        if not answers(plan, spec):
            return {"state": "stale", **_old_margins(spec, plan)}
        measured = as_measured(spec, plan)
        least = least_privacy_for(spec, plan)
        return {
            "state": "ready" if suits(plan, spec) else "other-goal",
            "tables": _tables(spec, measured),
            "least": None if least is None else short(least),
            "refused": refusal(spec, measured),
            "gap": plan.gap,
        }
    except HdmmError as wrong:
        return {"state": "refused", "refused": str(wrong)}


def _old_margins(spec: Spec, plan: Plan) -> dict[str, Json]:
    """The margins of tables by a plan that was made for others, where it measures them; nothing if it cannot say."""
    if plan.workload.domain != spec.domain or plan.noise != spec.privacy.noise:
        return {}
    try:
        return {"tables": _tables(spec, as_measured(spec, plan)), "gap": None}
    except HdmmError:
        return {}


def _tables(spec: Spec, measured: Prepared) -> list[Json]:
    found = table_outlooks(spec, measured)
    return [table_facts(each) for each in found if math.isfinite((each.worst or 0.0) + (each.typical or 0.0))]


def _state_of(spec: Spec) -> tuple[int, int, int] | None:
    """By what a saved plan is known from the one before: it is written whole under another name, then renamed."""
    try:
        found = os.stat(spec.plan.folder / "plan.json")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
