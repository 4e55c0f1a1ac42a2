"""From a specification and a plan to published tables: debit, measure, write."""

from hdmm.publication.folder import Publication, check_output, publish, rewrite_report
from hdmm.publication.metadata import told_privacy
from hdmm.publication.planning import make_plan, plan_for
from hdmm.publication.standing import Standing, affordable, cost, standing
from hdmm.publication.tables import PublishedTable

__all__ = [
    "Publication",
    "PublishedTable",
    "Standing",
    "affordable",
    "check_output",
    "cost",
    "make_plan",
    "plan_for",
    "publish",
    "rewrite_report",
    "standing",
    "told_privacy",
]
