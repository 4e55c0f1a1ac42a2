"""Inverse: X_b⁻¹ for every class b of the attributes that split, on the cells of those that do not.

X_b is what the measurements say about the *free* attributes in class b. If none is free, X_b is the number λ_b.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array, Matrix
from hdmm.strategy.mixture import SLAB_CELLS, Mixture, box_keys, quotient_sum

_MAX_BOX = 1 << 28  # cells one product's variances may need at once (2 GiB)

Boxes: TypeAlias = Mapping[int, Array]
"""The classes of some attributes, ascending; the others are in their first class, which is Total's."""

Pairs: TypeAlias = tuple[Array, Array, Array]
"""Columns r and s on the cells of a free attribute, and which of them each pair of queries has."""


class Inverse(ABC):
    """X_b⁻¹ of every class b; 0 where nothing is measured."""

    @abstractmethod
    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        """Σ_b t_b·tr(X_b⁻¹(⊗V)); infinite where it is asked for but not measured, unless `supported` is known."""

    @abstractmethod
    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        """wX_b⁻¹wᵀ for the rows w of ⊗W, flat: by classes, the first attribute's slowest, then by rows."""

    @abstractmethod
    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        """rᵀX_b⁻¹s of each pair: pairs × classes, or one row if it is the same for all."""

    @abstractmethod
    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        """X_b⁻¹T times the largest squared weight, to which T is relative; it may overwrite T.

        T has one axis for each attribute of the boxes or free, ascending; `sizes` are the coordinates of the classes.
        """


@final
@dataclass(frozen=True, eq=False)
class Scalars(Inverse):
    """1/λ, where no attribute is free."""

    lam: Mixture

    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        return quotient_sum(t, self.lam, supported=supported)

    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        lam = self.at(boxes)
        return np.divide(1.0, lam, out=np.zeros(lam.shape), where=lam > 0)

    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        return self.queries(boxes, ()).reshape(1, -1)

    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        lam = self.at(boxes)
        inverse = np.divide(self.lam.coefficients.max(), lam, out=np.zeros(lam.shape), where=lam > 0)
        if (inverse == 1).all():
            return T
        inverse = inverse.reshape([len(box) for box in boxes.values()])
        for k, each in enumerate(sizes):
            if len(each) > 1:
                inverse = np.repeat(inverse, each, axis=k)
        T *= inverse
        return T

    def at(self, boxes: Boxes) -> Array:
        """λ on the cells of a box, flat."""
        size = math.prod(len(box) for box in boxes.values())
        if size > _MAX_BOX:
            raise StrategyError(
                f"The variances of these queries need {size:.1e} cells of the strategy's form in memory. Ask for "
                "the total error instead, or for queries on fewer attributes."
            )
        if self.lam.cells > SLAB_CELLS and self.lam.is_binary:
            return self.lam.sparse.at(box_keys(boxes, len(self.lam.tables)))
        first = np.zeros(1, dtype=np.intp)
        every = [boxes.get(i, first) for i in range(len(self.lam.tables))]
        if self.lam.cells > SLAB_CELLS:
            return self.lam.restricted(every).values()
        places = first
        for table, box in zip(self.lam.tables, every, strict=True):
            places = (places[:, None] * len(table) + box).ravel()
        return self._all_cells[places]

    @cached_property
    def _all_cells(self) -> Array:
        return self.lam.values()
