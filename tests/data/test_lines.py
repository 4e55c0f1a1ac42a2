"""Whatever bytes a line of a CSV file holds, it counts as one row at most and changes no other line (I1, I3)."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdmm import DataError, Domain, Integers, Labels, from_table
from hdmm.data.records import TableData
from hdmm.data.sources import csv_lines as lines
from tests.support.effort import examples

DOMAIN = Domain({"sex": Labels(["M", "F", ""], outside="other"), "age": Integers(0, 9)})
WANTED = [["sex", "age"], ["sex"], ["age"], []]
NAMES = ["who", "note", "sex", "age"]
LONGEST = 60
PIECES = [b'"', b'""', b",", b";", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"\\", b" ", b"'", b"\x1a", b"\xed\xa0\x80"]
BREAKS = [text.encode() for text in ("\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")]
FIELDS = [b"M", b"F", b"x", b"1", b"7", b"p1", b'"M"', b",p,M,3", b'p2,"a,b",F,"4"', b"y" * LONGEST]
LINE = st.one_of(
    st.lists(st.sampled_from([*PIECES, *BREAKS, *FIELDS]), max_size=8).map(b"".join),
    st.lists(st.sampled_from([b'"', b"a", b"M", b"3"]), max_size=7).map(b",".join),
    st.binary(max_size=LONGEST + 9).map(lambda line: line.replace(b"\n", b"")),
)
WHOLE = st.tuples(
    st.sampled_from(["p1", "p2", "p3"]),
    st.sampled_from(["", "a", 'a "b"', "a,b", "é", '"', "\u2028"]),
    st.sampled_from(["M", "F", "", "x"]),
    st.integers(-1, 10).map(str),
)
FILES = settings(examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LONGEST_LINE", LONGEST)


def written(rows: Sequence[Sequence[str]], quoting: int = csv.QUOTE_MINIMAL) -> list[bytes]:
    """The lines of a well-formed file, without line breaks."""
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator="\n").writerows(rows)  # pyright: ignore[reportArgumentType]
    return file.getvalue().encode().split(b"\n")[:-1]


def counted(
    path: Path, rows: Sequence[bytes], *, k: int | None = None, end: bytes = b"\n", at_once: int = 2**22
) -> list[np.ndarray]:
    path.write_bytes(end.join([",".join(NAMES).encode(), *rows]))
    data = from_table(DOMAIN, path, id=None if k is None else "who", max_rows_per_id=k)
    assert isinstance(data, TableData)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BYTES_AT_ONCE", at_once)
        return list(dataclasses.replace(data, _key=bytes(32)).marginals(WANTED))


@FILES
@given(
    rows=st.lists(WHOLE, max_size=8),
    line=LINE,
    place=st.integers(0, 8),
    replaces=st.booleans(),
    end=st.sampled_from([b"\n", b"\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    at_once=st.integers(1, 90),
)
def test_a_line_of_any_bytes_moves_one_count(
    rows: list[tuple[str, ...]],
    line: bytes,
    place: int,
    replaces: bool,
    end: bytes,
    quoting: int,
    at_once: int,
    tmp_path: Path,
) -> None:
    """One more line adds one to one cell or changes nothing; one in the place of another changes two cells by one."""
    plain = written(rows, quoting)
    before = counted(tmp_path / "t.csv", plain)
    np.testing.assert_array_equal(before[0], DOMAIN.count({"sex": [r[2] for r in rows], "age": [r[3] for r in rows]}))
    changed = [*plain[:place], line, *plain[place + replaces :]]
    for x, y in zip(before, counted(tmp_path / "t.csv", changed, end=end, at_once=at_once), strict=True):
        assert np.maximum(y - x, 0).sum() <= 1
        assert np.maximum(x - y, 0).sum() <= replaces


@FILES
@given(several=st.lists(LINE, max_size=6), at_once=st.integers(1, 90))
def test_a_file_counts_what_its_lines_count(several: list[bytes], at_once: int, tmp_path: Path) -> None:
    """Counts are a sum over lines, each read as if it were alone, and as the rule says."""
    whole = counted(tmp_path / "t.csv", several, at_once=at_once)
    alone = [counted(tmp_path / "t.csv", [line, b""])[0] for line in several]
    np.testing.assert_array_equal(whole[0], sum(alone, np.zeros_like(whole[0])))
    for line, found in zip(several, alone, strict=True):
        rows = [fields] if len(fields := fields_of(line)) == len(NAMES) else []
        columns = [[text_or_none(row[place]) for row in rows] for place in (2, 3)]
        np.testing.assert_array_equal(found, DOMAIN.count(dict(zip(("sex", "age"), columns, strict=True))))


def fields_of(line: bytes) -> list[bytes]:
    """The fields of a line, byte by byte; none where it cannot be read."""
    rest = line.rstrip(b"\r")
    if len(rest) > LONGEST or b"\r" in rest:
        return []
    fields: list[bytes] = []
    while True:
        field = b""
        if rest.startswith(b'"'):
            rest = rest[1:]
            while rest and (rest[:2] == b'""' or rest[:1] != b'"'):
                field += rest[:1]
                rest = rest[2 if rest[:2] == b'""' else 1 :]
            if not rest:
                return []
            rest = rest[1:]
        else:
            field, rest = rest[: (rest + b",").index(b",")], rest[(rest + b",").index(b",") :]
            if b'"' in field:
                return []
        fields.append(field)
        if not rest:
            return fields
        if rest[:1] != b",":
            return []
        rest = rest[1:]


def text_or_none(field: bytes) -> str | None:
    try:
        return field.decode()
    except UnicodeDecodeError:
        return None


@FILES
@given(
    rows=st.lists(WHOLE, max_size=12),
    theirs=st.lists(LINE, max_size=4),
    places=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    k=st.integers(1, 3),
    at_once=st.integers(1, 90),
)
def test_lines_of_a_person_move_k_counts(
    rows: list[tuple[str, ...]], theirs: list[bytes], places: list[int], k: int, at_once: int, tmp_path: Path
) -> None:
    """I3: lines of one more person, of any bytes behind their id, and lines of anyone."""
    plain = written(rows)
    before = counted(tmp_path / "t.csv", plain, k=k)
    for prefix in (b"p77,", b""):
        changed = list(plain)
        for line, place in zip(theirs, places, strict=False):
            changed.insert(place, prefix + line)
        for x, y in zip(before, counted(tmp_path / "t.csv", changed, k=k, at_once=at_once), strict=True):
            if prefix:
                assert np.all(y >= x)
                assert (y - x).sum() <= k
            assert np.abs(y - x).sum() <= 2 * len(theirs)  # of a person who has k rows, one can take another's place


@FILES
@given(
    rows=st.lists(LINE | st.sampled_from([b"p1,a,M,1" + b"\r" * n for n in range(4)]), min_size=1, max_size=4),
    more=st.lists(LINE, min_size=1, max_size=2),
    end=st.sampled_from([b"\n", b"\r\n"]),
    at_once=st.integers(1, 90),
)
def test_what_follows_a_line_does_not_change_how_it_is_read(
    rows: list[bytes], more: list[bytes], end: bytes, at_once: int, tmp_path: Path
) -> None:
    """I8: the last line of a file, with carriage returns or without, counts the same where other lines follow it."""
    before = counted(tmp_path / "t.csv", rows, end=end, at_once=at_once)
    for behind in (more[:1], more):
        after = counted(tmp_path / "t.csv", [*rows, *behind], end=end, at_once=at_once)
        assert np.all(after[0] >= before[0])
        assert (after[0] - before[0]).sum() <= len(behind)


def test_a_lone_return_at_the_end_of_a_file_changes_nothing(tmp_path: Path) -> None:
    line = b"p1,a,M,1"
    longest = b"p," + b"a" * 54 + b",M,1"
    for last in (line, longest):
        for returns in range(4):
            for end in (b"\n", b"\r\n"):
                alone = counted(tmp_path / "t.csv", [line, last + b"\r" * returns], end=end)[3]
                followed = counted(tmp_path / "t.csv", [line, last + b"\r" * returns, b"x"], end=end)[3]
                assert alone == followed == 2


def test_a_long_run_of_returns_is_read_in_linear_time(tmp_path: Path) -> None:
    """A run of returns within a line and one at its end: neither is gone through again from each of its places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_LONGEST_LINE", 2**20)
        run = b"\r" * 2**19
        assert (
            counted(tmp_path / "t.csv", [b"p,a,M,1" + run, b"p,a" + run + b",M,1", b"p,a,M,1\r"], end=b"\r\n")[3] == 2
        )


