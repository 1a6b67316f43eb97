"""Erase users: afterwards the log is as if it had never had their rows.

The rows of the users leave `events` (only files that hold them are rewritten), `quarantine`, and the batches that wait
in the inbox of a service. What was derived from them goes too: sessions of the days they touch are rebuilt; partials,
windows, snapshots and the examination models fitted to those days are deleted; and every file that is in no table any
more is deleted at once, so that earlier versions cannot be read. Derived data goes first, so that nobody reads it after
a crash. The next command that writes to the log finishes an interrupted erasure: the users, their searches and the days
are in a file until all is done. The ledger `files` stays: it counts what came in. Files that were exported from the log
are named, with the command that rebuilds each.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file, read_json, sync, write_file
from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.log.ingest.stage import GROUP_ROWS, event_writer
from clickprism.log.sessions import update_sessions
from clickprism.log.store import COLUMNS_FILE, PENDING, LogStore, copies_of
from clickprism.log.table import by_day, writing
from clickprism.types import Bool

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.table import LogTable

DROPPED: Final = ("week", "month", "snapshots")
INBOX: Final = ".inbox"
"""Folder of the batches that a service has accepted and not yet ingested: JSON lines, compressed by gzip."""
USER_FIELDS: Final = ("user_id", "client_id", "user")
SEARCH_FIELDS: Final = ("search_id", "query_id", "ranking", "id")
_TEXTS: Final = ("event_id", "query", "agent", "features")
_BATCH: Final = 10_000
_LETTER: Final = rb"[A-Za-z0-9_\x80-\xff-]"
_JOINT: Final = rb"[.@:]"
_TOKEN: Final = re.compile(rb"[A-Za-z0-9_\x80-\xff.@:-]+")


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What `forget` erased, or would erase.

    Attributes:
        rows: Number of rows removed from `events`.
        files: Number of files of `events` that were rewritten.
        quarantined: Number of rows removed from `quarantine`.
        waiting: Number of rows removed from batches that wait in the inbox of a service.
        days: Days whose sessions were rebuilt.
        snapshots: Whether the click features were deleted.
        models: Names of the examination models that were deleted.
        outputs: Files written from this log before, and copies that commands made of its raw events; they may contain
            the user. Each with the command that rebuilds it, or that erases the user from it.
        dry_run: Whether nothing was written.
    """

    rows: int = 0
    files: int = 0
    quarantined: int = 0
    waiting: int = 0
    days: tuple[date, ...] = ()
    snapshots: bool = False
    models: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False

    def tables(self) -> list[Table]:
        """Return one row for each kind of data, and the files to rebuild."""
        rows = [
            ["rows of events", f"{self.rows:,}"],
            ["files of events rewritten", f"{self.files:,}"],
            ["rows in quarantine", f"{self.quarantined:,}"],
            ["rows waiting in the inbox", f"{self.waiting:,}"],
            ["days of sessions rebuilt", f"{len(self.days):,}"],
            ["examination models deleted", f"{len(self.models):,}"],
            ["click features deleted", "all" if self.snapshots else "none"],
        ]
        tables = [Table("", ["would erase" if self.dry_run else "erased", ""], rows)]
        if self.outputs:
            made = [[path, command] for path, command in self.outputs]
            tables.append(Table("", ["outside the log; may contain the users", "rebuild or erase with"], made))
        return tables


def forget(store: LogStore, engine: Engine, users: Sequence[str], *, dry_run: bool = False) -> Forgotten:
    """Erase all rows of users, also rows without a user id that belong to a search of one of the users."""
    with store.lock():
        begun = _Begun.read(store)
        everyone = sorted({*users, *begun.users})
        if not everyone:
            raise SettingError("user", None, "name at least one user, as no interrupted erasure is left to finish")
        if not all(everyone):
            raise SettingError("user", "", "be the id of a user")
        searches = begun.searches | _searches(store.table("events").files(), everyone)
        mentions = _with_broken_searches(store, Mentions.of_log(store, everyone, searches))
        return _forget(store, engine, mentions, begun.days, dry_run=dry_run)


