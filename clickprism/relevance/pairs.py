"""Pairs of a query and a document: their ids, their counts, and clicks on randomised first results."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.errors import UnsupportedError
from clickprism.types import Bool, Float64, Int64, Text, check

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicks", "impressions")


def distinct_pairs(query_ids: Text, document_ids: Text) -> tuple[Int64, Int64]:
    """Return the first row of each distinct pair, ordered by ids, and the distinct pair of each row.

    >>> first, pair = distinct_pairs(np.array(["b", "a", "b"]), np.array(["x", "x", "x"]))
    >>> first.tolist(), pair.tolist()
    ([1, 0], [1, 0, 1])
    """
    check(len(query_ids) == len(document_ids), f"{len(query_ids)} query ids but {len(document_ids)} document ids")
    if len(query_ids) == 0:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    query, document = (np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (query_ids, document_ids))
    _, first, pair = np.unique(query * (document.max() + 1) + document, return_index=True, return_inverse=True)
    return first.astype(np.int64), pair.astype(np.int64)


def find_pairs(known: tuple[Text, Text], wanted: tuple[Text, Text]) -> Int64:
    """Return the row of each wanted pair among the known ones, which are distinct; -1 if it is missing, [wanted].

    >>> known = np.array(["q", "q"]), np.array(["a", "b"])
    >>> find_pairs(known, (np.array(["q", "r", "q"]), np.array(["b", "a", "a"]))).tolist()
    [1, -1, 0]
    """
    both = [np.concatenate([old, new]) for old, new in zip(known, wanted, strict=True)]
    first, pair = distinct_pairs(both[0], both[1])
    rows = first[pair[len(known[0]) :]]
    return np.where(rows < len(known[0]), rows, -1)


@final
@dataclass(frozen=True, eq=False)
class PairCounts:
    """Sums over the impressions of each (query, document) at each position, all [pairs, positions].

    An impression has a click c (0 or 1). If the log has an examination model, an impression also has e, the estimated
    probability that it was observed.

    Attributes:
        impressions: Number of impressions.
        clicked: Sum of c.
        examination: Sum of e, or None.
        examination_clicked: Sum of e c, or None.
        examination_squared: Sum of e^2, or None.

    >>> day = PairCounts(np.array([[3, 0], [1, 2]]), np.array([[2, 0], [0, 1]]))
    >>> day.shown.tolist(), day.total().clicked.tolist()
    ([3, 3], [[2, 1]])
    """

    impressions: Int64
    clicked: Int64
    examination: Float64 | None = None
    examination_clicked: Float64 | None = None
    examination_squared: Float64 | None = None

    def __post_init__(self) -> None:
        shape = self.impressions.shape
        check(len(shape) == 2, f"impressions must be [pairs, positions], got {len(shape)} dimensions")
        limits: dict[str, Any] = {"impressions": None, "clicked": self.impressions, "examination": self.impressions}
        limits |= {"examination_clicked": self.clicked, "examination_squared": self.examination}
        for (name, most), sums in zip(limits.items(), self._sums, strict=True):
            if sums is None:
                continue
            whole = name in ("impressions", "clicked")
            check(sums.shape == shape, f"{name} must be {list(shape)} as impressions are, got {list(sums.shape)}")
            if whole:
                check(bool(np.issubdtype(sums.dtype, np.integer)), f"{name} must be whole numbers, got {sums.dtype}")
                check(bool((sums >= 0).all()), f"{name} must not be negative")
            else:
                check(sums.dtype == np.float64, f"{name} must be float64, got {sums.dtype}")
                check(self.examination is not None, f"{name} cannot be given without examination")
            if most is not None:
                valid = bool(((sums >= 0) & (sums <= most + (0 if whole else 1e-6 * (1 + self.impressions)))).all())
                broken = "a sum of values between 0 and 1" if not whole else "at most impressions"
                check(valid, f"{name} must be {broken}")

    def __len__(self) -> int:
        return len(self.impressions)

    def __repr__(self) -> str:
        shown, clicked = int(self.impressions.sum()), int(self.clicked.sum())
        return f"PairCounts({len(self)} pairs, {self.positions} positions, {shown} impressions, {clicked} clicked)"

    @property
    def positions(self) -> int:
        """Return the number of positions."""
        return int(self.impressions.shape[1])

    @property
    def shown(self) -> Int64:
        """Return the impressions of each pair at all positions, [pairs]."""
        return np.asarray(self.impressions.sum(axis=1), dtype=np.int64)

    def select(self, pairs: Int64 | Bool | slice) -> PairCounts:
        """Return the counts of some pairs, in this order."""
        selected: list[Any] = [None if sums is None else sums[pairs] for sums in self._sums]
        return PairCounts(*selected)

    def total(self) -> PairCounts:
        """Return the sums over all pairs, as the counts of one pair, [1, positions]."""
        totals: list[Any] = [None if sums is None else sums.sum(axis=0, keepdims=True) for sums in self._sums]
        return PairCounts(*totals)

    @property
    def _sums(self) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]


@final
@dataclass(frozen=True, eq=False)
class FirstSlot:
    """Clicks on randomised first results: they measure c_1 without position bias. Each pair occurs once.

    Attributes:
        query_ids: Query id of each pair.
        document_ids: Document id of each pair.
        clicks: Number of clicked impressions, [pairs].
        impressions: Number of impressions as randomised first result, [pairs].
        since: Time of the first impression or earlier (UTC); None if unknown. Models that predict these clicks must not
            have seen them: see `ClickVectors.before`.
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
        for name in COUNTS:
            kind = getattr(self, name).dtype
            check(bool(np.issubdtype(kind, np.integer)), f"{name} must be whole numbers, got {kind}")
        valid = (self.clicks >= 0) & (self.clicks <= self.impressions) & (self.impressions >= 1)
        check(bool(valid.all()), "each pair must have at least one impression, and at most one click per impression")
        first, _ = distinct_pairs(self.query_ids, self.document_ids)
        check(len(first) == pairs, "a pair occurs twice: use FirstSlot.of to add up its rows")

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
        """Add up the rows of each pair, which are single impressions or counts. The result is ordered by ids.

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
        """Return the click rate; nan without impressions."""
        return float(self.clicks.sum() / self.impressions.sum()) if len(self) else float("nan")

    def take(self, pairs: Int64 | Bool) -> FirstSlot:
        """Return some pairs, in this order."""
        return FirstSlot(
            self.query_ids[pairs], self.document_ids[pairs], self.clicks[pairs], self.impressions[pairs], self.since
        )


def read_first_slot(
    store: LogStore, *, since: datetime | None = None, until: datetime | None = None, randomised: bool = True
) -> FirstSlot:
    """Read the clicks on randomised first results of an ingested log.

    Args:
        store: The log; `update_sessions` updates its sessions.
        since: Read impressions from this time on (UTC, without a zone).
        until: Read impressions before this time.
        randomised: Read randomised first results only. False reads every first result, as the engine ranked them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from clickprism.log.schema import SESSIONS, conform

    columns = (*PAIR, "position", "time", "clicked", "randomised", "filter")
    schema = pa.schema([SESSIONS.field(name) for name in columns])
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
        parts.append(rows.filter(kept).group_by(PAIR).aggregate([("clicked", "sum"), ("clicked", "count")]))
    table = pa.concat_tables(parts) if parts else None
    if table is None or not table.num_rows:
        remedy = "Randomise the first result of a share of the searches, and mark those rows as randomised"
        if not randomised:
            remedy = "Add events with: clickprism log ingest FILE --into LOG"
        problem = "has no randomised first result" if randomised else "has no search with a first result"
        raise UnsupportedError(problem, file=store.folder, remedy=remedy)
    ids = [np.array(table[name].to_pylist(), dtype=np.str_) for name in PAIR]
    clicks, impressions = (table[name].to_numpy().astype(np.int64) for name in ("clicked_sum", "clicked_count"))
    return FirstSlot.of(ids[0], ids[1], clicks, impressions=impressions, since=since)
