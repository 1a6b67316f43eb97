"""Snapshots: versions of the table `snapshots`, each committed at once, so that a reader sees one whole or not at all.

Each is all the click features as of one time. *In force* is the one of the latest time; of several as of that time, the
one that was committed last. Its rows, and no others, are those of the delta table, whoever reads it. A snapshot of an
earlier time is committed beside it: its files lie in the table's folder without being part of the table. What is not in
force stays readable for `windows.keep_hours`. What a snapshot holds stands in the metadata of its commit: its time, its
fields, and of what it is a function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.errors import DataError
from clickprism.log.schema import SNAPSHOT, conform
from clickprism.settings import plain

_BATCH: Final = 10_000

if TYPE_CHECKING:
    from clickprism.log.settings import WindowSettings
    from clickprism.log.store import LogStore


@dataclass(frozen=True)
class Snapshot:
    """A version of the click features.

    Args:
        version: of the commit, in the table `snapshots`.
        as_of: the time, in UTC.
        fields: the names of the L entries of x.
        fingerprint: of what was read: the names of the files of sessions, the time, the settings and the model. Two
            with the same fingerprint have the same rows; the same rows may come with another, of another log.
        pairs: by window, how many pairs have enough users.
        suppressed: by window, how many have too few.
        settings: of the windows.
        examination: the fingerprint of the examination model; None without one.
        files: the whole paths of its files.
    """

    version: int
    as_of: datetime
    fields: tuple[str, ...]
    fingerprint: str
    pairs: Mapping[str, int]
    suppressed: Mapping[str, int]
    settings: Mapping[str, Any]
    examination: str | None
    files: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether its files are still there."""
        return all(Path(file).is_file() for file in self.files)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Its rows in memory: query_id, document_id, x, users, as_of; or some of these columns."""
        schema = SNAPSHOT if columns is None else pa.schema([SNAPSHOT.field(name) for name in columns])
        self._check_kept()
        parts = [conform(pq.read_table(file, columns=schema.names), schema, what="snapshots") for file in self.files]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _check_kept(self) -> None:
        if not self.kept:
            raise DataError(
                f"the snapshot of version {self.version} is no longer kept",
                remedy=f"Compute it again with: clickprism log features LOG --as-of {self.as_of.isoformat()}, "
                "or raise windows.keep_hours",
            )

    def export(self, path: Path) -> None:
        """Write its rows to a Parquet file, a column for each field, whole or not at all."""
        self._check_kept()
        schema = pa.schema(
            [*(SNAPSHOT.field(name) for name in SNAPSHOT.names if name != "x")]
            + [pa.field(name, pa.float64()) for name in self.fields]
        )
        with atomic_file(path, parents=True) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for file in self.files:
                with pq.ParquetFile(file) as opened:
                    for batch in opened.iter_batches(_BATCH):
                        writer.write_batch(_wide(batch, schema, len(self.fields)))

    def rows(self) -> int:
        """How many pairs it holds."""
        self._check_kept()
        return sum(pq.read_metadata(file).num_rows for file in self.files)


def _wide(batch: pa.RecordBatch, schema: pa.Schema, fields: int) -> pa.RecordBatch:
    """A batch with a column for each field in the place of x."""
    values = batch.column("x").flatten().to_numpy(zero_copy_only=False).reshape(batch.num_rows, fields)
    named = [batch.column(name).cast(schema.field(name).type) for name in schema.names[:-fields]]
    return pa.record_batch([*named, *(pa.array(column) for column in values.T.copy())], schema=schema)


def find_snapshots(store: LogStore) -> list[Snapshot]:
    """The snapshots whose commits are still known, the newest first; the files of old ones may be gone."""
    table = store.table("snapshots")
    delta = table.latest()
    found = [entry for entry in ([] if delta is None else delta.history()) if "fingerprint" in entry]
    return [_from(entry, table.folder) for entry in found]


def read_snapshot(store: LogStore, *, as_of: datetime | None = None, version: int | None = None) -> Snapshot:
    """The snapshot of a version; else the latest as of a time or before; else the one in force.

    Args:
        store: the log.
        as_of: UTC, without a zone.
        version: of the table `snapshots`.
    """
    found = [each for each in find_snapshots(store) if each.kept]
    if version is not None:
        found = [each for each in found if each.version == version]
    elif as_of is not None:
        found = [each for each in found if each.as_of <= as_of]
    if not found:
        which = f" of version {version}" if version is not None else "" if as_of is None else f" as of {as_of}"
        raise DataError(
            f"there is no snapshot{which}",
            file=store.folder,
            remedy=f"Compute one with: clickprism log features {store.folder.name}",
        )
    return max(found, key=_rank)


def _rank(snapshot: Snapshot) -> tuple[datetime, int]:
    return snapshot.as_of, snapshot.version


def commit_snapshot(
    store: LogStore,
    files: Sequence[Path],
    *,
    as_of: datetime,
    fields: Sequence[str],
    fingerprint: str,
    pairs: Mapping[str, int],
    suppressed: Mapping[str, int],
    settings: WindowSettings,
    examination: str | None,
) -> Snapshot:
    """Put these files in force, or beside a snapshot of a later time, in one commit; clear what is no longer kept."""
    table = store.table("snapshots")
    entry = {
        "as_of": as_of.isoformat(),
        "fields": json.dumps(list(fields)),
        "fingerprint": fingerprint,
        "pairs": json.dumps(dict(pairs)),
        "suppressed": json.dumps(dict(suppressed)),
        "settings": json.dumps(plain(settings)),
        "examination": examination or "",
        "files": json.dumps([file.name for file in files]),
    }
    if any(each.as_of > as_of and each.kept for each in find_snapshots(store)):
        version = table.commit_files({}, metadata=entry)
    else:
        version = table.commit_files({None: list(files)}, remove=table.files(), metadata=entry)
        table.vacuum(hours=settings.keep_hours)
    return _from({**entry, "version": version}, table.folder)


def _from(entry: Mapping[str, Any], folder: Path) -> Snapshot:
    return Snapshot(
        version=int(entry["version"]),
        as_of=datetime.fromisoformat(entry["as_of"]),
        fields=tuple(json.loads(entry["fields"])),
        fingerprint=entry["fingerprint"],
        pairs=json.loads(entry["pairs"]),
        suppressed=json.loads(entry["suppressed"]),
        settings=json.loads(entry["settings"]),
        examination=entry["examination"] or None,
        files=tuple(str(folder / name) for name in json.loads(entry["files"])),
    )
