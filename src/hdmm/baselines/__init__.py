"""The methods HDMM is compared with: workload in, strategy out."""

from hdmm.baselines.identity import identity
from hdmm.baselines.laplace import laplace

__all__ = ["identity", "laplace"]
