"""The largest column norm of unions of products, compared with all columns listed one by one."""

from fractions import Fraction
from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hdmm import Domain, PureDP
from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervals,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Forest,
    Intervals,
    Kron,
    Matrix,
    Nested,
    Ones,
    Permuted,
    PIdentity,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    column_norms,
    largest_column_norm,
    to_dense,
)
from hdmm.matrix.integers import entries
from hdmm.matrix.sensitivity import _undominated, _Vectors
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.strategy import Strategy
from tests.matrix.zoo import ZOO
from tests.support.effort import examples


def brute(coefficients, profiles, sizes):
    """The same number by listing the cells, in Python's own arithmetic."""
    return max(
        sum(
            c * reduce(lambda a, b: a * b, (norms.tolist()[x[i]] for i, norms in profile.items()), 1)
            for c, profile in zip(coefficients, profiles, strict=True)
        )
        for x in product(*map(range, sizes))
    )


few = st.integers(0, 6)


@st.composite
def unions(draw, entries=few, weights=few):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    blocks = draw(st.integers(1, 6))
    profiles = []
    for _ in range(blocks):
        kept = draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
        profiles.append({i: np.array(draw(st.lists(entries, min_size=sizes[i], max_size=sizes[i]))) for i in kept})
    return draw(st.lists(weights, min_size=blocks, max_size=blocks)), profiles, sizes


@given(unions())
def test_integers_are_exact(union):
    best = largest_column_norm(*union[:2])
    assert best == brute(*union)
    assert type(best) is int


@given(unions(weights=st.floats(0, 9)))
def test_float_weights(union):
    assert largest_column_norm(*union[:2]) == pytest.approx(brute(*union), rel=1e-12)


def test_one_float_weight_makes_the_largest_norm_a_float():
    found = largest_column_norm([1, 0.5], [{0: np.array([1, 3])}, {1: np.array([2, 5])}])
    assert (found, type(found)) == (5.5, float)


@given(unions(entries=st.floats(0, 9)))
def test_float_norms(union):
    assert largest_column_norm(*union[:2]) == pytest.approx(brute(*union), rel=1e-10, abs=1e-300)


@given(unions(entries=st.integers(0, 2**40), weights=st.integers(0, 2**70)))
def test_integers_beyond_any_machine_word_are_exact(union):
    assert largest_column_norm(*union[:2]) == brute(*union)


near_powers = st.builds(lambda power, off: 2**power + off, st.sampled_from([53, 60, 62]), st.integers(-2, 2))


@examples(300)
@given(unions(entries=near_powers, weights=st.sampled_from([0, 1, 2, 2**53 - 1, 2**63])))
def test_norms_that_floats_confuse_are_told_apart(union):
    """S5: one float64 stands for all of 2⁶⁰ − 2 … 2⁶⁰ + 2, and only integers know which is the largest."""
    assert largest_column_norm(*union[:2]) == brute(*union)


@pytest.mark.parametrize("power", [52, 53, 54, 60, 62, 63, 64, 100])
@pytest.mark.parametrize("first", [0, 1])
def test_the_largest_of_two_norms_that_differ_by_one(power, first):
    """S5: wherever the larger one stands, alone, beside another product, and as the coefficient."""
    pair = [2**power, 2**power]
    pair[first] += 1
    norms = np.array(pair, dtype=np.int64 if power < 63 else object)
    assert largest_column_norm([1], [{0: norms}]) == 2**power + 1
    crossed = [{0: norms, 1: np.array([1, 2])}, {0: norms[::-1], 1: np.array([2, 1])}, {1: np.array([2, 1])}]
    assert largest_column_norm([1, 1, 3], crossed) == brute([1, 1, 3], crossed, [2, 2])
    small = np.arange(2)[:: 1 if first else -1]
    assert largest_column_norm([2**power, 1], [{}, {0: small}]) == 2**power + 1


