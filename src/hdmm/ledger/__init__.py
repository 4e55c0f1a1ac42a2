"""The privacy budget on disk, which is debited durably before data is read (docs/ledger.md)."""

from hdmm.ledger.ledger import Entry, Ledger, Receipt, near_accounts

__all__ = ["Entry", "Ledger", "Receipt", "near_accounts"]
