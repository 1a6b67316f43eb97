"""Pairs of a query and a document: their ids, their counts in a log, and clicks on randomised first results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism.errors import UnsupportedError
from clickprism.types import Bool, Float64, Int64, Text, check

if TYPE_CHECKING:
    import pyarrow as pa

    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicks", "impressions")
RANDOMISE: Final = "Randomise the first result of a share of the searches, and mark those rows as randomised"
FIRST_RESULTS: Final = """
select query_id, document_id, sum(clicked::int)::bigint as clicks, count(*) as impressions
from read_parquet($files, hive_partitioning = false)
where filter is null and position = 1 and randomised and time >= $since and time < $until
group by query_id, document_id
"""


def distinct_pairs(query_ids: Text, document_ids: Text) -> tuple[Int64, Int64]:
    """Return the first row of each distinct pair, ordered by ids, and the distinct pair of each row.

    >>> first, pair = distinct_pairs(np.array(["b", "a", "b"]), np.array(["x", "x", "x"]))
    >>> first.tolist(), pair.tolist()
    ([1, 0], [1, 0, 1])
    """
    check(len(query_ids) == len(document_ids), f"{len(query_ids)} query ids but {len(document_ids)} document ids")
    query, document = (np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (query_ids, document_ids))
    key = query * (document.max(initial=0) + 1) + document
    _, first, pair = np.unique(key, return_index=True, return_inverse=True)
    return first.astype(np.int64), pair.astype(np.int64)


def find_pairs(known: tuple[Text, Text], wanted: tuple[Text, Text]) -> Int64:
    """Return the row of each wanted pair among the known ones, which are distinct; -1 if it is missing, [wanted].

    >>> known = np.array(["q", "q"]), np.array(["a", "b"])
    >>> find_pairs(known, (np.array(["q", "r", "q"]), np.array(["b", "a", "a"]))).tolist()
    [1, -1, 0]
    """
    first, pair = distinct_pairs(*(np.concatenate([old, new]) for old, new in zip(known, wanted, strict=True)))
    rows = first[pair[len(known[0]) :]]
    return np.where(rows < len(known[0]), rows, -1)


@final
@dataclass(frozen=True, eq=False)
class PairCounts:
    """Sums over the impressions of each (query, document) at each position, all [pairs, positions].

    An impression has a click c (0 or 1). If the log has an examination model, an impression also has e, the estimated
    probability that it was observed.

    >>> day = PairCounts(np.array([[3, 0], [1, 2]]), np.array([[2, 0], [0, 1]]))
    >>> day.shown.tolist(), day.total().clicked.tolist()
    ([3, 3], [[2, 1]])
    """

    impressions: Int64  # Number of impressions
    clicked: Int64  # Sum of c
    examination: Float64 | None = None  # Sum of e, or None
    examination_clicked: Float64 | None = None  # Sum of e c, or None
    examination_squared: Float64 | None = None  # Sum of e^2, or None

    def __post_init__(self) -> None:
        shape = self.impressions.shape
        check(len(shape) == 2, f"impressions must be [pairs, positions], got {len(shape)} dimensions")
        most = self.impressions, self.impressions, self.impressions, self.clicked, self.examination
        for each, sums, limit in zip(fields(self), self.sums, most, strict=True):
            if sums is None or limit is None:
                continue
            check(sums.shape == shape, f"{each.name} must be {list(shape)} as impressions are, got {list(sums.shape)}")
            whole = each.name in ("impressions", "clicked")
            if whole:
                is_integer = bool(np.issubdtype(sums.dtype, np.integer))
                check(is_integer, f"{each.name} must be whole numbers, got {sums.dtype}")
            rounding = 0 if whole else 1e-6 * (1 + self.impressions)
            must = "from 0 to impressions" if whole else "a sum of values between 0 and 1"
            check(bool(((sums >= 0) & (sums <= limit + rounding)).all()), f"{each.name} must be {must}")

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

    @property
    def sums(self) -> list[Any]:
        """Return the sums in the order of the fields."""
        return [getattr(self, each.name) for each in fields(self)]

    def select(self, pairs: Int64 | Bool | slice) -> PairCounts:
        """Return the counts of some pairs, in this order."""
        return self._each(lambda sums: sums[pairs])

    def with_unshown(self, pairs: int) -> PairCounts:
        """Return the counts with further pairs that were never shown."""
        return self._each(lambda sums: np.pad(sums, ((0, pairs), (0, 0))))

    def total(self) -> PairCounts:
        """Return the sums over all pairs, as the counts of one pair, [1, positions]."""
        return self._each(lambda sums: sums.sum(axis=0, keepdims=True))

    def _each(self, change: Callable[[Any], Any]) -> PairCounts:
        changed: list[Any] = [None if sums is None else change(sums) for sums in self.sums]
        return PairCounts(*changed)


def count_pairs(rows: Any, engine: Engine, *, depth: int, users: bool = False) -> tuple[pa.Table, PairCounts]:
    """Add up the impressions and clicks of each pair at positions 1 to `depth`.

    Args:
        rows: Session rows, an expression of the engine.
        engine: Engine that adds up.
        depth: Last position that is counted.
        users: Count the distinct users of each pair too.

    Returns:
        The columns query_id, document_id, users (0 if they were not counted) and below (number of impressions below
        `depth`); the counts of the same pairs.
    """
    import ibis

    at = {position: rows.position == position for position in range(1, depth + 1)}
    shown = {f"shown_{position}": rows.count(where=here).cast("int32") for position, here in at.items()}
    clicked = {f"clicked_{k}": rows.count(where=here & rows.clicked).cast("int32") for k, here in at.items()}
    others = {"users": (rows.user_id.nunique() if users else ibis.literal(0)).cast("int64")}
    others["below"] = rows.count(where=rows.position > depth).cast("int64")
    table = engine.collect(rows.group_by(list(PAIR)).aggregate(**others, **shown, **clicked))
    return table.select([*PAIR, *others]), PairCounts(pivoted(table, shown), pivoted(table, clicked))


def pivoted(table: pa.Table, names: Iterable[str]) -> Any:
    """Return columns of numbers as a matrix, [rows, columns]."""
    return np.stack([table[name].to_numpy() for name in names], axis=1)


@final
@dataclass(frozen=True, eq=False)
class FirstSlot:
    """Clicks on randomised first results: they measure c_1 without position bias. Each pair occurs once."""

    query_ids: Text  # Query id of each pair
    document_ids: Text  # Document id of each pair
    clicks: Int64  # Number of clicked impressions, [pairs]
    impressions: Int64  # Number of impressions as randomised first result, [pairs]
    # Time of the first impression or earlier (UTC); None if unknown. Models that predict these clicks must not have
    # seen them: see `ClickVectors.before`
    since: datetime | None = None

    def __post_init__(self) -> None:
        valid = (self.clicks >= 0) & (self.clicks <= self.impressions) & (self.impressions >= 1)
        check(bool(valid.all()), "each pair must have at least one impression, and at most one click per impression")
        first, _ = distinct_pairs(self.query_ids, self.document_ids)
        check(len(first) == len(self), "a pair occurs twice: use FirstSlot.of to add up its rows")

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
        clicked, shown = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        np.add.at(clicked, pair, np.asarray(clicks, dtype=np.int64))
        np.add.at(shown, pair, 1 if impressions is None else impressions)
        kept = shown > 0
        return cls(query_ids[first][kept], document_ids[first][kept], clicked[kept], shown[kept], since)

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
    store: LogStore,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    days: Iterable[date] | None = None,
) -> FirstSlot:
    """Read the clicks on randomised first results of an ingested log.

    Args:
        store: The log; `update_sessions` updates its sessions.
        since: Read impressions from this time on (UTC, without a zone).
        until: Read impressions before this time.
        days: Read only these days.
    """
    import duckdb

    first, last = since or datetime.min, until or datetime.max
    sessions = store.table("sessions")
    chosen = sessions.days() if days is None else days
    files = sessions.files([day for day in chosen if first.date() <= day <= last.date()])
    given = {"files": files, "since": first, "until": last}
    with duckdb.connect() as connection:
        table = connection.sql(FIRST_RESULTS, params=given).to_arrow_table() if files else None
    if table is None or not table.num_rows:
        raise UnsupportedError("has no randomised first result", file=store.folder, remedy=RANDOMISE)
    clicks, impressions = (table[name].to_numpy().astype(np.int64) for name in COUNTS)
    return FirstSlot.of(*ids_of(table), clicks, impressions=impressions, since=since)


def ids_of(table: pa.Table) -> tuple[Text, Text]:
    """Return the query ids and the document ids of a table."""
    queries, documents = (np.array(table[name].to_pylist(), dtype=np.str_) for name in PAIR)
    return queries, documents
