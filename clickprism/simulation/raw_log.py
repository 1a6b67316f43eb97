"""Simulate a complete raw log: people and robots search for days, and their rows go into files as on a real site.

Rows arrive out of order, twice, late or broken. The truth is written next to them: what was observed, how relevant it
is, who is a robot, and how many rows an ingest must accept, filter and quarantine. A log is written in parts of some
thousand searches, so memory does not grow with its size.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from clickprism._util.files import atomic_file, make_folder, write_file
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table, to_json, to_plain
from clickprism.click_models import USERS
from clickprism.click_models.popularity import PopularityUser, item_ids
from clickprism.click_models.users import User, adapted
from clickprism.errors import DataError
from clickprism.settings import choose
from clickprism.simulation.raw_searches import Catalogue, SearchEngine, Visitors, impressions_of
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import Int64

PART: Final = 10_000  # maximum number of searches simulated at a time and written to one file
ARRIVAL_DELAY: Final = 15e6  # mean time from an event to its row in the file, in µs, so that rows are out of order

# How the robot filters of an ingest treat each kind of robot.
FILTERED_BY_SENDER: Final = ("fast", "spammer")
FILTERED_BY_AGENT: Final = ("crawler",)  # not in Metarank rows, which do not contain the user agent
FILTERED_CLICKS: Final = ("repeat",)  # only their clicks are filtered


@final
@dataclass(frozen=True, kw_only=True)
class RawLog:
    """A simulated raw log on disk, with exact counts of what was written.

    Attributes:
        folder: Folder with `events/` (the log) and `truth/` (a row for each shown document, and `summary.json`).
        searches: Number of searches, with those of robots.
        impressions: Number of shown documents.
        clicks: Number of clicks, with those of robots.
        files: Number of files.
        late: Number of rows that arrived on a later day.
        ignored: Number of rows that describe documents instead of clicks.
        robots: Number of searches by kind of robot.
        broken: Number of unreadable rows by what is wrong with them.
        account: Number of rows `in` the files, and how many of them an ingest must count as `accepted`, `duplicate`,
            `filtered` and `quarantined`.
        settings: Settings of the log.
    """

    folder: Path
    searches: int
    impressions: int
    clicks: int
    files: int
    late: int
    ignored: int
    robots: dict[str, int]
    broken: dict[str, int]
    account: dict[str, int]
    settings: RawLogSettings

    def tables(self) -> list[Table]:
        """Return the counts of the log, and of its rows as an ingest must find them."""
        contents = {"searches": self.searches, "searches by robots": sum(self.robots.values())}
        contents |= {"shown documents": self.impressions, "clicks": self.clicks, "files": self.files}
        return [
            Table("", [header, "count"], [[name, f"{count:,}"] for name, count in counts.items()])
            for header, counts in (("contents", contents), ("rows", self.account))
        ]


def write_raw_log(
    folder: Path,
    settings: RawLogSettings | None = None,
    *,
    catalogue: Catalogue | None = None,
    progress: Progress = no_progress,
) -> RawLog:
    """Simulate a raw log and write it to a new folder.

    Args:
        folder: the folder, which must not contain a log yet.
        settings: what the log contains.
        catalogue: queries, documents and rankers; by default random ones, as the settings say.
        progress: called after each day.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     log = write_raw_log(Path(scratch), RawLogSettings(searches=50, days=2, robots=0))
    ...     sorted(path.name for path in (log.folder / "events").iterdir())[:2], log.searches
    (['2024-01-01-0.jsonl.zst', '2024-01-02-0.jsonl.zst'], 50)
    """
    settings = settings or RawLogSettings()
    user: User = choose(USERS, settings.user, path="user")
    for subfolder in (folder / "events", folder / "truth"):
        make_folder(subfolder)
        if any(subfolder.iterdir()):
            raise DataError("is not empty", file=subfolder, remedy="Choose a new folder, or delete the log in this one")
    engine = SearchEngine(settings, catalogue)
    visitors = Visitors(engine)
    user = adapted(user, engine.catalogue.judged, seed=settings.seed)
    with duckdb.connect(config={"threads": 1}) as connection:  # one thread, so that rows keep their order
        writer = _Writer(folder, settings, connection)
        for day in range(settings.days):
            searches, user_today = visitors.searches(day), _after_clicks(user, engine)
            clicks_today = np.zeros_like(engine.clicks)
            parts = max(settings.files_per_day, -(-len(searches) // PART))
            edges = [len(searches) * part // parts for part in range(parts + 1)]
            for part in range(parts):
                some = searches.take(slice(edges[part], edges[part + 1]))
                impressions = impressions_of(some, engine, user_today, day=day, first=writer.searches)
                by_people = impressions.filter(pc.and_(impressions["click"], pc.is_null(impressions["robot"])))
                np.add.at(clicks_today, by_people["row"].to_numpy(), 1)
                writer.add(impressions, day=day, part=part, searches=len(some))
            engine.clicks += clicks_today
            progress(day + 1, settings.days)
        return writer.finish()


def _after_clicks(user: User, engine: SearchEngine) -> User:
    """Return the user model after the clicks of earlier days, which change what a `PopularityUser` observes."""
    if not isinstance(user, PopularityUser) or not engine.clicks.any():
        return user
    items, item_of = np.unique(item_ids(engine.catalogue.judged.lists), return_inverse=True)
    return user.after(items, np.bincount(item_of, weights=engine.clicks))


@final
class _Writer:
    """Write the files of a log from its impressions, which come in parts in the order of time.

    Attributes:
        searches: Number of searches so far.
    """

    def __init__(self, folder: Path, settings: RawLogSettings, connection: duckdb.DuckDBPyConnection) -> None:
        self.folder, self.settings, self.searches = folder, settings, 0
        self._connection = connection
        self._counts: Counter[str] = Counter()
        self._robots: Counter[str] = Counter()
        self._broken: Counter[str] = Counter()
        self._late: dict[tuple[int, str], list[pa.Table]] = defaultdict(list)  # by day of arrival and kind of file

    def add(self, impressions: pa.Table, *, day: int, part: int, searches: int) -> None:
        """Write the rows of some searches and, in the first part of a day, the late rows of earlier days."""
        random = np.random.default_rng([self.settings.seed, 4, self.searches, part])
        impressions = _with_filters(impressions, self.settings)
        self._counts.update({"impressions": len(impressions), "clicks": pc.sum(impressions["click"]).as_py() or 0})
        first = impressions.filter(pc.equal(impressions["position"], 1))
        self._robots.update(first["robot"].drop_null().to_pylist())
        truth = self._query(_TRUTH.format(seed=self.settings.seed), impressions)
        with atomic_file(self.folder / "truth" / f"{self.settings.day(day)}-{part}.parquet", durable=False) as draft:
            pq.write_table(truth, draft)
        for kind, sql in _statements(self.settings).items():
            rows = self._query(sql, impressions)
            if self.settings.format == "csv":
                rows = _as_csv(rows)
            self._counts["filtered"] += pc.sum(rows["filtered"]).as_py() or 0
            on_time = self._arrive(kind, rows, day, random)
            late = self._late.pop((day, kind), []) if part == 0 else []
            self._write(kind, [*late, on_time], day, part, random)
        self.searches += searches

    def finish(self) -> RawLog:
        """Write the rows that arrive after the last day, and the summary."""
        random = np.random.default_rng([self.settings.seed, 5])
        for day, kind in sorted(self._late):
            self._write(kind, self._late[day, kind], day, 0, random)
        counts, quarantined = self._counts, self._broken.total()
        filtered = counts["filtered"] + counts["ignored"]  # rows that describe documents count as filtered
        log = RawLog(
            folder=self.folder,
            searches=self.searches,
            **{name: counts[name] for name in ("impressions", "clicks", "files", "late", "ignored")},
            robots=dict(self._robots),
            broken=dict(self._broken),
            account={
                "in": counts["in"],
                "accepted": counts["in"] - counts["duplicate"] - filtered - quarantined,
                "duplicate": counts["duplicate"],
                "filtered": filtered,
                "quarantined": quarantined,
            },
            settings=self.settings,
        )
        summary = {name: value for name, value in to_plain(log).items() if name != "folder"}
        write_file(self.folder / "truth" / "summary.json", to_json(summary) + "\n")
        return log

    def _query(self, sql: str, impressions: pa.Table) -> pa.Table:
        self._connection.register("impressions", impressions)
        return self._connection.sql(sql).to_arrow_table()

    def _arrive(self, kind: str, rows: pa.Table, day: int, random: np.random.Generator) -> pa.Table:
        """Return the rows that arrive on their day, in the order of arrival, some twice; keep the others for later."""
        duplicates = np.flatnonzero(random.random(len(rows)) < self.settings.duplicate)
        is_late = random.random(len(rows)) < self.settings.late
        self._counts.update({"duplicate": len(duplicates), "late": int(is_late.sum())})
        index = np.concatenate([np.arange(len(rows)), duplicates])
        is_late = np.concatenate([is_late, is_late[duplicates] | (random.random(len(duplicates)) < 0.5)])
        delay = (random.standard_exponential(len(index)) * ARRIVAL_DELAY).astype(np.int64)
        arrival = rows["happened"].cast(pa.int64()).to_numpy()[index] + delay
        order = np.argsort(arrival[~is_late], kind="stable")
        days_late = random.integers(1, 4, int(is_late.sum()))
        for days in (1, 2, 3):
            if (days_late == days).any():
                self._late[day + days, kind].append(rows.take(pa.array(index[is_late][days_late == days])))
        return rows.take(pa.array(index[~is_late][order]))

    def _write(self, kind: str, tables: list[pa.Table], day: int, part: int, random: np.random.Generator) -> None:
        """Write one file, with broken copies of some rows among the others."""
        rows = pa.concat_tables(tables).drop_columns(["filtered", "happened"])
        if not len(rows):
            return
        prefix = f"{kind}-" if self.settings.schema == "ubi" else ""
        path = self.folder / "events" / f"{prefix}{self.settings.day(day)}-{part}.{self.settings.format}"
        broken = np.sort(random.choice(len(rows), random.binomial(len(rows), self.settings.broken), replace=False))
        if self.settings.format != "parquet":
            rows = rows.set_column(0, "line", rows["line"].cast(pa.binary()))
        extra = [_broken(rows.take(pa.array(broken)), self.settings, self._broken)]
        if self.settings.schema == "metarank" and day < self.settings.days:
            items = _item_lines(random.integers(0, 10**6, self.settings.items), self.settings, day)
            self._counts["ignored"] += len(items)
            extra.append(pa.table({"line": pa.array(items, pa.binary())}))
        added = pa.concat_tables(extra)
        # the rows keep their order; the others go to random places among them
        keys = np.concatenate([np.arange(len(rows)), np.sort(random.integers(0, len(rows), len(added)))])
        rows = pa.concat_tables([rows, added]).take(pa.array(np.argsort(keys, kind="stable")))
        self._counts.update({"in": len(rows), "files": 1})
        if self.settings.format == "parquet":
            with atomic_file(path, durable=False) as draft:
                pq.write_table(rows, draft, compression="zstd")
        else:
            header = ",".join(_FIELDS).encode() + b"\n" if self.settings.format == "csv" else b""
            _write_text(path, header + b"".join(rows["line"].to_pylist()), self.settings.compress)


def _with_filters(impressions: pa.Table, settings: RawLogSettings) -> pa.Table:
    """Add two columns: whether a robot filter removes the row because of its sender, or because of its click."""
    senders = FILTERED_BY_SENDER if settings.schema == "metarank" else FILTERED_BY_SENDER + FILTERED_BY_AGENT
    sender = pc.is_in(impressions["robot"], value_set=pa.array(senders))
    click = pc.and_(pc.is_in(impressions["robot"], value_set=pa.array(FILTERED_CLICKS)), impressions["click"])
    return impressions.append_column("sender_filtered", sender).append_column("click_filtered", click)


def _write_text(path: Path, text: bytes, compress: str) -> None:
    """Write a text file; the same text gives the same bytes."""
    if compress == "zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(text)
        text = sink.getvalue().to_pybytes()
    elif compress == "gz":
        text = gzip.compress(text, 3, mtime=0)
    write_file(path if compress == "none" else Path(f"{path}.{compress}"), text, durable=False)


# Rows by schema. Every statement returns `filtered`, `happened` (the time of the event) and the row: a column `line`
# for text formats, the columns of our own schema for CSV and Parquet.

_TIME: Final = "strftime({}, '%Y-%m-%dT%H:%M:%S.%gZ')"
_CLICK_TIME: Final = "searched + to_milliseconds(click_ms)"
_AS_JSON: Final = "SELECT filtered, happened, to_json({{{struct}}}) AS line FROM ({rows})"
_LINES: Final = "SELECT filtered, happened, line::VARCHAR || chr(10) AS line FROM ({rows})"
_TRUTH: Final = """
    SELECT 's{seed}-' || search AS search_id, 'q' || query AS query_id, document::VARCHAR AS document_id, position,
        time, click AS clicked, observed, attracted, relevance, grade, robot IS NOT NULL AS is_robot, robot, ranker,
        randomised, 'u' || "user" AS user_id, sender_filtered OR click_filtered AS filtered
    FROM impressions
