"""Data flows one way: a file imports only from files above it in this list (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"

ORDER = """
exceptions hints lazy html durable cores rounding mixing steps
matrix.base matrix.checks matrix.blocks matrix.residual matrix.haar matrix.intervals matrix.tree matrix.extended
matrix.wrapped matrix.compose
matrix.listed matrix.blocked matrix.dense matrix.grams matrix.norms matrix.traces matrix.inverses matrix.products
matrix.quadratics matrix.largest matrix.storage matrix.integers matrix
entries levels values numeric attribute domain advice
predicates.base predicates.ranges predicates.explicit predicates.groups predicates.amounts predicates.derived
predicates.joint predicates
compact product workload aggregates
sql.cells sql.formula sql.instead sql.text sql.tokens sql.syntax sql.columns sql.linear sql.conditions sql.impossible
sql.groups sql.selection sql.amounts sql.blocks sql.asked sql.percent sql.statement sql.quantiles sql
conversion privacy
strategy strategy.blocks strategy.form strategy.axis strategy.mixture strategy.joint strategy.diagonal strategy.even
strategy.iterative strategy.coupled strategy.direct
strategy.grouped strategy.grid strategy.orthogonal strategy.leveled strategy.informed strategy.base
strategy.search strategy.minimize strategy.projected
error bounds
strategy.family strategy.windows strategy.theta strategy.tree strategy.forest strategy.gaussian strategy.order
strategy.starts strategy.p_identity
strategy.parts strategy.goal strategy.terms strategy.dual strategy.pinching strategy.subsets strategy.demand
strategy.problem strategy.residual strategy.marginal_weights
strategy.product strategy.pairs strategy.blocks_loss strategy.grouping strategy.union
strategy.merged strategy.rows strategy.worst strategy.covers strategy.initial_weights strategy.marginal
strategy.extrapolation strategy.bases strategy.joint_bases strategy.coupled_loss strategy.own_bases strategy.pursuit
strategy.spaces strategy.restart strategy.ahead strategy.select strategy.operators certificate gap
io.strict_json io.npy io.records io.folder io.kinds io.codec io
ledger.units ledger.chain ledger.head ledger.store ledger.names ledger.purpose ledger.audit ledger.ledger
ledger
noise.bits noise.parameters noise.probability noise.laplace noise.gaussian noise.draws noise.keyed noise.choice
noise.chacha noise.numbered noise.device noise
data.address data.base data.dense data.chunks data.columns data.engines data.source data.kinds data.lines data.listing
data.files data.coding data.dialects data.packing data.postgres data.identity data.bounded data.counting data.sparse
data.numerals data.cells data.persons data.sqlite data.database data.table data.look data
lattice slabs engines.products engines.device engines.workers engines chunk_files passage layout
estimate reconstruct coordinates
simplex information whole_numbers agreeing nonnegative known fitted margins sums reliability
ratios charts digits table crosstab answer evaluate release
chunked combining accuracy prepare measure plan progress optimization
report.numbers report.counted report.model report.labels report.plots report.curves report.pictures report.rows
report.page report.workbook report
baselines.applies baselines.descent baselines.explicit
baselines.identity baselines.laplace baselines.privelet baselines.grid_tree
baselines.hb baselines.quadtree baselines.greedy_h
baselines.datacube baselines.low_rank baselines.semidefinite baselines.matrix_mechanism
baselines.stages baselines.partition baselines.dawa baselines.network baselines.privbayes baselines
spec.lines spec.variables spec.document spec.records spec.known spec.schema spec.shorthand spec.lookup spec.measures
spec.model spec.tables spec.read spec spec.source
forecast outlook earlier
publication.totals publication.tables publication.files publication.ask publication.difference publication.page
publication.metadata publication.package publication.planning
publication.unpublished publication.budget publication.purpose publication.ready publication.paid publication.folder
publication dictionary catalogue start demo.people demo cli.output cli.options cli.facts cli.look
cli.ask cli.asking cli.specification cli.earlier cli.plan cli.diff cli.budget cli.release
studio studio.file studio.edits studio.view studio.outlook studio.work studio.guard studio.app studio.serve
cli.studio cli.app cli __main__
"""
ORDER = [f"hdmm.{name}" for name in ORDER.split()] + ["hdmm"]


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """The hdmm modules a file imports, doctests not counted."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "hdmm"}


