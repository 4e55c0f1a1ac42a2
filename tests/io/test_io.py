"""Files: what is saved comes back the same, and no file, however crafted, does anything except load or raise FileError.

The ids F1, F2, F4 and F5 are the requirements on files that the tests check.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import errno
import io
import json
import os
import pickle
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import (
    AllRange,
    Amounts,
    Attribute,
    Bins,
    DifferenceAtMost,
    Domain,
    Groups,
    Identity,
    Integers,
    Labels,
    PredicateSet,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    Strategy,
    SumAtMost,
    Total,
    Vectors,
    Weighted,
    Width,
    Workload,
)
from hdmm.base.durable import make_parents, swapped
from hdmm.base.exceptions import FileError
from hdmm.baselines.fixed import grid_blocks
from hdmm.describe.predicates import Union
from hdmm.io import Stored, StrictRecord, decode, encode, load_folder, load_record, save_folder, save_record
from hdmm.io import folder as folder_module
from hdmm.io.kinds import KINDS
from hdmm.io.npy import read_array, write_array
from hdmm.io.strict_json import dump, parse
from hdmm.matrix import (
    AllIntervals,
    Conjugated,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Forest,
    Haar,
    HalvedTriangle,
    Intervals,
    Matrix,
    Nested,
    Ones,
    Permuted,
    PIdentity,
    Repeated,
    Residual,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    TreeIdentity,
    to_dense,
)
from hdmm.measure import prepare as prepare_module
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_plus import opt_plus
from hdmm.select.opt_x import opt_merged
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_inverse import Grid
from tests.strategy.test_error import marginals, products
from tests.support.effort import examples
from tests.support.plain_sets import PLAIN
from tests.support.strategies import domains, workloads

SRC = Path(hdmm.__file__).parent


# --- what is saved comes back the same ---------------------------------------------------------------------------


class Pair(StrictRecord, frozen=True):
    workload: Stored[Workload]
    strategy: Stored[Strategy]


def saved(folder: Path, strategy: Strategy, workload: Workload) -> Path:
    """A folder as a plan would be saved: a workload and a strategy."""
    return save_record(folder, "plan", Pair(workload, strategy))


def loaded(folder: Path) -> tuple[Workload, Strategy]:
    pair, _ = load_record(folder, "plan", Pair)
    return pair.workload, pair.strategy


def same_factor(A: Matrix, B: Matrix) -> bool:
    return type(A) is type(B) and A.shape == B.shape and np.array_equal(to_dense(A), to_dense(B))


def same_blocks(a: Strategy, b: Strategy) -> bool:
    assert isinstance(a, Strategy)
    assert isinstance(b, Strategy)
    return [(x.weight, [i for i, _ in x.factors]) for x in a.blocks] == [
        (y.weight, [i for i, _ in y.factors]) for y in b.blocks
    ] and all(
        same_factor(A, B)
        for x, y in zip(a.blocks, b.blocks, strict=True)
        for (_, A), (_, B) in zip(x.factors, y.factors, strict=True)
    )


def through_text(value: object, arrays: dict[str, np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
    """What a folder does to an encoding, without the disk."""
    again = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        write_array(file, array)
        size = file.tell()
        file.seek(0)
        again[name] = read_array(file, size, name)
    return parse(dump(value, "x"), "x"), again  # type: ignore[arg-type]


labels = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
outside = st.sampled_from(["drop", "other"])
simple_values = st.one_of(
    st.builds(
        Labels, st.lists(labels, min_size=1, max_size=5, unique=True).filter(lambda v: "other" not in v), outside
    ),
    st.tuples(st.integers(), st.integers(0, 10**6), st.integers(1, 7), outside).map(
        lambda t: Integers(t[0], t[0] + t[1], step=t[2], outside=t[3])
    ),
    st.builds(Bins, st.sets(st.floats(-1e300, 1e300), min_size=2, max_size=5).map(sorted), outside),
)


@st.composite
def any_domain(draw: st.DrawFn) -> Domain:
    values = draw(st.lists(simple_values, min_size=1, max_size=4))
    domain = Domain([Attribute(f"a{i}", v) for i, v in enumerate(values)])
    if len(values) > 2 and draw(st.booleans()):
        domain = domain.merge(["a0", "a2"], name="ab")
    return domain


@examples(100)
@given(any_domain())
def test_domains_come_back(domain: Domain) -> None:
    again = decode(Domain, *through_text(*encode(domain)))
    assert again == domain
    assert repr(again) == repr(domain)


def test_types_of_labels_come_back() -> None:
    domain = Domain({"a": [True, "1", 2, 3.0, -0.0, 10**30, 1e22, "é\n\u2028"], "b": bool})
    again = decode(Domain, *through_text(*encode(domain)))
    assert [(type(x), repr(x)) for x in again["a"].labels] == [(type(x), repr(x)) for x in domain["a"].labels]
    assert Domain({"a": [1]}) != Domain({"a": [True]})


@examples(100)
@given(st.data(), domains())
def test_workloads_come_back(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    again = decode(Workload, *through_text(*encode(w)))
    assert again == w
    assert list(again.labels()) == list(w.labels())
    np.testing.assert_array_equal(to_dense(again.matrix), to_dense(w.matrix))


@examples(60)
@given(st.data(), domains(size=4))
def test_strategies_come_back(data: st.DataObject, domain: Domain) -> None:
    """F4: sensitivity and error are those of the factors read."""
    w = data.draw(workloads(domain))
    strategy = data.draw(st.one_of(products(domain, 1), products(domain, 2), marginals(domain)))
    again = decode(Strategy, *through_text(*encode(strategy)))
    assert again.domain == domain
    assert same_blocks(strategy, again)
    for noise in ("laplace", "gaussian"):
        assert again.sensitivity(noise) == strategy.sensitivity(noise)
    assert hdmm.supports(w, again) == hdmm.supports(w, strategy)
    if hdmm.supports(w, strategy):
        assert hdmm.unit_error(w, again) == pytest.approx(hdmm.unit_error(w, strategy), rel=1e-9)


EVERY_SET: list[PredicateSet] = [
    Groups("group"),
    Identity(),
    Total(),
    Prefix(),
    AllRange(),
    Width(2),
    Width(np.int64(2)),  # type: ignore[arg-type]
    Ranges([(0, 1), (2, 2)]),
    Sets([[0, 2], []]),
    Sets({"ends": [0, 2], "none": []}),
    Vectors([[1, 0, 0.5]]),
    Vectors(np.asfortranarray([[1.0, -0.0, 0.5], [1, 2, 3]]), names=["x", "y"]),
    Amounts([[1, 0, 0.5]]),
    Amounts([[-1, 0, 7], [1, 2, 3]], names=["x", "y"]),
    Union([Identity(), Sets({"a": [1]}), Total()]),
    Shuffled(Prefix(), [2, 0, 1]),
    Weighted(Shuffled(Union([Weighted(Identity(), [1, 2, 3]), Total()]), [1, 0, 2]), [1, 0, 0.1, 4]),
]


@pytest.mark.parametrize("predicates", EVERY_SET, ids=repr)
def test_every_predicate_set_comes_back(predicates: PredicateSet) -> None:
    domain = Domain({"a": Labels(range(3), levels={"group": ["x", "y", "x"]}), "b": 2})
    w = Workload.product(domain, a=Union([predicates, Identity()]), b=Identity())
    again = decode(Workload, *through_text(*encode(w)))
    assert again == w
    assert list(again.labels()) == list(w.labels())
    np.testing.assert_array_equal(to_dense(again.matrix), to_dense(w.matrix))


SETS_ON_TWO: list[PredicateSet] = [SumAtMost(), DifferenceAtMost(), Sets([[0, 5], []]), Vectors(np.eye(6)[:2])]


@pytest.mark.parametrize("predicates", SETS_ON_TWO, ids=repr)
def test_every_predicate_set_on_two_attributes_comes_back(predicates: PredicateSet) -> None:
    domain = Domain({"a": 3, "b": 2, "c": 2})
    w = Workload.product(domain, {("a", "c"): predicates, "b": Prefix()}) + Workload.marginals(domain, k=1)
    again = decode(Workload, *through_text(*encode(w)))
    assert again == w
    assert list(again.labels()) == list(w.labels())
    np.testing.assert_array_equal(to_dense(again.matrix), to_dense(w.matrix))


@pytest.mark.parametrize("axes", [[2, 0], [0, 0], [0, 3], [-1, 1], [0]], ids=str)
def test_products_on_axes_that_do_not_fit_are_refused(axes: list[int]) -> None:
    written, arrays = encode(Workload.product(Domain({"a": 2, "b": 3, "c": 2}), {("a", "c"): SumAtMost()}))
    cast(Any, written)["products"]["rows"][0][1][0][0] = axes
    with pytest.raises(FileError):
        decode(Workload, written, arrays)


def test_names_that_equality_leaves_out_are_kept() -> None:
    domain = Domain({"a": 2})
    sets = [Sets({"x": [0]}), Sets({"y": [0]}), Union([Sets([[0]])]), Vectors([[1, 0]], names=["v"]), Vectors([[1, 0]])]
    w = Workload(domain, tuple(Workload.product(domain, a=p).products[0] for p in sets))
    again = decode(Workload, *encode(w))
    assert list(again.labels()) == list(w.labels()) == [("x",), ("y",), ("{0}",), ("v",), ("vector 0",)]


FACTORS: list[Matrix] = [
    Eye(3),
    Ones(2, 3),
    PIdentity(np.zeros((0, 3))),
    PIdentity(np.asfortranarray([[0.1, 0.2, 1e300], [1, 2, 3]])),
    Dense([[1, 2, -3]]),
    Dense(np.array([[True, False, True]])),
    Dense(np.array([[0.1, 0, 3]], dtype=np.float32)),
    Dense(np.zeros((0, 3))),
    Dense(np.arange(12.0).reshape(4, 3)[::2]),
    TreeIdentity([[1.0, 0.0, 3.0], [0.5, 2.0, 1.0]], [2, 4], order=2),
    Permuted(PIdentity([[1.0, 2.0, 3.0]]), [2, 0, 1]),
    Repeated(Dense([[1, 2]]), [1, 0, 1]),
    Nested([[1, 0, 3], [5, 2, 1]], [2, 4]),
    Forest([[1, 0, 3], [5, 2, 1]], [[0, 1, 0], [0, 0, 0]]),
    ExtendedDiagonal(Forest([[1.0, 0.5, 3]], [[0, 1, 0]]), order=1),
    ExtendedDiagonal(Dense([[4, 0, 6]]), [1, 2, 3]),
    ExtendedDiagonal(Nested([[4, 5, 6]], [2]), [1, 2, 3]),
    Haar(3),
    HalvedTriangle(3, np.tril(np.ones((2, 2, 2), dtype=np.int64)), *np.ones((2, 1, 2, 1), dtype=np.int64)),
    Residual(3),
    Cumulative(3),
    AllIntervals(3),
    Intervals(3, [0, 1], [2, 1]),
    Sparse(sp.csr_array([[0, 2, 0], [1, 0, 0]])),
    Stack((Eye(3), Ones(1, 3))),
    RowScaled([2, 3, 4], Eye(3)),
    Scaled(2**40, Dense([[1, 0, -1]])),
]


@pytest.mark.parametrize("factor", FACTORS, ids=lambda A: f"{type(A).__name__}{A.shape}")
def test_every_factor_comes_back(factor: Matrix) -> None:
    strategy = Strategy(Domain({"a": 3}), (Block(np.float64(0.5), ((0, factor),)), Block(2, ())))  # type: ignore[arg-type]
    assert same_blocks(strategy, decode(Strategy, *through_text(*encode(strategy))))


def test_every_kind_is_tried_above() -> None:
    """A new kind in the table must join a list here; a predicate set may be drawn instead."""
    assert {kind.cls for kind in KINDS[PredicateSet]} == {type(p) for p in (*EVERY_SET, *SETS_ON_TWO)} | set(PLAIN)
    assert {kind.cls for kind in KINDS[Matrix]} == {type(A) for A in FACTORS}


FIRST_VERSION: list[tuple[dict[str, Any], Matrix]] = [
    ({"kind": "PIdentity", "theta": "rows"}, PIdentity([[4.0, 0.0, 6.0]])),
    ({"kind": "TreeIdentity", "weights": "rows", "widths": [2], "order": 2}, TreeIdentity([[4, 0, 6]], [2], order=2)),
    (
        {"kind": "Augmented", "d": "d", "below": {"kind": "Dense", "array": "rows"}},
        ExtendedDiagonal(Dense([[4, 0, 6]]), [1, 2, 3]),
    ),
]


@pytest.mark.parametrize(("written", "factor"), FIRST_VERSION, ids=lambda x: x["kind"] if isinstance(x, dict) else "")
def test_factors_of_the_first_version_are_read(written: dict[str, Any], factor: Matrix) -> None:
    domain = Domain({"a": 3})
    blocks = {"distinct": [written], "rows": [[1.0, [[0, 0]]]]}
    value = {"kind": "Strategy", "domain": encode(domain)[0], "blocks": blocks, "inference": "least-squares"}
    arrays = {"rows": np.array([[4, 0, 6]]), "d": np.array([1, 2, 3])}
    assert same_blocks(decode(Strategy, value, arrays), Strategy(domain, (Block(1.0, ((0, factor),)),)))


def test_direct_strategies_come_back() -> None:
    w = 2.0 * Workload.marginals(Domain({"a": 3, "b": ["x", "y"]}), k=range(3))
    again = decode(Strategy, *through_text(*encode(Strategy.direct(w))))
    assert again.inference == "none"
    assert hdmm.unit_error(w, again) == hdmm.unit_error(w, Strategy.direct(w))


def test_merged_strategies_come_back() -> None:
    domain = Domain({"x": 3, "sex": ["F", "M"], "y": 2})
    w = Workload.product(domain, x=Prefix(), y=Prefix())
    strategy = opt_merged(Problem(w), first_search(), axes=(0, 2))
    again = decode(Strategy, *through_text(*encode(strategy)))
    assert again.blocks[0].axes == (0, 2)
    assert hdmm.unit_error(w, again) == hdmm.unit_error(w, strategy)


def test_unions_for_gaussian_noise_come_back() -> None:
    """An attribute of identities and totals gets one even row below its identity, columns of L2 norm 1."""
    domain = Domain({"a": 8, "b": 5, "c": 6})
    w = Workload.product(domain, a=AllRange(), b=Union([Identity(), Total()]))
    w += 2 * Workload.product(domain, b=Identity(), c=Prefix()) + Workload.product(domain, a=Prefix(), c=Prefix())
    strategy = opt_plus(Problem(w, Noise.GAUSSIAN), first_search())
    again = decode(Strategy, *through_text(*encode(strategy)))
    assert any(isinstance(A, ExtendedDiagonal) and A.order == 2 for block in again.blocks for _, A in block.factors)
    assert hdmm.unit_error(w, again, noise="gaussian") == hdmm.unit_error(w, strategy, noise="gaussian")


def test_trees_of_squares_come_back() -> None:
    domain = Domain({"x": 5, "y": ["a", "b", "c"]})
    w = Workload.product(domain, x=Prefix(), y=Prefix())
    strategy = Strategy(domain, grid_blocks(domain, (1, 2, 6), (0.5, 0.25, 0.25)))
    again = decode(Strategy, *through_text(*encode(strategy)))
    assert isinstance(again.form.inverse, Grid)
    assert hdmm.unit_error(w, again) == hdmm.unit_error(w, strategy)


def test_factors_are_written_once_and_shared() -> None:
    domain = Domain({"a": 4, "b": 4})
    theta = np.random.default_rng(0).random((2, 4))
    bases = [Block(1.0, ((i, PIdentity(theta)),)) for i in (0, 1)]
    blocks = (*bases, Block(1.0, ((0, Eye(4)), (1, Eye(4)))))
    value, arrays = encode(Strategy(domain, blocks))
    assert len(arrays) == 1
    again = decode(Strategy, value, arrays)
    assert isinstance(again, Strategy)
    assert again.blocks[0].factors[0][1] is again.blocks[1].factors[0][1]
    assert again.blocks[2].factors[0][1] is again.blocks[2].factors[1][1]
    pair = decode(Pair, *encode(Pair(Workload.marginals(domain, 1), again)))
    assert pair.workload.domain is pair.strategy.domain
    assert all(p.domain is pair.strategy.domain for p in pair.workload.products)


@pytest.mark.slow
def test_a_hundred_attributes_take_a_few_megabytes(tmp_path: Path) -> None:
    domain = Domain({f"a{i}": 10 for i in range(100)})
    w = Workload.marginals(domain, k=3)
    value, arrays = encode(w)
    folder = save_folder(tmp_path / "w", "workload", {"workload": value}, arrays)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5_000_000
    content, arrays = load_folder(folder, "workload")
    again = decode(Workload, content["workload"], arrays)
    assert encode(again)[0] == value
    assert len({id(p) for product in again.products for _, p in product.factors}) == 1


def test_folders_come_back_and_are_replaced(tmp_path: Path) -> None:
    w = Workload.product(Domain({"a": 3}), a=Vectors([[1, 0.5, 0]]))
    strategy = Strategy(w.domain, (Block(1.0, ((0, PIdentity([[1.0, 2, 3]])),)),))
    folder = saved(tmp_path / "plan", strategy, w)
    assert folder == tmp_path / "plan"
    again, found = loaded(folder)
    assert again == w
    assert found.domain is again.domain
    assert same_blocks(found, strategy)
    other = Strategy(w.domain, (Block(1.0, ((0, Eye(3)),)),))
    saved(folder, other, w)
    assert same_blocks(loaded(folder)[1], other)
    assert len(list(folder.iterdir())) == 2, "the array of the first strategy is gone"
    assert list(tmp_path.iterdir()) == [folder]


def test_arrays_loaded_are_read_only_and_keep_their_order(tmp_path: Path) -> None:
    arrays = {"c": np.ones((2, 3)), "f": np.asfortranarray(np.ones((2, 3))), "none": np.zeros((0, 3)), "i": np.array(7)}
    save_folder(tmp_path / "x", "table", {}, arrays)
    _, again = load_folder(tmp_path / "x", "table")
    assert not any(a.flags.writeable for a in again.values())
    assert again["f"].flags.fnc
    assert again["c"].flags.c_contiguous
    assert {k: (a.shape, a.dtype) for k, a in again.items()} == {k: (a.shape, a.dtype) for k, a in arrays.items()}


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (
            Domain({"a": [("x", 1)]}),
            r"Domain cannot be written .*label \('x', 1\) is a tuple\. A label in a file is a text",
        ),
        (Domain({"a": ["x", float("inf")]}), "inf|finite"),
        (Domain({"a": [HTTPStatus.OK]}), "HTTPStatus.OK.* is a HTTPStatus. A label in a file is"),
        (Domain({"a": ["\ud800"]}), "Unicode"),
    ],
)
def test_labels_that_files_cannot_hold_are_refused(domain: Domain, message: str) -> None:
    with pytest.raises(FileError, match=message):
        dump(encode(domain)[0], "domain.json")


def test_matrices_that_files_cannot_hold_are_refused() -> None:
    strategy = Strategy(Domain({"a": 3}), (Block(1.0, ((0, Conjugated(Eye(3), [1, 0, 2])),)),))
    with pytest.raises(FileError, match=r"Strategy cannot be written .*Conjugated; kinds here: Eye"):
        encode(strategy)
    longer = np.array([[np.longdouble(1) + np.finfo(np.longdouble).eps]])
    if float(longer[0, 0]) != longer[0, 0]:
        with pytest.raises(FileError, match="no float64 equals"):
            encode(Strategy(Domain({"a": 1}), (Block(1.0, ((0, Dense(longer)),)),)))


# --- files that are not what they should be (F1, F2) ---------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    domain = Domain({"a": 3, "b": Labels(["x", "y"], outside="other"), "c": Bins([0, 1.5, 2])})
    sets = [Vectors([[1, 0.5, 0]], names=["v"]), Weighted(Identity(), [1, 2, 3]), Shuffled(Prefix(), [2, 0, 1])]
    sets += [Sets({"s": [0, 2]}), Ranges([(0, 1)]), Width(2)]
    w = Workload.product(domain, a=Union(sets), b=Identity()) + Workload.marginals(domain, [("c",), ("a", "b")])
    theta = PIdentity([[1.0, 2.0, 3.0], [0.5, 0, 0]])
    blocks = (Block(0.5, ((0, theta), (1, Eye(3)))), Block(0.25, ((1, Ones(1, 3)), (2, Dense([[1, 1], [0, 1]])))))
    return undigested(saved(tmp_path / "plan", Strategy(domain, blocks), w), "plan")


def undigested(folder: Path, kind: str) -> Path:
    """A folder without the digests of its arrays, as whoever forges one would leave it."""
    file = folder / f"{kind}.json"
    envelope = json.loads(file.read_text())
    del envelope["digests"]
    file.write_text(json.dumps(envelope))
    return folder


def edited(plan: Path, edit: Callable[[Any], object]) -> None:
    """Change the JSON of a plan by a function that works on its content."""
    envelope = json.loads((plan / "plan.json").read_text())
    edit(envelope["content"])
    (plan / "plan.json").write_text(json.dumps(envelope))


def with_envelope(plan: Path, **keys: object) -> None:
    envelope = json.loads((plan / "plan.json").read_text())
    (plan / "plan.json").write_text(json.dumps(envelope | keys))


def theta_file(plan: Path) -> Path:
    content = json.loads((plan / "plan.json").read_text())["content"]
    return plan / f"{content['strategy']['blocks']['distinct'][0]['theta']}.npy"


W, S = "workload", "strategy"
CONTENT = [  # (key path, value to put there, what the message says)
    ("workload", None, r"workload: This is null; a table of keys is expected\. The file is damaged"),
    ("workload.products.rows", [], r"workload: The workload is empty"),
    ("workload.products.rows.0", [1.0], r"rows\[0\]: This is a list of 1; a list of 2"),
    ("workload.products.rows.0.0", -1.0, r"row 0 .*[wW]eight .*-1"),
    ("workload.products.rows.0.0", True, r"rows\[0\]\[0\]: This is true; a number is"),
    ("workload.products.rows.0.0", 10**400, r"rows\[0\]\[0\]: This number is too large"),
    ("workload.products.rows.0.0", "1", r"a text \(\'1\'\); a number is"),
    ("workload.products.rows.0.1.0", [True, 0], r"rows\[0\]\[1\]\[0\]\[0\]: This is true; a whole number or a list"),
    ("workload.products.rows.0.1.0", [0, 99], r"entry 99"),
    ("workload.products.rows.0.1.0", [0, -1], r"entry -1"),
    ("workload.products.rows.0.1.0", [7, 0], r"axis 7"),
    ("workload.products.rows.0.1.0", [-1, 0], r"axis -1"),
    ("workload.products.rows.0.1.0", [10**100, 0], r"row 0"),
    ("workload.products.rows.0.1", [[1, 1], [0, 0]], r"axis 0 is out of order"),
    ("workload.products.rows.0.1", [[0, 0], [0, 0]], r"axis 0 is out of order"),
    ("workload.products.rows.0.1", [[2, 0]], r"row 0 of the products: Attribute 'c': it has 2 values"),
    ("workload.products.rows.0.1", {}, r"rows\[0\]\[1\]: This is a table of keys; a list is"),
    ("workload.products.rows", 1, r"rows: This is a whole number \(1\); a list is"),
    ("workload.products.distinct", [], r"of 0 distinct"),
    ("workload.products.distinct.1", {"kind": "Total"}, r"row 0 of the products: axis 1 is .*or Total"),
    (
        "workload.products.distinct.0.kind",
        "Evil",
        r"""distinct\[0\]\.kind: This is a text \('Evil'\); one of \"Identity\"""",
    ),
    ("workload.products.distinct.0.kind", ["Union"], r"kind: This is a list of 1; one of"),
    ("workload.products.distinct.0.parts", [], r"Union has no predicates"),
    (
        "workload.products.distinct.0.parts.0.rows",
        "../x",
        r"parts\[0\]\.rows: This is a text \('\.\./x'\); the name of an array",
    ),
    ("workload.products.distinct.0.parts.0.names", ["v", "w"], r"1 rows but 2 names"),
    ("workload.products.distinct.0.parts.0.names", [1], r"names\[0\]: This is a whole number \(1\); a text is"),
    ("workload.products.distinct.0.parts.2.order", [0, 0, 1], r"parts\[2\]: .*permutation"),
    ("workload.products.distinct.0.parts.2.order", [0, 1], r"3 values, but the permutation of Shuffled lists 2"),
    ("workload.products.distinct.0.parts.2.order", [True, 0, 2], r"order\[0\]: This is true; a whole number is"),
    (
        "workload.products.distinct.0.parts.2.order",
        [0, 1.0, 2],
        r"order\[1\]: This is a number \(1\.0\); a whole number",
    ),
    ("workload.products.distinct.0.parts.2.inner", {}, r"inner: The key 'kind' is missing"),
    ("workload.products.distinct.0.parts.3.members", [[3]], r"position 3"),
    (
        "workload.products.distinct.0.parts.3.members",
        [[-1]],
        r"members\[0\]\[0\]: This is a whole number \(-1\); a whole number from 0",
    ),
    ("workload.products.distinct.0.parts.3.members", [[2**40]], r"position 1099511627776"),
    ("workload.products.distinct.0.parts.3.members", [[0], [1]], r"2 sets and 1 distinct names"),
    ("workload.products.distinct.0.parts.3.names", ["s", "s"], r"1 sets and 1 distinct"),
    ("workload.products.distinct.0.parts.4.bounds", [], r"Ranges has no predicates"),
    ("workload.products.distinct.0.parts.4.bounds", [[1, 0]], r"Range \[1, 0\]"),
    ("workload.products.distinct.0.parts.4.bounds", [[0, 1, 2]], r"bounds\[0\]: This is a list of 3; a list of 2"),
    ("workload.products.distinct.0.parts.4.bounds", [[0, 3]], r"past the last"),
    ("workload.products.distinct.0.parts.5.width", 0, r"width 0 hold no values"),
    ("workload.products.distinct.0.parts.5.width", 4, r"width 4"),
    ("workload.products.distinct.0.parts.5.width", 2**64, r"from 0 to 9223372036854775807"),
    (
        "workload.products.distinct.0.parts.5.wide",
        2,
        r"parts\[5\]\.wide: This key is unknown; keys: kind, width\. Did you mean 'width'",
    ),
    ("workload.domain.attributes", [], r"domain: The domain has no attributes"),
    ("workload.domain.attributes", {}, r"attributes: This is a table of keys; a list"),
    ("workload.domain.attributes.0.name", "", r"attributes\[0\]: .*not empty"),
    ("workload.domain.attributes.0.name", "b", r"'b' occurs twice"),
    ("workload.domain.attributes.0.name", 5, r"name: This is a whole number \(5\); a text"),
    ("workload.domain.attributes.0.values.first", False, r"first: This is false; a whole number"),
    ("workload.domain.attributes.0.values.last", -5, r"from 0 to -5"),
    ("workload.domain.attributes.0.values.last", 10**30, r"fewer than 2\*\*63"),
    ("workload.domain.attributes.0.values.last", 2**40, r"3 columns|1099511627777"),
    ("workload.domain.attributes.0.values.step", 0, r"The step of Integers is 0"),
    ("workload.domain.attributes.0.values.outside", "keep", r"'keep'"),
    ("workload.domain.attributes.1.values.values", ["x", "x"], r"'x' and 'x' are equal"),
    ("workload.domain.attributes.1.values.values", [1, 1.0], r"1 and 1.0 are equal"),
    ("workload.domain.attributes.1.values.values", ["x" * 9999] * 2, "longer than 4,096 bytes"),
    ("workload.domain.attributes.1.values.values", ["x", None], r"values\[1\]: This is null; a text or"),
    ("workload.domain.attributes.1.values.values", ["x", "other"], r"'other' is declared"),
    ("workload.domain.attributes.1.values.values", [], r"empty"),
    ("workload.domain.attributes.2.values.edges", [0], r"1 edges"),
    ("workload.domain.attributes.2.values.edges", [0, True], r"edges\[1\]: This is true; a number is"),
    ("workload.domain.attributes.2.values.edges", [2, 1], r"increase"),
    ("workload.domain.attributes.2.values.edges", [0, 10**400], r"attributes\[2\]\.values: .*finite"),
    ("workload.domain.attributes.2.values", {"kind": "Merged", "parts": []}, r"values: .*domain has no attributes"),
    ("strategy.kind", "Workload", r"""strategy\.kind: This is a text \('Workload'\); one of \"Strategy\""""),
    ("strategy.sensitivity", 0.001, r"strategy\.sensitivity: This key is unknown"),
    ("strategy.error", 1, r"error: This key is unknown"),
    ("strategy.blocks.rows", [], r"no blocks"),
    ("strategy.blocks.rows.0.0", -0.5, r"weight -0.5"),
    ("strategy.blocks.rows.0.0", 0, r"weight 0"),
    ("strategy.blocks.rows.0.1.0.0", 3, r"axis 3"),
    ("strategy.blocks.rows.0.1.0.0", 2, r"axis 1|'c' has 2 values"),
    ("strategy.blocks.rows.0.1.0.0", 10**30, r"axis"),
    ("strategy.blocks.distinct.0.theta", 0, r"distinct\[0\]\.theta: This is a whole number \(0\); the name"),
    ("strategy.blocks.distinct.0.theta", "none", r"'none'\); the name"),
    ("strategy.blocks.distinct.1.n", 0, r"n of Eye"),
    ("strategy.blocks.distinct.1.n", 4, r"'b' has 3 values .* 4 columns"),
    ("strategy.blocks.distinct.1.n", True, r"n: This is true"),
    ("strategy.blocks.distinct.1.n", 2.0, r"n: This is a number \(2\.0\); a whole number"),
]


