"""Curves from click models fitted to the whole log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from clickprism._util.grouping import same_lists
from clickprism.errors import SettingError, TrainingError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.curve import Support, sums
from clickprism.observation.pairs import LEAST_CLICKS, link, moved, refuse_few
from clickprism.observation.support import require_linked
from clickprism.types import Float64


@final
@dataclass(frozen=True)
class PositionModelCurve:
    """The curve of the position-based model, by maximum likelihood with one attraction a document.

    Unbiased as documents are shown more often, under the position-based model. Documents seen at one position only say
    nothing of the curve but through the bound of their attraction, 1.

    Attributes:
        least_clicks: in effect, that the links between positions must rest on.
        tolerance: of the curve, relative to itself.
    """

    name: ClassVar[str] = "pbm"

    least_clicks: float = LEAST_CLICKS
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        _check(self.least_clicks, self.tolerance)

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        from clickprism.observation.click_models.pbm import fit_position

        note = _linked(sample, self.least_clicks)
        start: Float64 | None = None

        def curve(draw: int) -> Float64:
            nonlocal start
            fit = fit_position(sample.weighted_counts(draw), start=start, tolerance=_tolerance(self.tolerance, draw))
            if not fit.converged:
                raise TrainingError(f"the curve of pbm has not settled after {fit.iterations} steps")
            start = fit.curve if draw == 0 else start
            return np.asarray(fit.curve / fit.curve[0])

        return sample.curves(curve), moved(sample.counts, note)


@final
@dataclass(frozen=True)
class BrowsingModelCurve:
    """The curve of the user browsing model: how probably a position is seen, on average over the sessions of the log.

    Observation depends there on the position and on the last click above, so the curve depends on what was shown, too:
    better documents above mean more clicks above, and so other observation below. The model is fitted by maximum
    likelihood, with one attraction a document.

    Attributes:
        least_clicks: in effect, that the links between positions must rest on.
        tolerance: of the observation, relative to itself.
    """

    name: ClassVar[str] = "ubm"

    least_clicks: float = LEAST_CLICKS
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        _check(self.least_clicks, self.tolerance)

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        from clickprism.observation.click_models.base import check_patterns, filled
        from clickprism.observation.click_models.behaviour import Browsing
        from clickprism.observation.click_models.ubm import count_browsing, fit_browsing

        clicks = sample.clicks
        check_patterns(clicks)
        note = _linked(sample, self.least_clicks)
        counts = count_browsing(clicks)
        lists = clicks.merge()
        same = same_lists(clicks.offsets, clicks.rows, clicks.positions, np.zeros(0, np.int64))[0]
        places = lists.positions - np.int64(1)
        start: Float64 | None = None

        def curve(draw: int) -> Float64:
            nonlocal start
            weights = sample.list_weights(draw)
            each = np.repeat(weights, np.diff(clicks.offsets))
            size = len(counts.groups.cells)
            groups = replace(
                counts.groups,
                clicks=sums(counts.entries, clicks.clicks * each, size),
                impressions=sums(counts.entries, clicks.list_impressions * each, size),
            )
            tolerance = _tolerance(self.tolerance, draw)
            fit = fit_browsing(replace(counts, groups=groups), start=start, tolerance=tolerance)
            if not fit.converged:
                raise TrainingError(f"the curve of ubm has not settled after {fit.iterations} steps")
            start = fit.table if draw == 0 else start
            attraction = np.zeros(clicks.lists.documents)
            attraction[counts.rows] = fit.attraction
            seen = Browsing(filled(fit.table)).expected(lists, attraction[lists.rows])
            shown = np.repeat(sums(same, clicks.impressions * weights, len(lists)), np.diff(lists.offsets))
            found = sums(places, seen * shown, counts.depth) / sums(places, shown, counts.depth)
            return np.asarray(found / found[0])

        return sample.curves(curve), moved(sample.counts, note)


def _check(least_clicks: float, tolerance: float) -> None:
    if not 0 < least_clicks < float("inf"):
        raise SettingError("least_clicks", least_clicks, "be above 0")
    if not 0 < tolerance < 1:
        raise SettingError("tolerance", tolerance, "be between 0 and 1")


def _tolerance(tolerance: float, draw: int) -> float:
    """Draws only make intervals: a thousandth will do."""
    return tolerance if draw == 0 else max(tolerance, 1e-3)


def _linked(sample: Sample, least_clicks: float) -> str:
    refuse_few(sample.counts)
    return require_linked(link(sample.counts), least_clicks)
