"""TOML text → Spec: the records, checked by the values they become. docs/reference/spec.md describes the keys."""

from __future__ import annotations

import base64
import hashlib
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from hdmm.base.exceptions import FileError, PrivacyError, SpecError
from hdmm.data.engines.address import has_secret, is_address
from hdmm.describe.amount import Amount
from hdmm.describe.domain import Declaration, Domain
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values
from hdmm.privacy.guarantee import Privacy, PureDP
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.publication.spec.document import MOST_SPEC_BYTES, Document, used_in, without_variables
from hdmm.publication.spec.keys import DataPart, LedgerKeys, PrivacyKeys, SpecFile, ValuesKeys, read_path
from hdmm.publication.spec.model import LedgerPart, Spec
from hdmm.publication.spec.public_csv import known_tables, read_lookup
from hdmm.publication.spec.tables import table_queries
from hdmm.sql.row_filter import row_filter

_MOST_LOGO = 2**20  # bytes
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def load_spec(
    path: str | os.PathLike[str],
    *,
    variables: Mapping[str, str] | None = None,
    source: str | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Spec:
    """The specification in a file. Reads no data; paths in it are relative to its folder.

    `variables` are put in place of ${NAME} in its texts; `source` and `output`, relative to the current folder, take
    the place of those that it names.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "ages.toml"
    >>> _ = file.write_text('''
    ... [data]
    ... dataset = "people-2026"
    ... [domain]
    ... sex = ["M", "F"]
    ... age = { first = 0, last = 114 }
    ... [[table]]
    ... name = "P12"
    ... sql = "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age"
    ... [privacy]
    ... epsilon = "0.5"
    ... [ledger]
    ... path = "budget.db"
    ... cap = { epsilon = "4" }
    ... ''')
    >>> load_spec(file).workload
    Workload(230 queries in 1 product over 230 cells)
    """
    place = Path(path)
    try:
        with open(place, "rb") as file:
            data = file.read(MOST_SPEC_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no path"
        raise SpecError(
            f"The file cannot be read ({reason}). Check the path, or create a file with hdmm init.",
            file=str(path),
            line=1,
            key="",
        ) from None
    return read_spec(data, place, variables).redirected(source, output)


def read_spec(data: bytes, path: Path, variables: Mapping[str, str] | None = None) -> Spec:
    """The specification that the bytes of a file spell."""
    document = Document.of(data, str(path), variables or {})
    file = document.record(SpecFile, read_path)
    base = path.parent
    _check_data(document, file.data)
    privacy = _privacy(document, file.privacy)
    declared = _domain(document, file, base)
    domain, tables = table_queries(document, file, base, declared)
    if file.plan.objective is not None and any(table.margin is not None for table in tables):
        raise document.error(
            ("plan", "objective"),
            "Tables have margins, and these are what the plan aims at. Leave out the objective, or every margin.",
        )
    plan = file.plan.folder if file.plan.folder.name else Path(f"{path.stem}.plan")
    return Spec(
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
        title=file.title or file.data.dataset,
        data=file.data,
        domain=domain,
        tables=tables,
        privacy=privacy,
        unit=Unit(rows=file.data.max_rows_per_id or 1, neighbours=file.data.neighbours, id=file.data.id),
        ledger=_ledger(document, file.ledger, base, privacy),
        output=replace(file.output, folder=base / file.output.folder),
        plan=replace(file.plan, folder=base / plan),
        impossible=tuple(file.impossible),
        letterhead=file.report,
        logo=_logo(document, file.report.logo, base),
        known=known_tables(document, file.known, base, declared, domain),
        variables=tuple((variables or {}).items()),
        **_secrets(document, file.data.source),
    )


def _logo(document: Document, logo: Path | None, base: Path) -> str | None:
    """The logo of the letterhead, read now, so that a file that is missing is refused before any debit."""
    with document.locating("report", "logo"):
        return None if logo is None else read_logo(base / logo)


def read_logo(path: Path) -> str:
    """A picture as a data URL. A browser runs nothing in a picture, an SVG included, that it shows as one."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_LOGO + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}. Give the path of a picture.") from None
    if len(data) > _MOST_LOGO:
        raise FileError(
            f"{path} has more than {_MOST_LOGO:,} bytes. Every report holds the logo, so give a smaller one."
        )
    kind = next((kind for start, kind in _PICTURES.items() if data.startswith(start)), None)
    if kind is None and b"<svg" in data[:4096]:
        kind = "image/svg+xml"
    if kind is None:
        raise FileError(f"{path} is not a picture that pages show. Give an SVG, PNG, JPEG or GIF file.")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _secrets(document: Document, source: str | None) -> dict[str, Any]:
    """Which variables are in the address of a database, and whether a password is written into it (security O6)."""
    if source is None or not is_address(source):
        return {}
    written = cast(str, document.written["data"]["source"])
    return {"withheld": used_in(written), "tells_secret": has_secret(without_variables(written))}


def _check_data(document: Document, data: DataPart) -> None:
    if data.id is None and data.max_rows_per_id is not None:
        raise document.error(
            ("data", "max_rows_per_id"), "This key needs id, the column that says whose row it is. Add id."
        )
    if data.id is not None and data.max_rows_per_id is None:
        raise document.error(
            ("data", "id"), "This key needs max_rows_per_id, the most rows of one person that are counted. Add it."
        )
    if data.where is not None:
        with document.locating("data", "where"):
            row_filter(data.where)
    name = data.dataset
    if not name.isprintable() or name != unicodedata.normalize("NFC", name.strip()) or len(name) > 500:
        raise document.error(
            ("data", "dataset"), "A dataset's name is one printable line in Unicode NFC without spaces at its ends."
        )


def _domain(document: Document, file: SpecFile, base: Path) -> Domain:
    declared: dict[str, Declaration] = {}
    amounts: dict[str, Amount] = {}
    for name, value in file.domain.items():
        with document.locating("domain", name):
            declared[name] = _declared(document, name, value, base) if isinstance(value, ValuesKeys) else value
            Domain({name: declared[name]})
    for name, keys in file.amounts.items():
        with document.locating("amounts", name):
            amounts[name] = Amount(keys.low, keys.high, step=keys.step)
            Domain(declared, amounts={name: amounts[name]})
    with document.locating("domain"):
        return Domain(declared, amounts=amounts)


def _declared(document: Document, name: str, keys: ValuesKeys, base: Path) -> Values:
    """The values that keys declare. Without labels, a file of levels says what the values are."""
    given = keys.levels if isinstance(keys.levels, dict) else {}
    lookup = base / keys.levels if isinstance(keys.levels, str) else None
    if keys.groups and keys.first is None:
        raise document.error(("domain", name, "groups"), "Groups are of integers, with first and last. Use levels.")
    match keys:
        case ValuesKeys(labels=list(labels), bins=None, values=None, first=None, last=None, step=None):
            values = Labels(labels, outside=keys.outside, levels=given)
        case ValuesKeys(labels=None, bins=list(bins), first=None, last=None, step=None):
            values = Bins(bins, outside=keys.outside, values=keys.values, levels=given)
        case ValuesKeys(labels=None, bins=None, values=None, first=int(first), last=int(last)):
            values = Integers(first, last, step=keys.step or 1, outside=keys.outside, levels=given, groups=keys.groups)
        case ValuesKeys(labels=None, bins=None, values=None, first=None, last=None, step=None) if lookup is not None:
            labels, levels = read_lookup(lookup, None)
            return Labels(labels, outside=keys.outside, levels=levels)
        case _:
            raise document.error(
                ("domain", name), "Give one of labels, bins, or first and last, such as { first = 0, last = 114 }."
            )
    if lookup is None:
        return values
    return values.with_levels({**{level.name: level for level in values.levels}, **read_lookup(lookup, values)[1]})


def _privacy(document: Document, keys: PrivacyKeys) -> Privacy:
    given = [key for key in ("epsilon", "rho", "mu") if getattr(keys, key) is not None]
    with document.locating("privacy", *given[:1]):
        return keys.guarantee


def _ledger(document: Document, ledger: LedgerKeys, base: Path, privacy: Privacy) -> LedgerPart:
    with document.locating("ledger", "cap"):
        cap = ledger.cap.guarantee
        if isinstance(cap, PureDP) and not isinstance(privacy, PureDP):
            raise PrivacyError(
                "The cap is in epsilon alone, which bounds no Gaussian noise, and this privacy adds it. Declare "
                "the cap in rho or mu, or as epsilon with delta."
            )
    return LedgerPart(base / ledger.path, cap)
