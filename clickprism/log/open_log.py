"""Read a log of any kind into memory, and choose which of its sessions are used.

A source is a frame, a table or query with one row for each result, events, or what clickprism has written: an ingested
log, a session file, a simulated log. Events are ingested into a temporary log, or into a copy that is kept.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, Unpack, final

import numpy as np

from clickprism._util.files import sha256
from clickprism._util.tables import counted
from clickprism.data.click_table import NAMES, NO_TABLE, ColumnNames, Columns, TableSettings, read_click_table
from clickprism.data.clicks import load_clicks
from clickprism.data.encoding import Encoding
from clickprism.data.letor import OnError, PathLike
from clickprism.data.logged import Logged
from clickprism.data.sessions import read_session_file
from clickprism.data.tables import JSON, is_database, is_frame, is_table, read_source, to_arrow
from clickprism.errors import DataError, SettingError, UnsupportedError, original_names
from clickprism.log.load import merge_logged, read_store
from clickprism.log.read import SourceSettings, detect, find_inputs, local_copies
from clickprism.log.read.rows import DAYS
from clickprism.log.store import SETTINGS_FILE, LogStore, record_copy
from clickprism.types import Bool, Clicks, Int64, Lists, Text

Source: TypeAlias = Any
"""A frame, a path, the URL of a database, or a log that was read."""
Kind: TypeAlias = Literal["log", "events", "table", "sessions"]
EVENTS: Final = (".json", ".jsonl", ".ndjson")
EVENT_FIELDS: Final = {"kind", "event", "event_id", "action", "action_name", "features", "fields"}  # of no flat table
PACKED: Final = (".gz", ".zst")


def kind_of(source: str) -> Kind:
    """Return what a path or URL names; a simulated log (.npz) and a path that does not exist count as sessions.

    A row of a table is a result with its click; a row of events is anything that a user or the engine did.
    """
    path = Path(source)
    if (path / SETTINGS_FILE).exists():
        return "log"
    if is_database(source):
        return "table"
    try:
        files = find_inputs([source])
    except DataError:
        return "table" if is_table(source) else "sessions"
    if all(map(_is_events, files)):
        return "events"
    if path.is_file() and {"documents", "clicks"} <= _names_in(path):
        return "sessions"
    return "table" if is_table(source) or all(str(file).lower().endswith(JSON) for file in files) else "sessions"


def _is_events(file: Path) -> bool:
    """Return whether a file has raw events, not rows of a table: JSON lines, or UBI and Metarank in any format."""
    is_json = next((each for each in reversed(file.suffixes) if each not in PACKED), "") in EVENTS
    names = _names_in(file)
    if names & {*NAMES["document"]} and names & {*NAMES["click"]} and not names & EVENT_FIELDS:
        return False
    if is_json:
        return True
    try:
        return is_table(str(file)) and detect(file, SourceSettings()).schema in ("ubi", "metarank")
    except DataError:
        return False


def _names_in(file: Path) -> set[str]:
    """Return the names of the fields in the first row of a text file; none for another file."""
    line = _first_text(file) if not {".parquet", ".npz"} & {*file.suffixes} else ""
    if not line.startswith("{"):
        return {name.lower() for name in line.split("\t" if "\t" in line else ",")}
    try:
        return {str(name).lower() for name in json.loads(line)}
    except ValueError:
        return set()


def read_log(
    source: Source,
    *,
    copy: Path | None = None,
    note: Callable[[str], None] | None = None,
    **columns: Unpack[ColumnNames],
) -> Logged:
    """Read a log of any kind.

    A source is one of these; tables have one row for each result:

    - a frame of pandas, polars, pyarrow or DuckDB, or a dictionary of arrays
    - a CSV or Parquet file ("log.csv", "s3://bucket/log.parquet"), or a folder or pattern of such files
    - a database ("sqlite:///shop.db" or any URL of SQLAlchemy, "shop.duckdb"), with `sql`
    - events of OpenSearch UBI, Metarank or clickprism ("events.ndjson", "ubi.ndjson.gz"), which are ingested first
    - the folder of an ingested log, a session file, or a simulated log (.npz)

    Args:
        source: The log.
        copy: Folder in which raw events are ingested and kept, so that `clickprism log forget` can erase users from it
            and name what was made of it; by default the ingested log is temporary.
        note: Called with messages about the progress.
        columns: Which column of a table holds what (`query`, `document`, `position`, `click`, `search`, `time`, `user`,
            `randomised`, `shown`, `ranker`, `page`, `seen`, `grade`, `weight`), which columns are `features` (names, or
            "all others") and which of those are `categorical`, which are `outcomes`, and the query to a database
            (`sql`). A role without a name is looked for among the usual names. `notes` of the result says what was
            assumed.

    >>> rows = {"q": ["cat"] * 4, "sku": ["a", "b", "b", "a"], "rank": [1, 2, 1, 2], "clicked": [0, 1, 1, 0]}
    >>> log = read_log(rows, query="q", document="sku", position="rank", click="clicked")
    >>> log.clicks
    Clicks(2 ranked lists, 2 sessions, 2 clicks)
    >>> log.notes[0]
    'No column has the time: all rows count as one day.'
    """
    given: dict[str, Any] = {**columns}
    sql = given.pop("sql", None)
    if isinstance(source, Logged):
        if named := [name for name in columns if columns.get(name) is not None]:
            raise SettingError(named[0], columns.get(named[0]), "be omitted: a log that was read has its columns")
        return source
    if is_frame(source):
        if sql is not None:
            raise SettingError("sql", sql, "be omitted: it is for databases and files")
        return read_click_table(to_arrow(source), Columns.of(given))
    if not isinstance(source, str | Path):
        raise TypeError(f"read_log takes a frame, a path or the URL of a database, not {type(source).__name__}")
    with local_copies([str(source)], note=note) as (local,):
        text, reading = str(local), ReadSettings(on_error="quarantine", copy=copy)
        if sql is not None or kind_of(text) == "table":
            return read_click_source(text, Columns.of(given), sql=sql)
        return read_logged(text, settings=reading, roles=_session_roles(text, given), note=note)


def open_source(
    source: str,
    table: TableSettings = NO_TABLE,
    *,
    outcome: str = "click",
    settings: ReadSettings | None = None,
    columns: Collection[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Logged:
    """Read a log of any kind as the commands do; `note` is called with what was assumed.

    Args:
        source: A path, or the URL of a database.
        table: Which column of a table holds what.
        outcome: Outcome that the log is read for.
        settings: How to read a log that is not a table.
        columns: Other columns of a session file to keep for each list.
        note: Called with messages about the progress, and with the notes of the log.
    """
    settings = settings or READ
    with local_copies([source], note=note) as (local,):
        text = str(local)
        if table.query is not None or kind_of(text) == "table":
            logged = read_click_source(text, table.columns(outcome), sql=table.query)
        else:
            _session_roles(source, {name: getattr(table, name) for name in ("features", "ignore", "categorical")})
            roles = _session_roles(source, dict(each.split("=", 1) for each in table.map), field="map")
            logged = read_logged(text, settings=settings, roles=roles, columns=columns, note=note)
    for sentence in logged.notes:
        note(sentence)
    return logged


def read_click_source(
    source: str, columns: Columns, *, sql: str | None = None, encoding: Encoding | None = None
) -> Logged:
    """Read files or a query with one row for each result; lines that are no rows are counted."""
    read = read_source(source, sql=sql, text=columns.is_id)
    logged = read_click_table(read.table, columns, source=source, encoding=encoding)
    if not read.broken:
        return logged
    account = {**logged.account, "lines not used, another number of fields": read.broken}
    note = f"Not used: {counted(read.broken, 'line')} of the files, such as {read.example}."
    return replace(logged, account=account, notes=(*logged.notes, note))


def ingest_events(source: str, folder: Path, *, note: Callable[[str], None] | None = None) -> Path:
    """Ingest raw events into a log, which may have a part of them already, and return its folder."""
    from clickprism.log.ingest import ingest

    if (folder / SETTINGS_FILE).exists():
        known = {*LogStore.open(folder).table("files").read(["file_id"])["file_id"].to_pylist()}
        if known - {sha256(file) for file in find_inputs([source])}:
            remedy = "Choose another --out or --copy, or delete the folder"
            raise DataError(f"was made from other files than {source}", file=folder, remedy=remedy)
    ingest([source], folder, max_bad_ratio=1.0, note=note)
    return folder


def _first_text(path: Path) -> str:
    """Return the first line of a text file, compressed or not."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as raw, io.BufferedReader(raw) as stream:
            return stream.readline(1 << 20).decode("utf-8-sig", "replace").strip()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from None


