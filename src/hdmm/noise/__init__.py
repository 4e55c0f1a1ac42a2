"""Exact noise from OS entropy: discrete_laplace and discrete_gaussian. There is no seed.

ReleaseKey draws noise that can be computed again, under a key that only the release knows (`keyed`). `bits` is the
key stream, `probability` certified digits of e⁻ᵃ and 1/(1 + eᵃ); `chacha`, `numbered` and `device_noise` are noise by
number, the same by NumPy and by a GPU's kernel. No floats but in the Gaussian filter. Open `probability`, then
`laplace`.
"""

from hdmm.noise.device_noise import DeviceNoise
from hdmm.noise.draws import check_scale, draw
from hdmm.noise.gaussian import discrete_gaussian
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
    "discrete_gaussian",
    "discrete_laplace",
    "draw",
    "exact_scale",
    "exact_variance",
]
