"""Specifications: what they say, errors that name file, line and key, the schema, and a fuzz of the reader."""

from __future__ import annotations

import datetime
import json
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import msgspec
import msgspec.inspect
import numpy as np
import pytest

from hdmm import (
    ApproxDP,
    Domain,
    HdmmError,
    PureDP,
    SpecError,
    StrategyError,
    Unit,
    Workload,
    from_table,
    load_spec,
)
from hdmm.apps.demo import people as demo_people
from hdmm.apps.demo import write_demo
from hdmm.apps.scaffold.start import template
from hdmm.publication.spec import Spec, read_spec, schema_text
from hdmm.publication.spec.keys import SpecFile
from hdmm.publication.spec.positions import Lines
from hdmm.sql.marginals import marginal_tables, subsets
from tests.support.spec_cases import SPEC, write_spec


def spec(text: str = SPEC) -> Spec:
    return read_spec(text.encode(), Path("people.toml"))


def test_what_a_specification_says(tmp_path: Path) -> None:
    found = load_spec(write_spec(tmp_path))
    assert found.domain.names == ("sex", "age", "smokes", "income")
    assert [(t.name, t.title, t.rows, t.weight) for t in found.tables] == [
        ("P12", "Sex by age", 40, 1.0),
        ("pairs_sex_age", "pairs: sex × age", 40, 2.0),
        ("pairs_sex_smokes", "pairs: sex × smokes", 6, 2.0),
        ("pairs_sex_income", "pairs: sex × income", 6, 2.0),
        ("pairs_age_smokes", "pairs: age × smokes", 60, 2.0),
        ("pairs_age_income", "pairs: age × income", 60, 2.0),
        ("pairs_smokes_income", "pairs: smokes × income", 9, 2.0),
        ("ages", "ages", 210, 1.0),
    ]
    assert list(found.groups) == ["P12", "pairs", "ages"]
    assert found.tables[1].columns == ("sex", "age")
    assert next(found.tables[1].labels()) == ("M", 0)
    assert found.tables[-1].columns == ("age_from", "age_to")
    assert list(found.tables[-1].labels())[19:21] == [(0, 19), (1, 1)]
    assert found.privacy == PureDP("0.5")
    assert found.unit == Unit()
    assert found.ledger.path == tmp_path / "budget.db"
    assert found.output.folder == tmp_path / "out"
    assert found.plan.folder == tmp_path / "people.plan"
    assert found.workload.queries == sum(t.workload.queries for t in found.tables)
    assert {p.weight for p in found.workload.products} == {1.0, 2.0}


def test_privacy_and_units() -> None:
    gaussian = SPEC.replace('epsilon = "0.5"', 'epsilon = 1\ndelta = "1e-9"').replace(
        '{ epsilon = "4" }', "{ rho = 1 }"
    )
    assert spec(gaussian).privacy == ApproxDP(1, "1e-9")
    bounded = SPEC.replace("[domain]", 'id = "who"\nmax_rows_per_id = 3\nneighbours = "replace"\n[domain]')
    assert spec(bounded).unit == Unit(3, "replace", "who")
    assert spec(SPEC.replace('"0.5"', "0.1")).privacy == PureDP("0.1")