@pytest.mark.parametrize(
    ("coefficients", "profiles", "best"),
    [
        ([3, 1], [{0: [0, 1], 1: [0, 3]}, {0: [4, 2], 1: [4, 3]}], 16),
        ([1, 3], [{0: [2, 2, 4], 1: [0, 0, 4]}, {0: [2, 3, 1], 1: [3, 3, 2]}], 27),
        ([3, 1, 2], [{1: [1, 4]}, {0: [1, 3], 1: [4, 0]}, {0: [2, 0], 1: [1, 1]}], 16),
    ],
)
def test_a_largest_norm_that_is_one_above_a_greedy_choice(coefficients, profiles, best):
    """Deciding for the largest bound at each attribute ends one below; the search goes on, at any size."""
    for scale in (1, 2**50, 2**60, 2**70):
        norms = [{i: np.array(v) for i, v in p.items()} for p in profiles]
        constant = [*coefficients, scale], [*norms, {}]
        assert largest_column_norm(*constant) == best + scale
        assert largest_column_norm([scale * c for c in coefficients], norms) == best * scale


def test_the_sensitivity_of_a_factor_beyond_floats():
    """S5: the loss that a release is charged for."""
    columns = Dense(np.array([[2**60, 2**60 + 1, 2**60]]))
    strategy = Strategy(Domain({"x": 3}), (Block(1.0, ((0, columns),)),))
    assert Lattice(strategy).scales(PureDP(1)) == (2**60 + 1,)


def test_unsigned_norms_are_no_floats():
    """NumPy takes uint64 beside int64 for float64."""
    mixed = [{0: np.array([2**60, 2**60 + 1], dtype=np.uint64)}, {0: np.array([1, 1 + 2**54])}]
    assert largest_column_norm([1, 1], mixed) == brute([1, 1], mixed, [2])
    assert largest_column_norm([1], [{0: np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64)}]) == 2**64 - 1


@given(unions(weights=st.fractions(0, 9, max_denominator=30)))
def test_fractions_are_exact(union):
    assert largest_column_norm(*union[:2]) == brute(*union)


FACTORS = {
    2: [Eye(2), Ones(1, 2), Cumulative(2), AllIntervals(2), Dense([[1, -3], [2, 0]])],
    3: [Eye(3), Ones(2, 3), Cumulative(3), AllIntervals(3), Permuted(Cumulative(3), [1, 2, 0])],
    4: [Eye(4), Ones(1, 4), AllIntervals(4), Scaled(-2, Cumulative(4)), RowScaled([3, 1, 0, 2], Eye(4))],
}


signed = st.integers(-4, 4)


@st.composite
def stacks(draw, weights=signed):
    sizes = draw(st.lists(st.sampled_from(sorted(FACTORS)), min_size=1, max_size=3))
    factors = st.tuples(*(st.sampled_from(FACTORS[n]) for n in sizes))
    blocks = draw(st.lists(st.tuples(weights, factors), min_size=1, max_size=5))
    return Stack(tuple(Scaled(c, Kron(parts)) for c, parts in blocks))


@given(stacks(), st.sampled_from([1, 2]))
def test_stacks_of_krons(A, order):
    norms = column_norms(A, order)
    assert (norms == (np.abs(to_dense(A)) ** order).sum(axis=0)).all()
    assert norms.dtype.kind == "i"


@given(stacks(weights=st.floats(-2, 2)), st.sampled_from([1, 2]))
def test_stacks_of_krons_with_float_weights(A, order):
    np.testing.assert_allclose(column_norms(A, order), (np.abs(to_dense(A)) ** order).sum(axis=0), 1e-12, 1e-300)


def union(*blocks: tuple[float, dict[int, Matrix]], shape: tuple[int, ...]) -> Strategy:
    domain = Domain({f"x{i}": n for i, n in enumerate(shape)})
    return Strategy(domain, tuple(Block(weight, tuple(factors.items())) for weight, factors in blocks))


