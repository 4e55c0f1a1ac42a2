from collections.abc import Mapping, Sequence
from typing import BinaryIO, Literal

from pyarrow import BufferReader, DataType, Table

class ReadOptions:
    def __init__(self, *, column_names: Sequence[str], block_size: int) -> None: ...

class ParseOptions:
    def __init__(
        self,
        *,
        delimiter: str,
        quote_char: str,
        double_quote: bool,
        escape_char: Literal[False],
        newlines_in_values: bool,
        ignore_empty_lines: bool,
    ) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        check_utf8: bool,
        column_types: Mapping[str, DataType],
        null_values: Sequence[str],
        include_columns: Sequence[str],
    ) -> None: ...

def read_csv(
    input_file: BufferReader, read_options: ReadOptions, parse_options: ParseOptions, convert_options: ConvertOptions
) -> Table: ...
def write_csv(data: Table, output_file: BinaryIO) -> None: ...
