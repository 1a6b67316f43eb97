"""Session rows made by hand or at random, logs of them, and the snapshot of such rows by plain loops."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickprism.log.features.schedule import Window, schedule
from clickprism.log.schema import BIN_EDGES_MS, SESSIONS, click_fields, no_clicks, window_fields
from clickprism.log.store import LogStore

UNIT = 2**20


class Thirds:
    """An examiner by hand: a third for each position further down, and all for what was clicked."""

    fingerprint = "thirds"

    def estimate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        down = pc.add(pc.cast(batch.column("position"), pa.int64()), 2)
        units = pc.if_else(batch.column("clicked"), UNIT, pc.divide(UNIT, down))
        return batch.append_column("examination", units.cast(pa.int64()))

    @staticmethod
    def units(row: dict[str, Any]) -> int:
        return UNIT if row["clicked"] else UNIT // (row["position"] + 2)


def session(time: datetime, **values: Any) -> dict[str, Any]:
    """A row of `sessions`; what is not said is usual."""
    row: dict[str, Any] = {
        "search_id": "s",
        "query_id": "q",
        "document_id": "d",
        "position": 1,
        "time": time,
        "clicks": 0,
        "last_click": None,
        "display_ms": None,
        "dwell_ms": None,
        "page_skipped": False,
        "user_id": "u",
        "ranker": None,
        "randomised": False,
        "filter": None,
        "clicks_before": 0,
        "click_distance": 0,
        "click_below": False,
        "page": 1,
        "query_bucket": 0,
        **values,
    }
    row["clicked"] = row["clicks"] > 0
    if row["clicked"] and row["last_click"] is None:
        row["last_click"] = time + timedelta(seconds=30)
    return row | {"day": time.date()}


def random_rows(seed: int, *, count: int, end: datetime) -> list[dict[str, Any]]:
    """Session rows around the boundaries of the windows as of `end`, of few pairs and users."""
    draw = random.Random(seed)
    rows, near = [], draw.sample([-20, 0, 1, 15, 16, 24, 25, 63, 64, 183, 184, 735, 736], 6)
    for number in range(count):
        back = draw.choice(near)
        time = end.replace(minute=0) - timedelta(hours=back, microseconds=draw.choice([0, 0, 1, 999_999]))
        clicks = draw.choice([0, 0, 0, 1, 2])
        rows.append(
            session(
                time,
                search_id=f"s{number}",
                query_id=f"q{draw.randint(1, 2)}",
                document_id=f"d{draw.randint(1, 3)}",
                position=draw.choice([1, 2, 3, 10, 11, 25]),
                clicks=clicks,
                last_click=time + timedelta(microseconds=draw.randint(0, 10**10)) if clicks else None,
                display_ms=draw.choice([None, 0, 999, 1000, 4999, 5000, 179_999, 180_000, 10**9]),
                dwell_ms=draw.choice([None, 1999, 2000, 60_000]),
                page_skipped=draw.random() < 0.2,
                user_id=draw.choice([None, *(f"u{one}" for one in range(9))]),
                filter=draw.choice([None, None, None, None, "agent"]),
            )
        )
    return rows


def write_sessions(store: LogStore, rows: Iterable[dict[str, Any]], *, days: Iterable[date] | None = None) -> None:
    """Make these the session rows of their days, or of the given days only."""
    table, by_day = store.table("sessions"), dict[date, list[dict[str, Any]]]()
    for row in rows:
        by_day.setdefault(row["day"], []).append(row)
    columns = pa.schema([field for field in SESSIONS if field.name != "day"])
    version, added = table.version, dict[date, list[Path]]()
    for day in sorted(by_day if days is None else days):
        path = table.day_folder(day) / f"hand-{version}-{day}.parquet"
        pq.write_table(pa.Table.from_pylist(by_day.get(day, []), schema=SESSIONS).select(columns.names), path)
        added[day] = [path]
    if added:
        table.commit_files(added, remove_days=added)


def make_log(folder: Path, rows: Iterable[dict[str, Any]]) -> LogStore:
    """A log with these session rows."""
    store = LogStore.open(folder, create=True)
    store.write_settings(store.settings)
    write_sessions(store, rows)
    return store


def by_hand(
    rows: Iterable[dict[str, Any]], as_of: datetime, *, k: int, examination: bool
) -> dict[tuple[str, str], list[float]]:
    """The snapshot by plain loops: x by pair."""
    rows = list(rows)
    spans = schedule(as_of)
    parts = [_window(rows, span, k=k, examination=examination) for span in spans]
    return {
        pair: [
            value
            for span, part in zip(spans, parts, strict=True)
            for value in part.get(pair, no_clicks(span.hours, examination=examination))
        ]
        for pair in {pair for part in parts for pair in part}
    }


def _window(
    rows: list[dict[str, Any]], span: Window, *, k: int, examination: bool
) -> dict[tuple[str, str], list[float]]:
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["filter"] is None and span.start <= row["time"] < span.end:
            pairs.setdefault((row["query_id"], row["document_id"]), []).append(row)
    found = {}
    for pair, shown in pairs.items():
        users = {row["user_id"] for row in shown} - {None}
        if len(users) < k:
            continue
        values: dict[str, float] = dict.fromkeys(window_fields(examination=True), 0)
        values["users"] = len(users)
        units: dict[str, int] = {}
        for row in shown:
            place = str(row["position"]) if row["position"] <= 10 else "rest"
            for name, count in (("impressions", 1), ("clicked", int(row["clicked"]))):
                values[name] += count
                values[f"{name}@{place}"] += count
            for name in ("examination", f"examination@{place}"):
                units[name] = units.get(name, 0) + Thirds.units(row)
            values["clicks"] += row["clicks"]
            values["skips"] += row["page_skipped"]
            for name in ("dwell", "display"):
                if row[f"{name}_ms"] is not None:
                    values[name] += row[f"{name}_ms"]
                    values[f"{name}s"] += 1
                    values[f"{name}_hist_{sum(row[f'{name}_ms'] >= edge for edge in BIN_EDGES_MS)}"] += 1
        values |= {name: count / UNIT for name, count in units.items()}
        values |= {name: values[name] / 1000 for name in ("dwell", "display")}
        last = max((row["last_click"] for row in shown if row["clicked"]), default=None)
        age = span.hours if last is None else max(0, (span.end - last) // timedelta(microseconds=1)) / 3_600_000_000
        values["last_click_age"] = age
        found[pair] = [float(values[name]) for name in window_fields(examination=examination)]
    return found


def as_dict(table: pa.Table) -> dict[tuple[str, str], list[float]]:
    """x by pair, of the rows of a snapshot; each pair once."""
    rows = table.to_pylist()
    found = {(row["query_id"], row["document_id"]): row["x"] for row in rows}
    assert len(found) == len(rows)
    return found


def field(x: list[float], name: str, *, examination: bool = False) -> float:
    """One entry of x."""
    return x[click_fields(examination=examination).index(name)]
