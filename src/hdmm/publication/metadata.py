"""What is said of published tables, for programs: metadata.json, and the data dictionary, datapackage.json.

The metadata has what a reader of the tables must know: guarantee, unit, receipt, versions, errors. The dictionary is a
Frictionless Data Package, which describes every file of `tables`: what each column holds, which are estimates and
margins, and the size and the SHA-256 of the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from msgspec import structs

from hdmm.answers.margins import GOOD
from hdmm.answers.table import BINNED, Forecast
from hdmm.base.exceptions import FileError
from hdmm.io.strict_json import MOST_BYTES, Json, parse
from hdmm.measure.chunked_release import AnyRelease
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.ledger import Receipt
from hdmm.publication.answered import measured_at, receipts_of, reliability_of
from hdmm.publication.files import file_paths
from hdmm.publication.protection import Protection, in_full
from hdmm.publication.report.contents import counted_rows
from hdmm.publication.spec import Spec

COUNTS = {
    "unbiased": "Counts and sums are unbiased; they may be fractional or below 0. Means, percentages and quantiles are "
    "computed from them.",
    "nonnegative": "No count is below 0, and tables add up. This makes estimates biased: small counts are too large "
    "on average, and large ones too small. Standard deviations are those of the unbiased estimates.",
    "integers": "Counts are whole numbers that are not below 0, and tables add up. This makes estimates biased: small "
    "counts are too large on average, and large ones too small. Standard deviations are those of the unbiased "
    "estimates.",
}
PUBLICATION_FORMAT = "hdmm publication"


def metadata(spec: Spec, release: AnyRelease, expected: Sequence[Forecast]) -> dict[str, Json]:
    """What a reader of the tables must know, as JSON: guarantee, unit, receipt, versions, errors."""
    receipt, rule = release.receipt, reliability_of(spec.output)
    about = structs.asdict(spec.letterhead).items()
    publisher: dict[str, Json] = {key: value for key, value in about if value and key != "logo"}  # the report has it
    return {
        "format": PUBLICATION_FORMAT,
        "version": 1,
        "title": spec.title,
        "dataset": spec.data.dataset,
        "created": measured_at(release),
        "privacy": privacy_facts(release.privacy),
        "protection": protection_facts(Protection.of(release.privacy, gaussian=release.exact_gaussian)),
        "unit": {"rows": release.unit.rows, "neighbours": release.unit.neighbours, "meaning": str(release.unit)},
        "receipt": None if receipt is None else _paid(receipt),
        **({"publisher": publisher} if publisher else {}),
        **({"combined_from": [_paid(each) for each in receipts_of(release)]} if receipt is None else {}),
        **({"published_without_noise": _known(release)} if release.known else {}),
        **({"impossible": list(spec.impossible)} if spec.impossible else {}),
        "rows": {"max_rows_per_id": spec.data.max_rows_per_id, "meaning": rows_meaning(spec)},
        "level": spec.output.level,
        "reliability": {"good": min(GOOD, rule.fair), "fair": rule.fair, "suppress": rule.suppress},
        "counts": {"kind": spec.output.counts, "meaning": COUNTS[spec.output.counts]},
        "specification": {
            "file": spec.path.name,
            # Of a file that holds a password, a digest is not published, because passwords can be guessed by it.
            **({} if spec.tells_secret else {"sha256": spec.digest}),
            **({"variables": spec.recorded} if spec.recorded else {}),
        },
        "versions": {name: version(name) for name in ("hdmm", "numpy", "scipy", "pyarrow", "duckdb")},
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "rows": table.rows,
                "asked_by": table.group,
                "files": list[Json](file_paths(table.name)),
                "columns": list(table.columns),
                **({"impossible_rows": int(table.impossible.sum())} if table.impossible.any() else {}),
                **({"bins": BINNED} if table.binned else {}),
                "rmse": None if table.binned else forecast.rmse,
                "rmse_identity": None if table.binned else forecast.identity,
                "rmse_direct": None if table.binned else forecast.direct,
                "rmse_bound": None if table.binned else forecast.bound,
                **({"rmse_assumes": forecast.assumed} if forecast.assumed is not None else {}),
            }
            for table, forecast in zip(spec.tables, expected, strict=True)
        ],
    }


def read_metadata(folder: Path, *, links: bool = True) -> dict[str, Json] | None:
    """The content of the metadata in a folder; None if there is none. Without `links`, the file must not be a link."""
    path = folder / "metadata.json"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)), "rb") as file:
            found = parse(file.read(MOST_BYTES), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}. Check the folder.") from None
    return found if isinstance(found, dict) else {}


def rows_meaning(spec: Spec) -> str:
    """Which rows the tables are about, in sentences."""
    about = spec.data
    return " ".join(
        counted_rows(spec.domain, most_rows=about.max_rows_per_id, impossible=spec.impossible, where=about.where)
    )


def _paid(receipt: Receipt) -> dict[str, Json]:
    """A receipt as JSON; the dataset is stated once for all."""
    stated = {"amount": str(receipt.amount), "balance": str(receipt.balance)}
    return {name: value for name, value in (asdict(receipt) | stated).items() if name != "dataset"}


def _known(release: AnyRelease) -> list[Json]:
    """The counts that were declared as public, and are reproduced as they were."""
    return [{"attributes": list(known.attributes), "rows": known.total} for known in release.known]


def privacy_facts(privacy: Privacy) -> dict[str, Json]:
    """A guarantee as JSON: its exact parameters as text, and the sentence that states it."""
    parameters: dict[str, Json] = {name: str(value) for name, value in asdict(privacy).items()}
    return {**parameters, "meaning": str(privacy)}


def protection_facts(found: Protection) -> dict[str, Json]:
    """All that a guarantee states at once, each number rounded up; null is what is not known."""
    return {
        "mu": found.mu,
        "rho": found.rho,
        "epsilon": found.pure,
        "epsilon_at": [{"delta": delta, "epsilon": epsilon} for epsilon, delta in found.pairs],
        "best_guess": found.guess,
    }


def data_package(spec: Spec, release: AnyRelease, resources: Sequence[Json]) -> dict[str, Json]:
    """The content of datapackage.json: what is said of all tables, and of each file."""
    return {
        "profile": "data-package",
        "title": spec.title,
        "created": measured_at(release),
        "description": f"{in_full(release.privacy, gaussian=release.exact_gaussian)}, hiding {release.unit}. "
        f"{rows_meaning(spec)} {COUNTS[spec.output.counts]}",
        "resources": list(resources),
    }