def _session_roles(source: str, given: Mapping[str, Any], *, field: str = "") -> dict[str, str]:
    """Return which columns of a session file have a role, if `source` is one; other names of columns are refused."""
    roles = {name: value for name, value in given.items() if value}
    if not roles:
        return {}
    allowed = [*SESSION_ROLES] if kind_of(source) == "sessions" else []
    if wrong := [name for name in roles if name not in allowed]:
        only = f"; a session file has the roles {', '.join(allowed)}" if allowed else ""
        raise SettingError(field or wrong[0], roles[wrong[0]], f"be omitted: {source} is not a table{only}")
    return roles


SESSION_ROLES: Final = {"time": DAYS, "ranker": ("ranker", "policy"), "randomised": ("randomised", "randomized")}
"""Roles of the columns of a session file, and the names that such columns usually have."""
FLAGS: Final = dict.fromkeys(("1", "true", "yes"), True) | dict.fromkeys(("0", "false", "no", ""), False)
_DATE: Final = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})([T ].*)?")


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """How a log is read.

    Attributes:
        on_error: Stop at the first broken line of a session file (raise), or skip and count such lines (quarantine).
        memory: Memory that the engine may use to read an ingested log, such as 700MB.
        copy: Folder in which a log of raw events is ingested and kept, so that `clickprism log forget` can erase users
            from it. By default the folder log beside the result; without a result it is temporary.
    """

    on_error: OnError = "raise"
    memory: str = "700MB"
    copy: Path | None = None


