"""hdmm: tables about people, published under differential privacy with the least error.

Declare a Domain, build a Workload of counting queries, and ask for the exact expected error of a strategy.
"""

from hdmm import baselines
from hdmm.answer import Answers, Table
from hdmm.bounds import lower_bound, svd_bound
from hdmm.data import Data, from_array, from_table
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
    DataError,
    DomainError,
    FileError,
    HdmmError,
    LedgerError,
    MatrixError,
    NoiseError,
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
from hdmm.privacy import ZCDP, ApproxDP, PureDP, Unit
from hdmm.release import Release, load_release
from hdmm.strategy.base import BlockStrategy, DirectStrategy, Strategy
from hdmm.strategy.diagonal import Block
from hdmm.values import Bins, Integers, Labels
from hdmm.workload import Product, Workload

__version__ = "0.1.0"
__all__ = [
    "ZCDP",
    "AllRange",
    "Answers",
    "ApproxDP",
    "Attribute",
    "Bins",
    "Block",
    "BlockStrategy",
    "BudgetError",
    "Data",
    "DataError",
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
    "Plan",
    "PredicateSet",
    "Prefix",
    "PrivacyError",
    "Product",
    "PureDP",
    "Ranges",
    "Receipt",
    "Release",
    "Sets",
    "Shuffled",
    "Strategy",
    "StrategyError",
    "Table",
    "Total",
    "Union",
    "Unit",
    "Vectors",
    "Weighted",
    "Width",
    "Workload",
    "WorkloadError",
    "baselines",
    "expected_error",
    "from_array",
    "from_table",
    "load_plan",
    "load_release",
    "lower_bound",
    "optimize",
    "query_variance",
    "rmse",
    "stream_query_variance",
    "supports",
    "svd_bound",
    "unit_error",
]
