"""Whether a bundle scores as the ranker that it was made from does, missing values included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np
from scipy.special import expit

from clickprism.errors import DataError
from clickprism.model import Model
from clickprism.serve.bundle import Bundle, Role
from clickprism.serve.parts import IMPUTED, STORED, Ranker, approximation, cross_encoder, usual
from clickprism.serve.sample import KEPT, WORDS, check_same, click_vectors, raw_features, stored_values, to_json
from clickprism.serve.scorer import Candidates, open_scorer
from clickprism.types import Bool, Float64, Lists

if TYPE_CHECKING:
    from clickprism.training.calibration import Calibration

ROWS: Final = 256
TOLERANCE: Final = 1e-5
SMALL: Final = 1e-6


@final
@dataclass(frozen=True, eq=False)
class Original:
    """What a bundle is made from: the ranker, and for an approximation what imputes.

    Attributes:
        model: the ranker.
        imputation: of an approximation; None imputes the mean of training.
        calibration: of an imputation by features.
        naive: another ranker on the same features, to compare with.
    """

    model: Ranker
    imputation: Ranker | str | None
    calibration: Calibration | None
    naive: Model | None

    def __post_init__(self) -> None:
        if self.imputation is not None and approximation(self.model) is None:
            raise DataError("only an approximation has an imputation", remedy="Leave --imputation out")
        if isinstance(self.imputation, Model) and self.calibration is None:
            raise DataError("an imputation by features needs its calibration", remedy="Give the one it was fitted with")
        if self.naive is not None and self.naive.features != self._width:
            problem = f"the naive ranker takes {self.naive.features} features, the other {self._width}"
            raise DataError(problem, remedy="Give one that was trained on the same data")

    @property
    def click_fields(self) -> tuple[str, ...]:
        """The fields of click vectors; none but of an approximation."""
        fitted = approximation(self.model)
        return () if fitted is None else fitted.scale.fields

    def feature_names(self, given: Sequence[str]) -> tuple[str, ...]:
        """The names of the features: those given, or feature_1, feature_2, ... ."""
        if self.imputation == STORED:
            return IMPUTED
        if given and len(given) != self._width:
            raise DataError(f"there are {len(given)} names of features, the ranker takes {self._width}")
        return tuple(given) or tuple(f"feature_{place + 1}" for place in range(self._width))

    def sample(self) -> bytes:
        """The sample that goes into the bundle."""
        drawn = self.draw(KEPT)
        scores: dict[str, Float64] = {"main": self.score(drawn)}
        if self.naive is not None:
            scores["naive"] = _by_model(self.naive, drawn)
        return to_json(drawn, scores)

    def draw(self, rows: int) -> Candidates:
        """Candidates that the ranker can score, some with missing values; texts are few."""
        fitted, first = approximation(self.model), self._first
        query, texts, features = None, None, None
        if cross_encoder(first) is not None:
            query, texts, rows = WORDS[0], WORDS, len(WORDS)
        if isinstance(first, Model):
            missing = may_miss(first) if self.naive is None else may_miss(first) & may_miss(self.naive)
            features = raw_features(first.normaliser, rows=rows, missing=missing)
        elif first == STORED:
            features = stored_values(rows=rows)
        clicks = None if fitted is None else click_vectors(fitted.scale.empty, rows=rows)
        return Candidates(query, texts, features, clicks)

    def score(self, drawn: Candidates) -> Float64:
        """Scores by the ranker itself, [n]."""
        fitted = approximation(self.model)
        if fitted is None or drawn.clicks is None:
            return _by_first(self.model, drawn)
        if self.imputation is None or isinstance(self.imputation, str):
            imputed = np.full(len(drawn), usual(fitted))
            if drawn.features is not None:
                given = drawn.features[:, 0].astype(np.float64)
                imputed = np.where(np.isnan(given), imputed, given)
            return fitted.estimate(drawn.clicks, imputed)
        imputed = _by_first(self.imputation, drawn)
        if self.calibration is not None:
            imputed = np.clip(expit(self.calibration(imputed)), SMALL, 1 - SMALL)
        return fitted.estimate(drawn.clicks, imputed)

    @property
    def _first(self) -> Ranker | str | None:
        """What takes features or texts: the ranker, or the imputation of an approximation."""
        return self.model if approximation(self.model) is None else self.imputation

    @property
    def _width(self) -> int:
        return self._first.features if isinstance(self._first, Model) else 0


def check_copy(bundle: Bundle, original: Original) -> None:
    """Refuse a bundle that scores otherwise than its original, on its own sample and on a larger one."""
    drawn = original.draw(ROWS)
    roles: list[Role] = ["main"] if original.naive is None else ["main", "naive"]
    for role in roles:
        scorer = open_scorer(bundle, role=role)
        scorer.warm()
        wanted = original.score(drawn) if role == "main" else _by_model(original.naive, drawn)
        found = scorer.score(drawn).scores
        check_same(found, wanted, tolerance=TOLERANCE, file=bundle.manifest.name)


def may_miss(model: Model) -> Bool:
    """The features for which a ranker has a rule where the value is missing, [features].

    Trees always have one; for others it is the mean of training, which the normalisation knows. Columns that it keeps
    have none but as codes, whose networks know an unknown one.
    """
    known = np.full(model.features, model.ranker.name == "lambdamart")
    if model.ranker.name == "lambdamart" or model.normaliser is None or model.normaliser.kind == "none":
        return known
    codes = getattr(model.ranker, "categorical", ())
    known[:] = True
    known[[place for place in model.normaliser.keep if place not in codes]] = False
    return known


def _by_first(model: Ranker, drawn: Candidates) -> Float64:
    reader = cross_encoder(model)
    if reader is None or drawn.query is None or drawn.texts is None:
        return _by_model(model, drawn)
    return reader.score_pairs([drawn.query] * len(drawn), drawn.texts)


def _by_model(model: Ranker | None, drawn: Candidates) -> Float64:
    if not isinstance(model, Model) or drawn.features is None:
        raise DataError("there is no ranker on features to score by")
    return model.score(Lists(drawn.features, np.array([0, len(drawn)]), np.array(["sample"])))
