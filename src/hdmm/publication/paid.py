"""Earlier releases: one is read for publishing only if the ledger paid for it (security L7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hdmm.base.exceptions import FileError, LedgerError
from hdmm.engines import Workers
from hdmm.measure.chunked_release import AnyRelease, load_chunked
from hdmm.measure.plan import Plan, load_plan
from hdmm.measure.release import load_release, verify_paid
from hdmm.publication.budget import Budget, budget_of
from hdmm.publication.planning import answers
from hdmm.publication.spec import Spec


def load_verified(spec: Spec, folder: Path, engine: Workers | None = None) -> tuple[AnyRelease, Plan, Budget]:
    """The release and the plan in a folder, if they are of this specification and paid for from its budget.

    Of a release in chunks, the folder holds a record, and the engine's folder the chunks.
    """
    release = load_release(folder / "release") if engine is None else load_chunked(engine, folder / "release")
    plan = load_plan(folder / "plan")
    if not answers(plan, spec):
        raise FileError(f"{folder} was released for other tables than {spec.path} has now. Change them back.")
    # Releases of early versions do not name the column of ids. What is published is their unit, so it claims no more.
    if release.privacy != spec.privacy or release.unit not in (spec.unit, replace(spec.unit, id=None)):
        raise FileError(
            f"{folder} was released at {release.privacy}, hiding {release.unit}; {spec.path} now says otherwise. "
            "Change it back."
        )
    if [(k.product, k.counts.tolist()) for k in release.known] != [(k.product, k.counts.tolist()) for k in spec.known]:
        raise FileError(f"{folder} was released beside other known counts than {spec.path} has now. Change them back.")
    return release, plan, _paying(spec, release, folder)


def _paying(spec: Spec, release: AnyRelease, folder: Path) -> Budget:
    """The budget that paid for this release; LedgerError unless its ledger holds the debit (security L7)."""
    path, dataset = spec.ledger.path, spec.data.dataset
    refused = f"Nothing is published from {folder / 'release'}, because nothing shows that it was paid for."
    named = f"[ledger] of {spec.path} names {path}"
    if release.receipt is not None and release.receipt.dataset != dataset:
        raise LedgerError(
            f"{refused} Its receipt is for dataset {release.receipt.dataset!r}, but {spec.path} says {dataset!r}. "
            "Write the dataset that it was measured on."
        )
    try:
        found = budget_of(spec)
    except LedgerError as wrong:
        raise LedgerError(f"{refused} {wrong} ({named}.)") from None
    if found.audit is None:
        raise LedgerError(
            f"{refused} {named}, which does not exist. If the ledger was moved, write its path there, or put both of "
            "its files back; if it is lost, restore it from a backup (docs/reference/ledger.md)."
        )
    if found.audit.account(dataset) is None:
        raise LedgerError(
            f"{refused} {named}, but that ledger has no account for dataset {dataset!r}. Write the path of the ledger "
            "that paid for the release."
        )
    try:
        verify_paid(release.receipt, release.digest, found.audit, dataset)
    except LedgerError as wrong:
        raise LedgerError(f"{refused} {wrong} ({named}.)") from None
    return found
