"""Where counts come from: dense arrays, frames, files, databases. They are asked for marginals, never for data."""

from hdmm.data.base import Data
from hdmm.data.chunks import ChunkedCounts, from_chunks
from hdmm.data.dense import from_array
from hdmm.data.table import from_table

__all__ = ["ChunkedCounts", "Data", "from_array", "from_chunks", "from_table"]
