"""Blocks over bases of every kind, for both noises and any number of attributes: what is measured can be answered.

The domain is never written out: data are rows, and what a block measures is counted from them.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, Domain, Identity, Prefix, PureDP, Strategy, Workload
from hdmm.describe.product import Product
from hdmm.matrix import Dense, Eye, Matrix, Ones, PIdentity, TreeIdentity, gram, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.strategy.axis import ClosedAxis, axis_of
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.slabs import kron_slabs
from hdmm.strategy.strategy import form_of
from tests.support import families

MEMORY = 64 << 20  # bytes that a release may hold beside its tables, on any number of attributes


def residual(n: int) -> Matrix:
    """nI − J: what an attribute has beside its total, in integers."""
    return Dense(n * np.eye(n, dtype=np.int64) - 1)


def contrasts(n: int) -> Matrix:
    """I − J/n and next to nothing of the total: invertible, and nearly not."""
    return Dense(np.eye(n) - (1 - 1e-4) / n)


@cache
def gaussian(n: int) -> Matrix:
    """The dense square base that OPT_0 finds for prefixes under Gaussian noise."""
    return opt_0(Prefix().gram(n), first_search(), Noise.GAUSSIAN)


def p_identity(n: int) -> Matrix:
    return PIdentity(np.random.default_rng(n).uniform(size=(2, n)))


BASES = {
    "identity": [Eye],
    "p-Identity": [p_identity],
    "dense Gaussian": [gaussian],
    "residual": [residual],
    "contrasts": [contrasts],
    "identity and residual": [Eye, residual],
    "dense Gaussian, measured twice": [gaussian, lambda n: Dense(2.0 * to_dense(gaussian(n)))],
}
every_base = pytest.mark.parametrize("bases", BASES.values(), ids=list(BASES))
every_noise = pytest.mark.parametrize("noise", list(Noise), ids=[noise.name for noise in Noise])


def over_bases(domain: Domain, bases: list, *, most: int = 2) -> Strategy:
    """All blocks of up to so many attributes, each over one base of each attribute in turn."""
    made = [{n: base(n) if n > 1 else Eye(1) for n in set(domain.shape)} for base in bases]
    blocks = []
    for k in range(most + 1):
        for number, axes in enumerate(itertools.combinations(range(len(domain)), k)):
            for each in made if axes else made[:1]:
                factors = [(i, each[domain.shape[i]]) for i in axes]
                blocks.append(Block(0.25 + (number % 3) / 4, factors))
    return Strategy(domain, tuple(blocks))


def asked(domain: Domain, *, most: int = 2) -> Workload:
    sets = (Identity(), Prefix())
    subsets = [axes for k in range(most + 1) for axes in itertools.combinations(range(len(domain)), k)]
    return Workload(domain, tuple(Product(domain, tuple((i, sets[i % 2]) for i in axes), 1.0) for axes in subsets))


def counted(rows: np.ndarray, domain: Domain, axes: tuple[int, ...]) -> np.ndarray:
    """The table of these attributes."""
    cells = np.ravel_multi_index(rows[:, axes].T, [domain.shape[i] for i in axes]) if axes else np.zeros(len(rows), int)
    return np.bincount(cells, minlength=math.prod(domain.shape[i] for i in axes)).astype(float)


def release(strategy: Strategy, noise: Noise, w: Workload) -> tuple[ClassForm, list[np.ndarray]]:
    """(form, exact answers of w as found from noise-free measurements) of the strategy as it is measured."""
    domain = strategy.domain
    rows = np.random.default_rng(5).integers(0, domain.shape, (200, len(domain)))
    lattice = Lattice.of(strategy, noise)
    privacy = PureDP(1) if noise is Noise.LAPLACE else ZCDP("0.5")
    scales = [float(scale) for scale in lattice.scales(privacy)]
    form = form_of(lattice.strategy, [1 / (2 * s**2 if noise is Noise.LAPLACE else s) for s in scales])
    assert isinstance(form, ClassForm)
    assert not form.free
    measured = [kron_slabs([A for _, A in b.factors], counted(rows, domain, b.axes), np.float64) for b in form.blocks]
    estimate = reconstruct(form, measured, [1.0] * len(measured))
    for product in w.products:
        table = counted(rows, domain, tuple(i for i, _ in product.factors))
        truth = kron_slabs([p.matrix(domain.shape[i]) for i, p in product.factors], table, np.float64)
        np.testing.assert_allclose(estimate.values(product), truth, atol=1e-6)
    return form, measured


@every_base
@every_noise
@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_what_is_measured_over_bases_is_answered(bases: list, noise: Noise, d: int) -> None:
    """Noise-free answers come back exactly, the error is the sum of the variances, and memory is bounded."""
    domain = Domain({f"a{i}": 3 + i % 3 for i in range(d)})
    answered_within_memory(domain, bases, noise)


@pytest.mark.slow
@every_base
@every_noise
def test_forty_attributes_over_bases_are_answered(bases: list, noise: Noise) -> None:
    answered_within_memory(Domain({f"a{i}": 10 for i in range(40)}), bases, noise)


def answered_within_memory(domain: Domain, bases: list, noise: Noise) -> None:
    strategy, w = over_bases(domain, bases), asked(domain)
    tracemalloc.start()
    try:
        form, _ = release(strategy, noise, w)
        variances = [np.concatenate(list(form.variances(product))) for product in w.products]
        total = form.total_variance(w.products)
        *_, before, last = w.products
        across = form.covariances(before, np.zeros(1, dtype=int), last, np.zeros(1, dtype=int))
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert sum(v.sum() for v in variances) == pytest.approx(total, rel=1e-9)
    assert 0 < abs(across[0]) < math.sqrt(variances[-1][0] * variances[-2][0])


@every_base
@every_noise
@pytest.mark.parametrize("shape", [(1,), (4,), (3, 1), (3, 4), (2, 3, 4)])
def test_blocks_over_bases_against_dense_algebra(bases: list, noise: Noise, shape: tuple[int, ...]) -> None:
    domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
    w = asked(domain, most=len(shape))
    form, _ = release(over_bases(domain, bases, most=len(shape)), noise, w)
    inverse = np.linalg.pinv(families.dense(Strategy(domain, form.blocks)))
    answers = [to_dense(product.matrix) @ inverse for product in w.products]
    for product, R in zip(w.products, answers, strict=True):
        np.testing.assert_allclose(np.concatenate(list(form.variances(product))), np.sum(R**2, axis=1), rtol=1e-7)
    total = sum(float(np.sum(R**2)) for R in answers)
    assert form.total_variance(w.products) == pytest.approx(total, rel=1e-7)
    first, second = w.products[0], w.products[-1]
    rows = np.arange(second.queries)
    found = form.covariances(first, np.zeros_like(rows), second, rows)
    np.testing.assert_allclose(found, answers[-1] @ answers[0][0], atol=1e-9 * total)


ZOO = {
    "total": [],
    "identity": [Eye(4)],
    "p-Identity": [p_identity(4)],
    "tree": [TreeIdentity([[1.0, 0.3, 2.0, 0.7]], [2])],
    "dense": [gaussian(4)],
    "residual": [residual(4)],
    "of rank two": [Dense([[1, 1, 0, 0], [0, 0, 1, 1]])],
    "identity and residual": [Eye(4), residual(4)],
    "nested": [Eye(4), Dense([[1, 1, 0, 0], [0, 0, 1, 1]])],
}


@pytest.mark.parametrize("with_total", [False, True], ids=["alone", "beside Total"])
@pytest.mark.parametrize("name", ZOO)
def test_an_axis_is_diagonal(name: str, with_total: bool) -> None:
    """Z_c = S_c R_c, and Σ_c δ_c Z_c⁺ is every gram: AᵀA Z_c = δ_c Z_c⁺Z_c on what is measured."""
    factors = (*ZOO[name], *([Ones(1, 4)] if with_total or not ZOO[name] else []))
    axis = axis_of(factors)
    assert axis is not None
    forms = [to_dense(axis.mixed(row)) for row in np.eye(len(axis.delta))]
    S, R = to_dense(axis.synthesis), to_dense(axis.analysis)
    ends = np.cumsum(axis.sizes)
    for c, (Z, size, end) in enumerate(zip(forms, axis.sizes, ends, strict=True)):
        if size:
            np.testing.assert_allclose(S[:, end - size : end] @ R[end - size : end], Z, atol=1e-12)
        for j, A in enumerate(factors):
            G = to_dense(gram(A))
            np.testing.assert_allclose(Z @ G @ Z, axis.delta[c, j] * Z, atol=1e-10)  # QᵀGQ = δI on the class
            for other in range(c):
                np.testing.assert_allclose(Z @ G @ forms[other], 0.0, atol=1e-10)
    if axis.total is not None:  # Total sees coordinate 0 alone, with δ = 1
        np.testing.assert_allclose(axis.delta[:, axis.total], np.eye(len(axis.delta))[0])
        np.testing.assert_allclose(np.ones(4) @ S, np.eye(axis.coordinates)[0], atol=1e-12)


@pytest.mark.parametrize("n", [2, 10, 300])
def test_bases_beside_total_have_two_classes(n: int) -> None:
    """Whatever they are, so that many attributes are a matter of few; a residual factor sees nothing of the total."""
    for *bases, sees_total in (
        [gaussian(n), True],
        [contrasts(n), True],
        [residual(n), False],
        [Eye(n), residual(n), False],
    ):
        axis = axis_of((*bases, Ones(1, n)))
        assert axis is not None
        assert axis.sizes.tolist() == [1, n - 1]
        assert (axis.delta[0, len(bases) - 1] > 0) == sees_total


def test_a_factor_that_nearly_has_full_rank_is_told_by_its_eigenvectors() -> None:
    """Cells that differ by rounding alone are not told apart: the query between them has no answer."""
    nearly = Dense(np.vstack([np.eye(3), [1.0, 1.0 + 1e-15, 0]])[[2, 3]])
    assert not isinstance(axis_of((nearly,)), ClosedAxis)
    assert not isinstance(axis_of((nearly, Ones(1, 3))), ClosedAxis)
    domain = Domain({"x": 3})
    cells = Workload.product(domain, x=Identity())
    assert not hdmm.supports(cells, Strategy(domain, (Block(1.0, [(0, nearly)]), Block(1.0, ()))))


def test_a_residual_alone_does_not_tell_the_total() -> None:
    domain = Domain({"x": 4, "y": 3})
    alone = Strategy(domain, (Block(1.0, [(0, residual(4))]),))
    assert not hdmm.supports(Workload.marginals(domain, k=0), alone)
    assert not hdmm.supports(Workload.product(domain, x=Identity()), alone)
    assert hdmm.supports(Workload.product(domain, x=np.array([[1.0, -1.0, 0.0, 0.0]])), alone)
    beside = replace(alone, blocks=(*alone.blocks, Block(1.0, ())))
    assert hdmm.supports(Workload.product(domain, x=Identity()), beside)
