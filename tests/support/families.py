"""Strategies of every family, small enough to write out: fixed ones by name, and any by hypothesis."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import reduce

import numpy as np
from hypothesis import strategies as st

from hdmm import AllRange, Domain, Identity, Prefix, Strategy, SumAtMost, Workload
from hdmm.matrix import Dense, Eye, Matrix, Nested, Ones, Permuted, PIdentity, Scaled, TreeIdentity, to_dense
from hdmm.measure.measurement import noise_weight
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import resolution
from tests.support.strategies import domains

rng = np.random.default_rng(3)

PLANE = Domain({"x": 4, "y": 3})
SOLID = Domain({"x": 3, "sex": 2, "y": 4})
FLAT = Domain({"only": 1, "x": 4, "one": 1})  # attributes of size 1


def p_identity(n: int, p: int = 2) -> Matrix:
    return PIdentity(rng.uniform(size=(p, n)) * 2)


def own(n: int) -> Matrix:
    """The same whatever was drawn before."""
    return PIdentity(np.random.default_rng(n).uniform(size=(2, n)) * 2)


def marginals(
    domain: Domain, weights: dict[tuple[int, ...], float], bases: dict[int, Matrix] | None = None
) -> Strategy:
    bases = bases or {}
    eyes = {i: bases.get(i, Eye(n)) for i, n in enumerate(domain.shape)}
    return Strategy(domain, tuple(Block(w, tuple((i, eyes[i]) for i in axes)) for axes, w in weights.items()))


def product(domain: Domain) -> Strategy:
    return Strategy(domain, (Block(1.0, tuple((i, p_identity(n)) for i, n in enumerate(domain.shape))),))


def merged(domain: Domain, axes: tuple[int, ...]) -> Strategy:
    return over_groups(AxisGroups.merging(domain, axes), product(AxisGroups.merging(domain, axes).domain))


def over_groups(groups: AxisGroups, inner: Strategy) -> Strategy:
    """A strategy over groups of attributes as one over the attributes."""
    blocks = (Block(b.weight, [(groups.groups[g], A) for g, A in b.by_axis.items()]) for b in inner.blocks)
    return Strategy(groups.original, tuple(blocks))


def _residual(*axes: int) -> Matrix:
    """Integers that see no total of these attributes of SOLID."""
    each = [SOLID.shape[i] * np.eye(SOLID.shape[i], dtype=np.int64) - 1 for i in axes]
    mixing = np.random.default_rng(len(each)).integers(-2, 3, size=2 * [len(reduce(np.kron, each))])
    return Dense((mixing + 3 * np.eye(len(mixing), dtype=np.int64)) @ reduce(np.kron, each))


_BASE = p_identity(4)
_HALVES = Dense(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]))  # a level of a hierarchy
_BASES = {i: p_identity(n) for i, n in enumerate(SOLID.shape)}

DIRECT = Workload.product(PLANE, x=Prefix()) + 2.0 * Workload.product(PLANE, x=AllRange(), y=Identity())

# What a workload may ask of each is what it measures: `asks` gives one.
FAMILIES: dict[str, Strategy] = {
    "identity": Strategy.identity(PLANE),
    "product": product(PLANE),
    "product with totals": Strategy(SOLID, (Block(1.0, ((0, p_identity(3)),)),)),
    "explicit totals": Strategy(SOLID, (Block(1.0, ((0, p_identity(3)), (1, Ones(1, 2)), (2, Ones(1, 4)))),)),
    "marginals, explicit totals": marginals(
        SOLID, {(0, 1): 0.5, (1, 2): 0.3, (0, 1, 2): 0.2}, {0: Ones(1, 3), 1: p_identity(2)}
    ),
    "a base and explicit totals": Strategy(
        PLANE, (Block(0.5, ((0, _BASE), (1, Eye(3)))), Block(0.5, ((0, Ones(1, 4)), (1, Eye(3)))))
    ),
    "the total": Strategy(PLANE, (Block(1.0, ()),)),
    "tree": Strategy(SOLID, (Block(1.0, ((0, Eye(3)), (1, Eye(2)), (2, TreeIdentity([[1.0, 0.3, 2.0, 0.7]], [2])))),)),
    "tree with L2 columns": Strategy(
        Domain({"x": 5}), (Block(1.0, ((0, TreeIdentity(rng.uniform(size=(2, 5)), [2, 4], order=2)),)),)
    ),
    "permuted": Strategy(PLANE, (Block(1.0, ((0, Permuted(p_identity(4), [2, 0, 3, 1])), (1, Eye(3)))),)),
    "marginals": marginals(SOLID, {(0, 1): 0.5, (1, 2): 0.3, (0, 2): 0.2, (): 0.1}),
    "marginals with one over all": marginals(SOLID, {(0, 1, 2): 0.5, (1,): 0.3, (0, 2): 0.2}),
    "marginals over bases": marginals(SOLID, {(0, 1): 0.5, (1, 2): 0.3, (0, 2): 0.2, (2,): 0.1}, _BASES),
    "marginals over bases, one over all": marginals(SOLID, {(0, 1, 2): 0.5, (1, 2): 0.3, (): 0.2}, _BASES),
    "two products": Strategy(
        PLANE,
        (
            Block(0.5, ((0, p_identity(4)), (1, p_identity(3)))),
            Block(0.5, ((0, p_identity(4)), (1, p_identity(3)))),
        ),
    ),
    "two products, one with a total": Strategy(
        PLANE, (Block(0.7, ((0, p_identity(4)), (1, p_identity(3)))), Block(0.3, ((1, p_identity(3)),)))
    ),
    "nested splits": Strategy(
        PLANE, (Block(0.4, ((0, Eye(4)), (1, Eye(3)))), Block(0.3, ((0, _HALVES),)), Block(0.3, ((1, Eye(3)),)))
    ),
    "nested splits without the cells": Strategy(
        PLANE, (Block(0.4, ((0, _HALVES), (1, Eye(3)))), Block(0.3, ((0, _HALVES),)), Block(0.3, ()))
    ),
    "no closed form": Strategy(
        PLANE, tuple(Block(w, ((0, p_identity(4)), (1, p_identity(3)))) for w in (0.5, 0.3, 0.2))
    ),
    "no closed form, partial": Strategy(PLANE, tuple(Block(w, ((0, p_identity(4)),)) for w in (0.5, 0.3, 0.2))),
    "no closed form, with the total": Strategy(
        PLANE, (*(Block(w, ((0, own(4)), (1, p_identity(3)))) for w in (0.5, 0.3, 0.2)), Block(0.1, ()))
    ),
    "signed": Strategy(PLANE, (Block(1.0, ((0, Dense([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0]])),)),)),
    "a dense factor": Strategy(PLANE, (Block(1.0, ((0, Dense(rng.normal(size=(5, 4)))), (1, Eye(3)))),)),
    "scaled": Strategy(PLANE, (Block(1.0, ((0, Scaled(-0.7, p_identity(4))), (1, Eye(3)))),)),
    "sizes of one": marginals(FLAT, {(0, 1): 0.5, (1, 2): 0.2, (2,): 0.1}),
    "product on sizes of one": product(FLAT),
    "merged neighbours": merged(SOLID, (0, 1)),
    "merged, not neighbours": merged(SOLID, (0, 2)),
    "merged, first and last": merged(Domain({"a": 2, "b": 3, "c": 2, "d": 2}), (0, 3)),
    "all merged": merged(SOLID, (0, 1, 2)),
    "overlapping pairs": Strategy(
        SOLID,
        (
            Block(0.5, [((0, 1), own(6)), (2, Eye(4))]),
            Block(0.3, [((1, 2), own(8))]),
            Block(0.2, [(0, Eye(3)), (2, own(4))]),
        ),
    ),
    "a pair beside singles": Strategy(
        SOLID, (Block(0.5, [((0, 2), own(12))]), Block(0.5, [(0, Eye(3)), (1, Eye(2)), (2, Eye(4))]))
    ),
    "residual spaces": Strategy(
        SOLID,
        (
            Block(0.7, ()),
            *(Block(0.5, [(i, _residual(i))]) for i in range(3)),
            *(Block(0.1, [(pair, _residual(*pair))]) for pair in ((0, 1), (0, 2), (1, 2))),
            Block(0.01, [((0, 2), _residual(0, 2)), (1, _residual(1))]),
        ),
    ),
    "direct": Strategy.direct(DIRECT),
}


def asks(strategy: Strategy) -> Workload:
    """A workload that the strategy supports, of several products with weights."""
    domain = strategy.domain
    if strategy.inference == "none":
        return DIRECT
    pieces = [
        Workload.product(domain, {name: kind() for name in chosen})
        for kind in (Identity, Prefix)
        for chosen in _subsets(domain.names)
    ]
    pieces += [Workload.product(domain, {pair: SumAtMost()}) for pair in itertools.combinations(domain.names, 2)]
    A = dense(strategy)
    pieces = [w for w in pieces if _sees(A, to_dense(w.matrix))]
    w = pieces[0]
    for k, piece in enumerate(pieces[1:]):
        w = w + (1.0 + k % 3) * piece
    return w


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [tuple(n for k, n in enumerate(names) if bits >> k & 1) for bits in range(1 << len(names))]


def _sees(A: np.ndarray, W: np.ndarray) -> bool:
    return bool(np.allclose(W @ np.linalg.pinv(A) @ A, W, atol=1e-8))


def dense(strategy: Strategy) -> np.ndarray:
    """A over the original domain, from its blocks alone; what is measured twice is there twice."""
    return np.vstack([w * B for w, B in dense_blocks(strategy)])


def dense_blocks(strategy: Strategy) -> list[tuple[float, np.ndarray]]:
    """(weight, ⊗ factors) of each block, columns in the order of the original cells."""
    shape = strategy.domain.shape
    out = []
    for block in strategy.blocks:
        rest = [i for i in range(len(shape)) if i not in block.axes]
        parts = [*(to_dense(A) for _, A in block.factors), *(np.ones((1, shape[i])) for i in rest)]
        kron = reduce(np.kron, parts, np.ones((1, 1)))
        order = [*block.axes, *rest]
        sizes = [shape[i] for i in order]
        kron = kron.reshape(len(kron), *sizes).transpose(0, *(1 + np.argsort(order))).reshape(len(kron), -1)
        out.append((block.weight, kron))
    return out


def exact_loss(strategy: Strategy, scales: tuple[Fraction, ...], noise: str, moves: list[np.ndarray]) -> Fraction:
    """The largest privacy loss of any of these moves of the data vector, in fractions: ε or ρ by the definition."""
    blocks = [np.rint(B).astype(np.int64).astype(object) for _, B in dense_blocks(strategy)]
    losses = []
    for move in moves:
        answers = [B @ move.astype(object) for B in blocks]
        if noise == Noise.LAPLACE:
            losses.append(sum(Fraction(int(abs(a).sum())) / s for a, s in zip(answers, scales, strict=True)))
        else:
            losses.append(sum(Fraction(int((a * a).sum())) / (2 * s) for a, s in zip(answers, scales, strict=True)))
    return max(losses)


@st.composite
def factors(draw: st.DrawFn, n: int) -> Matrix:
    """A factor of any kind on n cells."""
    share = st.floats(0, 5, allow_subnormal=False) | st.sampled_from([0.0, 1.0, 1e-9, 1e9, 1 / 3])

    def table(rows: int) -> list[list[float]]:
        return [draw(st.lists(share, min_size=n, max_size=n)) for _ in range(rows)]

    match draw(st.sampled_from(["eye", "ones", "p-identity", "tree", "tree2", "dense", "integer", "nested"])):
        case "eye":
            A: Matrix = Eye(n)
        case "ones":
            A = Ones(draw(st.integers(1, 2)), n)
        case "p-identity":
            A = PIdentity(np.array(table(draw(st.integers(0, 3)))).reshape(-1, n))
        case "tree" | "tree2" as kind:
            levels = draw(st.integers(0, 2))
            A = TreeIdentity(np.array(table(levels)).reshape(-1, n), [2, 4][:levels], order=2 if kind == "tree2" else 1)
        case "dense":
            sign = draw(st.sampled_from([1.0, -1.0]))
            A = Dense(_some(sign * np.array(table(draw(st.integers(1, 3))))))
        case "integer":
            numbers = st.lists(st.integers(-3, 3), min_size=n, max_size=n)
            A = Dense(_some(np.array([draw(numbers) for _ in range(draw(st.integers(1, 3)))])))
        case _:
            A = Nested(np.array([draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))]), [2])
    if draw(st.integers(0, 3)) == 0:
        A = Permuted(A, draw(st.permutations(range(n))))
    return Scaled(draw(st.sampled_from([-2, 0.3])), A) if draw(st.integers(0, 7)) == 0 else A


def _some(array: np.ndarray) -> np.ndarray:
    """Not all zeros: that measures nothing, and is refused."""
    return array if array.any() else array + 1


def in_noise(release: Release) -> Strategy:
    """The strategy of a release with the weights at which every measurement has variance 1."""
    noise = release.privacy.noise
    return release.strategy.weighted([noise_weight(s, resolution(s, noise), noise) for s in release.scales])


@st.composite
def block_strategies(draw: st.DrawFn, domain: Domain) -> Strategy:
    pool = {i: [draw(factors(n)) for _ in range(2)] for i, n in enumerate(domain.shape)}
    weight = st.sampled_from([1.0, 0.5, 0.25, 1 / 3, 1e-3]) | st.floats(0.01, 10)
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        axes = [i for i in range(len(domain)) if draw(st.booleans())]
        blocks.append(Block(draw(weight), tuple((i, draw(st.sampled_from(pool[i]))) for i in axes)))
    return Strategy(domain, tuple(blocks))


@st.composite
def overlapping_strategies(draw: st.DrawFn, domain: Domain) -> Strategy:
    """Blocks whose factors sit on one attribute or on several, which other blocks part in other ways."""
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        left = list(draw(st.permutations(range(len(domain)))))
        parts: list[tuple[int, ...]] = []
        while left:
            size = draw(st.integers(1, len(left)))
            part, left = tuple(sorted(left[:size])), left[size:]
            if draw(st.booleans()):
                parts.append(part)
        made = [(part, draw(factors(int(np.prod([domain.shape[i] for i in part]))))) for part in sorted(parts)]
        blocks.append(Block(draw(st.sampled_from([1.0, 0.5, 1 / 3])), made))
    return Strategy(domain, tuple(blocks))


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    """Any strategy that can be measured."""
    domain = draw(domains(attributes=3, size=4))
    match draw(st.sampled_from(["blocks", "blocks", "blocks", "merged", "overlapping", "direct"])):
        case "merged" if len(domain) > 1:
            axes = tuple(sorted(draw(st.sets(st.integers(0, len(domain) - 1), min_size=2))))
            groups = AxisGroups.merging(domain, axes)
            return over_groups(groups, draw(block_strategies(groups.domain)))
        case "overlapping" if len(domain) > 1:
            return draw(overlapping_strategies(domain))
        case "direct":
            kinds = st.sampled_from([Identity(), Prefix(), AllRange()])
            parts = [
                draw(st.sampled_from([0.5, 1.0, 2.0, 1 / 3]))
                * Workload.product(domain, {name: draw(kinds) for name in domain.names if draw(st.booleans())})
                for _ in range(draw(st.integers(1, 3)))
            ]
            return Strategy.direct(reduce(lambda a, b: a + b, parts))
        case _:
            return draw(block_strategies(domain))