"""
_FIELDS: Final = (
    *("event_id", "time", "search_id", "query_id", "query", "document_id", "position", "click", "display_ms"),
    *("dwell_ms", "page_skipped", "user_id", "agent", "ranker", "randomised"),
)
_OWN_ROWS: Final = """
    SELECT sender_filtered OR click_filtered AS filtered, time AS happened,
    CASE WHEN with_id THEN 'e{seed}-' || search || '-' || position END AS event_id, {time} AS time,
    's{seed}-' || search AS search_id, 'q' || query AS query_id, text AS query, document::VARCHAR AS document_id,
    position, click, display_ms, dwell_ms, page_skipped, 'u' || "user" AS user_id, agent, ranker, randomised{features}
    FROM impressions
"""
_UBI_QUERIES: Final = """
    SELECT bool_and(sender_filtered) AS filtered, searched AS happened, to_json({{
        application: 'shop', query_id: 's{seed}-' || search, client_id: 'u' || any_value("user"),
        user_query: any_value(text), query_response_id: 'r{seed}-' || search,
        query_response_hit_ids: list(document::VARCHAR ORDER BY position), timestamp: {searched},
        query_attributes: {{ranker: any_value(ranker), user_agent: any_value(agent)}}
    }}) AS line FROM impressions GROUP BY search, searched ORDER BY search
