"""A folder counts each record once: hidden copies are left out, and what may be a copy is refused (I7)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import DataError, Domain, from_table
from hdmm.apps.cli import run
from hdmm.data.records import read_files
from tests.support.spec_cases import SPEC, people, write_csv, write_spec

ROWS = "sex\n" + "M\n" * 3 + "F\n" * 2
DOMAIN = Domain({"sex": ["M", "F"]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t" / "more").mkdir(parents=True)
    (tmp_path / "t" / "people.csv").write_text(ROWS)
    (tmp_path / "t" / "more" / "people.csv").write_text(ROWS)  # other people of the same name of file
    return tmp_path / "t"


def counted(place: Path) -> list[int]:
    return from_table(DOMAIN, place).marginal(["sex"]).tolist()


def test_hidden_names_are_left_out(folder: Path) -> None:
    hidden = (
        ".people.csv",
        "._people.csv",
        "_people.csv",
        ".ipynb_checkpoints/people-checkpoint.csv",
        "__MACOSX/people.csv",
        "more/.git/deep/people.csv",
        "_temporary/0/1.csv",
    )
    for name in hidden:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(ROWS)
    os.symlink(folder / "people.csv", folder / ".link.csv")
    assert counted(folder) == [6, 4]
    assert read_files(from_table(DOMAIN, folder)) == (folder / "more" / "people.csv", folder / "people.csv")


def compressed(folder: Path, name: str) -> None:
    with gzip.open(folder / name, "wt") as file:
        file.write(ROWS)


COPIES: dict[str, Callable[[Path], object]] = {
    "compressed": lambda f: compressed(f, "people.csv.gz"),
    "compressed, in capitals": lambda f: compressed(f, "PEOPLE.CSV.GZ"),
    "in capitals": lambda f: (f / "people.CSV").write_text(ROWS),
    "a hard link": lambda f: os.link(f / "people.csv", f / "persons.csv"),
    "a hard link elsewhere": lambda f: os.link(f / "people.csv", f / "more" / "persons.csv"),
}
LINKS: dict[str, Callable[[Path], object]] = {
    "to a file": lambda f: os.symlink(f / "people.csv", f / "persons.csv"),
    "to a file outside": lambda f: os.symlink("/etc/hostname", f / "persons.csv"),
    "to nothing": lambda f: os.symlink(f / "nothing", f / "persons.csv"),
    "to a folder": lambda f: os.symlink(f / "more", f / "again"),
    "to the folder itself": lambda f: os.symlink(f, f / "more" / "again"),
    "to a file, in capitals": lambda f: os.symlink(f / "people.csv", f / "persons.CSV"),
}


@pytest.mark.parametrize("copy", COPIES)
def test_what_may_be_a_copy_is_refused(copy: str, folder: Path) -> None:
    COPIES[copy](folder)
    with pytest.raises(DataError, match="may hold the same records, which would be counted twice"):
        from_table(DOMAIN, folder)


@pytest.mark.parametrize("link", LINKS)
def test_links_in_a_folder_are_refused(link: str, folder: Path) -> None:
    LINKS[link](folder)
    with pytest.raises(DataError, match=r"is a link, which may lead to records"):
        from_table(DOMAIN, folder)


def test_two_suffixes_of_parquet_are_copies(tmp_path: Path) -> None:
    for name in ("people.parquet", "people.pq"):
        pq.write_table(pa.table({"sex": ["M"]}), tmp_path / name)
    with pytest.raises(DataError, match="may hold the same records"):
        from_table(DOMAIN, tmp_path)


def test_what_is_named_itself_is_read(folder: Path, tmp_path: Path) -> None:
    """Whoever names a link or a hidden file means it; and a path names one file, whatever lies beside it."""
    compressed(folder, "people.csv.gz")
    os.symlink(folder / "people.csv", tmp_path / "link.csv")
    os.symlink(folder / "more", tmp_path / "more")
    (folder / "_hidden.CSV").write_text(ROWS)
    os.rename(folder / "people.csv.gz", folder / "people.CSV.GZ")
    for place in (tmp_path / "link.csv", tmp_path / "more", folder / "_hidden.CSV", folder / "people.CSV.GZ"):
        assert counted(place) == [3, 2], place


def test_other_files_and_other_letters(folder: Path) -> None:
    (folder / "READ.ME").write_text("about")
    os.symlink(folder / "READ.ME", folder / "read.too")
    (folder / "people.csv.bak").write_text(ROWS)
    (folder / "persons.Csv").write_text(ROWS)
    assert counted(folder) == [9, 6]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="everything may be read by root")
def test_a_folder_that_may_not_be_read_is_not_taken_for_empty(folder: Path) -> None:
    (folder / "more").chmod(0)
    try:
        with pytest.raises(DataError, match="may not be read"):
            from_table(DOMAIN, folder)
    finally:
        (folder / "more").chmod(0o700)


def test_check_lists_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "parts").mkdir()
    for i in range(25):
        write_csv(people().slice(i, 1), tmp_path / "parts" / f"{i:02}.csv")
    (tmp_path / "parts" / "_old.csv").write_text("x")
    spec = write_spec(tmp_path, SPEC.replace("people.csv", "parts"))
    assert run(["check", str(spec)]) == 0
    shown = capsys.readouterr().out
    assert "A release reads 25 files:" in shown
    assert "parts/00.csv" in shown
    assert "parts/19.csv" in shown
    assert "parts/20.csv" not in shown
    assert "… and 5 more" in shown
    assert "_old" not in shown
    assert run(["check", str(spec), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert files == {"count": 25, "first": [str(tmp_path / "parts" / f"{i:02}.csv") for i in range(25)]}


def test_a_folder_that_may_not_be_listed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(place: Path) -> object:
        if Path(place).name == "more":
            raise PermissionError(13, "denied")
        return real(place)

    monkeypatch.setattr("hdmm.data.sources.listing.os.scandir", scandir)
    with pytest.raises(DataError, match=r"permission to read the folder .*more"):
        from_table(DOMAIN, folder)
