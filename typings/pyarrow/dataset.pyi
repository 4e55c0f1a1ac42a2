from collections.abc import Iterator, Sequence

from pyarrow import RecordBatch, Schema

class Dataset:
    @property
    def schema(self) -> Schema: ...
    def to_batches(self, *, columns: Sequence[str]) -> Iterator[RecordBatch]: ...