@pytest.mark.parametrize(("path", "value", "message"), CONTENT)
def test_wrong_content_is_refused(plan: Path, path: str, value: object, message: str) -> None:
    """F1, F2: every wrong value is refused with the file and the key."""

    def edit(content: Any) -> None:
        *steps, last = [int(s) if s.isdigit() else s for s in path.split(".")]
        for step in steps:
            content = content[step]
        content[last] = value

    edited(plan, edit)
    with pytest.raises(FileError, match=message) as caught:
        loaded(plan)
    assert str(caught.value).startswith(f"{plan / 'plan.json'}: {path.partition('.')[0]}")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "end",
    ["", ".workload", ".workload.products.rows[99]", "[...]", "[0]", ".strategy[...][7]", f"[{'9' * 5000}]"],
)
def test_keys_that_look_like_a_place_are_refused(plan: Path, end: str) -> None:
    """F2: msgspec ends its messages with a place; a key of the file may end so too."""
    for *steps, last in ([f"x` - at `${end}"], ["workload", f"x` - at `${end}"]):

        def edit(content: Any, steps: list[str] = steps, last: str = last) -> None:
            for step in steps:
                content = content[step]
            content[last] = 1

        edited(plan, edit)
        with pytest.raises(FileError, match=r"unknown|expected|missing"):
            loaded(plan)