def test_a_product_beyond_floats_is_exact():
    n = 10**6 + 3
    cube = union((1.0, dict.fromkeys(range(5), Cumulative(n))), shape=(n,) * 5)
    assert cube.sensitivity("laplace") == n**5
    assert column_norms(Dense(np.full((3, 1), 2**62)), 1).tolist() == [3 * 2**62]
    assert column_norms(Dense(np.array([[-(2**63)]])), 2).tolist() == [2**126]


def test_a_union_beyond_floats_is_exact():
    A = union((1.0, dict.fromkeys(range(3), Cumulative(2**20))), (1.0, {}), (2.0**70, {}), shape=(2**20,) * 3)
    assert A.sensitivity("laplace") == 2**60 + 1 + 2**70
    near = union((1.0, {0: Cumulative(3**9), 1: Eye(2)}), (2.0**53, {1: Cumulative(2)}), shape=(3**9, 2))
    assert near.sensitivity("laplace") == 3**9 + 2**54


def test_a_census_union_of_33_products():
    kinds = [
        lambda n: Eye(n),
        lambda n: Ones(1, n),
        lambda n: AllIntervals(n),
        lambda n: Cumulative(n),
    ]
    rng = np.random.default_rng(0)
    sizes = (2, 2, 64, 17, 115)
    blocks = [dict(enumerate(kinds[rng.integers(4)](n) for n in sizes)) for _ in range(33)]
    shuffled = [{**factors, 4: Permuted(factors[4], rng.permutation(115))} for factors in blocks]
    for each in (blocks, shuffled):
        A = union(*((1.0, factors) for factors in each), shape=sizes)
        assert A.sensitivity("laplace") == column_norms(A.matrix, 1).max()


def test_domains_that_nobody_could_list():
    for factor, norm in ((Eye(10), 1), (AllIntervals(10), 30)):
        pairs = [(1.0, {a: factor, a + 1: factor}) for a in range(99)]
        assert union(*pairs, shape=(10,) * 100).sensitivity("laplace") == 99 * norm**2


def test_columns_of_p_identity_sum_to_exactly_one():
    A = PIdentity(np.random.default_rng(0).uniform(size=(3, 50)))
    assert union((1.0, {0: A, 1: A}), (0.5, {0: A}), shape=(50, 50)).sensitivity("laplace") == 1.5


def test_nothing_to_add_up():
    assert largest_column_norm([], []) == 0
    assert largest_column_norm([0, 3], [{}, {}]) == 3
    assert column_norms(Ones(0, 3), 1).tolist() == [0] * 3
    assert column_norms(Stack((Scaled(0, Eye(3)), Ones(0, 3))), 1).tolist() == [0] * 3
    assert largest_column_norm([Fraction(1, 3)], [{}]) == Fraction(1, 3)
    assert largest_column_norm([2**2000], [{}]) == 2**2000


@pytest.mark.parametrize(
    ("coefficients", "profiles", "message"),
    [
        ([1], [], "1 coefficients for 0 blocks"),
        ([-1], [{}], "Coefficient 0 is -1"),
        ([float("nan")], [{}], "Coefficient 0 is nan"),
        ([1], [{2: np.array([1, -1])}], "attribute 2 must be at least 0"),
        ([1], [{2: np.array([])}], "attribute 2 must be a vector"),
        ([1], [{2: np.array([1, Fraction(1, 2)], dtype=object)}], "attribute 2 must be a vector of numbers"),
        ([1, 1], [{0: np.array([1, 2])}, {0: np.array([1, 2, 3])}], "2 cells in one block and 3 in another"),
    ],
)
def test_bad_input_is_named(coefficients, profiles, message):
    with pytest.raises(MatrixError, match=message):
        largest_column_norm(coefficients, profiles)


def test_a_search_that_explodes_says_so(monkeypatch):
    monkeypatch.setattr("hdmm.matrix.sensitivity._STATES", 20)
    rng = np.random.default_rng(1)
    profiles = [{i: rng.uniform(size=9) for i in range(6)} for _ in range(20)]
    with pytest.raises(MatrixError, match="at most 20 are tried"):
        largest_column_norm([1.0] * 20, profiles)


