"""What goes wrong on the way from a client to a log: rows that come twice, late, out of order or broken."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism.simulation.raw_settings import RawLogSettings

if TYPE_CHECKING:
    import pyarrow as pa

DELAY: Final = 15e6  # µs from an event to its place in the file, on average: rows stand out of order
FAR: Final = "9999-12-31T00:00:00.000Z"


def disturb(
    rows: pa.Table, settings: RawLogSettings, random: np.random.Generator
) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """The rows in the order in which they come, some of them twice; and those that come on a later day.

    Returns:
        (rows of now, rows of later with a column `after` of days from 1, how many are `duplicate` and `late`).
    """
    import pyarrow as pa

    count = len(rows)
    again = np.flatnonzero(random.random(count) < settings.duplicate)
    late = random.random(count) < settings.late
    index = np.concatenate([np.arange(count), again])
    waits = np.concatenate([late, late[again] | (random.random(len(again)) < 0.5)])
    delay = random.standard_exponential(len(index)) * DELAY
    arrival = rows["happened"].cast(pa.int64()).to_numpy()[index] + delay.astype(np.int64)
    order = np.argsort(arrival[~waits], kind="stable")
    days = pa.array(random.integers(1, 4, int(waits.sum())))
    return (
        rows.take(pa.array(index[~waits][order])),
        rows.take(pa.array(index[waits])).append_column("after", days),
        {"duplicate": len(again), "late": int(late.sum())},
    )


def break_lines(lines: list[bytes], settings: RawLogSettings, *, first: int) -> tuple[list[bytes], dict[str, int]]:
    """Copies of good lines, each broken in its own way, in turns; and how many of each kind."""
    kinds = _CSV_KINDS if settings.format == "csv" else _kinds(settings)
    names = list(kinds)
    counts: dict[str, int] = {}
    broken = []
    for number, line in enumerate(lines, start=first):
        name = names[number % len(names)]
        counts[name] = counts.get(name, 0) + 1
        broken.append(kinds[name](line.rstrip(b"\n")) + b"\n")
    return broken, counts


def break_rows(rows: pa.Table, *, first: int) -> tuple[pa.Table, dict[str, int]]:
    """The same for rows of Parquet, which can only hold values that are wrong."""
    import pyarrow as pa

    kinds: list[tuple[str, str, Any]] = [("missing", "search_id", None), ("position", "position", 0)]
    kinds += [("negative", "display_ms", -1)]
    values: list[dict[str, Any]] = rows.to_pylist()
    counts: dict[str, int] = {}
    for number, value in enumerate(values, start=first):
        name, field, wrong = kinds[number % len(kinds)]
        counts[name] = counts.get(name, 0) + 1
        value[field] = wrong
    return pa.Table.from_pylist(values, schema=rows.schema), counts


def _json(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def broken(line: bytes) -> bytes:
        row = json.loads(line)
        change(row)
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()

    return broken


def _csv(field: int, wrong: str) -> Callable[[bytes], bytes]:
    def broken(line: bytes) -> bytes:
        row = next(csv.reader([line.decode()]))
        row[field] = wrong
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(row)
        return text.getvalue().encode()

    return broken


def _kinds(settings: RawLogSettings) -> dict[str, Callable[[bytes], bytes]]:
    time = "time" if settings.schema == "clickprism" else "timestamp"
    far = 253402214400000 if settings.schema == "metarank" else FAR
    kinds: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda line: line[: len(line) // 2],
        "encoding": lambda line: line[: len(line) // 2] + b"\xff\xfe" + line[len(line) // 2 :],
        "no object": lambda _: b"[1, 2, 3]",
        "no time": _json(lambda row: row.pop(time)),
        "far time": _json(lambda row: row.update({time: far})),
    }
    if settings.schema == "clickprism":
        kinds |= {
            "missing": _json(lambda row: row.update(search_id=None)),
            "position": _json(lambda row: row.update(position=0)),
            "negative": _json(lambda row: row.update(display_ms=-5)),
            "type": _json(lambda row: row.update(click="maybe")),
        }
    return kinds


_CSV_KINDS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "cut": lambda line: b",".join(line.split(b",")[:2]),
    "encoding": lambda line: line[:4] + b"\xff" + line[4:],
    "far time": _csv(1, FAR),
    "missing": _csv(2, ""),
    "position": _csv(6, "0"),
    "type": _csv(7, "maybe"),
    "negative": _csv(8, "-5"),
}
