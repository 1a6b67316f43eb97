"""Windows: boundaries by hand, snapshots against plain loops, any split into days, privacy, the schedule."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickprism.errors import SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.features.schedule import schedule
from clickprism.log.features.windows import windows
from clickprism.log.schema import click_fields, window_fields
from clickprism.log.settings import WindowSettings
from tests.log.window_logs import (
    Thirds,
    as_dict,
    by_hand,
    field,
    make_log,
    random_rows,
    session,
    write_sessions,
)

NOW = datetime(2026, 3, 4, 15, 30)  # a Wednesday
TINY = timedelta(microseconds=1)


def test_a_snapshot_is_what_plain_loops_give(engine: Engine, tmp_path: Path) -> None:
    rows = random_rows(1, count=200, end=NOW)
    store = make_log(tmp_path / "log", rows)
    made = windows(store, engine, NOW, examiner=Thirds(), settings=WindowSettings(k=7), refresh=False)
    expected = by_hand(rows, NOW, k=7, examination=True)
    assert as_dict(made.snapshot.read()) == expected
    assert {len(x) for x in expected.values()} == {180}
    assert made.snapshot.fields == click_fields(examination=True)
    assert sum(made.snapshot.suppressed.values()) > 0


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), k=st.integers(0, 3), hour=st.integers(0, 23), count=st.integers(0, 60))
def test_random_logs_give_the_snapshot_of_plain_loops(
    duck: Engine, tmp_path_factory: pytest.TempPathFactory, *, seed: int, k: int, hour: int, count: int
) -> None:
    as_of = NOW.replace(hour=hour)
    rows = random_rows(seed, count=count, end=as_of)
    store = make_log(tmp_path_factory.mktemp("log"), rows)
    made = windows(store, duck, as_of, settings=WindowSettings(k=k), refresh=False)
    assert as_dict(made.snapshot.read()) == by_hand(rows, as_of, k=k, examination=False)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), data=st.data())
def test_late_rows_give_the_same_snapshot(
    duck: Engine, tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    """Rows that come later change what they touch, in whatever order they come."""
    rows = random_rows(seed, count=40, end=NOW)
    early = [row for row in rows if data.draw(st.booleans())]
    store = make_log(tmp_path_factory.mktemp("log"), early)
    windows(store, duck, NOW, settings=WindowSettings(k=1), refresh=False)
    late = {row["day"] for row in rows} - {row["day"] for row in early}
    touched = late | {row["day"] for row in rows if row not in early}
    write_sessions(store, rows, days=touched)
    made = windows(store, duck, NOW, settings=WindowSettings(k=1), refresh=False)
    assert as_dict(made.snapshot.read()) == by_hand(rows, NOW, k=1, examination=False)
    inside = {day for window in schedule(NOW)[1:] for day in window.days}
    assert set(made.partials) == touched & inside


BOUNDARIES = [
    (datetime(2026, 3, 4, 15) - TINY, "day"),
    (datetime(2026, 3, 4, 15), ""),
    (datetime(2026, 3, 3, 15), "day week"),
    (datetime(2026, 3, 3, 15) - TINY, "week"),
    (datetime(2026, 3, 4), "day"),
    (datetime(2026, 3, 4) - TINY, "day week"),
    (datetime(2026, 3, 2), "week"),
    (datetime(2026, 3, 2) - TINY, "week month"),
    (datetime(2026, 2, 25), "week month"),
    (datetime(2026, 2, 25) - TINY, "month"),
    (datetime(2026, 2, 2), "month"),
    (datetime(2026, 2, 2) - TINY, ""),
]


def test_sessions_count_in_the_windows_that_hold_their_time(duck: Engine, tmp_path: Path) -> None:
    """As of Wednesday 15:30: the day ends at 15:00, the week at midnight, the month on Monday."""
    rows = [session(time, document_id=time.isoformat()) for time, _ in BOUNDARIES]
    made = windows(make_log(tmp_path / "log", rows), duck, NOW, settings=WindowSettings(k=0), refresh=False)
    found = {document: x for (_, document), x in as_dict(made.snapshot.read()).items()}
    for time, inside in BOUNDARIES:
        x = found.get(time.isoformat(), [0.0] * 144)
        assert [name for name in ("day", "week", "month") if field(x, f"{name}.impressions")] == inside.split(), time


def test_the_age_of_the_last_click(duck: Engine, tmp_path: Path) -> None:
    """Hours to the end of each window; 0 for a click that came after it, the window's length without one."""
    shown = datetime(2026, 3, 3, 23, 59)
    store = make_log(tmp_path / "log", [session(shown, clicks=1, last_click=shown + timedelta(minutes=31))])
    made = windows(store, duck, NOW, settings=WindowSettings(k=1), refresh=False)
    ((_, x),) = as_dict(made.snapshot.read()).items()
    ages = [field(x, f"{name}.last_click_age") for name in ("day", "week", "month")]
    assert ages == [14.5, 0.0, 672.0]


