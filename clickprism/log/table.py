"""A delta table of a click log: files join and leave it by commits, which readers see completely or not at all.

A commit may carry idempotency keys (delta's `txn` actions): the same key is never committed twice.

A commit survives a power cut once `commit_files` has returned: the added files and their folders are synced before the
commit names them, the commit and its folders after it; only then may files that left the table be deleted. delta-rs
itself syncs nothing, so that a cut can leave the last commit empty or incomplete; `LogTable.repair` removes such a one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from clickprism._util.crash_points import crash_point
from clickprism._util.files import sync
from clickprism.errors import DataError
from clickprism.log.engines.base import first_line
from clickprism.log.schema import conform

SUM: Final = "sum"
"""Start of the name of a merged file; `files_id` of the files that were merged follows."""
_SAFE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._=-]*")
_ATTEMPTS: Final = 20
_ACTIONS: Final = "clickprism.actions"
"""Entry of a commit with its number of actions, which shows whether it is complete."""
_CHECKPOINT: Final = 100
"""Number of commits from one checkpoint to the next; delta-rs reads the commits after the last one."""
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class LogTable:
    """A delta table of the log, created by its first commit.

    A table with a column `day` is partitioned: its files are in folders `day=YYYY-MM-DD` and lack that column.
    """

    def __init__(self, folder: Path, *, schema: pa.Schema) -> None:
        self.folder = folder
        self.schema = schema
        self._partitions = ["day"] if "day" in schema.names else None
        self._delta: DeltaTable | None = None

    @property
    def name(self) -> str:
        """Name of the table and of its folder."""
        return self.folder.name

    def latest(self) -> DeltaTable | None:
        """Return the latest version of the delta table, or None before its first commit."""
        try:
            if self._delta is None:
                if not (self.folder / "_delta_log").is_dir():
                    return None
                self._delta = DeltaTable(str(self.folder))
            else:
                self._delta.update_incremental()
        except TableNotFoundError:
            self._delta = None
        except (DeltaError, OSError) as error:
            self._delta = None
            problem = f"the table cannot be read ({first_line(error)})"
            raise DataError(problem, file=self.folder, remedy="Restore it from a copy") from None
        return self._delta

    @property
    def version(self) -> int | None:
        """Number of the last commit."""
        delta = self.latest()
        return None if delta is None else int(delta.version())

    def history(self) -> list[dict[str, Any]]:
        """Return the metadata of the known commits, the newest first."""
        delta = self.latest()
        return [] if delta is None else delta.history()

    def _rows(self) -> dict[str, int]:
        """Return the number of rows of each file, by its whole path, in order."""
        delta = self.latest()
        actions = pa.table({"path": [], "num_records": []}) if delta is None else pa.table(delta.get_add_actions())
        paths = [str(self.folder / path) for path in actions["path"].to_pylist()]
        return dict(sorted(zip(paths, actions["num_records"].to_pylist(), strict=True)))

    def files(self, days: Iterable[date] | None = None) -> list[str]:
        """Return the whole paths of the files of these days, by default of all days, sorted by name."""
        if days is None:
            return list(self._rows())
        return sorted(file for files in self.file_rows(days).values() for file in files)

    def days(self) -> list[date]:
        """Return the days that have files, in order."""
        return sorted(by_day(self.files())) if self._partitions else []

    def rows(self) -> int:
        """Return the number of rows."""
        return sum(self._rows().values())

    def rows_of(self, days: Iterable[date]) -> dict[date, int]:
        """Return the number of rows of each of these days."""
        found = self.file_rows()
        return {day: sum(found.get(day, {}).values()) for day in days}

    def file_rows(self, days: Iterable[date] | None = None) -> dict[date, dict[str, int]]:
        """Return the number of rows of each file, by day and whole path, of some days or of all."""
        rows = self._rows()
        chosen = None if days is None else {*days}
        return {
            day: {file: rows[file] for file in files}
            for day, files in sorted(by_day(rows).items())
            if chosen is None or day in chosen
        }

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows in memory: for small tables."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        parts = []
        for file in self.files():
            rows = pq.read_table(file, columns=[name for name in schema.names if name != "day"], partitioning=None)
            if self._partitions and "day" in schema.names:
                rows = rows.append_column("day", pa.repeat(pa.scalar(_day_of(file), pa.date32()), len(rows)))
            parts.append(conform(rows, schema, what=self.name))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def committed(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the numbers that were committed with these idempotency keys; keys never committed are absent."""
        delta = self.latest()
        found = {} if delta is None else {key: delta.transaction_version(key) for key in keys}
        return {key: number for key, number in found.items() if number is not None}

    def day_folder(self, day: date) -> Path:
        """Return the folder of the files of a day; create it if it is missing."""
        folder = self.folder / f"day={day.isoformat()}"
        with writing(self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def append(self, rows: pa.Table, *, keys: Mapping[str, int] | None = None) -> int:
        """Commit rows of a table that is not partitioned; return the version."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            pq.write_table(conform(rows, self.schema, what=self.name), path, compression="zstd")
        return self.commit_files({None: [path]}, keys=keys)

    def commit_files(
        self,
        added: Mapping[date, Sequence[Path]] | Mapping[None, Sequence[Path]],
        *,
        remove_days: Iterable[date] = (),
        remove: Iterable[str | Path] = (),
        keys: Mapping[str, int] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Let files join and leave the table in one commit; return the version.

        Args:
            added: Parquet files by day (None: not partitioned), in the table's folder, or elsewhere on the same disk,
                from where they are moved.
            remove_days: days whose present files leave.
            remove: files that leave, by whole path.
            keys: idempotency keys, each with a number to remember; a key that was committed before is an error.
            metadata: texts to keep with the commit.
        """
        keys, since = dict(keys or {}), -1 if self.version is None else self.version
        self._create()
        with writing(self.folder):
            if since < 0:  # the commit that created the table must reach the disk before the next one
                self._sync_commits(since=-1)
            actions = [self._add(day, Path(path)) for day, paths in added.items() for path in paths]
            files = {self.folder / action.path for action in actions}
            for path in sorted({*files, *(file.parent for file in files), self.folder, self.folder.parent}):
                sync(path)
        crash_point(f"{self.name}-moved")
        kept, gone_days, gone = set(map(str, files)), {*remove_days}, {str(path) for path in remove}
        transactions = [Transaction(key, number) for key, number in keys.items()]
        for attempt in range(_ATTEMPTS):
            delta = self.latest()
            if delta is None or self.committed(keys):
                raise DataError("was committed by another run", file=self.folder, remedy="Run the command again")
            leaving = [
                self._remove(file)
                for file in self._rows()
                if file not in kept and (file in gone or (self._partitions and _day_of(file) in gone_days))
            ]
            count = {_ACTIONS: str(len(actions) + len(leaving) + len(transactions))}
            properties = CommitProperties(custom_metadata={**(metadata or {}), **count}, app_transactions=transactions)
            try:
                with writing(self.folder):
                    delta.create_write_transaction(
                        [*actions, *leaving],
                        "append",
                        self.schema,
                        self._partitions,
                        commit_properties=properties,
                        post_commithook_properties=_NO_HOOKS,
                    )
                crash_point(f"{self.name}-committed")
                break
            except CommitFailedError as error:
                self._delta = None
                if attempt + 1 == _ATTEMPTS:
                    problem = f"cannot be committed ({first_line(error)})"
                    raise DataError(problem, file=self.folder, remedy="Run the command again") from None
                time.sleep(0.05 * (attempt + 1))
        with writing(self.folder):
            self._sync_commits(since=since)
            delta, version = self.latest(), self.version
            if delta is None or version is None:
                return -1
            if version // _CHECKPOINT > max(since, 0) // _CHECKPOINT:
                delta.create_checkpoint()
                self._sync_commits(since=since)
                delta.cleanup_metadata()  # deletes commits, now that the checkpoint is on disk
        return version

    def rewrite(
        self,
        files: Iterable[str],
        change: Callable[[str, int, pa.RecordBatch], pa.RecordBatch],
        *,
        writer: Callable[[Path], pq.ParquetWriter] | None = None,
        batch_rows: int = 10_000,
    ) -> None:
        """Replace files by ones with other rows, in one commit; a file of which no row is left leaves.

        Args:
            files: whole paths.
            change: returns the new rows of a batch; it also gets the file and the number of rows before the batch.
            writer: opens a new file; by default one with the schema of the table.
            batch_rows: number of rows of a batch.
        """
        added: dict[Any, list[Path]] = {}
        leaving = list(files)
        with writing(self.folder):
            for file in leaving:
                path, start = Path(file).with_name(f"kept-{uuid.uuid4().hex}.parquet"), 0
                new = pq.ParquetWriter(path, self.schema, compression="zstd") if writer is None else writer(path)
                with pq.ParquetFile(file) as opened, new:
                    for batch in opened.iter_batches(batch_rows, use_threads=False):
                        rows = pa.Table.from_batches([change(file, start, batch)])
                        new.write_table(rows.select(new.schema.names).cast(new.schema))
                        start += len(batch)
                if pq.read_metadata(path).num_rows:
                    added.setdefault(_day_of(file) if self._partitions else None, []).append(path)
                else:
                    path.unlink()
        if leaving:
            self.commit_files(added, remove=leaving)

    def repair(self) -> None:
        """Remove what a power cut left incomplete: the last commits, if they are empty or cut, and checkpoints.

        Nothing that was acknowledged is lost: `commit_files` returns when its commit is on disk. Only for a process
        that holds the lock of the log.
        """
        log = self.folder / "_delta_log"
        broken = [path for path in log.glob("*.checkpoint*.parquet") if not _is_parquet(path)]
        last = log / "_last_checkpoint"
        if broken or (last.exists() and _json_lines(last) is None):
            broken.append(last)
        for path in sorted(log.glob("*.json"), reverse=True):
            if _is_complete(path):
                break
            broken.append(path)
        for path in broken:
            path.unlink(missing_ok=True)
        if broken:
            sync(log)
            self._delta = None

    def vacuum(self, *, hours: int = 168) -> None:
        """Delete files that left the table, or were never added to it, at least this number of hours ago."""
        delta = self.latest()
        if delta is None:
            return
        before = int(delta.version())
        with writing(self.folder):
            delta.vacuum(
                retention_hours=hours,
                enforce_retention_duration=False,
                dry_run=False,
                full=True,
                post_commithook_properties=_NO_HOOKS,
            )
            self._sync_commits(since=before)

    def sweep(self) -> None:
        """Delete the files of the folder that are not in the table now."""
        live = set(self.files())
        gone = [
            file for file in self.folder.rglob("*.parquet") if "_delta_log" not in file.parts and str(file) not in live
        ]
        for file in gone:
            file.unlink(missing_ok=True)
        for folder in {file.parent for file in gone}:
            sync(folder)

    def _create(self) -> None:
        """Create the table if it is missing; another process may create it at the same time."""
        if self.latest() is not None:
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            properties = CommitProperties(custom_metadata={_ACTIONS: "2"})
            try:
                DeltaTable.create(
                    str(self.folder),
                    self.schema,
                    mode="ignore",
                    partition_by=self._partitions,
                    commit_properties=properties,
                )
            except CommitFailedError:  # the other was first, which mode="ignore" only notices before it commits
                if self.latest() is None:
                    raise

    def _sync_commits(self, *, since: int) -> None:
        """Bring the commits after a version to disk, with the checkpoints that were written with them."""
        log = self.folder / "_delta_log"
        for path in log.iterdir():
            number = path.name.partition(".")[0]
            if path.is_file() and not (number.isdecimal() and int(number) <= since):
                with suppress(FileNotFoundError):  # another process may delete old commits
                    sync(path)
        sync(log)
        sync(self.folder)

    def _add(self, day: date | None, path: Path) -> AddAction:
        if (day is not None) is not bool(self._partitions):
            raise DataError(f"the table {self.name} is {'' if self._partitions else 'not '}by day", file=path)
        if not path.is_relative_to(self.folder):
            target = (self.folder if day is None else self.day_folder(day)) / path.name
            os.replace(path, target)
            path = target
        relative = path.relative_to(self.folder)
        if not all(_SAFE.fullmatch(part) for part in relative.parts):
            raise DataError("has a name with letters that a table cannot hold", file=relative)
        rows, status = pq.read_metadata(path).num_rows, path.stat()
        values: dict[str, str | None] = {} if day is None else {"day": day.isoformat()}
        stats = json.dumps({"numRecords": rows})  # no minimum or maximum: they would keep the ids of erased users
        return AddAction(relative.as_posix(), status.st_size, values, int(status.st_mtime * 1000), True, stats)

    def _remove(self, file: str) -> RemoveAction:
        values: dict[str, Any] = {"day": _day_of(file).isoformat()} if self._partitions else {}
        path = Path(file).relative_to(self.folder).as_posix()
        return RemoveAction(path, True, int(time.time() * 1000), partition_values=values)


def by_day(files: Iterable[str]) -> dict[date, list[str]]:
    """Return the files of a partitioned table by day, which is the name of the folder."""
    found = defaultdict(list)
    for file in files:
        found[_day_of(file)].append(file)
    return dict(found)


def _day_of(file: str) -> date:
    return date.fromisoformat(Path(file).parent.name.removeprefix("day="))


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Name the folder and the remedy when the disk is full or may not be written."""
    try:
        yield
    except CommitFailedError:
        raise
    except (OSError, DeltaError) as error:
        problem = f"cannot be written ({getattr(error, 'strerror', None) or first_line(error)})"
        remedy = "The log was not changed partially. Check disk space and permissions, and run the same command again"
        raise DataError(problem, file=folder, remedy=remedy) from None


def files_id(files: Iterable[str | Path]) -> str:
    """Return an id of the content of files of `events`, which merging files does not change.

    >>> one, other = files_id(["a.parquet"]), files_id(["a.parquet", "b.parquet"])
    >>> one == other, other == files_id([f"sum-{other}-7.parquet"]), len(other)
    (False, True, 32)
    """
    total = 0
    for name in (Path(file).name for file in files):
        kind, _, rest = name.partition("-")
        digest = hashlib.sha256(name.encode()).digest()[:16]
        total += int(rest.partition("-")[0], 16) if kind == SUM else int.from_bytes(digest)
    return f"{total % 2**128:032x}"


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def _json_lines(path: Path) -> list[Any] | None:
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError:
        return None


def _is_complete(path: Path) -> bool:
    """Return whether each line of a commit is JSON, and it has at least as many actions as it says."""
    lines = _json_lines(path)
    if not lines:
        return False
    counts = [line["commitInfo"].get(_ACTIONS) for line in lines if "commitInfo" in line]
    actions = sum(name in line for line in lines for name in ("add", "remove", "txn", "protocol", "metaData"))
    return all(each is None or int(each) <= actions for each in counts)
