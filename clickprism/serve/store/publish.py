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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.files import sha256
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.errors import DataError, EngineError, SettingError
from clickprism.serve.scoring.evidence import FIELDS as EVIDENCE
from clickprism.serve.settings import PublishSettings
from clickprism.serve.store.base import IMPUTED, StoreInfo, is_remote
from clickprism.types import Float32

if TYPE_CHECKING:
    import pyarrow as pa

    from clickprism.log.features.snapshots import Snapshot
    from clickprism.log.store import LogStore
    from clickprism.serve.store.lmdb import LmdbBuilder
    from clickprism.serve.store.redis import RedisBuilder

    Builder: TypeAlias = LmdbBuilder | RedisBuilder

DEFAULT: Final = PublishSettings()
_BATCH: Final = 8192
_SAMPLE: Final = 64
_PAIR: Final = ("query_id", "document_id")
COUNTS: Final = ("clicked", "weight", "impressions")
"""Columns of a table of `relevance estimate`, as `clickprism.serve.scoring.evidence.FIELDS` in the store."""
_READERS: Final = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv(?, header = true, types = {'query_id': 'VARCHAR', 'document_id': 'VARCHAR'})",
    ".jsonl": "read_json(?, format = 'newline_delimited')",
}
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "U")


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table of pairs."""

    sql: str  # Gives query_id, document_id and x, a list of numbers, of the rows in `file`
    file: Any  # Parameter of the SQL
    fields: tuple[str, ...]  # Names of the numbers in x
    empty: Float32  # Values of a pair that the table does not have, [fields]
    as_of: datetime  # Time of the values (UTC)
    fingerprint: str  # Hash of all its rows


def snapshot_source(snapshot: Snapshot) -> Source:
    """Return the click vectors of a snapshot of a log."""
    from clickprism.relevance.click_vectors import empty_vector

    if not snapshot.rows():
        remedy = "Include more pairs: clickprism log features LOG --min-users 0"
        raise DataError("the snapshot of the log has no pairs", remedy=remedy)
    sql = "SELECT query_id, document_id, x::FLOAT[] AS x FROM read_parquet(?)"
    files, empty = list(snapshot.files), empty_vector(snapshot)
    return Source(sql, files, snapshot.fields, empty, snapshot.as_of, snapshot.fingerprint)


def table_source(
    connection: Any, path: Path, *, chosen: Mapping[str, str] | None = None, empty: float = math.nan
) -> Source:
    """Return a file with query_id, document_id and a number in every other column; a missing one is NaN.

    `chosen` has the columns to publish, with their names in the store; `empty` is the value of pairs that it lacks.
    """
    if not path.is_file():
        raise DataError("does not exist", file=path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError("is none of .parquet, .csv and .jsonl", file=path, remedy="Save it as one of them")
    described = connection.execute(f"DESCRIBE SELECT * FROM {reader}", [str(path)]).fetchall()  # noqa: S608
    kinds = {name: kind for name, kind, *_ in described}
    missing = [name for name in (*_PAIR, *(chosen or ())) if name not in kinds]
    if missing:
        raise DataError(f"has no column {missing[0]!r}", file=path, remedy=f"Its columns are {', '.join(kinds)}")
    names = chosen or {name: name for name in kinds if name not in _PAIR}
    texts = [name for name in names if not kinds[name].startswith(_NUMBERS)]
    if texts or not names:
        what = f"has the column {texts[0]!r} of {kinds[texts[0]]}" if texts else "has no columns of numbers"
        raise DataError(what, file=path, remedy="Every column but query_id and document_id must hold numbers")
    listed = ", ".join('"{}"::FLOAT'.format(name.replace('"', '""')) for name in names)
    sql = f"SELECT query_id::VARCHAR AS query_id, document_id::VARCHAR AS document_id, [{listed}] AS x FROM {reader}"  # noqa: S608
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None)
    fields, values = tuple(names.values()), np.full(len(names), empty, np.float32)
    return Source(sql, str(path), fields, values, changed, sha256(path))


@final
@dataclass(frozen=True)
class Published:
    """What was published."""

    info: StoreInfo  # What the current version of the store contains
    changed: bool  # False if the store had this version already, so that nothing was written
    queries: int  # Number of queries that were written
    checked: int  # Number of queries that were read back and compared
    seconds: float  # Time that it took

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
    """Return a builder that fills the store at this address: a folder, or `redis://host:port/0?prefix=name`."""
    if is_remote(str(to)):
        from clickprism.serve.store.redis import RedisBuilder

        return RedisBuilder(str(to), grace=grace)
    from clickprism.serve.store.lmdb import LmdbBuilder

    return LmdbBuilder(Path(to), grace=grace, waiting=waiting)


def publish(
    to: Path | str,
    settings: PublishSettings = DEFAULT,
    *,
    log: LogStore | None = None,
    progress: Progress = no_progress,
    note: Callable[[str], None] = lambda _: None,
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
    tables: list[tuple[Path | None, dict[str, Any]]] = [
        (settings.features, {}),
        (settings.imputed, {"chosen": {"imputation": IMPUTED}}),
        (settings.estimates, {"chosen": dict(zip(COUNTS, EVIDENCE, strict=True)), "empty": 0.0}),
    ]
    target = builder(to, grace=settings.grace, waiting=lambda: note("Waiting for another process that publishes here."))
    try:
        with tempfile.TemporaryDirectory(prefix="clickprism-") as spill:
            config: dict[str, Any] = {
                "memory_limit": settings.memory,
                "temp_directory": spill,
                "preserve_insertion_order": False,
            }
            with duckdb.connect(config=config) as connection:
                sources = [] if log is None else [snapshot_source(read_snapshot(log, version=settings.snapshot))]
                sources += [table_source(connection, path, **more) for path, more in tables if path is not None]
                info = _describe(sources, settings.as_of)
                with target:
                    there = target.present()
                    if there is not None and there.version == info.version:
                        return Published(there, False, 0, 0, round(time.monotonic() - started, 3))
                    progress(0, text="sorting")
                    written = _fill(target, _sorted(connection, sources), info, progress)
                    return replace(written, seconds=round(time.monotonic() - started, 3))
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        raise EngineError(f"{first}. The version that was published before stays current") from None


def _fill(target: Builder, batches: Iterator[pa.RecordBatch], info: StoreInfo, progress: Progress) -> Published:
    """Write all queries, compare some, evenly spread over all, with what the store gives back, and switch."""
    kept: list[tuple[str, list[str], Float32]] = []
    step, queries, pairs = 1, 0, 0
    for query_id, document_ids, rows in _by_query(batches, len(info.fields)):
        target.put(query_id, document_ids, rows)
        if queries % step == 0:
            kept.append((query_id, document_ids[:_SAMPLE], rows[:_SAMPLE].copy()))
            if len(kept) == 2 * _SAMPLE:
                kept, step = kept[::2], 2 * step
        queries += 1
        pairs += len(document_ids)
        if queries % 1000 == 0:
            progress(pairs, text="writing pairs")
    if not pairs:
        remedy = "Compute click features with: clickprism log features LOG"
        raise DataError("there is no pair to publish", remedy=remedy)
    info = replace(info, pairs=pairs)
    progress(pairs, text="checking")
    sealed = target.seal(info)
    for query_id, document_ids, rows in kept:
        found = sealed.get(query_id, document_ids)
        if not found.whole or not np.array_equal(found.x, rows, equal_nan=True):
            problem = f"the query {query_id!r} was not stored correctly; the version before stays current"
            raise DataError(problem, remedy="Run the same command again, and report this if it happens again")
    target.switch()
    return Published(info, True, queries, len(kept), 0.0)


def _describe(sources: Sequence[Source], as_of: datetime | None) -> StoreInfo:
    """Return the description of the new version, without the number of pairs; its version is a hash of the content."""
    if not sources:
        raise SettingError("log", None, "be given, or --features, --imputed or --estimates")
    fields = tuple(name for source in sources for name in source.fields)
    twice = sorted({name for name in fields if fields.count(name) > 1}) if len(set(fields)) < len(fields) else []
    if twice:
        raise DataError(f"the field {twice[0]!r} comes twice", remedy="Give one of them another name")
    time_of = as_of or sources[0].as_of
    content = [2, time_of.isoformat(), [(source.fingerprint, source.fields) for source in sources]]
    version = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    empty = np.concatenate([source.empty for source in sources]).astype(np.float32)
    return StoreInfo(version, time_of, fields, empty, 0)


def _sorted(connection: Any, sources: Sequence[Source]) -> Iterator[pa.RecordBatch]:
    """Return the columns query_id, document_id and x, the values of all sources, sorted by query and document."""
    names = [f"s{number}" for number in range(len(sources))]
    tables = [f"({source.sql}) {name}" for source, name in zip(sources, names, strict=True)]
    joined = tables[0] + "".join(f" FULL JOIN {table} USING (query_id, document_id)" for table in tables[1:])
    values = " || ".join(f"coalesce({name}.x, ?::FLOAT[])" for name in names)
    query = f"SELECT query_id, document_id, {values} AS x FROM {joined} ORDER BY query_id, document_id"  # noqa: S608
    parameters = [source.empty.tolist() for source in sources] + [source.file for source in sources]
    yield from connection.sql(query, params=parameters).to_arrow_reader(_BATCH)


def _by_query(batches: Iterator[pa.RecordBatch], width: int) -> Iterator[tuple[str, list[str], Float32]]:
    """Yield each query with its documents and their rows, from batches in the order of queries and documents."""
    query: str | None = None
    documents: list[str] = []
    parts: list[Float32] = []
    for batch in batches:
        queries, names = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        values = batch.column(2).flatten().to_numpy(zero_copy_only=False).astype(np.float32)
        if None in queries or None in names:
            raise DataError("a row has no query_id or no document_id", remedy="Remove such rows from the table")
        if len(values) != len(names) * width or np.isinf(values).any():
            problem = f"a row has a number that float32 cannot hold, or not {width} numbers"
            raise DataError(problem, remedy="Repair the table")
        rows, end = values.reshape(-1, width), 0
        for name, group in groupby(queries):
            start, end = end, end + sum(1 for _ in group)
            if name != query:
                if query is not None:
                    yield _checked(query, documents, parts)
                query, documents, parts = name, [], []
            documents += names[start:end]
            parts.append(rows[start:end])
    if query is not None:
        yield _checked(query, documents, parts)


def _checked(query: str, documents: list[str], parts: list[Float32]) -> tuple[str, list[str], Float32]:
    if len(set(documents)) < len(documents):
        twice = next(name for name, group in groupby(documents) if len(list(group)) > 1)
        raise DataError(f"the pair of {query!r} and {twice!r} comes twice", remedy="Keep one row for each pair")
    return query, documents, parts[0] if len(parts) == 1 else np.concatenate(parts)
