"""The table `sessions`: which days are stale, and how they are made anew.

A day of sessions is a pure function of the events of that day, of the next day's if it has interactions, and of the
settings. The names of its files begin with the fingerprint of all these, so a day is made anew if and only if something
it depends on has changed, whatever happened in between (`compact` changes nothing). See `session_rows` for what a row
is.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism._util.tables import Table as TextTable
from clickprism.log.engine import by_rows
from clickprism.log.robots import verdicts
from clickprism.log.schema import EVENTS, KINDS, SESSIONS, conform
from clickprism.log.session_rows import USED, behaviour, clicks_of, left_over, shown_rows
from clickprism.log.table import files_id, writing
from clickprism.settings import plain

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore

LAYOUT: Final = 2
"""Raised when what a session row holds changes, so that old ones are made anew."""


@dataclass(frozen=True, kw_only=True)
class SessionReport:
    """What the sessions of a day contain.

    Attributes:
        day: The day (UTC).
        searches: Number of searches that no robot rule excludes.
        rows: Number of documents shown by these searches.
        clicked: Number of these documents that were clicked.
        filtered: Number of rows that a robot rule excludes.
        unmatched: Number of clicks on documents that no search of that day or the day before has shown.
        repeated: Number of times that a search showed a document again; only its first position counts.
    """

    day: date
    searches: int = 0
    rows: int = 0
    clicked: int = 0
    filtered: int = 0
    unmatched: int = 0
    repeated: int = 0


@dataclass(frozen=True, kw_only=True)
class SessionUpdate:
    """What `build_sessions` did.

    Attributes:
        rebuilt: What the days contain that were rebuilt.
        days: Number of days that have sessions.
        rows_written: Number of rows written to a file; None if none was asked for.
    """

    rebuilt: tuple[SessionReport, ...]
    days: int
    rows_written: int | None

    def tables(self) -> list[TextTable]:
        """Return one row for each rebuilt day."""
        if not self.rebuilt:
            return [TextTable("", ["sessions"], [[f"All {self.days:,} days are up to date."]])]
        names = ["searches", "rows", "clicked", "filtered", "unmatched", "repeated"]
        header = ["searches", "documents shown", "clicked", "excluded as robots", "clicks not shown", "shown again"]
        rows = [[each.day.isoformat(), *(f"{getattr(each, name):,}" for name in names)] for each in self.rebuilt]
        return [TextTable("", ["day", *header], rows)]


def build_sessions(
    store: LogStore, engine: Engine, days: Iterable[date] | None = None, *, out: Path | None = None
) -> SessionUpdate:
    """Rebuild the days of `sessions` whose events or settings have changed, and count what they contain.

    Args:
        store: the log.
        engine: where the queries run.
        days: the days that may be rebuilt; None: all.
        out: Parquet file for the rows of these days that no robot rule excludes; None writes none.
    """
    rebuilt = update_sessions(store, engine, days)
    return SessionUpdate(
        rebuilt=tuple(session_report(store, engine, rebuilt)),
        days=len(store.table("sessions").days()),
        rows_written=None if out is None else export_sessions(store, out, days),
    )


def update_sessions(store: LogStore, engine: Engine, days: Iterable[date] | None = None) -> list[date]:
    """Make the stale days of `sessions` anew, as many in one query as suits the engine; returns them.

    Args:
        store: the log.
        engine: where the queries run.
        days: that may be made anew; None: all.
    """
    events, sessions = store.table("events"), store.table("sessions")
    chosen = sorted({*events.days(), *sessions.days()} if days is None else {*days})
    rebuilt: list[date] = []
    for together in by_rows(events.rows_of(_stale(store, chosen)), most=engine.batch_rows):
        with store.lock():
            stale = _stale(store, together)
            if stale:
                with writing(sessions.folder):
                    written = _build(engine, {day: each for day, each in stale.items() if each.files}, store)
                sessions.commit_files(written, remove_days=stale)
                rebuilt += stale
    return rebuilt


def _stale(store: LogStore, days: Iterable[date]) -> dict[date, Inputs]:
    """Which of these days differ from what their inputs make, with these inputs."""
    files, present = by_day(store.table("events").files()), by_day(store.table("sessions").files())
    found = {}
    for day in days:
        inputs = Inputs.of(files, day)
        stems = {Path(file).name.partition("-")[0] for file in present.get(day, ())}
        if stems != ({inputs.fingerprint(store)} if inputs.files else set()):
            found[day] = inputs
    return found


def session_report(store: LogStore, engine: Engine, days: Sequence[date]) -> list[SessionReport]:
    """Return what the sessions of these days contain."""
    made, repeated = [], _repeated(store, engine, days)
    for together in by_rows(store.table("events").rows_of(days), most=engine.batch_rows):
        rows = engine.read(store.table("sessions").files(together), SESSIONS)
        kept = rows["filter"].isnull()
        counts = rows.group_by("day").aggregate(
            searches=rows.search_id.nunique(where=kept),
            rows=rows.count(where=kept),
            clicked=rows.count(where=kept & rows.clicked),
            filtered=rows.count(where=~kept),
        )
        found: dict[date, dict[str, Any]] = {row["day"]: row for row in engine.collect(counts).to_pylist()}
        lost = _unmatched(store, engine, together)
        for day in together:
            row = found.get(day, {"day": day})
            made.append(SessionReport(unmatched=lost[day], repeated=repeated[day], **row))
    return made


def export_sessions(store: LogStore, path: Path, days: Iterable[date] | None = None) -> int:
    """Write the session rows that count, of these days or of all, to one Parquet file; returns how many."""
    count = 0
    with atomic_file(path) as draft, pq.ParquetWriter(draft, SESSIONS, compression="zstd") as writer:
        for day, files in sorted(by_day(store.table("sessions").files(days)).items()):
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches():
                    rows = pa.Table.from_batches([batch.filter(pc.is_null(batch["filter"]))])
                    rows = rows.append_column("day", pa.repeat(pa.scalar(day, pa.date32()), rows.num_rows))
                    writer.write_table(conform(rows, SESSIONS, what="sessions"))
                    count += rows.num_rows
    return count


def by_day(files: Iterable[str]) -> dict[date, list[str]]:
    """Files of a table by the day of their folder."""
    found = defaultdict(list)
    for file in files:
        found[date.fromisoformat(Path(file).parent.name.removeprefix("day="))].append(file)
    return dict(found)


def kinds_of(files: Iterable[str | Path]) -> tuple[str, ...]:
    """The kinds of events that files may have, as their footers tell; all where one does not."""
    found: set[str] = set()
    for file in files:
        metadata = pq.read_metadata(file)
        column = metadata.schema.names.index("kind")
        for group in range(metadata.num_row_groups):
            part = metadata.row_group(group).column(column)
            if not part.num_values:
                continue
            if not part.is_stats_set or not part.statistics.has_min_max:
                return KINDS
            least, most = part.statistics.min, part.statistics.max
            found |= {kind for kind in KINDS if least <= kind <= most}
    return tuple(kind for kind in KINDS if kind in found)


def has_display_times(files: Iterable[str | Path]) -> bool:
    """Whether any of these files of events has a display time; of those before it, one column is read."""
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(columns=["display_ms"]):
                if batch["display_ms"].null_count < batch.num_rows:
                    return True
    return False


@dataclass(frozen=True)
class Inputs:
    """What the sessions of a day are made of: files of that day, and of the next if it has interactions."""

    files: tuple[str, ...]
    kinds: tuple[str, ...]
    later: tuple[str, ...]
    later_kinds: tuple[str, ...]

    @classmethod
    def of(cls, files: Mapping[date, Sequence[str]], day: date) -> Inputs:
        """The inputs of a day."""
        today, later = files.get(day, ()), files.get(day + timedelta(days=1), ())
        kinds = kinds_of(later)
        if "interaction" not in kinds:
            later, kinds = (), ()
        return cls(tuple(today), kinds_of(today), tuple(later), kinds)

    def fingerprint(self, store: LogStore) -> str:
        """Changes whenever a row may."""
        names = [files_id(files) for files in (self.files, self.later)]
        settings = [plain(store.settings.robots), plain(store.settings.sessions)]
        return hashlib.sha256(json.dumps([LAYOUT, *names, *settings], sort_keys=True).encode()).hexdigest()[:32]


def _build(engine: Engine, inputs: Mapping[date, Inputs], store: LogStore) -> dict[date, list[Path]]:
    """The session rows of these days, in one query."""
    if not inputs:
        return {}
    settings, folder = store.settings.sessions, store.table("sessions").folder
    kinds = _kinds(each.kinds for each in inputs.values())
    later_kinds = _kinds(each.later_kinds for each in inputs.values())
    after = [day + timedelta(days=1) for day, each in inputs.items() if each.later]
    files = sorted({file for each in inputs.values() for file in (*each.files, *each.later)})
    with ExitStack() as stack:
        events, later = _judged(engine, files, _kinds([kinds, later_kinds]), store), None
        if after:
            both = stack.enter_context(engine.held(_near(events, engine.read(files, EVENTS), sorted(inputs))))
            events = both.filter(both.day.isin(sorted(inputs))).select(*USED)
            later = both.filter(both.day.isin(after) & ((both.kind == "interaction") | both.twice)).select(*USED)
            if later_kinds != ("interaction",):
                later = stack.enter_context(engine.held(left_over(later, settings, kinds=later_kinds)))
            later = later.mutate(day=_shifted(later.day, -1))
        elif kinds != ("impression",):
            events = stack.enter_context(engine.held(events))
        shown = stack.enter_context(engine.held(shown_rows(events, later, settings, kinds=kinds)))
        stems = {day: each.fingerprint(store) for day, each in inputs.items()}
        return engine.write_days(behaviour(shown, settings), folder, stems=stems)


def _kinds(found: Iterable[Iterable[str]]) -> tuple[str, ...]:
    every = {kind for kinds in found for kind in kinds}
    return tuple(kind for kind in KINDS if kind in every)


def _judged(engine: Engine, files: Sequence[str], kinds: Sequence[str], store: LogStore) -> Table:
    return verdicts(engine.read(files, EVENTS), store.settings.robots, kinds=kinds).select(*USED)


def _near(judged: Table, events: Table, days: Sequence[date]) -> Table:
    """Events of these days, and what `left_over` needs of the days after; `twice`: the search is the day before too."""
    searches = events.filter(events.kind != "interaction").select("day", "search_id").distinct()
    before = searches.select(next_day=_shifted(searches.day, 1), shown_before="search_id")
    both = searches.inner_join(before, [searches.day == before.next_day, searches.search_id == before.shown_before])
    both = both.select("next_day", "shown_before")
    found = judged.left_join(both, [judged.day == both.next_day, judged.search_id == both.shown_before])
    found = found.mutate(twice=found.shown_before.notnull()).select(*USED, "twice")
    return found.filter(found.day.isin(days) | (found.kind == "interaction") | found.twice)


def _shifted(day: Any, by: int) -> Any:
    import ibis

    return (day + ibis.interval(days=by)).cast("date")


def _unmatched(store: LogStore, engine: Engine, days: Sequence[date]) -> Counter[date]:
    """By day, the clicks that count on what neither that day shows nor the one before."""
    files = store.table("events").files(days)
    kinds = kinds_of(files)
    apart = set(kinds) - {"impression"}
    clicks = clicks_of(_judged(engine, files, kinds, store), kinds=kinds) if apart else None
    if clicks is None:
        return Counter()
    near = {day + timedelta(days=number) for day in days for number in (-1, 0)}
    shown = engine.read(store.table("sessions").files(near), SESSIONS).select("day", "search_id", "document_id")
    shown = shown.union(shown.mutate(day=_shifted(shown.day, 1)))
    lost = clicks.anti_join(shown, ["day", "search_id", "document_id"])
    counts = engine.collect(lost.group_by("day").aggregate(lost=lost.count()))
    return Counter(dict(zip(*(counts[name].to_pylist() for name in ("day", "lost")), strict=True)))


def _repeated(store: LogStore, engine: Engine, days: Sequence[date]) -> Counter[date]:
    """Return by day how often a search shows a document again: in one ranking, or by several impression rows."""
    events, sessions = store.table("events"), store.table("sessions")
    found: Counter[date] = Counter()
    for together in by_rows(events.rows_of(days), most=engine.batch_rows):
        kinds = kinds_of(events.files(together))
        if kinds == ("impression",) and events.rows_of(together) == sessions.rows_of(together):
            continue
        rows = engine.read(sessions.files(together), SESSIONS)
        kept, all_ = rows.filter(rows["filter"].isnull()), engine.read(events.files(together), EVENTS)
        for kind, again in (("impression", _repeated_rows), ("ranking", _repeated_in_lists)):
            if kind in kinds:
                extra = again(all_.filter(all_.kind == kind), kept)
                counts = engine.collect(extra.group_by("day").aggregate(extra=extra.extra.sum()))
                found.update(dict(zip(*(counts[name].to_pylist() for name in ("day", "extra")), strict=True)))
    return found


def _repeated_rows(impressions: Table, kept: Table) -> Table:
    pair = ["day", "search_id", "document_id"]
    times = impressions.group_by(pair).aggregate(times=impressions.count())
    return times.filter(times.times > 1).semi_join(kept, pair).mutate(extra=times.times - 1)


def _repeated_in_lists(rankings: Table, kept: Table) -> Table:
    extra = rankings.documents.length() - rankings.documents.unique().length()
    lists = rankings.select("day", "search_id", extra=extra)
    return lists.filter(lists.extra > 0).semi_join(kept, ["day", "search_id"])
