"""Erasure: afterwards the log is as if it had never seen the user.

The user's rows leave `events` (only files that hold them are written anew) and `quarantine`, in one commit each. What
was derived of them goes too: sessions of the days they touch are made anew, partials, windows, snapshots and the
examination models that learned of those days are dropped, and every file that no table holds any more is deleted at
once, so that earlier versions cannot be read. What is derived goes first: after a crash nobody reads it. A run that was
cut short is finished by the next command that writes to the log: the users and days stand in a file until all is done.
The ledger `files` stays: it counts what came in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import read_json, write_file
from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.log.mentions import COLUMNS, Mentions
from clickprism.log.schema import EVENTS, QUARANTINE
from clickprism.log.sessions import by_day, update_sessions
from clickprism.log.store import PENDING, LogStore
from clickprism.log.table import sweep, writing

if TYPE_CHECKING:
    from clickprism.log.engine import Engine
    from clickprism.log.table import LogTable

DROPPED: Final = ("week", "month", "snapshots")
TOGETHER: Final = 64
"""How many files a query counts at a time."""
_BATCH: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What `forget` erased, or would erase.

    Attributes:
        rows: Number of rows removed from `events`.
        files: Number of files of `events` that were rewritten.
        quarantined: Number of rows removed from `quarantine`.
        days: Days whose sessions were rebuilt.
        snapshots: Whether the click features were deleted.
        models: Names of the examination models that were deleted.
        dry_run: Whether nothing was written.
    """

    rows: int = 0
    files: int = 0
    quarantined: int = 0
    days: tuple[date, ...] = ()
    snapshots: bool = False
    models: tuple[str, ...] = ()
    dry_run: bool = False

    def tables(self) -> list[Table]:
        """Return one row for each kind of data."""
        rows = [
            ["rows of events", f"{self.rows:,}"],
            ["files of events rewritten", f"{self.files:,}"],
            ["rows in quarantine", f"{self.quarantined:,}"],
            ["days of sessions rebuilt", f"{len(self.days):,}"],
            ["examination models deleted", f"{len(self.models):,}"],
            ["click features deleted", "all" if self.snapshots else "none"],
        ]
        return [Table("", ["would erase" if self.dry_run else "erased", ""], rows)]


def forget(store: LogStore, engine: Engine, users: Sequence[str], *, dry_run: bool = False) -> Forgotten:
    """Erase users: their rows, and the rows without a user of searches that are theirs.

    Args:
        store: the log.
        engine: where the queries run.
        users: their ids, as logged; those of a run that was cut short are added. None if there was one.
        dry_run: only say what would be done.
    """
    with store.lock():
        begun, days = _begun(store)
        everyone = sorted({*users, *begun})
        if not everyone:
            raise SettingError("user", None, "name at least one user, as no interrupted erasure is left to finish")
        if not all(everyone):
            raise SettingError("user", "", "be the id of a user")
        with engine.held(_searches(store.table("events"), engine, everyone)) as searches:
            return _forget(store, engine, everyone, days, searches, dry_run=dry_run)


def _forget(
    store: LogStore, engine: Engine, users: Sequence[str], days: set[date], searches: Any, *, dry_run: bool
) -> Forgotten:
    events, quarantine = store.table("events"), store.table("quarantine")
    found = _holding(events, engine, users, searches)
    column = store.settings.source.mapping.columns.get("user_id")
    mentions = Mentions(users, fields=[] if column is None else [column])
    broken = {file: count for file in quarantine.files() if (count := _count(file, mentions))}
    touched = days | {day - back for day in found for back in (timedelta(), timedelta(days=1))}
    models = [model for model in (store.folder / "models").glob("*.json") if _learned(model, touched)]
    result = Forgotten(
        rows=sum(count for files in found.values() for count in files.values()),
        files=sum(len(files) for files in found.values()),
        quarantined=sum(broken.values()),
        days=tuple(sorted(touched & {*events.days(), *store.table("sessions").days()})),
        snapshots=bool(touched) and bool(store.table("snapshots").files()),
        models=tuple(sorted(model.stem for model in models)),
        dry_run=dry_run,
    )
    pending = store.folder / PENDING
    if dry_run:
        return result
    if touched or broken or pending.exists():
        words = {"users": list(users), "days": sorted(day.isoformat() for day in touched)}
        with writing(store.folder):
            write_file(pending, json.dumps(words))
        _drop(store, touched, models)
        _erase(events, engine, users, found, searches)
        for file in broken:
            _rewrite(quarantine, file, mentions)
        update_sessions(store, engine, sorted(touched & {*events.days(), *store.table("sessions").days()}))
    for name in ("events", "quarantine", "sessions", "partials"):  # a run that was killed may have left files of them
        sweep(store.table(name))
    with store.staging():  # it deletes the temporary files of processes that were killed, which may hold rows too
        pending.unlink(missing_ok=True)
    return result


