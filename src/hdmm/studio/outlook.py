"""Promised: the margins that the saved plan promises, kept until the specification or the plan changes."""

from __future__ import annotations

import os
import threading
from typing import final

from hdmm.cli.plan import table_facts
from hdmm.exceptions import HdmmError
from hdmm.forecast import as_measured
from hdmm.io.strict_json import Json
from hdmm.outlook import least_privacy_for, refusal, table_outlooks
from hdmm.plan import load_plan
from hdmm.publication import answers, suits
from hdmm.spec import Spec
from hdmm.studio.view import amount_text, budget_number, short


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
    if not os.path.lexists(spec.plan.folder):
        return {"state": "none"}
    try:
        plan = load_plan(spec.plan.folder)
        if not answers(plan, spec):
            return {"state": "stale"}
        measured = as_measured(spec, plan)
        least = least_privacy_for(spec, plan)
        return {
            "state": "ready" if suits(plan, spec) else "other-goal",
            "tables": [table_facts(each) for each in table_outlooks(spec, measured)],
            "least": None if least is None else {"value": amount_text(budget_number(least)), "short": short(least)},
            "refused": refusal(spec, measured),
            "gap": plan.gap,
        }
    except HdmmError as wrong:
        return {"state": "refused", "refused": str(wrong)}


def _state_of(spec: Spec) -> tuple[int, int, int] | None:
    """By what a saved plan is known from the one before: it is written whole under another name, then renamed."""
    try:
        found = os.stat(spec.plan.folder / "plan.json")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