def test_an_open_quote_swallows_nothing(tmp_path: Path) -> None:
    plain = [b"p1,a,M,1"] * 100_000
    for line in (b'"p1,a,M,1', b'p1,",M,1', b'p1,a,M,"1', b'p1,"a\\,M,1', b'"' * 59):
        for several in ([line, *plain], [*plain[1:], line, plain[0]]):
            assert counted(tmp_path / "t.csv", several)[3] == 100_000


def test_the_rule_of_lines(tmp_path: Path) -> None:
    """Which lines are left out, and what the fields of the others are."""
    left_out = [
        b"",
        b"\r",
        b"p,a,M",
        b"p,a,M,1,",
        b"p,a\rb,M,1",
        b'p,"a"b,M,1',
        b'p,"a,M,1',
        b'"p,a,M,1"',
        b'p,5" pipe,M,1',
    ]
    left_out += [b"p," + b"a" * 55 + b",M,1", b'"a', b'b",M,1', b"p,a,\rM,1"]
    assert counted(tmp_path / "t.csv", [*left_out, b""])[3] == 0
    read = [b"p,a,M,1", b"p,a,M,1\r", b"p,a,M,1\r\r", b'p,"a""b",M,"1"', b"\xff,\0,M,1", b"p," + b"a" * 54 + b",M,1"]
    assert counted(tmp_path / "t.csv", read)[1].tolist() == [len(read), 0, 0, 0]
    others = [b"p,a, M,1", b"p,a,\xff,1", b"p,a,M\xff,1", b"p,a,M\0,1", "p,a,M\u2028,1".encode()]
    assert counted(tmp_path / "t.csv", others)[1].tolist() == [0, 0, 0, len(others)]
    assert counted(tmp_path / "t.csv", [b"p,a,,1", b'p,a,"",1'])[1].tolist() == [0, 0, 2, 0]
    assert counted(tmp_path / "t.csv", [b"\xff,a,M,1", b",a,M,1", b'"",a,M,1'], k=5)[3] == 0  # missing ids