"""
_UBI_EVENTS: Final = """
    SELECT {filtered} AS filtered, {happened} AS happened, to_json({{
        application: 'shop', action_name: '{action}', query_id: 's{seed}-' || search, client_id: 'u' || "user",
        session_id: 'u' || "user" || '-' || search // 4, user_query: text, timestamp: {time}, message_type: 'INFO',
        message: '{action} of ' || document, event_attributes: {{
            object: {{object_id: document, object_id_field: 'sku'}},
            position: {{ordinal: position - 1 + {base}}}, user_agent: agent, {attributes}
        }}
    }}) AS line FROM impressions {where}
"""
_METARANK_RANKINGS: Final = """
    SELECT bool_and(sender_filtered) AS filtered, searched AS happened, to_json({{
        event: 'ranking', id: 's{seed}-' || search, timestamp: epoch_ms(searched)::VARCHAR,
        "user": 'u' || any_value("user"), session: 'u' || any_value("user") || '-' || search // 4,
        fields: [{{name: 'query', value: any_value(text)}}],
        items: list({{id: document::VARCHAR}} ORDER BY position)
    }}) AS line FROM impressions GROUP BY search, searched ORDER BY search
"""
_METARANK_CLICKS: Final = """
    SELECT sender_filtered OR click_filtered AS filtered, {happened} AS happened, to_json({{
        event: 'interaction', id: 'e{seed}-' || search || '-' || position, ranking: 's{seed}-' || search,
        timestamp: epoch_ms({happened})::VARCHAR, "user": 'u' || "user", session: 'u' || "user" || '-' || search // 4,
        type: 'click', item: document::VARCHAR, fields: [{{name: 'dwell_ms', value: dwell_ms}}]
    }}) AS line FROM impressions WHERE click
