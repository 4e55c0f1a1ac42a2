"""hdmm: tables about people, published under differential privacy with the least error.

Declare a Domain, build a Workload of counting queries, and ask for the exact expected error of a strategy.
"""

from hdmm import baselines
from hdmm.bounds import lower_bound, svd_bound
from hdmm.domain import Attribute, Domain
from hdmm.error import (
    expected_error,
    query_variance,
    rmse,
    stream_query_variance,
    supports,
    unit_error,
)
from hdmm.exceptions import (
    BudgetError,
    DomainError,
    FileError,
    HdmmError,
    LedgerError,
    MatrixError,
    NoiseError,
    NotApplicableError,
    PrivacyError,
    StrategyError,
    WorkloadError,
)
from hdmm.ledger import Ledger, Receipt
from hdmm.plan import Plan, load_plan, optimize
from hdmm.predicates import (
    AllRange,
    Identity,
    PredicateSet,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    Total,
    Union,
    Vectors,
    Weighted,
    Width,
)
from hdmm.privacy import ZCDP, ApproxDP, PureDP
from hdmm.strategy.base import BlockStrategy, DirectStrategy, Strategy
from hdmm.strategy.diagonal import Block
from hdmm.values import Bins, Integers, Labels
from hdmm.workload import Product, Workload

__version__ = "0.1.0"
__all__ = [
    "ZCDP",
    "AllRange",
    "ApproxDP",
    "Attribute",
    "Bins",
    "Block",
    "BlockStrategy",
    "BudgetError",
    "DirectStrategy",
    "Domain",
    "DomainError",
    "FileError",
    "HdmmError",
    "Identity",
    "Integers",
    "Labels",
    "Ledger",
    "LedgerError",
    "MatrixError",
    "NoiseError",
    "NotApplicableError",
    "Plan",
    "PredicateSet",
    "Prefix",
    "PrivacyError",
    "Product",
    "PureDP",
    "Ranges",
    "Receipt",
    "Sets",
    "Shuffled",
    "Strategy",
    "StrategyError",
    "Total",
    "Union",
    "Vectors",
    "Weighted",
    "Width",
    "Workload",
    "WorkloadError",
    "baselines",
    "expected_error",
    "load_plan",
    "lower_bound",
    "optimize",
    "query_variance",
    "rmse",
    "stream_query_variance",
    "supports",
    "svd_bound",
    "unit_error",
]