WRONG: list[tuple[str, str, int, str, str]] = [
    ('dataset = "people-2026"', "dataset = 3", 5, "data.dataset", "a text is expected"),
    ('dataset = "people-2026"', "", 3, "data", "'dataset' is missing and is required: the identity"),
    ('dataset = "people-2026"', 'dataset = "\\u0000"', 5, "data.dataset", "not empty"),
    ('dataset = "people-2026"', 'dataset = "x"\ncolumns = { sex = "s", age = 3 }', 6, "data.columns.age", "a text"),
    ('dataset = "people-2026"', 'dataset = " x"', 5, "data.dataset", "printable line"),
    ('dataset = "people-2026"', 'dataset = "x"\nid = "who"', 6, "data.id", "max_rows_per_id"),
    (
        'dataset = "people-2026"',
        'dataset = "x"\nneighbors = "replace"',
        6,
        "data.neighbors",
        "Did you mean 'neighbours'",
    ),
    ('dataset = "people-2026"', 'dataset = "x"\nneighbours = "swap"', 6, "data.neighbours", '"add-remove", "replace"'),
    ('sex = ["M", "F"]', 'sex = ["M", "M"]', 8, "domain.sex", "equal"),
    ('sex = ["M", "F"]', "sex = 0", 8, "domain.sex", "at least one"),
    ('sex = ["M", "F"]', 'sex = "MF"', 8, "domain.sex", "a size such as 115, a list of labels"),
    ("last = 19", "step = 2", 9, "domain.age", "first and last"),
    ("last = 19", "last = 19, bins = [1, 2]", 9, "domain.age", "Give one of labels"),
    ("last = 19", "last = 19, stop = 3", 9, "domain.age.stop", "unknown"),
    ("last = 19", 'last = "19"', 9, "domain.age.last", "a whole number"),
    ("[0, 10, 50, 100]", "[0, 10, 5]", 11, "domain.income", ""),
    ("[0, 10, 50, 100]", '[0,\n "x"]', 12, "domain.income.bins[2]", "a number"),
    ("GROUP BY sex, age", "GROUP BY sex, ages", 16, "table[1].sql", "SQL, line 1"),
    ("GROUP BY sex, age", "GROUP BY sex, age; SELECT COUNT(*) FROM people", 16, "table[1].sql", "2 statements"),
    ("SELECT sex, age", "SELECT /*+ weight(0) */ sex, age", 16, "table[1].sql", "no answers"),
    ('name = "P12"', 'name = "../P12"', 14, "table[1].name", "letters, digits"),
    ('name = "pairs"', 'name = "p12"', 19, "table[2].name", "Another table is named 'P12'"),
    ("marginals = 2", "marginals = 9", 20, "table[2].marginals", "no 9-way"),
    ("marginals = 2", 'marginals = [["sex", "agee"]]', 20, "table[2].marginals", "Did you mean 'age'"),
    ("marginals = 2", 'marginals = [1, ["sex"]]', 20, "table[2].marginals", "numbers of attributes or lists"),
    ("marginals = 2", "marginals = []", 20, "table[2].marginals", "numbers of attributes or lists"),
    ("marginals = 2", "title = 'x'", 19, "table[2].name", "needs sql"),
    ("weight = 2", "weight = -2", 21, "table[2].weight", "above 0"),
    ("weight = 2", "weight = inf", 21, "table[2].weight", "above 0"),
    ("weight = 2", "weight = nan", 21, "table[2].weight", "above 0"),
    ('ranges = ["age"]', 'ranges = ["sex"]', 25, "table[3].ranges", "no order"),
    ('epsilon = "0.5"', 'epsilon = "nan"', 28, "privacy.epsilon", "finite"),
    ('epsilon = "0.5"', 'mu = "0.5"', 32, "ledger.cap", "or as epsilon with delta"),
    ('epsilon = "0.5"', 'epsilon = "0.5"\nmu = "0.5"', 28, "privacy.epsilon", "Give epsilon, or"),
    ('epsilon = "0.5"', 'mu = "0.5"\ndelta = "1e-9"', 28, "privacy.mu", "Give epsilon, or"),
    ('epsilon = "0.5"', 'mu = "50%"', 28, "privacy.mu", "finite"),
    ('epsilon = "0.5"', 'mu = "1e-300"', 28, "privacy.mu", "must be from 2"),
    ('epsilon = "0.5"', "epsilon = true", 28, "privacy.epsilon", "a number, exact in quotes"),
    ('epsilon = "0.5"', "", 27, "privacy", "Give epsilon"),
    ('epsilon = "0.5"', 'rho = "0.5"', 32, "ledger.cap", "cap in rho"),
    ('cap = { epsilon = "4" }', "", 30, "ledger", "'cap' is missing"),
    (
        'cap = { epsilon = "4" }',
        "cap = { epsilon = 4, rho = 1 }",
        32,
        "ledger.cap",
        "Give epsilon, or epsilon and delta",
    ),
    ('folder = "out"', 'folder = ".."', 35, "output.folder", "does not name a file or folder"),
    ('folder = "out"', "level = 1", 35, "output.level", "between 0 and 1"),
    ("restarts = 1", "restarts = 0", 39, "plan.restarts", "from 1"),
    ("restarts = 1", "restart = 1", 39, "plan.restart", "Did you mean 'restarts'"),
    ('title = "People"', "title = ", 1, "", "not TOML"),
    ("[plan]", "[plan", 37, "", "not TOML"),
    ("[plan]", "[plans]", 37, "plans", "unknown"),
    ("[privacy]", "[secrecy]", 27, "secrecy", "unknown"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "says"), WRONG)
