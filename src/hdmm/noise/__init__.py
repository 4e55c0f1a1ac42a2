"""Exact integer noise from OS entropy: discrete_laplace and discrete_gaussian. There is no seed."""

from hdmm.noise.gaussian import discrete_gaussian
from hdmm.noise.laplace import discrete_laplace
from hdmm.noise.parameters import LARGEST_NOISE, LARGEST_SCALE, exact_scale, exact_variance

__all__ = ["LARGEST_NOISE", "LARGEST_SCALE", "discrete_gaussian", "discrete_laplace", "exact_scale", "exact_variance"]
