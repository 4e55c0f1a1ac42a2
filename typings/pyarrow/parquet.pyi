from pathlib import Path

from pyarrow import Schema

def read_schema(where: str | Path) -> Schema: ...