def test_errors_name_file_line_and_key(old: str, new: str, line: int, key: str, says: str) -> None:
    assert SPEC.count(old) == 1
    with pytest.raises(SpecError) as caught:
        spec(SPEC.replace(old, new))
    wrong = caught.value
    assert (wrong.file, wrong.line, wrong.key) == ("people.toml", line, key), str(wrong)
    assert str(wrong).startswith(f"people.toml, line {line}")
    assert says in str(wrong)


def test_sql_errors_point_into_texts_of_several_lines() -> None:
    text = SPEC.replace(
        'sql = "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age"',
        'sql = """\nSELECT sex, COUNT(*)\nFROM people\nWHERE sx = \'F\'\nGROUP BY sex"""',
    )
    with pytest.raises(SpecError) as caught:
        spec(text)
    assert caught.value.line == 19
    assert text.splitlines()[caught.value.line - 1].startswith("WHERE sx")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "none.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"a = 1\n\xff")
    with pytest.raises(SpecError, match=r"line 2: .*UTF-8"):
        load_spec(tmp_path / "bytes.toml")


def test_lines_are_those_of_every_key() -> None:
    text = 'a.b = 1\n"c d" = """\nx = 1\n[no]\n"""\n'
    text += "[t]\n# [no]\ne = [ { f = 1, g = \"}\" },\n\n 2 ] # ]\n[[u]]\n[[u]]\n[u.v]\nw = '#'\n"
    tomllib.loads(text)
    found = Lines.of(text)
    places = {("a", "b"): 1, ("c d",): 2, ("t",): 6, ("t", "e"): 8, ("t", "e", 0, "f"): 8, ("t", "e", 1): 10}
    places |= {("u", 0): 11, ("u", 1): 12, ("u", 1, "v"): 13, ("u", 1, "v", "w"): 14}
    assert {place: found.line(place) for place in places} == places
    assert found.begin(("c d",)) == 3


