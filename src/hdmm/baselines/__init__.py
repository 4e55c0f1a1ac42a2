"""The methods with which HDMM is compared: each returns a strategy for a workload, without a look at data.

`fixed` has what needs no search, trees included; `datacube` chooses marginals; `searched` looks among all matrices.
DAWA and PrivBayes, which look at the data, are in benchmarks/competitors. Open `fixed` first.
"""

from hdmm.baselines.datacube import datacube
from hdmm.baselines.fixed import greedy_h, hb, identity, laplace, privelet, quadtree
from hdmm.baselines.searched import low_rank, matrix_mechanism

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
