"""What the page shows of a specification, its budget and its publication, as JSON. Nothing here opens the data."""

from __future__ import annotations

import json
import math
import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast, final

from hdmm.apps.facts import to_json
from hdmm.apps.studio.edits import FORM_KEYS, declarations, table_texts
from hdmm.apps.studio.spec_file import Snapshot
from hdmm.base.exceptions import DomainError, HdmmError
from hdmm.describe.attribute import Attribute
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.table_query import TableQuery
from hdmm.io.strict_json import Json
from hdmm.measure.plan import Plan, load_plan
from hdmm.privacy.exact_number import format_amount
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Privacy, PureDP, parameter, short_name
from hdmm.privacy.spending import Parameter
from hdmm.privacy.units import UNITS, charge
from hdmm.publication.budget import Budget, converted, cost, unpayable
from hdmm.publication.forecast import as_measured
from hdmm.publication.metadata import read_metadata
from hdmm.publication.outlook import TableOutlook, outlook, table_outlooks
from hdmm.publication.planning import answers, suits
from hdmm.publication.preflight import check_replaceable, error_of, purpose_of, source_name
from hdmm.publication.protection import in_epsilon, in_full
from hdmm.publication.spec import Spec
from hdmm.publication.unpublished import how_to_publish, in_use, is_kept

_MOST_LABELS = 40  # of one attribute
_MOST_STEPS = 64  # of the slider
_TENTHS = (10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60, 70, 80, 90)  # of a decade


def spec_view(spec: Spec, found: Snapshot) -> dict[str, Json]:
    """Attributes, tables and privacy."""
    texts = table_texts(found.data)
    parts = [part for attribute in spec.domain.attributes for part in attribute.parts]
    return {
        "title": spec.title,
        "dataset": spec.data.dataset,
        "unit": str(spec.unit),
        "level": spec.output.level,
        "cells": spec.domain.size,
        "time_limit": spec.plan.time_limit,
        "output": str(spec.output.folder),
        "attributes": [attribute_view(part) for part in parts],
        "declared": cast(Json, declarations(found.data)),
        "tables": [_table(spec, *each, text) for each, text in zip(spec.groups.items(), texts, strict=True)],
        "privacy": _privacy(spec.privacy),
    }


def attribute_view(part: Attribute) -> Json:
    """An attribute or amount, and the first of its values."""
    values = part.values
    shown = [_label(part, code) for code in range(min(part.size, _MOST_LABELS))]
    kind = "whole numbers" if isinstance(values, Integers) else "bins" if isinstance(values, Bins) else "labels"
    other = values.outside == "other"
    if values.divided:
        kind = "added up"
    ends = f"{part.label(0)} to {part.label(part.size - 1 - other)}{', and other' if other else ''}"
    return {
        "name": part.name,
        "size": part.size,
        "kind": kind,
        "ends": part.values_in_words() if values.divided else ends if isinstance(values, Integers) else None,
        "counted": not values.divided,
        "ordered": part.ordered,
        "number": values.divided or _is_number(part),
        "values": shown,
        "levels": [level.name for level in values.levels],
    }


def _is_number(part: Attribute) -> bool:
    try:
        part.values.number(0)
    except DomainError:
        return False
    return True


def _label(part: Attribute, code: int) -> str:
    label = part.label(code)
    return str(label).lower() if isinstance(label, bool) else str(label)


def _table(spec: Spec, name: str, asked: Sequence[TableQuery], text: dict[str, Any]) -> Json:
    """A [[table]] as it is written, and how large it is. In `asked`, its name, and `heading` variables are replaced."""
    heading = str(text.get("title", name))
    for variable, value in spec.variables:
        heading = heading.replace(f"${{{variable}}}", value)
    measured = any(key in text for key in ("sum", "mean", "quantiles", "percent"))
    kind = "sql" if "sql" in text else "ranges" if "ranges" in text else "measures" if measured else "marginals"
    other = sorted(text.keys() - {*FORM_KEYS})
    return {
        **{key: cast(Json, text.get(key)) for key in FORM_KEYS},
        "margin": asked[0].margin,
        "margin_text": cast(Json, text.get("margin")),
        "asked": name,
        "heading": heading,
        "kind": "other" if other else kind,
        "other": cast(Json, other),
        "rows": sum(table.rows for table in asked),
        "count": len(asked),
        "columns": cast(Json, list(asked[0].columns)) if len(asked) == 1 else None,
        "exact": all(table.aimable for table in asked),
    }


