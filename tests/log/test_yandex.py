"""Real search sessions through the same door: positions and clicks only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickprism.data.sessions import read_sessions
from clickprism.log.engines.base import connect
from clickprism.log.ingest import ingest
from clickprism.log.load import read_store
from clickprism.log.open_log import read_log
from clickprism.log.read import SourceSettings
from clickprism.log.sessions import session_report, update_sessions
from clickprism.log.store import LogStore
from tests.shared_data import shared_data


def test_real_sessions_are_the_same_as_by_the_other_reader(tmp_path: Path) -> None:
    file = shared_data("yandex-clicks/sessions.tsv.gz")
    known = read_sessions(file)
    account = ingest([file], tmp_path / "log", source=SourceSettings(schema="yandex"))
    assert (account.rows_in, account.accepted, account.duplicate) == (len(known), len(known), 0)
    store = LogStore.open(tmp_path / "log")
    with connect() as engine:
        days = update_sessions(store, engine)
        (report,) = session_report(store, engine, days)
    assert (report.searches, report.rows, report.clicked) == (len(known), 350_640, 42_703)
    assert (report.filtered, report.unmatched) == (0, 417)
    assert [str(day) for day in days] == ["2000-01-02"]
    sessions = store.table("sessions").read(["search_id", "position", "clicked"])
    positions, clicked = sessions["position"].to_numpy(), sessions["clicked"].to_numpy()
    assert len(sessions["search_id"].unique()) == len(known)
    assert np.bincount(positions).tolist() == np.bincount(known.clicks.positions).tolist()
    observed = read_store(store.folder, merge=False).clicks
    assert (observed.sessions, len(observed.lists)) == (known.clicks.sessions, len(known.clicks.lists))
    assert int(observed.clicks.sum()) == report.clicked
    by_position = np.bincount(known.clicks.positions, weights=known.clicks.clicks)
    assert np.bincount(positions, weights=clicked).tolist() == by_position.tolist()


def test_the_text_of_the_query_is_read_if_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "sessions.tsv"
    file.write_text("query\tquery_text\tdocuments\tclicks\nq1\tred shoes\ta,b\ta\n")
    ingest([file], tmp_path / "log", source=SourceSettings(schema="yandex"))
    events = LogStore.open(tmp_path / "log").table("events").read(["query_id", "query"])
    assert {tuple(row.values()) for row in events.to_pylist()} == {("q1", "red shoes")}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("day", ("2026-03-01", "2026-03-03")),
        ("date", ("20260301", "20260303")),
        ("time", ("2026-03-01T09:30:00Z", "2026-03-03 00:00:00")),
        ("day", ("4", "6")),
    ],
)
def test_days_rankers_and_random_order_are_the_same_directly_and_ingested(
    column: str, values: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "sessions.tsv"
    lines = [f"cat\ta,b\tb\t{values[0]}\told\t1", f"cat\tb,a\t\t{values[1]}\tnew\t0"]
    file.write_text("\n".join([f"query\tdocuments\tclicks\t{column}\tranker\trandomised", *lines]))
    ingest([file], tmp_path / "log")
    direct, ingested = read_log(file), read_log(tmp_path / "log")
    for log in (direct, ingested):
        assert log.days is not None
        assert log.policy is not None
        assert log.randomised is not None
        assert log.days.tolist() == [0, 2]
        assert [log.policies[each] for each in log.policy] == ["old", "new"]
        assert log.randomised.tolist() == [True, True, False, False]
        assert not any("No column has the day" in note for note in log.notes)


def test_sessions_without_a_day_say_that_they_count_as_one_day(tmp_path: Path) -> None:
    file, notes = tmp_path / "sessions.tsv", list[str]()
    file.write_text("query\tdocuments\tclicks\ncat\ta,b\ta\n")
    ingest([file], tmp_path / "log", note=notes.append)
    assert notes == ["sessions.tsv has no column with the day: all searches count as one, 2000-01-02"]
    assert read_log(file).notes == ("No column has the day: all searches count as one day.",)