def test_pairs_with_few_users_are_left_out_window_by_window(duck: Engine, tmp_path: Path) -> None:
    week = [session(datetime(2026, 3, 1), user_id=user, document_id="a") for user in ("1", "2", "2", None)]
    day = [session(datetime(2026, 3, 4, 10), user_id="3", document_id="a")]
    alone = [session(datetime(2026, 3, 4, 10), user_id=user, document_id="b") for user in ("1", "1", None, None)]
    robot = [session(datetime(2026, 3, 4, 10), user_id="9", document_id="b", filter="agent")]
    store = make_log(tmp_path / "log", [*week, *day, *alone, *robot])
    made = windows(store, duck, NOW, settings=WindowSettings(k=2), refresh=False).snapshot
    assert made.pairs == {"day": 0, "week": 1, "month": 1}
    assert made.suppressed == {"day": 2, "week": 0, "month": 0}
    (row,) = made.read().to_pylist()
    assert (row["document_id"], row["users"], row["as_of"]) == ("a", 2, NOW)
    assert field(row["x"], "day.impressions") == 0
    assert field(row["x"], "week.impressions") == 4
    assert field(row["x"], "week.users") == 2
    everyone = windows(store, duck, NOW, settings=WindowSettings(k=0), refresh=False).snapshot
    assert everyone.read().num_rows == 2
    assert sum(everyone.suppressed.values()) == 0


def test_kept_windows_are_rebuilt_only_if_needed(duck: Engine, tmp_path: Path) -> None:
    rows = random_rows(3, count=100, end=NOW)
    store = make_log(tmp_path / "log", rows)
    small = WindowSettings(k=1)

    def made(as_of: datetime) -> tuple[bool, tuple[str, ...], int]:
        found = windows(store, duck, as_of, settings=small, refresh=False)
        assert as_dict(found.snapshot.read()) == by_hand(rows, as_of, k=1, examination=False)
        return found.changed, found.dictionaries, found.snapshot.version

    first = made(NOW)
    assert first[:2] == (True, ("week", "month"))
    assert made(NOW) == (False, (), first[2])
    assert made(NOW + timedelta(hours=1))[:2] == (True, ())
    assert made(NOW + timedelta(days=1))[:2] == (True, ("week",))
    assert made(datetime(2026, 3, 9, 0, 5))[:2] == (True, ("week", "month"))
    assert made(NOW)[0] is False


def test_a_log_without_sessions_has_an_empty_snapshot(duck: Engine, tmp_path: Path) -> None:
    made = windows(make_log(tmp_path / "log", []), duck, NOW, examiner=Thirds())
    assert made.snapshot.read().num_rows == 0
    assert made.snapshot.pairs == {"day": 0, "week": 0, "month": 0}


def test_the_month_moves_on_on_mondays() -> None:
    assert schedule(datetime(2026, 3, 1, 1))[2].end == datetime(2026, 2, 23)
    assert schedule(datetime(2026, 3, 2, 0))[2].end == datetime(2026, 3, 2)


def test_times_before_the_calendar() -> None:
    with pytest.raises(SettingError, match="be later than the first month"):
        schedule(datetime(1, 1, 5))


def test_the_data_model_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "datamodel.md").read_text(encoding="utf-8")
    ends = ("_1", "_2", "_3", "_4", "_5", "_6", "@2", "@3", "@4", "@5", "@6", "@7", "@8", "@9")
    between = [name for name in window_fields(examination=True) if not name.endswith(ends)]
    assert [name for name in between if f"`{name}`" not in page] == []
    lengths = [len(click_fields(examination=each)) for each in (True, False)]
    assert f"L is {lengths[0]} with an examination model and {lengths[1]} without" in page
