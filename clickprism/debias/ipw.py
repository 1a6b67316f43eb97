"""Weight clicks by known curves: inverse propensities, and the affine correction for users who trust high positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Learner, Method
from clickprism.debias.losses import log_softmax, score, softmax_loss
from clickprism.errors import DataError, SettingError
from clickprism.settings import check_fields
from clickprism.types import Batch, Clicks, Float64

TINY = 1e-9


@final
@dataclass(frozen=True)
class InversePropensity(Method):
    """Softmax cross entropy with every click divided by the observation at its position (Joachims et al., 2017).

    loss = - sum_i c_i / max(o_k / o_1, floor) log softmax_i(f(x)),  k the position of i

    Unbiased when the propensities are right, the observation depends on nothing but the position, and `floor` is 0.
    A floor trades bias for variance.

    Attributes:
        propensities: The observation at positions 1, 2, ...; only ratios to the first matter.
        floor: Relative propensities below this are raised to it; 0 clips nothing.
        estimate: Where the propensities come from if they are not given: "log_model" takes the position curve of the
            log (`LogModel`), "allpairs" that of documents shown at several positions only.
    """

    name = "ipw"
    summary = "Weights each click by its inverse observation probability."
    corrects = ("position",)
    needs = ("propensities, given or estimated",)
    takes_weights = True
    propensities: tuple[float, ...] = ()
    floor: float = 0.0
    estimate: Literal["none", "log_model", "allpairs"] = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "propensities", tuple(float(value) for value in self.propensities))
        curve = np.asarray(self.propensities)
        if len(curve) and not (np.isfinite(curve).all() and (curve >= 0).all() and curve[0] > 0):
            raise SettingError("propensities", self.propensities, "be finite, not negative, and above 0 at position 1")
        check_fields(self, floor="[0, 1]")
        if len(curve) and self.estimate != "none":
            raise SettingError("estimate", self.estimate, "be 'none' where propensities are given")

    def relative(self, positions: int) -> Float64:
        """Return the clipped propensities of positions 1 to `positions`, relative to the first."""
        if len(self.propensities) < positions:
            must = f"give one value for each of the {positions} positions in the log, or set estimate"
            raise SettingError("propensities", self.propensities, must)
        curve = np.asarray(self.propensities[:positions], dtype=np.float64)
        return np.asarray(np.maximum(curve / curve[0], self.floor))

    def _estimated(self, clicks: Clicks) -> InversePropensity:
        """Return the same method with propensities from the log."""
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
        """Return a learner with the given or estimated weights for the positions of the log."""
        if self.estimate != "none":
            return self._estimated(clicks).learner(ranker, clicks)
        relative = self.relative(clicks.max_position)
        clicked = np.bincount(clicks.positions - 1, weights=clicks.clicks, minlength=clicks.max_position) > 0
        if (clicked & (relative == 0)).any():
            place = int(np.flatnonzero(clicked & (relative == 0))[0]) + 1
            must = f"be above 0 at position {place}, where the log has clicks; a floor does that"
            raise SettingError("propensities", self.propensities, must)
        return InversePropensityLearner(ranker, np.maximum(relative, TINY))


@final
class InversePropensityLearner(Learner):
    """The ranker and a fixed weight for each position."""

    log_observation: torch.Tensor

    def __init__(self, ranker: nn.Module, relative: Float64) -> None:
        super().__init__(ranker)
        self.register_buffer("log_observation", torch.from_numpy(np.log(relative)).float())

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the softmax cross entropy on the weighted clicks."""
        weighted = batch.clicks * torch.exp(-self.log_observation[batch.positions - 1])
        return {"ranking": softmax_loss(score(self.ranker, batch), weighted, mask=batch.mask)}

    def observation(self) -> Float64:
        """Return the relative propensities in use."""
        return self.log_observation.double().exp().numpy()


