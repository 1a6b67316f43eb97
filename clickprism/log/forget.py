"""Erasure: afterwards the log is as if it had never seen the user.

The user's rows leave `events` (only files that hold them are rewritten), `quarantine`, and the batches that wait in the
inbox of a service. What was derived from them goes too: sessions of the days they touch are rebuilt; partials, windows,
snapshots and the examination models fitted to those days are dropped; and every file that no table holds any more is
deleted at once, so that earlier versions cannot be read. Derived data goes first: after a crash nobody reads it. A run
that was cut short is finished by the next command that writes to the log: the users, their searches and the days are in
a file until all is done. The ledger `files` stays: it counts what came in. Files that were exported from the log are
outside of it: they are named, with the command that writes each again.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file, read_json, sync, write_file
from clickprism._util.tables import Table
from clickprism.errors import SettingError
from clickprism.log.ingest.stage import GROUP_ROWS, event_writer
from clickprism.log.schema import QUARANTINE
from clickprism.log.sessions import by_day, update_sessions
from clickprism.log.store import COLUMNS_FILE, PENDING, LogStore
from clickprism.log.table import sweep, writing
from clickprism.types import Bool

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.table import LogTable

DROPPED: Final = ("week", "month", "snapshots")
INBOX: Final = ".inbox"
"""Folder of the batches that a service has accepted and not yet ingested, as JSON lines in gzip."""
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
        outputs: Files written from this log before; they may contain the user. Each with the command that rebuilds it.
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
            tables.append(Table("", ["outside the log; may contain the users", "rebuild with"], made))
        return tables


def forget(store: LogStore, engine: Engine, users: Sequence[str], *, dry_run: bool = False) -> Forgotten:
    """Erase users: their rows, and the rows without a user of searches that are theirs.

    Args:
        store: the log.
        engine: where the queries run.
        users: their ids, as logged; those of a run that was cut short are added. None if there was one.
        dry_run: only say what would be done.
    """
    with store.lock():
        store.upgrade()
        begun = _Begun.read(store)
        everyone = sorted({*users, *begun.users})
        if not everyone:
            raise SettingError("user", None, "name at least one user, as no interrupted erasure is left to finish")
        if not all(everyone):
            raise SettingError("user", "", "be the id of a user")
        searches = begun.searches | _searches(store.table("events").files(), everyone)
        mentions = _with_broken_searches(store, _mentions(store, everyone, searches))
        return _forget(store, engine, mentions, begun.days, dry_run=dry_run)


def _forget(store: LogStore, engine: Engine, mentions: Mentions, days: set[date], *, dry_run: bool) -> Forgotten:
    events, quarantine, pending = store.table("events"), store.table("quarantine"), store.folder / PENDING
    found = _holding(events, mentions)
    broken = {file: count for file in quarantine.files() if (count := sum(_masks(file, mentions)))}
    headers = [file for file in quarantine.files() if file not in broken and mentions.in_headers(file)]
    batches = {path: rows for path in _waiting(store) if (rows := len(_named_lines(path, mentions)))}
    touched = days | {day - back for day in found for back in (timedelta(), timedelta(days=1))}
    models = [model for model in (store.folder / "models").glob("*.json") if _learned(model, touched)]
    anything = bool(touched or broken or headers or batches or pending.exists())
    result = Forgotten(
        rows=sum(count for files in found.values() for count in files.values()),
        files=sum(len(files) for files in found.values()),
        quarantined=sum(broken.values()),
        waiting=sum(batches.values()),
        days=tuple(sorted(touched & {*events.days(), *store.table("sessions").days()})),
        snapshots=bool(touched) and bool(store.table("snapshots").files()),
        models=tuple(sorted(model.stem for model in models)),
        outputs=tuple(store.outputs().items()) if anything else (),
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
        _erase(events, found, mentions)
        for file in [*broken, *headers]:
            _rewrite(quarantine, file, mentions)
        update_sessions(store, engine, sorted(touched & {*events.days(), *store.table("sessions").days()}))
    for name in ("events", "quarantine", "sessions", "partials"):  # a run that was killed may have left files of them
        sweep(store.table(name))
    with store.staging():  # it deletes the temporary files of processes that were killed, which may hold rows too
        pending.unlink(missing_ok=True)
    sync(store.folder)
    return result


@dataclass(frozen=True)
class _Begun:
    """What an erasure that is under way is about; all empty if there is none."""

    users: set[str]
    searches: set[str]
    days: set[date]

    @classmethod
    def read(cls, store: LogStore) -> _Begun:
        if not (store.folder / PENDING).exists():
            return cls(set(), set(), set())
        words = read_json(store.folder / PENDING, remedy="Run forget again with the ids of its users")
        days = {date.fromisoformat(day) for day in words["days"]}
        return cls({*words["users"]}, {*words.get("searches", [])}, days)

    def write(self, store: LogStore) -> None:
        days = sorted(day.isoformat() for day in self.days)
        words = {"users": sorted(self.users), "searches": sorted(self.searches), "days": days}
        with writing(store.folder):
            write_file(store.folder / PENDING, json.dumps(words))


class Mentions:
    """Finds rows that are a user's, or name one.

    A row that is a JSON object is asked for its user: `user_id`, `client_id`, `user`, or what the mapping calls it. One
    without any is the user's if a text in it is the id, or if its search is the user's. A longer text that contains the
    id, such as a URL or JSON in a text, names the user in any row. In rows that are not JSON the id must stand as a
    word of its own, in any way that CSV or JSON may spell it, so that `u1` is found in neither `u12` nor `u1.5`.

    Args:
        users: their ids.
        searches: the ids of their searches.
        user_fields: more names of the field that holds the user, such as the mapping's; with dots into objects.
        search_fields: the same of the search.

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
        spelled = {form for search in self.searches for form in (search.encode(errors="surrogateescape"),)}
        self._tokens = {form for form in spelled if _TOKEN.fullmatch(form)}
        self._others = _words(sorted(spelled - self._tokens)) if spelled - self._tokens else None

    def in_row(self, raw: bytes, reason: bytes = b"") -> bool:
        """Whether a broken row is a user's, or names one."""
        leaves = _parsed(raw)
        if leaves is None:
            return any(self._word.search(text) for text in (raw, reason)) or self._names_search(raw)
        theirs = [value for path, value in leaves if _is_field(path, self._user_fields)]
        texts = [value for _, value in leaves if isinstance(value, str)]
        if any(str(value) in self.users for value in theirs or texts):
            return True
        if not theirs and not self.searches.isdisjoint(self._searches_of(leaves)):
            return True
        return any(self.in_text(text) for text in texts if text not in self.users)

    def in_text(self, text: str) -> bool:
        """Whether a text contains the id of a user as a word."""
        return bool(self._word.search(text.encode(errors="surrogateescape")))

    def searches_in(self, raw: bytes) -> list[str]:
        """The searches that a JSON row names."""
        leaves = _parsed(raw)
        return [] if leaves is None else self._searches_of(leaves)

    def in_batch(self, batch: pa.RecordBatch) -> Bool:
        """Which rows of a batch with the columns raw and reason are users', or name one, [rows]."""
        columns = [batch.column(name).cast(pa.large_binary()) for name in ("raw", "reason")]
        maybe = np.full(batch.num_rows, bool(self.searches))
        for values in columns:
            for form in (*self._forms, b"\\"):
                maybe |= pc.fill_null(pc.match_substring(values, form), False).to_numpy(zero_copy_only=False)
        named = np.zeros(batch.num_rows, dtype=bool)
        for row in np.flatnonzero(maybe):
            raw, reason = (values[int(row)].as_py() or b"" for values in columns)
            named[row] = self.in_row(raw, reason)
        return named

    def in_headers(self, file: str) -> bool:
        """Whether a header in a file of quarantine names a user: one of a CSV file whose first line is a row."""
        headers = pq.read_table(file, columns=["header"], partitioning=None)["header"].unique().to_pylist()
        return any(header and self.in_text(header) for header in headers)

    def in_events(self, batch: pa.RecordBatch) -> Bool:
        """Which events are users', [rows]: those with their id; of those without a user, by search or by texts."""
        user = batch.column("user_id")
        named = pc.is_in(user, pa.array(sorted(self.users), pa.string())).to_numpy(zero_copy_only=False)
        if not user.null_count:
            return np.asarray(named)
        found = pc.is_in(batch.column("search_id"), pa.array(sorted(self.searches), pa.string())).to_numpy(
            zero_copy_only=False
        )
        for name in _TEXTS:
            values = batch.column(name)
            for form in self._forms:
                maybe = pc.fill_null(pc.match_substring(values.cast(pa.binary()), form), False)
                for row in np.flatnonzero(maybe.to_numpy(zero_copy_only=False)):
                    found[row] |= self.in_text(values[int(row)].as_py())
        return np.asarray(named | (found & pc.is_null(user).to_numpy(zero_copy_only=False)))

    def _searches_of(self, leaves: Sequence[tuple[str, object]]) -> list[str]:
        return [str(value) for path, value in leaves if _is_field(path, self._search_fields)]

    def _names_search(self, raw: bytes) -> bool:
        if self._tokens and not self._tokens.isdisjoint(_TOKEN.findall(raw)):
            return True
        return self._others is not None and bool(self._others.search(raw))


