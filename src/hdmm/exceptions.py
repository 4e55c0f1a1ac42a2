"""Errors a caller can act on: each says what was wrong, with which value, and what to do.

Messages hold names, shapes and declared labels; never whole matrices and never data.
"""


class HdmmError(Exception):
    """Base of every error hdmm raises on purpose.

    >>> issubclass(DomainError, HdmmError)
    True
    """


class DomainError(HdmmError, ValueError):
    """A domain, an attribute or a value of one is not well formed."""


class WorkloadError(HdmmError, ValueError):
    """A predicate set, product or workload is not well formed."""


class NotApplicableError(WorkloadError):
    """A method is not defined for this workload: the paper's "-"."""


class MatrixError(HdmmError, ValueError):
    """Shapes that do not fit, or a matrix too large to write out."""


class StrategyError(HdmmError, ValueError):
    """A strategy is not well formed, or cannot answer what is asked of it."""


class PrivacyError(HdmmError, ValueError):
    """A privacy parameter is not a positive, finite, exact number."""


class FileError(HdmmError, ValueError):
    """A file is not what it should be: not ours, of another version, damaged, or unsafe to read."""


class NoiseError(HdmmError, ValueError):
    """A scale of noise is not positive and exact, or more than the integers of a release can hold."""


class BudgetError(HdmmError, ValueError):
    """A privacy budget does not allow what is asked: too little is left, or the account is another than declared."""


class LedgerError(HdmmError, RuntimeError):
    """A ledger cannot be trusted or reached (missing, damaged, rolled back, locked), or record what it is given."""


class DataError(HdmmError, ValueError):
    """A source of data is not there, lacks a column, or cannot be read; or more cells are asked for than fit."""


class ReportError(HdmmError, ValueError):
    """A report cannot show what it is given: lengths that differ, numbers that are not finite."""


class SqlError(WorkloadError):
    """SQL text that is not understood, or not supported; `line` and `column` count from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class SpecError(HdmmError, ValueError):
    """A specification that cannot be followed: `file`, `line` (counted from 1) and `key` say where."""

    def __init__(self, message: str, *, file: str, line: int, key: str) -> None:
        super().__init__(f"{file}, line {line}{f', {key}' if key else ''}: {message}")
        self.file = file
        self.line = line
        self.key = key
