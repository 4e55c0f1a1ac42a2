from hdmm import baselines as baselines, engines as engines, matrix as matrix, sql as sql
from hdmm.answer import Answers as Answers
from hdmm.attribute import Attribute as Attribute
from hdmm.bounds import lower_bound as lower_bound
from hdmm.combining import combine as combine
from hdmm.chunked import ChunkedRelease as ChunkedRelease, load_chunked as load_chunked
from hdmm.data import Data as Data, from_array as from_array, from_chunks as from_chunks, from_table as from_table
from hdmm.domain import Domain as Domain
from hdmm.error import (
    expected_error as expected_error,
    query_variance as query_variance,
    rmse as rmse,
    supports as supports,
    unit_error as unit_error,
)
from hdmm.exceptions import (
    BudgetError as BudgetError,
    DataError as DataError,
    DomainError as DomainError,
    EngineError as EngineError,
    FileError as FileError,
    HdmmError as HdmmError,
    Interrupted as Interrupted,
    LedgerError as LedgerError,
    NotApplicableError as NotApplicableError,
    PackageError as PackageError,
    PrivacyError as PrivacyError,
    SpecError as SpecError,
    SqlError as SqlError,
    StrategyError as StrategyError,
    WorkloadError as WorkloadError,
)
from hdmm.known import Known as Known
from hdmm.ledger import Ledger as Ledger, Receipt as Receipt
from hdmm.numeric import Bins as Bins, Integers as Integers
from hdmm.optimization import optimize as optimize
from hdmm.plan import Plan as Plan, load_plan as load_plan
from hdmm.predicates import (
    AllRange as AllRange,
    Amounts as Amounts,
    DifferenceAtMost as DifferenceAtMost,
    Groups as Groups,
    Identity as Identity,
    PredicateSet as PredicateSet,
    Prefix as Prefix,
    Ranges as Ranges,
    Sets as Sets,
    Shuffled as Shuffled,
    SumAtMost as SumAtMost,
    Total as Total,
    Vectors as Vectors,
    Weighted as Weighted,
    Width as Width,
)
from hdmm.privacy import ZCDP as ZCDP, ApproxDP as ApproxDP, Noise as Noise, PureDP as PureDP, Unit as Unit
from hdmm.product import Product as Product
from hdmm.publication import Publication as Publication, publish as publish
from hdmm.release import Release as Release, load_release as load_release
from hdmm.spec import Spec as Spec, load_spec as load_spec
from hdmm.strategy.base import Strategy as Strategy
from hdmm.table import Table as Table
from hdmm.values import Labels as Labels
from hdmm.workload import Workload as Workload

__version__: str
