"""The two ways in which users look: anywhere, as the last click tells, or from the top down until they stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from clickprism.types import Bool, Clicks, Float64


@final
@dataclass(frozen=True, eq=False)
class Browsing:
    """P(seen at k | clicks above) = o(k, d), with d the distance to the last click above, 0 for none.

    Attributes:
        table: row k - 1 for position k, column d, [positions, distances]; below its last row, that row holds, and
            beyond its last column, that column. One column is the position-based model.
    """

    table: Float64

    @property
    def needs_patterns(self) -> bool:
        """Whether it matters what was clicked together."""
        return bool(self.table.shape[1] > 1)

    def expected(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen) of each entry: summed over where the last click above may have been, [entries]."""
        if not self.needs_patterns:
            return np.asarray(self.table[np.minimum(clicks.positions, len(self.table)) - 1, 0], dtype=np.float64)
        from clickprism.observation.click_models.kernels import expect_browsing

        seen = np.empty(len(clicks.rows))
        expect_browsing((clicks.offsets, clicks.positions, attraction), self.table, seen)
        return seen

    def given(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen | clicks above) of each entry, [entries]."""
        return self._run(clicks, attraction, np.zeros(0))[0]

    def draw(self, clicks: Clicks, attraction: Float64, chances: Float64) -> Bool:
        """New clicks, [entries]."""
        return self._run(clicks, attraction, chances)[1]

    def _run(self, clicks: Clicks, attraction: Float64, chances: Float64) -> tuple[Float64, Bool]:
        from clickprism.observation.click_models.kernels import browse

        seen, clicked = np.empty(len(clicks.rows)), clicks.clicks > 0
        browse((clicks.offsets, clicks.positions, attraction), self.table, chances, (seen, clicked))
        return seen, clicked


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """Users read from the top down, the first entry surely, and stop for good at some place.

    Attributes:
        after_skip: the probability to go on after no click.
        after_click: to go on after a click, by document, [documents].
        at_position: a factor to that, by position, whose last value holds below, [positions].
    """

    after_skip: float
    after_click: Float64
    at_position: Float64 = field(default_factory=lambda: np.ones(1))

    @property
    def needs_patterns(self) -> bool:
        """It always matters what was clicked together."""
        return True

    def expected(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen) of each entry, [entries]."""
        from clickprism.observation.click_models.kernels import expect_reading

        seen = np.empty(len(clicks.rows))
        expect_reading((clicks.offsets, attraction, self._further(clicks)), self.after_skip, seen)
        return seen

    def given(self, clicks: Clicks, attraction: Float64) -> Float64:
        """P(seen | clicks above) of each entry, [entries]."""
        return self._run(clicks, attraction, np.zeros(0))[0]

    def draw(self, clicks: Clicks, attraction: Float64, chances: Float64) -> Bool:
        """New clicks, [entries]."""
        return self._run(clicks, attraction, chances)[1]

    def _further(self, clicks: Clicks) -> Float64:
        places = np.minimum(clicks.positions, len(self.at_position)) - 1
        return np.asarray(self.after_click[clicks.rows] * self.at_position[places], dtype=np.float64)

    def _run(self, clicks: Clicks, attraction: Float64, chances: Float64) -> tuple[Float64, Bool]:
        from clickprism.observation.click_models.kernels import read

        seen, clicked = np.empty(len(clicks.rows)), clicks.clicks > 0
        read((clicks.offsets, attraction, self._further(clicks)), self.after_skip, chances, (seen, clicked))
        return seen, clicked