READ: Final = ReadSettings()


def read_logged(
    path: PathLike,
    *,
    lists: Lists | None = None,
    settings: ReadSettings = READ,
    roles: Mapping[str, str] | None = None,
    columns: Collection[str] = (),
    note: Callable[[str], None] | None = None,
) -> Logged:
    r"""Read a log that is not a table, with everything it records about each list; what it does not record is None.

    Args:
        path: An ingested log (a folder), raw events, which are ingested first, a session file (TSV, CSV), or a
            simulated log (.npz).
        lists: The documents of a simulated log, for their features; without them there are none.
        settings: How to read it.
        roles: Column of a session file with the time, the ranker, and whether the list was in random order
            (`randomised`); by default they have the usual names.
        columns: Other columns of a session file to keep for each list, such as the device.
        note: Called with messages about the progress.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.tsv"
    ...     rows = ["cat\ta,b\tb\t2026-03-01", "cat\ta,b\tb\t2026-03-01", "cat\ta,b\tb\t2026-03-03"]
    ...     _ = file.write_text("\n".join(["query\tdocuments\tclicks\tday", *rows]))
    ...     log = read_logged(file)
    >>> log.clicks, log.days.tolist(), log.policy, log.has_features
    (Clicks(2 ranked lists, 3 sessions, 3 clicks), [0, 2], None, False)
    """
    file, kind = Path(path), kind_of(str(path))
    if kind == "events":
        with (
            TemporaryDirectory(prefix="clickprism-log-") as folder,
            original_names({str(Path(folder) / "log"): str(file)}),
        ):
            log = ingest_events(str(file), settings.copy or Path(folder) / "log", note=note)
            if settings.copy is not None:
                record_copy(log)
            return read_store(log, memory=settings.memory, texts=True, note=note)
    if kind == "log" or file.is_dir():
        if lists is not None:
            raise SettingError("data", "given", "not be given with a folder: a log has its own documents")
        return read_store(file, memory=settings.memory, note=note)
    if ".parquet" in file.suffixes:
        remedy = f"Ingest it first: clickprism log ingest {file.name} --into mylog"
        raise DataError("is a file of events, not a log", file=file, remedy=remedy)
    if not file.exists():
        remedy = "Name a folder that `clickprism log ingest` created, or a session file"
        raise DataError("there is no such file or folder", file=file, remedy=remedy)
    if lists is not None:
        return merge_logged(Logged(load_clicks(file, lists)))
    return of_sessions(read_session_file(file, on_error=settings.on_error), roles, columns=columns)