def test_or_merges_attributes_and_shorthand_follows() -> None:
    domain = Domain({"white": bool, "black": bool, "asian": bool, "age": 5})
    merged = domain.merge(["white", "black", "asian"], name="white+black+asian")
    table = demo_people(2000)
    rows = {name: table.column(name).to_pylist() for name in ("white", "black", "asian")}
    rows["age"] = [age // 23 for age in table.column("age").to_pylist()]
    x, y = (from_table(d, _frame(rows)).marginal(d.names).reshape(-1, 1) for d in (domain, merged))
    for asked in (2, [1, 3], [["asian", "white"], ["black"], []]):
        each = (marginal_tables(d, subsets(domain, asked), ranges=["age"]) for d in (domain, merged))
        for plain, other in zip(*each, strict=True):
            assert sorted(plain.columns) == sorted(other.columns)
            places = [other.columns.index(name) for name in plain.columns]
            counts = dict(zip(plain.labels(), plain.workload.matrix.matmat(x)[:, 0], strict=True))
            others = {
                tuple(row[i] for i in places): n
                for row, n in zip(other.labels(), other.workload.matrix.matmat(y)[:, 0], strict=True)
            }
            assert counts == others


def test_the_domain_is_merged_where_sql_says_or_and_no_ranges_stand_against() -> None:
    text = SPEC.replace(
        "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age", "SELECT COUNT(*) FROM people WHERE CONDITION"
    )
    condition = "sex = 'F' AND smokes = 0 OR sex = 'M' AND smokes = 1"
    assert spec(text.replace("CONDITION", condition)).domain.names == ("sex+smokes", "age", "income")
    assert spec(text.replace("CONDITION", condition)).tables[0].combine is None
    ages = spec(text.replace("CONDITION", "sex = 'F' OR age < 5"))
    assert ages.domain.names == ("sex", "age", "smokes", "income")
    assert ages.tables[0].combine is not None
    assert ages.tables[0].rows == 1


def test_no_ranges_are_the_total() -> None:
    assert spec(SPEC.replace('ranges = ["age"]', "ranges = []")).tables[-1].rows == 1


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(SpecError, match="All tables together have"):
        spec(SPEC.replace("last = 19", "last = 9_000"))


def _frame(rows: dict[str, list[object]]) -> object:
    import pandas as pd

    return pd.DataFrame(rows)


# The schema


def schema() -> dict[str, object]:
    return json.loads(schema_text())


def test_the_schema_accepts_what_the_parser_accepts(tmp_path: Path) -> None:
    examples = [SPEC, template(), write_demo(tmp_path / "demo", persons=10).read_text()]
    jsonschema.Draft202012Validator.check_schema(schema())
    for text in examples:
        spec(text)
        jsonschema.validate(tomllib.loads(text), schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(("old", "new", "line", "key", "says"), WRONG)
def test_the_schema_refuses_unknown_keys_and_types(old: str, new: str, line: int, key: str, says: str) -> None:
    text = SPEC.replace(old, new)
    if "unknown" in says or "expected" in says or "missing" in says or "Did you mean 'r" in says:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(text), schema(), jsonschema.Draft202012Validator)


def test_the_schema_has_the_keys_of_the_parser() -> None:
    properties = schema()["properties"]
    assert isinstance(properties, dict)
    parts = {name: part["properties"] for name, part in properties.items() if "properties" in part}
    parts["table"] = properties["table"]["items"]["properties"]
    for name, keys in [("", properties), *parts.items()]:
        for key in keys:
            with pytest.raises(SpecError) as caught:  # a value no key takes: known keys say so, others are unknown
                spec(_with(name, key))
            assert "unknown" not in str(caught.value), (name, key)
        with pytest.raises(SpecError, match=r"unknown; keys: ") as caught:
            spec(_with(name, "nobody"))
        listed = str(caught.value).split("keys: ")[1].split(".")[0].split(", ")
        assert set(listed) == set(keys)


def _with(part: str, key: str) -> str:
    """The example with a key of a part set to a date, which no key takes."""
    content = tomllib.loads(SPEC)
    within = content["table"][0] if part == "table" else content.setdefault(part, {}) if part else content
    within[key] = datetime.date(2020, 1, 1)
    return "\n".join(f"{name} = {_toml(value)}" for name, value in content.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return value.isoformat() if isinstance(value, datetime.date) else json.dumps(value)


# A fuzz: no crash, only our errors


WORDS = ["[", "]", "[[", "]]", "{", "}", "=", ",", '"', "'", '"""', "\n", "#", ".", "-1", "0", "1e400", "nan", "true"]
WORDS += [
    "9" * 5000,
    "1979-05-27",
    "sex",
    "age",
    "sql",
    "marginals",
    "ranges",
    "table",
    "é",
    "\\",
    "\x00",
    "\ufeff",
    "OR",
]
WORDS += [
    "[[1, 2], 3]",
    "{ first = 0 }",
    '[["sex"]]',
    "\"SELECT COUNT(*) FROM t WHERE sex = 'F' OR age < 3\"",
    "[" * 2000,
]


def mutated(rng: random.Random) -> bytes:
    text = SPEC
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + rng.choice(WORDS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randrange(1, 30) :]
        elif kind == 2:
            lines = text.split("\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        elif kind == 3:
            lines = text.split("\n")
            i = rng.randrange(len(lines))
            lines[i] = lines[i].split("=")[0] + "= " + rng.choice(WORDS)
            text = "\n".join(lines)
        else:
            text = text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0xD800)])) + text[at + 1 :]
    data = text.encode()
    if rng.random() < 0.05:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data


def refused(data: bytes) -> HdmmError | None:
    try:
        read_spec(data, Path("fuzz.toml"))
    except HdmmError as wrong:
        return wrong
    return None


