"""The paper's evaluation, cell by cell: `python -m benchmarks.paper --help`."""