def _mentions(store: LogStore, users: Iterable[str], searches: Iterable[str]) -> Mentions:
    columns = store.settings.source.mapping.columns
    fields = {name: [columns[name]] if name in columns else [] for name in ("user_id", "search_id")}
    return Mentions(users, searches, user_fields=fields["user_id"], search_fields=fields["search_id"])


def _with_broken_searches(store: LogStore, mentions: Mentions) -> Mentions:
    """The same with the searches that broken and waiting rows of the users name."""
    found: set[str] = set()
    for file in store.table("quarantine").files():
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_BATCH, columns=["raw", "reason"]):
                for row in np.flatnonzero(mentions.in_batch(batch)):
                    found.update(mentions.searches_in(batch.column("raw")[int(row)].as_py()))
    for path in _waiting(store):
        lines = _lines(path)
        for number in _named_lines(path, mentions):
            found.update(mentions.searches_in(lines[number]))
    return mentions if found <= mentions.searches else _mentions(store, mentions.users, mentions.searches | found)


def _searches(files: Sequence[str], users: Sequence[str]) -> set[str]:
    """The searches of the users, as the events have them."""
    wanted, found = pa.array(users, pa.string()), set()
    for file in files:
        rows = pq.read_table(file, columns=["user_id", "search_id"], partitioning=None)
        found.update(rows.filter(pc.is_in(rows["user_id"], wanted))["search_id"].unique().to_pylist())
    return found