def _begun(store: LogStore) -> tuple[list[str], set[date]]:
    """The users and the days of a run that was cut short; none if there was no such run."""
    pending = store.folder / PENDING
    if not pending.exists():
        return [], set()
    words = read_json(pending, remedy="Run forget again with the ids of its users")
    return words["users"], {date.fromisoformat(day) for day in words["days"]}


def _theirs(rows: Any, users: Sequence[str], searches: Any) -> Any:
    """The rows that are the users'."""
    named = rows.filter(rows.user_id.isin(users))
    return named.union(rows.filter(rows.user_id.isnull()).semi_join(searches, ["search_id"]))


def _others(rows: Any, users: Sequence[str], searches: Any) -> Any:
    """The rows that are not the users'."""
    named = rows.filter(rows.user_id.notnull() & ~rows.user_id.isin(users))
    return named.union(rows.filter(rows.user_id.isnull()).anti_join(searches, ["search_id"]))


def _searches(events: LogTable, engine: Engine, users: Sequence[str]) -> Any:
    rows = engine.read(events.files(), EVENTS)
    return rows.filter(rows.user_id.isin(users)).select("search_id").distinct()


def _holding(events: LogTable, engine: Engine, users: Sequence[str], searches: Any) -> dict[date, dict[str, int]]:
    """The files of `events` that hold the users' rows, with how many, by day."""
    theirs = _theirs(engine.read(events.files(), EVENTS), users, searches)
    days = {*engine.collect(theirs.select("day").distinct())["day"].to_pylist()}
    files = [(day, file) for day, listed in by_day(events.files()).items() if day in days for file in listed]
    found: dict[date, dict[str, int]] = {}
    for first in range(0, len(files), TOGETHER):
        some = files[first : first + TOGETHER]
        parts = [
            engine.read([file], EVENTS).select("user_id", "search_id", number=ibis.literal(number, "int32"))
            for number, (_, file) in enumerate(some)
        ]
        rows = _theirs(ibis.union(*parts), users, searches)
        for each in engine.collect(rows.group_by("number").aggregate(count=rows.count())).to_pylist():
            day, file = some[each["number"]]
            found.setdefault(day, {})[file] = int(each["count"])
    return found


def _erase(
    events: LogTable, engine: Engine, users: Sequence[str], found: dict[date, dict[str, int]], searches: Any
) -> None:
    """Write the files without the users' rows, and put them in their place in one commit."""
    columns = [name for name in EVENTS.names if name != "day"]
    added: dict[date, list[Path]] = {}
    for day, counts in found.items():
        for file, count in counts.items():
            if count < pq.read_metadata(file).num_rows:
                rows = _others(engine.read([file], EVENTS), users, searches).select(*columns)
                added.setdefault(day, []).extend(engine.write(rows, events.day_folder(day), stem="kept"))
    if found:
        events.commit_files(added, remove=[file for counts in found.values() for file in counts])


def _drop(store: LogStore, touched: Iterable[date], models: Iterable[Path]) -> None:
    """Let go of what was derived of these days, so that nobody reads it while the rest is done."""
    for model in models:
        model.unlink(missing_ok=True)
    for trees in (store.folder / "models").glob("*.txt"):
        if not trees.with_suffix(".json").exists():
            trees.unlink(missing_ok=True)
    for name in ("sessions", "partials"):
        table = store.table(name)
        if days := sorted({*touched} & {*table.days()}):
            table.commit_files({}, remove_days=days)
    for name in DROPPED if touched else ():
        table = store.table(name)
        if files := table.files():
            table.commit_files({}, remove=files)
        sweep(table)


def _learned(model: Path, days: set[date]) -> bool:
    """Whether an examination model learned of one of these days; one that does not say so did."""
    try:
        sessions = json.loads(model.read_text(encoding="utf-8"))["sessions"]
        return not {day.isoformat() for day in days}.isdisjoint(sessions)
    except (OSError, ValueError, KeyError, TypeError):
        return bool(days)


def _count(file: str, mentions: Mentions) -> int:
    """How many rows of a quarantine file name one of the users."""
    with pq.ParquetFile(file) as opened:
        return sum(int(mentions.in_batch(batch).sum()) for batch in opened.iter_batches(_BATCH, columns=[*COLUMNS]))


def _rewrite(quarantine: LogTable, file: str, mentions: Mentions) -> None:
    """Put a file of quarantine without the rows that name the users in its place."""
    path = quarantine.folder / f"kept-{uuid4().hex}.parquet"
    with pq.ParquetFile(file) as opened, pq.ParquetWriter(path, QUARANTINE, compression="zstd") as writer:
        for batch in opened.iter_batches(_BATCH):
            kept = batch.filter(pa.array(~mentions.in_batch(batch)))
            writer.write_table(pa.Table.from_batches([kept]).select(QUARANTINE.names).cast(QUARANTINE))
    quarantine.commit_files({None: [path]}, remove=[file])
