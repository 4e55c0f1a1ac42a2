"""All that a specification may contain: its keys, their types and bounds, and what each is for; and a schema of it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from hdmm.base.numbers import LEVEL
from hdmm.describe.values import Outside
from hdmm.io.strict_records import MisfitError, StrictRecord, described
from hdmm.privacy.guarantee import Privacy, guarantee

MOST_FLOAT = sys.float_info.max  # infinity is beyond it
_MOST_SIZE = 2**62


def about(purpose: str, expected: str | None = None) -> Meta:
    """What a key is for, said in the schema and if it is missing; and what errors call the value that it takes."""
    return Meta(description=purpose, extra=None if expected is None else {"expected": expected})


Text: TypeAlias = Annotated[str, Meta(pattern=r"^\s*[^\s\u0000][^\u0000]*$")]
ExactKey: TypeAlias = Annotated[
    str | int | float,
    about('A positive number; exact in quotes, such as "0.5" or "1/3".', 'a number, exact in quotes, such as "0.5",'),
]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=MOST_FLOAT)]
Margin: TypeAlias = Annotated[float, Meta(ge=1e-100, le=1e100)]  # as in hdmm.select.goal: squares are finite
NamesKey: TypeAlias = str | list[Text]  # not Text: msgspec 0.22 frees a pattern beside a list twice, at exit
WholeNumber: TypeAlias = Annotated[int, Meta(ge=-_MOST_SIZE, le=_MOST_SIZE)]
SpecLabel: TypeAlias = str | int | float | bool
LabelList: TypeAlias = Annotated[list[SpecLabel], Meta(extra_json_schema={"minItems": 1})]
Edges: TypeAlias = Annotated[list[int | float], Meta(extra_json_schema={"minItems": 2})]
MarginalsKey: TypeAlias = (
    Annotated[int, Meta(ge=0, le=2**31)]
    | Annotated[
        list[int | list[str]],
        Meta(extra_json_schema={"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "array"}}]}),
    ]
)


class DataPart(StrictRecord, frozen=True, kw_only=True):
    """[data]"""

    source: Annotated[
        Text | None,
        about(
            "A .csv, .csv.gz, .parquet or .duckdb file, a folder of CSV or Parquet files, or a connection URL of Ibis."
        ),
    ] = None
    table: Annotated[Text | None, about("The table of a database.")] = None
    dataset: Annotated[Text, about("The identity that the budget belongs to.")]
    id: Annotated[Text | None, about("The column that says whose row it is.")] = None
    max_rows_per_id: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        about("The most rows of one person that are counted."),
    ] = None
    neighbours: Annotated[
        Literal["add-remove", "replace"],
        about("What is hidden: that someone is in the data, or which of several records is theirs."),
    ] = "add-remove"
    where: Annotated[
        Text | None,
        about("Which rows are counted: a condition on columns of the source, such as \"month = '2026-01'\"."),
    ] = None
    columns: Annotated[dict[str, Text], about("The column of an attribute if it has another name.")] = field(
        default_factory=dict[str, str]
    )
    rows_bound: Annotated[
        Annotated[int, Meta(ge=1, le=2**38)] | None, about("A public upper bound on the number of rows.")
    ] = None
    fetch: Annotated[
        bool, about("Whether rows may be fetched from a database that cannot count them exactly itself.")
    ] = False


class ValuesKeys(StrictRecord, frozen=True, kw_only=True):
    """One attribute of [domain], declared by keys."""

    labels: LabelList | None = None
    bins: Edges | None = None
    values: Annotated[list[int | float] | None, about("One number per bin, which stands for it in sums and means.")] = (
        None
    )
    first: WholeNumber | None = None
    last: WholeNumber | None = None
    step: Annotated[int, Meta(ge=1, le=_MOST_SIZE)] | None = None
    levels: Annotated[
        str | Annotated[dict[str, list[SpecLabel]], Meta(min_length=1)] | None,
        about(
            "Public groupings of the values: { county = [...] } with one group per value, or a CSV file whose first "
            "column has the values and whose other columns are levels.",
            "a table of levels such as { county = [...] }, or the path of a CSV file",
        ),
    ] = None
    groups: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=_MOST_SIZE)] | list[WholeNumber]],
        about(
            "Levels of neighbouring integers: { decade = 10 } for tens, { stage = [18, 65] } for groups from there.",
            "{ decade = 10 } or { stage = [18, 65] }",
        ),
    ] = field(default_factory=dict[str, "int | list[int]"])
    outside: Annotated[Outside, about("What happens to rows with other values.")] = "drop"


class AmountKeys(StrictRecord, frozen=True, kw_only=True):
    """One amount of [amounts]."""

    low: Annotated[int | float, about("The least value; what is below counts as it.")]
    high: Annotated[int | float, about("The largest value; what is above counts as it.")]
    step: Annotated[int | float, about("Values are rounded to steps of this size.")] = 1


class TableKeys(StrictRecord, frozen=True, kw_only=True):
    """One [[table]]."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)",
            description="Names the files of the table.",
            extra={"expected": "a name for files (letters, digits, - and _ only, at most 64)"},
        ),
    ]
    title: Annotated[Text | None, about("Title of the table in the report.")] = None
    titles: Annotated[
        list[Text] | None, about("If marginals lists several sets, the title of the table of each, in their order.")
    ] = None
    note: Annotated[Text | None, about("A sentence or two that readers see under the table.")] = None
    columns: Annotated[dict[str, Text], about('Headings of this table\'s columns, such as { sex = "Sex" }.')] = field(
        default_factory=dict[str, str]
    )
    sql: Annotated[
        Text | None,
        about("SELECT columns, COUNT(*) FROM t WHERE ... GROUP BY ...; never sent to a database."),
    ] = None
    marginals: Annotated[
        MarginalsKey | None,
        about(
            "Counts by every k attributes, by several k, or by the listed sets of attributes.",
            'numbers of attributes or lists of them (2, [1, 2] or [["sex", "age"]])',
        ),
    ] = None
    ranges: Annotated[list[Text] | None, about("Attributes counted over all ranges of their values.")] = None
    sum: Annotated[NamesKey | None, about("Amounts or attributes that are added up, in the groups of marginals.")] = (
        None
    )
    mean: Annotated[
        NamesKey | None, about("Amounts or attributes whose means are published, in the groups of marginals.")
    ] = None
    quantiles: Annotated[
        list[Text] | dict[str, list[float]] | None,
        about(
            "Attributes whose quartiles are published, or which quantiles of each: { age = [0.1, 0.5, 0.9] }.",
            "a list of attributes, or { age = [0.1, 0.5, 0.9] }",
        ),
    ] = None
    percent: Annotated[
        Literal["row", "column", "total"] | None,
        about("Counts in percent of the total of their row, of their column (the last one), or of the table."),
    ] = None
    weight: Annotated[Positive, about("How much the table matters in planning.")] = 1.0
    margin: Annotated[
        Margin | Text | None,
        about(
            'The margin of error, at output.level, that every count may have; "2 %" is a part of `expected`.',
            'a number above 0, or a percentage such as "2 %",',
        ),
    ] = None
    expected: Annotated[
        Margin | Text | None,
        about(
            "A typical count of the table, to which margins are compared; or the output folder of an earlier release, "
            "or a CSV file, with a count of each row.",
            "a number above 0, or the path of a folder or a CSV file,",
        ),
    ] = None