def test_lists_of_norms_beyond_machine_words_are_exact():
    big = Dense([[2**40, 3], [-(2**40), 5]])
    assert column_norms(Kron((big, big)), 1).tolist() == [2**82, 2**44, 2**44, 64]
    assert column_norms(Stack((Dense([[2**62]]), Dense([[2**62]]))), 1).tolist() == [2**63]
    assert column_norms(RowScaled([2**40, 1], big), 1).tolist() == [2**80 + 2**40, 3 * 2**40 + 5]
    assert column_norms(Scaled(2**40, big), 2).tolist() == [2**161, 34 * 2**80]


# Each at the least sum that int64 does not hold: one step of arithmetic less careful, and it wraps below 0.
EDGES = {
    "dense": (Dense([[2**62], [-(2**62)]]), 1),
    "dense, all below 0": (Dense([[-(2**62)], [-(2**62)]]), 1),
    "dense squares, all below 0": (Dense([[-(2**31)], [-(2**31)]]), 2),
    "dense squares": (Dense([[2**31], [2**31]]), 2),
    "sparse": (Sparse(sp.csr_array(np.array([[2**62], [2**62]]))), 1),
    "sparse squares": (Sparse(sp.csr_array(np.array([[2**31], [2**31]]))), 2),
    "nested": (Nested([[2**62], [2**62]], [2, 4]), 1),
    "forest": (Forest([[2**62], [2**62]], [[0], [0]]), 1),
    "rows below": (ExtendedDiagonal(Dense([[2**62]]), [2**62]), 1),
    "rows below, squares": (ExtendedDiagonal(Nested([[2**31]], [2]), [2**31]), 2),
    "row-scaled": (RowScaled([2**31], Dense([[2**32]])), 1),
    "row-scaled total": (RowScaled([2**62, 2**62], Ones(2, 1)), 1),
    "row-scaled intervals, squares": (RowScaled([2**31, 2**31], Intervals(1, [0, 0], [0, 0])), 2),
    "row-scaled sum": (RowScaled([2, 2], Dense([[2**61], [2**61]])), 1),
    "scaled": (Scaled(-2, Dense([[2**62]])), 1),
    "scaled squares": (Scaled(2**31, Dense([[1], [1]])), 2),
    "stack": (Stack((Dense([[2**62]]), Dense([[-(2**62)]]))), 1),
    "kron": (Kron((Dense([[2**31]]), Dense([[2**32]]))), 1),
    "permuted": (Permuted(Dense([[2**62], [2**62]]), [0]), 1),
    "transposed": (Dense([[2**62, 2**62]]).T, 1),
    "transposed sparse": (Sparse(sp.csr_array(np.array([[2**62, 2**62]]))).T, 1),
}


@pytest.mark.parametrize("name", EDGES)
def test_norms_at_the_edge_of_a_machine_word_are_exact(name):
    """S1: a sensitivity that wraps would be a sensitivity of 0, or below."""
    A, order = EDGES[name]
    assert column_norms(A, order).tolist() == [2**63]


@pytest.mark.parametrize(
    "A",
    [
        Dense([[2**61], [2**61]]),
        RowScaled([1, 1], Dense([[2**61], [2**61]])),
        Scaled(-2, Dense([[2**61]])),
        Stack((Dense([[2**61]]), Dense([[-(2**61)]]))),
        Kron((Dense([[2**31]]), Dense([[2**31]]))),
    ],
    ids=lambda A: type(A).__name__,
)
def test_norms_that_a_machine_word_holds_are_held_in_one(A):
    """Python's integers take ten times the memory and a hundred times the time."""
    norms = column_norms(A, 1)
    assert (norms.dtype, norms.tolist()) == (np.int64, [2**62])


