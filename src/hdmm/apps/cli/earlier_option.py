"""hdmm plan --with: only what earlier releases do not say well enough is planned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hdmm.apps.cli.facts import spec_facts
from hdmm.apps.cli.output import Output, number
from hdmm.engines import Device
from hdmm.io.strict_json import Json
from hdmm.publication.ask import open_published
from hdmm.publication.earlier import already, combined_for, lacking, together
from hdmm.publication.forecast import as_measured
from hdmm.publication.planning import make_plan
from hdmm.publication.spec import Spec


def plan_with(
    spec: Spec, folders: Sequence[Path], out: Output, engine: Device | None = None, *, same_rows: bool = False
) -> bool:
    """Tell what earlier releases say, plan for the rest, and tell what both say; whether it was interrupted."""
    release = combined_for(spec, [open_published(folder).release for folder in folders], same_rows=same_rows)
    found = already(spec, release)
    rest = lacking(spec, found)
    made = None if rest is None else make_plan(rest, trial=True, progress=None if out.speaks else False, engine=engine)
    both: dict[str, float | None] = (
        {} if rest is None or made is None else together(spec, release, as_measured(rest, made.plan))
    )
    rows = [
        [
            each.name,
            number(each.margin),
            number(each.asked),
            "left out" if each.enough else "planned",
            number(each.margin if rest is None else both[each.name]),
        ]
        for each in found
    ]
    out.table(
        f"Margins of error (±) of the worst row at {100 * spec.output.level:g} %",
        ["table", "by earlier\nreleases", "asked", "", "with\nthe plan"],
        rows,
    )
    if rest is None:
        out.say("Earlier releases say everything that was asked for well enough: nothing needs to be released.")
    else:
        names = ", ".join(table.name for table in rest.tables)
        out.say(
            f"A release of {names} at {spec.privacy} would have these margins, combined with the earlier ones "
            f"({'hdmm.combine with same_rows=True' if same_rows else 'hdmm.combine'}).",
            f"The plan was not saved. To release these tables alone: hdmm release {_only(spec, rest).command} --output "
            "FOLDER",
        )
    tables: list[Json] = [
        {
            "table": each.name,
            "already": each.margin,
            "asked": each.asked,
            "enough": each.enough,
            "together": each.margin if rest is None else both[each.name],
        }
        for each in found
    ]
    out.say("Nothing was spent.")
    out.result({**spec_facts(spec), "with": [str(folder) for folder in folders], "earlier": tables})
    return made is not None and made.interrupted


def _only(spec: Spec, rest: Spec) -> Spec:
    """The specification that --only makes of it: by [[table]]s where all their tables are left."""
    names: dict[str, None] = {}
    for table in rest.tables:
        whole = len(rest.groups[table.group]) == len(spec.groups[table.group])
        names[table.group if whole else table.name] = None
    return spec.only(list(names))
