"""Where counts come from: arrays, frames, files, databases. They are asked for marginals, never for their rows.

`counts` has Data, which every source becomes: `arrays` are counts already, `records` a table with one row per record,
read from `sources` (frames, files) or counted inside `engines` (DuckDB, PostgreSQL, SQLite, Spark); `table_like` opens
one as users give it, and `where` says which of its rows are counted. `columns` turns columns into codes, `types`
decides by the schema alone which are accepted, `identity` says whose row it is and keeps at most k rows of each person,
and `counting` counts many marginals per pass. `inspect` shows what a domain misses, for the owner of the data alone: it
is not private. Open `counts`, then `records`.
"""

from hdmm.data.arrays import ChunkedCounts, from_array, from_chunks
from hdmm.data.counts import Data
from hdmm.data.table_like import from_table

__all__ = ["ChunkedCounts", "Data", "from_array", "from_chunks", "from_table"]