@final
@dataclass(frozen=True)
class AffineCorrection(Method):
    """Softmax cross entropy on clicks minus those that come without relevance (Vardasbi et al., 2020).

    P(click) = alpha_k r + beta_k,  alpha_k = theta_k (eps+_k - eps-_k),  beta_k = theta_k eps-_k
    loss = - sum_i w_i log((softmax_i(f(x)) + b) / (1 + b)),  w_i = (c_i - n beta_k) / max(alpha_k / alpha_1, floor)

    The weights w are unbiased for the relevance, and negative where a document was clicked less than trust alone
    explains; cutting them at 0 would bias them. But cross entropy with negative weights has no minimum. The `bound` b
    gives it one: at its minimum softmax_i + b is proportional to the expected w_i, or softmax_i is 0, so the order of
    documents is the same. Unbiased when alpha and beta are right, depend on the position only, and `floor` is 0.

    Attributes:
        alpha: At positions 1, 2, ...; only ratios to the first matter.
        beta: At positions 1, 2, ..., as probabilities of a click.
        estimate: Where alpha and beta come from if they are not given: "trust" fits the position-based model with trust
            to the log (`fit_trust`), in which documents must have been shown at several positions.
        floor: Alphas below this, relative to the first, are raised to it; 0 clips nothing.
        bound: b; 0 for plain cross entropy, which may diverge.
    """

    name = "affine"
    summary = "Weights clicks by the inverse of an affine click model: position bias and trust bias."
    corrects = ("position", "trust")
    needs = ("alpha and beta, given or estimated",)
    alpha: tuple[float, ...] = ()
    beta: tuple[float, ...] = ()
    estimate: Literal["none", "trust"] = "none"
    floor: float = 0.0
    bound: float = 0.01

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        check_fields(self, alpha="(0, inf)", beta="[0, 1)", floor="[0, 1]", bound="[0, 1]")
        if len(self.alpha) != len(self.beta):
            raise SettingError("beta", self.beta, f"have as many values as alpha ({len(self.alpha)})")
        if self.alpha and self.estimate != "none":
            raise SettingError("estimate", self.estimate, "be 'none' where alpha and beta are given")

    def curves(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """Return alpha relative to position 1, and beta, at the positions of the log: as given, or estimated."""
        positions = clicks.max_position
        if self.estimate == "trust":
            from clickprism.click_models.pbm import count_positions
            from clickprism.click_models.trust import fit_trust

            fitted = fit_trust(count_positions(clicks))
            return np.maximum(fitted.alpha, self.floor), fitted.beta
        if len(self.alpha) < positions:
            must = f"give one value for each of the {positions} positions in the log, as beta; or set estimate to trust"
            raise SettingError("alpha", self.alpha, must)
        alpha = np.asarray(self.alpha[:positions])
        return np.maximum(alpha / alpha[0], self.floor), np.asarray(self.beta[:positions])

    def learner(self, ranker: nn.Module, clicks: Clicks) -> AffineLearner:
        """Return a learner with the two curves for the positions of the log."""
        alpha, beta = self.curves(clicks)
        places, shown = clicks.positions - 1, clicks.list_impressions
        mean = float((clicks.clicks - shown * beta[places]).sum() / max((shown * alpha[places]).sum(), TINY))
        if not mean > 0:
            problem = "beta explains more clicks than there are: trust alone would give more than the log has"
            raise DataError(problem, remedy="Check that alpha and beta belong to this log, or estimate them from it")
        return AffineLearner(ranker, alpha, beta, mean, self.bound)


@final
class AffineLearner(Learner):
    """The ranker and the fixed curves."""

    alpha: torch.Tensor
    beta: torch.Tensor

    def __init__(self, ranker: nn.Module, alpha: Float64, beta: Float64, mean: float, bound: float) -> None:
        super().__init__(ranker)
        self.mean, self.bound = mean, bound
        self.register_buffer("alpha", torch.from_numpy(alpha).float())
        self.register_buffer("beta", torch.from_numpy(beta).float())

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the bounded softmax cross entropy on the corrected clicks."""
        places = batch.positions - 1
        corrected = (batch.clicks - batch.impressions[:, None] * self.beta[places]) / self.alpha[places]
        log_share = log_softmax(score(self.ranker, batch), batch.mask)
        if self.bound > 0:
            log_share = torch.log((log_share.exp() + self.bound) / (1 + self.bound))
        return {"ranking": -(corrected * log_share).masked_fill(~batch.mask, 0.0).sum(-1).mean()}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """Return log(alpha_k r + beta_k), where the relevance r of a list has the mean of the log."""
        log_share = log_softmax(score(self.ranker, batch), batch.mask)
        relevance = log_share.exp() * (self.mean * batch.mask.sum(-1, keepdim=True))
        places = batch.positions - 1
        return torch.log((self.alpha[places] * relevance + self.beta[places]).clamp_min(TINY))

    def observation(self) -> Float64:
        """Return alpha_k / alpha_1."""
        return np.asarray(self.alpha.double().numpy())

    def background(self, clicks: Clicks) -> Float64:
        """Return impressions times beta_k."""
        return np.asarray(clicks.list_impressions * self.beta.double().numpy()[clicks.positions - 1])
