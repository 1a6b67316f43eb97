"""Sessions: what proves that a document was shown, and on which day a click counts."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest

from clickprism.log.engines.base import Engine
from clickprism.log.schema import KINDS
from clickprism.log.sessions import session_report, update_sessions
from tests.log.event_logs import NOON, Row, event, judged_rows, random_rows, sessions_of, stored
from tests.log.test_sessions import RULES, USUAL, column, log, made, sessions

MIDNIGHT = NOON + timedelta(hours=12)
TOMORROW = MIDNIGHT.date()


def at(minutes: int) -> dict[str, object]:
    return {"time": MIDNIGHT + timedelta(minutes=minutes)}


def test_a_click_proves_that_its_document_was_shown(duck: Engine) -> None:
    rows = [
        event("ranking", "s", documents=["101", "102", "103"], clicked=["103"]),
        event("interaction", "s", action="impression", document_id="101"),
        event("interaction", "s", document_id="102"),
        event("interaction", "s", document_id="900"),
        event("interaction", "s", action="buy", document_id="901", position=9),
        event("ranking", "t", documents=[]),
        event("interaction", "t", document_id="7", position=4),
        event("interaction", "t", document_id="8"),
        event("ranking", "u", documents=["5", "6"]),
        event("interaction", "u", document_id="6", position=9),
        event("interaction", "u", document_id="9", position=3),
        event("interaction", "unasked", document_id="5", position=1),
    ]
    found = {(row["search_id"], row["document_id"]): (row["position"], row["clicks"]) for row in made(duck, rows)}
    assert found == {
        ("s", "101"): (1, 0),
        ("s", "102"): (2, 1),
        ("s", "103"): (3, 1),
        ("t", "7"): (4, 1),
        ("u", "5"): (1, 0),
        ("u", "6"): (2, 1),
        ("u", "9"): (3, 1),
    }


def test_a_click_that_came_too_late_proves_nothing(duck: Engine) -> None:
    rows = [event("ranking", "s", documents=["a"]), event("interaction", "s", action="impression", document_id="a")]
    late = event("interaction", "s", document_id="b", position=2, time=NOON + timedelta(hours=25))
    assert list(column(made(duck, rows, [late]), "clicks")) == ["a"]


def test_a_randomised_position_is_known_from_its_impression(duck: Engine) -> None:
    rows = [
        event("ranking", "s", documents=["a", "b", "c"]),
        event("interaction", "s", action="impression", document_id="a", randomised=True),
        event("interaction", "s", action="impression", document_id="b", randomised=False),
        event("interaction", "s", action="impression", document_id="c"),
    ]
    assert column(made(duck, rows), "randomised") == {"a": True, "b": False, "c": False}


@pytest.mark.parametrize("kind", ["ranking", "impression"])
def test_a_click_of_a_search_on_both_sides_of_midnight_counts_once(duck: Engine, tmp_path: Path, kind: str) -> None:
    def shown(document: str, minutes: int, **values: object) -> Row:
        what = {"documents": [document]} if kind == "ranking" else {"document_id": document, "position": 1}
        return event(kind, "s", **what, **at(minutes), **values)

    rows = [shown("a", -10), shown("b", -10), shown("a", 5), shown("c", 6)]
    rows += [event("interaction", "s", document_id=document, **at(20)) for document in "abc"]
    rows += [shown("b", 7, agent="curl/8")]
    store = log(tmp_path, rows)
    reports = session_report(store, duck, update_sessions(store, duck))
    clicks = [
        (row["day"] == TOMORROW, row["document_id"])
        for row in sessions(store, duck)
        if row["clicked"] and row["filter"] is None
    ]
    assert clicks == [(False, "b"), (True, "a"), (True, "c")]
    assert [report.unmatched for report in reports] == [0, 0]


def test_days_together_are_days_apart(duck: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for number in range(4):
        kinds = KINDS if number < 2 else KINDS[:1] if number == 2 else KINDS[2:]
        rows += random_rows(random.Random(number), 30, kinds=kinds, day=NOON + timedelta(days=number))
    found = []
    for most in (1, 70):
        store = log(tmp_path / str(most), rows)
        store.write_settings(store.settings.with_part("robots", RULES))
        monkeypatch.setattr(type(duck), "batch_rows", most)
        days = update_sessions(store, duck)
        found.append((days, sessions(store, duck), session_report(store, duck, days)))
    assert len(found[0][0]) == 4
    assert found[0] == found[1]


def test_engines_agree_on_searches_over_midnight(engine: Engine, duck: Engine, tmp_path: Path) -> None:
    rows = random_rows(random.Random(1), 40, kinds=KINDS)
    later = random_rows(random.Random(2), 40, kinds=KINDS, day=NOON + timedelta(days=1))
    store = log(tmp_path, [*rows, *later])
    store.write_settings(store.settings.with_part("robots", RULES))
    days = [NOON.date(), TOMORROW]
    assert update_sessions(store, engine) == days
    assert update_sessions(store, duck) == []
    assert store.table("sessions").days() == days
    assert session_report(store, engine, days) == session_report(store, duck, days)
    after = judged_rows(stored(later), RULES)
    tomorrow = sessions_of(after, [], USUAL)
    pairs = {(row["search_id"], row["document_id"], row["filter"] is None) for row in tomorrow}
    left = [
        row
        for row in after
        if row["kind"] == "interaction" and (row["search_id"], row["document_id"], row["filter"] is None) not in pairs
    ]
    assert 0 < len(left) < sum(row["kind"] == "interaction" for row in after)
    today = sessions_of(judged_rows(stored(rows), RULES), left, USUAL)
    assert sessions(store, engine) == [*today, *tomorrow]
