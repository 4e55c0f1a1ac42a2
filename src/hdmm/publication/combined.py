"""A publication of several releases of the same rows as one: more accurate than each, at no further cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hdmm.base.exceptions import FileError
from hdmm.base.numbers import many
from hdmm.io.folder import whole_folder
from hdmm.measure.combine import combine
from hdmm.measure.release import Release
from hdmm.publication.forecast import forecasts
from hdmm.publication.outlook import combined_for
from hdmm.publication.preflight import check_replaceable, require_paid
from hdmm.publication.publish import write_files
from hdmm.publication.published import Published
from hdmm.publication.spec import Spec


def combine_publications(
    found: Sequence[Published],
    target: Path,
    ledger: tuple[Path, str],
    spec: Spec | None = None,
    *,
    same_rows: bool = False,
    force: bool = False,
) -> Release:
    """Write what several publications measured as one release; with a specification, also its tables and a report.

    Reads no data, spends nothing. The ledger, which is its path and what names it, must have paid for every release.
    """
    releases = [each.release for each in found]
    for each in found:
        require_paid(each.release, each.folder, *ledger)
    if spec is None:
        both = combine(releases, same_rows=same_rows)
        with whole_folder(target, partial(_refuse_existing, target)) as folder:
            both.save(folder / "release")
        return both
    both = combined_for(spec, releases, same_rows=same_rows)
    spec = replace(spec.redirected(None, target), privacy=both.privacy)
    expected = forecasts(spec, both.form)
    with whole_folder(target, partial(check_replaceable, spec, force=force)) as folder:
        both.save(folder / "release")
        write_files(spec, both, f"Combination of {many(len(both.parts), 'release')}", expected, folder)
    return both


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileError(f"{target} exists. Choose another folder with --output.")