def test_a_line_is_too_long_wherever_pieces_end(tmp_path: Path) -> None:
    line = b"p," + b"a" * 54 + b",M,1"
    for at_once in range(1, 2 * LONGEST + 9):
        assert counted(tmp_path / "t.csv", [line + b"." + b"0" * 70, line, line + b"."], at_once=at_once)[3] == 1


def test_a_byte_order_mark_is_taken_from_the_header_only(tmp_path: Path) -> None:
    domain = Domain({"sex": Labels(["M"], outside="other")})
    for at_once in (1, 6, 7, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "_BYTES_AT_ONCE", at_once)
            (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfsex\n" + b"\xef\xbb\xbfM\n" * 5 + b"M")
            assert from_table(domain, tmp_path / "t.csv").marginal(["sex"]).tolist() == [1, 5]


def test_a_line_without_end_takes_little_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"sex,age\n")
        for _ in range(100):
            file.write(b"x" * 2**20)
        file.write(b"\nM,1\n")
    data = from_table(DOMAIN, tmp_path / "t.csv.gz")
    tracemalloc.start()
    assert data.marginal(["sex"]).tolist() == [1, 0, 0, 0]
    assert tracemalloc.get_traced_memory()[1] < 30 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "first",
    [
        b'sex,"age',
        b'"sex\nage"',
        b'"sex" x,age',
        b"sex\rM\rF",
        b'sex,age,"' + b"a" * 60 + b'"',
        b"",
        b"\r",
        b"sex,age,age",
    ],
    ids=ascii,
)
def test_a_broken_header_is_told_before_data_are_read(first: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(first + b"\nM,1\n")
    with pytest.raises(DataError, match=r"^The first line of .*t\.csv does not name each column once"):
        from_table(DOMAIN, tmp_path / "t.csv")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    with pytest.raises(DataError, match=r"t\.csv is empty"):
        from_table(DOMAIN, tmp_path / "t.csv")


def test_headers_in_quotes_and_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b'"sex";"a,""b";age\nM;"x;y";1\n')
    (tmp_path / "2.csv").write_bytes(b"age|sex\n2|F")
    (tmp_path / "3.csv").write_bytes(b"sex\tz\tage\r\nM\t\t3\r\n")
    assert from_table(DOMAIN, tmp_path).marginal(["age"]).tolist() == [0, 1, 1, 1, *[0] * 6]
    (tmp_path / "4.csv").write_bytes(b"sex,years\nM,1\n")
    with pytest.raises(DataError, match="Column 'age' is not in the data"):
        from_table(DOMAIN, tmp_path)


@pytest.mark.parametrize("more", [0, 1])
def test_a_header_is_at_most_as_long_as_a_line(more: int, tmp_path: Path) -> None:
    text = "sex,age," + "z" * (LONGEST - 8 + more)
    (tmp_path / "t.csv").write_text(f"{text}\n")
    if more:
        with pytest.raises(DataError, match="a header line of at most 1 MiB"):
            lines.csv_header(tmp_path / "t.csv")
    else:
        assert ",".join(lines.csv_header(tmp_path / "t.csv")[1]) == text
