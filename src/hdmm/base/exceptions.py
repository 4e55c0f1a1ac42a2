"""Errors a caller can act on: each says what was wrong, with which value, and what to do.

Messages hold names, shapes and declared labels; never whole matrices and never data.
"""


class HdmmError(Exception):
    """The base class of every error that hdmm raises on purpose.

    >>> issubclass(DomainError, HdmmError)
    True
    """


class DomainError(HdmmError, ValueError):
    """A domain, an attribute or a declared value is not well formed."""


class WorkloadError(HdmmError, ValueError):
    """A predicate set, product or workload is not well formed."""


class NotApplicableError(WorkloadError):
    """A method is not defined for this workload; the paper's tables show "-"."""


class MatrixError(HdmmError, ValueError):
    """The shapes of matrices do not fit, or a matrix is too large to write out."""


class StrategyError(HdmmError, ValueError):
    """A strategy is not well formed, or cannot answer the queries it is given."""


class PrivacyError(HdmmError, ValueError):
    """A privacy parameter is not a positive, finite, exact number."""


class FileError(HdmmError, ValueError):
    """A file was not written by hdmm, is of another version, is damaged, or is not safe to read."""


class NoiseError(HdmmError, ValueError):
    """A noise scale is not positive and exact, or is larger than the integers of a release can hold."""


class BudgetError(HdmmError, ValueError):
    """A privacy budget does not allow a request: too little is left, or the account differs from what was declared."""


class LedgerError(HdmmError, RuntimeError):
    """A ledger is missing, damaged, rolled back or locked, or it cannot record what it is given."""


class DataError(HdmmError, ValueError):
    """A data source is missing, lacks a column or cannot be read, or a request has more cells than fit in memory."""


class EngineError(HdmmError, RuntimeError):
    """An engine is not there, lacks a library, or has too little memory for what it is asked to do."""


class PackageError(HdmmError, ImportError):
    """A library that hdmm needs only for what was asked is not installed."""


class ReportError(HdmmError, ValueError):
    """A report cannot show what it is given, because lengths differ or numbers are not finite."""


class SqlError(WorkloadError):
    """SQL text is not valid or not supported; `line` and `column` count from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class SpecError(HdmmError, ValueError):
    """A specification cannot be followed; `file`, `line` (counted from 1) and `key` say where."""

    def __init__(self, message: str, *, file: str, line: int, key: str) -> None:
        super().__init__(f"{file}, line {line}{f', {key}' if key else ''}: {message}")
        self.file = file
        self.line = line
        self.key = key


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or another signal ended a release after its debit; the message says what became of what was paid for.

    `release` is what was measured, if only memory holds it: save it, because the budget stays charged.

    >>> issubclass(Interrupted, KeyboardInterrupt)
    True
    """

    def __init__(self, message: str, release: object = None) -> None:
        super().__init__(message)
        self.release = release
