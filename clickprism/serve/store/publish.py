"""Publishing: the click vectors of a log, a ranker's features, imputed values, or all of them, into an online store.

    snapshot of a log ─┐
    table of features ─┼─ joined and sorted by query (DuckDB) ─▶ built beside ─▶ a sample read again ─▶ switched
    imputed values ────┤
    clicks of pairs ───┘

Memory is bounded whatever the size: DuckDB sorts on disk, and the documents of one query at a time are written.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism._util.files import sha256
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.errors import DataError, EngineError, SettingError
from clickprism.log.engines.base import first_line
from clickprism.serve.scoring.evidence import FIELDS as EVIDENCE
from clickprism.serve.settings import PublishSettings
from clickprism.serve.store.base import IMPUTED, SCHEMES, StoreInfo
from clickprism.types import Float32

if TYPE_CHECKING:
    from clickprism.log.features.snapshots import Snapshot
    from clickprism.log.store import LogStore
    from clickprism.serve.store.lmdb import LmdbBuilder, LmdbSnapshot
    from clickprism.serve.store.redis import RedisBuilder, RedisSnapshot

    Builder: TypeAlias = LmdbBuilder | RedisBuilder


_PAIR: Final = ("query_id", "document_id")
_READERS: Final = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv(?, header = true, types = {'query_id': 'VARCHAR', 'document_id': 'VARCHAR'})",
    ".jsonl": "read_json(?, format = 'newline_delimited')",
}
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "U")


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table of pairs.

    Attributes:
        name: how errors call it.
        sql: gives query_id, document_id and x, a list of numbers.
        parameters: of the SQL.
        fields: the names of the numbers in x.
        empty: what a pair holds that is not there, [fields].
        as_of: nothing later is in it.
        fingerprint: of all its rows.
    """

    name: str
    sql: str
    parameters: tuple[Any, ...]
    fields: tuple[str, ...]
    empty: Float32
    as_of: datetime
    fingerprint: str


def snapshot_source(snapshot: Snapshot) -> Source:
    """The click vectors of a snapshot of a log."""
    from clickprism.relevance.click_vectors import empty_vector

    if not snapshot.rows():
        raise DataError(
            "the snapshot of the log has no pairs",
            remedy="Include more pairs: clickprism log features LOG --min-users 0",
        )
    return Source(
        name="the snapshot",
        sql="SELECT query_id, document_id, x::FLOAT[] AS x FROM read_parquet(?)",
        parameters=(list(snapshot.files),),
        fields=snapshot.fields,
        empty=empty_vector(snapshot),
        as_of=snapshot.as_of,
        fingerprint=snapshot.fingerprint,
    )


def table_source(
    connection: Any, path: Path, *, chosen: Mapping[str, str] | None = None, empty: float = math.nan
) -> Source:
    """Return a file with query_id, document_id and a number in every other column; a missing one is NaN.

    Args:
        connection: of DuckDB.
        path: Parquet, CSV or JSON lines.
        chosen: columns to publish, with their names in the store; by default all, under their own names.
        empty: value of a pair that the file does not have.
    """
    if not path.is_file():
        raise DataError("does not exist", file=path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError("is none of .parquet, .csv and .jsonl", file=path, remedy="Save it as one of them")
    found = connection.execute(f"DESCRIBE SELECT * FROM {reader}", [str(path)]).fetchall()  # noqa: S608
    kinds = {name: kind for name, kind, *_ in found}
    missing = [name for name in (*_PAIR, *(chosen or ())) if name not in kinds]
    if missing:
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy=f"Its columns are {', '.join(kinds)}")
    columns = list(chosen or (name for name in kinds if name not in _PAIR))
    texts = [name for name in columns if not kinds[name].startswith(_NUMBERS)]
    if texts or not columns:
        what = f"has the column {texts[0]!r} of {kinds[texts[0]]}" if texts else "has no columns of numbers"
        raise DataError(what, file=path, remedy="Every column but query_id and document_id must hold numbers")
    listed = ", ".join('"{}"::FLOAT'.format(name.replace('"', '""')) for name in columns)
    keys = ", ".join(f"{name}::VARCHAR AS {name}" for name in _PAIR)
    return Source(
        name=str(path),
        sql=f"SELECT {keys}, [{listed}] AS x FROM {reader}",  # noqa: S608
        parameters=(str(path),),
        fields=tuple((chosen or {}).get(name, name) for name in columns),
        empty=np.full(len(columns), empty, np.float32),
        as_of=datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None),
        fingerprint=sha256(path),
    )


DEFAULT: Final = PublishSettings()
POLL_SECONDS: Final = 10.0
"""Seconds between two looks at the log in `follow`."""
_BATCH: Final = 8192
_SAMPLE: Final = 64


