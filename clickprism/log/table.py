"""A delta table of a click log: files join and leave it by commits, which readers see whole or not at all.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from clickprism.log.schema import conform

_SAFE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._=-]*")
SUM: Final = "sum"
"""How the name of a file begins that others were put into; the sum of what they are called follows."""
_SIZE: Final = 2**128
_ATTEMPTS: Final = 20
_COUNTS: Final = ("path", "num_records")
_ACTIONS: Final = "clickprism.actions"
"""Where a commit says how many actions it has, so that one that was cut is recognised."""
_CHECKPOINT: Final = 100
"""Number of commits from one checkpoint to the next; delta-rs reads the commits after the last one."""
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class LogTable:
    """A delta table of the log; it comes into being by its first commit. By day: files lie in `day=YYYY-MM-DD/`.

    Args:
        folder: of the table.
        schema: its columns, `day` among them if it is by day.
        by_day: whether it is partitioned by `day`.
    """

    def __init__(self, folder: Path, *, schema: pa.Schema, by_day: bool) -> None:
        self.folder = folder
        self.schema = schema
        self.by_day = by_day
        self._delta: DeltaTable | None = None

    @property
    def name(self) -> str:
        """Of the table."""
        return self.folder.name

    def latest(self) -> DeltaTable | None:
        """The delta table as it is now; None before its first commit."""
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
            raise DataError(
                f"the table cannot be read ({first_line(error)})", file=self.folder, remedy="Restore it from a copy"
            ) from None
        return self._delta

    @property
    def version(self) -> int | None:
        """The number of the last commit."""
        delta = self.latest()
        return None if delta is None else int(delta.version())

    def _paths(self) -> list[str]:
        delta = self.latest()
        return [] if delta is None else sorted(pa.table(delta.get_add_actions())["path"].to_pylist())

    def files(self, days: Iterable[date] | None = None) -> list[str]:
        """The whole paths of its files, of these days or of all, in the order of their names."""
        chosen = None if days is None else {f"day={day.isoformat()}" for day in days}
        return [str(self.folder / path) for path in self._paths() if chosen is None or path.split("/")[0] in chosen]

    def days(self) -> list[date]:
        """The days that have files, in order."""
        found = {path.split("/")[0].removeprefix("day=") for path in self._paths() if path.startswith("day=")}
        return [date.fromisoformat(day) for day in sorted(found)]

    def rows(self) -> int:
        """How many rows there are."""
        return sum(self._rows().values())

    def rows_of(self, days: Iterable[date]) -> dict[date, int]:
        """How many rows each of these days has."""
        found = self.file_rows()
        return {day: sum(found.get(day, {}).values()) for day in days}

    def file_rows(self, days: Iterable[date] | None = None) -> dict[date, dict[str, int]]:
        """How many rows each file has, by day and whole path, of these days or of all; in the order of their names."""
        found: dict[date, dict[str, int]] = {}
        for path, count in sorted(self._rows().items()):
            day = date.fromisoformat(path.split("/")[0].removeprefix("day="))
            found.setdefault(day, {})[str(self.folder / path)] = count
        return found if days is None else {day: found[day] for day in sorted({*days} & found.keys())}

    def _rows(self) -> dict[str, int]:
        delta = self.latest()
        actions = None if delta is None else pa.table(delta.get_add_actions())
        return {} if actions is None else dict(zip(*(actions[name].to_pylist() for name in _COUNTS), strict=True))

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in memory: for small tables."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        parts = [conform(self._read_file(file, schema.names), schema, what=self.name) for file in self.files()]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _read_file(self, file: str, columns: Sequence[str]) -> pa.Table:
        if not self.by_day:
            return pq.read_table(file, columns=columns, partitioning=None)
        rows = pq.read_table(file, columns=[name for name in columns if name != "day"], partitioning=None)
        day = date.fromisoformat(Path(file).parent.name.removeprefix("day="))
        return rows.append_column("day", pa.repeat(pa.scalar(day, pa.date32()), len(rows)))

    def committed(self, keys: Iterable[str]) -> dict[str, int]:
        """The numbers that were committed with these idempotency keys, of those that ever were."""
        delta = self.latest()
        found = {} if delta is None else {key: delta.transaction_version(key) for key in keys}
        return {key: number for key, number in found.items() if number is not None}

    def day_folder(self, day: date) -> Path:
        """Where the files of a day lie; it is made if missing."""
        folder = self.folder / f"day={day.isoformat()}"
        with writing(self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def append(
        self, rows: pa.Table, *, keys: Mapping[str, int] | None = None, metadata: Mapping[str, str] | None = None
    ) -> int:
        """Commit rows of a table that is not by day; returns the version."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            pq.write_table(conform(rows, self.schema, what=self.name), path, compression="zstd")
        return self.commit_files({None: [path]}, keys=keys, metadata=metadata)

    def commit_files(
        self,
        added: Mapping[date, Sequence[Path]] | Mapping[None, Sequence[Path]],
        *,
        remove_days: Iterable[date] = (),
        remove: Iterable[str | Path] = (),
        keys: Mapping[str, int] | None = None,
        metadata: Mapping[str, str] | None = None,
        overwrite: bool = False,
    ) -> int:
        """One commit: files join the table, others leave it; returns the version.

        Args:
            added: Parquet files by day (None: not by day), in the table's folder, or elsewhere on the same disk and
                then moved into it. They lack the column `day`.
            remove_days: days whose present files leave.
            remove: files that leave, by whole path or name within the table.
            keys: idempotency keys, each with a number to remember; a key that was committed before is an error.
            metadata: words to keep with the commit.
            overwrite: all present files leave, and the table gets the columns of `schema`.
        """
        keys, before = dict(keys or {}), self.version
        self._create()
        with writing(self.folder):
            if before is None:  # the next commit must not reach the disk before the one that created the table
                self._sync_commits(since=-1)
            actions = [self._add(day, Path(path)) for day, paths in added.items() for path in paths]
            self._sync_files({self.folder / action.path for action in actions})
        crash_point(f"{self.name}-moved")
        transactions = [Transaction(key, number) for key, number in keys.items()]
        days, single = list(remove_days), {str(path) for path in remove}
        for attempt in range(_ATTEMPTS):
            delta = self.latest()
            if delta is None or any(delta.transaction_version(key) is not None for key in keys):
                raise DataError("was committed by another run", file=self.folder, remedy="Run the command again")
            leaving = [_remove(path) for path in self._leaving(days, single, {action.path for action in actions})]
            count = len(actions) + len(leaving) + len(transactions)
            told = {} if overwrite else {_ACTIONS: str(count)}  # delta-rs adds actions of its own when it overwrites
            properties = CommitProperties(custom_metadata={**(metadata or {}), **told}, app_transactions=transactions)
            try:
                with writing(self.folder):
                    delta.create_write_transaction(
                        [*actions, *leaving],
                        "overwrite" if overwrite else "append",
                        self.schema,
                        ["day"] if self.by_day else None,
                        commit_properties=properties,
                        post_commithook_properties=_NO_HOOKS,
                    )
                crash_point(f"{self.name}-committed")
                break
            except CommitFailedError as error:
                self._delta = None
                if attempt + 1 == _ATTEMPTS:
                    raise DataError(
                        f"cannot be committed ({first_line(error)})", file=self.folder, remedy="Run the command again"
                    ) from None
                time.sleep(0.05 * (attempt + 1))
        since = -1 if before is None else before
        with writing(self.folder):
            self._sync_commits(since=since)
            version = self.version
            if version is not None and version // _CHECKPOINT > max(since, 0) // _CHECKPOINT:
                self._checkpoint(since=since)
        return -1 if version is None else version

    def repair(self) -> None:
        """Remove what a power cut left incomplete: the last commits, if they are empty or cut, and checkpoints.

        Nothing that was acknowledged is lost: `commit_files` returns when its commit is on disk. Only for a process
        that holds the lock of the log.
        """
        log = self.folder / "_delta_log"
        if not log.is_dir():
            return
        broken = [path for path in log.glob("*.checkpoint*.parquet") if not _readable(path)]
        if broken or not _is_json(log / "_last_checkpoint"):
            broken.append(log / "_last_checkpoint")
        for path in sorted(log.glob("*.json"), reverse=True):
            if _is_whole(path):
                break
            broken.append(path)
        if broken:
            for path in broken:
                path.unlink(missing_ok=True)
            sync(log)
            self._delta = None

    def vacuum(self, *, hours: int = 168) -> list[str]:
        """Delete the files that left the table, or never joined it, so many hours ago; returns their names."""
        delta = self.latest()
        if delta is None:
            return []
        before = int(delta.version())
        with writing(self.folder):
            gone: list[str] = delta.vacuum(
                retention_hours=hours,
                enforce_retention_duration=False,
                dry_run=False,
                full=True,
                post_commithook_properties=_NO_HOOKS,
            )
            self._sync_commits(since=before)
        return gone

    def _create(self) -> None:
        """Create the table if it is missing; another process may create it at the same time."""
        if self.latest() is not None:
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                DeltaTable.create(
                    str(self.folder),
                    self.schema,
                    mode="ignore",
                    partition_by=["day"] if self.by_day else None,
                    commit_properties=CommitProperties(custom_metadata={_ACTIONS: "2"}),
                )
            except CommitFailedError:  # the other was first, which mode="ignore" only notices before it commits
                if self.latest() is None:
                    raise

    def _sync_files(self, files: set[Path]) -> None:
        """Bring new files of the table to disk, before a commit names them."""
        for path in sorted({*files, *(file.parent for file in files), self.folder, self.folder.parent}):
            sync(path)

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

    def _checkpoint(self, *, since: int) -> None:
        """Write a checkpoint; commits that delta-rs no longer keeps are deleted when it is on disk."""
        delta = self.latest()
        if delta is not None:
            delta.create_checkpoint()
            self._sync_commits(since=since)
            delta.cleanup_metadata()

    def _add(self, day: date | None, path: Path) -> AddAction:
        if (day is not None) is not self.by_day:
            raise DataError(f"the table {self.name} is {'' if self.by_day else 'not '}by day", file=path)
        if not path.is_relative_to(self.folder):
            target = (self.folder if day is None else self.day_folder(day)) / path.name
            os.replace(path, target)
            path = target
        relative = path.relative_to(self.folder)
        if not all(_SAFE.fullmatch(part) for part in relative.parts):
            raise DataError("has a name with letters that a table cannot hold", file=relative)
        rows, status = pq.read_metadata(path).num_rows, path.stat()
        values: dict[str, str | None] = {} if day is None else {"day": day.isoformat()}
        stats = json.dumps({"numRecords": rows})
        return AddAction(relative.as_posix(), status.st_size, values, int(status.st_mtime * 1000), True, stats)

    def _leaving(self, days: list[date], single: set[str], added: set[str]) -> list[str]:
        folders = {f"day={day.isoformat()}" for day in days}
        return [
            path
            for path in self._paths()
            if path not in added and (path.split("/")[0] in folders or {path, str(self.folder / path)} & single)
        ]


