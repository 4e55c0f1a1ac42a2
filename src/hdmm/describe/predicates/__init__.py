"""Predicate sets on one attribute, and some on two: the vocabulary of workloads.

A predicate set is logical: it does not depend on a domain until its matrix on n values or its labels on an attribute
are needed. Positions are 0-based and ranges are inclusive, in the attribute's order.
"""

from hdmm.describe.predicates.amounts import Amounts
from hdmm.describe.predicates.derived import Shuffled, Weighted, check_weight
from hdmm.describe.predicates.joint import DifferenceAtMost, OnCells, SumAtMost
from hdmm.describe.predicates.level_sets import Groups
from hdmm.describe.predicates.listed_sets import Sets, Vectors, as_predicates
from hdmm.describe.predicates.predicate_set import PredicateSet, Union
from hdmm.describe.predicates.ranges import AllRange, Identity, Prefix, Ranges, Total, Width

__all__ = [
    "AllRange",
    "Amounts",
    "DifferenceAtMost",
    "Groups",
    "Identity",
    "OnCells",
    "PredicateSet",
    "Prefix",
    "Ranges",
    "Sets",
    "Shuffled",
    "SumAtMost",
    "Total",
    "Union",
    "Vectors",
    "Weighted",
    "Width",
    "as_predicates",
    "check_weight",
]
