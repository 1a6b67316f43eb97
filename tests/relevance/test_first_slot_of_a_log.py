"""First-slot clicks of an ingested log, and the click vectors of a snapshot that may predict them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("ibis")

from clickprism.errors import DataError
from clickprism.log.engine import connect
from clickprism.log.settings import WindowSettings
from clickprism.log.windows import windows
from clickprism.relevance.click_vectors import ClickVectors
from clickprism.relevance.randomised import read_first_slot
from tests.log.window_logs import make_log, session

NOON = datetime(2026, 3, 4, 12)
HOUR = timedelta(hours=1)


def test_counts_of_the_first_slot_agree_with_a_calculation_by_hand(tmp_path: Path) -> None:
    rows = [
        session(NOON - HOUR, search_id="a", randomised=True, clicks=1),
        session(NOON, search_id="b", randomised=True, clicks=2),
        session(NOON + HOUR, search_id="c", randomised=True),
        session(NOON + HOUR, search_id="d", randomised=True, position=2, clicks=1),
        session(NOON + HOUR, search_id="e", clicks=1),
        session(NOON + HOUR, search_id="f", randomised=True, filter="agent"),
        session(NOON + 24 * HOUR, search_id="g", randomised=True, document_id="e"),
    ]
    store = make_log(tmp_path, rows)
    slot = read_first_slot(store, since=NOON)
    assert slot.document_ids.tolist() == ["d", "e"]
    assert slot.clicks.tolist() == [1, 0]
    assert slot.impressions.tolist() == [2, 1]
    assert read_first_slot(store).impressions.tolist() == [3, 1]
    assert read_first_slot(store, until=NOON).clicks.tolist() == [1]
    assert read_first_slot(store, since=NOON, randomised=False).clicks.tolist() == [2, 0]
    with pytest.raises(DataError, match="no impression in a randomised first slot"):
        read_first_slot(store, since=NOON + 48 * HOUR)
    with connect(threads=1, memory="500MB") as engine:
        snapshot = windows(store, engine, NOON, refresh=False, settings=WindowSettings(k=0)).snapshot
        later = windows(store, engine, NOON + HOUR, refresh=False, settings=WindowSettings(k=0)).snapshot
    x = ClickVectors.from_snapshot(snapshot).before(slot)
    shown = snapshot.fields.index("day.impressions")
    assert x[:, shown].tolist() == [1, 0]
    with pytest.raises(DataError, match="may be in the vectors"):
        ClickVectors.from_snapshot(later).before(slot)
