"""Publishing: the click vectors of a log, a ranker's features, imputed values, or all of them, into an online store.

    snapshot of a log ─┐
    table of features ─┼─ joined and sorted by query (DuckDB) ─▶ built beside ─▶ a sample read again ─▶ switched
    imputed values ────┘

Memory is bounded whatever the size: DuckDB sorts on disk, and the documents of one query at a time are written.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clickprism.errors import DataError, EngineError, SettingError
from clickprism.log.table import first_line
from clickprism.serve.sources import Source, snapshot_source, table_source
from clickprism.serve.store import IMPUTED, SCHEMES, Found, StoreInfo
from clickprism.types import Float32

if TYPE_CHECKING:
    from clickprism.log.snapshots import Snapshot

GRACE: Final = 3600.0
"""Seconds for which a snapshot stays after it was replaced."""
_BATCH: Final = 8192
_SAMPLE: Final = 64


class Sealed(Protocol):
    """A snapshot that is whole, but not in force yet."""

    info: StoreInfo

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents."""
        ...


class Builder(Protocol):
    """Who fills a store: in a `with`, one at a time."""

    def present(self) -> StoreInfo | None:
        """What is in force, if it is whole."""
        ...

    def put(self, query_id: str, document_ids: Sequence[str], rows: Float32) -> None:
        """All documents of a query; each query comes once."""
        ...

    def seal(self, info: StoreInfo) -> Sealed:
        """Nothing more comes."""
        ...

    def switch(self) -> None:
        """Put it in force."""
        ...


@final
@dataclass(frozen=True)
class Published:
    """What was published: `changed` is false if the same was in force before, and nothing had to be done."""

    info: StoreInfo
    changed: bool
    queries: int
    checked: int
    seconds: float

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "version": self.info.version,
            "as_of": self.info.as_of.isoformat(),
            "age_seconds": round(self.info.age(), 1),
            "fields": len(self.info.fields),
            "pairs": self.info.pairs,
            "queries": self.queries if self.changed else None,
            "checked_queries": self.checked if self.changed else None,
            "changed": self.changed,
            "seconds": round(self.seconds, 3),
        }


def builder(
    to: Path | str, *, grace: float = GRACE, waiting: Callable[[], None] | None = None
) -> AbstractContextManager[Builder]:
    """Who fills the store at this address: a folder, or `redis://host:port/0?prefix=name`."""
    if not 1 <= grace < float("inf"):
        raise SettingError("grace", grace, "be at least 1 second")
    if str(to).startswith(SCHEMES):
        from clickprism.serve.redis_build import RedisBuilder

        return RedisBuilder(str(to), grace=grace, waiting=waiting)
    from clickprism.serve.lmdb_build import LmdbBuilder

    return LmdbBuilder(Path(to), grace=grace, waiting=waiting)


def publish(
    to: Path | str,
    *,
    snapshot: Snapshot | None = None,
    features: Path | None = None,
    imputed: Path | None = None,
    as_of: datetime | None = None,
    grace: float = GRACE,
    memory: str = "1GB",
    progress: Callable[[int, str], None] | None = None,
) -> Published:
    """Fill a store and put it in force; readers of it follow.

    Args:
        to: a folder, or `redis://host:port/0?prefix=name`.
        snapshot: the click vectors of a log.
        features: a table with query_id, document_id and a number in every other column: Parquet, CSV or JSON lines.
        imputed: what `clickprism impute --apply` has written: the field `imputed`.
        as_of: nothing later is in it, UTC without a zone; by default that of the snapshot, else when the files changed.
        grace: seconds for which what was in force before stays.
        memory: what DuckDB may hold at a time.
        progress: called now and then with the pairs so far and what is done.
    """
    import duckdb

    started = time.monotonic()
    say = progress or (lambda _pairs, _doing: None)
    with tempfile.TemporaryDirectory(prefix="clickprism-") as spill:
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": spill, "preserve_insertion_order": False}
        with _failing(), duckdb.connect(config=config) as connection:
            sources = [] if snapshot is None else [snapshot_source(snapshot)]
            sources += [] if features is None else [table_source(connection, features)]
            sources += [] if imputed is None else [table_source(connection, imputed, rename={"imputation": IMPUTED})]
            draft = _describe(sources, as_of)
            with builder(to, grace=grace, waiting=lambda: say(0, "waiting for another publish")) as target:
                there = target.present()
                if there is not None and there.version == draft.version:
                    return Published(there, False, 0, 0, time.monotonic() - started)
                say(0, "sorting")
                return _fill(target, connection, sources, draft, started=started, say=say)


def _fill(
    target: Builder, connection: Any, sources: list[Source], draft: StoreInfo, *, started: float, say: Any
) -> Published:
    sample, queries, pairs = _Sample(), 0, 0
    for query_id, document_ids, rows in by_query(_sorted(connection, sources), sources):
        target.put(query_id, document_ids, rows)
        sample.add(query_id, document_ids, rows)
        queries += 1
        pairs += len(document_ids)
        if queries % 1000 == 0:
            say(pairs, "writing")
    if not pairs:
        raise DataError("there is no pair to publish", remedy="Make a snapshot by: clickprism windows DIR")
    info = StoreInfo(draft.version, draft.as_of, draft.fields, draft.empty, pairs)
    say(pairs, "checking")
    sample.check(target.seal(info))
    target.switch()
    return Published(info, True, queries, len(sample.kept), time.monotonic() - started)


def _describe(sources: Sequence[Source], as_of: datetime | None) -> StoreInfo:
    """What will be in force, but for the number of pairs; the version is a function of all that goes in."""
    if not sources:
        raise SettingError("LOG", None, "be given, or --features, or --imputed")
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

    def check(self, sealed: Sealed) -> None:
        """An error if what was kept is not what the store gives back."""
        for query_id, document_ids, rows in self.kept:
            found = sealed.get(query_id, document_ids)
            if not found.found.all() or not np.array_equal(found.x, rows, equal_nan=True):
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
