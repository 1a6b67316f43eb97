"""`init`: look at the data, write `clickprism.toml`, and show what was understood."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import create_folder, write_file
from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError
from clickprism.project import calls
from clickprism.project.settings import (
    FILE,
    Columns,
    Outputs,
    Privacy,
    ProjectSettings,
    Source,
    Training,
    as_toml,
    expand,
    redact,
)

LINES: Final = 50_000  # of each sampled file of events
SAMPLED: Final = 6  # files of events that are looked at
FIVE: Final = 5
ROWS: Final = 200_000  # rows of a table that are looked at
NEAR: Final = 2  # folders up to which a source is named relative to the project
WIDTH: Final = 40  # characters of a cell


@final
@dataclass(frozen=True)
class Understood:
    """What `init` found out.

    Attributes:
        project: Folder of the project.
        kind: What the source is.
        rows: The first rows, by column.
        roles: Column of each role.
        features: Number of features.
        ignored: Columns that are not features, with the reason.
        days: First and last day; empty if the rows have no times.
        positions: Documents shown and clicked by position, in what was looked at.
        notes: What was assumed.
    """

    project: str
    kind: str
    rows: tuple[Mapping[str, str], ...]
    roles: Mapping[str, str]
    features: tuple[str, ...]
    ignored: Mapping[str, str]
    days: tuple[str, ...]
    positions: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return five rows, the columns by role, the days, and the clicks by position."""
        header = list(dict.fromkeys(name for row in self.rows for name in row))[:8]
        about = [["source", self.kind], ["days", " to ".join(self.days) or "not recorded"]]
        about += [[role, column] for role, column in self.roles.items()]
        about.append(
            [
                "features",
                f"{len(self.features)}: {', '.join(self.features[:12])}{' ...' if len(self.features) > 12 else ''}"
                if self.features
                else "none",
            ]
        )
        about += [[f"ignored: {name}", reason] for name, reason in self.ignored.items()]
        rates = [
            [str(k), f"{shown:,}", f"{clicked:,}", f"{clicked / max(shown, 1):.2%}"]
            for k, shown, clicked in self.positions[:10]
        ]
        return [
            Table("The first rows", header, [[row.get(name, "") for name in header] for row in self.rows])
            if header
            else Table("", ["no rows"], []),
            Table("", [self.project, ""], about),
            Table("Clicks by position, in what was looked at", ["position", "shown", "clicked", "click rate"], rates),
            *([Table("Notes", ["", ""], [["", note] for note in self.notes])] if self.notes else []),
        ]


def init(folder: Path, source: str, *, sql: str = "", outcome: str = "click", replace: bool = False) -> Understood:
    """Create a project: look at the source, and write `clickprism.toml` with what was found out.

    Args:
        folder: Folder of the project; it may exist if it has no `clickprism.toml`.
        source: File, folder, pattern, URL of a database, or remote folder, from the current folder.
        sql: Query to a database.
        outcome: What rankers are trained for.
        replace: Replace an existing `clickprism.toml`.
    """
    folder = folder.absolute()
    if (folder / FILE).exists() and not replace:
        raise DataError("exists already", file=folder / FILE, remedy="Edit it, or add --replace to write it again")
    near = source if "://" in source else os.path.relpath(source, folder)
    path = near if near.count("..") <= NEAR else os.path.abspath(source)
    draft = ProjectSettings(source=Source(path=path, table=True, read="memory", sql=sql))
    create_folder(folder)
    with calls.safe_errors(draft):
        settings, found = _look(folder, draft, outcome)
    write_file(folder / FILE, as_toml(settings))
    return found


def _look(folder: Path, draft: ProjectSettings, outcome: str) -> tuple[ProjectSettings, Understood]:
    path = draft.source.path
    if calls.is_database(expand(path)):
        if not draft.source.sql:
            raise SettingError("sql", None, 'give the query to read the database, such as --sql "select * from clicks"')
        return _table(folder, draft, outcome, calls.source_path(folder, draft), database=True)
    files = [Path(name) for name in calls.source_files(folder, draft, lambda _: None)]
    if (files[0].parent / "log.toml").exists():
        raise DataError("is an ingested log, not a source", file=files[0].parent, remedy="Name the raw files")
    if _is_table(files[0]):
        if calls.is_sessions(str(files[0])):
            return _sessions(folder, draft, files)
        return _table(folder, draft, outcome, str(files[0]), database=False)
    return _events(folder, draft, files)


