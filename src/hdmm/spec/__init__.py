"""The TOML file a user writes: data, domain, tables, privacy, ledger, outputs (docs/spec.md)."""

from hdmm.spec.model import Spec, TableRequest
from hdmm.spec.read import load_spec, read_spec
from hdmm.spec.schema import schema_text

__all__ = ["Spec", "TableRequest", "load_spec", "read_spec", "schema_text"]
