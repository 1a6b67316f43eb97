"""Partials: sums by hand, which days are made anew, settings."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from clickprism.errors import SettingError
from clickprism.log.engines.base import Engine
from clickprism.log.features.partials import partial_rows, update_partials
from clickprism.log.schema import PARTIALS, SESSIONS, conform
from clickprism.log.settings import WindowSettings
from tests.log.window_logs import UNIT, Thirds, make_log, session, write_sessions

DAY = datetime(2026, 3, 4, 12)


def test_sums_by_hand(engine: Engine, tmp_path: Path) -> None:
    rows = [
        session(DAY, position=3, clicks=2, dwell_ms=5000, display_ms=999, last_click=DAY + timedelta(hours=1)),
        session(DAY, position=3, dwell_ms=None, display_ms=1000, page_skipped=True),
        session(DAY, position=3, clicks=1, dwell_ms=180_000, display_ms=None, user_id=None),
        session(DAY, position=3, clicks=9, filter="rate"),
        session(DAY, position=12, display_ms=0),
    ]
    store = make_log(tmp_path / "log", rows)
    assert update_partials(store, engine, days=[DAY.date()], examiner=Thirds()) == [DAY.date()]
    table = engine.collect(engine.read(store.table("partials").files(), PARTIALS))
    third, rest = sorted(conform(table, PARTIALS, what="partials").to_pylist(), key=lambda row: row["position"])
    assert (
        third
        | {
            "impressions": 3,
            "clicks": 3,
            "clicked": 2,
            "examination": 2 * UNIT + UNIT // 5,
            "examination_clicked": 2 * UNIT,
            "examination_squared": 2 * UNIT + (UNIT // 5) ** 2 // UNIT,
            "dwell_ms": 185_000,
            "dwells": 2,
            "display_ms": 1999,
            "displays": 2,
            "displayed": 2,
            "skips": 1,
            "last_click": DAY + timedelta(hours=1),
            "dwell_hist_3": 1,
            "dwell_hist_7": 1,
            "display_hist_0": 1,
            "display_hist_1": 1,
            "day": DAY.date(),
        }
        == third
    )
    assert sum(value for name, value in third.items() if "_hist_" in name) == 4
    assert (rest["position"], rest["impressions"], rest["last_click"], rest["dwell_ms"]) == (12, 1, None, 0)
    assert (rest["displays"], rest["displayed"], rest["display_hist_0"]) == (1, 0, 1)


def test_a_sum_of_partials_is_a_partial(duck: Engine, tmp_path: Path) -> None:
    """The same rows in one day or in two give the same sums."""
    rows = [session(DAY, clicks=number % 2, display_ms=number * 700) for number in range(8)]
    later = [session(DAY + timedelta(days=number // 4), **_given(row)) for number, row in enumerate(rows)]
    whole, parts = make_log(tmp_path / "one", rows), make_log(tmp_path / "two", later)
    days = [DAY.date(), DAY.date() + timedelta(days=1)]
    tables = []
    for store in (whole, parts):
        update_partials(store, duck, days=days)
        table = duck.read(store.table("partials").files(), PARTIALS)
        sums = [name for name in PARTIALS.names if name not in ("query_id", "document_id", "day", "last_click")]
        tables.append(duck.collect(table.aggregate(**{name: table[name].sum() for name in sums[1:]})).to_pylist())
    assert tables[0] == tables[1]


def _given(row: dict[str, object]) -> dict[str, object]:
    return {name: row[name] for name in ("clicks", "display_ms")}


def test_only_stale_days_are_rebuilt(duck: Engine, tmp_path: Path) -> None:
    days = [date(2026, 3, day) for day in (1, 2, 3)]
    rows = [session(datetime.combine(day, datetime.min.time())) for day in days]
    store = make_log(tmp_path / "log", rows)
    assert update_partials(store, duck, days=days) == days
    assert update_partials(store, duck, days=days) == []
    late = [*rows, session(datetime(2026, 3, 2, 5), document_id="late")]
    write_sessions(store, late, days=[days[1]])
    assert update_partials(store, duck, days=days) == [days[1]]
    assert update_partials(store, duck, days=days, examiner=Thirds()) == days
    assert update_partials(store, duck, days=days) == days
    assert update_partials(store, duck, days=days) == []
    store.table("sessions").commit_files({}, remove_days=[days[0]])
    assert update_partials(store, duck, days=days) == [days[0]]
    assert store.table("partials").days() == days[1:]


def test_the_model_sees_each_cell_once(tmp_path: Path) -> None:
    from clickprism.log.engines.base import connect

    class Counting(Thirds):
        seen = 0

        def estimate(self, batch):  # type: ignore[no-untyped-def]
            Counting.seen += batch.num_rows
            return super().estimate(batch)

    rows = [session(DAY, position=1 + number % 2) for number in range(50)]
    store = make_log(tmp_path / "log", rows)
    with connect(memory="500MB") as running:
        update_partials(store, running, days=[DAY.date()], examiner=Counting())
    assert Counting.seen == 2


def test_no_rows_give_no_partials(engine: Engine) -> None:
    table = partial_rows(engine.read([], SESSIONS))
    assert engine.collect(table).num_rows == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"k": -1}, "windows.k must be 0 or more, got -1"),
        ({"keep_hours": -1}, "windows.keep_hours must be 0 or more"),
    ],
)
def test_settings_that_cannot_work(values: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words.replace("(", r"\(")):
        WindowSettings(**values)  # type: ignore[arg-type]
