"""Compaction: a day of `events` that came in many small files becomes one file, with the same rows.

Nothing that is derived is made anew for it: what sessions are a function of is told by a sum over the files of a day
(`table.files_id`), and the name of a file that others were put into carries theirs. Each day is one commit, so a run
that is killed has done some days whole and others not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from clickprism.errors import SettingError
from clickprism.log.schema import EVENTS
from clickprism.log.sessions import by_day
from clickprism.log.table import SUM, files_id, writing

if TYPE_CHECKING:
    from clickprism.log.engine import Engine
    from clickprism.log.store import LogStore

MANY: Final = 8


@dataclass(frozen=True)
class Compacted:
    """What `compact` did.

    Args:
        days: that became one file each.
        before: how many files they had.
        rows: they hold.
    """

    days: tuple[date, ...]
    before: int
    rows: int


def compact(store: LogStore, engine: Engine, *, files: int = MANY) -> Compacted:
    """Put the files of each day of `events` that has more than so many into one.

    The files that were replaced stay on disk for `windows.keep_hours`, for those who read them; the next compaction, or
    an erasure, deletes them.

    Args:
        store: the log.
        engine: DuckDB, which writes one file.
        files: how many a day may have.
    """
    if files < 1:
        raise SettingError("--files", files, "be at least 1")
    if engine.name != "duckdb":
        raise SettingError("engine", engine.name, "be duckdb: others write several files")
    columns = [name for name in EVENTS.names if name != "day"]
    done: list[date] = []
    with store.lock():
        events = store.table("events")
        many = {day: each for day, each in sorted(by_day(events.files()).items()) if len(each) > files}
        rows = events.rows_of(many)
        for day, each in many.items():
            with writing(events.folder):
                found = engine.read(each, EVENTS).select(*columns)
                written = engine.write(found, events.day_folder(day), stem=f"{SUM}-{files_id(each)}")
            events.commit_files({day: written}, remove=each)
            done.append(day)
        events.vacuum(hours=store.settings.windows.keep_hours)
    return Compacted(tuple(done), sum(map(len, many.values())), sum(rows.values()))
