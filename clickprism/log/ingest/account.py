"""The account of an ingest: where every input row went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clickprism._util.files import read_json, write_file
from clickprism._util.tables import Table
from clickprism.errors import DataError
from clickprism.log.store import COLUMNS_FILE

if TYPE_CHECKING:
    from clickprism.log.store import LogStore

IGNORED: Final = "not a click event"


@dataclass(frozen=True)
class Account:
    """Where every row of the new files of an ingest went; `rows_in = accepted + duplicate + filtered + quarantined`.

    Attributes:
        rows_in: Number of rows of the new files.
        accepted: Number of rows that were stored and that no rule excludes.
        duplicate: Number of rows of events that were stored before, by event id, or by content without an id. The first
            row counts, also if the others differ from it.
        filtered: Number of rows that a rule excludes, by rule.
        quarantined: Number of broken rows, by reason.
        days: Days of the stored rows.
        files: Number of new files.
        known: Number of files that were ingested before; they were skipped.
        changes: Columns that are new, missing or of another type, a sentence for each file where that begins.
        seconds: Duration of the ingest.
        dry_run: Whether nothing was written.

    >>> Account(rows_in=9, accepted=5, duplicate=1, filtered={"agent": 2}, quarantined={"not-json": 1}).check().accepted
    5
    """

    rows_in: int = 0
    accepted: int = 0
    duplicate: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    days: tuple[date, ...] = ()
    files: int = 0
    known: int = 0
    changes: tuple[str, ...] = ()
    seconds: float = 0.0
    dry_run: bool = False

    def check(self) -> Account:
        """Return the account if its sum holds and nothing is negative."""
        filtered, quarantined = sum(self.filtered.values()), sum(self.quarantined.values())
        counts = [self.accepted, self.duplicate, *self.filtered.values(), *self.quarantined.values()]
        if self.rows_in != self.accepted + self.duplicate + filtered + quarantined or min(counts) < 0:
            problem = f"the account does not hold: {self.rows_in:,} rows in, but {self.accepted:,} accepted, "
            problem += f"{self.duplicate:,} duplicate, {filtered:,} filtered and {quarantined:,} quarantined"
            raise DataError(problem, remedy="This is an error of clickprism: please report it")
        return self

    def tables(self) -> list[Table]:
        """Return where the rows went, and what else an ingest reports."""
        from clickprism.log.read import REASONS

        broken = {f"{code}: {REASONS.get(code, '')}": count for code, count in self.quarantined.items()}
        rows = [["rows read", self.rows_in, ""], ["accepted", self.accepted, ""], ["duplicate", self.duplicate, ""]]
        for name, counts in (("filtered", self.filtered), ("quarantined", broken)):
            rows.append([name, sum(counts.values()), ""])
            rows += [["", count, reason] for reason, count in counts.items()]
        days = f"{len(self.days):,} ({self.days[0]} to {self.days[-1]})" if self.days else "none"
        speed = self.rows_in / self.seconds if self.seconds else 0.0
        summary = [
            ["files", f"{self.files:,} new, {self.known:,} ingested before"],
            ["days", days],
            ["time", f"{self.seconds:.1f} s, {speed:,.0f} rows/s"],
            *(["columns", change] for change in self.changes),
        ]
        return [
            Table("", ["rows", "count", "reason"], [[str(name), f"{count:,}", str(why)] for name, count, why in rows]),
            Table("", ["ingest", ""], summary),
        ]


class ColumnHistory:
    """The columns of the input files so far: their types, and whether every file had them.

    The log keeps them, so that a new, missing or retyped column is reported where it first happens.
    """

    def __init__(self, store: LogStore) -> None:
        self._path = store.folder / COLUMNS_FILE
        found = read_json(self._path, remedy="Delete it") if self._path.exists() else {}
        self._known: dict[str, list[Any]] = found
        self._before = json.dumps(found)

    def compare(self, path: Path, columns: Mapping[str, str]) -> str:
        """Return the differences of this file from earlier ones as a sentence; empty if there are none."""
        if not columns:
            return ""
        new = [name for name in columns if name not in self._known] if self._known else []
        gone = [name for name, (_, always) in self._known.items() if always and name not in columns]
        other = [name for name, kind in columns.items() if self._known.get(name, [kind])[0] != kind]
        parts = [f"new columns: {', '.join(new)}"] if new else []
        parts += [f"missing columns: {', '.join(gone)}"] if gone else []
        parts += [f"{name} is now {columns[name]}, it was {self._known[name][0]}" for name in other]
        return f"{path.name} differs from the files before it: {'; '.join(parts)}" if parts else ""

    def add(self, columns: Mapping[str, str]) -> None:
        """Add the columns of a file."""
        first = not self._known
        for name, kind in columns.items():
            self._known[name] = [kind, self._known[name][1] if name in self._known else first]
        for name in self._known:
            if columns and name not in columns:
                self._known[name][1] = False

    def write(self) -> None:
        """Write them if they have changed."""
        text = json.dumps(self._known)
        if text != self._before:
            write_file(self._path, text)
            self._before = text
