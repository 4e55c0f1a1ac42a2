"""All that a specification may contain: keys, types, bounds, and what each is for. The schema for editors follows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from hdmm.io.records import MisfitError, Record, described
from hdmm.values import Outside

_MOST_FLOAT = sys.float_info.max  # infinity is beyond it
_MOST_SIZE = 2**62

Text: TypeAlias = Annotated[str, Meta(pattern=r"^\s*[^\s\u0000][^\u0000]*$")]
Exact: TypeAlias = Annotated[
    str | int | float,
    Meta(
        description='A positive number; exact in quotes, such as "0.5" or "1/3".',
        extra={"expected": 'a number, exact in quotes, such as "0.5",'},
    ),
]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=_MOST_FLOAT)]
Whole: TypeAlias = Annotated[int, Meta(ge=-_MOST_SIZE, le=_MOST_SIZE)]
SpecLabel: TypeAlias = str | int | float | bool


_ALIKE = Meta(extra_json_schema={"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "array"}}]})


class DataPart(Record, frozen=True, kw_only=True):
    """[data]"""

    source: Annotated[
        Text | None,
        Meta(
            description="A .csv, .csv.gz, .parquet or .duckdb file, a folder of CSV or Parquet files, or a connection "
            "URL of Ibis."
        ),
    ] = None
    table: Annotated[Text | None, Meta(description="The table of a database.")] = None
    dataset: Annotated[Text, Meta(description="The identity that the budget belongs to.")]
    id: Annotated[Text | None, Meta(description="The column that says whose row it is.")] = None
    max_rows_per_id: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="How many rows of one person are counted at most."),
    ] = None
    neighbours: Annotated[
        Literal["add-remove", "replace"],
        Meta(description="What is hidden: that someone is in the data, or which of several records is theirs."),
    ] = "add-remove"
    columns: Annotated[dict[str, Text], Meta(description="The column of an attribute where it has another name.")] = (
        field(default_factory=dict[str, str])
    )
    rows_bound: Annotated[
        Annotated[int, Meta(ge=1, le=2**38)] | None, Meta(description="More rows than the data can have; public.")
    ] = None


class ValuesKeys(Record, frozen=True, kw_only=True):
    """One attribute of [domain], declared by keys."""

    labels: Annotated[list[SpecLabel], Meta(extra_json_schema={"minItems": 1})] | None = None
    bins: Annotated[list[int | float], Meta(extra_json_schema={"minItems": 2})] | None = None
    first: Whole | None = None
    last: Whole | None = None
    step: Annotated[int, Meta(ge=1, le=_MOST_SIZE)] | None = None
    outside: Annotated[Outside, Meta(description="What becomes of rows with other values.")] = "drop"


class TableKeys(Record, frozen=True, kw_only=True):
    """One [[table]]."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)",
            description="Names the files of the table.",
            extra={"expected": "a name for files (letters, digits, - and _ only, at most 64)"},
        ),
    ]
    title: Text | None = None
    sql: Annotated[
        Text | None,
        Meta(description="SELECT columns, COUNT(*) FROM t WHERE ... GROUP BY ...; never sent to a database."),
    ] = None
    marginals: Annotated[
        int | Annotated[list[int | list[str]], _ALIKE] | None,
        Meta(
            description="Counts by every k attributes, by several k, or by the listed sets of attributes.",
            extra={"expected": 'numbers of attributes or lists of them (2, [1, 2] or [["sex", "age"]])'},
        ),
    ] = None
    ranges: Annotated[list[Text], Meta(description="Attributes counted over all ranges of their values.")] = field(
        default_factory=list[str]
    )
    weight: Annotated[Positive, Meta(description="How much the table matters in planning.")] = 1.0


class PrivacyKeys(Record, frozen=True, kw_only=True):
    """[privacy]"""

    epsilon: Exact | None = None
    delta: Exact | None = None
    rho: Exact | None = None


class CapKeys(Record, frozen=True, kw_only=True):
    """The cap in [ledger]."""

    epsilon: Exact | None = None
    rho: Exact | None = None


class LedgerKeys(Record, frozen=True, kw_only=True):
    """[ledger]"""

    path: Annotated[Path, Meta(description="The file that keeps the budget.")]
    cap: Annotated[
        CapKeys,
        Meta(description='The most that may ever be spent on the dataset, such as { epsilon = "4" }.'),
    ]


