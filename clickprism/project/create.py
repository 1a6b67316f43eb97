"""`init`: look at the data, write `clickprism.toml`, and show what was understood."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import create_folder, write_file
from clickprism._util.tables import Table, counted
from clickprism.data.click_table import LEAKS, TableSettings, read_click_table, text_rows
from clickprism.data.encoding import days_of
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError, original_names
from clickprism.project.settings import FILE, Privacy, ProjectSettings, Source, Training, as_toml, redact
from clickprism.project.source import LOG, ingest_files, is_sessions, safe_errors, source_files

LINES: Final = 50_000  # lines read of each sampled file of events
SAMPLED: Final = 6  # files of events that are looked at
FIVE: Final = 5
NEAR: Final = 2  # folders up to which a source is named relative to the project
WIDTH: Final = 40  # characters of a cell


@final
@dataclass(frozen=True, kw_only=True)
class Understood:
    """What `init` detected in the data.

    Attributes:
        project: Folder of the project.
        kind: What the source is.
        rows: The first rows, by column.
        roles: Column of each role.
        features: Names of the features.
        ignored: Columns that are not features, with the reason.
        days: First and last day; empty if the rows have no times.
        positions: Documents shown and clicked by position, in what was looked at.
        notes: What was assumed.
    """

    project: str
    kind: str
    rows: tuple[Mapping[str, str], ...]
    roles: Mapping[str, str]
    features: tuple[str, ...] = ()
    ignored: Mapping[str, str]
    days: tuple[str, ...] = ()
    positions: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return five rows, the columns by role, the days, and the clicks by position."""
        header = list(dict.fromkeys(name for row in self.rows for name in row))[:8] or ["no rows"]
        rows = [[row.get(name, "") for name in header] for row in self.rows]
        features = f"{len(self.features)}: {', '.join(self.features[:12])}{' ...' * (len(self.features) > 12)}"
        about = [
            ["source", self.kind],
            ["days", " to ".join(self.days) or "not recorded"],
            *map(list, self.roles.items()),
            ["features", features if self.features else "none"],
            *([f"ignored: {name}", reason] for name, reason in self.ignored.items()),
        ]
        shown = [
            [f"{k}", f"{n:,}", f"{clicked:,}", f"{clicked / max(n, 1):.2%}"] for k, n, clicked in self.positions[:10]
        ]
        return [
            Table("The first rows", header, rows),
            Table("", [self.project, ""], about),
            Table("Clicks by position, in what was looked at", ["position", "shown", "clicked", "click rate"], shown),
            *([Table("Notes", ["", ""], [["", note] for note in self.notes])] if self.notes else []),
        ]


def init(
    folder: Path,
    source: str,
    *,
    map: Sequence[str] = (),  # noqa: A002 - the name of the option and of the setting
    mapping: Path | None = None,
    sql: str = "",
    outcome: str = "click",
    replace: bool = False,
) -> Understood:
    """Create a project: look at the source, and write `clickprism.toml` with what was found out.

    Args:
        folder: Folder of the project; it may exist if it has no `clickprism.toml`.
        source: File, folder, pattern, URL of a database, or remote folder, from the current folder.
        map: Role and column of a table, such as "document=sku", for columns without a usual name.
        mapping: TOML file that says which field of the events holds what, for events in no known format.
        sql: Query to a database.
        outcome: What rankers are trained for.
        replace: Replace an existing `clickprism.toml`.
    """
    folder = folder.absolute()
    if (folder / FILE).exists() and not replace:
        raise DataError("exists already", file=folder / FILE, remedy="Edit it, or add --replace to write it again")
    about = Source(
        path=source if "://" in source else _near(source, folder),
        mapping="" if mapping is None else _near(str(mapping), folder),
        table=True,
        read="memory",
        sql=sql,
    )
    draft = ProjectSettings(source=about, columns=TableSettings(map=tuple(map)))
    create_folder(folder)
    with safe_errors(draft):
        settings, found = _look(folder, draft, outcome)
    write_file(folder / FILE, as_toml(settings))
    return found