def _forget(store: LogStore, engine: Engine, mentions: Mentions, days: set[date], *, dry_run: bool) -> Forgotten:
    events, quarantine, pending = store.table("events"), store.table("quarantine"), store.folder / PENDING
    found = _holding(events, mentions)
    counts = {file: sum(mentions.in_batch(each).sum() for each in _batches(file)) for file in quarantine.files()}
    broken = {file: int(count) for file, count in counts.items() if count}
    headers = [file for file in quarantine.files() if file not in broken and mentions.in_headers(file)]
    batches = {path: rows for path in _waiting(store) if (rows := len(_named_lines(path, mentions)))}
    touched = days | {day - back for day in found for back in (timedelta(), timedelta(days=1))}
    models = [model for model in (store.folder / "models").glob("*.json") if _learned(model, touched)]
    anything = bool(touched or broken or headers or batches or pending.exists())
    rebuilt = tuple(sorted(touched & {*events.days(), *store.table("sessions").days()}))
    result = Forgotten(
        rows=sum(count for files in found.values() for count in files.values()),
        files=sum(len(files) for files in found.values()),
        quarantined=sum(broken.values()),
        waiting=sum(batches.values()),
        days=rebuilt,
        snapshots=bool(touched) and bool(store.table("snapshots").files()),
        models=tuple(sorted(model.stem for model in models)),
        outputs=(*store.outputs().items(), *_copies(store, mentions)) if anything else (),
        dry_run=dry_run,
    )
    if dry_run:
        return result
    if anything:
        _Begun({*mentions.users}, {*mentions.searches}, touched).write(store)
        _drop(store, touched, models)
        for path in batches:
            _rewrite_batch(path, mentions)
        _rewrite_columns(store.folder / COLUMNS_FILE, mentions)
        _erase(events, [file for counts in found.values() for file in counts], mentions)
        _rewrite(quarantine, [*broken, *headers], mentions)
        update_sessions(store, engine, rebuilt)
    for name in ("events", "quarantine", "sessions", "partials"):  # a run that was killed may have left files of them
        store.table(name).sweep()
    with store.staging():  # it deletes the temporary files of processes that were killed, which may hold rows too
        pending.unlink(missing_ok=True)
    sync(store.folder)
    return result


def _copies(store: LogStore, mentions: Mentions) -> list[tuple[str, str]]:
    """Return the copies that other commands made of the raw events of a log, with the command that erases the users."""
    users = " ".join(f"--user {shlex.quote(user)}" for user in sorted(mentions.users))
    return [
        (str(copy), f"clickprism log forget {shlex.quote(str(copy))} {users}")
        if readable
        else (str(copy), f"rm -r {shlex.quote(str(copy))}  # cannot be read, so it may be a copy of this log")
        for copy, readable in copies_of(store)
    ]


@dataclass(frozen=True)
class _Begun:
    """Users, searches and days of an erasure that was interrupted; all empty if there is none."""

    users: set[str]
    searches: set[str]
    days: set[date]

    @classmethod
    def read(cls, store: LogStore) -> _Begun:
        if not (store.folder / PENDING).exists():
            return cls(set(), set(), set())
        values = read_json(store.folder / PENDING, remedy="Run forget again with the ids of its users")
        return msgspec.convert({"searches": [], **values}, cls)

    def write(self, store: LogStore) -> None:
        with writing(store.folder):
            write_file(store.folder / PENDING, msgspec.json.encode(self, order="sorted"))