@pytest.mark.parametrize("A", [Eye(3), Ones(2, 3), Cumulative(3), AllIntervals(3)], ids=lambda A: type(A).__name__)
def test_norms_of_zeros_and_ones_are_integers_either_way(A):
    for each in (A, A.T):
        norms = column_norms(each, 1)
        assert norms.dtype == np.int64
        assert norms.tolist() == to_dense(each).sum(axis=0).tolist()


def test_norms_of_integers_beside_floats_are_floats():
    """Of whatever size: a list of Python's floats would be no numbers to the search for the largest."""
    big = Dense([[1e30]])
    for A in (Stack((Dense([[1]]), big)), Kron((Dense([[2]]), big)), RowScaled([2], big)):
        assert column_norms(A, 1).dtype == np.float64


def test_no_multiple_of_0_is_too_large():
    assert column_norms(Scaled(2**70, Dense([[0, 0]])), 1).tolist() == [0, 0]


def whole(A: Matrix) -> bool:
    try:
        entries(A)
    except MatrixError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name, A in ZOO.items() if whole(A)])
@pytest.mark.parametrize("order", [1, 2])
def test_norms_of_integers_are_integers(name, order):
    """Wherever entries are known to be whole, so are the norms: only those are taken for an exact sensitivity."""
    A = ZOO[name]
    norms = column_norms(A, order)
    exact = np.rint(to_dense(A)).astype(int).astype(object)
    assert [int(norm) for norm in norms.tolist()] == (abs(exact) ** order).sum(axis=0).tolist()
    if not isinstance(A, RowScaled):
        assert norms.dtype.kind in "iO"


@pytest.mark.parametrize("order", [0, 3, None])
def test_norms_have_an_order(order):
    with pytest.raises(MatrixError, match="order must be 1"):
        column_norms(Eye(2), order)


def test_norms_of_more_columns_than_memory_holds_are_refused():
    with pytest.raises(MatrixError, match="The norms of its columns would take 2"):
        column_norms(Kron((Eye(2**14), Eye(2**14))), 1)


def test_combinations_are_dropped_on_the_way_where_too_many_are_held(monkeypatch):
    """At the end of an attribute 65 stay, but 199 are held on the way unless dominated ones are dropped there too."""
    rng = np.random.default_rng(0)
    profiles = [{i: rng.integers(1, 50, size=8) for i in pair} for pair in combinations(range(5), 2)]
    best = brute([1] * 10, profiles, [8] * 5)
    monkeypatch.setattr("hdmm.matrix.sensitivity._EXPANDED", 1)
    monkeypatch.setattr("hdmm.matrix.sensitivity._STATES", 120)
    assert largest_column_norm([1] * 10, profiles) == best


def test_the_search_for_dominated_combinations_is_bounded(monkeypatch):
    rows = np.array([[1, 2], [2, 3], [1, 1], [3, 4]])
    assert _undominated(rows, np.array([1, 1])).tolist() == [3]
    monkeypatch.setattr(
        "hdmm.matrix.sensitivity._COMPARED", 6
    )  # what one row takes: to keep dominated ones is harmless
    rows = np.array([[9, 0], [0, 9], [1, 1], [2, 2]])
    assert sorted(_undominated(rows, np.array([1, 1])).tolist()) == [0, 1, 2, 3]


def test_equal_vectors_count_as_one_however_they_are_held():
    """Otherwise a union of products with equal factors would take as many combinations as it has products."""
    for vector in ([1, 2], [2**70, 1], [0.5, 1.0]):
        vectors = _Vectors()
        kind = object if max(vector) > 2**63 else None
        keys = {vectors.folded(1, {0: np.array([v * 1 for v in vector], dtype=kind)})[1] for _ in range(3)}
        assert len(keys) == len(vectors.arrays) == 1


@pytest.mark.parametrize("kind", ["m8[ns]", "M8[ns]", "bool", "complex", "U1"])
def test_norms_of_no_number_are_refused(kind):
    """Durations and instants become Python's integers when they are listed, and are none."""
    with pytest.raises(MatrixError, match="must be a vector of numbers"):
        largest_column_norm([1], [{0: np.array([1, 2]).astype(kind)}])