def _near(path: str, folder: Path) -> str:
    """Return a path relative to a folder, or an absolute path if it is far away."""
    near = os.path.relpath(path, folder)
    return near if near.count("..") <= NEAR else os.path.abspath(path)


def _look(folder: Path, draft: ProjectSettings, outcome: str) -> tuple[ProjectSettings, Understood]:
    from clickprism.log.open_log import kind_of

    if draft.source.database:
        if not draft.source.sql:
            raise SettingError("sql", None, 'give the query to read the database, such as --sql "select * from clicks"')
        return _table(folder, draft, outcome, draft.path(folder))
    files = [Path(name) for name in source_files(folder, draft, lambda _: None)]
    if (files[0].parent / "log.toml").exists():
        raise DataError("is an ingested log, not a source", file=files[0].parent, remedy="Name the raw files")
    if draft.source.mapping or (not draft.columns.map and kind_of(str(files[0])) == "events"):
        return _events(folder, draft, files)
    if is_sessions(str(files[0])):
        return _sessions(folder, draft, files)
    return _table(folder, draft, outcome, str(files[0]))


def _sessions(folder: Path, draft: ProjectSettings, files: list[Path]) -> tuple[ProjectSettings, Understood]:
    """Look at a session file: one row for each search."""
    if len(files) > 1:
        raise DataError("several session files cannot be read together", file=files[0].parent, remedy="Join them")
    from clickprism.log.open_log import read_log

    logged = read_log(files[0])
    names, *lines = [line.rstrip("\n").split("\t") for line in _head(files[0], FIVE + 1)]
    return draft, Understood(
        project=folder.name,
        kind="sessions: one row for each search",
        rows=tuple({name: cell[:WIDTH] for name, cell in zip(names, line, strict=False)} for line in lines),
        roles={},
        ignored={},
        positions=_by_position(logged),
        notes=logged.notes,
    )