class PrivacyKeys(StrictRecord, frozen=True, kw_only=True):
    """[privacy], or the cap in [ledger]."""

    epsilon: ExactKey | None = None
    delta: ExactKey | None = None
    rho: ExactKey | None = None
    mu: ExactKey | None = None

    @property
    def guarantee(self) -> Privacy:
        """What the keys declare; PrivacyError if they do not."""
        return guarantee(self.epsilon, self.delta, self.rho, self.mu)


class LedgerKeys(StrictRecord, frozen=True, kw_only=True):
    """[ledger]"""

    path: Annotated[Path, about("The file that keeps the budget.")]
    cap: Annotated[
        PrivacyKeys,
        about('The most that may ever be spent on the dataset, such as { epsilon = "4" }.'),
    ]


class KnownKeys(StrictRecord, frozen=True, kw_only=True):
    """One [known], or one [[known]] of several."""

    attributes: Annotated[list[str], about("The attributes or levels that the counts are by; none for the total.")] = (
        field(default_factory=list[str])
    )
    counts: Annotated[
        int | list[Any] | str,
        about(
            "Public counts: one number, a list with one per value (nested for several attributes), or a CSV file.",
            "a number, a list of numbers, or the path of a CSV file",
        ),
    ]


class MarginRule(StrictRecord, frozen=True, kw_only=True):
    """A rule about unreliable counts in [output]."""

    relative_margin: Annotated[Positive, about("The margin of error as a part of the estimate, such as 0.3.")]


class OutputPart(StrictRecord, frozen=True, kw_only=True):
    """[output]"""

    folder: Annotated[Path, about("Where the tables go.")] = field(default_factory=lambda: Path("out"))
    level: Annotated[float, Meta(gt=0, lt=1, description="The confidence level of the intervals, such as 0.95.")] = (
        LEVEL
    )
    counts: Annotated[
        Literal["unbiased", "nonnegative", "integers"],
        about("Counts as they were estimated, or without those below 0, or as whole numbers; the last two are biased."),
    ] = "unbiased"
    columns: Annotated[dict[str, Text], about('Headings of columns in every table, such as { sex = "Sex" }.')] = field(
        default_factory=dict[str, str]
    )
    sdmx: Annotated[bool, about("Adds the columns OBS_STATUS and CONF_STATUS of SDMX to the files.")] = False
    flag: Annotated[
        MarginRule | None, about("Adds columns that say which counts have a margin above this part of the estimate.")
    ] = None
    suppress: Annotated[
        MarginRule | None, about("Leaves counts blank whose margin is above this part of the estimate.")
    ] = None


