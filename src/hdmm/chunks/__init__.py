"""What runs beyond memory: counts, answers and coordinates as chunks on disk.

`layout` says how they lie in chunks, `passage` applies a Kronecker product in two passes over them, `chunk_files`
writes each file whole with a digest, and `coordinates` is the estimate. Open `layout` first.
"""