class OutputPart(Record, frozen=True, kw_only=True):
    """[output]"""

    folder: Annotated[Path, Meta(description="Where the tables go.")] = field(default_factory=lambda: Path("out"))
    level: Annotated[float, Meta(gt=0, lt=1, description="Of the intervals, such as 0.95.")] = 0.95


class PlanPart(Record, frozen=True, kw_only=True):
    """[plan]"""

    folder: Annotated[Path, Meta(description="Where the plan is kept.")] = field(default_factory=Path)
    time_limit: Annotated[Positive, Meta(description="Seconds to look for a strategy.")] = 60.0
    restarts: Annotated[int, Meta(ge=1, le=10**6)] = 25
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


_VALUES = Annotated[
    Annotated[int, Meta(extra_json_schema={"minimum": 1, "description": "0 up to one less."})]
    | Annotated[list[SpecLabel], Meta(extra_json_schema={"minItems": 1})]
    | ValuesKeys,
    Meta(
        extra={
            "expected": "a size such as 115, a list of labels, { first = 0, last = 114 }, { labels = [...] } or "
            "{ bins = [...] }"
        }
    ),
]


class SpecFile(Record, frozen=True, kw_only=True):
    """Tables to publish under differential privacy: what the data can contain, which counts matter, and their cost."""

    title: Annotated[Text | None, Meta(description="Title of the report.")] = None
    data: Annotated[DataPart, Meta(description="[data], the table and whose budget it spends.")]
    domain: Annotated[
        dict[str, _VALUES], Meta(description="[domain], what the data can contain, from public knowledge.")
    ]
    table: Annotated[list[TableKeys], Meta(description="One [[table]] or more.", min_length=1, max_length=10_000)]
    privacy: Annotated[PrivacyKeys, Meta(description="[privacy], epsilon, or epsilon and delta, or rho.")]
    ledger: Annotated[LedgerKeys, Meta(description="[ledger], the budget of the dataset.")]
    output: Annotated[OutputPart, Meta(description="[output], where the tables go.")] = field(
        default_factory=OutputPart
    )
    plan: Annotated[PlanPart, Meta(description="[plan], how a strategy is looked for.")] = field(
        default_factory=PlanPart
    )


_TOGETHER: dict[str, dict[str, Any]] = {
    "SpecFile": {"title": "hdmm specification"},
    "DataPart": {"dependentRequired": {"id": ["max_rows_per_id"], "max_rows_per_id": ["id"]}},
    "ValuesKeys": {
        "oneOf": [{"required": ["labels"]}, {"required": ["bins"]}, {"required": ["first", "last"]}],
        "dependentRequired": {"step": ["first"]},
    },
    "TableKeys": {"oneOf": [{"required": ["sql"]}, {"anyOf": [{"required": ["marginals"]}, {"required": ["ranges"]}]}]},
    "PrivacyKeys": {
        "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}],
        "dependentRequired": {"delta": ["epsilon"]},
    },
    "CapKeys": {"minProperties": 1, "maxProperties": 1},
}
"""What the schema says of several keys together, which types do not; hdmm.spec.read checks the same."""


def read_path(form: Any, given: object) -> Path:
    """A path, which msgspec does not know."""
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise MisfitError(f"This is {described(given)}; a text that is not empty is expected.")
    if Path(given).name in ("", ".."):
        raise MisfitError("This is not the path of a file or folder of its own.")
    return Path(given)


def schema_text() -> str:
    """The JSON schema of specifications, by which an editor completes keys and checks them."""
    found = msgspec.json.schema(SpecFile, schema_hook=lambda _: {"type": "string", "minLength": 1})
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_inlined(found, found["$defs"])}
    return f"{json.dumps(whole, indent=2, ensure_ascii=False)}\n"


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema without references, and without null, which TOML does not have."""
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node if each != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        node = {**definitions[name], "title": None, **node, **_TOGETHER.get(name, {})}
    kept = {
        key: _inlined(value, definitions)
        for key, value in node.items()
        if key not in ("$ref", "$defs") and value is not None and value != _MOST_FLOAT
    }
    match kept.get("anyOf"):
        case [only]:
            del kept["anyOf"]
            return {**only, **kept}
        case _:
            return kept