def test_every_file_is_in_the_order() -> None:
    assert set(modules()) == set(ORDER)


def test_files_import_only_upward() -> None:
    place = {name: i for i, name in enumerate(ORDER)}
    for name, path in modules().items():
        for used in imports(path):
            if used in place and not (name == "hdmm" or name == used):
                assert place[used] < place[name], f"{name} imports {used}, which is below it"


def test_imports_are_at_the_top() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inner, f"{name}.{node.name} imports inside a function"


def test_randomness_lives_only_in_strategy() -> None:
    """Requirement N1: no seeded or global randomness in src outside strategy/."""
    for name, path in modules().items():
        if not name.startswith("hdmm.strategy"):
            assert not (words(path) & {"random", "default_rng", "RandomState", "rvs"}), name


# Two things of one name, until one of them is renamed.
NAMED_TWICE: set[str] = set()


def test_no_public_name_is_defined_twice() -> None:
    """One word is one thing: a class, an alias or a constant that others may import has a name of its own."""
    homes: dict[str, set[str]] = {}
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.ClassDef(name=defined) | ast.AnnAssign(target=ast.Name(id=defined)):
                    homes.setdefault(defined, set()).add(name)
                case ast.Assign(targets=[ast.Name(id=defined)]):
                    homes.setdefault(defined, set()).add(name)
                case _:
                    pass
    twice = {defined: found for defined, found in homes.items() if len(found) > 1 and not defined.startswith("_")}
    assert set(twice) - {"T"} <= NAMED_TWICE, twice  # T is what typing calls any type


def test_one_file_joins_data_and_noise() -> None:
    """There is one door by which anything about the data leaves: hdmm.measure counts it and adds the noise."""
    reached = {name: {".".join(used.split(".")[:2]) for used in imports(path)} for name, path in modules().items()}
    assert [name for name, used in reached.items() if {"hdmm.data", "hdmm.noise"} <= used] == ["hdmm.measure"]
    drawing = {"draw", "discrete_laplace", "discrete_gaussian", "exponential_choice", "DeviceNoise"}
    outside = {name: path for name, path in modules().items() if not name.startswith("hdmm.noise")}
    assert [name for name, path in outside.items() if words(path) & drawing] == ["hdmm.measure"]


def test_only_the_noise_itself_reaches_its_bits() -> None:
    """Requirement N7: what a release can call takes no bits and no seed; the parts that do are for tests."""
    for name, path in modules().items():
        inner = {used for used in imports(path) if used.startswith("hdmm.noise.")}
        public = {"hdmm.noise.discrete_laplace", "hdmm.noise.discrete_gaussian", "hdmm.noise.exponential_choice"}
        public |= {"hdmm.noise.LARGEST_SCALE", "hdmm.noise.LARGEST_NOISE"}
        public |= {"hdmm.noise.exact_scale", "hdmm.noise.check_scale", "hdmm.noise.draw", "hdmm.noise.DeviceNoise"}
        public |= {"hdmm.noise.ReleaseKey", "hdmm.noise.SealedKey", "hdmm.noise.HIDING"}
        assert name.split(".")[:2] == ["hdmm", "noise"] or inner <= public, name
        if name.startswith("hdmm.noise"):
            assert not any("seed" in word.lower() for word in words(path)), name


def test_noise_has_floats_only_in_the_filter() -> None:
    """Requirement N1: integers and fractions, but for the Gaussian filter, whose error is bounded where it stands."""
    for name, path in modules().items():
        if name.startswith("hdmm.noise") and name != "hdmm.noise.gaussian":
            tree = ast.parse(path.read_text())
            assert not (words(path) & {"float", "float64", "float32", "double", "longdouble"}), name
            assert not any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(tree)), name


def words(path: Path) -> set[str]:
    """Every name, attribute, parameter and part of an imported name in a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= set(node.module.split("."))
    return found