def of_sessions(log: Logged, roles: Mapping[str, str] | None = None, *, columns: Collection[str] = ()) -> Logged:
    """Return the sessions of a file with what its columns say of each, and of the others only these columns."""
    roles = roles or {}
    days, rankers, random = (_column(log, roles.get(role), role) for role in SESSION_ROLES)
    notes = log.notes if days is not None else ("No column has the day: all searches count as one day.", *log.notes)
    kinds, policy = (None, None) if rankers is None else np.unique(rankers[1], return_inverse=True)
    return merge_logged(
        replace(
            log,
            days=None if days is None else _days(*days, asked="time" in roles),
            policy=None if policy is None else policy.astype(np.int64),
            policies=() if kinds is None else tuple(each or "not named" for each in kinds.tolist()),
            randomised=None if random is None else np.repeat(_flags(*random), np.diff(log.clicks.offsets)),
            columns={name: column(log, name) for name in columns},
            notes=notes,
        )
    )


def _column(log: Logged, wanted: str | None, role: str) -> tuple[str, Text] | None:
    if wanted is not None and wanted not in log.columns:
        has = ", ".join(log.columns) or "none besides query, documents and clicks"
        raise DataError(f"the log has no column {wanted!r} for the {role}", remedy=f"It has {has}")
    found = wanted or next((name for name in SESSION_ROLES[role] if name in log.columns), None)
    return None if found is None else (found, log.columns[found])


