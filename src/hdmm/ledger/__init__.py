"""The privacy budget on disk, which is debited durably before data is read (docs/ledger.md)."""

from hdmm.ledger.audit import Audit, Entry, audited, check_writable, is_there
from hdmm.ledger.ledger import Ledger, Receipt, open_account

__all__ = ["Audit", "Entry", "Ledger", "Receipt", "audited", "check_writable", "is_there", "open_account"]
