"""Requirement R1: reading takes steps in proportion to the text, or refuses it: JSON, TOML, SQL and dictionaries.

Steps are calls, of Python's functions and of built-in ones, and comparisons if those could grow; no clock is used.
"""

from __future__ import annotations

import gc
import itertools
import math
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from hdmm import Domain, FileError, HdmmError, SpecError, SqlError, Workload
from hdmm.apps.scaffold.dictionary import read_dictionary
from hdmm.apps.scaffold.start import _MOST_TO_START, from_columns, template
from hdmm.io import strict_json
from hdmm.publication.spec import read_spec
from hdmm.publication.spec.positions import MOST_DEEP, Lines, TooDeepError
from hdmm.sql import formula


def steps(work: Callable[[], object]) -> int:
    """Calls that the work makes, whether it succeeds or refuses."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a collection calls whoever listens to it
    sys.setprofile(note)
    try:
        work()
    except HdmmError:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def grows_linearly(work: Callable[[int], object], n: int) -> None:
    """Four times the input takes at most about four times the steps; a square would take 16 times."""
    steps(lambda: work(n))  # what is imported or cached once is done
    base, few, many = (steps(lambda size=size: work(size)) for size in (1, n, 4 * n))
    assert many - base > n, "the steps do not see the input"
    assert many - base < 5 * (few - base)


class Key(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_repeated_last_key_is_found_in_one_pass() -> None:
    for n in (500, 2000):
        Key.compared = 0
        with pytest.raises(FileError, match="'k7' twice"):
            strict_json._once([*((Key(f"k{i}"), None) for i in range(n)), (Key("k7"), None)], "x.json")
        assert Key.compared < 3 * n


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "{" + ",".join(f'"k{i}":1' for i in range(n)) + f',"k{n - 1}":1}}',
        lambda n: "[" + ",".join(["1.5"] * n) + "]",
        lambda n: "[" + ",".join(['{"a":{"b":[]}}'] * n) + "]",
    ],
    ids=["a key twice", "numbers", "objects"],
)
def test_json(text: Callable[[int], str]) -> None:
    grows_linearly(lambda n: strict_json.parse(text(n).encode(), "x.json"), 500)


def toml(text: str) -> object:
    return read_spec(f"{template()}\n{text}".encode(), Path("x.toml"))


DEEP = {
    "a key": lambda n: ".".join("a" * n) + " = 1",
    "a quoted key": lambda n: ".".join(['"a b"'] * n) + " = 1",
    "a header": lambda n: f"[{'.'.join('a' * n)}]",
    "a header of a list": lambda n: f"[[{'.'.join('a' * n)}]]",
    "lists": lambda n: f"q = {'[' * n}{']' * n}",
    "tables": lambda n: f"q = {'{a=' * n}1{'}' * n}",
    "keys in tables": lambda n: f"q = {'{a.b.c=' * (n // 3)}1{'}' * (n // 3)}",
}


@pytest.mark.parametrize("kind", DEEP)
def test_toml_is_refused_where_it_is_deep_before_it_is_parsed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's parser takes time in the square of the dots: it never sees them."""
    toml_loads, seen = tomllib.loads, list[str]()
    monkeypatch.setattr(tomllib, "loads", lambda text: seen.append(text) or toml_loads(text))
    with pytest.raises(SpecError, match=f"more than {MOST_DEEP} deep") as caught:
        toml(DEEP[kind](4000))
    assert caught.value.line == template().count("\n") + 2
    assert not seen
    few, many = (steps(lambda n=n: toml(DEEP[kind](n))) for n in (1000, 8000))
    assert many == few  # what is too deep is not looked at
    Lines.of(DEEP[kind](MOST_DEEP - 3))  # and as deep as a specification may be is fine
    with pytest.raises(TooDeepError):
        Lines.of(DEEP[kind](MOST_DEEP + 6))


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "[zz]\n" + "".join(f"k{i} = 1\n" for i in range(n)),
        lambda n: "".join(f"[zz.k{i}]\nv = 1\n" for i in range(n)),
        lambda n: "".join("[[zz]]\nv = 1\n" for i in range(n)),
        lambda n: "zz = [" + "1, " * n + "]",
        lambda n: "zz = [" + "{a.b = 1}, " * n + "]",
    ],
    ids=["keys", "headers", "lists of tables", "a list", "inline tables"],
)
def test_toml(text: Callable[[int], str]) -> None:
    grows_linearly(lambda n: toml(text(n)), 400)


