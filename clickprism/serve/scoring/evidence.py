"""Join a ranker's score with the clicks on the pair itself, which the online store has.

    m_i = exp(c + b s_i)                            relevance of document i by the ranker's score s_i
    n_i ~ Poisson(v_i g_i),  g_i ~ Gamma(a, a / m_i)    n clicks at exposure v, in impressions at position 1
    E[g_i | n_i] = (a + n_i) / (a / m_i + v_i)      the served score is its logarithm

The ranker is the prior: a document without clicks and exposure keeps m_i, and one with much exposure is ranked by its
clicks over exposure. `a` and `b` are fitted to the log once, for a bundle. The level c of a query is its clicks over
what the ranker expects, with the weight of one expected click at the level of the log.
"""

from __future__ import annotations

import math
from typing import Final, final

import msgspec
import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Float32, Float64, Int64

FIELDS: Final = ("evidence.clicks", "evidence.exposure", "evidence.impressions")
"""The fields of a store that `clickprism store publish --estimates` fills."""
LARGEST: Final = 1e6
HIGHEST: Final = 50.0  # maximum log relevance, so that its exponential is finite


@final
class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much weight the ranker has against the clicks on a pair.

    Attributes:
        strength: Shape a of the prior; the standard deviation of relevance about the ranker's is 1 / sqrt(a) of it.
        slope: Slope b from the ranker's score to log relevance.
        level: Log relevance of a document with the score 0, over all queries of the log.
    """

    strength: float
    slope: float
    level: float

    def __post_init__(self) -> None:
        for name in ("strength", "slope"):
            if not 0 < getattr(self, name) <= LARGEST:
                raise SettingError(name, getattr(self, name), f"be above 0 and at most {LARGEST:g}")
        if not abs(self.level) <= LARGEST:
            raise SettingError("level", self.level, f"be from {-LARGEST:g} to {LARGEST:g}")

    def join(self, scores: Float64, known: Float32) -> tuple[Float64, dict[str, Float64]]:
        """Return the joined scores, and the parts that they consist of.

        Args:
            scores: Of the ranker, for the documents of one query, [n]; NaN stays NaN.
            known: Values of `FIELDS` for each document, 0 for one without any, [n, 3].

        >>> evidence = Evidence(strength=4.0, slope=1.0, level=math.log(0.1))
        >>> clicks = np.array([[30, 40, 100], [0, 0, 0], [0, 40, 100]], np.float32)
        >>> joined, parts = evidence.join(np.zeros(3), clicks)
        >>> np.round(np.exp(joined), 3).tolist(), np.round(parts["evidence"], 2).tolist()
        ([0.659, 0.344, 0.077], [0.78, 0.0, 0.78])
        """
        clicks, exposure, shown = known.astype(np.float64).T
        usual = self.level + self.slope * scores
        there = np.isfinite(usual)
        expected = exposure[there] @ np.exp(np.minimum(usual[there], HIGHEST))
        query = math.log((1 + clicks[there].sum()) / (1 + expected))
        log_prior = np.clip(usual + query, -HIGHEST, HIGHEST)
        weight = self.strength / np.exp(log_prior)
        joined = np.log((self.strength + clicks) / (weight + exposure))
        parts = {
            "relevance": np.exp(joined),
            "ranker": np.exp(log_prior),
            "evidence": exposure / (weight + exposure),
            "clicks": clicks,
            "impressions": shown,
            "observed": np.divide(exposure, shown, out=np.zeros_like(shown), where=shown > 0),
        }
        return joined, parts


def fit_evidence(scores: Float64, clicks: Float64, exposure: Float64, query: Int64) -> Evidence | None:
    """Fit how much a ranker is trusted to a log, by the likelihood of the clicks; None if the log has too few.

    The scores should be of a copy of the ranker that did not learn from the query, such as of a cross-validation.

    Args:
        scores: Of the ranker, [pairs].
        clicks: Number of clicks, [pairs].
        exposure: Sum of the observation probabilities of the impressions, [pairs].
        query: Query of each pair, [pairs].
    """
    from scipy.optimize import minimize
    from scipy.special import gammaln

    used = (exposure > 0) & np.isfinite(scores)
    scores, clicks, exposure = scores[used], clicks[used], exposure[used]
    _, query = np.unique(query[used], return_inverse=True)
    if clicks.sum() < 10 or len(scores) < 10 or not float(np.std(scores)):
        return None
    scale = float(np.std(scores))

    def level_of(slope: float) -> float:
        return math.log(clicks.sum() / (exposure @ np.exp(np.clip(slope * scores, -HIGHEST, HIGHEST))))

    def loss(parameters: Float64) -> float:
        shape, slope = math.exp(parameters[0]), math.exp(parameters[1]) / scale
        usual = np.exp(np.clip(level_of(slope) + slope * scores, -HIGHEST, HIGHEST)) * exposure
        others = np.bincount(query, clicks)[query] - clicks  # a pair is predicted from the rest of its query
        mean = usual * (1 + others) / (1 + np.bincount(query, usual)[query] - usual)
        terms = gammaln(clicks + shape) - gammaln(shape) + clicks * np.log(mean / (mean + shape))
        return -float((terms + shape * np.log(shape / (mean + shape))).sum())

    bounds = [(math.log(0.05), math.log(1000.0)), (math.log(0.01), math.log(10.0))]
    found = minimize(loss, np.zeros(2), method="Nelder-Mead", bounds=bounds)
    slope = math.exp(found.x[1]) / scale
    if not 0 < slope <= LARGEST:
        return None
    return Evidence(strength=round(math.exp(found.x[0]), 6), slope=slope, level=level_of(slope))