def _is_table(file: Path) -> bool:
    """Return whether a file is a table with one row for each result, or a session file; otherwise it has events."""
    from clickprism.log.open_log import is_events, ubi_files

    return not is_events(file) and not ubi_files(str(file))


def _sessions(folder: Path, draft: ProjectSettings, files: list[Path]) -> tuple[ProjectSettings, Understood]:
    """Look at a session file: one row for each search."""
    if len(files) > 1:
        raise DataError("several session files cannot be read together", file=files[0].parent, remedy="Join them")
    from clickprism.log.open_log import read_log

    logged = read_log(files[0])
    names, *lines = [line.rstrip("\n").split("\t") for line in _head(files[0], FIVE + 1)]
    rows = tuple({name: cell[:WIDTH] for name, cell in zip(names, line, strict=False)} for line in lines)
    found = Understood(
        folder.name, "sessions: one row for each search", rows, {}, (), {}, (), _by_position(logged), logged.notes
    )
    return draft, found


def _table(
    folder: Path, draft: ProjectSettings, outcome: str, path: str, *, database: bool
) -> tuple[ProjectSettings, Understood]:
    """Look at a table: which column holds what, and which columns are known only after a click."""
    from clickprism.data.click_table import TableSettings
    from clickprism.data.frames import read_source
    from clickprism.log.ingest.tables import guess_columns
    from clickprism.log.open_log import open_source

    plain = TableSettings(query=expand(draft.source.sql) or None)
    guessed = guess_columns(path, plain)
    table = read_source(path, sql=plain.query).table
    ignored = _after_click(table, guessed.roles.get("click", ""), guessed.features)
    features = tuple(name for name in guessed.features if name not in ignored)
    texts = [name for name in features if not _is_number(table.schema.field(name).type)]
    # rows of a log with times grow by files; a table that must be encoded, or has other outcomes, is read as a whole
    grows = not database and "time" in guessed.roles and not texts and outcome == "click"
    settings = ProjectSettings(
        source=Source(path=draft.source.path, table=True, read="ingest" if grows else "memory", sql=draft.source.sql),
        columns=Columns(map=tuple(f"{role}={column}" for role, column in guessed.roles.items()), ignore=tuple(ignored)),
        training=Training(outcome=outcome),
        privacy=Privacy(min_users=5 if "user" in guessed.roles else 0),
    )
    logged = open_source(path, calls.table_settings(settings), outcome=outcome)
    assert logged is not None  # noqa: S101 - a table is always read
    days = _days(table, guessed.roles.get("time"))
    how = "new files are added to log/" if grows else "the whole table is read when it changed"
    kind = f"a table with one row for each result; {how}"
    notes = tuple(redact(each, settings) for each in logged.notes)
    rows = tuple({name: str(value)[:WIDTH] for name, value in row.items()} for row in guessed.rows[:FIVE])
    return settings, Understood(
        folder.name, kind, rows, guessed.roles, features, ignored, days, _by_position(logged), notes
    )


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _after_click(table: Any, click: str, features: tuple[str, ...]) -> dict[str, str]:
    """Return columns that have a value only in clicked rows: what followed a click must not be a feature."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not click:
        return {}
    table = table.slice(0, ROWS)
    clicked = np.array(
        [str(value).lower() in ("1", "1.0", "true", "yes", "t", "y") for value in table[click].to_pylist()]
    )
    found = {}
    for name in features:
        column = table[name]
        if not _is_number(column.type):
            continue
        values = np.nan_to_num(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        if (values != 0).any() and not (values[~clicked] != 0).any():
            found[name] = "it has values only in clicked rows, so it is known after the click"
    return found


def _days(table: Any, time: str | None) -> tuple[str, ...]:
    if time is None or not len(table):
        return ()
    from clickprism.data.click_table import days_of

    days = days_of(table[time])
    known = days[np.isfinite(days)]
    return () if not len(known) else tuple(str(np.datetime64(int(day), "D")) for day in (known.min(), known.max()))


def _by_position(logged: Any) -> tuple[tuple[int, int, int], ...]:
    clicks = logged.clicks
    shown = np.bincount(clicks.positions, weights=clicks.list_impressions).astype(int)
    clicked = np.bincount(clicks.positions, weights=clicks.clicks, minlength=len(shown)).astype(int)
    return tuple((k, int(shown[k]), int(clicked[k])) for k in range(1, len(shown)) if shown[k])[:20]


def _head(file: Path, lines: int) -> list[str]:
    """Return the first lines of a text file, also of a compressed one."""
    import pyarrow as pa

    kind = {".gz": "gzip", ".zst": "zstd"}.get(file.suffix)
    with pa.input_stream(str(file), compression=kind) as raw, io.BufferedReader(raw) as stream:
        return [line.decode("utf-8", "replace") for line, _ in zip(stream, range(lines), strict=False)]


def _events(folder: Path, draft: ProjectSettings, files: list[Path]) -> tuple[ProjectSettings, Understood]:
    """Look at events: ingest a sample of them into a temporary log, and describe that."""
    from clickprism.log.engines.base import connect
    from clickprism.log.info import log_info
    from clickprism.log.store import LogStore

    groups: dict[str, list[Path]] = {}  # UBI keeps searches and events of a day in files of their own
    for file in files:
        groups.setdefault(re.sub(r"^[A-Za-z]+[-_.]?", "", file.name), []).append(file)
    names = sorted(groups)
    places = np.unique(np.linspace(0, len(names) - 1, SAMPLED // len(groups[names[0]]) or 1).astype(int))
    chosen = [file for place in places for file in groups[names[place]]]
    with TemporaryDirectory(prefix="clickprism-init-") as temporary:
        sample = Path(temporary) / "sample"
        sample.mkdir()
        lines = [_head(file, LINES) if file.suffix != ".parquet" else [] for file in chosen]
        for number, (file, text) in enumerate(zip(chosen, lines, strict=True)):
            name = f"{number}-{file.name.removesuffix('.gz').removesuffix('.zst')}"
            if file.suffix == ".parquet":
                os.symlink(file.absolute(), sample / name)
            else:
                (sample / name).write_text("".join(text), encoding="utf-8")
        rows = [row for text in lines for row in _objects(text)]
        ubi = any("action_name" in row or "query_response_hit_ids" in row for row in rows)
        base = _ordinal_base(rows) if ubi else -1
        source = Source(path=draft.source.path, schema="ubi" if ubi else "auto", ordinal_base=base)  # type: ignore[arg-type]
        settings = ProjectSettings(source=source, outputs=Outputs())
        place = Path(temporary) / "project"
        paths = [str(each) for each in sorted(sample.iterdir())]
        calls.ingest_files(place, settings, paths, lambda _: None)
        store = LogStore.open(place / calls.LOG)
        from clickprism.log.open_log import read_log

        logged = read_log(place / calls.LOG)
        with connect("duckdb", memory="1GB") as engine:
            info = log_info(store, engine)
        days = tuple(str(day) for day in (info.first_day, info.last_day) if day is not None)
        positions = tuple((each.position, each.shown, each.clicked) for each in info.positions[:20])
        if not info.users:
            settings = ProjectSettings(source=source, privacy=Privacy(min_users=0))
        roles = {
            "events": ", ".join(f"{count:,} {kind}s" for kind, count in info.kinds.items()),
            "users": f"{info.users:,}",
        }
        notes = ((f"The first position is called {base} in the events." if base >= 0 else ""), *logged.notes)
        first = tuple(
            {key: (value if isinstance(value, str) else json.dumps(value))[:WIDTH] for key, value in row.items()}
            for row in rows[:FIVE]
        )
        kind = f"{'UBI events' if ubi else 'events'} in {len(files):,} files; {len(chosen):,} were looked at"
    return settings, Understood(
        folder.name, kind, first, roles, logged.feature_names, {}, days, positions, tuple(filter(None, notes))
    )


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _ordinal_base(rows: list[dict[str, Any]]) -> int:
    """Return the smallest position of the events, 0 or 1; UBI does not define it."""
    found = []
    for row in rows:
        attributes = row.get("event_attributes")
        position = attributes.get("position") if isinstance(attributes, dict) else None
        ordinal = position.get("ordinal") if isinstance(position, dict) else None
        if isinstance(ordinal, int) and ordinal >= 0:
            found.append(ordinal)
    return min(1, min(found, default=1))
