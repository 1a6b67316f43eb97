"""LambdaMART by LightGBM: gradient boosted trees on the lambdarank objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np

from clickprism.errors import DataError, MissingExtraError
from clickprism.settings import check_fields
from clickprism.types import Clicks, Float32, Float64, Int32, Int64

MAX_LEVELS = 4096
LONGEST_LIST = 10_000


class Objective(Protocol):
    """A loss of the scores of all rows, by its derivatives; it may learn an observation beside the trees."""

    def __call__(self, scores: Float64) -> tuple[Float64, Float64]:
        """Return the first and second derivative at these scores, [rows] each; called once for each tree."""
        ...

    def observation(self) -> Float64 | None:
        """Return the observation by position relative to the first; None if there is none."""
        ...


@dataclass(frozen=True, eq=False)
class Boosting:
    """The rows that LightGBM learns from, group by group; a document may be in several groups.

    Weights belong to groups, not to rows: lambdarank looks at pairs, and a pair whose two rows have different weights
    pulls one of them more than it pushes the other.

    Attributes:
        features: One row for each document, [documents, features]; the rows below point into it.
        rows: The document of each row.
        lengths: Number of rows of each group.
        targets: The gain of each row, 0 or more; lambdarank learns to order by it.
        positions: Where each row was displayed, from 1, for LightGBM's own position bias; None to leave it out.
        position_penalty: LightGBM's `lambdarank_position_bias_regularization`, as it would act on rows of weight 1.
        weights: Of each group; only ratios count. None weights all alike.
        objective: The loss, instead of lambdarank on the targets.
    """

    features: Float32
    rows: Int64
    lengths: Int64
    targets: Float64
    positions: Int32 | None = None
    position_penalty: float = 0.0
    weights: Float64 | None = None
    objective: Objective | None = None

    def __post_init__(self) -> None:
        if not np.isfinite(self.targets).all() or float(self.targets.min(initial=0.0)) < 0:
            raise DataError("targets of LambdaMART must be finite and not negative")
        if len(self.lengths) == 0 or int(self.lengths.min()) < 1 or int(self.lengths.sum()) != len(self.rows):
            raise DataError(f"the groups of LambdaMART must be of 1 or more and add up to its {len(self.rows)} rows")
        for name, length in (
            ("targets", len(self.rows)),
            ("positions", len(self.rows)),
            ("weights", len(self.lengths)),
        ):
            values = getattr(self, name)
            if values is not None and values.shape != (length,):
                raise DataError(f"LambdaMART needs {length} {name}, got an array of shape {values.shape}")
        if self.weights is not None and not (np.isfinite(self.weights) & (self.weights >= 0)).all():
            raise DataError("weights of groups must be finite and not negative")
        if self.weights is not None and not self.weights.any():
            raise DataError("no group has a weight above 0")

    def observation(self) -> Float64 | None:
        """Return the observation of the objective; None without one (LightGBM does not report its own)."""
        return None if self.objective is None else self.objective.observation()

    @property
    def repetition(self) -> float:
        """Return in how many groups a document is, on average over the documents that are in any."""
        return len(self.rows) / int((np.bincount(self.rows) > 0).sum())

    def row_weights(self) -> Float64 | None:
        """Return the weight of each row, equal within a group; the rows of a document add up to 1 on average."""
        if self.weights is None and self.repetition == 1.0:
            return None
        groups = np.ones(len(self.lengths)) if self.weights is None else self.weights
        spread = np.repeat(groups, self.lengths)
        scaled: Float64 = spread * (len(spread) / (self.repetition * spread.sum()))
        return scaled


def shown(clicks: Clicks) -> tuple[Int64, Int64]:
    """Return the documents that a log shows, in the order of the lists, and how many each of these lists has."""
    rows = np.flatnonzero(np.bincount(clicks.rows, minlength=clicks.lists.documents))
    if len(rows) == 0:
        raise DataError("the log shows no documents")
    lengths = np.bincount(clicks.lists.list_of[rows], minlength=len(clicks.lists))
    return rows, lengths[lengths > 0]


@final
@dataclass(frozen=True)
class LambdaMART:
    """Trees that learn from one real-valued target for each document: its gain, such as clicks per exposure.

    LightGBM's lambdarank needs integer labels and a table of gains; here the labels are the distinct targets in order
    and the table holds the targets themselves, so the pair weights are exactly those of nDCG with the given gains. With
    the gains 2^y - 1 of grades y this is the usual LambdaMART.

    Attributes:
        trees: Largest number of trees.
        learning_rate: Weight of each tree.
        leaves: Largest number of leaves of a tree.
        min_data_in_leaf: Smallest number of documents in a leaf.
        feature_share: Share of the features that each tree uses.
        l2: Penalty on leaf values.
        truncation: Only pairs with one document above this place count.
        shrinkage: Strength of shrinking clicks per exposure towards the mean of the position, as a number of
            impressions at position 1.
        floor: An impression counts for at least this share of one at position 1 in clicks per exposure; 0 sets
            no lower limit.
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
        counts = dict.fromkeys(("trees", "min_data_in_leaf", "truncation"), "[1, inf)")
        check_fields(self, **counts, leaves="[2, inf)", learning_rate="(0, 1]", feature_share="(0, 1]", floor="[0, 1]")
        check_fields(self, l2="[0, inf)", shrinkage="[0, inf)")

    def train(
        self,
        boosting: Boosting,
        *,
        seed: int,
        threads: int,
        on_tree: Callable[[int, Trees], bool] | None = None,
    ) -> Trees:
        """Train trees on rows and groups.

        A leaf must hold `min_data_in_leaf` documents, not rows: if documents are in several groups, the limit on rows
        is as many times higher, since a leaf could otherwise be one document that was shown often.

        `on_tree` is called after each tree with their number and the ensemble so far; it stops by returning True.
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
        objective = boosting.objective
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
        return Trees(lightgbm.train(parameters, data, num_boost_round=self.trees, callbacks=[after]))


@final
class Trees:
    """A fitted ensemble; `text` is LightGBM's own model format, from which it can be read again."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    def __call__(self, features: Float32, *, trees: int | None = None, threads: int = 0) -> Float64:
        """Return scores, [documents, features] to [documents], by the first `trees` trees if given."""
        if len(features) == 0:
            return np.zeros(0)
        scores = self._booster.predict(features, num_iteration=trees, num_threads=threads)
        return np.asarray(scores, dtype=np.float64)

    def first(self, trees: int) -> Trees:
        """Return the ensemble of the first `trees` trees."""
        return Trees.from_text(self._booster.model_to_string(num_iteration=trees))

    @property
    def features(self) -> int:
        """Return the number of features."""
        return int(self._booster.num_feature())

    @property
    def text(self) -> str:
        """Return the ensemble in LightGBM's model format."""
        return str(self._booster.model_to_string(num_iteration=-1))

    @classmethod
    def from_text(cls, text: str) -> Trees:
        """Read an ensemble from LightGBM's model format."""
        lightgbm = _lightgbm()
        try:
            return cls(lightgbm.Booster(model_str=text))
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"is not a LightGBM model: {error}") from None


def _levels(targets: Float64) -> tuple[Int64, Float64]:
    """Return the distinct targets as levels 0, 1, 2, ... and the gain of each level, the largest scaled to 1.

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