def _holding(events: LogTable, mentions: Mentions) -> dict[date, dict[str, int]]:
    """The files of `events` that hold the users' rows, with how many, by day."""
    found: dict[date, dict[str, int]] = {}
    for day, files in by_day(events.files()).items():
        for file in files:
            with pq.ParquetFile(file) as opened:
                columns = ["user_id", "search_id", *_TEXTS]
                batches = opened.iter_batches(GROUP_ROWS, columns=columns, use_threads=False)
                if count := sum(int(mentions.in_events(batch).sum()) for batch in batches):
                    found.setdefault(day, {})[file] = count
    return found


def _erase(events: LogTable, found: dict[date, dict[str, int]], mentions: Mentions) -> None:
    """Write the files without the users' rows, and put them in their place in one commit."""
    added: dict[date, list[Path]] = {}
    with writing(events.folder):
        for day, counts in found.items():
            for file, count in counts.items():
                if count < pq.read_metadata(file).num_rows:
                    path = events.day_folder(day) / f"kept-{uuid4().hex}.parquet"
                    with pq.ParquetFile(file) as opened, event_writer(path) as writer:
                        for batch in opened.iter_batches(GROUP_ROWS, use_threads=False):
                            kept = pa.Table.from_batches([batch.filter(pa.array(~mentions.in_events(batch)))])
                            writer.write_table(kept.select(writer.schema.names).cast(writer.schema))
                    added.setdefault(day, []).append(path)
    if found:
        events.commit_files(added, remove=[file for counts in found.values() for file in counts])


