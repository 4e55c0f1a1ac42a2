"""Engines: where a release is computed if not by this machine's processor. `gpu()` takes a GPU through CuPy."""

from hdmm.engines.device import Device, gpu

__all__ = ["Device", "gpu"]
