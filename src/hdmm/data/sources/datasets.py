"""Datasets of pyarrow: the files behind one are examined as those of a folder are.

A dataset has one schema, usually that of its first file, and Arrow converts the columns of all other files to it while
it reads. Whether that succeeds, and which person an id then names, depends on the values: 2**53 + 1 fails as a float,
and "x" as a number. So the files must have the types of the dataset (security I1, I5). Text files, of which Arrow
infers the types from the first rows, are refused (security I6), and so are files of table formats (security I7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.sources.formats import refuse_table_formats
from hdmm.data.sources.source import (
    Batch,
    ColumnKind,
    Readable,
    Several,
    Source,
    declares_names,
    of_record_batch,
    of_schema,
    plain_types,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.fs as pa_fs
else:
    pa, ds, pa_fs = Lazy("pyarrow"), Lazy("pyarrow.dataset"), Lazy("pyarrow.fs")


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowDataset(Source):
    """A pyarrow Dataset of files or of tables in memory."""

    dataset: ds.Dataset

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory, so that they are the same whenever they are read."""
        return all(isinstance(part, ds.InMemoryDataset) for part in _parts(self.dataset))

    def columns(self) -> dict[str, ColumnKind]:
        found: dict[str, ColumnKind] = dict(of_schema(self.dataset.schema))
        for part in _parts(self.dataset):
            if isinstance(part, ds.FileSystemDataset):
                _refuse_files(part)
            for fragment in [] if isinstance(part, ds.InMemoryDataset) else part.get_fragments():
                for name, kind in of_schema(fragment.physical_schema).items():
                    if name in found and not _alike(kind, self.dataset.schema.field(name).type):
                        found[name] = _with(found[name], kind)
        return found

    def checked(self, wanted: Sequence[str]) -> dict[str, Readable]:
        found = super(ArrowDataset, self).checked(wanted)
        for name, kind in found.items():
            if isinstance(kind, Several):
                raise DataError(
                    f"Column {name!r} of the dataset is of type {kind.types[0]}, and of other types in its files: "
                    f"{kind}. Whether Arrow can convert them depends on their values. Give the path of the folder "
                    "instead of a dataset, or write all files with one type."
                )
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        return map(of_record_batch, self.dataset.to_batches(columns=list(columns)))


@declares_names.register
def _(source: ArrowDataset) -> bool:
    return False


def _parts(dataset: ds.Dataset) -> Iterator[ds.Dataset]:
    """The datasets that a dataset unites, or the dataset itself."""
    if isinstance(dataset, ds.UnionDataset):
        for child in dataset.children:
            yield from _parts(child)
    else:
        yield dataset


def _refuse_files(dataset: ds.FileSystemDataset) -> None:
    if isinstance(dataset.format, ds.CsvFileFormat | ds.JsonFileFormat):
        raise DataError(
            "The dataset reads text files: Arrow infers the types of their columns from the rows and fails on a row "
            "that does not fit. Give the path of the CSV file or folder instead of a dataset."
        )
    folder, files = "", dataset.filesystem
    if isinstance(files, pa_fs.SubTreeFileSystem):
        folder, files = files.base_path, files.base_fs
    if isinstance(files, pa_fs.LocalFileSystem):
        refuse_table_formats(Path(folder, file) for file in dataset.files)


def _alike(kind: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Whether values of a type are taken as they are by another: the same, missing ones, or coded in a dictionary."""
    return plain_types(kind) == plain_types(other) or (kind is not None and pa.types.is_null(kind))


def _with(kind: ColumnKind, other: pa.DataType | None) -> ColumnKind:
    types = kind.types if isinstance(kind, Several) else (kind,)
    return Several(tuple(dict.fromkeys(each for each in (*types, other) if isinstance(each, pa.DataType))))
