"""Session rows: the events of days as ranked lists with clicks, a row for each document shown, with its features.

An impression row, or the list of a ranking row, shows a document of a search. Where a search with a ranking row has
interactions `impression`, only the documents of these and those that were clicked count as shown. A click proves that
its document was shown, in a list or not, if its position is known. Clicks stand in the rows themselves or come as
interactions with the same search and document, on the same day or the next; they count for the last day that shows the
document. Rows that a robot rule excludes become sessions of their own, so the rows that count do not depend on them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ibis
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism._util.tables import Table as TextTable
from clickprism.log.engines.base import by_rows
from clickprism.log.robots import query_of, verdicts
from clickprism.log.schema import EVENTS, KINDS, SESSIONS, conform
from clickprism.log.table import by_day, files_id, writing
from clickprism.settings import plain

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from clickprism.log.engines.base import Engine
    from clickprism.log.settings import SessionSettings
    from clickprism.log.store import LogStore

BUCKETS: Final = (2, 10, 100, 1000)
"""Numbers of searches of a query in a day from which its rows are in the next `query_bucket`."""
LAYOUT: Final = 2
"""Increased when the content of a session row changes, so that old ones are rebuilt."""
_ACT: Final = ("day", "search_id", "document_id", "position", "time", "display_ms", "dwell_ms", "page_skipped")
_USED: Final = (*_ACT, "kind", "query_id", "query", "documents", "clicked", "action", "click", "user_id", "ranker")
USED: Final = (*_USED, "randomised", "filter")
"""The columns of events, with their verdict, from which sessions are made."""
_SHOWN: Final = (*_ACT, "kept", "inline", "user_id", "ranker", "randomised", "query_id", "filter")
_DONE: Final = (*_ACT, "kept", "click", "seen", "randomised")
_PAIR: Final = ("day", "search_id", "document_id", "kept")


def shown_rows(
    events: Table, later: Table | None, settings: SessionSettings, *, kinds: Collection[str] = KINDS
) -> Table:
    """Return a row for each document that a search shows, with its clicks.

    A document that a search shows several times (in one list, on several pages, in several impression rows) is one
    row, with the first position and time, a click if any of them has one, and the longest display and dwell times.
    """
    interactions = _interactions(events, later, kinds)
    done = _done(events, interactions, kinds)
    shown = _merged(_shown(events, None if interactions is None else done, settings, kinds))
    return _clicked(shown, done, settings)


def left_over(events: Table, settings: SessionSettings, *, kinds: Collection[str] = KINDS) -> Table:
    """Return the interactions with documents that their search does not show on that day, but may the day before."""
    acts = events.filter(events.kind == "interaction").select(*USED)
    interactions = acts.mutate(kept=acts["filter"].isnull())
    shown = _merged(_shown(events, _done(events, interactions, kinds), settings, kinds))
    return interactions.anti_join(shown, list(_PAIR)).select(*USED)


def clicks_of(events: Table, *, kinds: Collection[str] = KINDS) -> Table | None:
    """Return the clicks that are no part of an impression row: day, search and document; None if there can be none."""
    done = _done(events, _interactions(events, None, kinds), kinds)
    return None if done is None else done.filter(done.click & done.kept).select("day", "search_id", "document_id")


def _interactions(events: Table, later: Table | None, kinds: Collection[str]) -> Table | None:
    parts = [events.filter(events.kind == "interaction").select(*USED)] if "interaction" in kinds else []
    parts += [] if later is None else [later.select(*USED)]
    if not parts:
        return None
    rows = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    return rows.mutate(kept=rows["filter"].isnull())


def _shown(events: Table, done: Table | None, settings: SessionSettings, kinds: Collection[str]) -> list[Table]:
    """Return all documents that were shown, by source; a document may come several times."""
    rows = events.mutate(query_id=query_of(events), kept=events["filter"].isnull())
    parts = []
    if "impression" in kinds or "ranking" not in kinds:
        own = rows.filter((rows.kind == "impression") & rows.document_id.notnull() & rows.position.notnull())
        parts.append(own.mutate(inline=own.click.fill_null(False)).select(*_SHOWN))
    if "ranking" in kinds:
        rankings = rows.filter(rows.kind == "ranking").mutate(inline=ibis.literal(False))
        listed = rankings.drop("document_id").unnest("documents", offset="offset").rename(document_id="documents")
        listed = listed.mutate(position=(listed.offset + listed.position.fill_null(1)).cast("int32"))
        listed = listed.filter(listed.document_id.notnull()).select(*_SHOWN)
        parts += [listed] if done is None else _tracked(rankings, listed, done, settings)
    return parts


def _tracked(rankings: Table, listed: Table, done: Table, settings: SessionSettings) -> list[Table]:
    """Return the lists that count completely, and the documents that interactions show to have been displayed."""
    search = ["day", "search_id", "kept"]
    once = rankings.group_by(search).aggregate(**_together(rankings))
    proof = done.filter(done.click | done.seen).inner_join(once.select(*search, start="time"), search)
    proof = proof.filter(proof.time <= proof.start + ibis.interval(hours=settings.click_window_hours))
    proven = proof.group_by(*_PAIR).aggregate(ordinal=proof.position.min(), seen=proof.seen.any())
    whole = listed.anti_join(proven.filter(proven.seen), search)
    place = listed.group_by(*_PAIR).aggregate(place=listed.position.min())
    placed = proven.anti_join(whole, list(_PAIR)).left_join(place, list(_PAIR))
    placed = placed.mutate(position=ibis.coalesce(placed.ordinal, placed.place)).select(*_PAIR, "position")
    return [whole, placed.filter(placed.position.notnull()).inner_join(once, search).select(*_SHOWN)]


def _merged(parts: list[Table]) -> Table:
    """Return one row for each document that a search shows."""
    rows = ibis.union(*parts) if len(parts) > 1 else parts[0]
    return rows.group_by(*_PAIR).aggregate(position=rows.position.min(), **_together(rows))


def _together(rows: Table) -> dict[str, Any]:
    """Return the aggregates of several rows of one search."""
    first = {name: rows[name].min() for name in ("time", "user_id", "ranker", "query_id", "filter")}
    longest = {name: rows[name].max() for name in ("display_ms", "dwell_ms")}
    return first | longest | {name: rows[name].any() for name in ("inline", "page_skipped", "randomised")}


def _done(events: Table, interactions: Table | None, kinds: Collection[str]) -> Table | None:
    """Return the actions of users on documents that no impression row contains."""
    parts = []
    if interactions is not None:
        acted = interactions.filter(interactions.document_id.notnull())
        parts.append(acted.mutate(click=acted.action == "click", seen=acted.action == "impression").select(*_DONE))
    if "ranking" in kinds:
        rows = events.filter(events.kind == "ranking").drop("document_id", "click")
        rows = rows.unnest("clicked").rename(document_id="clicked")
        rows = rows.mutate(click=ibis.literal(True), seen=ibis.literal(False), position=ibis.null("int32"))
        rows = rows.filter(rows.document_id.notnull())
        parts.append(rows.mutate(kept=rows["filter"].isnull()).select(*_DONE))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _clicked(shown: Table, done: Table | None, settings: SessionSettings) -> Table:
    """Return the shown documents, with clicks and times."""
    if done is None:
        last = ibis.ifelse(shown.inline, shown.time, ibis.null(shown.time.type()))
        return shown.mutate(clicks=shown.inline.cast("int32"), last_click=last)
    keys = shown.select(*_PAIR, shown_at="time")
    near = done.inner_join(keys, list(_PAIR))
    near = near.filter(near.time <= near.shown_at + ibis.interval(hours=settings.click_window_hours))
    effects = near.group_by(*_PAIR).aggregate(
        done_clicks=near.click.cast("int32").sum(),
        done_at=near.time.max(where=near.click),
        done_display=near.display_ms.max(),
        done_dwell=near.dwell_ms.max(),
        done_skip=near.page_skipped.any(),
        done_randomised=near.randomised.any(),
    )
    rows = shown.left_join(effects, list(_PAIR))
    own = ibis.ifelse(rows.inline, rows.time, ibis.null(rows.time.type()))
    return rows.mutate(
        clicks=rows.inline.cast("int32") + rows.done_clicks.fill_null(0),
        last_click=_later(own, rows.done_at),
        display_ms=_later(rows.display_ms, rows.done_display),
        dwell_ms=_later(rows.dwell_ms, rows.done_dwell),
        page_skipped=rows.page_skipped.fill_null(False) | rows.done_skip.fill_null(False),
        randomised=rows.randomised.fill_null(False) | rows.done_randomised.fill_null(False),
    ).select(*shown.columns, "clicks", "last_click")


def _later(one: Any, other: Any) -> Any:
    """Return the greater of two values, or the one that is not null."""
    return ibis.greatest(ibis.coalesce(one, other), ibis.coalesce(other, one))


def behaviour(rows: Table, settings: SessionSettings) -> Table:
    """Return the rows with the features of the examination model (§6.1.1)."""
    asked = rows.select("day", "query_id", "kept", "search_id").distinct()
    searches = asked.group_by("day", "query_id", "kept").aggregate(searches=ibis._.count())
    found = rows.inner_join(searches, ["day", "query_id", "kept"])
    bucket = sum((found.searches >= least).cast("int32") for least in BUCKETS)
    place = ibis.ifelse(found.clicks > 0, found.position, ibis.null("int32"))
    one = [found.day, found.search_id, found.kept]
    above = ibis.range_window(group_by=one, order_by=found.position, preceding=(None, 1))
    search = ibis.window(group_by=one)
    made = found.mutate(
        query_bucket=bucket,
        clicked=found.clicks > 0,
        clicks_before=place.count().over(above),
        nearest=place.max().over(above),
        lowest=place.max().over(search),
        page=(found.position - 1) // settings.page_size + 1,
    )
    done = made.mutate(
        click_distance=(made.position - made.nearest).fill_null(0),
        click_below=(made.lowest > made.position).fill_null(False),
        page_skipped=made.page_skipped.fill_null(False),
        randomised=made.randomised.fill_null(False),
    )
    kinds = ibis.Schema.from_pyarrow(SESSIONS)
    return done.select(**{name: done[name].cast(kinds[name].copy(nullable=True)) for name in SESSIONS.names})


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
    """

    day: date
    searches: int = 0
    rows: int = 0
    clicked: int = 0
    filtered: int = 0
    unmatched: int = 0


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
        names = ["searches", "rows", "clicked", "filtered", "unmatched"]
        header = ["searches", "documents shown", "clicked", "excluded as robots", "clicks not shown"]
        rows = [[each.day.isoformat(), *(f"{getattr(each, name):,}" for name in names)] for each in self.rebuilt]
        return [TextTable("", ["day", *header], rows)]


