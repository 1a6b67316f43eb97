"""What stood where, how often, and what of it by chance: all that estimators of click parameters need of a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.data.sessions import SessionLog
from clickprism.errors import DataError, SettingError
from clickprism.observation.counts import Counts, count
from clickprism.observation.curve import sums
from clickprism.types import Clicks, Float64, Int64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

YES: Final = ("1", "true", "yes")
COLUMN: Final = "randomised"


@final
@dataclass(frozen=True, eq=False)
class PlacedCounts:
    """Clicks and impressions of each document, which belongs to one query, at each position.

    Attributes:
        counts: of all searches.
        queries: the query of each document, [documents].
        randomised: of the places that were filled at random; None where the log does not tell.
        theta: the examination at each position, where the log has a model of it, [positions].
        theta_source: what theta is, in words.
        features: of each document, [documents, features]; None without any.
    """

    counts: Counts
    queries: Int64
    randomised: Counts | None = None
    theta: Float64 | None = None
    theta_source: str = "the mean of the examination estimates at each position"
    features: Float64 | None = None

    @classmethod
    def of_clicks(cls, clicks: Clicks, *, randomised: Clicks | None = None) -> PlacedCounts:
        """Those of a log, and of the part of it that was in random order."""
        features = np.asarray(clicks.lists.features, dtype=np.float64) if clicks.lists.features.shape[1] else None
        return cls(
            count(clicks), clicks.lists.list_of, None if randomised is None else count(randomised), features=features
        )

    @classmethod
    def of_sessions(cls, log: SessionLog) -> PlacedCounts:
        """Those of a session file; where its column `randomised` is 1, true or yes, the whole list is random.

        >>> from clickprism.types import Lists
        >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
        >>> clicks = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32),
        ...     np.array([1, 0, 1, 0]), np.array([1, 1]))
        >>> placed = PlacedCounts.of_sessions(SessionLog(clicks, {"randomised": np.array(["0", "1"])}))
        >>> placed.counts.impressions.tolist(), placed.randomised.rows.tolist()
        ([1.0, 1.0, 1.0, 1.0], [0, 1])
        """
        column = log.columns.get(COLUMN)
        if column is None:
            return cls.of_clicks(log.clicks)
        by_chance = np.isin(np.char.lower(column), YES)
        return cls.of_clicks(log.clicks, randomised=log.clicks.take(by_chance))

    def cut(self, depth: int) -> PlacedCounts:
        """Positions 1 to `depth` only."""
        if depth < 2:
            raise SettingError("depth", depth, "be at least 2")
        return replace(
            self,
            counts=_cut(self.counts, depth),
            randomised=None if self.randomised is None else _cut(self.randomised, depth),
            theta=None if self.theta is None else self.theta[:depth],
        )

    @property
    def first_by_chance(self) -> Counts:
        """The counts with nothing in the first slot but what chance put there."""
        if self.randomised is None or not (self.randomised.positions == 1).any():
            raise DataError(
                "the log does not say which first slots were filled at random"
                if self.randomised is None
                else "no first slot was filled at random",
                remedy="Put a random result first in some searches and mark it (the field randomised), or use harvest",
            )
        chance, below = self.randomised.positions == 1, self.counts.positions > 1
        parts = [
            np.concatenate([getattr(self.randomised, name)[chance], getattr(self.counts, name)[below]])
            for name in ("rows", "positions", "clicks", "impressions")
        ]
        order = np.lexsort((parts[1], parts[0]))
        return Counts(*(part[order] for part in parts))


def place(store: LogStore, days: Iterable[date] | None = None) -> PlacedCounts:
    """Those of a click log, as its sessions are now; day by day, so that memory holds distinct places only."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = ["query_id", "document_id", "position", "randomised"]
    parts = []
    for file in store.table("sessions").files(days):
        rows = pq.ParquetFile(file).read(columns=[*keys, "clicked", "filter"])
        rows = rows.filter(rows["filter"].is_null())
        rows = rows.set_column(rows.column_names.index("clicked"), "clicked", rows["clicked"].cast(pa.int64()))
        parts.append(rows.group_by(keys).aggregate([("clicked", "sum"), ("clicked", "count")]))
    if not sum(part.num_rows for part in parts):
        raise DataError("has no sessions", file=store.folder, remedy="Run: clickprism log sessions LOG")
    table = pa.concat_tables(parts).group_by(keys).aggregate([("clicked_sum", "sum"), ("clicked_count", "sum")])
    query, document = _numbered(table["query_id"]), _numbered(table["document_id"])
    pairs, row = np.unique(query * (int(document.max()) + 1) + document, return_inverse=True)
    position = table["position"].to_numpy().astype(np.int64)
    values = [table[name].to_numpy().astype(np.float64) for name in ("clicked_sum_sum", "clicked_count_sum")]
    by_chance = table["randomised"].to_numpy()
    known = _added(row, position, *values)
    return PlacedCounts(
        known,
        pairs // (int(document.max()) + 1),
        _added(row[by_chance], position[by_chance], *(each[by_chance] for each in values)) if by_chance.any() else None,
        theta=_examined(store, days, known.max_position),
    )


def _examined(store: LogStore, days: Iterable[date] | None, positions: int) -> Float64 | None:
    """The mean examination at each position, by the partials of the log; None where there is a position without."""
    import pyarrow.parquet as pq

    from clickprism.log.schema import EXAMINATION_UNIT

    seen, shown = np.zeros(positions), np.zeros(positions)
    for file in store.table("partials").files(days):
        rows = pq.ParquetFile(file).read(columns=["position", "impressions", "examination"])
        rows = rows.filter(rows["examination"].is_valid())
        places = rows["position"].to_numpy().astype(np.int64) - 1
        inside = places < positions
        one, other = (rows[name].to_numpy()[inside].astype(np.float64) for name in ("examination", "impressions"))
        seen += sums(places[inside], one, positions)
        shown += sums(places[inside], other, positions)
    if not ((shown > 0) & (seen > 0)).all():
        return None
    return np.minimum(seen / shown / EXAMINATION_UNIT, 1.0)


def _added(rows: Int64, positions: Int64, clicks: Float64, impressions: Float64) -> Counts:
    depth = int(positions.max(initial=0)) + 1
    keys, cell = np.unique(rows * depth + positions, return_inverse=True)
    return Counts(keys // depth, keys % depth, sums(cell, clicks, len(keys)), sums(cell, impressions, len(keys)))


def _numbered(column: Any) -> Int64:
    numbers: Int64 = column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _cut(counts: Counts, depth: int) -> Counts:
    kept = counts.positions <= depth
    return Counts(counts.rows[kept], counts.positions[kept], counts.clicks[kept], counts.impressions[kept])
