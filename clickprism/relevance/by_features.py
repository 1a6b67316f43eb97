"""An imputation for teams without text: any ranker of the project, trained on features and first-slot clicks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from clickprism.data.normalise import Kind
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.errors import DataError, SettingError
from clickprism.rankers import RANKERS
from clickprism.relevance.imputation import FeatureImputation
from clickprism.relevance.randomised import FirstSlot
from clickprism.settings import choose, read_values
from clickprism.training.calibration import Calibration, log_loss, log_odds
from clickprism.training.settings import FitSettings, Fitted, Validation
from clickprism.training.split import CHOOSE, MEASURE, TRAIN, split_queries
from clickprism.types import Clicks, Float64, Int64, Lists

if TYPE_CHECKING:
    from clickprism.model import Model


def _loop() -> FitSettings:
    return FitSettings(epochs=60, batch_size=256, learning_rate=0.02, patience=8)


@final
@dataclass(frozen=True, kw_only=True)
class FeatureImputationSettings:
    """How an imputation by features is trained.

    Attributes:
        ranker: Ranker: its name (linear, mlp, attention or lambdamart) and its settings.
        normalise: Normalisation of the features.
        fit: How the ranker is trained.
        held_out: Share of the queries that choose the best epoch and calibrate.
        measured: Share of the queries on which only the final loss is measured.
        most_impressions: Maximum number of impressions that a pair counts for, at its own click rate.
    """

    ranker: dict[str, Any] = field(default_factory=dict)
    normalise: Kind = "standard"
    fit: FitSettings = field(default_factory=_loop)
    held_out: float = 0.1
    measured: float = 0.1
    most_impressions: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", read_values(self.ranker))
        if self.ranker.get("name", "mlp") == "mlp":
            object.__setattr__(self, "ranker", {"name": "mlp", "hidden": [64, 32], **self.ranker})
        for name in ("held_out", "measured"):
            if not 0 <= getattr(self, name) <= 0.45:
                raise SettingError(name, getattr(self, name), "be from 0 to 0.45")
        if self.most_impressions < 1:
            raise SettingError("most_impressions", self.most_impressions, "be at least 1")
        choose(RANKERS, self.ranker, path="ranker")


@final
@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """An imputation by features, and how it came to be.

    Attributes:
        imputation: ready to use.
        fitted: the training of its ranker; None where it was trained before.
        without_features: pairs with first-slot clicks that have no features.
        losses: on the measured queries, of the imputation ("best") and of the click rate alone ("constant"); nan
            without such queries.
    """

    imputation: FeatureImputation
    fitted: Fitted | None
    without_features: int
    losses: dict[str, float]


def fit_features(
    slot: FirstSlot,
    lists: Lists,
    *,
    settings: FeatureImputationSettings | None = None,
    model: Model | None = None,
    show: bool | None = None,
) -> FittedFeatures:
    """Train a ranker on the features of pairs by their first-slot clicks, and put its scores on their scale.

    Queries are parted as for texts: most to learn from, some to choose the epoch and to calibrate by, some on which
    only the loss is measured. In the first slot alone there is no position bias, so the loss is plain cross entropy.

    Args:
        slot: the clicks; pairs without features are left out.
        lists: the features, with document ids.
        settings: of all this.
        model: a ranker that is trained already, on whatever clicks; only calibrated then, by all but the measured.
        show: a progress bar; by default on a terminal only.
    """
    settings = FeatureImputationSettings() if settings is None else settings
    rows = FeatureImputation.rows(lists, slot.query_ids, slot.document_ids)
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        remedy = "The ids of queries and documents must be those of the features"
        raise DataError("none of the pairs with first-slot clicks has features", remedy=remedy)
    rows, order = np.sort(rows[known]), known[np.argsort(rows[known], kind="stable")]
    shown = np.minimum(slot.impressions[order], settings.most_impressions)
    clicks = np.rint(slot.clicks[order] * shown / slot.impressions[order]).astype(np.int64)
    seed = settings.fit.seed
    parts = split_queries(lists.list_of[rows], (settings.held_out, settings.measured), seed=seed)
    fitted, calibrating = None, parts != MEASURE
    if model is None:
        normaliser = fit_normaliser(settings.normalise, lists)
        fitted = _trained(normaliser(lists), rows, clicks, shown, parts, settings=settings, show=show)
        model = fitted.model.with_normaliser(normaliser)
        if (parts == CHOOSE).any():
            calibrating = parts == CHOOSE
    scores = model.score(lists)[rows]
    calibration = Calibration.fit(scores[calibrating], clicks[calibrating], shown[calibrating])
    constant = best = float("nan")
    last, others = parts == MEASURE, parts != MEASURE
    if last.any():
        level = log_odds(clicks[others], shown[others])
        constant = log_loss(np.full(int(last.sum()), level), clicks[last], shown[last])
        best = log_loss(calibration(scores[last]), clicks[last], shown[last])
    made = FeatureImputation(model, lists, calibration)
    return FittedFeatures(made, fitted, len(slot) - len(known), {"best": best, "constant": constant})


def _trained(
    lists: Lists,
    rows: Int64,
    clicks: Int64,
    shown: Int64,
    parts: Int64,
    *,
    settings: FeatureImputationSettings,
    show: bool | None,
) -> Fitted:
    from clickprism.debias.pal import PositionAware
    from clickprism.training.fit import fit

    train, held_out = np.flatnonzero(parts == TRAIN), np.flatnonzero(parts == CHOOSE)

    def likelihood(score: Callable[[Lists], Float64]) -> float:
        scores = score(lists)
        odds = Calibration.fit(scores[rows[train]], clicks[train], shown[train])(scores[rows[held_out]])
        return -log_loss(odds, clicks[held_out], shown[held_out])

    single = np.ones(len(train), np.int32)
    return fit(
        Clicks(lists, np.arange(len(train) + 1), rows[train], single, clicks[train], shown[train]),
        method=PositionAware(),
        ranker=choose(RANKERS, settings.ranker, path="ranker"),
        settings=settings.fit,
        validation=Validation("the likelihood of held-out first-slot clicks", likelihood) if len(held_out) else None,
        show=show,
    )
