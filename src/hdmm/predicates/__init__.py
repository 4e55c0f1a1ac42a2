"""Predicate sets on one attribute, and some on two: the vocabulary of workloads.

A predicate set is logical: it does not depend on a domain until its matrix on n values or its labels on an attribute
are needed. Positions are 0-based and ranges are inclusive, in the attribute's order.
"""

from hdmm.predicates.amounts import Amounts
from hdmm.predicates.base import PredicateSet, Union
from hdmm.predicates.derived import Shuffled, Weighted, check_weight
from hdmm.predicates.explicit import Sets, Vectors, as_predicates
from hdmm.predicates.groups import Groups
from hdmm.predicates.joint import DifferenceAtMost, OnCells, SumAtMost
from hdmm.predicates.ranges import AllRange, Identity, Prefix, Ranges, Total, Width

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