def _days(name: str, values: Text, *, asked: bool) -> Int64 | None:
    """Return days as numbers from the first one on; None if a column that was not asked for does not hold days."""
    kinds, place = np.unique(values, return_inverse=True)
    texts = [each.strip() for each in kinds.tolist()]
    dates = [_DATE.fullmatch(each) for each in texts]
    wrong = next((each for each, date in zip(texts, dates, strict=True) if date is None), texts[0])
    whole = asked or name in DAYS[:2]
    try:
        if any(dates) or not whole:
            named = ["wrong" if date is None else "-".join(date.groups()[:3]) for date in dates]
            days = np.array(named, dtype="datetime64[D]").astype(np.int64)
        else:
            days = np.array([int(each) for each in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        if not asked:
            return None
        remedy = "Give days as 2026-03-01, or as whole numbers"
        raise DataError(f"column {name!r} has a value that is not a day: {wrong!r}", remedy=remedy) from None
    numbers: Int64 = (days - days.min())[place]
    return numbers


def _flags(name: str, values: Text) -> Bool:
    kinds, place = np.unique(values, return_inverse=True)
    texts = [each.strip().lower() for each in kinds.tolist()]
    wrong = [each for each in texts if each not in FLAGS]
    if wrong:
        raise DataError(f"column {name!r} has {wrong[0]!r}, which is neither 1 nor 0", remedy="Give 1 or 0")
    flags: Bool = np.array([FLAGS[each] for each in texts], dtype=np.bool_)[place]
    return flags


QUERY_FREQUENCY: Final = "query-frequency"
BUCKETS: Final = ("head", "middle", "tail")
COMPUTED: Final = (QUERY_FREQUENCY, "ranker", "randomised")  # columns that are not read from a session file
OTHER: Final = "other values"
NAMED: Final = 10  # values of a column that an error lists


@final
@dataclass(frozen=True, kw_only=True)
class ColumnSettings:
    """Which sessions to use, and how to split them.

    Attributes:
        where: Use only the sessions with this value, written as column=value; may be repeated.
        by: Compare the values of this column, such as device. Also: query-frequency (head, middle and tail queries),
            ranker, randomised.
        min_sessions: Values of the column of --by with fewer sessions are added together as "other values".
    """

    where: tuple[str, ...] = ()
    by: str | None = None
    min_sessions: int = 1000

    def __post_init__(self) -> None:
        if self.min_sessions < 1:
            raise SettingError("min_sessions", self.min_sessions, "be at least 1")
        for condition in self.where:
            if "=" not in condition:
                raise SettingError("where", condition, "be written as column=value")

    @property
    def columns(self) -> list[str]:
        """Return the columns that must be read from a session file."""
        names = [condition.partition("=")[0] for condition in self.where]
        return [name for name in dict.fromkeys([*names, *([self.by] if self.by else [])]) if name not in COMPUTED]


def column(logged: Logged, name: str) -> Text:
    """Return the value of a column for each ranked list, [ranked lists]."""
    if name in logged.columns:
        return logged.columns[name]
    if name == QUERY_FREQUENCY:
        return query_frequency(logged.clicks)
    known = list(logged.columns)
    if logged.policy is not None:
        if name == "ranker":
            named: Text = np.array(logged.policies, dtype=np.str_)[logged.policy]
            return named
        known.append("ranker")
    if logged.randomised is not None:
        if name == "randomised":
            return np.where(np.logical_and.reduceat(logged.randomised, logged.clicks.offsets[:-1]), "1", "0")
        known.append("randomised")
    raise DataError(f"the log has no column {name!r}", remedy=f"It has {', '.join([*known, QUERY_FREQUENCY])}")


def where(logged: Logged, settings: ColumnSettings) -> Logged:
    """Return the ranked lists that meet all conditions."""
    for condition in settings.where:
        name, _, value = condition.partition("=")
        values = column(logged, name)
        chosen = values == value
        if not chosen.any():
            found = np.unique(values).tolist()
            shown = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
            raise DataError(f"no session has {condition}", remedy=f"The column has {shown}")
        logged = logged.take(chosen)
    return logged


def contexts(logged: Logged, settings: ColumnSettings) -> Text | None:
    """Return the context of each ranked list: its value of `by`, where rare values are one; None without `by`."""
    if settings.by is None:
        return None
    names, number = np.unique(column(logged, settings.by), return_inverse=True)
    sessions = np.bincount(number, weights=logged.clicks.impressions)
    common = sessions >= settings.min_sessions
    if not common.any():
        raise UnsupportedError(
            f"no value of {settings.by} has {settings.min_sessions:,} sessions (the largest has {sessions.max():,.0f})",
            remedy="Lower --min-sessions, or omit --by",
        )
    kept: Text = np.where(common, names, OTHER)[number]
    return kept


def query_frequency(clicks: Clicks) -> Text:
    """Return the bucket of each ranked list: the head are the most frequent queries with a third of the sessions.

    A query is in one bucket, that of its middle session.
    """
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    asked = np.bincount(query, weights=clicks.impressions, minlength=len(clicks.lists))
    order = np.argsort(-asked, kind="stable")
    middle = np.empty(len(asked))
    middle[order] = np.cumsum(asked[order]) - asked[order] / 2
    bucket = np.minimum((3 * middle / asked.sum()).astype(np.int64), 2)
    names: Text = np.array(BUCKETS, dtype=np.str_)[bucket[query]]
    return names