def _table(folder: Path, draft: ProjectSettings, outcome: str, path: str) -> tuple[ProjectSettings, Understood]:
    """Look at a table: which column holds what, and which columns are known only after a click."""
    from clickprism.data.tables import read_source

    columns = draft.table.columns(outcome)
    read = read_source(path, sql=draft.table.query, text=columns.is_id)
    columns = columns.found_in(read.table.column_names, path)
    logged, roles = read_click_table(read.table, columns, source=path), columns.roles()
    encoding = logged.encoding
    used = () if encoding is None else encoding.features
    reasons = {} if encoding is None else encoding.ignored
    ignored = {name: reason for name, reason in reasons.items() if reason in LEAKS}
    # rows of a log with times grow by files; a table that must be encoded, or has other outcomes, is read as a whole
    numbers = all(feature.kind == "number" for feature in used)
    grows = not draft.source.database and "time" in roles and numbers and outcome == "click"
    settings = replace(
        draft,
        source=replace(draft.source, read="ingest" if grows else "memory"),
        columns=TableSettings(map=tuple(f"{role}={name}" for role, name in roles.items()), ignore=tuple(ignored)),
        training=Training(outcome=outcome),
        privacy=Privacy(min_users=5 if "user" in roles else 0),
    )
    days = np.zeros(0) if columns.time is None else days_of(read.table[columns.time])
    days = days[np.isfinite(days)]
    how = "new files are added to log/" if grows else "the whole table is read when it changed"
    notes = [
        *logged.notes,
        *([f"Not used: {counted(read.broken, 'line')}, such as {read.example}."] if read.broken else []),
    ]
    return settings, Understood(
        project=folder.name,
        kind=f"a table with one row for each result; {how}",
        rows=tuple({role: value[:WIDTH] for role, value in row.items()} for row in text_rows(read.table, columns)),
        roles=roles,
        features=tuple(feature.name for feature in used),
        ignored=ignored,
        days=tuple(str(np.datetime64(int(day // 1), "D")) for day in (days.min(), days.max())) if len(days) else (),
        positions=_by_position(logged),
        notes=tuple(redact(note, settings) for note in notes),
    )


def _events(folder: Path, draft: ProjectSettings, files: list[Path]) -> tuple[ProjectSettings, Understood]:
    """Look at events: ingest a sample of them into a temporary log, and describe that."""
    from clickprism.log.engines.base import connect
    from clickprism.log.info import log_info
    from clickprism.log.open_log import read_log
    from clickprism.log.store import LogStore

    groups: dict[str, list[Path]] = {}  # UBI keeps searches and events of a day in separate files
    for file in files:
        groups.setdefault(re.sub(r"^[A-Za-z]+[-_.]?", "", file.name), []).append(file)
    names = sorted(groups)
    places = np.unique(np.linspace(0, len(names) - 1, SAMPLED // len(groups[names[0]]) or 1).astype(int))
    chosen = [file for place in places for file in groups[names[place]]]
    rows: list[dict[str, Any]] = []
    copies: dict[str, str] = {}
    with TemporaryDirectory(prefix="clickprism-init-") as temporary:
        sample, project = Path(temporary) / "sample", Path(temporary) / "project"
        sample.mkdir()
        for number, file in enumerate(chosen):
            copy = sample / f"{number}-{file.name.removesuffix('.gz').removesuffix('.zst')}"
            copies[str(copy)] = str(file)
            if file.suffix == ".parquet":
                os.symlink(file.absolute(), copy)
                continue
            lines = _head(file, LINES)
            copy.write_text("".join(lines), encoding="utf-8")
            for line in lines[: FIVE - len(rows)]:
                with suppress(ValueError):
                    rows += [row] if isinstance(row := json.loads(line), dict) else []
        settings = replace(draft, source=replace(draft.source, table=False, read="ingest"))
        sampled = settings
        if draft.source.mapping:
            sampled = replace(settings, source=replace(settings.source, mapping=str(folder / draft.source.mapping)))
        with original_names(copies):
            ingest_files(project, sampled, sorted(copies), lambda _: None)
        logged, log = read_log(project / LOG), LogStore.open(project / LOG)
        base = log.settings.source.ordinal_base
        if base is not None:
            settings = replace(settings, source=replace(settings.source, ordinal_base=1 if base else 0))
        with connect("duckdb", memory="1GB") as engine:
            info = log_info(log, engine)
    if not info.users:
        settings = replace(settings, privacy=Privacy(min_users=0))
    kinds = ", ".join(f"{count:,} {kind}s" for kind, count in info.kinds.items())
    form = "events" if base is None else "UBI events"
    first = [{key: each if isinstance(each, str) else json.dumps(each) for key, each in row.items()} for row in rows]
    return settings, Understood(
        project=folder.name,
        kind=f"{form} in {counted(len(files), 'file')}; {len(chosen):,} looked at",
        rows=tuple({key: text[:WIDTH] for key, text in row.items()} for row in first),
        roles={"events": kinds, "users": f"{info.users:,}"},
        features=logged.feature_names,
        ignored={},
        days=tuple(str(day) for day in (info.first_day, info.last_day) if day is not None),
        positions=tuple((each.position, each.shown, each.clicked) for each in info.positions[:20]),
        notes=(*([] if base is None else [f"The first position is called {base} in the events."]), *logged.notes),
    )


def _by_position(logged: Logged) -> tuple[tuple[int, int, int], ...]:
    clicks = logged.clicks
    shown = np.bincount(clicks.positions, weights=clicks.list_impressions).astype(int)
    clicked = np.bincount(clicks.positions, weights=clicks.clicks, minlength=len(shown)).astype(int)
    return tuple((k, int(shown[k]), int(clicked[k])) for k in range(1, len(shown)) if shown[k])[:20]


def _head(file: Path, lines: int) -> list[str]:
    """Return the first lines of a text file, also of a compressed one."""
    import pyarrow as pa

    with pa.input_stream(str(file), compression="detect") as raw, io.BufferedReader(raw) as stream:
        return [line.decode("utf-8", "replace") for line, _ in zip(stream, range(lines), strict=False)]
