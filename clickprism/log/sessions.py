"""The table `sessions`: which days are stale, and how they are made anew.

A day of sessions is a pure function of the events of that day, of the next day's if it has interactions, and of the
settings. The names of its files begin with the fingerprint of all these, so a day is made anew if and only if something
it depends on has changed, whatever happened in between. See `session_rows` for what a row is.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.errors import SettingError
from clickprism.log.robots import RobotSettings, unique, verdicts
from clickprism.log.schema import EVENTS, KINDS, SESSIONS, conform
from clickprism.log.session_rows import USED, behaviour, clicks_of, left_over, shown_rows
from clickprism.settings import plain

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore

LAYOUT: Final = 2
"""Raised when what a session row holds changes, so that old ones are made anew."""


@dataclass(frozen=True)
class SessionSettings:
    """How events become lists with clicks.

    Args:
        page_size: how many documents a page of results has, for the feature `page`.
        click_window_hours: how long after it was shown a document may be clicked; the next day is read, no further.
    """

    page_size: int = 10
    click_window_hours: int = 24

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise SettingError("sessions.page_size", self.page_size, "be at least 1")
        if not 1 <= self.click_window_hours <= 24:
            raise SettingError("sessions.click_window_hours", self.click_window_hours, "be from 1 to 24")


@dataclass(frozen=True)
class SessionReport:
    """What the sessions of a day hold.

    Attributes:
        day: which.
        searches: that count.
        rows: documents shown by them.
        clicked: documents among them that were clicked.
        filtered: rows that a robot rule leaves out.
        unmatched: clicks of the day on documents that no search of that day or the one before has shown.
    """

    day: date
    searches: int
    rows: int
    clicked: int
    filtered: int
    unmatched: int


def update_sessions(store: LogStore, engine: Engine, days: Iterable[date] | None = None) -> list[date]:
    """Make the stale days of `sessions` anew, one commit a day; returns them.

    Args:
        store: the log.
        engine: where the queries run.
        days: that may be made anew; None: all.
    """
    events, sessions = store.table("events"), store.table("sessions")
    chosen = sorted({*events.days(), *sessions.days()} if days is None else {*days})
    rebuilt = []
    for day in chosen:
        with store.lock():
            inputs = Inputs.of(by_day(events.files()), day)
            stem = inputs.fingerprint(store.settings.robots, store.settings.sessions)
            present = {name.partition("-")[0] for name in sessions.names(day)}
            if present == ({stem} if inputs.files else set()):
                continue
            written = _build(engine, inputs, store, sessions.day_folder(day), stem) if inputs.files else []
            sessions.replace(day, written)
            rebuilt.append(day)
    return rebuilt


def session_report(store: LogStore, engine: Engine, days: Sequence[date]) -> list[SessionReport]:
    """What the sessions of these days hold, as they are now."""
    files, shown = by_day(store.table("events").files()), by_day(store.table("sessions").files())
    made = []
    for day in days:
        rows = engine.read(shown.get(day, []), SESSIONS)
        kept = rows["filter"].isnull()
        counts = rows.aggregate(
            searches=rows.search_id.nunique(where=kept),
            rows=rows.count(where=kept).fill_null(0),
            clicked=rows.count(where=kept & rows.clicked).fill_null(0),
            filtered=rows.count(where=~kept).fill_null(0),
        )
        found: dict[str, Any] = engine.collect(counts).to_pylist()[0]
        near = [*shown.get(day - timedelta(days=1), []), *shown.get(day, [])]
        found["unmatched"] = _unmatched(engine, files.get(day, []), near, store.settings.robots)
        made.append(SessionReport(day=day, **found))
    return made


def export_sessions(store: LogStore, path: Path, days: Iterable[date] | None = None) -> int:
    """Write the session rows that count, of these days or of all, to one Parquet file; returns how many."""
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with pq.ParquetWriter(partial, SESSIONS, compression="zstd") as writer:
            for day, files in sorted(by_day(store.table("sessions").files(days)).items()):
                for file in files:
                    for batch in pq.ParquetFile(file).iter_batches():
                        rows = pa.Table.from_batches([batch.filter(pc.is_null(batch["filter"]))])
                        rows = rows.append_column("day", pa.repeat(pa.scalar(day, pa.date32()), rows.num_rows))
                        writer.write_table(conform(rows, SESSIONS, what="sessions"))
        count: int = pq.read_metadata(partial).num_rows
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
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

    def fingerprint(self, robots: RobotSettings, sessions: SessionSettings) -> str:
        """Changes whenever a row may."""
        names = [sorted(Path(file).name for file in files) for files in (self.files, self.later)]
        said = json.dumps([LAYOUT, *names, plain(robots), plain(sessions)], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:32]


def _build(engine: Engine, inputs: Inputs, store: LogStore, folder: Path, stem: str) -> list[Path]:
    robots, settings = store.settings.robots, store.settings.sessions
    events = _judged(engine, inputs.files, inputs.kinds, robots)
    with ExitStack() as stack:
        if inputs.kinds != ("impression",):
            events = stack.enter_context(engine.held(events))
        later = None
        if inputs.later:
            later = stack.enter_context(engine.held(_later(engine, inputs, robots)))
            if inputs.later_kinds != ("interaction",):
                later = stack.enter_context(engine.held(left_over(later, settings, kinds=inputs.later_kinds)))
        shown = stack.enter_context(engine.held(shown_rows(events, later, settings, kinds=inputs.kinds)))
        return engine.write(behaviour(shown, settings).drop("day"), folder, stem=stem)


def _judged(engine: Engine, files: Sequence[str], kinds: Sequence[str], robots: RobotSettings) -> Table:
    return verdicts(unique(engine.read(files, EVENTS)), robots, kinds=kinds).select(*USED)


def _later(engine: Engine, inputs: Inputs, robots: RobotSettings) -> Table:
    """What `left_over` needs of the next day."""
    judged = _judged(engine, inputs.later, inputs.later_kinds, robots)
    days = [engine.read(files, EVENTS) for files in (inputs.files, inputs.later)]
    before, after = (day.filter(day.kind != "interaction").select("search_id").distinct() for day in days)
    both = before.inner_join(after, "search_id").select(shown_twice="search_id")
    found = judged.left_join(both, judged.search_id == both.shown_twice)
    return found.filter((found.kind == "interaction") | found.shown_twice.notnull()).select(*USED)


def _unmatched(engine: Engine, files: Sequence[str], shown: Sequence[str], robots: RobotSettings) -> int:
    kinds = kinds_of(files)
    apart = set(kinds) - {"impression"}
    clicks = clicks_of(_judged(engine, files, kinds, robots), kinds=kinds) if apart else None
    if clicks is None:
        return 0
    lost = clicks.anti_join(engine.read(shown, SESSIONS), ["search_id", "document_id"])
    found: int = engine.collect(lost.aggregate(lost=lost.count()))["lost"][0].as_py()
    return found
