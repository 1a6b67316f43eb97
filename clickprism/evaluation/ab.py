"""A/B tests: the clicks on searches that each show the list of one ranker, compared between rankers.

The bucket of a search is the field `ranker` of its impressions. Users, not searches, are independent: for a measure
that is y_u in total over the n_u searches of user u,

    mean = sum_u y_u / sum_u n_u,    variance = m / (m - 1) sum_u (y_u - mean n_u)^2 / (sum_u n_u)^2

with m users (the delta method for a ratio). Interleaving (`clickprism.evaluation.interleaving`) needs far fewer
searches, but shows no measure by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np
from scipy.special import ndtri

from clickprism._util.tables import Table
from clickprism.errors import UnsupportedError
from clickprism.settings import check_fields
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

MEASURES: Final = {
    "clicked_share": "share of searches with a click",
    "clicks_per_search": "clicks per search",
    "reciprocal_position": "1 / position of the first click",
}
BY_USER: Final = """
with searches as (
    select day, search_id, min(ranker) as bucket, min(user_id) as user_id, max(cast(clicked as int)) as clicked,
        sum(cast(clicked as int)) as clicks, coalesce(max(1.0 / position) filter (where clicked), 0) as reciprocal
    from read_parquet($files, hive_partitioning = true, hive_types_autocast = false)
    where filter is null and ranker is not null group by day, search_id having count(distinct ranker) = 1
)
select bucket, count(*) as searches, sum(clicked) as clicked, sum(clicks) as clicks, sum(reciprocal) as reciprocal
from searches group by bucket, coalesce('u' || user_id, 's' || day || search_id)
order by all
"""


@final
@dataclass(frozen=True, kw_only=True)
class BucketSettings:
    """How buckets are compared.

    Attributes:
        control: Ranker that the others are compared with. By default the one with the most searches.
        days: First and last day, such as 2026-03-01..2026-03-14 (UTC). By default all days.
        confidence: Confidence level of the intervals, for each bucket and measure separately (not simultaneous).
        memory: Maximum memory of the engine that updates the sessions, such as 500MB or 2GB.
    """

    control: str | None = None
    days: str | None = None
    confidence: float = 0.95
    memory: str = "2GB"

    def __post_init__(self) -> None:
        check_fields(self, confidence=(0.01, 0.9999))


@final
@dataclass(frozen=True)
class Bucket:
    """The searches of one ranker."""

    ranker: str  # Name of the ranker
    searches: int  # Number of searches
    users: int  # Number of users; a search without a user counts as one
    values: dict[str, float]  # Value of each measure
    # Difference from the control, with the ends of its interval, by measure; empty for the control
    differences: dict[str, tuple[float, float, float]]


@final
@dataclass(frozen=True)
class Buckets:
    """All buckets of a log, the control first. The intervals are valid for one look, at a time fixed in advance."""

    confidence: float
    buckets: tuple[Bucket, ...]

    def tables(self) -> list[Table]:
        """Return one table for each measure."""
        header = ["bucket", "searches", "users", "value", "difference", f"{self.confidence:.0%} interval"]
        tables = []
        for measure, caption in MEASURES.items():
            rows = []
            for it in self.buckets:
                row = [it.ranker, f"{it.searches:,}", f"{it.users:,}", f"{it.values[measure]:.4f}", "control", ""]
                if measure in it.differences:
                    difference, low, high = it.differences[measure]
                    row[4:] = [f"{difference:+.4f}", f"{low:+.4f} to {high:+.4f}"]
                rows.append(row)
            tables.append(Table(caption, header, rows))
        return tables


def compare_buckets(store: LogStore, settings: BucketSettings) -> Buckets:
    """Compare the rankers of a log by the searches that show one of them alone; its sessions are updated first."""
    import duckdb

    from clickprism.log.features.schedule import days_of
    from clickprism.log.sessions import update_sessions

    days = days_of(settings.days)
    with store.write(memory=settings.memory, exclusive=False) as writer:
        update_sessions(store, writer.engine, days)
    rows: list[tuple[object, ...]] = []
    if files := store.table("sessions").files(days):
        with duckdb.connect() as connection:
            rows = connection.sql(BY_USER, params={"files": files}).fetchall()
    names = np.array([row[0] for row in rows], dtype=np.str_)
    totals = {
        str(name): np.array([row[1:] for row, own in zip(rows, names == name, strict=True) if own], dtype=np.float64)
        for name in np.unique(names)
    }
    if len(totals) < 2 or (settings.control is not None and settings.control not in totals):
        known = f"Its buckets are: {', '.join(totals)}" if totals else "Each impression must name its ranker"
        remedy = f"{known}. Name them in the field `ranker`, one for all documents of a search"
        what = "has no two buckets to compare" if len(totals) < 2 else f"has no bucket {settings.control!r}"
        raise UnsupportedError(what, file=store.folder, remedy=remedy)
    control = settings.control or max(totals, key=lambda name: float(totals[name][:, 0].sum()))
    order = [control, *(name for name in totals if name != control)]
    return Buckets(settings.confidence, tuple(_bucket(name, totals, control, settings.confidence) for name in order))


def _bucket(name: str, totals: dict[str, Float64], control: str, confidence: float) -> Bucket:
    own, other = totals[name], totals[control]
    values, differences = {}, {}
    for column, measure in enumerate(MEASURES, start=1):
        value, variance = ratio(own[:, column], own[:, 0])
        usual, its = ratio(other[:, column], other[:, 0])
        values[measure] = value
        if name != control:
            reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance + its)
            differences[measure] = value - usual, value - usual - reach, value - usual + reach
    return Bucket(name, int(own[:, 0].sum()), len(own), values, differences)


def ratio(totals: Float64, searches: Float64) -> tuple[float, float]:
    """Return the mean over searches and its variance, users being independent, [users] each.

    >>> ratio(np.array([1.0, 0.0, 3.0]), np.array([2.0, 2.0, 4.0]))  # residuals 0, -1, 1
    (0.5, 0.046875)
    """
    count, users = float(searches.sum()), len(totals)
    mean = float(totals.sum()) / count
    spread = float(((totals - mean * searches) ** 2).sum())
    return mean, spread / count**2 * users / (users - 1) if users > 1 else math.inf
