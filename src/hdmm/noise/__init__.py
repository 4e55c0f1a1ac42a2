"""Exact noise from OS entropy: discrete_laplace and rounded_gaussian. There is no seed.

ReleaseKey draws noise that can be computed again, under a key that only the release knows (`keyed`). `bits` is the
key stream, `probability` has certified bounds on e⁻ᵃ, 1/(1 + eᵃ) and erf; `chacha`, `numbered`, `numbered_gaussian` and
`device_noise` are noise by number, the same by NumPy and by a GPU's kernel. Floats are used in the Gaussian filter
only. Open `probability`, then `laplace` and `gaussian`.
"""

from hdmm.noise.device_noise import DeviceNoise
from hdmm.noise.draws import check_scale, draw
from hdmm.noise.gaussian import rounded_gaussian
from hdmm.noise.keyed import HIDING, KeyNotHereError, ReleaseKey, SealedKey
from hdmm.noise.laplace import discrete_laplace
from hdmm.noise.parameters import LARGEST_NOISE, LARGEST_SCALE, exact_scale, exact_variance

__all__ = [
    "HIDING",
    "LARGEST_NOISE",
    "LARGEST_SCALE",
    "DeviceNoise",
    "KeyNotHereError",
    "ReleaseKey",
    "SealedKey",
    "check_scale",
    "discrete_laplace",
    "draw",
    "exact_scale",
    "exact_variance",
    "rounded_gaussian",
]
