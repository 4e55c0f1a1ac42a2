"""Tables that this process reads: frames in memory, and files through Arrow and DuckDB.

A `source` names its columns and gives them in batches. `listing` says which files a path names, `formats` refuses
folders that hold more than their table, `csv_lines` reads CSV so that a line is a row whatever it holds,
`table_files` and `datasets` read the rest. Open `source` first.
"""
