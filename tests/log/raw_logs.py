"""Small raw files, and what a log holds after they went in."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from clickprism.log.store import LogStore

BROKEN = '{"search_id": "s", "time": "never", "query": "q", "document_id": "d", "position": 1}'


def impression(number: int, *, day: int = 1, **values: Any) -> dict[str, Any]:
    """One row of our own schema."""
    row = {
        "event_id": f"e{number}",
        "time": f"2026-03-{day:02d}T10:00:{number % 60:02d}Z",
        "search_id": f"s{number // 3}",
        "query": f"query {number % 5}",
        "document_id": f"d{number}",
        "position": number % 3 + 1,
        "click": number % 4 == 0,
        "user_id": f"u{number % 7}",
    }
    return {name: value for name, value in (row | values).items() if value is not None}


def write_lines(path: Path, rows: Iterable[dict[str, Any] | str]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def random_files(folder: Path, *, files: int, rows: int, seed: int) -> list[Path]:
    """Files with events of three days, some of them twice, some broken, some of robots."""
    rng = random.Random(seed)
    made: list[dict[str, Any] | str] = []
    for number in range(rows):
        chance = rng.random()
        if made and chance < 0.1:
            made.append(rng.choice(made))
        elif chance < 0.2:
            made.append(BROKEN.replace('"d"', f'"d{number}"'))
        else:
            agent = "Googlebot/2.1" if rng.random() < 0.1 else None
            has_id = None if rng.random() < 0.3 else f"e{number}"
            made.append(impression(number, day=number % 3 + 1, agent=agent, event_id=has_id))
    return [write_lines(folder / f"{i}.jsonl", made[i::files]) for i in range(files)]


def stored(folder: Path) -> list[tuple[Any, ...]]:
    """Day, key and fields of all events, in order."""
    table, found = LogStore.open(folder).table("events"), []
    for day in table.days():
        for file in table.files([day]):
            rows = pq.read_table(file, partitioning=None).drop_columns(["file_id", "line"]).to_pylist()
            found += [(day.isoformat(), row.pop("key"), repr(row)) for row in rows]
    return sorted(found)


def broken(folder: Path) -> list[tuple[Any, ...]]:
    """File, line, reason, field and bytes of all broken rows, in order."""
    rows = LogStore.open(folder).table("quarantine").read().to_pylist()
    return sorted((row["file_id"], row["line"], row["reason"], row["field"] or "", row["raw"]) for row in rows)


def ledger(folder: Path) -> list[tuple[Any, ...]]:
    """What is known of each file but the time, in order."""
    rows = LogStore.open(folder).table("files").read().to_pylist()
    return sorted(tuple(value for name, value in row.items() if name not in ("ingested_at", "file")) for row in rows)


def everything(folder: Path) -> tuple[list[tuple[Any, ...]], ...]:
    return stored(folder), broken(folder), ledger(folder)
