"""The TOML file a user writes: data, domain, tables, privacy, ledger, outputs (docs/spec.md)."""

from hdmm.spec.model import DataPart, LedgerPart, OutputPart, PlanPart, Spec, TableRequest
from hdmm.spec.read import load_spec, read_spec

__all__ = ["DataPart", "LedgerPart", "OutputPart", "PlanPart", "Spec", "TableRequest", "load_spec", "read_spec"]