def _remove(path: str) -> RemoveAction:
    day, _, _ = path.rpartition("/")
    values: dict[str, Any] = {"day": day.removeprefix("day=")} if day else {}
    return RemoveAction(path, True, int(time.time() * 1000), partition_values=values)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Name the folder and the remedy when the disk is full or may not be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or first_line(error)
    except CommitFailedError:
        raise
    except DeltaError as error:
        reason = first_line(error)
    else:
        return
    raise DataError(
        f"cannot be written ({reason})",
        file=folder,
        remedy="Nothing was half done: see to the disk or its permissions and run the same command again",
    ) from None


def files_id(files: Iterable[str | Path]) -> str:
    """What files of `events` hold, as a name: the same before and after some of them were put into one.

    >>> one, other = files_id(["a.parquet"]), files_id(["a.parquet", "b.parquet"])
    >>> one == other, other == files_id([f"sum-{other}-7.parquet"]), len(other)
    (False, True, 32)
    """
    return f"{sum(_value(Path(file).name) for file in files) % _SIZE:032x}"


def _value(name: str) -> int:
    kind, _, rest = name.partition("-")
    if kind == SUM:
        return int(rest.partition("-")[0], 16)
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16])


def sweep(table: LogTable) -> int:
    """Delete the files of a table's folder that the table does not hold now; returns how many."""
    live = set(table.files())
    gone = [
        file for file in table.folder.rglob("*.parquet") if "_delta_log" not in file.parts and str(file) not in live
    ]
    for file in gone:
        file.unlink(missing_ok=True)
    for folder in {file.parent for file in gone}:
        sync(folder)
    return len(gone)


def _readable(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def _is_json(path: Path) -> bool:
    """Whether a file holds JSON, or is missing."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _is_whole(path: Path) -> bool:
    """Whether a commit is complete: each line is JSON, and there are at least as many actions as it says."""
    try:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError:
        return False
    told = [line["commitInfo"].get(_ACTIONS) for line in lines if "commitInfo" in line]
    count = sum(name in line for line in lines for name in ("add", "remove", "txn", "protocol", "metaData"))
    return bool(lines) and all(each is None or int(each) <= count for each in told)


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__
