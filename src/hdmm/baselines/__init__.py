"""The methods with which HDMM is compared: each returns a strategy for a workload, without a look at data.

One file each; `applies` says what each is defined for, `written_out` has strategies over all cells, and `descent` and
`semidefinite` are how they are searched for. DAWA and PrivBayes, which look at the data, are in benchmarks/competitors.
"""

from hdmm.baselines.datacube import datacube
from hdmm.baselines.greedy_h import greedy_h
from hdmm.baselines.hb import hb
from hdmm.baselines.identity_strategy import identity
from hdmm.baselines.laplace_strategy import laplace
from hdmm.baselines.low_rank import low_rank
from hdmm.baselines.matrix_mechanism import matrix_mechanism
from hdmm.baselines.privelet import privelet
from hdmm.baselines.quadtree import quadtree

__all__ = [
    "datacube",
    "greedy_h",
    "hb",
    "identity",
    "laplace",
    "low_rank",
    "matrix_mechanism",
    "privelet",
    "quadtree",
]
