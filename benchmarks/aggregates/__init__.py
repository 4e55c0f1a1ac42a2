"""Counts, sums, means and quantiles by group beside other libraries: `python -m benchmarks.aggregates`."""
