"""Click rates by position: a curve of observation if the order was random, of everything together if it was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickprism.errors import DataError, SettingError
from clickprism.observation.bootstrap import Sample
from clickprism.observation.counts import Counts
from clickprism.observation.curve import Support, sums
from clickprism.observation.pairs import LEAST_CLICKS, refuse_few
from clickprism.observation.support import require_random
from clickprism.types import Float64


@final
@dataclass(frozen=True)
class ClickThrough:
    """Clicks over impressions at each position, relative to the first: observation times relevance, the naive line.

    Unbiased for observation only where relevance does not depend on the position.
    """

    name: ClassVar[str] = "click-through"

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        refuse_few(sample.counts)
        return _rates(sample), _support(sample.counts, "biased by relevance, for comparison")


@final
@dataclass(frozen=True)
class Randomised:
    """Click rates by position over sessions in random order: the reference of all other estimators.

    o_k / o_1 = rate_k / rate_1

    Unbiased when documents are spread over positions independently of their relevance. The log is tested for that.

    Attributes:
        least_p: the log is refused if documents would be as uneven over positions by chance with a probability below
            this; 0 trusts that the order was random.
        least_clicks: that each position must have.
    """

    name: ClassVar[str] = "randomised"

    least_p: float = 1e-3
    least_clicks: float = LEAST_CLICKS

    def __post_init__(self) -> None:
        if not 0 <= self.least_p < 1:
            raise SettingError("least_p", self.least_p, "be in [0, 1)")
        if not 0 < self.least_clicks < float("inf"):
            raise SettingError("least_clicks", self.least_clicks, "be above 0")

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on."""
        refuse_few(sample.counts)
        note = require_random(sample.clicks, self.least_p) if self.least_p > 0 else "random order by your word"
        support = _support(sample.counts, note)
        few = np.flatnonzero(support.clicks < self.least_clicks) + 1
        if len(few):
            raise DataError(
                f"too few clicks at position {', '.join(map(str, few))} (fewer than {self.least_clicks:g})",
                remedy="More sessions" + (f", or cut the log: --depth {few[0] - 1}" if few[0] > 2 else ""),
            )
        return _rates(sample), support


def _rates(sample: Sample) -> Float64:
    size = sample.counts.max_position
    places, rows = sample.counts.positions - 1, sample.counts.rows
    if sample.unit == "query":
        clicks, shown = sample.totals(places, size, rows, sample.counts.clicks, sample.counts.impressions)
    else:
        draws = [
            (sums(places, counts.clicks, size), sums(places, counts.impressions, size)) for counts in sample.weighted()
        ]
        clicks, shown = (np.stack(each) for each in zip(*draws, strict=True))
    rates = np.divide(clicks, shown, out=np.full(shown.shape, np.nan), where=shown > 0)
    curves: Float64 = rates / rates[:, :1]
    return curves


def _support(counts: Counts, note: str) -> Support:
    places = counts.positions - 1
    return Support(
        documents=len(np.unique(counts.rows)),
        impressions=sums(places, counts.impressions, counts.max_position),
        clicks=sums(places, counts.clicks, counts.max_position),
        note=note,
    )
