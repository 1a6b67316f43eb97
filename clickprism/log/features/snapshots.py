"""Snapshots: versions of the table `snapshots`, each the click features as of one time.

The *current* one is that of the latest time; of several as of that time, the last one that was committed. Its rows are
those of the delta table. A snapshot of an earlier time is committed beside it: its files are in the folder of the table
without being part of it. Others than the current one stay readable for `windows.keep_hours`. The metadata of the commit
describe a snapshot: its time, its fields, and the fingerprint of its inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file
from clickprism.errors import DataError
from clickprism.log.schema import SNAPSHOT, conform

_BATCH: Final = 10_000

if TYPE_CHECKING:
    from clickprism.log.store import LogStore


@dataclass(frozen=True)
class Snapshot:
    """A version of the click features.

    Attributes:
        version: of the commit, in the table `snapshots`.
        as_of: the time, in UTC.
        fields: names of the L entries of x.
        fingerprint: of the inputs: the sessions, the time, the settings and the model. Equal ones mean equal rows.
        pairs: number of pairs with enough users, by window.
        suppressed: number of pairs with too few users, by window.
        settings: of the windows.
        examination: fingerprint of the examination model; None without one.
        files: whole paths of its files.
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
        """Whether its files still exist."""
        return all(Path(file).is_file() for file in self.files)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return its rows in memory: query_id, document_id, x, users, as_of; or some of these columns."""
        schema = SNAPSHOT if columns is None else pa.schema([SNAPSHOT.field(name) for name in columns])
        self._check_kept()
        parts = [conform(pq.read_table(file, columns=schema.names), schema, what="snapshots") for file in self.files]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _check_kept(self) -> None:
        if not self.kept:
            command = f"clickprism log features LOG --as-of {self.as_of.isoformat()}"
            remedy = f"Compute it again with: {command}, or raise windows.keep_hours"
            raise DataError(f"the snapshot of version {self.version} is no longer kept", remedy=remedy)

    def export(self, path: Path) -> None:
        """Write its rows to a Parquet file, a column for each field in the place of x."""
        self._check_kept()
        schema = pa.schema(
            [*(SNAPSHOT.field(name) for name in SNAPSHOT.names if name != "x")]
            + [pa.field(name, pa.float64()) for name in self.fields]
        )
        with atomic_file(path, parents=True) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for file in self.files:
                with pq.ParquetFile(file) as opened:
                    for batch in opened.iter_batches(_BATCH):
                        x = batch.column("x").flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
                        names = schema.names[: -len(self.fields)]
                        own = [batch.column(name).cast(schema.field(name).type) for name in names]
                        writer.write_batch(pa.record_batch([*own, *map(pa.array, x.T.copy())], schema=schema))

    def rows(self) -> int:
        """Return the number of pairs."""
        self._check_kept()
        return sum(pq.read_metadata(file).num_rows for file in self.files)


def find_snapshots(store: LogStore) -> list[Snapshot]:
    """Return the snapshots whose commits are still known, the newest first; the files of old ones may be deleted."""
    table = store.table("snapshots")
    return [_from(entry, table.folder) for entry in table.history() if "fingerprint" in entry]


def read_snapshot(store: LogStore, *, as_of: datetime | None = None, version: int | None = None) -> Snapshot:
    """Return the snapshot of a version; else the latest as of a time (UTC) or before; else the current one."""
    found = [each for each in find_snapshots(store) if each.kept]
    if version is not None:
        found = [each for each in found if each.version == version]
    elif as_of is not None:
        found = [each for each in found if each.as_of <= as_of]
    if not found:
        which = f" of version {version}" if version is not None else "" if as_of is None else f" as of {as_of}"
        remedy = f"Compute one with: clickprism log features {store.folder.name}"
        raise DataError(f"there is no snapshot{which}", file=store.folder, remedy=remedy)
    return max(found, key=lambda each: (each.as_of, each.version))


def commit_snapshot(store: LogStore, made: Snapshot, *, keep_hours: int) -> Snapshot:
    """Make a snapshot the current one, or put its files beside one of a later time, in one commit."""
    table, names = store.table("snapshots"), [Path(file).name for file in made.files]
    about = asdict(made) | {"as_of": made.as_of.isoformat(), "examination": made.examination or "", "files": names}
    del about["version"]
    entry = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    if any(each.as_of > made.as_of and each.kept for each in find_snapshots(store)):
        version = table.commit_files({}, metadata=entry)
    else:
        version = table.commit_files({None: list(map(Path, made.files))}, remove=table.files(), metadata=entry)
        table.vacuum(hours=keep_hours)
    return replace(made, version=version)


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