class Mentions:
    """Finds the rows of users, and rows that name one.

    The user of a row that is a JSON object is in `user_id`, `client_id`, `user`, or the field of the mapping. A row
    without a user belongs to a user if a text in it is the id, or if its search is the user's. A longer text that
    contains the id, such as a URL or JSON in a text, names the user in any row. In rows that are not JSON the id must
    be a whole word, in any way that CSV or JSON may write it, so that `u1` is found in neither `u12` nor `u1.5`.

    Args:
        users: Ids of the users.
        searches: Ids of the users' searches.
        user_fields: More names of the field with the user id, such as those of the mapping; dots lead into objects.
        search_fields: The same for the search id.

    >>> found = Mentions(["u1"], ["s7"])
    >>> found.in_row(b'{"user_id": "u1", "position": "x"}'), found.in_row(b'{"user_id": "u2", "document_id": "u1"}')
    (True, False)
    >>> found.in_row(b"s,u1,3"), found.in_row(b"s,u1.5,3"), found.in_row(b"s7,,3"), found.in_row(b'{"url": "/?id=u1"}')
    (True, False, True, True)
    """

    def __init__(
        self,
        users: Iterable[str],
        searches: Iterable[str] = (),
        *,
        user_fields: Iterable[str] = (),
        search_fields: Iterable[str] = (),
    ) -> None:
        self.users, self.searches = frozenset(users), frozenset(searches)
        self._user_fields, self._search_fields = {*USER_FIELDS, *user_fields}, {*SEARCH_FIELDS, *search_fields}
        self._forms = sorted({form for user in self.users for form in _spelled(user)})
        self._word = _words(self._forms)
        spelled = {search.encode(errors="surrogateescape") for search in self.searches}
        self._tokens = {form for form in spelled if _TOKEN.fullmatch(form)}
        self._others = _words(sorted(spelled - self._tokens)) if spelled - self._tokens else None

    @classmethod
    def of_log(cls, store: LogStore, users: Iterable[str], searches: Iterable[str]) -> Mentions:
        """Return the object that finds rows of users in a log, also in the fields of its mapping."""
        columns = store.settings.source.mapping.columns
        user, search = ([columns[name]] if name in columns else [] for name in ("user_id", "search_id"))
        return cls(users, searches, user_fields=user, search_fields=search)

    def in_row(self, raw: bytes, reason: bytes = b"") -> bool:
        """Return whether a broken row belongs to a user, or names one."""
        leaves = _parsed(raw)
        if leaves is None:
            return any(self._word.search(text) for text in (raw, reason)) or self._in_search(raw)
        theirs = [value for path, value in leaves if _is_field(path, self._user_fields)]
        texts = [value for _, value in leaves if isinstance(value, str)]
        if any(str(value) in self.users for value in theirs or texts):
            return True
        if not theirs and not self.searches.isdisjoint(self._searches_of(leaves)):
            return True
        return any(self.in_text(text) for text in texts if text not in self.users)

    def in_text(self, text: str) -> bool:
        """Return whether a text contains the id of a user as a word."""
        return bool(self._word.search(text.encode(errors="surrogateescape")))

    def searches_in(self, raw: bytes) -> list[str]:
        """Return the searches that a JSON row names."""
        leaves = _parsed(raw)
        return [] if leaves is None else self._searches_of(leaves)

    def in_batch(self, batch: pa.RecordBatch) -> Bool:
        """Return which rows of quarantine (columns raw and reason) belong to users, or name one, [rows]."""
        columns = [batch.column(name).cast(pa.large_binary()) for name in ("raw", "reason")]
        maybe = np.full(batch.num_rows, bool(self.searches))
        for values in columns:
            for form in (*self._forms, b"\\"):
                maybe |= _contains(values, form)
        named = np.zeros(batch.num_rows, dtype=bool)
        for row in np.flatnonzero(maybe):
            raw, reason = (values[int(row)].as_py() or b"" for values in columns)
            named[row] = self.in_row(raw, reason)
        return named

    def in_headers(self, file: str) -> bool:
        """Return whether a header in a file of quarantine names a user: if the first line of a CSV file is a row."""
        headers = pq.read_table(file, columns=["header"], partitioning=None)["header"].unique().to_pylist()
        return any(header and self.in_text(header) for header in headers)

    def in_events(self, batch: pa.RecordBatch) -> Bool:
        """Return which events belong to users, [rows]: by their id, and those without a user by search or text."""
        user = batch.column("user_id")
        named = _is_in(user, self.users)
        if not user.null_count:
            return named
        found = _is_in(batch.column("search_id"), self.searches)
        for values in map(batch.column, _TEXTS):
            for form in self._forms:
                for row in np.flatnonzero(_contains(values.cast(pa.binary()), form)):
                    found[row] |= self.in_text(values[int(row)].as_py())
        without_user: Bool = pc.is_null(user).to_numpy(zero_copy_only=False)
        return named | (found & without_user)

    def _searches_of(self, leaves: Sequence[tuple[str, object]]) -> list[str]:
        return [str(value) for path, value in leaves if _is_field(path, self._search_fields)]

    def _in_search(self, raw: bytes) -> bool:
        if self._tokens and not self._tokens.isdisjoint(_TOKEN.findall(raw)):
            return True
        return self._others is not None and bool(self._others.search(raw))