def _drop(store: LogStore, touched: Iterable[date], models: Iterable[Path]) -> None:
    """Remove what was derived from these days, so that nobody reads it while the rest is done."""
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
        sweep(table)


def _learned(model: Path, days: set[date]) -> bool:
    """Whether an examination model was fitted to one of these days; one that does not say so was."""
    try:
        sessions = json.loads(model.read_text(encoding="utf-8"))["sessions"]
        return not {day.isoformat() for day in days}.isdisjoint(sessions)
    except (OSError, ValueError, KeyError, TypeError):
        return bool(days)


def _masks(file: str, mentions: Mentions) -> Iterator[int]:
    """How many rows of each batch of a quarantine file are users', or name one."""
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(_BATCH, columns=["raw", "reason"]):
            yield int(mentions.in_batch(batch).sum())


def _rewrite(quarantine: LogTable, file: str, mentions: Mentions) -> None:
    """Replace a file of quarantine by one without the users' rows, and without headers that name them."""
    path = quarantine.folder / f"kept-{uuid4().hex}.parquet"
    with pq.ParquetFile(file) as opened, pq.ParquetWriter(path, QUARANTINE, compression="zstd") as writer:
        for batch in opened.iter_batches(_BATCH):
            rows = pa.Table.from_batches([batch.filter(pa.array(~mentions.in_batch(batch)))]).select(QUARANTINE.names)
            headers = ["" if each and mentions.in_text(each) else each for each in rows["header"].to_pylist()]
            place = rows.schema.get_field_index("header")
            writer.write_table(rows.set_column(place, "header", pa.array(headers, pa.string())).cast(QUARANTINE))
    quarantine.commit_files({None: [path]}, remove=[file])


def _waiting(store: LogStore) -> list[Path]:
    return sorted((store.folder / INBOX).glob("*.jsonl.gz"))


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).split(b"\n")


def _named_lines(path: Path, mentions: Mentions) -> list[int]:
    """Which lines of a batch are users', or name one."""
    return [number for number, line in enumerate(_lines(path)) if line.strip() and mentions.in_row(line)]


def _rewrite_batch(path: Path, mentions: Mentions) -> None:
    """Empty the lines of a waiting batch that are the users'; the numbers of the others stay."""
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
    """Remove names of columns that name a user: of a CSV file whose first line is a row."""
    known = read_json(path, remedy="Delete it") if path.exists() else {}
    kept = {name: value for name, value in known.items() if not mentions.in_text(name)}
    if kept != known:
        write_file(path, json.dumps(kept))


def _is_field(path: str, fields: set[str]) -> bool:
    return path in fields or path.rpartition(".")[2] in fields


def _words(forms: Sequence[bytes]) -> re.Pattern[bytes]:
    """What finds one of these texts as a word of its own."""
    joined = b"|".join(re.escape(form) for form in forms)
    return re.compile(
        rb"(?<!%b)(?<!%b%b)(?:%b)(?!%b|%b%b)" % (_LETTER, _LETTER, _JOINT, joined, _LETTER, _JOINT, _LETTER)
    )


def _parsed(raw: bytes) -> list[tuple[str, object]] | None:
    """The values of a JSON object, each with the names that lead to it; None for any other row."""
    try:
        found = json.loads(raw, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    return list(_leaves(found)) if isinstance(found, tuple) else None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Objects are tuples of pairs."""
    if isinstance(value, tuple):
        for name, each in value:
            yield from _leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, path)
    elif value is not None:
        yield path, value


def _spelled(user: str) -> Sequence[bytes]:
    """The ways in which a text may hold an id.

    >>> _spelled('a"b')[:3] == [b'a"b', b'a""b', bytes([97, 92, 34, 98])]
    True
    """
    ascii_ = json.dumps(user)[1:-1]
    capitals = re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda digits: digits[0].upper(), ascii_)
    forms = [user, user.replace('"', '""'), ascii_, capitals, json.dumps(user, ensure_ascii=False)[1:-1]]
    forms += [form.replace("/", r"\/") for form in forms]
    other = [user.encode("latin-1")] if all(ord(letter) < 256 for letter in user) else []
    return [*(form.encode(errors="surrogateescape") for form in forms), *other]
