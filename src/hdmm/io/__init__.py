"""Domains, workloads and strategies on disk: strict JSON and .npy arrays, never pickle."""

from hdmm.io.folder import load_folder, save_folder
from hdmm.io.kinds import (
    decode_domain,
    decode_strategy,
    decode_workload,
    encode_domain,
    encode_strategy,
    encode_workload,
)
from hdmm.io.strict_json import Json

__all__ = [
    "Json",
    "decode_domain",
    "decode_strategy",
    "decode_workload",
    "encode_domain",
    "encode_strategy",
    "encode_workload",
    "load_folder",
    "save_folder",
]
