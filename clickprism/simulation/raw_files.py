"""The files of a simulated raw log, its truth, and the exact counts of what is in them."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.tables import to_json
from clickprism.settings import plain
from clickprism.simulation.raw_noise import break_lines, break_rows, disturb
from clickprism.simulation.raw_rows import csv_header, item_lines, rows_of
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Int64

if TYPE_CHECKING:
    import pyarrow as pa

BY_SENDER: Final = ("fast", "spammer")  # robots whose every row is filtered
BY_AGENT: Final = ("crawler",)  # the same, if the schema tells the agent; Metarank does not
BY_CLICK: Final = ("repeat",)  # robots whose clicks are
_TRUTH: Final = """
    SELECT 's{seed}-' || search AS search_id, 'q' || query AS query_id, document::VARCHAR AS document_id, position,
        time, click AS clicked, observed, attracted, relevance, grade, robot IS NOT NULL AS is_robot, robot, ranker,
        randomised, 'u' || "user" AS user_id, filtered OR clicks_filtered AS filtered
    FROM shown
"""


@final
class RawWriter:
    """Takes what was shown, part by part in the order of time, and writes the files.

    Attributes:
        searches: how many there were so far.
    """

    def __init__(self, folder: Path, settings: RawLogSettings) -> None:
        import duckdb
        import pyarrow.parquet as pq

        self.folder, self.settings, self.searches = folder, settings, 0
        self._connection = duckdb.connect(config={"threads": 1})
        self._parquet = pq
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._late: dict[tuple[str, int], list[pa.Table]] = defaultdict(list)

    def add(self, shown: pa.Table, *, day: int, part: int, searches: int) -> None:
        """Write the rows of some searches and, at the start of a day, what comes late from days before."""
        random = np.random.default_rng([self.settings.seed, 4, self.searches, part])
        shown = _with_filters(shown, self.settings)
        self._count(shown, searches)
        self._write_truth(shown, day, part)
        for kind, rows in rows_of(shown, self.settings, self._connection).items():
            now, later, counts = disturb(rows, self.settings, random)
            self._counts["rows"].update(counts)
            self._counts["rows"]["filtered"] += int(np.count_nonzero(rows["filtered"].to_numpy()))
            for after in (1, 2, 3):
                self._keep(kind, day + after, later, after)
            waiting = self._late.pop((kind, day), []) if part == 0 else []
            self._write(kind, [*waiting, now], day, part, random)
        self.searches += searches

    def finish(self) -> dict[str, Any]:
        """Write what is still late, and the summary."""
        random = np.random.default_rng([self.settings.seed, 5])
        for kind, day in sorted(self._late, key=lambda each: (each[1], each[0])):
            self._write(kind, self._late[kind, day], day, 0, random)
        self._connection.close()
        rows, quarantined = self._counts["rows"], sum(self._counts["broken"].values())
        ignored = rows["ignored"]
        account = {"in": rows["in"], "accepted": 0, "duplicate": rows["duplicate"]}
        account |= {"filtered": rows["filtered"] + ignored, "quarantined": quarantined}
        account["accepted"] = 2 * account["in"] - sum(account.values())
        summary: dict[str, Any] = {
            "searches": self.searches,
            **self._counts["shown"],
            "files": rows["files"],
            "late": rows["late"],
        }
        summary |= {"ignored": ignored, "robots": self._counts["robots"], "broken": self._counts["broken"]}
        summary |= {"account": account, "settings": plain(self.settings)}
        (self.folder / "truth" / "summary.json").write_text(to_json(summary) + "\n", encoding="utf-8")
        return summary

    def _count(self, shown: pa.Table, searches: int) -> None:
        clicks = int(np.count_nonzero(shown["click"].to_numpy()))
        self._counts["shown"].update({"impressions": len(shown), "clicks": clicks})
        first = shown.filter(shown["position"].to_numpy() == 1)
        for each in first["robot"].value_counts().to_pylist():
            if each["values"] is not None:
                self._counts["robots"][each["values"]] += each["counts"]

    def _write_truth(self, shown: pa.Table, day: int, part: int) -> None:
        self._connection.register("shown", shown)
        truth = self._connection.sql(_TRUTH.format(seed=self.settings.seed)).to_arrow_table()
        self._connection.unregister("shown")
        self._parquet.write_table(truth, self.folder / "truth" / f"{self.settings.day(day)}-{part}.parquet")

    def _keep(self, kind: str, day: int, later: pa.Table, after: int) -> None:
        chosen = later.filter(later["after"].to_numpy() == after).drop_columns("after")
        if len(chosen):
            self._late[kind, day].append(chosen)

    def _write(self, kind: str, tables: list[pa.Table], day: int, part: int, random: np.random.Generator) -> None:
        import pyarrow as pa

        rows = pa.concat_tables(tables).drop_columns(["filtered", "happened"])
        if not len(rows):
            return
        prefix = f"{kind}-" if self.settings.schema == "ubi" else ""
        name = f"{prefix}{self.settings.day(day)}-{part}.{self.settings.format}"
        broken = np.sort(random.choice(len(rows), random.binomial(len(rows), self.settings.broken), replace=False))
        if self.settings.format == "parquet":
            rows = self._with_broken_rows(rows, broken, random)
            self._parquet.write_table(rows, self.folder / "events" / name, compression="zstd")
            self._counts["rows"].update({"in": len(rows), "files": 1})
            return
        lines = self._with_broken_lines(rows["line"].combine_chunks().cast(pa.binary()), broken, day, random)
        self._counts["rows"].update({"in": len(lines), "files": 1})
        text = memoryview(lines.buffers()[2])[: np.frombuffer(lines.buffers()[1], np.int32)[len(lines)]]
        head = csv_header() if self.settings.format == "csv" else b""
        _write_text(self.folder / "events" / name, [head, text], self.settings.compress)

    def _with_broken_rows(self, rows: pa.Table, broken: Int64, random: np.random.Generator) -> pa.Table:
        import pyarrow as pa

        wrong, counts = break_rows(rows.take(pa.array(broken)), first=self._counts["broken"].total())
        self._counts["broken"].update(counts)
        return pa.concat_tables([rows, wrong]).take(_inserted(len(rows), len(wrong), random))

    def _with_broken_lines(self, lines: pa.Array, broken: Int64, day: int, random: np.random.Generator) -> pa.Array:
        import pyarrow as pa

        chosen = lines.take(pa.array(broken)).to_pylist()
        wrong, counts = break_lines(chosen, self.settings, first=self._counts["broken"].total())
        self._counts["broken"].update(counts)
        if self.settings.schema == "metarank" and day < self.settings.days:
            items = item_lines(random.integers(0, 10**6, self.settings.items), self.settings, day)
            self._counts["rows"]["ignored"] += len(items)
            wrong += items
        joined = pa.concat_arrays([lines, pa.array(wrong, pa.binary())])
        return joined.take(_inserted(len(lines), len(wrong), random))


def _with_filters(shown: pa.Table, settings: RawLogSettings) -> pa.Table:
    """The rows with what a robot rule does to them: by who sends it, and by what is clicked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    senders = BY_SENDER if settings.schema == "metarank" else BY_SENDER + BY_AGENT
    sender = pc.is_in(shown["robot"], value_set=pa.array(senders))
    click = pc.and_(pc.is_in(shown["robot"], value_set=pa.array(BY_CLICK)), shown["click"])
    return shown.append_column("filtered", sender).append_column("clicks_filtered", click)


def _inserted(rows: int, more: int, random: np.random.Generator) -> pa.Array:
    """An order of all rows, the first ones as they are and the others at random places among them."""
    import pyarrow as pa

    places = np.concatenate([np.arange(rows), np.sort(random.integers(0, rows, more))])
    return pa.array(np.argsort(places, kind="stable"))


def _write_text(path: Path, parts: list[bytes | memoryview], compress: str) -> None:
    """A text file, the same bytes for the same text."""
    import pyarrow as pa

    if compress == "zst":
        with pa.OSFile(f"{path}.zst", "wb") as sink, pa.CompressedOutputStream(sink, "zstd") as stream:
            for part in parts:
                stream.write(part)
        return
    with Path(f"{path}.gz" if compress == "gz" else path).open("wb") as file:
        packed = gzip.GzipFile("", "wb", 3, file, mtime=0) if compress == "gz" else file
        for part in parts:
            packed.write(part)
        packed.close()