TABLE = Domain({"a": 300, "b": ["x", "y"], "c": 300})


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"a = {i % 300}" for i in range(n)),
        lambda n: "SELECT COUNT(*) FROM t WHERE " + " AND ".join(f"a BETWEEN {i % 100} AND 299" for i in range(n)),
        lambda n: f"SELECT COUNT(*) FROM t WHERE a IN ({', '.join(str(i % 300) for i in range(n))})",
        lambda n: " UNION ALL ".join(["SELECT COUNT(*) FROM t"] * n),
        lambda n: "; ".join(["SELECT COUNT(*) FROM t"] * n),
        lambda n: f"SELECT {', '.join(f'a AS x{i}' for i in range(n))}, COUNT(*) FROM t GROUP BY a",
        lambda n: f"SELECT COUNT(*) FROM t WHERE {'.'.join(['a'] * n)} = 1",
    ],
    ids=["OR", "BETWEEN", "IN", "UNION", "statements", "columns", "dots"],
)
def test_sql(text: Callable[[int], str]) -> None:
    grows_linearly(lambda n: Workload.sql(TABLE, text(n)), 150)


PAIRS = [f"(a = {i % 300} AND c = {i * 7 % 300 if i < 300 else i % 299})" for i in range(2000)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t WHERE " + " OR ".join(PAIRS),
        "SELECT COUNT(*) FROM t WHERE " + " AND ".join(f"NOT {pair}" for pair in PAIRS),
        "SELECT CASE " + " ".join(f"WHEN {pair} THEN {i}" for i, pair in enumerate(PAIRS)) + " END, COUNT(*) FROM t "
        "GROUP BY 1",
    ],
    ids=["OR", "AND NOT", "CASE"],
)
def test_many_alternatives_on_several_attributes_are_refused(text: str) -> None:
    """Each is compared with all others, so that there may not be many."""
    with pytest.raises(SqlError, match="several attributes at once"):
        Workload.sql(TABLE, text)


def test_conditions_of_a_statement_share_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CASE on two attributes is split once for each branch, all within one limit."""
    branches = " ".join(f"WHEN {pair} THEN {i}" for i, pair in enumerate(PAIRS[:20]))
    text = f"SELECT CASE {branches} END, COUNT(*) FROM t GROUP BY 1"
    Workload.sql(TABLE, text)
    monkeypatch.setattr(formula, "MOST_STEPS", 2000)
    with pytest.raises(SqlError, match="take too long to split"):
        Workload.sql(TABLE, text)
    Workload.sql(TABLE, f"SELECT COUNT(*) FROM t WHERE {' OR '.join(PAIRS[:9])}")


def dictionary(tmp_path: Path, sizes: list[int]) -> str:
    path = tmp_path / "dictionary.csv"
    lines = (f"a{i},integers,0..{size - 1}\n" for i, size in enumerate(sizes))
    path.write_text("name,type,values\n" + "".join(lines))
    return from_columns(read_dictionary(path))


def test_a_dictionary(tmp_path: Path) -> None:
    grows_linearly(lambda n: dictionary(tmp_path, [3] * n), 100)
    dictionary(tmp_path, [1] * 20_000)  # two hundred million pairs, if they were listed


@pytest.mark.parametrize("sizes", [[2], [7, 9, 4], [100, 999], [100, 1000, 1], [300, 400], [10**5, 2]], ids=str)
def test_the_marginals_of_a_first_specification_are_as_many_as_are_few(sizes: list[int], tmp_path: Path) -> None:
    fits = [k for k in range(3) if sum(map(math.prod, itertools.combinations(sizes, k))) <= _MOST_TO_START]
    assert f"marginals = {min(max(fits), len(sizes))}\n" in dictionary(tmp_path, sizes)
