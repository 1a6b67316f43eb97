"""Document-dependent observation: features that inform about relevance also change how often a document is observed.

Features are used without scaling, so normalise them first: features uniform on [-1, 1] give w.x a standard deviation of
about 1.05 eta. The strength of the coupling varies much with the random weights w.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.click_models.pbm import DocumentUser, PositionUser
from clickprism.errors import DataError, SettingError
from clickprism.settings import check_fields
from clickprism.types import Float64, JudgedLists, Lists

TREES = 100
SAMPLE = 20_000


@final
@dataclass(frozen=True)
class CoupledUser(DocumentUser):
    """P(click at k) = v_k^max(1 + w.x_crux, 0) a (Chen et al. 2022, LBD), v as in `PositionUser`.

    If no columns are given and eta is above 0, `adapt`, which `simulate` calls, chooses columns and weights for the
    documents. To use the same user for several logs, adapt it once.

    Attributes:
        eta: strength of the coupling; weights are drawn from [-eta, eta]. 0 is `PositionUser`.
        count: number of crux features to choose.
        columns: columns of the crux features.
        weights: w, one per column.
        base: v, the observation by position where w.x = 0.
    """

    name: ClassVar[str] = "coupled"

    eta: float = 0.1
    count: int = 10
    columns: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    base: PositionUser = field(default_factory=PositionUser)

    def __post_init__(self) -> None:
        check_fields(self, eta=(0, 100), count=(1, None))
        if len(self.weights) != len(self.columns):
            raise SettingError("weights", self.weights, f"have one value for each of the {len(self.columns)} columns")
        if not np.isfinite(self.weights).all():
            raise SettingError("weights", self.weights, "be finite")
        if self.columns and min(self.columns) < 0:
            raise SettingError("columns", self.columns, "not be negative")

    def adapt(self, judged: JudgedLists, *, seed: int) -> CoupledUser:
        """Return this user with columns and weights for these documents; itself if it has them or needs none."""
        if self.columns or self.eta == 0:
            return self
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        columns = crux_features(judged, count=self.count, seed=seed)
        return replace(self, columns=columns, weights=draw_weights(self.eta, len(columns), rng))

    def exponent(self, lists: Lists) -> Float64:
        """Return max(1 + w.x_crux, 0) of each document, [documents]."""
        if self.eta > 0 and not self.columns:
            raise SettingError("columns", self.columns, "be chosen for the documents first: call adapt(judged, seed=0)")
        width = lists.features.shape[1]
        if self.columns and max(self.columns) >= width:
            raise SettingError("columns", self.columns, f"be below {width}, the number of features")
        total = np.ones(lists.documents, dtype=np.float64)
        for column, weight in zip(self.columns, self.weights, strict=True):
            total += weight * lists.features[:, column].astype(np.float64)
        if not np.isfinite(total).all():
            raise DataError("crux features must be finite", remedy="Normalise the features first.")
        return np.maximum(total, 0)


def coupled(
    judged: JudgedLists, *, eta: float, seed: int, count: int = 10, base: PositionUser | None = None
) -> CoupledUser:
    """Return a user whose observation depends on the `count` most informative features, with random weights."""
    return CoupledUser(eta=eta, count=count, base=base or PositionUser()).adapt(judged, seed=seed)


def crux_features(judged: JudgedLists, *, count: int = 10, seed: int) -> tuple[int, ...]:
    """Return the most important features of extremely randomised trees fitted to the true grades, best first.

    At most 20,000 documents are used, a random sample.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    documents, width = judged.lists.features.shape
    if count > width:
        raise SettingError("count", count, f"be at most {width}, the number of features")
    if documents == 0:
        raise DataError("there are no documents to choose crux features on")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    rows = np.sort(rng.choice(documents, size=SAMPLE, replace=False)) if documents > SAMPLE else np.arange(documents)
    trees = ExtraTreesRegressor(
        TREES, max_features="sqrt", min_samples_leaf=2, random_state=int(rng.integers(2**31)), n_jobs=1
    )
    trees.fit(judged.lists.features[rows], judged.grades[rows])
    order = np.argsort(-trees.feature_importances_, kind="stable")
    return tuple(int(column) for column in order[:count])


def draw_weights(eta: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Return weights drawn uniformly from [-eta, eta]."""
    return tuple(float(weight) for weight in rng.uniform(-eta, eta, size=count))
