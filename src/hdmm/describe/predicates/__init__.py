"""Predicate sets on one attribute, and some on two: the vocabulary of workloads.

A predicate set is logical: it does not depend on a domain until its matrix on n values or its labels on an attribute
are needed. Positions are 0-based and ranges are inclusive, in the attribute's order.

A new kind is a class, its name below, and its name in `hdmm/__init__.pyi`; files, workloads, charts and the API
reference follow from these. Its fields are what files hold, unless `hdmm.io.kinds` says otherwise.
"""

from hdmm.describe.predicates.joint import DifferenceAtMost, SumAtMost
from hdmm.describe.predicates.joint import OnCells as OnCells
from hdmm.describe.predicates.listed_sets import Amounts, Groups, Sets, Vectors
from hdmm.describe.predicates.listed_sets import as_predicates as as_predicates
from hdmm.describe.predicates.predicate_set import PredicateSet, Shuffled, Union, Weighted
from hdmm.describe.predicates.predicate_set import check_weight as check_weight
from hdmm.describe.predicates.ranges import AllRange, Identity, Prefix, Ranges, Total, Width

PREDICATE_SETS: tuple[type[PredicateSet], ...] = (
    *(Identity, Total, Prefix, AllRange, Width, Ranges, Sets, Groups, Vectors, Amounts),
    *(Union, SumAtMost, DifferenceAtMost, Shuffled, Weighted),
)
"""Every kind of predicate set, in the order of the API reference."""
