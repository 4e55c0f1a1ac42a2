"""What a method requires of a workload: the "-" of the paper's tables as an error that gives the reason."""

from __future__ import annotations

from hdmm.base.exceptions import NotApplicableError
from hdmm.describe.workload import Workload


def require_attributes(workload: Workload, name: str, *, most: int, least: int = 1) -> None:
    """Raise NotApplicableError if the method is not defined for this number of attributes.

    >>> from hdmm import Domain
    >>> require_attributes(Workload.marginals(Domain({"a": 2, "b": 2}), k=1), "greedy_h", most=1)
    Traceback (most recent call last):
    ...
    hdmm.base.exceptions.NotApplicableError: greedy_h is defined on 1 attribute; the domain has 2 (a, b). ...
    """
    d = len(workload.domain)
    if not least <= d <= most:
        counts = f"{most} attribute{'s' if most > 1 else ''}" if least == most else f"{least} to {most} attributes"
        raise NotApplicableError(
            f"{name} is defined on {counts}; the domain has {d} ({', '.join(workload.domain.names)}). "
            "Use another baseline, or a domain of fewer attributes."
        )


def require_cells(workload: Workload, name: str, *, most: int) -> None:
    """Raise NotApplicableError if the domain has more cells than the method can handle; the paper's tables show "*".

    >>> from hdmm import Domain
    >>> require_cells(Workload.marginals(Domain({"a": 9}), k=1), "low_rank", most=8)
    Traceback (most recent call last):
    ...
    hdmm.base.exceptions.NotApplicableError: low_rank holds matrices over all cells of the domain, which ...
    """
    if workload.domain.size > most:
        raise NotApplicableError(
            f"{name} holds matrices over all cells of the domain, which may be at most {most:,}; this domain has "
            f"{workload.domain.size:,}. Use hdmm.optimize, or coarser bins."
        )