@final
@dataclass(frozen=True)
class Published:
    """What was published.

    Attributes:
        info: What the current version of the store contains.
        changed: False if the store had this version already, so that nothing was written.
        queries: Number of queries that were written.
        checked: Number of queries that were read back and compared.
        seconds: Time that it took.
    """

    info: StoreInfo
    changed: bool
    queries: int
    checked: int
    seconds: float

    def tables(self) -> list[Table]:
        """Return one row for each fact."""
        rows = [
            ["as of", f"{self.info.as_of.isoformat(sep=' ', timespec='seconds')} UTC"],
            ["query-document pairs", f"{self.info.pairs:,}"],
            ["queries written", f"{self.queries:,}"],
            ["fields", f"{len(self.info.fields):,}"],
            ["seconds", f"{self.seconds:.1f}"],
        ]
        caption = "" if self.changed else "The store has this version already; nothing was written."
        return [Table(caption, ["version", self.info.version], rows)]


def builder(to: Path | str, *, grace: float = DEFAULT.grace, waiting: Callable[[], None] | None = None) -> Builder:
    """Return what fills the store at this address: a folder, or `redis://host:port/0?prefix=name`."""
    if str(to).startswith(SCHEMES):
        from clickprism.serve.store.redis import RedisBuilder

        return RedisBuilder(str(to), grace=grace, waiting=waiting)
    from clickprism.serve.store.lmdb import LmdbBuilder

    return LmdbBuilder(Path(to), grace=grace, waiting=waiting)


def publish(
    to: Path | str,
    settings: PublishSettings = DEFAULT,
    *,
    log: LogStore | None = None,
    progress: Progress = no_progress,
    note: Callable[[str], None] | None = None,
) -> Published:
    """Fill a store and make the new version current; open readers follow.

    Args:
        to: a folder, or `redis://host:port/0?prefix=name`.
        settings: what is published.
        log: the click log whose click features are published.
        progress: is called with the number of pairs written.
        note: receives a message if the command has to wait for another one.
    """
    import duckdb

    from clickprism.log.features.snapshots import read_snapshot

    started = time.monotonic()
    if log is None and settings.snapshot is not None:
        raise SettingError("snapshot", settings.snapshot, "be given together with a log")

    def waiting() -> None:
        if note is not None:
            note("Waiting for another process that publishes to this store.")

    with tempfile.TemporaryDirectory(prefix="clickprism-") as spill:
        config: dict[str, Any] = {"memory_limit": settings.memory, "temp_directory": spill}
        config["preserve_insertion_order"] = False
        with _failing(), duckdb.connect(config=config) as connection:
            sources = [] if log is None else [snapshot_source(read_snapshot(log, version=settings.snapshot))]
            sources += [] if settings.features is None else [table_source(connection, settings.features)]
            if settings.imputed is not None:
                sources.append(table_source(connection, settings.imputed, chosen={"imputation": IMPUTED}))
            if settings.estimates is not None:
                chosen = dict(zip(("clicked", "weight", "impressions"), EVIDENCE, strict=True))
                sources.append(table_source(connection, settings.estimates, chosen=chosen, empty=0.0))
            draft = _describe(sources, settings.as_of)
            with builder(to, grace=settings.grace, waiting=waiting) as target:
                there = target.present()
                if there is not None and there.version == draft.version:
                    return Published(there, False, 0, 0, round(time.monotonic() - started, 3))
                progress(0, text="sorting")
                return _fill(target, connection, sources, draft, started=started, progress=progress)


def follow(
    to: Path | str,
    settings: PublishSettings = DEFAULT,
    *,
    log: LogStore,
    note: Callable[[str], None] | None = None,
) -> Iterator[Published]:
    """Publish now, and again whenever the log has a new snapshot or a table changes; this never ends by itself."""
    for name in ("snapshot", "as_of"):
        if getattr(settings, name) is not None:
            raise SettingError(name, getattr(settings, name), "not be given together with --follow")

    def state() -> object:
        files = [path.stat() for path in (settings.features, settings.imputed, settings.estimates) if path is not None]
        return log.table("snapshots").version, [(file.st_mtime_ns, file.st_size, file.st_ino) for file in files]

    before = None
    while True:
        if (now := state()) != before:
            yield publish(to, settings, log=log, note=note)
            before = now
        _pause()


def _pause() -> None:
    time.sleep(POLL_SECONDS)


def _fill(
    target: Builder,
    connection: Any,
    sources: list[Source],
    draft: StoreInfo,
    *,
    started: float,
    progress: Progress,
) -> Published:
    sample, queries, pairs = _Sample(), 0, 0
    for query_id, document_ids, rows in by_query(_sorted(connection, sources), sources):
        target.put(query_id, document_ids, rows)
        sample.add(query_id, document_ids, rows)
        queries += 1
        pairs += len(document_ids)
        if queries % 1000 == 0:
            progress(pairs, text="writing pairs")
    if not pairs:
        raise DataError(
            "there is no pair to publish", remedy="Compute click features with: clickprism log features LOG"
        )
    info = StoreInfo(draft.version, draft.as_of, draft.fields, draft.empty, pairs)
    progress(pairs, text="checking")
    sample.check(target.seal(info))
    target.switch()
    return Published(info, True, queries, len(sample.kept), round(time.monotonic() - started, 3))


