"""Tables that this process reads: frames in memory, and files through Arrow.

A `source` names its columns and gives them in batches: `frames` are in memory, `table_files` are read. `listing` says
which files a path names and refuses those that may hold a record twice; `csv_lines` reads CSV so that a line is a row
whatever it holds. Open `source` first.
"""
