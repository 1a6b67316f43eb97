"""Documents that stand more than once in a list: they are one row of `sessions`, and are counted here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from clickprism.log.engine import by_rows
from clickprism.log.robots import unique
from clickprism.log.schema import EVENTS, SESSIONS
from clickprism.log.sessions import kinds_of

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore


def repeated(store: LogStore, engine: Engine, days: Sequence[date]) -> Counter[date]:
    """By day, how often a search that counts shows a document again: in one ranking, or by several impression rows.

    Args:
        store: the log, with the sessions of these days.
        engine: where the queries run.
        days: to count.
    """
    events, sessions = store.table("events"), store.table("sessions")
    found: Counter[date] = Counter()
    for together in by_rows(events.rows_of(days), most=engine.batch_rows):
        kinds = kinds_of(events.files(together))
        if kinds == ("impression",) and events.rows_of(together) == sessions.rows_of(together):
            continue
        rows = engine.read(sessions.files(together), SESSIONS)
        kept, all_ = rows.filter(rows["filter"].isnull()), unique(engine.read(events.files(together), EVENTS))
        for kind, again in (("impression", _rows), ("ranking", _lists)):
            if kind in kinds:
                extra = again(all_.filter(all_.kind == kind), kept)
                counts = engine.collect(extra.group_by("day").aggregate(extra=extra.extra.sum()))
                found.update(dict(zip(*(counts[name].to_pylist() for name in ("day", "extra")), strict=True)))
    return found


def _rows(impressions: Table, kept: Table) -> Table:
    pair = ["day", "search_id", "document_id"]
    times = impressions.group_by(pair).aggregate(times=impressions.count())
    return times.filter(times.times > 1).semi_join(kept, pair).mutate(extra=times.times - 1)


def _lists(rankings: Table, kept: Table) -> Table:
    extra = rankings.documents.length() - rankings.documents.unique().length()
    lists = rankings.select("day", "search_id", extra=extra)
    return lists.filter(lists.extra > 0).semi_join(kept, ["day", "search_id"])
