"""Curves from click models fitted to the whole log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.errors import SettingError, TrainingError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.curve import Support
from clickprism.observation.pairs import LEAST_CLICKS, link, moved, refuse_few
from clickprism.observation.support import require_linked
from clickprism.types import Float64


@final
@dataclass(frozen=True)
class PositionModel:
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
        curves = np.empty((sample.draws, sample.counts.max_position))
        start = None
        for draw, counts in enumerate(sample.weighted()):
            fit = fit_position(counts, start=start, tolerance=self.tolerance)
            if not fit.converged:
                raise TrainingError(f"the curve of pbm has not settled after {fit.iterations} steps")
            start = fit.curve if draw == 0 else start
            curves[draw] = fit.curve / fit.curve[0]
        return curves, moved(sample.counts, note)


def _check(least_clicks: float, tolerance: float) -> None:
    if not 0 < least_clicks < float("inf"):
        raise SettingError("least_clicks", least_clicks, "be above 0")
    if not 0 < tolerance < 1:
        raise SettingError("tolerance", tolerance, "be between 0 and 1")


def _linked(sample: Sample, least_clicks: float) -> str:
    refuse_few(sample.counts)
    return require_linked(link(sample.counts), least_clicks)