def fuzz(cases: int, seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(cases):
        data = mutated(rng)
        wrong = refused(data)
        accepted += wrong is None
        if wrong is not None:
            assert isinstance(wrong, SpecError), (wrong, data)
            assert 1 <= wrong.line <= data.count(b"\n") + 2, (wrong, data)
    assert 0 < accepted < cases  # both paths were taken


def test_fuzz() -> None:
    fuzz(2000, seed=1)


@pytest.mark.slow
def test_long_fuzz() -> None:
    fuzz(100_000, seed=2)


def test_numbers_of_counts_are_those_of_the_table() -> None:
    for table in spec().groups["pairs"]:
        x = np.arange(table.workload.domain.size, dtype=float)[:, None]
        assert table.workload.matrix.matmat(x)[:, 0].sum() == pytest.approx(x.sum())


def test_margins_are_the_goal_of_a_specification(tmp_path: Path) -> None:
    text = SPEC.replace("weight = 2", "weight = 2\nmargin = 80\nexpected = 500")
    spec = load_spec(write_spec(tmp_path, text))
    assert spec.tables[1].margin == 80
    assert spec.tables[1].expected == 500
    assert spec.goal.targets == {"pairs": 80}
    assert all(table.margin == 80 for table in spec.groups["pairs"])
    # Its weight does not count beside its margin.
    assert spec.goal.tables["pairs"] == Workload.marginals(spec.domain, k=2)
    assert spec.goal.level == spec.output.level
    relative = load_spec(write_spec(tmp_path, text.replace("margin = 80", 'margin = "2.5 %"')))
    assert relative.goal.targets == {"pairs": 12.5}
    assert spec.aiming({"pairs": "4%", "ages": 9}).goal.targets == {"pairs": 20, "ages": 9}
    with pytest.raises(StrategyError, match="A margin of 4% is a part of a count, and none is expected"):
        spec.aiming({"ages": "4%"})
    other = spec.aiming({"ages": 9})
    assert [table.margin for table in other.tables] == [None] * 7 + [9]
    assert {product.weight for product in other.goal.tables["pairs"].products} == {2.0}


def test_without_margins_tables_matter_alike_unless_told_otherwise(tmp_path: Path) -> None:
    assert load_spec(write_spec(tmp_path)).goal.objective == "tables"
    for objective in ("total", "tables", "worst"):
        text = SPEC.replace("[plan]", f'[plan]\nobjective = "{objective}"')
        assert load_spec(write_spec(tmp_path, text)).goal.objective == objective


def test_the_margin_of_rows_that_are_sums_is_shared_by_their_parts(tmp_path: Path) -> None:
    sql = "SELECT COUNT(*) FROM people WHERE sex = 'M' OR age < 3"
    table = f'[[table]]\nname = "either"\nsql = "{sql}"\nmargin = 30\n\n[privacy]'
    spec = load_spec(write_spec(tmp_path, SPEC.replace("[privacy]", table)))  # ranges of age keep sex and age apart
    either = spec.tables[-1]
    assert either.combine is not None
    assert spec.goal.targets == {"either": pytest.approx(30 / np.sqrt(either.combine.sum(axis=1).max()))}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("margin = 0", "margin"),
        ("margin = -5", "margin"),
        ("margin = inf", "margin"),
        ("margin = nan", "margin"),
        ('margin = "50"', "is neither a number nor a percentage"),
        ('margin = "0 %"', "is neither a number nor a percentage"),
        ('margin = "1e3 %"', "is neither a number nor a percentage"),
        ('margin = "2 %"', "none is expected. Give the table a typical one"),
        ("margin = 1e-300", "margin"),
        ("expected = 0", "expected"),
    ],
)
def test_a_margin_that_is_none_names_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as wrong:
        load_spec(write_spec(tmp_path, SPEC.replace('ranges = ["age"]', f'ranges = ["age"]\n{line}')))
    assert wrong.value.line == 26


def test_an_objective_beside_margins_is_refused(tmp_path: Path) -> None:
    text = SPEC.replace('ranges = ["age"]', 'ranges = ["age"]\nmargin = 5').replace(
        "[plan]", '[plan]\nobjective = "total"'
    )
    with pytest.raises(SpecError, match="Leave out the objective, or every margin") as wrong:
        load_spec(write_spec(tmp_path, text))
    assert text.splitlines()[wrong.value.line - 1] == 'objective = "total"'
    with pytest.raises(SpecError, match='"total", "tables"'):
        load_spec(write_spec(tmp_path, SPEC.replace("[plan]", '[plan]\nobjective = "most"')))


def test_no_key_takes_text_of_a_pattern_or_a_list() -> None:
    """msgspec 0.22 frees the pattern of such a union twice, so that some processes crash as they end."""

    def unions(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.UnionType]:
        if isinstance(kind, msgspec.inspect.UnionType):
            yield kind
        for field in msgspec.structs.fields(type(kind)):
            held = getattr(kind, field.name)
            for each in held if isinstance(held, tuple) else (held,):
                inner = each.type if isinstance(each, msgspec.inspect.Field) else each
                if isinstance(inner, msgspec.inspect.Type):
                    yield from unions(inner)

    found = list(unions(msgspec.inspect.type_info(SpecFile)))
    assert len(found) > 20
    for union in found:
        texts = [each for each in union.types if isinstance(each, msgspec.inspect.StrType)]
        several = any(isinstance(each, msgspec.inspect.ListType | msgspec.inspect.DictType) for each in union.types)
        assert not (several and any(text.pattern for text in texts)), union