def _describe(sources: Sequence[Source], as_of: datetime | None) -> StoreInfo:
    """What will be in force, but for the number of pairs; the version is a function of all that goes in."""
    if not sources:
        raise SettingError("log", None, "be given, or --features, --imputed or --estimates")
    fields = tuple(name for source in sources for name in source.fields)
    twice = sorted({name for name in fields if fields.count(name) > 1}) if len(set(fields)) < len(fields) else []
    if twice:
        raise DataError(f"the field {twice[0]!r} comes twice", remedy="Give one of them another name")
    time_of = as_of or sources[0].as_of
    told = [1, time_of.isoformat(), [(source.fingerprint, source.fields) for source in sources]]
    version = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    empty = np.concatenate([source.empty for source in sources]).astype(np.float32)
    return StoreInfo(version, time_of, fields, empty, 0)


def _sorted(connection: Any, sources: Sequence[Source]) -> Iterator[pa.RecordBatch]:
    """Columns query_id, document_id, then a list for each source, null where it has no such pair; by query."""
    names = [f"s{number}" for number in range(len(sources))]
    tables = [f"({source.sql}) {name}" for source, name in zip(sources, names, strict=True)]
    joined = tables[0] + "".join(f" FULL JOIN {table} USING (query_id, document_id)" for table in tables[1:])
    columns = ", ".join(f"{name}.x AS {name}" for name in names)
    query = f"SELECT query_id, document_id, {columns} FROM {joined} ORDER BY query_id, document_id"  # noqa: S608
    parameters = [value for source in sources for value in source.parameters]
    reader = connection.sql(query, params=parameters).to_arrow_reader(_BATCH)
    yield from reader


def by_query(batches: Iterator[pa.RecordBatch], sources: Sequence[Source]) -> Iterator[tuple[str, list[str], Float32]]:
    """The documents and rows of each query, of batches in the order of queries and documents."""
    query: str | None = None
    documents: list[str] = []
    parts: list[Float32] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if batch.column(0).null_count or batch.column(1).null_count:
            raise DataError("a row has no query_id or no document_id", remedy="Leave such rows out of the table")
        ids, rows = batch.column(1).to_pylist(), _rows(batch, sources)
        changes = pc.not_equal(batch.column(0).slice(1), batch.column(0).slice(0, batch.num_rows - 1))
        starts = [0, *(np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1).tolist(), batch.num_rows]
        names = batch.column(0).take(pa.array(starts[:-1])).to_pylist()
        for name, start, end in zip(names, starts[:-1], starts[1:], strict=True):
            if name != query:
                if query is not None:
                    yield _whole(query, documents, parts)
                query, documents, parts = name, [], []
            documents += ids[start:end]
            parts.append(rows[start:end])
    if query is not None:
        yield _whole(query, documents, parts)


def _whole(query: str, documents: list[str], parts: list[Float32]) -> tuple[str, list[str], Float32]:
    if len(set(documents)) < len(documents):
        twice = next(name for name, after in pairwise(documents) if name == after)
        raise DataError(f"the pair of {query!r} and {twice!r} comes twice", remedy="Keep one row for each pair")
    if "\0" in query or "\0" in "".join(documents):
        raise DataError(f"an id of the query {query!r} has a NUL in it", remedy="Leave such ids out")
    return query, documents, parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows(batch: pa.RecordBatch, sources: Sequence[Source]) -> Float32:
    """The rows of a batch, [n, L]."""
    made = []
    for place, source in enumerate(sources):
        column, width = batch.column(2 + place), len(source.fields)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        values = column.drop_null().flatten().to_numpy(zero_copy_only=False).astype(np.float32)
        if len(values) != there.sum() * width or np.isinf(values).any():
            raise DataError(
                f"a row of {source.name} has a number that float32 cannot hold, or not {width} of them",
                remedy="Mend the table",
            )
        rows = np.repeat(source.empty[None], batch.num_rows, axis=0)
        rows[there] = values.reshape(-1, width)
        made.append(rows)
    return made[0] if len(made) == 1 else np.concatenate(made, axis=1)


@dataclass
class _Sample:
    """Some queries as they were written, evenly spread over all."""

    kept: list[tuple[str, list[str], Float32]] = field(default_factory=list)
    step: int = 1
    seen: int = 0

    def add(self, query_id: str, document_ids: list[str], rows: Float32) -> None:
        """Keep it if its turn has come; at most some hundred rows of it."""
        if self.seen % self.step == 0:
            self.kept.append((query_id, document_ids[:_SAMPLE], rows[:_SAMPLE].copy()))
            if len(self.kept) == 2 * _SAMPLE:
                self.kept, self.step = self.kept[::2], 2 * self.step
        self.seen += 1

    def check(self, sealed: LmdbSnapshot | RedisSnapshot) -> None:
        """An error if what was kept is not what the store gives back."""
        for query_id, document_ids, rows in self.kept:
            found = sealed.get(query_id, document_ids)
            if found is None or not found.found.all() or not np.array_equal(found.x, rows, equal_nan=True):
                raise DataError(
                    f"the query {query_id!r} did not come back as it was written; what was in force stays",
                    remedy="Run the same command again, and report this if it comes again",
                )


@contextmanager
def _failing() -> Iterator[None]:
    """What DuckDB raises, in words."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise EngineError(f"{first_line(error)}. What was in force stays") from None