def _privacy(privacy: Privacy) -> Json:
    return {
        "symbol": parameter(privacy)[0][0],
        "value": format_amount(budget_number(privacy)),
        "delta": str(privacy.delta) if isinstance(privacy, ApproxDP) else None,
        "short": short_name(privacy),
        "meaning": str(privacy),
        "noise": privacy.noise.value,
    }


def budget_number(privacy: Privacy) -> Fraction:
    """The ε, ρ or μ that a slider moves."""
    match privacy:
        case PureDP(number) | ZCDP(number) | GaussianDP(number):
            return number
        case ApproxDP(epsilon):
            return epsilon


def with_budget(privacy: Privacy, text: str) -> Privacy:
    """The same kind of guarantee with another ε, ρ or μ; PrivacyError if the text is not an exact number."""
    return ApproxDP(text, privacy.delta) if isinstance(privacy, ApproxDP) else type(privacy)(text)


def budget_view(spec: Spec, account: Budget) -> dict[str, Json]:
    """What is spent and left, whether the release can be paid, and what to say before an account is opened."""
    asked = cost(spec, account)
    return {
        "ledger": str(spec.ledger.path),
        "cap": account.shown(account.cap),
        "cap_in_epsilon": account.cap_in_epsilon,
        "spent": account.shown(account.spent),
        "left": account.shown(account.remaining),
        "share_spent": float(account.spent / account.cap),
        "share_asked": float(asked / account.cap),
        "asked": account.shown(asked),
        "after": account.shown(account.remaining - asked) if asked <= account.remaining else None,
        "refused": unpayable(spec, account),
        "near": account.name_warning,
        "record": record_of(account),
        "records": len(account.entries),
    }


def record_of(account: Budget) -> str:
    """What the ledger last recorded for the dataset: a release is confirmed for this state and no other."""
    return account.entries[-1].hash if account.entries else "none"


def budget_steps(spec: Spec, account: Budget) -> list[Json]:
    """Round budgets for the slider, up to the cap, and the one in the file."""
    rounded = [format_amount(tenths * Fraction(10) ** (k - 1)) for k in range(-5, 4) for tenths in _TENTHS]
    end = bisect_right(rounded, account.cap, key=lambda text: _price(spec, account, text).asked)
    values = {*rounded[max(end - _MOST_STEPS, 0) : end], format_amount(budget_number(spec.privacy))}
    return [budget_step(spec, account, text) for text in sorted(values, key=Fraction)]


def budget_step(spec: Spec, account: Budget, text: str) -> Json:
    """What a budget would do: by how much margins change, what it costs, and what it leaves."""
    found = _price(spec, account, text)
    here = _price(spec, account, format_amount(budget_number(spec.privacy)))
    return {
        "value": format_amount(found.amount),
        "number": float(found.amount),
        "label": f"{parameter(spec.privacy)[0][0]} = {format_amount(found.amount)}",
        "meaning": found.meaning,
        "factor": math.sqrt(found.variance / here.variance),
        "asked": account.shown(found.asked),
        "share": float(found.asked / account.cap),
        "after": account.shown(account.remaining - found.asked) if found.asked <= account.remaining else None,
    }


@final
@dataclass(frozen=True, slots=True)
class _Price:
    """What a guarantee is, does and costs."""

    amount: Fraction  # ε, ρ or μ
    variance: Fraction  # of the noise at sensitivity 1
    asked: Fraction  # of the account
    meaning: str  # as ε at a small δ, where it does not state its own


def _price(spec: Spec, account: Budget, text: str) -> _Price:
    return _priced(spec.privacy, text, account.parameter, account.times(spec.unit))


@lru_cache(maxsize=4096)
def _priced(like: Privacy, text: str, counted: Parameter, times: int) -> _Price:
    """The price of the same kind of guarantee with another number. Kept, because (ε, δ) takes milliseconds."""
    other = with_budget(like, text)
    price = Fraction(charge(other, counted, times, gaussian=True), UNITS)
    return _Price(budget_number(other), other.variance_factor, price, in_epsilon(other))