def _contains(values: pa.Array, form: bytes) -> Bool:
    found: Bool = pc.fill_null(pc.match_substring(values, form), False).to_numpy(zero_copy_only=False)
    return found


def _is_in(values: pa.Array, wanted: Iterable[str]) -> Bool:
    found: Bool = pc.is_in(values, pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
    return found.copy()


def _batches(file: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as opened:
        yield from opened.iter_batches(_BATCH, columns=["raw", "reason"])


def _with_broken_searches(store: LogStore, mentions: Mentions) -> Mentions:
    """Return the mentions with the searches that broken and waiting rows of the users name."""
    found: set[str] = set()
    for file in store.table("quarantine").files():
        for batch in _batches(file):
            for row in np.flatnonzero(mentions.in_batch(batch)):
                found.update(mentions.searches_in(batch.column("raw")[int(row)].as_py()))
    for path in _waiting(store):
        lines = _lines(path)
        for number in _named_lines(path, mentions):
            found.update(mentions.searches_in(lines[number]))
    return mentions if found <= mentions.searches else Mentions.of_log(store, mentions.users, mentions.searches | found)


def _searches(files: Sequence[str], users: Sequence[str]) -> set[str]:
    """Return the searches of the users in the events."""
    wanted, found = pa.array(users, pa.string()), set()
    for file in files:
        rows = pq.read_table(file, columns=["user_id", "search_id"], partitioning=None)
        found.update(rows.filter(pc.is_in(rows["user_id"], wanted))["search_id"].unique().to_pylist())
    return found


def _holding(events: LogTable, mentions: Mentions) -> dict[date, dict[str, int]]:
    """Return the files of `events` with rows of the users, and the number of these rows, by day."""
    found: dict[date, dict[str, int]] = {}
    for day, files in by_day(events.files()).items():
        for file in files:
            with pq.ParquetFile(file) as opened:
                columns = ["user_id", "search_id", *_TEXTS]
                batches = opened.iter_batches(GROUP_ROWS, columns=columns, use_threads=False)
                if count := sum(int(mentions.in_events(batch).sum()) for batch in batches):
                    found.setdefault(day, {})[file] = count
    return found


def _erase(events: LogTable, files: Iterable[str], mentions: Mentions) -> None:
    """Replace files of events by ones without the rows of the users."""

    def others(_file: str, _start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(~mentions.in_events(batch)))

    events.rewrite(files, others, writer=event_writer, batch_rows=GROUP_ROWS)


def _drop(store: LogStore, touched: Iterable[date], models: Iterable[Path]) -> None:
    """Delete what was derived from these days, so that nobody reads it while the rest is done."""
    for model in models:
        model.unlink(missing_ok=True)
    for trees in (store.folder / "models").glob("*.txt"):
        if not trees.with_suffix(".json").exists():
            trees.unlink(missing_ok=True)
    if (store.folder / "models").is_dir():
        sync(store.folder / "models")
    for name in ("sessions", "partials"):
        table = store.table(name)
        if days := sorted({*touched} & {*table.days()}):
            table.commit_files({}, remove_days=days)
    for name in DROPPED if touched else ():
        table = store.table(name)
        if files := table.files():
            table.commit_files({}, remove=files)
        table.sweep()


def _learned(model: Path, days: set[date]) -> bool:
    """Return whether an examination model was fitted to one of these days, or does not record its days."""
    try:
        sessions = json.loads(model.read_text(encoding="utf-8"))["sessions"]
        return not {day.isoformat() for day in days}.isdisjoint(sessions)
    except (OSError, ValueError, KeyError, TypeError):
        return bool(days)


def _rewrite(quarantine: LogTable, files: Iterable[str], mentions: Mentions) -> None:
    """Replace files of quarantine by ones without the rows of the users, and without headers that name them."""

    def others(_file: str, _start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.filter(pa.array(~mentions.in_batch(batch)))
        headers = ["" if each and mentions.in_text(each) else each for each in rows["header"].to_pylist()]
        return rows.set_column(rows.schema.get_field_index("header"), "header", pa.array(headers, pa.string()))

    quarantine.rewrite(files, others)


def _waiting(store: LogStore) -> list[Path]:
    return sorted((store.folder / INBOX).glob("*.jsonl.gz"))


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).split(b"\n")


def _named_lines(path: Path, mentions: Mentions) -> list[int]:
    """Return which lines of a waiting batch belong to users, or name one."""
    return [number for number, line in enumerate(_lines(path)) if line.strip() and mentions.in_row(line)]


def _rewrite_batch(path: Path, mentions: Mentions) -> None:
    """Empty the lines of the users in a waiting batch; the numbers of the others stay."""
    named, lines = {*_named_lines(path, mentions)}, _lines(path)
    kept = [b"" if number in named else line for number, line in enumerate(lines)]
    if not any(line.strip() for line in kept):
        path.unlink(missing_ok=True)
        sync(path.parent)
        return
    with atomic_file(path) as draft, draft.open("wb") as to:
        name = path.name.removesuffix(".jsonl.gz")
        with gzip.GzipFile(name, "wb", compresslevel=1, fileobj=to, mtime=0) as file:
            file.write(b"\n".join(kept))


def _rewrite_columns(path: Path, mentions: Mentions) -> None:
    """Remove names of columns that name a user: if the first line of a CSV file is a row."""
    known = read_json(path, remedy="Delete it") if path.exists() else {}
    kept = {name: value for name, value in known.items() if not mentions.in_text(name)}
    if kept != known:
        write_file(path, json.dumps(kept))


def _is_field(path: str, fields: set[str]) -> bool:
    return path in fields or path.rpartition(".")[2] in fields


def _words(forms: Sequence[bytes]) -> re.Pattern[bytes]:
    """Return a pattern that finds one of these texts as a whole word."""
    joined = b"|".join(re.escape(form) for form in forms)
    return re.compile(
        rb"(?<!%b)(?<!%b%b)(?:%b)(?!%b|%b%b)" % (_LETTER, _LETTER, _JOINT, joined, _LETTER, _JOINT, _LETTER)
    )


def _parsed(raw: bytes) -> list[tuple[str, object]] | None:
    """Return the values of a JSON object, each with the names that lead to it; None for any other row."""
    try:
        found = json.loads(raw, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    return list(_leaves(found)) if isinstance(found, tuple) else None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values in a JSON value, in which objects are tuples of pairs."""
    if isinstance(value, tuple):
        for name, each in value:
            yield from _leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, path)
    elif value is not None:
        yield path, value


def _spelled(user: str) -> Sequence[bytes]:
    """Return the ways in which a text may contain an id.

    >>> _spelled('a"b')[:3] == [b'a"b', b'a""b', bytes([97, 92, 34, 98])]
    True
    """
    ascii_ = json.dumps(user)[1:-1]
    capitals = re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda digits: digits[0].upper(), ascii_)
    forms = [user, user.replace('"', '""'), ascii_, capitals, json.dumps(user, ensure_ascii=False)[1:-1]]
    forms += [form.replace("/", r"\/") for form in forms]
    other = [user.encode("latin-1")] if all(ord(letter) < 256 for letter in user) else []
    return [*(form.encode(errors="surrogateescape") for form in forms), *other]
