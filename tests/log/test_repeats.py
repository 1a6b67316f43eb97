"""Documents that are shown again: counted, and one row of sessions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from clickprism.log.engine import Engine
from clickprism.log.sessions import build_sessions, session_report, update_sessions
from tests.log.event_logs import NOON, event
from tests.log.test_sessions import DAY, log


def test_documents_shown_again_are_counted(engine: Engine, duck: Engine, tmp_path: Path) -> None:
    rows = [
        event("ranking", "list", documents=["a", "b", "a", "a", "b"]),
        event("ranking", "once", documents=["a", "b"]),
        event("ranking", "robot", documents=["a", "a"], agent="curl/8"),
        event("impression", "rows", document_id="a", position=1),
        event("impression", "rows", document_id="a", position=7),
        event("impression", "rows", document_id="b", position=2),
        event("impression", "machine", document_id="a", position=1, agent="curl/8"),
        event("impression", "machine", document_id="a", position=2, agent="curl/8"),
        event("impression", "list", document_id="a", position=1, time=NOON + timedelta(days=1)),
    ]
    store = log(tmp_path / "log", rows)
    found = session_report(store, engine, update_sessions(store, duck))
    assert {each.day: each.repeated for each in found if each.repeated} == {DAY: 4}
    rows = store.table("sessions").read(["search_id", "document_id", "position", "day"]).to_pylist()
    assert {"search_id": "list", "document_id": "a", "position": 1, "day": DAY} in rows
    assert {"search_id": "list", "document_id": "b", "position": 2, "day": DAY} in rows
    assert sum(row["search_id"] == "list" and row["day"] == DAY for row in rows) == 2


def test_a_log_without_any_is_not_read_twice(duck: Engine, tmp_path: Path) -> None:
    store = log(tmp_path / "log", [event("impression", "s", document_id=name, position=1) for name in "ab"])
    assert [each.repeated for each in build_sessions(store, duck).rebuilt] == [0]
