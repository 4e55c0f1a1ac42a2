"""From a specification and a plan to published tables: debit, measure, write."""

from hdmm.publication.ask import Published, asked_tables, open_published, shown_table
from hdmm.publication.budget import (
    Budget,
    budget_of,
    budgets_in,
    check_payable,
    converted,
    cost,
    raisable,
    raise_cap,
    unpayable,
)
from hdmm.publication.difference import Difference, TableDifference, difference
from hdmm.publication.folder import Publication, publish, publish_ready, resume, rewrite_report
from hdmm.publication.metadata import privacy_facts
from hdmm.publication.planning import Planned, answers, make_plan, plan_for, suits
from hdmm.publication.ready import Ready, make_ready, refusals, replaced
from hdmm.publication.unpublished import how_to_publish, in_use, is_kept

__all__ = [
    "Budget",
    "Difference",
    "Planned",
    "Publication",
    "Published",
    "Ready",
    "TableDifference",
    "answers",
    "asked_tables",
    "budget_of",
    "budgets_in",
    "check_payable",
    "converted",
    "cost",
    "difference",
    "how_to_publish",
    "in_use",
    "is_kept",
    "make_plan",
    "make_ready",
    "open_published",
    "plan_for",
    "privacy_facts",
    "publish",
    "publish_ready",
    "raisable",
    "raise_cap",
    "refusals",
    "replaced",
    "resume",
    "rewrite_report",
    "shown_table",
    "suits",
    "unpayable",
]
