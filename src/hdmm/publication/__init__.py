"""From a specification and a plan to published tables: debit, measure, write."""

from hdmm.publication.folder import Publication, publish, publish_ready, resume, rewrite_report
from hdmm.publication.metadata import told_privacy
from hdmm.publication.planning import Planned, make_plan, plan_for
from hdmm.publication.ready import Ready, make_ready
from hdmm.publication.standing import Standing, cost, raisable, raise_cap, standing, unpayable
from hdmm.publication.unpublished import how_to_publish, is_kept

__all__ = [
    "Planned",
    "Publication",
    "Ready",
    "Standing",
    "cost",
    "how_to_publish",
    "is_kept",
    "make_plan",
    "make_ready",
    "plan_for",
    "publish",
    "publish_ready",
    "raisable",
    "raise_cap",
    "resume",
    "rewrite_report",
    "standing",
    "told_privacy",
    "unpayable",
]
