"""Cells and estimates of the examination model on every engine, compared with counting by hand."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism.examination.examine import TRUTH
from clickprism.examination.model import CELLS, MOST_CLICKS, TRUTH_CELLS, cells, collected, train_model, truth_cells
from clickprism.examination.settings import ExaminationSettings
from clickprism.log.engines.base import Engine
from clickprism.log.features.partials import examined_cells
from clickprism.log.schema import BEHAVIOUR, SESSIONS

SETTINGS = ExaminationSettings(max_position=7, held_out=0.4, seed=2, min_hessian=0.0, trees=5)
LIMITS = {"position": 7, "click_distance": 7, "page": 7, "clicks_before": MOST_CLICKS}


def random_sessions(rows: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    names = ["", "a", "A", "é", "\u00e9\u0301", "日本", "x y", "'\"\\", "🙂"]
    made = []
    for number in range(rows):
        row = dict.fromkeys(SESSIONS.names)
        row |= {
            "search_id": f"{names[rng.integers(len(names))]}{rng.integers(30)}",
            "query_id": "q",
            "document_id": f"d{number}",
            "position": int(rng.integers(1, 12)),
            "time": datetime(2026, 1, 5),
            "clicks": 0,
            "display_ms": [None, 0, 999, 1000, 3000, 5000, 5001, 2**40][rng.integers(8)],
            "page_skipped": False,
            "randomised": False,
            "filter": [None, None, None, "agent", ""][rng.integers(5)],
            "clicked": bool(rng.integers(2)),
            "clicks_before": int(rng.integers(0, 40)),
            "click_distance": int(rng.integers(0, 12)),
            "click_below": bool(rng.integers(2)),
            "page": int(rng.integers(1, 3)),
            "query_bucket": int(rng.integers(0, 5)),
        }
        made.append(row)
    return made


def label(time: int | None) -> int:
    if time is None:
        return -2
    return 1 if time > 5000 else 0 if time < 1000 else -1


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    features = [min(row[name], LIMITS[name]) if name in LIMITS else row[name] for name in BEHAVIOUR]
    digest = hashlib.sha256(f"2:{row['search_id']}".encode()).digest()
    return (*features, int.from_bytes(digest[:4]) < int(0.4 * 2**32))


def test_cells_and_estimates(engine: Engine, tmp_path: Path) -> None:
    rows = random_sessions(3000)
    (tmp_path / "day=2026-01-05").mkdir()
    path, side = tmp_path / "day=2026-01-05" / "part.parquet", tmp_path / "truth.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SESSIONS.remove(SESSIONS.get_field_index("day"))), path)
    known = [{**{name: row[name] for name in TRUTH.names[:3]}, "observed": row["page"] == 1} for row in rows[:2000]]
    pq.write_table(pa.Table.from_pylist(known, schema=TRUTH), side)
    sessions, truth = engine.read([path], SESSIONS), engine.read([side], TRUTH)

    counted = collected(engine, cells(sessions, SETTINGS), CELLS)
    expected = Counter((*key(row), label(row["display_ms"])) for row in rows if row["filter"] is None)
    assert [tuple(cell.values()) for cell in counted.to_pylist()] == sorted((*one, n) for one, n in expected.items())

    observed = collected(engine, truth_cells(sessions, truth, SETTINGS), TRUTH_CELLS)
    true = Counter((*key(row), row["page"] == 1) for row in rows[:2000] if row["filter"] is None)
    assert [tuple(cell.values()) for cell in observed.to_pylist()] == sorted((*one, n) for one, n in true.items())

    model = train_model(counted, SETTINGS)
    made = engine.collect(examined_cells(sessions, engine=engine, examiner=model))
    assert made["examination"].to_pylist() == model.units(made).tolist()
    assert len(made) == len({tuple(row[name] for name in BEHAVIOUR) for row in rows if row["filter"] is None})