class ReportPart(StrictRecord, frozen=True, kw_only=True):
    """[report]"""

    organisation: Annotated[Text | None, about("Who publishes the tables.")] = None
    contact: Annotated[Text | None, about("Whom readers may ask, such as an address for mail.")] = None
    period: Annotated[Text | None, about("The period that the tables are about, such as 2026 or January 2026.")] = None
    region: Annotated[Text | None, about("The region that the tables are about.")] = None
    use: Annotated[Text | None, about("What the tables are published for, in a sentence.")] = None
    logo: Annotated[Path | None, about("A picture at the head of the report, which is kept inside it.")] = None


class PlanPart(StrictRecord, frozen=True, kw_only=True):
    """[plan]"""

    folder: Annotated[Path, about("Where the plan is kept.")] = field(default_factory=Path)
    objective: Annotated[
        Literal["total", "tables", "worst"] | None,
        about("What is minimised if no table has a margin: the sum of errors, of the tables' means, or the largest."),
    ] = None
    time_limit: Annotated[Positive, about("Seconds to look for a strategy.")] = 60.0
    restarts: Annotated[int, Meta(ge=1, le=10**6)] = 25
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    advice: Annotated[bool, about("Whether to suggest other declarations, such as levels in place of attributes.")] = (
        True
    )


_VALUES = Annotated[
    Annotated[int, Meta(extra_json_schema={"minimum": 1, "description": "0 up to one less."})] | LabelList | ValuesKeys,
    about(
        "The values of an attribute.",
        "a size such as 115, a list of labels, { first = 0, last = 114 }, { labels = [...] } or { bins = [...] }, "
        'or { levels = "tracts.csv" }',
    ),
]


class SpecFile(StrictRecord, frozen=True, kw_only=True):
    """Tables to publish under differential privacy: what the data can contain, which counts matter, and their cost."""

    title: Annotated[Text | None, about("Title of the report.")] = None
    impossible: Annotated[
        list[Text], about("Conditions that no record can fulfil, such as \"age < 15 AND marital = 'married'\".")
    ] = field(default_factory=list[str])
    data: Annotated[DataPart, about("[data], the table and the dataset whose budget it spends.")]
    domain: Annotated[dict[str, _VALUES], about("[domain], what the data can contain, from public knowledge.")]
    amounts: Annotated[
        dict[str, AmountKeys],
        about("[amounts], numbers that are added up and not counted by, such as wage = { low = 0, high = 200_000 }."),
    ] = field(default_factory=dict[str, AmountKeys])
    table: Annotated[list[TableKeys], Meta(description="One [[table]] or more.", min_length=1, max_length=10_000)]
    privacy: Annotated[PrivacyKeys, about("[privacy], epsilon, or epsilon and delta, or rho, or mu.")]
    ledger: Annotated[LedgerKeys, about("[ledger], the budget of the dataset.")]
    known: Annotated[
        list[KnownKeys] | KnownKeys, about("[known] or [[known]], counts that are public, and carry no noise.")
    ] = field(default_factory=list[KnownKeys])
    output: Annotated[OutputPart, about("[output], where the tables go.")] = field(default_factory=OutputPart)
    report: Annotated[ReportPart, about("[report], who publishes the tables, and about which period.")] = field(
        default_factory=ReportPart
    )
    plan: Annotated[PlanPart, about("[plan], how a strategy is searched for.")] = field(default_factory=PlanPart)


def is_url(source: str) -> bool:
    """Whether a source is the URL of a database; other texts are paths."""
    return re.match(r"[a-z][a-z0-9+.-]*://", source) is not None


def read_path(form: Any, given: object) -> Path:
    """A path, which msgspec does not know."""
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise MisfitError(f"This is {described(given)}; a text that is not empty is expected.")
    if Path(given).name in ("", ".."):
        raise MisfitError("This path does not name a file or folder. Give the path of one.")
    return Path(given)


_TOGETHER: dict[str, dict[str, Any]] = {
    "SpecFile": {"title": "hdmm specification"},
    "DataPart": {"dependentRequired": {"id": ["max_rows_per_id"], "max_rows_per_id": ["id"]}},
    "ValuesKeys": {
        "oneOf": [
            {"required": ["labels"]},
            {"required": ["bins"]},
            {"required": ["first", "last"]},
            {
                "required": ["levels"],
                "properties": {"levels": {"type": "string"}},
                "not": {"anyOf": [{"required": ["labels"]}, {"required": ["bins"]}, {"required": ["first"]}]},
            },
        ],
        "dependentRequired": {"step": ["first"], "groups": ["first"]},
    },
    "TableKeys": {"oneOf": [{"required": ["sql"]}, {"anyOf": [{"required": ["marginals"]}, {"required": ["ranges"]}]}]},
    "PrivacyKeys": {
        "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}, {"required": ["mu"]}],
        "dependentRequired": {"delta": ["epsilon"]},
    },
}
"""What the schema says of several keys together, which types do not; hdmm.publication.spec.read checks the same."""


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
        if key not in ("$ref", "$defs") and value is not None and value != MOST_FLOAT
    }
    match kept.get("anyOf"):
        case [only]:
            del kept["anyOf"]
            return {**only, **kept}
        case _:
            return kept