@final
class OutlookCache:
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
                self._found = _outlook_view(spec)
                self._key = key
            return self._found


def _outlook_view(spec: Spec) -> dict[str, Json]:
    """What the saved plan promises for the tables as they are now, also for those it was not made for."""
    if not os.path.lexists(spec.plan.folder):
        return {"state": "none"}
    try:
        plan = load_plan(spec.plan.folder)
        if not answers(plan, spec):
            return {"state": "stale", **_old_margins(spec, plan)}
        found = outlook(spec, plan)
        return {
            "state": "ready" if suits(plan, spec) else "other-goal",
            "tables": _finite(found.tables),
            "least": None if found.least is None else short_name(found.least.privacy),
            "remark": found.remark,
            "refused": found.refused,
            "gap": plan.gap,
        }
    except HdmmError as wrong:
        return {"state": "refused", "refused": str(wrong)}


def _old_margins(spec: Spec, plan: Plan) -> dict[str, Json]:
    """The margins of tables by a plan that was made for others, where it measures them; nothing if it cannot say."""
    if plan.workload.domain != spec.domain or plan.noise != spec.privacy.noise:
        return {}
    try:
        return {"tables": _finite(table_outlooks(spec, as_measured(spec, plan).form)), "gap": None}
    except HdmmError:
        return {}


def _finite(tables: Sequence[TableOutlook]) -> Json:
    return to_json([each for each in tables if math.isfinite((each.worst or 0.0) + (each.typical or 0.0))])


def _state_of(spec: Spec) -> tuple[int, int, int] | None:
    """By what a saved plan is known from the one before: it is written whole under another name, then renamed."""
    try:
        found = os.stat(spec.plan.folder / "plan.json")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def publication_view(spec: Spec, account: Budget) -> dict[str, Json]:
    """What the output folder holds, and what a run that was killed has left."""
    written: dict[str, Json] = {}
    with suppress(HdmmError):
        written = read_metadata(spec.output.folder) or {}
    blocked = error_of(lambda: check_replaceable(spec, force=True))
    receipt = written.get("receipt")
    paid = receipt.get("hash") if isinstance(receipt, dict) else None
    return {
        "report": os.path.isfile(spec.output.folder / "report.html"),
        "created": written.get("created"),
        "title": written.get("title"),
        "blocked": None if blocked is None else str(blocked),
        "running": in_use(spec),
        "kept": how_to_publish(spec) if is_kept(spec) else None,
        "lost": _lost(spec, account, paid),
    }


def _lost(spec: Spec, account: Budget, paid: object) -> str | None:
    """What to say if the last debit was for these tables and the output folder does not hold what it paid for."""
    debits = [entry for entry in account.entries if entry.kind == "debit"]
    if not debits or debits[-1].hash == paid or debits[-1].text != purpose_of(spec, None):
        return None
    last = debits[-1]
    return (
        f"The ledger debited {account.shown(last.amount)} for these tables at {last.timestamp} (record "
        f"{last.sequence}), but {spec.output.folder} does not hold that release. If you moved the folder, all is well. "
        "If the run was killed while it counted, that budget stays spent, and a new release spends again."
    )


def offer(spec: Spec, account: Budget, digest: str) -> dict[str, Json]:
    """What a user must read and agree to before a release: exactly what is spent, from where, and for what."""
    asked = cost(spec, account)
    replaced = os.path.isfile(spec.output.folder / "metadata.json")
    return {
        "digest": digest,
        "record": record_of(account),
        "type": format_amount(budget_number(spec.privacy)),
        "short": short_name(spec.privacy),
        "meaning": f"{in_full(spec.privacy)}{converted(spec, account)}",
        "asked": account.shown(asked),
        "dataset": account.dataset,
        "ledger": str(spec.ledger.path),
        "left": account.shown(account.remaining),
        "after": account.shown(account.remaining - asked),
        "unit": str(spec.unit),
        "tables": cast(Json, _names(list(spec.groups))),
        "output": str(spec.output.folder),
        "source": source_name(spec),
        "replaces": replaced,
        "near": account.name_warning,
    }


def _names(names: Sequence[str]) -> list[str]:
    return [*names[:12], *([f"and {len(names) - 12} more"] if len(names) > 12 else [])]


def as_json(value: Json) -> bytes:
    """JSON text without NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
