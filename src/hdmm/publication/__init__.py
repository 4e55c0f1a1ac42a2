"""From a specification and a plan to published tables: debit, measure, write."""

from hdmm.publication.folder import Publication, check_output, publish, resume, rewrite_report
from hdmm.publication.metadata import told_privacy
from hdmm.publication.planning import make_plan, plan_for
from hdmm.publication.standing import Standing, affordable, cost, raisable, raise_cap, standing, unpayable
from hdmm.publication.unpublished import how_to_publish, is_kept

__all__ = [
    "Publication",
    "Standing",
    "affordable",
    "check_output",
    "cost",
    "how_to_publish",
    "is_kept",
    "make_plan",
    "plan_for",
    "publish",
    "raisable",
    "raise_cap",
    "resume",
    "rewrite_report",
    "standing",
    "told_privacy",
    "unpayable",
]
