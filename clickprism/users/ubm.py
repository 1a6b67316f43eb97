"""The user browsing model: whether a document is seen depends on its position and on how far up the last click was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int32, Int64
from clickprism.users.base import Response, Shown, check_clicks, check_probability, independent_log_likelihood

PUBLISHED: Final = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)


@final
@dataclass(frozen=True)
class BrowsingUser:
    """P(click at k) = o(k, d) a, with d the distance to the last click above (Dupret and Piwowarski 2008).

    Below the last row of the table its last row holds: for the longest distance in it where the last click is further
    up, and for no click where there is none.

    Attributes:
        table: row k is for position k and has k values: those for distances 1 to k - 1, then that for no click above.

    >>> BrowsingUser().observation(np.array([1, 3, 3, 12, 12]), np.array([0, 2, 0, 1, 0])).tolist()
    [1.0, 1.0, 0.95, 0.12, 0.43]
    """

    name: ClassVar[str] = "ubm"

    table: tuple[tuple[float, ...], ...] = PUBLISHED

    def __post_init__(self) -> None:
        if len(self.table) < 2:
            raise SettingError("table", self.table, "have at least two rows")
        for position, row in enumerate(self.table, start=1):
            if len(row) != position:
                raise SettingError("table", row, f"have {position} values in row {position}")
            check_probability("table", *row)

    def observation(self, positions: Int64 | Int32, last_clicks: Int64) -> Float64:
        """The probability that each position is seen, given the position of the last click above, 0 for none."""
        size = len(self.table)
        square = np.array([row + (0.0,) * (size - len(row)) for row in self.table], dtype=np.float64)
        rows = np.minimum(positions, size) - 1
        columns = np.where(last_clicks == 0, rows, np.minimum(positions - last_clicks, rows) - 1)
        result: Float64 = square[rows, columns]
        return result

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_last_click, see

        positions = np.arange(1, len(self.table) + 1)
        last_clicks = np.arange(len(self.table) + 1)[:, None]
        by_last = self.observation(positions, np.minimum(last_clicks, positions - 1))
        return see(by_last_click, shown, seed, (by_last.astype(np.float32), np.array(self.table[-1], dtype=np.float32)))

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]: given the last click above, each entry is on its own."""
        check_clicks(shown, clicks)
        entries = np.arange(len(shown.rows), dtype=np.int64)
        latest = np.maximum.accumulate(np.where(clicks, entries, -1))
        above = np.concatenate([[-1], latest[:-1]]) if len(entries) else latest
        last_clicks = np.maximum(above - shown.offsets[shown.session_of] + 1, 0)
        probability = self.observation(shown.positions, last_clicks) * shown.attraction
        return independent_log_likelihood(shown, clicks, probability)
