"""Windows: what happened to each (query, document) in the last day, week and month, as of a time.

The snapshot as of T is a pure function of the log and T. A window holds what was *shown* in it, and all that the log
knows to have followed: a click belongs to its impression, also if it came after the end of the window. Week and month
are stored (tables `week` and `month`) and rebuilt only when their end moves on or a day in them has changed, so an
hourly update reads the session rows of two days.

A pair with fewer than k distinct users in a window is excluded from that window (k-anonymity), as if it had not been
shown in it, and counted. Users are counted exactly, as the size of the union of the days' sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import ibis

from clickprism._util.tables import Table as TextTable
from clickprism.errors import SettingError, UnsupportedError
from clickprism.log.features.partials import (
    PAIR,
    Examiner,
    counting,
    examined_cells,
    fingerprint,
    fresh,
    partial_fingerprint,
    partial_rows,
    update_partials,
)
from clickprism.log.features.schedule import Clock, Window, midnight_after, now, parse_time, schedule
from clickprism.log.features.snapshots import Snapshot, commit_snapshot, find_snapshots
from clickprism.log.schema import (
    DICTIONARY,
    EXAMINATION_UNIT,
    PARTIALS,
    PLACES,
    POSITIONS,
    SESSIONS,
    click_fields,
    no_clicks,
    window_fields,
)
from clickprism.log.sessions import update_sessions
from clickprism.log.settings import WindowSettings
from clickprism.log.table import by_day
from clickprism.settings import plain

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

HOUR_US: Final = 3_600_000_000
DERIVED: Final = ("sessions", "partials", "week", "month")
"""Tables whose replaced files are deleted after `keep_hours`."""


@dataclass(frozen=True)
class Windows:
    """The result of `windows`.

    Attributes:
        snapshot: the snapshot as of the time.
        changed: whether it was computed now; False if it was up to date.
        sessions: days whose sessions were rebuilt.
        partials: days whose partials were rebuilt.
        dictionaries: which of week and month were rebuilt.
    """

    snapshot: Snapshot
    changed: bool
    sessions: tuple[date, ...]
    partials: tuple[date, ...]
    dictionaries: tuple[str, ...]

    def report(self) -> FeatureReport:
        """Return what the features contain, in numbers."""
        snapshot = self.snapshot
        return FeatureReport(
            as_of=snapshot.as_of,
            version=snapshot.version,
            changed=self.changed,
            rows=snapshot.rows(),
            fields=len(snapshot.fields),
            min_users=snapshot.settings["k"],
            windows={span.name: (span.start, span.end) for span in schedule(snapshot.as_of)},
            pairs=snapshot.pairs,
            suppressed=snapshot.suppressed,
            examination=snapshot.examination,
            sessions_rebuilt=self.sessions,
            partials_rebuilt=self.partials,
            windows_rebuilt=self.dictionaries,
        )


@dataclass(frozen=True, kw_only=True)
class FeatureReport:
    """Size and content of the click features as of a time.

    Attributes:
        as_of: Time at which the windows end (UTC).
        version: Version of the table `snapshots`.
        changed: Whether the features were computed now; False if they were up to date.
        rows: Number of query-document pairs.
        fields: Number of features of a pair.
        min_users: Minimum number of users of a pair in a window.
        windows: First time and end of each window.
        pairs: Number of pairs with enough users in each window.
        suppressed: Number of pairs with too few users in each window.
        examination: Fingerprint of the examination model; None without one.
        sessions_rebuilt: Days whose sessions were rebuilt.
        partials_rebuilt: Days whose daily sums were rebuilt.
        windows_rebuilt: Which of week and month were rebuilt.
    """

    as_of: datetime
    version: int
    changed: bool
    rows: int
    fields: int
    min_users: int
    windows: Mapping[str, tuple[datetime, datetime]]
    pairs: Mapping[str, int]
    suppressed: Mapping[str, int]
    examination: str | None
    sessions_rebuilt: tuple[date, ...]
    partials_rebuilt: tuple[date, ...]
    windows_rebuilt: tuple[str, ...]

    def tables(self) -> list[TextTable]:
        """Return one row for each window."""
        caption = f"As of {_stamp(self.as_of)} UTC: {self.rows:,} pairs, {self.fields} features, "
        caption += f"version {self.version}" + ("" if self.changed else " (unchanged)")
        few = f"pairs with fewer than {self.min_users} users" if self.min_users else "pairs excluded"
        header = ["window", "from", "to", "pairs", few]
        rows = [
            [name, _stamp(start), _stamp(end), f"{self.pairs[name]:,}", f"{self.suppressed[name]:,}"]
            for name, (start, end) in self.windows.items()
        ]
        return [TextTable(caption, header, rows)]

    def advice(self, end: datetime | None) -> str:
        """Return what to do if the features are empty, else an empty text; `end` is the end of the log."""
        if self.rows:
            return ""
        if any(self.suppressed.values()):
            problem = f"Every pair has fewer than {self.min_users} users in every window, so none is kept. "
            return f"{problem}If the log has few users or no user ids, add --min-users 0"
        if end is not None and end < self.as_of:
            return f"No document was shown in these windows: the log ends {_stamp(end)}. Omit --as-of to use its end"
        return ""


def windows(
    store: LogStore,
    engine: Engine,
    as_of: datetime,
    *,
    examiner: Examiner | None = None,
    settings: WindowSettings | None = None,
    refresh: bool = True,
    clock: Clock = now,
) -> Windows:
    """Return the snapshot of the log as of a time (UTC, not after now); what it needs is brought up to date first.

    It is then the one that readers find as of that time. If it is up to date, nothing is written.

    Args:
        store: the log.
        engine: where the queries run.
        as_of: UTC, without a zone.
        examiner: the examination model; without one, x has no fields of examination.
        settings: by default those of the log.
        refresh: bring the sessions up to date with the events first.
        clock: the time now, UTC without a zone.
    """
    if as_of > (time := clock()):
        raise SettingError("as_of", str(as_of), f"not be after now ({time:%Y-%m-%d %H:%M} UTC)")
    settings = store.settings.windows if settings is None else settings
    spans = schedule(as_of)
    with store.lock(), ExitStack() as stack:
        sessions = store.table("sessions")
        known = {*store.table("events").days(), *sessions.days(), *store.table("partials").days()}
        whole = {day for span in spans[1:] for day in span.days} & known
        needed = whole | ({*spans[0].days} & known)
        rebuilt = update_sessions(store, engine, sorted(needed)) if refresh else []
        partials = update_partials(store, engine, days=whole, examiner=examiner)
        work = _Work(store, engine, settings, examiner, by_day(sessions.files()))
        stem = work.fingerprint_of(as_of, spans)
        found = next((each for each in find_snapshots(store) if each.as_of == as_of and each.kept), None)
        if found is not None and found.fingerprint == stem:
            return Windows(found, False, tuple(rebuilt), tuple(partials), ())
        present = {span.name: work.kept(span) for span in spans[1:]}
        stale = [span for span in spans if present.get(span.name) is None]
        pairs = stack.enter_context(engine.held(pair_users(work._sessions(stale), stale)))
        counts = work.counts(pairs, stale)
        kept = {span.name: present[span.name] or work.make(span, pairs, counts[span.name]) for span in spans[1:]}
        tables = (work.day(spans[0], pairs), *(engine.read(each.files, DICTIONARY) for each in kept.values()))
        rows = merged(tables, spans, as_of=as_of, examination=examiner is not None)
        both = counts | {name: each.counts for name, each in kept.items()}
        written = engine.write(rows, store.table("snapshots").folder, stem=stem)
        computed = Snapshot(
            version=-1,
            as_of=as_of,
            fields=click_fields(examination=examiner is not None),
            fingerprint=stem,
            pairs={name: enough for name, (enough, _) in both.items()},
            suppressed={name: few for name, (_, few) in both.items()},
            settings=plain(settings),
            examination=None if examiner is None else examiner.fingerprint,
            files=tuple(map(str, written)),
        )
        snapshot = commit_snapshot(store, computed, keep_hours=settings.keep_hours)
        for name in DERIVED:
            store.table(name).vacuum(hours=settings.keep_hours)
    made = tuple(name for name, each in kept.items() if each.made)
    return Windows(snapshot, True, tuple(rebuilt), tuple(partials), made)


def end_of_log(store: LogStore) -> datetime | None:
    """Return the midnight after the last day with events, or None."""
    days = store.table("events").days() or store.table("sessions").days()
    return midnight_after(days[-1]) if days else None


def features_time(store: LogStore, as_of: str | None) -> datetime:
    """Return the time at which the windows end: the one that is given, or the end of the log, at most now."""
    if as_of is not None:
        return now() if as_of == "now" else parse_time(as_of)
    end = end_of_log(store)
    if end is None:
        raise UnsupportedError(
            "has no events",
            file=store.folder,
            remedy=f"Add some with: clickprism log ingest FILE --into {store.folder.name}",
        )
    return min(end, now())


def pair_users(sessions: Any, spans: Sequence[Window]) -> Any:
    """Return the distinct users of each pair in each window, a column for each; null where a pair was not shown.

    A row without a user adds none. One pass over the rows finds the users of all windows.
    """
    rows = counting(sessions)
    inside = {span.name: (rows.time >= _time(span.start)) & (rows.time < _time(span.end)) for span in spans}
    seen = rows.group_by([*PAIR, "user_id"]).aggregate(**{name: here.any() for name, here in inside.items()})
    users = {name: seen.user_id.count(where=seen[name]) for name in inside}
    shown = {f"in_{name}": seen[name].any() for name in inside}
    found = seen.group_by(PAIR).aggregate(**users, **shown)
    return found.select(
        *PAIR, **{name: ibis.ifelse(found[f"in_{name}"], found[name], ibis.null("int64")) for name in inside}
    )


def window_rows(partials: Any, pairs: Any, *, window: Window, examination: bool) -> Any:
    """Return the fields of one window (query_id, document_id, users, x) for pairs with their users.

    Integers are summed as doubles, which is exact below 2^53 and so does not depend on the order.
    """
    rows = partials.inner_join(pairs, list(PAIR))
    names = window_fields(examination=examination)
    sums: dict[str, Any] = {"users": rows.users.max(), "last_click": rows.last_click.max()}
    for name in names:
        if "@" in name:
            column, _, place = name.partition("@")
            here = rows.position > POSITIONS if place == PLACES[-1] else rows.position == int(place)
            sums[name] = ibis.ifelse(here, rows[column].cast("float64"), 0.0).sum()
        elif name in ("dwell", "display"):
            sums[name] = rows[f"{name}_ms"].cast("float64").sum()
        elif name not in ("users", "last_click_age"):
            sums[name] = rows[name].cast("float64").sum()
    wide = rows.group_by(PAIR).aggregate(**sums)
    x = ibis.array([_value(wide, name, window) for name in names])
    return wide.select(*PAIR, users=wide.users, x=x)


def _value(wide: Any, name: str, window: Window) -> Any:
    """Return a field as a double, by one exact or one correctly rounded operation, so that engines agree."""
    if name == "last_click_age":
        end = ibis.literal(window.end, type="timestamp(6)")
        age = end.delta(wide.last_click, unit="microsecond").cast("int64")
        hours = ibis.ifelse(age > 0, age, 0).cast("float64") / float(HOUR_US)
        return ibis.ifelse(wide.last_click.isnull(), float(window.hours), hours)
    value = wide[name]
    if name.startswith("examination"):
        return value / float(EXAMINATION_UNIT)
    return value / 1000.0 if name in ("dwell", "display") else value


def merged(tables: Sequence[Any], spans: Sequence[Window], *, as_of: datetime, examination: bool) -> Any:
    """Return the rows of a snapshot: x of day, week and month, for each pair that is in any of them.

    The longest window is joined first: it has most pairs, and threads share the left side of an outer join alone.
    """
    first, *others = [
        table.select(*PAIR, **{f"x_{span.name}": table.x, f"users_{span.name}": table.users})
        for table, span in zip(reversed(tables), reversed(spans), strict=True)
    ]
    joined = first
    for table in others:
        both = joined.outer_join(table, list(PAIR), rname="{name}_right")
        keys = {name: ibis.coalesce(both[name], both[f"{name}_right"]) for name in PAIR}
        joined = both.mutate(**keys).drop(*[f"{name}_right" for name in PAIR])
    parts = [
        ibis.coalesce(
            joined[f"x_{span.name}"],
            ibis.array([ibis.literal(value, "float64") for value in no_clicks(span.hours, examination=examination)]),
        )
        for span in spans
    ]
    users = ibis.greatest(*[joined[f"users_{span.name}"].fill_null(0) for span in spans])
    return joined.select(
        *PAIR, x=parts[0].concat(*parts[1:]), users=users.cast("int64"), as_of=ibis.literal(as_of, type="timestamp(6)")
    )


@dataclass(frozen=True)
class _Kept:
    """A stored window: its files, and how many pairs have enough users and too few."""

    files: list[str]
    counts: tuple[int, int]
    made: bool


@dataclass(frozen=True)
class _Work:
    """One run of `windows`."""

    store: LogStore
    engine: Engine
    settings: WindowSettings
    examiner: Examiner | None
    files: Mapping[date, list[str]]

    def fingerprint_of(self, as_of: datetime, spans: Sequence[Window]) -> str:
        """Return the fingerprint of the inputs of the snapshot; a model adds fields even if it estimates nothing."""
        model = None if self.examiner is None else self.examiner.fingerprint
        return fingerprint(as_of.isoformat(), model, [self._stem(span) for span in spans])

    def _stem(self, window: Window) -> str:
        """Return the fingerprint of the inputs of a window: the sessions of its days, the model, k."""
        known = [day for day in window.days if day in self.files]
        days = {day.isoformat(): partial_fingerprint(self.files[day], self.examiner) for day in known}
        return fingerprint(window.start.isoformat(), window.end.isoformat(), self.settings.k, days)

    def counts(self, pairs: Any, spans: Sequence[Window]) -> dict[str, tuple[int, int]]:
        """Return by window the number of pairs with enough users, and with too few."""
        sums = {
            f"{what}_{span.name}": pairs.count(where=pairs[span.name] >= least).fill_null(0)
            for span in spans
            for what, least in (("every", 0), ("enough", self.settings.k))
        }
        (found,) = self.engine.collect(pairs.aggregate(**sums)).to_pylist()
        return {
            span.name: (found[f"enough_{span.name}"], found[f"every_{span.name}"] - found[f"enough_{span.name}"])
            for span in spans
        }

    def day(self, window: Window, pairs: Any) -> Any:
        """Return the day window, computed from session rows, since it is cut at hours."""
        rows = self._sessions([window])
        rows = rows.filter((rows.time >= _time(window.start)) & (rows.time < _time(window.end)))
        cells = examined_cells(rows, engine=self.engine, examiner=self.examiner)
        return self._rows(partial_rows(rows, cells=cells), pairs, window)

    def kept(self, window: Window) -> _Kept | None:
        """Return the stored week or month, if it is up to date."""
        table, stem = self.store.table(window.name), self._stem(window)
        files = table.files([window.end.date()])
        entry = next((entry for entry in table.history() if entry.get("fingerprint") == stem), None)
        if entry is None or not fresh(files, stem):
            return None
        return _Kept(files, (int(entry["pairs"]), int(entry["suppressed"])), made=False)

    def make(self, window: Window, pairs: Any, counts: tuple[int, int]) -> _Kept:
        """Compute the week or the month."""
        table, stem, end = self.store.table(window.name), self._stem(window), window.end.date()
        rows = self.engine.read(self.store.table("partials").files(window.days), PARTIALS)
        written = self.engine.write(self._rows(rows, pairs, window), table.day_folder(end), stem=stem)
        words = {"fingerprint": stem, "pairs": str(counts[0]), "suppressed": str(counts[1])}
        table.commit_files({end: written}, remove_days=table.days(), metadata=words)
        return _Kept([str(file) for file in written], counts, made=True)

    def _rows(self, partials: Any, pairs: Any, window: Window) -> Any:
        """Return the fields of a window, for the pairs with enough users."""
        enough = pairs.filter(pairs[window.name] >= self.settings.k).select(*PAIR, users=window.name)
        return window_rows(partials, enough, window=window, examination=self.examiner is not None)

    def _sessions(self, spans: Sequence[Window]) -> Any:
        days = sorted({day for span in spans for day in span.days} & self.files.keys())
        return self.engine.read([file for day in days for file in self.files[day]], SESSIONS)


def _time(value: datetime) -> Any:
    return ibis.literal(value, type="timestamp(6)")


def _stamp(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")
