"""Inverse propensity weighting: each click counts as many as its position hides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Bias, Learner
from clickprism.debias.listwise import score, softmax_loss
from clickprism.errors import DataError, SettingError
from clickprism.types import Batch, Clicks, Float64

Estimate = Literal["none", "log_model", "allpairs"]
TINY = 1e-9


@final
@dataclass(frozen=True)
class InversePropensity:
    """Softmax cross entropy with every click divided by the observation at its position (Joachims et al., 2017).

    loss = - sum_i c_i / max(o_k / o_1, floor) log softmax_i(f(x)),  k the position of i

    Unbiased when the propensities are right, the observation depends on nothing but the position, and `floor` is 0.
    A floor trades bias for variance. `self_normalise` divides by the mean weight of the clicks in the batch: the size
    of the step then no longer depends on which positions happened to be clicked.

    Attributes:
        propensities: the observation at positions 1, 2, ...; only ratios to the first matter.
        floor: relative propensities below this are raised to it; 0 clips nothing.
        self_normalise: divide by the mean weight.
        estimate: where the propensities come from if they are not given: "log_model" takes the position curve of the
            log that is learned from (`LogModel`), "allpairs" that of documents shown at several positions only.
    """

    name: ClassVar[str] = "ipw"
    summary: ClassVar[str] = "Weights each click by its inverse observation probability."
    corrects: ClassVar[tuple[Bias, ...]] = ("position",)
    needs: ClassVar[tuple[str, ...]] = ("propensities, given or estimated",)
    learns_observation: ClassVar[bool] = False
    needs_patterns: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True
    propensities: tuple[float, ...] = ()
    floor: float = 0.0
    self_normalise: bool = False
    estimate: Estimate = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "propensities", tuple(float(value) for value in self.propensities))
        curve = np.asarray(self.propensities)
        if len(curve) and not (np.isfinite(curve).all() and (curve >= 0).all() and curve[0] > 0):
            raise SettingError("propensities", self.propensities, "be finite, not negative, and above 0 at position 1")
        if not 0 <= self.floor <= 1:
            raise SettingError("floor", self.floor, "be in [0, 1]")
        if self.estimate not in get_args(Estimate):
            raise SettingError("estimate", self.estimate, f"be one of {', '.join(get_args(Estimate))}")
        if len(curve) and self.estimate != "none":
            raise SettingError("estimate", self.estimate, "be 'none' where propensities are given")

    def relative(self, positions: int) -> Float64:
        """The clipped propensities of positions 1 to `positions`, relative to the first."""
        if len(self.propensities) < positions:
            raise SettingError(
                "propensities",
                self.propensities,
                f"give one value for each of the {positions} positions in the log "
                "(a simulation knows them; estimate takes them from the log)",
            )
        curve = np.asarray(self.propensities[:positions], dtype=np.float64)
        relative: Float64 = np.maximum(curve / curve[0], self.floor)
        return relative

    def _estimated(self, clicks: Clicks) -> InversePropensity:
        """Return the same with the propensities that the log gives."""
        from clickprism.log_model.counts import count
        from clickprism.log_model.model import LogModel, LogModelSettings
        from clickprism.log_model.references import Links, allpairs

        if self.estimate == "allpairs":
            curve, _ = allpairs(Links.of(count(clicks)), resamples=0)
        else:
            model = LogModel.fit(clicks, settings=LogModelSettings(resamples=0))
            unknown = [k + 1 for k, each in enumerate(model.linkage.identified) if each == "not identified"]
            if unknown:
                problem = f"the log does not identify how often position {unknown[0]} is observed"
                raise DataError(problem, remedy=f"Give propensities. {model.linkage.repair}".strip())
            curve = model.curve
        return replace(self, propensities=tuple(curve.values.tolist()), estimate="none")

    def learner(self, ranker: nn.Module, clicks: Clicks) -> InversePropensityLearner:
        """A learner with the given or estimated weights for the positions of the log."""
        if self.estimate != "none":
            return self._estimated(clicks).learner(ranker, clicks)
        relative = self.relative(clicks.max_position)
        clicked = np.bincount(clicks.positions - 1, weights=clicks.clicks, minlength=clicks.max_position) > 0
        if (clicked & (relative == 0)).any():
            place = int(np.flatnonzero(clicked & (relative == 0))[0]) + 1
            must = f"be above 0 at position {place}, where the log has clicks; a floor does that"
            raise SettingError("propensities", self.propensities, must)
        return InversePropensityLearner(ranker, np.maximum(relative, TINY), self.self_normalise)


@final
class InversePropensityLearner(Learner):
    """The ranker and a fixed weight a position."""

    log_observation: torch.Tensor

    def __init__(self, ranker: nn.Module, relative: Float64, self_normalise: bool) -> None:
        super().__init__(ranker)
        self.self_normalise = self_normalise
        self.register_buffer("log_observation", torch.from_numpy(np.log(relative)).float())

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Softmax cross entropy on the weighted clicks."""
        weighted = batch.clicks * torch.exp(-self.log_observation[batch.positions - 1])
        if self.self_normalise:
            clicked, weight = batch.total(torch.stack([batch.clicks.sum(), weighted.sum()]))
            weighted = weighted * (clicked / weight.clamp_min(1e-12))
        return {"ranking": softmax_loss(score(self.ranker, batch), weighted, mask=batch.mask)}

    def observation(self) -> Float64:
        """The relative propensities in use."""
        return self.log_observation.double().exp().numpy()