"""


def _statements(settings: RawLogSettings) -> dict[str, str]:
    """Return the SQL statement that turns impressions into rows, for each kind of file."""
    seed, features = settings.seed, ["features"] if settings.features else []
    if settings.schema == "ubi":
        impression = {"action": "impression", "filtered": "sender_filtered", "happened": "time", "where": ""}
        impression["attributes"] = _struct(["display_ms", "page_skipped", "randomised", *features])
        click = {"action": "click", "filtered": "sender_filtered OR click_filtered", "happened": _CLICK_TIME}
        click |= {"where": "WHERE click", "attributes": _struct(["dwell_ms"])}
        events = [
            _UBI_EVENTS.format(seed=seed, base=settings.ordinal_base, time=_TIME.format(event["happened"]), **event)
            for event in (impression, click)
        ]
        queries = _UBI_QUERIES.format(seed=seed, searched=_TIME.format("searched"))
        return {"queries": _LINES.format(rows=queries), "events": _LINES.format(rows=" UNION ALL ".join(events))}
    if settings.schema == "metarank":
        clicks = _METARANK_CLICKS.format(seed=seed, happened=_CLICK_TIME)
        return {"events": _LINES.format(rows=f"({_METARANK_RANKINGS.format(seed=seed)}) UNION ALL {clicks}")}
    time = _TIME.format("time") if settings.format == "jsonl" else "time"
    rows = _OWN_ROWS.format(seed=seed, time=time, features="".join(f", {name}" for name in features))
    if settings.format == "jsonl":
        rows = _LINES.format(rows=_AS_JSON.format(struct=_struct([*_FIELDS, *features]), rows=rows))
    return {"events": rows}


def _struct(names: list[str]) -> str:
    return ", ".join(f"{name}: {name}" for name in names)


def _as_csv(table: pa.Table) -> pa.Table:
    """Return the rows as lines of CSV in a column `line`, without the header."""
    sink = io.BytesIO()
    rows = table.drop_columns(["filtered", "happened"])
    pa_csv.write_csv(rows, sink, pa_csv.WriteOptions(include_header=False))
    lines = sink.getvalue().splitlines(keepends=True)
    return table.select(["filtered", "happened"]).append_column("line", pa.array(lines, pa.string()))


def _item_lines(documents: Int64, settings: RawLogSettings, day: int) -> list[bytes]:
    """Return Metarank's rows that describe documents, which are not part of a click log."""
    midnight = settings.midnight(day) // 1000
    return [
        f'{{"event":"item","id":"i{settings.seed}-{day}-{number}","timestamp":"{midnight + number}",'
        f'"item":"{document}","fields":[{{"name":"price","value":{number + 1}}}]}}\n'.encode()
        for number, document in enumerate(documents.tolist())
    ]


