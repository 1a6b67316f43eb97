"""Sessions: by hand, against plain loops, on every engine; which days are made anew."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.errors import SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.robots import verdicts
from clickprism.log.schema import EVENTS, KINDS, SESSIONS, conform
from clickprism.log.sessions import behaviour, kinds_of, session_report, shown_rows, update_sessions
from clickprism.log.settings import RobotSettings, SessionSettings
from clickprism.log.store import LogStore
from tests.log.event_logs import NOON, Row, event, judged_rows, random_rows, sessions_of, stored, table

USUAL = SessionSettings()
RULES = RobotSettings(searches_per_day=6, searches_per_minute=3, click_through_impressions=5, repeat_clicks=3)
DAY = NOON.date()


def made(
    engine: Engine,
    rows: list[Row],
    later: list[Row] | None = None,
    *,
    chosen: SessionSettings = USUAL,
    rules: RobotSettings = RULES,
    kinds: tuple[str, ...] = KINDS,
) -> list[Row]:
    with ExitStack() as stack:
        judged = verdicts(engine.memory(table(rows)), rules, kinds=kinds)
        after = None
        if later is not None:
            after = verdicts(engine.memory(table(later)), rules)
            after = after.filter(after.kind == "interaction").mutate(day=rows[0]["day"])
            after = stack.enter_context(engine.held(after))
        shown = shown_rows(stack.enter_context(engine.held(judged)), after, chosen, kinds=kinds)
        return plain(engine.collect(behaviour(stack.enter_context(engine.held(shown)), chosen)))


def plain(rows: pa.Table) -> list[Row]:
    found: list[Row] = conform(rows, SESSIONS, what="sessions").to_pylist()
    return sorted(found, key=order)


def order(row: Row) -> tuple[date, str, str, str]:
    return row["day"], row["search_id"], row["document_id"], row["filter"] or ""


def column(rows: Iterable[Row], name: str) -> dict[str, Any]:
    return {row["document_id"]: row[name] for row in rows}


def test_features_by_hand(duck: Engine) -> None:
    clicked = {2, 3, 11}
    rows = [
        event("impression", "s", document_id=f"d{place:02}", position=place, click=place in clicked)
        for place in range(1, 13)
    ]
    found = made(duck, rows, kinds=("impression",))
    assert [row["position"] for row in found] == list(range(1, 13))
    assert [row["clicked"] for row in found] == [place in clicked for place in range(1, 13)]
    assert [row["clicks_before"] for row in found] == [0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3]
    assert [row["click_distance"] for row in found] == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1]
    assert [row["click_below"] for row in found] == [True] * 10 + [False] * 2
    assert [row["page"] for row in found] == [1] * 10 + [2] * 2
    assert {row["query_bucket"] for row in found} == {0}


def test_query_buckets(duck: Engine) -> None:
    buckets = {1: 0, 2: 1, 9: 1, 10: 2, 99: 2, 100: 3, 999: 3, 1000: 4}
    rows = [
        event("impression", f"{searches}-{n}", query_id=str(searches), document_id="a")
        for searches in buckets
        for n in range(searches)
    ]
    found = made(duck, rows, kinds=("impression",))
    assert {int(row["query_id"]): row["query_bucket"] for row in found} == buckets
    assert len(found) == sum(buckets)


def test_list_with_the_same_document_twice_keeps_the_first(duck: Engine) -> None:
    found = made(duck, [event("ranking", "s", documents=list("aba"), clicked=["a", "a", "z"])])
    assert column(found, "position") == {"a": 1, "b": 2}
    assert column(found, "clicks") == {"a": 2, "b": 0}


def test_pages_of_a_search_are_one_list(duck: Engine) -> None:
    first = event("ranking", "s", documents=["a", "b"], clicked=["b"])
    second = event("ranking", "s", documents=["c", "a"], position=11, time=NOON + timedelta(minutes=1))
    found = made(duck, [first, second])
    assert column(found, "position") == {"a": 1, "b": 2, "c": 11}
    assert column(found, "click_distance") == {"a": 0, "b": 0, "c": 9}
    assert column(found, "page") == {"a": 1, "b": 1, "c": 2}


def test_impressions_said_twice_are_one_with_the_most_of_both(duck: Engine) -> None:
    early = event("impression", "s", document_id="d", position=3, display_ms=200, user_id="u")
    late = event("impression", "s", document_id="d", position=3, display_ms=7000, click=True, page_skipped=True)
    (row,) = made(duck, [early, late | {"time": NOON + timedelta(seconds=9)}], kinds=("impression",))
    assert (row["display_ms"], row["clicks"], row["page_skipped"], row["user_id"]) == (7000, 1, True, "u")
    assert (row["time"], row["last_click"]) == (NOON, NOON)


def test_impression_events_say_what_of_a_list_was_shown(duck: Engine) -> None:
    rows = [
        event("ranking", "s", documents=list("abcd")),
        event("interaction", "s", action="impression", document_id="c", position=1),
        event("interaction", "s", action="impression", document_id="a"),
        event("interaction", "s", action="impression", document_id="x", position=5),
        event("interaction", "s", action="impression", document_id="y"),
        event("interaction", "s", document_id="b"),
        event("ranking", "t", documents=list("ab")),
    ]
    found = made(duck, rows)
    assert column([row for row in found if row["search_id"] == "s"], "position") == {"c": 1, "a": 1, "x": 5, "b": 2}
    assert column([row for row in found if row["search_id"] == "t"], "position") == {"a": 1, "b": 2}
    assert [row["document_id"] for row in found if row["clicks"]] == ["b"]


def test_clicks_of_the_next_day_count_for_a_day(duck: Engine) -> None:
    shown = event("ranking", "s", documents=["a", "b"])
    in_time = event("interaction", "s", document_id="a", time=NOON + timedelta(hours=24), dwell_ms=7)
    too_late = event("interaction", "s", document_id="b", time=NOON + timedelta(hours=24, microseconds=1))
    found = made(duck, [shown], [in_time, too_late])
    assert column(found, "clicks") == {"a": 1, "b": 0}
    assert column(found, "dwell_ms") == {"a": 7, "b": None}
    assert found[0]["last_click"] == NOON + timedelta(hours=24)
    assert {row["day"] for row in found} == {DAY}
    assert column(made(duck, [shown], [in_time], chosen=SessionSettings(click_window_hours=23)), "clicks")["a"] == 0


def test_clicks_on_what_was_not_shown_are_not_invented(duck: Engine) -> None:
    rows = [event("interaction", "s", document_id="a"), event("ranking", "t", documents=["a"], clicked=["b"])]
    assert column(made(duck, rows), "clicks") == {"a": 0}


def test_query_without_id_is_its_text(duck: Engine) -> None:
    rows = [event("ranking", "s", query_id=None, query="cat", documents=["a"])]
    (row,) = made(duck, rows)
    assert row["query_id"] == "77af778b51abd4a3c51c5ddd97204a9c3ae614ebccb75a606c3b6865aed6744e"


def test_events_left_out_are_as_if_they_had_not_been(duck: Engine) -> None:
    rng = random.Random(5)
    rows = [row for row in random_rows(rng, 80, kinds=KINDS) if row["user_id"] != "v"]
    robot = [row | {"agent": "a spider"} for row in random_rows(rng, 40, kinds=KINDS)]
    with_robot = stored([*rows, *[event(**_again(row)) for row in robot if row["event_id"] is None]])
    only_agents = RobotSettings(searches_per_day=0, searches_per_minute=0, click_through=1, repeat_clicks=0)
    with_rules = [row for row in made(duck, with_robot, rules=only_agents) if row["filter"] is None]
    assert with_rules == [row for row in made(duck, rows, rules=only_agents) if row["filter"] is None]


def _again(row: Row) -> dict[str, Any]:
    derived = ("kind", "search_id", "key", "file_id", "day", "line")
    values = {name: value for name, value in row.items() if name not in derived}
    return {"kind": row["kind"], "search": row["search_id"], **values}


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 50),
    kinds=st.sampled_from([KINDS, *[(kind,) for kind in KINDS], KINDS[:2], KINDS[1:]]),
    chosen=st.builds(SessionSettings, page_size=st.integers(1, 12), click_window_hours=st.integers(1, 24)),
)
@settings(max_examples=6)
def test_sessions_by_plain_loops(
    duck: Engine, seed: int, count: int, kinds: tuple[str, ...], chosen: SessionSettings
) -> None:
    check(duck, seed, count, kinds, chosen)


def check(engine: Engine, seed: int, count: int, kinds: tuple[str, ...], chosen: SessionSettings) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, count, kinds=kinds)
    later = random_rows(rng, count // 2, kinds=KINDS, day=NOON + timedelta(days=1)) if rng.random() < 0.7 else []
    after = [row for row in judged_rows(stored(later), RULES) if row["kind"] == "interaction"]
    expected = sessions_of(judged_rows(stored(rows), RULES), after, chosen) if set(kinds) != {KINDS[2]} else []
    assert made(engine, rows, later or None, chosen=chosen, kinds=kinds) == expected


def log(folder: Path, rows: Iterable[Row], *, name: str = "a") -> LogStore:
    """A log with these events, as ingest stores them."""
    store = LogStore.open(folder, create=True)
    events = store.table("events")
    days: dict[date, list[Row]] = {}
    for row in rows:
        days.setdefault(row["day"], []).append(row)
    added = {}
    for day, of_day in days.items():
        path = events.day_folder(day) / f"{name}.parquet"
        pq.write_table(conform(table(of_day), EVENTS, what="events").drop_columns(["day"]), path)
        added[day] = [path]
    events.commit_files(added)
    store.write_settings(store.settings)
    return store


def sessions(store: LogStore, engine: Engine) -> list[Row]:
    return plain(engine.collect(engine.read(store.table("sessions").files(), SESSIONS)))


def test_only_stale_days_are_rebuilt(duck: Engine, tmp_path: Path) -> None:
    days = [DAY + timedelta(days=number) for number in range(4)]
    times = [NOON + timedelta(days=number) for number in range(4)]
    shown = [event("ranking", f"s{number}", documents=["a", "b"], time=time) for number, time in enumerate(times)]
    store = log(tmp_path / "a log", shown)
    assert update_sessions(store, duck) == days
    assert update_sessions(store, duck) == []
    log(tmp_path / "a log", [event("interaction", "s1", document_id="b", time=times[2])], name="late")
    assert update_sessions(store, duck, days[:1]) == []
    assert update_sessions(store, duck) == days[1:3]
    clicks = {(row["search_id"], row["document_id"]) for row in sessions(store, duck) if row["clicked"]}
    assert clicks == {("s1", "b")}
    store.write_settings(store.settings.with_part("sessions", SessionSettings(page_size=1)))
    assert update_sessions(store, duck) == days
    assert {row["page"] for row in sessions(store, duck)} == {1, 2}
    store.table("events").commit_files({}, remove_days=[days[3]])
    assert update_sessions(store, duck) == [days[3]]
    assert store.table("sessions").days() == days[:3]


def test_next_day_of_impressions_only_leaves_a_day_alone(duck: Engine, tmp_path: Path) -> None:
    shown = [event("impression", "s", document_id="a", time=NOON + timedelta(days=number)) for number in range(2)]
    store = log(tmp_path, shown[:1])
    assert update_sessions(store, duck) == [DAY]
    log(tmp_path, shown[1:])
    assert update_sessions(store, duck) == [DAY + timedelta(days=1)]


def test_day_without_a_search_has_no_rows_and_is_not_stale(duck: Engine, tmp_path: Path) -> None:
    store = log(tmp_path, [event("interaction", "s", document_id="a"), event("interaction", "s", document_id="b")])
    assert update_sessions(store, duck) == [DAY]
    assert update_sessions(store, duck) == []
    assert store.table("sessions").rows() == 0
    (report,) = session_report(store, duck, [DAY])
    assert (report.rows, report.unmatched) == (0, 2)


def test_report_counts_what_found_no_place(duck: Engine, tmp_path: Path) -> None:
    rows = [
        event("ranking", "s", documents=["a", "b"], clicked=["a", "z"], time=NOON - timedelta(days=1)),
        event("interaction", "s", document_id="b"),
        event("interaction", "s", document_id="c"),
        event("interaction", "gone", document_id="a"),
        event("interaction", "gone", document_id="a", action="buy"),
        event("ranking", "bot", documents=["a"], agent="curl/8"),
    ]
    store = log(tmp_path, rows)
    first, second = session_report(store, duck, update_sessions(store, duck))
    assert (first.searches, first.rows, first.clicked, first.filtered, first.unmatched) == (1, 2, 2, 0, 1)
    assert (second.searches, second.rows, second.clicked, second.filtered, second.unmatched) == (0, 0, 0, 1, 2)


def test_kinds_by_footers(tmp_path: Path) -> None:
    for kinds in ([], ["impression"], ["interaction"], ["ranking"], ["impression", "interaction"]):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"line": pa.array(range(len(kinds))), "kind": pa.array(kinds, pa.string())}), path)
        assert list(kinds_of([path])) == kinds
    pq.write_table(pa.table({"kind": ["impression"]}), path, write_statistics=False)
    assert kinds_of([path]) == KINDS


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="page_size must be at least 1"):
        SessionSettings(page_size=0)
    with pytest.raises(SettingError, match="click_window_hours must be from 1 to 24"):
        SessionSettings(click_window_hours=25)
