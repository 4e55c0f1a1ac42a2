"""The method of a release: a paragraph that a reviewer can quote, and the facts that it rests on."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from importlib.metadata import version

from hdmm.base.numbers import date, many
from hdmm.privacy.guarantee import Noise
from hdmm.privacy.ledger import Receipt
from hdmm.privacy.units import UNITS, shown
from hdmm.publication.report.contents import Report, listed

_ESTIMATES = {
    "unbiased": "weighted least squares from all measurements",
    "nonnegative": "weighted least squares from all measurements under the condition that no count is below 0",
    "integers": "weighted least squares from all measurements under the condition that no count is below 0, rounded",
}


def quotable(report: Report) -> str:
    """How the tables were made, in sentences that stand alone."""
    about, blocks = report.letterhead, report.strategy.blocks
    whose = f" by {about.organisation}" if about.organisation else ""
    when = f" ({about.period})" if about.period else ""
    queries = many(sum(block.rows for block in blocks), "linear combination")
    tables = many(len(report.tables), "table")
    said = (
        f"“{report.title}”{when} was published{whose} on {date(report.created)} from the dataset {report.dataset}: "
        f"{many(report.counts, 'number')} in {tables}, protected by differential privacy with the High-Dimensional "
        f"Matrix Mechanism (McKenna, Miklau, Hay and Machanavajjhala, PVLDB 2018). {queries} in "
        f"{many(len(blocks), 'block')} were chosen without looking at the data ({report.operator}) and measured with "
        f"independent {_noise(report)} noise from the randomness of the operating system. The release satisfies "
        f"{report.guarantee}; two datasets are neighbours if they differ by {report.unit}. "
        f"{_accounting(report.receipts)} Everything else is post-processing: every number is estimated by "
        f"{_ESTIMATES[report.kind]}, with an interval from its exact variance."
    )
    if report.known:
        said += f" Counts {listed(report.known)} were public, and are reproduced without noise."
    digest = "" if report.digest is None else f" The specification has the SHA-256 digest {report.digest}."
    return f"{said} Software: hdmm {version('hdmm')}.{digest}"


def _accounting(receipts: Sequence[Receipt]) -> str:
    if not receipts:
        return "No ledger recorded what it spent."
    entries = listed([str(each.sequence) for each in receipts])
    records = "entry" if len(receipts) == 1 else "entries"
    return (
        f"It is {records} {entries} of the ledger of the dataset, which adds up the losses of all releases (sequential "
        f"composition) and refuses what exceeds a cap; the last hash is {receipts[-1].hash}."
    )


def spending(receipts: Sequence[Receipt]) -> tuple[str, str]:
    """What a release has spent, and what was left then."""
    if not receipts:
        return "Not recorded", "no ledger was debited for this release"
    last = receipts[-1]
    amounts = sum(receipt.amount for receipt in receipts), last.balance
    spent, balance = (shown(last.parameter, math.floor(amount * UNITS)) for amount in amounts)
    return f"{spent} spent", f"{balance} is left of the dataset’s budget"


def method_facts(report: Report) -> list[tuple[str, str]]:
    """The facts at the end of the page, by name."""
    facts = [
        ("Guarantee", report.guarantee),
        ("Unit of privacy", str(report.unit)),
        ("Noise", _noise(report)),
        ("Strategy found by", report.operator),
        ("Estimates", _ESTIMATES[report.kind]),
        ("Software", f"hdmm {version('hdmm')}, Python {platform.python_version()}, NumPy {version('numpy')}"),
    ]
    for receipt in report.receipts:
        facts += [
            ("Ledger entry", f"{receipt.sequence} of dataset {receipt.dataset}, {date(receipt.timestamp)}"),
            ("Hash of the entry", receipt.hash),
        ]
    return facts if report.digest is None else [*facts, ("Digest of the specification", report.digest)]


def _noise(report: Report) -> str:
    if report.exact_gaussian:
        return "Gaussian (rounded to whole numbers)"
    return "discrete Laplace" if report.privacy.noise is Noise.LAPLACE else "discrete Gaussian"
