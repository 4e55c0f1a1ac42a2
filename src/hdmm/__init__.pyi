from hdmm import baselines as baselines, engines as engines, matrix as matrix, sql as sql
from hdmm.answers.answers import Answers as Answers
from hdmm.describe.attribute import Attribute as Attribute
from hdmm.bounds.svd import lower_bound as lower_bound
from hdmm.measure.combine import combine as combine
from hdmm.measure.chunked_release import ChunkedRelease as ChunkedRelease, load_chunked as load_chunked
from hdmm.data import Data as Data, from_array as from_array, from_chunks as from_chunks, from_table as from_table
from hdmm.describe.domain import Domain as Domain
from hdmm.strategy.error import (
    expected_error as expected_error,
    query_variance as query_variance,
    rmse as rmse,
    supports as supports,
    unit_error as unit_error,
)
from hdmm.base.exceptions import (
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
from hdmm.reconstruct.known import Known as Known
from hdmm.privacy.ledger import Ledger as Ledger, Receipt as Receipt
from hdmm.describe.amount import Amount as Amount
from hdmm.describe.numeric import Bins as Bins, Integers as Integers
from hdmm.measure.optimize import optimize as optimize
from hdmm.measure.plan import Plan as Plan, load_plan as load_plan
from hdmm.describe.predicates import (
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
from hdmm.privacy.guarantee import (
    ZCDP as ZCDP,
    ApproxDP as ApproxDP,
    GaussianDP as GaussianDP,
    Noise as Noise,
    PureDP as PureDP,
)
from hdmm.privacy.unit_of_privacy import Unit as Unit
from hdmm.describe.product import Product as Product
from hdmm.publication.publish import Publication as Publication, publish as publish
from hdmm.measure.release import Release as Release, load_release as load_release
from hdmm.publication.spec import Spec as Spec, load_spec as load_spec
from hdmm.strategy.strategy import Strategy as Strategy
from hdmm.answers.table import Table as Table
from hdmm.describe.values import Labels as Labels
from hdmm.describe.workload import Workload as Workload

__version__: str
