"""Clicks in a first slot that was filled at random: they measure c_1, what all of relevance is estimated as."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.errors import UnsupportedError
from clickprism.relevance.pairs import distinct_pairs
from clickprism.types import Bool, Int64, Text, check

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

_COLUMNS: Final = ("query_id", "document_id", "position", "time", "clicked", "randomised", "filter")


@final
@dataclass(frozen=True, eq=False)
class FirstSlot:
    """How often each pair stood in a randomised first slot, and was clicked there; each pair stands once.

    Every loss on these clicks is linear in them, so counts say all that single impressions do.

    Attributes:
        query_ids: one a pair.
        document_ids: one a pair.
        clicks: impressions that were clicked, [pairs].
        impressions: in the randomised first slot, [pairs].
        since: no impression is earlier than this (UTC); None where it is not known. What is learned from these clicks
            must not have seen them: see `ClickVectors.before`.
    """

    query_ids: Text
    document_ids: Text
    clicks: Int64
    impressions: Int64
    since: datetime | None = None

    def __post_init__(self) -> None:
        pairs = len(self.impressions)
        for name in ("query_ids", "document_ids", "clicks"):
            check(len(getattr(self, name)) == pairs, f"{pairs} impressions but {len(getattr(self, name))} {name}")
        for name in ("clicks", "impressions"):
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")
        sound = (self.clicks >= 0) & (self.clicks <= self.impressions) & (self.impressions >= 1)
        check(bool(sound.all()), "a pair that is here was shown, and clicked at most as often")
        first, _ = distinct_pairs(self.query_ids, self.document_ids)
        check(len(first) == pairs, "a pair must stand once: FirstSlot.of adds up what belongs together")

    @classmethod
    def of(
        cls,
        query_ids: Text,
        document_ids: Text,
        clicks: Int64 | Bool,
        *,
        impressions: Int64 | None = None,
        since: datetime | None = None,
    ) -> FirstSlot:
        """Add up the rows of each pair: single impressions, or counts. The pairs come in the order of their ids.

        >>> slot = FirstSlot.of(np.array(["q", "q", "q"]), np.array(["b", "a", "b"]), np.array([True, False, False]))
        >>> slot.document_ids.tolist(), slot.clicks.tolist(), slot.impressions.tolist()
        (['a', 'b'], [0, 1], [1, 2])
        """
        first, pair = distinct_pairs(query_ids, document_ids)
        shown = np.ones(len(pair), np.int64) if impressions is None else impressions
        sums = []
        for values in (np.asarray(clicks).astype(np.int64), shown.astype(np.int64)):
            check(len(values) == len(pair), f"{len(pair)} pairs but {len(values)} counts")
            sums.append(np.zeros(len(first), np.int64))
            np.add.at(sums[-1], pair, values)
        kept = sums[1] > 0
        return cls(query_ids[first][kept], document_ids[first][kept], sums[0][kept], sums[1][kept], since)

    def __len__(self) -> int:
        return len(self.impressions)

    def __repr__(self) -> str:
        return f"FirstSlot({len(self)} pairs, {self.impressions.sum()} impressions, {self.clicks.sum()} clicks)"

    @property
    def rate(self) -> float:
        """The share of impressions that were clicked; nan where there are none."""
        return float(self.clicks.sum() / self.impressions.sum()) if len(self) else float("nan")

    def take(self, pairs: Int64 | Bool) -> FirstSlot:
        """These pairs only, in this order."""
        return FirstSlot(
            self.query_ids[pairs], self.document_ids[pairs], self.clicks[pairs], self.impressions[pairs], self.since
        )


def read_first_slot(
    store: LogStore, *, since: datetime | None = None, until: datetime | None = None, randomised: bool = True
) -> FirstSlot:
    """The first-slot clicks of an ingested log: session rows at position 1 that were filled at random and that count.

    Args:
        store: the log; `update_sessions` brings its sessions up to date.
        since: from this time on (UTC, without a zone): the `as_of` of the click vectors that are to predict them.
        until: before this time.
        randomised: rows that say so only. False takes every row at position 1: what the engine itself put there.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from clickprism.log.schema import SESSIONS, conform

    schema = pa.schema([SESSIONS.field(name) for name in _COLUMNS])
    days = [day for day in store.table("sessions").days() if since is None or day >= since.date()]
    parts: list[Any] = []
    for file in store.table("sessions").files([day for day in days if until is None or day <= until.date()]):
        rows = conform(pq.ParquetFile(file).read(columns=schema.names), schema, what="sessions")
        kept = pc.and_(pc.is_null(rows["filter"]), pc.equal(rows["position"], 1))
        if randomised:
            kept = pc.and_(kept, rows["randomised"])
        if since is not None:
            kept = pc.and_(kept, pc.greater_equal(rows["time"], pa.scalar(since, schema.field("time").type)))
        if until is not None:
            kept = pc.and_(kept, pc.less(rows["time"], pa.scalar(until, schema.field("time").type)))
        rows = rows.filter(kept).group_by(["query_id", "document_id"])
        parts.append(rows.aggregate([("clicked", "sum"), ("clicked", "count")]))
    table = pa.concat_tables(parts) if parts else None
    if table is None or not table.num_rows:
        remedy = "Randomise the first slot of a share of searches, and mark those rows as randomised"
        raise UnsupportedError("has no impression in a randomised first slot", file=store.folder, remedy=remedy)
    ids = [np.array(table[name].to_pylist(), dtype=np.str_) for name in ("query_id", "document_id")]
    counts = [table[name].to_numpy().astype(np.int64) for name in ("clicked_sum", "clicked_count")]
    return FirstSlot.of(ids[0], ids[1], counts[0], impressions=counts[1], since=since)
