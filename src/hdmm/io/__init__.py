"""What goes to disk: strict JSON and .npy arrays, never pickle, and one codec for the values in them."""

from hdmm.io.codec import decode, encode, file_sizes_of, load_record, save_record
from hdmm.io.folder import load_folder, save_folder
from hdmm.io.kinds import Held
from hdmm.io.records import StrictRecord
from hdmm.io.strict_json import Json

__all__ = [
    "Held",
    "Json",
    "StrictRecord",
    "decode",
    "encode",
    "file_sizes_of",
    "load_folder",
    "load_record",
    "save_folder",
    "save_record",
]
