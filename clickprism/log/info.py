"""What a log contains, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from clickprism._util.tables import Table
from clickprism.log.features.snapshots import find_snapshots
from clickprism.log.quarantine import Standing, standing
from clickprism.log.schema import EVENTS, KINDS, SESSIONS

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

POSITIONS = 20  # number of positions in the table


@dataclass(frozen=True, kw_only=True)
class PositionClicks:
    """How often the documents at a position were shown and clicked.

    Attributes:
        position: The position, from 1.
        shown: Number of documents shown at this position.
        clicked: Number of them that were clicked.
    """

    position: int
    shown: int
    clicked: int


@dataclass(frozen=True, kw_only=True)
class LogInfo:
    """What a log contains.

    Attributes:
        folder: Folder of the log.
        events: Number of events; duplicates are not stored.
        kinds: Number of events by kind: impression, ranking or interaction.
        searches: Number of different searches.
        users: Number of different users; 0 if the log has no user ids.
        days: Number of days with events.
        first_day: First of these days (UTC).
        last_day: Last of these days (UTC).
        sources: Number of input files by schema.
        files: Number of input files.
        duplicates: Number of rows that were duplicates.
        quarantine: Where the rows are that were rejected.
        session_days: Number of days with sessions.
        session_rows: Number of documents shown, without those that a robot rule excludes.
        features_as_of: Time of the current click features (UTC); None without features.
        feature_pairs: Number of query-document pairs with click features.
        bytes: Size on disk.
        positions: Documents shown and clicked by position, over all sessions.
    """

    folder: str
    events: int
    kinds: dict[str, int]
    searches: int
    users: int
    days: int
    first_day: date | None
    last_day: date | None
    sources: dict[str, int]
    files: int
    duplicates: int
    quarantine: Standing
    session_days: int
    session_rows: int
    features_as_of: datetime | None
    feature_pairs: int
    bytes: int
    positions: tuple[PositionClicks, ...]

    def tables(self) -> list[Table]:
        """Return the counts, and the clicks by position."""
        days = f"{self.days:,} ({self.first_day} to {self.last_day})" if self.days else "none"
        schemas = ", ".join(f"{count:,} {name}" for name, count in self.sources.items() if name != "auto")
        features = (
            "none" if self.features_as_of is None else f"{self.feature_pairs:,} pairs as of {self.features_as_of} UTC"
        )
        rows = [
            ["days", days],
            ["events", f"{self.events:,} ({', '.join(f'{count:,} {kind}s' for kind, count in self.kinds.items())})"],
            ["searches", f"{self.searches:,}"],
            ["users", f"{self.users:,}"],
            ["input files", f"{self.files:,}" + (f" (schema: {schemas})" if schemas else "")],
            ["duplicate rows", f"{self.duplicates:,}"],
            ["rows in quarantine", f"{self.quarantine.standing:,}"],
            ["days with sessions", f"{self.session_days:,}"],
            ["documents shown in sessions", f"{self.session_rows:,}"],
            ["click features", features],
            ["size on disk", f"{self.bytes / 1e6:,.1f} MB"],
        ]
        tables = [Table("", [self.folder, ""], rows)]
        if self.positions:
            shown = [
                [str(each.position), f"{each.shown:,}", f"{each.clicked:,}", f"{each.clicked / each.shown:.2%}"]
                for each in self.positions[:POSITIONS]
            ]
            tables.append(Table("", ["position", "shown", "clicked", "click rate"], shown))
        return tables


def log_info(store: LogStore, engine: Engine) -> LogInfo:
    """Count what a log contains; nothing is rebuilt."""
    events, sessions, snapshots = store.table("events"), store.table("sessions"), find_snapshots(store)
    files, days = store.table("files").read(["source", "duplicate"]), events.days()
    rows = engine.read(events.files(), EVENTS)
    counts = {kind: rows.count(where=rows.kind == kind) for kind in KINDS}
    counts |= {"searches": rows.search_id.nunique(), "users": rows.user_id.nunique()}
    found = engine.collect(rows.aggregate(**counts)).to_pylist()[0]
    positions = _positions(engine, sessions.files())
    current = max((each for each in snapshots if each.kept), key=lambda each: (each.as_of, each.version), default=None)
    sources = files["source"].value_counts().to_pylist()
    return LogInfo(
        folder=str(store.folder),
        events=events.rows(),
        kinds={kind: found[kind] for kind in KINDS if found[kind]},
        searches=found["searches"],
        users=found["users"],
        days=len(days),
        first_day=days[0] if days else None,
        last_day=days[-1] if days else None,
        sources={each["values"]: each["counts"] for each in sorted(sources, key=lambda each: str(each["values"]))},
        files=len(files),
        duplicates=pc.sum(files["duplicate"]).as_py() or 0,
        quarantine=standing(store),
        session_days=len(sessions.days()),
        session_rows=sum(each.shown for each in positions),
        features_as_of=None if current is None else current.as_of,
        feature_pairs=0 if current is None else current.rows(),
        bytes=sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file()),
        positions=positions,
    )


def _positions(engine: Engine, files: list[str]) -> tuple[PositionClicks, ...]:
    if not files:
        return ()
    rows = engine.read(files, SESSIONS)
    rows = rows.filter(rows["filter"].isnull())
    counts = rows.group_by("position").aggregate(shown=rows.count(), clicked=rows.count(where=rows.clicked))
    return tuple(PositionClicks(**row) for row in engine.collect(counts.order_by("position")).to_pylist())
