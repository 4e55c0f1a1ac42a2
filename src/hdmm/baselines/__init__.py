"""The methods with which HDMM is compared. They return a strategy for a workload; dawa and privbayes return answers.

One file each; `applies` says what each is defined for, `written_out` has strategies over all cells, and `descent` and
`semidefinite` are how they are searched for. `partition` and `network` have what DAWA and PrivBayes choose from the
counts, noise and private choices that `measure` gives them, and `stages` their answers.
"""

from hdmm.baselines.datacube import datacube
from hdmm.baselines.dawa import dawa
from hdmm.baselines.greedy_h import greedy_h
from hdmm.baselines.hb import hb
from hdmm.baselines.identity_strategy import identity
from hdmm.baselines.laplace_strategy import laplace
from hdmm.baselines.low_rank import low_rank
from hdmm.baselines.matrix_mechanism import matrix_mechanism
from hdmm.baselines.privbayes import privbayes
from hdmm.baselines.privelet import privelet
from hdmm.baselines.quadtree import quadtree

__all__ = [
    "datacube",
    "dawa",
    "greedy_h",
    "hb",
    "identity",
    "laplace",
    "low_rank",
    "matrix_mechanism",
    "privbayes",
    "privelet",
    "quadtree",
]
