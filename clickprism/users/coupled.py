"""Feature-coupled observation: what draws the eye to a document also says something about its relevance.

The features of the lists are used as they stand, so normalise them before: features uniform on [-1, 1] give w.x a
standard deviation of about 1.05 eta. How strong the coupling came out depends much on the draw of w: see `coupling`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.types import Bool, Float64, Int32, Int64, JudgedLists, Lists
from clickprism.users.base import Response, Shown, independent_log_likelihood
from clickprism.users.pbm import PositionUser

TREES = 100
SAMPLE = 20_000


@final
@dataclass(frozen=True)
class CoupledUser:
    """P(click at k) = v_k^max(1 + w.x_crux, 0) a (Chen et al. 2022, LBD), v as in `PositionUser`.

    Without columns and with eta above 0 the user is a plan: `adapt`, which `simulate` calls, chooses columns and
    weights for the documents at hand. To give several logs the same user, adapt it once.

    Attributes:
        eta: the coupling; weights are drawn from [-eta, eta]. 0 is `PositionUser`.
        count: how many crux features to choose.
        columns: the crux features.
        weights: w, one a column.
        base: v, the observation by position where w.x = 0.
    """

    name: ClassVar[str] = "coupled"

    eta: float = 0.1
    count: int = 10
    columns: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    base: PositionUser = field(default_factory=PositionUser)

    def __post_init__(self) -> None:
        if not 0 <= self.eta < float("inf"):
            raise SettingError("eta", self.eta, "be 0 or more")
        if self.count < 1:
            raise SettingError("count", self.count, "be at least 1")
        if len(self.weights) != len(self.columns):
            raise SettingError("weights", self.weights, f"have one value for each of the {len(self.columns)} columns")
        if not np.isfinite(self.weights).all():
            raise SettingError("weights", self.weights, "be finite")
        if self.columns and min(self.columns) < 0:
            raise SettingError("columns", self.columns, "not be negative")

    def adapt(self, judged: JudgedLists, *, seed: int) -> CoupledUser:
        """This user with columns and weights for these documents; itself if it has them or needs none."""
        if self.columns or self.eta == 0:
            return self
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        columns = crux_features(judged, count=self.count, seed=seed)
        return replace(self, columns=columns, weights=draw_weights(self.eta, len(columns), rng))

    def exponent(self, lists: Lists) -> Float64:
        """max(1 + w.x_crux, 0) of each document, [documents]."""
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

    def observation(self, lists: Lists, rows: Int64, positions: Int64 | Int32) -> Float64:
        """The probability that each of these documents is seen at its position: the true propensities, [rows]."""
        observation: Float64 = self.base.observation(positions) ** self.exponent(lists)[rows]
        return observation

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_entry, see

        observation = self.observation(shown.lists, shown.rows, shown.positions)
        return see(by_entry, shown, seed, observation.astype(np.float32))

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        observation = self.observation(shown.lists, shown.rows, shown.positions)
        return independent_log_likelihood(shown, clicks, observation * shown.attraction)


@dataclass(frozen=True)
class Coupling:
    """How strong a coupling came out: report it beside eta.

    Attributes:
        deviation: the standard deviation of w.x over documents.
        correlation: of the exponent with the grade; 0 where either does not vary.
        floored: the share of documents whose exponent would fall below 0: they are always seen.
    """

    deviation: float
    correlation: float
    floored: float


def coupled(
    judged: JudgedLists, *, eta: float, seed: int, count: int = 10, base: PositionUser | None = None
) -> CoupledUser:
    """A user whose observation hangs on the `count` features that say most about the grades, with random weights."""
    return CoupledUser(eta=eta, count=count, base=base or PositionUser()).adapt(judged, seed=seed)


def crux_features(judged: JudgedLists, *, count: int = 10, seed: int) -> tuple[int, ...]:
    """The features that extremely randomised trees, fitted to the true grades, find most important, best first.

    At most 20,000 documents are used, drawn at random.
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
    """Weights drawn uniformly from [-eta, eta]."""
    return tuple(float(weight) for weight in rng.uniform(-eta, eta, size=count))


def coupling(user: CoupledUser, judged: JudgedLists) -> Coupling:
    """Measure the coupling of an adapted user on these documents."""
    exponent = user.exponent(judged.lists)
    weighted = np.zeros(judged.lists.documents)
    for column, weight in zip(user.columns, user.weights, strict=True):
        weighted += weight * judged.lists.features[:, column].astype(np.float64)
    varies = len(exponent) > 1 and exponent.std() > 0 and judged.grades.std() > 0
    return Coupling(
        deviation=float(weighted.std()) if len(weighted) else 0.0,
        correlation=float(np.corrcoef(exponent, judged.grades)[0, 1]) if varies else 0.0,
        floored=float((weighted < -1).mean()) if len(weighted) else 0.0,
    )
