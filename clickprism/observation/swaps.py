"""Curves from documents that traded places: position by position, or each position against one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.curve import Support
from clickprism.observation.pairs import LEAST_CLICKS, Weights, check_weights, link, moved, refuse_few
from clickprism.observation.support import require_pairs
from clickprism.types import Float64


@final
@dataclass(frozen=True)
class AdjacentSwaps:
    """A chain of ratios of neighbours, from documents seen at both (Craswell et al. 2008).

    o_k / o_1 = product over j < k of s_j+1 / s_j,    s_j = sum_d w_d c_dj / n_dj over documents seen at j and j + 1

    Unbiased under the position-based model, whether neighbours were swapped on purpose or by several rankers; errors
    add up along the chain.

    Attributes:
        weights: "matched" weighs a document by n n' / (n + n'), "equal" by 1; see `observation.pairs`.
        least_clicks: in effect, that each ratio must rest on.
    """

    name: ClassVar[str] = "adjacent"

    weights: Weights = "matched"
    least_clicks: float = LEAST_CLICKS

    def __post_init__(self) -> None:
        check_weights(self.weights, self.least_clicks)

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        refuse_few(sample.counts)
        links = link(sample.counts)
        above = np.arange(links.positions - 1)
        note = require_pairs(links, above, above + 1, self.least_clicks)
        rates, pairs = links.rates(sample, self.weights), links.at(above, above + 1)
        steps = rates.high[:, pairs] / rates.low[:, pairs]
        curves = np.concatenate([np.ones((len(steps), 1)), np.cumprod(steps, axis=1)], axis=1)
        return curves, moved(sample.counts, note)


@final
@dataclass(frozen=True)
class PivotSwaps:
    """Each position against one, from documents seen at both (Joachims et al. 2017).

    o_k / o_pivot = s_k / s_pivot over documents seen at k and at the pivot

    Unbiased under the position-based model.

    Attributes:
        pivot: the position that all others are compared with, from 1.
        weights: "matched" weighs a document by n n' / (n + n'), "equal" by 1; see `observation.pairs`.
        least_clicks: in effect, that each ratio must rest on.
    """

    name: ClassVar[str] = "pivot"

    pivot: int = 1
    weights: Weights = "matched"
    least_clicks: float = LEAST_CLICKS

    def __post_init__(self) -> None:
        check_weights(self.weights, self.least_clicks)
        if self.pivot < 1:
            raise SettingError("pivot", self.pivot, "be at least 1")

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        refuse_few(sample.counts)
        links = link(sample.counts)
        if self.pivot > links.positions:
            raise DataError(
                f"there is no position {self.pivot}, the pivot: the log has {links.positions}",
                remedy="Take another pivot, or a deeper log",
            )
        pivot = self.pivot - 1
        others = np.delete(np.arange(links.positions), pivot)
        note = require_pairs(links, np.full(len(others), pivot), others, self.least_clicks)
        rates, pairs = links.rates(sample, self.weights), links.at(np.full(len(others), pivot), others)
        low, high = rates.low[:, pairs], rates.high[:, pairs]
        curves = np.ones((sample.draws, links.positions))
        curves[:, others] = np.where(others < pivot, low / high, high / low)
        return curves / curves[:, :1], moved(sample.counts, note)
