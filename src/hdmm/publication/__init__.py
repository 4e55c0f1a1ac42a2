"""From a specification and a plan to published tables: debit, measure, write."""

from hdmm.publication.folder import Publication, check_output, publish, replace_report, told_privacy
from hdmm.publication.page import page
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
    "page",
    "plan_for",
    "publish",
    "replace_report",
    "standing",
    "told_privacy",
]
