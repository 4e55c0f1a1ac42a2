"""The Matrix Mechanism: a search over all strategies, for domains small enough for it."""

from __future__ import annotations

import numpy as np

from hdmm.baselines.applies import require_cells
from hdmm.baselines.descent import descend
from hdmm.baselines.hb import height
from hdmm.baselines.semidefinite import semidefinite_optimum
from hdmm.baselines.written_out import cell_gram, explicit
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Haar, Nested, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.strategy import Strategy

_MOST = 64  # cells
_BRANCHINGS = (2, 8)  # branching factors of the trees among the starts
_WAVES = (2, 3, 5)  # numbers of smooth rows: for all ranges on 32 cells three are best, and trees have 2 % more error
_SPREAD = 0.02  # size of the entries added to a start, so that no two rows stay equal


def matrix_mechanism(workload: Workload, *, noise: Noise | str = Noise.LAPLACE) -> Strategy:
    """The A with the least ‖A‖²·‖WA⁺‖²_F found, over all A with entries of any sign. Up to 64 cells.

    For Gaussian noise (‖A‖ is the largest L2 norm of a column) this is a semidefinite program, which is solved to its
    optimum by `semidefinite_optimum` and needs CVXPY. For Laplace noise (L1) the reference's program is semidefinite
    except for a constraint on rank; without that constraint it cannot express the L1 norm, and with it the program is
    not convex. Here it is solved directly in A, of 2N × N entries, by `descend` from seven starts: trees, wavelets,
    smooth rows and V's square root. The result is the best of seven local optima. O(N³) per step.

    Reference: Li, Hay, Rastogi, Miklau, McGregor, "Optimizing linear counting queries under differential privacy"
    (PODS 2010).

    >>> from hdmm import Domain, Prefix, unit_error
    >>> w = Workload.product(Domain({"age": 8}), age=Prefix())
    >>> round(unit_error(w, matrix_mechanism(w)), 2)  # Identity has 36
    35.05
    >>> round(unit_error(w, matrix_mechanism(w, noise="gaussian"), noise="gaussian"), 2)
    17.87
    """
    require_cells(workload, "matrix_mechanism", most=_MOST)
    V, group = cell_gram(workload)
    if Noise.of(noise) is Noise.GAUSSIAN:
        return explicit(workload.domain, semidefinite_optimum(V)[:, group])
    found = [descend(start, V, tolerance=1e-8, iterations=3000) for start in _starts(V)]
    return explicit(workload.domain, min(found, key=lambda pair: pair[0])[1][:, group])


def _starts(V: Array) -> list[Array]:
    """The starts, each 2N × N: the cells, and above them trees, wavelets, smooth rows or the square root of V."""
    n = len(V)
    values, Q = np.linalg.eigh(V)
    root = (Q * np.maximum(values, 0.0) ** 0.25) @ Q.T
    tops = [to_dense(Haar(n))[:n], root * np.sqrt(n / np.trace(root @ root))]
    x = (np.arange(n) + 0.5) / n
    tops += [0.5 + 0.5 * np.cos(np.pi * np.outer(np.arange(1, p + 1), x)) for p in _WAVES if p <= n]
    for b in _BRANCHINGS:
        widths = [b**level for level in range(1, height(n, b) + 1)]
        tops.append(to_dense(Nested(np.ones((len(widths), n)), widths))[-n:])
    rows, columns = np.indices((2 * n, n))
    wave = _SPREAD * np.cos(1 + rows * (columns + np.sqrt(2)))  # as good as random numbers here, and always the same
    return [np.vstack([np.eye(n), top, np.zeros((n - len(top), n))]) + wave for top in tops]