def test_sizes_that_machine_words_do_not_hold_are_refused() -> None:
    """F1: what NumPy says of a size is a FileError too."""
    value, arrays = encode(Workload.product(Domain({"a": 2**40}), a=Sets([[0]])))
    text = json.dumps(value).replace('"members": [[0]]', f'"members": [[{2**35}]]')
    with contextlib.suppress(FileError):
        decode(Workload, json.loads(text), arrays)
    width = json.loads(json.dumps(value))
    width["products"]["distinct"][0] = {"kind": "Width", "width": 2}
    with pytest.raises(FileError, match="1,099,511,627,775 ranges"):
        decode(Workload, width, arrays)


def keys_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        if isinstance(value, dict):
            yield (*path, key)
        yield from keys_in(child, (*path, key))


def test_every_key_is_needed(plan: Path) -> None:
    """F2: a missing key is refused, whichever it is."""
    content, arrays = load_folder(plan, "plan")
    for path in list(keys_in(content["workload"])):
        value = copy.deepcopy(content["workload"])
        parent: Any = value
        for step in path[:-1]:
            parent = parent[step]
        del parent[path[-1]]
        with pytest.raises(FileError, match=rf"The key '{path[-1]}' is missing"):
            decode(Workload, value, arrays)


DEEP = b"[" * 100_000 + b"]" * 100_000
TEXTS = [
    (b"", "not JSON|no key 'format'"),
    (b"\xff\xfe{}", "UTF-8"),
    ("\ufeff{}".encode(), "not JSON"),
    (b"{", "brackets"),
    (b'{"a": 1,}', "not JSON"),
    (b'{"a": 1} x', "not JSON"),
    (b"{'a': 1}", "not JSON"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "-Infinity"),
    (b'{"a": 1e400}', "1e400.*beyond"),
    (b'{"a": -1e400}', "beyond"),
    (b'{"a": ' + b"9" * 1001 + b"}", "1,001 digits"),
    (b'{"a": ' + b"9" * 100_000 + b"}", "100,000 digits"),
    (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' twice"),
    (b'{"a": {"x": [{"b": 1, "b": 2}]}}', "the key 'b' twice"),
    (b'{"a": "\\ud800"}', "Unicode"),
    (b'{"\\udfff": 1}', "Unicode"),
    (b'{"a": "\x01"}', "not JSON"),
    (b'{"a": ' + DEEP + b"}", "more than 64 deep"),
    (b'{"a":' * 70 + b"1" + b"}" * 70, "more than 64 deep"),
    (b"[" * 100_000, "more than 64 deep"),
    (b'["' + b'\\"' * 100_000, "brackets"),
    (b"[]", "no key 'format'"),
    (b'"hdmm plan"', "no key 'format'"),
    (b"null", "no key 'format'"),
    (b'{"format": "other plan"}', "no key 'format'"),
    (b'{"format": 1}', "no key 'format'"),
    (b'{"format": "hdmm workload", "version": 1}', "'hdmm workload', not 'hdmm plan'"),
    (b'{"format": "hdmm plan"}', "version is not a whole number"),
    (b'{"format": "hdmm plan", "version": true}', "version is not a whole number"),
    (b'{"format": "hdmm plan", "version": 1.0}', "version is not a whole number"),
    (b'{"format": "hdmm plan", "version": 0}', "version is not a whole number"),
    (b'{"format": "hdmm plan", "version": 2, "new": 1}', "version 2; this hdmm reads 1. Upgrade"),
    (b'{"format": "hdmm plan", "version": 1}', "key 'arrays' is missing"),
    (b'{"format": "hdmm plan", "version": 1, "arrays": []}', "key 'content' is missing"),
    (b'{"format": "hdmm plan", "version": 1, "arrays": [], "content": {}, "x": 1}', "x: This key is unknown"),
    (b'{"format": "hdmm plan", "version": 1, "arrays": [], "content": []}', "content: This is a list of 0; a table"),
    (b'{"format": "hdmm plan", "version": 1, "arrays": {}, "content": {}}', "arrays: This is a table of keys; a list"),
    (b"\x80\x04K\x01.", "UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=lambda x: repr(x[:40]))
def test_text_that_is_no_plan_is_refused(plan: Path, text: bytes, message: str) -> None:
    """F2: strict JSON, and nothing but a plan of this version."""
    (plan / "plan.json").write_bytes(text)
    with pytest.raises(FileError, match=message) as caught:
        load_folder(plan, "plan")
    assert str(caught.value).startswith(str(plan / "plan.json"))
    assert len(str(caught.value)) < 1000


def test_depth_is_counted_outside_texts() -> None:
    assert parse(b"[" * 64 + b"]" * 64, "x")
    with pytest.raises(FileError, match="64 deep"):
        parse(b"[" * 65 + b"]" * 65, "x")
    assert parse(b'{"a[[": "' + b'[{\\"' * 1000 + b'\\\\"}', "x")
    assert parse(b'"\\ud83d\\ude00"', "x") == "\U0001f600"


@pytest.mark.parametrize(
    "name",
    ["../x", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "a\x00b", "a.npy", "A", "é", "a" * 65, "-a", "a\n", 5, None],
)
def test_names_of_arrays_stay_in_the_folder(plan: Path, tmp_path: Path, name: object) -> None:
    """F1, F5: a name is a plain name, on the way in and on the way out."""
    np.save(tmp_path / "x.npy", np.zeros(1))
    with_envelope(plan, arrays=[name])
    with pytest.raises(FileError, match=r"arrays\[0\]: .*; the plain name of an array is expected"):
        load_folder(plan, "plan")
    if isinstance(name, str):
        with pytest.raises(FileError, match="cannot name a file"):
            save_folder(tmp_path / "new", "plan", {}, {name: np.zeros(1)})
        with pytest.raises(FileError, match="cannot name a file"):
            save_folder(tmp_path / "new", name, {}, {})
        with pytest.raises(FileError, match="cannot name a file"):
            load_folder(plan, name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan", "x.npy"]


def test_a_name_listed_twice_or_missing_is_refused(plan: Path) -> None:
    name = theta_file(plan).stem
    with_envelope(plan, arrays=[name, name])
    with pytest.raises(FileError, match="twice"):
        load_folder(plan, "plan")
    with_envelope(plan, arrays=["gone"])
    with pytest.raises(FileError, match=r"gone\.npy is missing"):
        load_folder(plan, "plan")
    with_envelope(plan, arrays=[])
    with pytest.raises(FileError, match=r"workload\.products.*the name of an array that the file lists"):
        loaded(plan)


def npy(dtype: str = "'<f8'", shape: str = "(2, 3)", data: bytes = bytes(48), **parts: Any) -> bytes:
    """A .npy file by hand."""
    header = parts.get("header", f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode())
    return b"\x93NUMPY" + parts.get("version", b"\x01\x00") + len(header).to_bytes(2, "little") + header + data


def numpy_saves(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


ARRAYS = [
    (b"", "not a .npy file"),
    (b"\x93NUMPY", "not a .npy file"),
    (pickle.dumps(Evil()), "not a .npy file"),
    (b"PK\x03\x04" + bytes(60), "not a .npy file"),
    (numpy_saves(np.array([Evil()], dtype=object)), r"values of type b'\|O'"),
    (npy("'|O'", data=pickle.dumps(Evil())), r"values of type b'\|O'"),
    (npy("'<f4'", data=bytes(24)), "'<f4'"),
    (npy("'>f8'"), "'>f8'"),
    (npy("'<c16'"), "'<c16'"),
    (npy("'|S8'"), r"'\|S8'"),
    (npy("[('a', '<f8')]"), "header"),
    (npy(version=b"\x02\x00"), "version 2.0"),
    (npy(version=b"\x09\x00"), "version 9.0"),
    (npy(shape="(1000000000000, 1000000)"), "but holds 48"),
    (npy(shape="(99999999999999999999,)"), "header"),
    (npy(shape="(0, 999999999999999999, 999999999999999999)", data=b""), "shape"),
    (npy(shape="(2, 4)"), "64 bytes, but holds 48"),
    (npy(shape="(2, 2)"), "32 bytes, but holds 48"),
    (npy(shape="(-2, -3)"), "header"),
    (npy(shape="(2, __import__('os'))"), "header"),
    (npy(shape="2"), "header"),
    (npy(header=b"(" * 9000 + b"\n"), "header"),
    (npy(header=b""), "header"),
    (npy(header=b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), 'x': 1, }\n"), "header"),
    (b"\x93NUMPY\x01\x00\xff\xff{", "header"),
    (npy(data=b""), "holds 0"),
    (npy(data=np.array([np.nan, *range(5)]).tobytes()), r"\.npy holds NaN or infinity"),
    (npy(data=np.array([np.inf, *range(5)]).tobytes()), r"\.npy holds NaN or infinity"),
    (npy(data=np.full(6, -1.0).tobytes()), r"distinct\[0\]: Rows below an identity must be at least 0"),
    (npy(shape="(6,)"), r"theta of PIdentity must be a 2-D array"),
    (npy(shape="(3, 2)"), r"'a' has 3 values .* 2 columns"),
    (npy(shape="(6, 0)", data=b""), "at least one column"),
]


@pytest.mark.parametrize(("data", "message"), ARRAYS, ids=lambda x: repr(x[:40]))
def test_crafted_arrays_are_refused(plan: Path, data: bytes, message: str) -> None:
    """F1: headers are matched, never evaluated; nothing is unpickled; sizes are checked before the data are read."""
    theta_file(plan).write_bytes(data)
    with pytest.raises(FileError, match=message) as caught:
        loaded(plan)
    assert str(plan) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_sizes_are_checked_before_reading(plan: Path) -> None:
    """F1: files of 2⁴⁰ bytes that take no disk are refused at once."""
    file = theta_file(plan)
    data = file.read_bytes()
    os.truncate(file, 2**40)
    with pytest.raises(FileError, match=r"1,099,511,627,776 bytes.*may be read"):
        load_folder(plan, "plan")
    file.write_bytes(data)
    with pytest.raises(FileError, match="may be read"):
        load_folder(plan, "plan", max_bytes=sum(f.stat().st_size for f in plan.glob("*.npy")) - 1)
    load_folder(plan, "plan", max_bytes=sum(f.stat().st_size for f in plan.glob("*.npy")))
    os.truncate(plan / "plan.json", 2**40)
    with pytest.raises(FileError, match=r"plan\.json has 1,099,511,627,776 bytes"):
        load_folder(plan, "plan")


@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder", "missing"])
@pytest.mark.parametrize("which", ["json", "array"])
def test_only_regular_files_are_read(plan: Path, tmp_path: Path, what: str, which: str) -> None:
    """F1: a link is not followed, even to a good file, and a pipe is not waited for."""
    file = plan / "plan.json" if which == "json" else theta_file(plan)
    moved = file.rename(tmp_path / "moved")
    match what:
        case "link":
            file.symlink_to(moved)
        case "dangling link":
            file.symlink_to(tmp_path / "nowhere")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            pass
    with pytest.raises(FileError, match="missing|holds no" if what == "missing" else "not a regular file"):
        load_folder(plan, "plan")


def test_folders_that_are_none_say_so(plan: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(plan)
    with pytest.raises(FileError, match="symbolic link"):
        load_folder(link, "plan")
    with pytest.raises(FileError, match="is a file"):
        load_folder(plan / "plan.json", "plan")
    with pytest.raises(FileError, match="There is no folder"):
        load_folder(tmp_path / "gone", "plan")
    with pytest.raises(FileError, match=r"holds no release\.json, but plan\.json"):
        load_folder(plan, "release")
    with pytest.raises(FileError, match=r"holds no plan\.json\. Check"):
        load_folder(tmp_path, "plan")
    for path in ("a\x00b", "x" * 5000):
        with pytest.raises(FileError, match="cannot be read"):
            load_folder(path, "plan")
        with pytest.raises(FileError, match="cannot be saved"):
            save_folder(path, "plan", {}, {})
    for path in ("", ".", "..", "/", f"{tmp_path}/.."):
        with pytest.raises(FileError, match="has no name of its own"):
            save_folder(path, "plan", {}, {})


def test_other_files_in_the_folder_are_not_read(plan: Path) -> None:
    (plan / "stray.npy").write_bytes(pickle.dumps(Evil()))
    os.mkfifo(plan / "pipe.npy")
    loaded(plan)


# --- fuzz: a value, or FileError -----------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    [-1, 0, 1, 2, 3, 7, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, 10**400, -0.5, 0.5, 1e308, 5e-324]
)
WORDS = st.sampled_from(
    ["", "a", "drop", "other", "kind", "x"] + [kind.cls.__name__ for kinds in KINDS.values() for kind in kinds]
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
SMALL_JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, child in children for place in places_in(child, (*path, key))]


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """JSON with one to three places replaced, removed, doubled or swapped for what stands elsewhere."""
    holder = {"": copy.deepcopy(value)}
    for _ in range(draw(st.integers(1, 3))):
        places = places_in(holder)
        *steps, last = draw(st.sampled_from(places))
        parent: Any = holder
        for step in steps:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "replace", "remove", "move", "add"])):
            case "replace":
                parent[last] = draw(SMALL_JSON)
            case "remove" if steps:
                del parent[last]
            case "move":
                other: Any = holder
                for step in draw(st.sampled_from(places)):
                    other = other[step]
                parent[last] = copy.deepcopy(other)
            case _ if isinstance(parent[last], list):
                parent[last].append(draw(SMALL_JSON))
            case _ if isinstance(parent[last], dict):
                parent[last][draw(WORDS)] = draw(SMALL_JSON)
            case _:
                pass
    return holder[""]


@examples(200)
@given(st.data())
def test_damaged_json_is_read_or_refused(data: st.DataObject) -> None:
    """F1, F2: whatever stands where, the outcome is a value or a FileError."""
    domain = Domain({"a": 3, "b": ["x", True, 1.5]}).merge(["a", "b"], name="m")
    domain = Domain([*domain.attributes, *Domain({"c": 3, "d": Bins([0, 1, 2], outside="other")}).attributes])
    sets: Any = {"c": Union(EVERY_SET[1:]), "d": Identity()}
    w = Workload.product(domain, sets) + Workload.product(domain, d=AllRange())
    blocks = (Block(0.5, tuple((1, A) for A in FACTORS[:1])), Block(0.5, ((0, Eye(9)), (1, PIdentity([[1.0, 2, 3]])))))
    (value, arrays), form = data.draw(
        st.sampled_from(
            [
                (encode(domain), Domain),
                (encode(w), Workload),
                (encode(Strategy(domain, blocks)), Strategy),
                (encode(Strategy.direct(w)), Strategy),
            ]
        )
    )
    hurt = data.draw(damaged(value))
    with contextlib.suppress(FileError):
        assert isinstance(decode(form, hurt, arrays), form)


@st.composite
def hurt_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        match draw(st.sampled_from(["set", "flip", "insert", "cut", "end"])):
            case "set" if out:
                out[at] = draw(st.sampled_from(b'0129-.eE"[]{},:\\ \n\x00\xff'))
            case "flip" if out:
                out[at] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                out[at:at] = draw(st.binary(max_size=8))
            case "cut":
                del out[at : at + draw(st.integers(1, 20))]
            case _:
                del out[at:]
    return bytes(out)


@examples(200)
@given(st.data())
def test_damaged_bytes_are_read_or_refused(data: st.DataObject) -> None:
    """F1, F2: a flipped bit anywhere gives a value or a FileError, from real files."""
    domain = Domain({"a": 3, "b": ["x", "y"]})
    w = Workload.product(domain, a=Vectors([[1, 0.5, 0]]), b=Sets({"s": [0]}))
    strategy = Strategy(domain, (Block(1.0, ((0, PIdentity([[1.0, 2, 3]])),)),))
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "plan"
        arrays = {"x": np.arange(6.0).reshape(2, 3)}
        (w_json, w_arrays), (s_json, s_arrays) = encode(w), encode(strategy)
        folder.mkdir()
        envelope = {"format": "hdmm plan", "version": 1, "arrays": [*w_arrays, *s_arrays, *arrays]}
        files = {"plan.json": dump(envelope | {"content": {"workload": w_json, "strategy": s_json}}, "plan.json")}
        for name, array in {**w_arrays, **s_arrays, **arrays}.items():
            files[f"{name}.npy"] = numpy_saves(array)
        hurt = data.draw(st.sampled_from(sorted(files)))
        files[hurt] = data.draw(hurt_bytes(files[hurt]))
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with contextlib.suppress(FileError):
            loaded(folder)


@examples(200)
@given(st.binary(max_size=64))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        value = parse(data, "x")
    except FileError:
        return
    assert parse(dump(value, "x"), "x") == value


# --- a file that lies (F4) -----------------------------------------------------------------------------------------


def test_altered_factors_change_the_sensitivity_and_the_error(plan: Path) -> None:
    """F4: nothing about a strategy is believed; all is computed from the factors that are there."""
    w, honest = loaded(plan)
    w = Workload.marginals(w.domain, [("a", "b")])
    np.save(theta_file(plan), np.full((2, 3), 9.0))
    _, other = loaded(plan)
    assert hdmm.unit_error(w, other) != pytest.approx(hdmm.unit_error(w, honest))
    assert other.sensitivity("laplace") == pytest.approx(honest.sensitivity("laplace")), "columns still sum to 1"
    dense = next(f for f in plan.glob("*.npy") if np.load(f).shape == (2, 2))
    np.save(dense, np.array([[1000, 1], [0, 1]]))
    _, larger = loaded(plan)
    assert larger.sensitivity("laplace") == pytest.approx(0.5 + 0.25 * 1000)
    edited(plan, lambda content: content["strategy"]["blocks"]["rows"][1].__setitem__(0, 4))
    assert loaded(plan)[1].sensitivity("laplace") == pytest.approx(0.5 + 4 * 1000)


def test_nothing_in_src_unpickles_or_evaluates() -> None:
    """F1: no pickle, marshal, shelve, yaml, eval or exec, and no np.load, which could unpickle."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.split(".")[0] for alias in node.names} | {str(getattr(node, "module", ""))}
                assert not names & {"pickle", "marshal", "shelve", "yaml", "dill", "joblib"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert ast.unparse(node.func) not in ("np.load", "np.lib.format.read_array"), path


# --- whole or not at all (F5) --------------------------------------------------------------------------------------


def can_swap(folder: Path) -> bool:
    """Whether two folders here can exchange their names in one step."""
    pair = folder / "one", folder / "other"
    for each in pair:
        each.mkdir()
    try:
        return swapped(*pair)
    finally:
        for each in pair:
            each.rmdir()


def snapshot(folder: Path) -> dict[str, bytes | str]:
    return {
        str(p.relative_to(folder)): str(p.readlink()) if p.is_symlink() else p.read_bytes() if p.is_file() else ""
        for p in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("there", "call"),
    [(there, call) for there in (True, False) for call in ("mkdir", "fsync", "rename")] + [(False, "open")],
)
@pytest.mark.parametrize("swaps", [True, False])
def test_a_failure_anywhere_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, call: str, error: BaseException, swaps: bool
) -> None:
    """F5: the k-th system call fails, for every k, where folders can be exchanged in one step and elsewhere."""
    if not swaps:
        monkeypatch.setattr(folder_module, "swapped", lambda *_: False)
    elif not can_swap(tmp_path):
        pytest.skip("The file system does not exchange folders in one step.")
    target = tmp_path / "table"
    if there:
        save_folder(target, "table", {"of": "old"}, {"x": np.zeros(3)})
    before = snapshot(tmp_path)
    real, failures = getattr(os, call), 0
    for k in range(100):
        left = k

        def failing(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise error
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                save_folder(target, "table", {"of": "new"}, {"y": np.ones(4), "z": np.ones(1)})
            except (FileError, KeyboardInterrupt):
                failures += 1
                assert snapshot(tmp_path) == before
            else:
                break
    renames = (0 if swaps else 2) if there else 1
    assert failures == {"mkdir": 1, "fsync": 5, "rename": renames, "open": 2}[call], (
        "3 files, 2 folders; 0 to 2 renames"
    )
    assert load_folder(target, "table")[0] == {"of": "new"}
    assert sorted(snapshot(tmp_path)) == ["table", "table/table.json", "table/y.npy", "table/z.npy"]


def test_a_flipped_bit_of_an_array_is_noticed(tmp_path: Path) -> None:
    """Whatever its order in memory; an array without a digest is refused like one with another."""
    arrays = {"x": np.arange(6), "y": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "z": np.arange(8)[::2]}
    arrays["empty"], arrays["cube"] = np.zeros((0, 3)), np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0)
    folder = save_folder(tmp_path / "release", "release", {}, arrays)
    back = load_folder(folder, "release")[1]
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())
    for name in ("x", "y", "z", "cube"):
        file = folder / f"{name}.npy"
        content = file.read_bytes()
        file.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
        with pytest.raises(FileError, match=rf"{name}\.npy has changed .* backup\. Without one, .* stays charged"):
            load_folder(folder, "release")
        file.write_bytes(content)
    text = (folder / "release.json").read_text()
    (folder / "release.json").write_text(text.replace('"x":', '"w":'))
    with pytest.raises(FileError, match=r"x\.npy has changed"):
        load_folder(folder, "release")


@pytest.mark.parametrize("killed", ["before the new one", "after the new one"])
def test_what_was_set_aside_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str) -> None:
    """F5: where folders cannot be exchanged in one step, a kill between two renames hides the old one for a moment."""
    folder, moves = tmp_path / "table", list[str]()
    save_folder(folder, "table", {"of": "old"}, {})
    monkeypatch.setattr(folder_module, "swapped", lambda *_: False)
    rename, last = os.rename, 1 if killed == "before the new one" else 2

    def stops(one: Path, other: Path) -> None:
        if len(moves) == last:
            os._exit(9)
        moves.append(other.name)
        rename(one, other)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "rename", stops)
        monkeypatch.setattr(folder_module, "sync_folder", lambda _: os._exit(9) if len(moves) == 2 else None)
        save_folder(folder, "table", {"of": "new"}, {})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert folder.exists() == (last == 2)
    assert load_folder(folder, "table")[0] == {"of": "old" if last == 1 else "new"}
    save_folder(folder, "table", {"of": "newest"}, {})
    assert load_folder(folder, "table")[0] == {"of": "newest"}
    assert not (tmp_path / ".hdmm-replaced-table").exists()


def test_what_another_process_has_put_there_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that was found replaceable is the one that is removed, or none is."""
    folder, other = tmp_path / "table", tmp_path / "other"
    for swaps in (True, False):
        save_folder(folder, "table", {"of": "old"}, {})
        other.mkdir()
        (other / "mine.txt").write_text("mine")

        def meanwhile(one: Path, two: Path, swaps: bool = swaps) -> bool:
            if other.exists():
                shutil.rmtree(folder)
                os.rename(other, folder)
            return swapped(one, two) if swaps else False

        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "swapped", meanwhile)
            with pytest.raises(FileError, match="was replaced by another process"):
                save_folder(folder, "table", {"of": "new"}, {})
        assert (folder / "mine.txt").read_text() == "mine"
        shutil.rmtree(folder)


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    """F5: the system itself stops the write in the middle of an array."""
    save_folder(tmp_path / "x", "table", {"of": "old"}, {})
    before = snapshot(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(FileError, match=r"x cannot be saved: .*space left"):
            save_folder(tmp_path / "x", "table", {"of": "new"}, {"y": np.ones(100_000)})
        with pytest.raises(FileError, match="cannot be saved"):
            save_folder(tmp_path / "x", "table", {"of": "n" * 20_000}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert snapshot(tmp_path) == before


def test_a_parent_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path in (Path("/proc/x"), tmp_path / "gone" / "x", tmp_path / "file" / "x"):
        (tmp_path / "file").write_text("")
        with pytest.raises(FileError, match="cannot be saved"):
            save_folder(path, "table", {}, {})
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(FileError, match="cannot be saved"):
            save_folder(tmp_path / "closed" / "x", "table", {}, {})
    assert "gone" not in os.listdir(tmp_path)


def make(path: Path, what: str) -> None:
    match what:
        case "file":
            path.write_text("mine")
        case "link to a folder":
            save_folder(path.parent / "real", "table", {}, {})
            path.symlink_to(path.parent / "real")
        case "dangling link":
            path.symlink_to(path.parent / "nowhere")
        case "pipe":
            os.mkfifo(path)
        case "other kind":
            save_folder(path, "plan", {}, {})
        case "other files":
            path.mkdir()
            (path / "thesis.tex").write_text("mine")
        case "kind and other files":
            save_folder(path, "table", {}, {})
            (path / "thesis.tex").write_text("mine")
        case "kind and a folder":
            save_folder(path, "table", {}, {})
            (path / "x.npy").mkdir()
        case "kind and a link":
            save_folder(path, "table", {}, {})
            (path / "x.npy").symlink_to(path.parent)
        case "arrays only":
            path.mkdir()
            np.save(path / "x.npy", np.ones(1))
        case "json of others":
            path.mkdir()
            (path / "table.json").write_text('{"legs": 4}')
        case _:
            raise AssertionError(what)


IN_THE_WAY = ["file", "link to a folder", "dangling link", "pipe", "other kind", "other files", "kind and other files"]
IN_THE_WAY += ["kind and a folder", "kind and a link", "arrays only", "json of others"]


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_only_a_folder_of_the_same_kind_is_replaced(tmp_path: Path, what: str) -> None:
    """F5: nothing else at the path is touched, and links are not followed."""
    target = tmp_path / "x"
    make(target, what)
    before = snapshot(tmp_path)
    with pytest.raises(FileError, match=r"exists and|incomplete"):
        save_folder(target, "table", {}, {})
    assert snapshot(tmp_path) == before


def test_an_empty_folder_or_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    save_folder(tmp_path / "x", "table", {"n": 1}, {"a": np.ones(2)})
    os.truncate(tmp_path / "x" / "table.json", 40)
    (tmp_path / "x" / "a.npy").write_bytes(b"")
    save_folder(str(tmp_path / "x") + "/", "table", {"n": 2}, {})
    assert load_folder(tmp_path / "x", "table") == ({"n": 2}, {})


@pytest.mark.parametrize(
    ("content", "arrays", "message"),
    [
        ({"a": float("nan")}, {}, r"table\.json cannot be written"),
        ({"a": {1, 2}}, {}, "cannot be written"),
        ({"a": np.int64(1)}, {}, "cannot be written"),
        ({"a": b"x"}, {}, "cannot be written"),
        ({"a": "\ud800"}, {}, "Unicode"),
        ({"a": 10**2000}, {}, "2,001 digits"),
        ({1: "a", "1": "b"}, {}, "twice"),
        ({"a": json.loads("[" * 64 + "]" * 64)}, {}, "64 deep"),
        ({}, {"x": np.array([np.nan])}, r"x\.npy holds NaN"),
        ({}, {"x": np.array(["a"])}, "Only numbers"),
        ({}, {"x": np.array([Evil()], dtype=object)}, "Only numbers"),
        ({}, {"x": np.array([1j])}, "Only numbers"),
        ({}, {"x": np.array([2**63], dtype=np.uint64)}, "no int64 equals"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(
    tmp_path: Path, content: Any, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        save_folder(tmp_path / "x", "table", content, arrays)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_replaced_while_it_is_read_is_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: the JSON of one folder is never joined with the arrays of another."""
    save_folder(tmp_path / "x", "table", {"n": 1}, {"a": np.full(2, 1)})

    def replaced(data: bytes, name: str) -> Any:
        monkeypatch.undo()
        save_folder(tmp_path / "x", "table", {"n": 2}, {"a": np.full(2, 2)})
        return parse(data, name)

    monkeypatch.setattr("hdmm.io.folder.parse", replaced)
    with pytest.raises(FileError, match=r"a\.npy is missing"):
        load_folder(tmp_path / "x", "table")
    content, arrays = load_folder(tmp_path / "x", "table")
    assert (content["n"], arrays["a"].tolist()) == (2, [2, 2])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_missing_folders_are_on_disk_one_by_one_whoever_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here another process makes each of them just before this one would."""
    flushed: list[Path] = []
    made = os.mkdir

    def late(path: Path) -> None:
        made(path)
        made(path)

    monkeypatch.setattr(os, "mkdir", late)
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    make_parents(tmp_path / "a" / "b" / "c")
    assert flushed == [tmp_path, tmp_path / "a"]
    assert list((tmp_path / "a").rglob("*")) == [tmp_path / "a" / "b"]


def test_what_may_be_measured_may_be_loaded() -> None:
    """A release is paid for before it is saved, so that no release is too large to be read again."""
    assert folder_module.MOST_ARRAY_BYTES >= 2 * 8 * prepare_module._MOST
