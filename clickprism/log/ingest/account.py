"""The account of an ingest: where every input row went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from clickprism._util.tables import Table
from clickprism.errors import DataError

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

    >>> Account(rows_in=9, accepted=5, duplicate=1, filtered={"agent": 2}, quarantined={"not-json": 1}).check().left_out
    4
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

    @property
    def left_out(self) -> int:
        """Rows that do not count: all but the accepted ones."""
        return self.duplicate + sum(self.filtered.values()) + sum(self.quarantined.values())

    @property
    def rows_per_second(self) -> float:
        """Over the whole run."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def check(self) -> Account:
        """Itself, if the sum holds and nothing is negative."""
        counts = [self.accepted, self.duplicate, *self.filtered.values(), *self.quarantined.values()]
        if self.rows_in != self.accepted + self.left_out or min(counts) < 0:
            raise DataError(
                f"the account does not hold: {self.rows_in:,} rows in, but {self.accepted:,} accepted, "
                f"{self.duplicate:,} duplicate, {sum(self.filtered.values()):,} filtered and "
                f"{sum(self.quarantined.values()):,} quarantined",
                remedy="This is an error of clickprism: please report it",
            )
        return self

    def tables(self) -> list[Table]:
        """Return where the rows went, and what else an ingest reports."""
        from clickprism.log.read import REASONS

        rows = [["rows read", self.rows_in, ""], ["accepted", self.accepted, ""], ["duplicate", self.duplicate, ""]]
        rows += [["filtered", sum(self.filtered.values()), ""]]
        rows += [["", count, rule] for rule, count in self.filtered.items()]
        rows += [["quarantined", sum(self.quarantined.values()), ""]]
        rows += [["", count, f"{code}: {REASONS.get(code, '')}"] for code, count in self.quarantined.items()]
        days = f"{len(self.days):,} ({self.days[0]} to {self.days[-1]})" if self.days else "none"
        summary = [
            ["files", f"{self.files:,} new, {self.known:,} ingested before"],
            ["days", days],
            ["time", f"{self.seconds:.1f} s, {self.rows_per_second:,.0f} rows/s"],
        ]
        summary += [["columns", change] for change in self.changes]
        return [
            Table("", ["rows", "count", "reason"], [[str(name), f"{count:,}", str(why)] for name, count, why in rows]),
            Table("", ["ingest", ""], summary),
        ]
