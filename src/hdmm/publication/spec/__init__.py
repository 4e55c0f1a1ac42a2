"""The TOML file a user writes: data, domain, tables, privacy, ledger, outputs (docs/reference/spec.md)."""

from hdmm.publication.spec.keys import schema_text
from hdmm.publication.spec.model import Spec
from hdmm.publication.spec.read import load_spec, read_spec

__all__ = ["Spec", "load_spec", "read_spec", "schema_text"]
