"""Weight clicks by known curves: inverse propensities, and the affine correction for users who trust high positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final, get_args

import numpy as np
import torch
from torch import nn

from clickprism.debias.base import Declared, Learner
from clickprism.debias.losses import log_softmax, score, softmax_loss
from clickprism.errors import DataError, SettingError
from clickprism.types import Batch, Clicks, Float64

Estimate = Literal["none", "log_model", "allpairs"]
TrustEstimate = Literal["none", "trust"]
TINY = 1e-9


@final
@dataclass(frozen=True)
class InversePropensity(Declared):
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

    name = "ipw"
    summary = "Weights each click by its inverse observation probability."
    corrects = ("position",)
    needs = ("propensities, given or estimated",)
    takes_weights = True
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


@final
@dataclass(frozen=True)
class AffineCorrection(Declared):
    """Softmax cross entropy on clicks less those that come without relevance (Vardasbi et al., 2020).

    P(click) = alpha_k r + beta_k,  alpha_k = theta_k (eps+_k - eps-_k),  beta_k = theta_k eps-_k
    loss = - sum_i w_i log((softmax_i(f(x)) + b) / (1 + b)),  w_i = (c_i - n beta_k) / max(alpha_k / alpha_1, floor)

    The weights w are unbiased for the relevance, and negative where a document was clicked less than trust alone
    explains; cutting them at 0 would bias them, and differently for sessions apart and merged. But cross entropy with
    negative weights has no minimum. The `bound` b gives it one: at its minimum softmax_i + b is proportional to the
    expected w_i, or softmax_i is 0, so the order of documents is the same. Unbiased when alpha and beta are right, they
    depend on nothing but the position, and `floor` is 0.

    Attributes:
        alpha: at positions 1, 2, ...; only ratios to the first matter.
        beta: at positions 1, 2, ..., as probabilities of a click.
        estimate: where alpha and beta come from if they are not given: "trust" fits the position-based model with trust
            to the log (`fit_trust`), for which documents must have been seen at several positions.
        floor: alphas below this, relative to the first, are raised to it; 0 clips nothing.
        bound: b; 0 for plain cross entropy, which may run away.
    """

    name = "affine"
    summary = "Weights clicks by the inverse of an affine click model: position bias and trust bias."
    corrects = ("position", "trust")
    needs = ("alpha and beta, given or estimated",)
    alpha: tuple[float, ...] = ()
    beta: tuple[float, ...] = ()
    estimate: TrustEstimate = "none"
    floor: float = 0.0
    bound: float = 0.01

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        alpha, beta = np.asarray(self.alpha), np.asarray(self.beta)
        if not (np.isfinite(alpha).all() and (alpha > 0).all()):
            raise SettingError("alpha", self.alpha, "be finite and above 0")
        if not (np.isfinite(beta).all() and (beta >= 0).all() and (beta < 1).all()):
            raise SettingError("beta", self.beta, "be probabilities below 1")
        if len(alpha) != len(beta):
            raise SettingError("beta", self.beta, f"have as many values as alpha ({len(alpha)})")
        if self.estimate not in get_args(TrustEstimate):
            raise SettingError("estimate", self.estimate, f"be one of {', '.join(get_args(TrustEstimate))}")
        if len(alpha) and self.estimate != "none":
            raise SettingError("estimate", self.estimate, "be 'none' where alpha and beta are given")
        if not 0 <= self.floor <= 1:
            raise SettingError("floor", self.floor, "be in [0, 1]")
        if not 0 <= self.bound <= 1:
            raise SettingError("bound", self.bound, "be in [0, 1]")

    def curves(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """Alpha relative to position 1, and beta, at the positions of the log: as given, or estimated from it."""
        positions = clicks.max_position
        if self.estimate == "trust":
            from clickprism.click_models.pbm import count
            from clickprism.click_models.trust import fit_trust

            fitted = fit_trust(count(clicks))
            return np.maximum(fitted.alpha, self.floor), fitted.beta
        if len(self.alpha) < positions:
            raise SettingError(
                "alpha",
                self.alpha,
                f"give one value for each of the {positions} positions in the log, and so must beta "
                "(users simulated in the same run tell them, a file of clicks does not; "
                "estimate = 'trust' fits them to the log)",
            )
        alpha = np.asarray(self.alpha[:positions])
        return np.maximum(alpha / alpha[0], self.floor), np.asarray(self.beta[:positions])

    def learner(self, ranker: nn.Module, clicks: Clicks) -> AffineLearner:
        """A learner with the two curves for the positions of the log."""
        alpha, beta = self.curves(clicks)
        places, shown = clicks.positions - 1, clicks.list_impressions
        mean = float((clicks.clicks - shown * beta[places]).sum() / max((shown * alpha[places]).sum(), TINY))
        if not mean > 0:
            problem = "beta explains more clicks than there are: trust alone would give more than the log has"
            raise DataError(problem, remedy="Look whether alpha and beta belong to this log, or estimate them from it")
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
        """Bounded softmax cross entropy on the corrected clicks."""
        places = batch.positions - 1
        corrected = (batch.clicks - batch.impressions[:, None] * self.beta[places]) / self.alpha[places]
        log_share = log_softmax(score(self.ranker, batch), batch.mask)
        if self.bound > 0:
            log_share = torch.log((log_share.exp() + self.bound) / (1 + self.bound))
        return {"ranking": -(corrected * log_share).masked_fill(~batch.mask, 0.0).sum(-1).mean()}

    def click_logits(self, batch: Batch) -> torch.Tensor:
        """log(alpha_k r + beta_k), where the relevance r of a list has the mean of the log."""
        log_share = log_softmax(score(self.ranker, batch), batch.mask)
        relevance = log_share.exp() * (self.mean * batch.mask.sum(-1, keepdim=True))
        places = batch.positions - 1
        return torch.log((self.alpha[places] * relevance + self.beta[places]).clamp_min(TINY))

    def observation(self) -> Float64:
        """alpha_k / alpha_1."""
        return np.asarray(self.alpha.double().numpy())

    def background(self, clicks: Clicks) -> Float64:
        """Impressions times beta_k."""
        return np.asarray(clicks.list_impressions * self.beta.double().numpy()[clicks.positions - 1])