def build_sessions(
    store: LogStore, engine: Engine, days: Iterable[date] | None = None, *, out: Path | None = None
) -> SessionUpdate:
    """Rebuild the days of `sessions` whose events or settings have changed, and count what they contain.

    `out` is a Parquet file for the rows of these days that no robot rule excludes.
    """
    rebuilt = update_sessions(store, engine, days)
    return SessionUpdate(
        rebuilt=tuple(session_report(store, engine, rebuilt)),
        days=len(store.table("sessions").days()),
        rows_written=None if out is None else export_sessions(store, out, days),
    )


def update_sessions(store: LogStore, engine: Engine, days: Iterable[date] | None = None) -> list[date]:
    """Rebuild the sessions of each day (by default of all) whose events or settings changed; return these days."""
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
    """Return the inputs of each day whose sessions are not up to date."""
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
    reports = []
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
        reports += [SessionReport(unmatched=lost[day], **found.get(day, {"day": day})) for day in together]
    return reports


def export_sessions(store: LogStore, path: Path, days: Iterable[date] | None = None) -> int:
    """Write the session rows that count, of these days or of all, to one Parquet file; return their number."""
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


def kinds_of(files: Iterable[str | Path]) -> tuple[str, ...]:
    """Return the kinds of events that files may have, from their footers; all if a footer has no statistics."""
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
    """Return whether any of these files of events has a display time."""
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
        """Return the inputs of a day."""
        today, later = files.get(day, ()), files.get(day + timedelta(days=1), ())
        kinds = kinds_of(later)
        if "interaction" not in kinds:
            later, kinds = (), ()
        return cls(tuple(today), kinds_of(today), tuple(later), kinds)

    def fingerprint(self, store: LogStore) -> str:
        """Return an id that changes whenever a row may change."""
        names = [files_id(files) for files in (self.files, self.later)]
        settings = [plain(store.settings.robots), plain(store.settings.sessions)]
        return hashlib.sha256(json.dumps([LAYOUT, *names, *settings], sort_keys=True).encode()).hexdigest()[:32]


def _build(engine: Engine, inputs: Mapping[date, Inputs], store: LogStore) -> dict[date, list[Path]]:
    """Write the session rows of these days, in one query."""
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
    """Return the events of these days, and what `left_over` needs of the next (`twice`: also on the day before)."""
    searches = events.filter(events.kind != "interaction").select("day", "search_id").distinct()
    before = searches.select(next_day=_shifted(searches.day, 1), shown_before="search_id")
    both = searches.inner_join(before, [searches.day == before.next_day, searches.search_id == before.shown_before])
    both = both.select("next_day", "shown_before")
    found = judged.left_join(both, [judged.day == both.next_day, judged.search_id == both.shown_before])
    found = found.mutate(twice=found.shown_before.notnull()).select(*USED, "twice")
    return found.filter(found.day.isin(days) | (found.kind == "interaction") | found.twice)


def _shifted(day: Any, by: int) -> Any:
    return (day + ibis.interval(days=by)).cast("date")


def _unmatched(store: LogStore, engine: Engine, days: Sequence[date]) -> Counter[date]:
    """Return the number of clicks of each day on documents that neither that day nor the one before shows."""
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
