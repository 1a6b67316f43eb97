"""Click groups: each click asks its document to rise above all that was shown with it, as often as it was hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import nn

from clickprism.debias.ipw import Estimate, InversePropensity
from clickprism.debias.lambdas import SessionLambdas, by_lambdas
from clickprism.rankers.boosting import Boosting, shown
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.types import Clicks, slices


@final
@dataclass(frozen=True)
class ClickGroups:
    """Lambdarank with one group a click, weighted by the click's inverse propensity. For trees only.

    loss = sum over clicks (s, i) of 1 / max(o_k(i) / o_1, floor) sum_j lambdarank loss of i above j

    j runs over all other documents of the session, also those that were clicked too: the expected weight of the pair
    (i above j) is then r_i whatever j is and wherever it stood, and f_i - f_j tends to log r_i / r_j. Without the other
    clicked documents a pair would be left with the chance 1 - r_j o_j, which depends on the position of j. So the loss
    is linear in clicks, and sessions of the same list are merged, whatever was clicked in them.

    The weight is that of the group, of its clicked and its unclicked rows alike: weights on the clicked rows only would
    pull one side of each pair. Unbiased as `ipw` is: when the propensities are right and the floor is 0.

    Attributes:
        propensities: the observation at positions 1, 2, ...; only ratios to the first matter.
        floor: relative propensities below this are raised to it; 0 clips nothing.
        estimate: where the propensities come from if they are not given, as for `ipw`.
    """

    name: ClassVar[str] = "click_groups"
    needs_patterns: ClassVar[bool] = False
    propensities: tuple[float, ...] = ()
    floor: float = 0.2
    estimate: Estimate = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "propensities", self._weighting.propensities)

    @property
    def _weighting(self) -> InversePropensity:
        return InversePropensity(propensities=self.propensities, floor=self.floor, estimate=self.estimate)

    def boosting(self, clicks: Clicks, ranker: LambdaMART) -> Boosting:
        """A group for each document that was clicked in a list, with the weight of all its clicks."""
        relative = self._weighting.learner(nn.Identity(), clicks).observation()
        merged = clicks.merge()
        hits = np.flatnonzero(merged.clicks)
        owner = np.searchsorted(merged.offsets, hits, side="right") - 1
        entries, offsets = slices(merged.offsets, owner)
        rows, _ = shown(merged)
        objective = SessionLambdas(
            np.searchsorted(rows, merged.rows)[entries],
            offsets,
            entries == np.repeat(hits, np.diff(offsets)),
            merged.positions[entries].astype(np.int64),
            merged.clicks[hits] / relative[merged.positions[hits] - 1],
            documents=len(rows),
            truncation=ranker.truncation,
            given=relative,
        )
        return by_lambdas(clicks, objective)