# Broken rows: copies of good ones, each broken in one way; the ways take turns.


def _defects(settings: RawLogSettings) -> dict[str, dict[str, Any]]:
    """Return the wrong values of each defect, by field; damage to the text of a line has none."""
    time = "time" if settings.schema == "clickprism" else "timestamp"
    values: dict[str, dict[str, Any]] = {
        "missing": {"search_id": None},
        "position": {"position": 0},
        "negative": {"display_ms": -5},
    }
    if settings.format == "parquet":  # a column of times or of booleans cannot hold other values
        return values
    far_future = 253402214400000 if settings.schema == "metarank" else "9999-12-31T00:00:00.000Z"
    text: dict[str, dict[str, Any]] = {"cut": {}, "encoding": {}, "far time": {time: far_future}}
    if settings.format == "jsonl":
        text |= {"no object": {}, "no time": {time: None}}
    return text | ({**values, "type": {"click": "maybe"}} if settings.schema == "clickprism" else {})


def _broken(rows: pa.Table, settings: RawLogSettings, counts: Counter[str]) -> pa.Table:
    """Return a broken copy of each row, and count them by what is wrong."""
    defects, broken = _defects(settings), []
    names = list(defects)
    for row in rows.to_pylist():
        name = names[counts.total() % len(names)]
        counts[name] += 1
        if settings.format == "parquet":
            broken.append(row | defects[name])
        else:
            broken.append({"line": _broken_line(name, row["line"].rstrip(b"\n"), defects[name], settings) + b"\n"})
    return pa.Table.from_pylist(broken, schema=rows.schema)


def _broken_line(name: str, line: bytes, wrong: dict[str, Any], settings: RawLogSettings) -> bytes:
    damage = {"cut": line[:20], "encoding": line[:4] + b"\xff" + line[4:], "no object": b"[1, 2, 3]"}
    if name in damage:
        return damage[name]
    if settings.format == "jsonl":
        return json.dumps(json.loads(line) | wrong, ensure_ascii=False, separators=(",", ":")).encode()
    text = io.StringIO()
    row = dict(zip(_FIELDS, next(csv.reader([line.decode()])), strict=True)) | wrong
    csv.writer(text, lineterminator="").writerow(row.values())
    return text.getvalue().encode()
