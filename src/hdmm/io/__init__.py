"""What goes to disk: strict JSON and .npy arrays, never pickle, and one codec for the values in them.

`strict_records` has StrictRecord: exactly these keys, each of its type. `kinds` has one line per kind of value in
files, `codec` turns values into JSON and arrays and back through the constructors that check, and `folder` writes a
folder whole or not at all, and reads it without trust. Open `kinds` first.
"""

from hdmm.io.codec import decode, encode, file_sizes_of, load_record, save_record
from hdmm.io.folder import load_folder, save_folder
from hdmm.io.kinds import Stored
from hdmm.io.strict_json import Json
from hdmm.io.strict_records import StrictRecord

__all__ = [
    "Json",
    "Stored",
    "StrictRecord",
    "decode",
    "encode",
    "file_sizes_of",
    "load_folder",
    "load_record",
    "save_folder",
    "save_record",
]
