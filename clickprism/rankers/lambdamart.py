"""LambdaMART by LightGBM: gradient boosted trees on the lambdarank objective."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.rankers.boosting import Boosting
from clickprism.rankers.machines import Derivatives, Machines, placeless
from clickprism.types import Float32, Float64, Int64

MAX_LEVELS = 4096
LONGEST_LIST = 10_000


@final
@dataclass(frozen=True)
class LambdaMART:
    """Trees that learn from one real-valued target a document: its gain, such as clicks per exposure.

    LightGBM's lambdarank wants integer labels and a table of gains; here the labels are the distinct targets in order
    and the table holds the targets themselves, so the pair weights are exactly those of nDCG with the given gains.
    Grades come in as the gains 2^y - 1, for which this is the usual LambdaMART.

    Attributes:
        trees: how many, at most.
        learning_rate: the weight of each tree.
        leaves: of each tree, at most.
        min_data_in_leaf: documents in a leaf, at least.
        feature_share: the share of the features that each tree sees.
        l2: penalty on leaf values.
        truncation: only pairs with one document above this place count.
        shrinkage: clicks per exposure is drawn towards its mean at the position as if by so many more impressions at
            position 1.
        floor: an impression counts for at least this share of one at position 1 in clicks per exposure; 0 takes the
            observation as it is.
    """

    name: ClassVar[str] = "lambdamart"
    trees: int = 300
    learning_rate: float = 0.05
    leaves: int = 31
    min_data_in_leaf: int = 20
    feature_share: float = 1.0
    l2: float = 0.0
    truncation: int = 30
    shrinkage: float = 2.0
    floor: float = 0.2

    def __post_init__(self) -> None:
        for field in ("trees", "min_data_in_leaf", "truncation"):
            if getattr(self, field) < 1:
                raise SettingError(field, getattr(self, field), "be at least 1")
        if self.leaves < 2:
            raise SettingError("leaves", self.leaves, "be at least 2")
        if not 0 < self.learning_rate <= 1:
            raise SettingError("learning_rate", self.learning_rate, "be in (0, 1]")
        if not 0 <= self.floor <= 1:
            raise SettingError("floor", self.floor, "be in [0, 1]")
        if not 0 < self.feature_share <= 1:
            raise SettingError("feature_share", self.feature_share, "be in (0, 1]")
        for field in ("l2", "shrinkage"):
            if getattr(self, field) < 0:
                raise SettingError(field, getattr(self, field), "not be negative")

    def train(
        self,
        boosting: Boosting,
        *,
        seed: int,
        threads: int,
        on_tree: Callable[[int, Trees], bool] | None = None,
        machines: Machines | None = None,
    ) -> Trees:
        """Grow trees on what a method made of a log.

        A leaf must hold `min_data_in_leaf` documents, not rows: where documents stand in several groups the limit on
        rows is as many times higher, or a leaf could be one document that was shown often.

        `on_tree` is called after each tree with their number and the ensemble so far; it stops by returning True.

        With `machines`, each process bins all rows, so that bins are those of one process, and keeps its share; an
        objective of one's own is given the scores of all rows, by every process for itself.
        """
        if int(boosting.lengths.max()) > LONGEST_LIST:
            raise DataError(f"LightGBM ranks lists of up to {LONGEST_LIST} documents, one has {boosting.lengths.max()}")
        lightgbm = _lightgbm()
        labels, gains = _levels(boosting.targets)
        weights, repetition = boosting.row_weights(), boosting.repetition
        parameters: dict[str, Any] = {
            "objective": "lambdarank",
            "label_gain": gains.tolist(),
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": max(round(self.min_data_in_leaf * repetition), 1),
            "feature_pre_filter": False,
            "feature_fraction": self.feature_share,
            "lambda_l2": self.l2,
            "lambdarank_truncation_level": self.truncation,
            "lambdarank_position_bias_regularization": boosting.position_penalty / repetition,
            "metric": "none",
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": threads,
            "verbosity": -1,
        }
        objective: Derivatives | None = boosting.objective
        mine: Int64 | None = None
        if machines is not None:
            objective, mine = machines.share(boosting)
            parameters |= machines.parameters()
        if objective is not None:
            parameters["objective"] = lambda scores, _: objective(np.asarray(scores, dtype=np.float64))

        def after(env: Any) -> None:
            if on_tree is not None and on_tree(env.iteration + 1, Trees(env.model)):
                raise lightgbm.callback.EarlyStopException(env.iteration, [])

        data = lightgbm.Dataset(
            boosting.features[boosting.rows],
            label=labels,
            group=boosting.lengths,
            weight=weights,
            position=boosting.positions,
            params=parameters if objective is None else {**parameters, "objective": "none"},
        )
        with nullcontext() if machines is None else machines.connected(lightgbm.basic.LightGBMError):
            if mine is not None:
                data = data.construct().subset(mine.tolist())
            booster = lightgbm.train(parameters, data, num_boost_round=self.trees, callbacks=[after])
        return Trees(booster if machines is None else booster.free_network())


@final
class Trees:
    """A fitted ensemble; `text` is LightGBM's own model format, from which it can be read again."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    def __call__(self, features: Float32, *, trees: int | None = None, threads: int = 0) -> Float64:
        """[documents, features] to scores [documents], by the first `trees` trees only if given; 0 threads for all."""
        if len(features) == 0:
            return np.zeros(0)
        scores = self._booster.predict(features, num_iteration=trees, num_threads=threads)
        return np.asarray(scores, dtype=np.float64)

    def first(self, trees: int) -> Trees:
        """The ensemble of the first `trees` trees."""
        return Trees.from_text(placeless(self._booster.model_to_string(num_iteration=trees)))

    @property
    def features(self) -> int:
        """How many features it takes."""
        return int(self._booster.num_feature())

    @property
    def text(self) -> str:
        """The ensemble in LightGBM's model format."""
        return placeless(self._booster.model_to_string(num_iteration=-1))

    @classmethod
    def from_text(cls, text: str) -> Trees:
        """Read an ensemble from LightGBM's model format."""
        lightgbm = _lightgbm()
        try:
            return cls(lightgbm.Booster(model_str=text))
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"is not a LightGBM model: {error}") from None


def _levels(targets: Float64) -> tuple[Int64, Float64]:
    """The distinct targets as levels 0, 1, 2, ... and the gain of each level; scaled so that the largest gain is 1.

    Above `MAX_LEVELS` distinct targets they are rounded to that many equal steps.
    """
    top = float(targets.max(initial=0.0))
    scaled = targets / top if top > 0 else targets
    gains, labels = np.unique(scaled, return_inverse=True)
    if len(gains) > MAX_LEVELS:
        gains, labels = np.unique(np.rint(scaled * (MAX_LEVELS - 1)) / (MAX_LEVELS - 1), return_inverse=True)
    return labels.astype(np.int64), gains


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("trees", "the LambdaMART ranker") from None
    return lightgbm
