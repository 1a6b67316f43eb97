"""A simulated raw log: its bytes, its truth, and that users behave as their models say."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism._util.tables import to_plain
from clickprism.click_models.pbm import PositionUser
from clickprism.errors import DataError, SettingError
from clickprism.log.engines.base import connect
from clickprism.log.ingest import ingest
from clickprism.log.ingest.account import Account
from clickprism.log.read import SourceSettings
from clickprism.log.sessions import update_sessions
from clickprism.log.store import LogStore
from clickprism.simulation.raw_log import RawLog, write_raw_log
from clickprism.simulation.raw_searches import Catalogue, SearchEngine, _earlier_count
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.types import JudgedLists, Lists

CLEAN: dict[str, Any] = {"robots": 0.0, "duplicate": 0.0, "late": 0.0, "broken": 0.0}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def truth_of(log: RawLog) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((log.folder / "truth").glob("*.parquet"))])


def lines_of(log: RawLog, pattern: str = "*") -> list[bytes]:
    return [line for path in sorted((log.folder / "events").glob(pattern)) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RawLog:
    settings = RawLogSettings(searches=3000, days=3, compress="none", broken=0.01, seed=3)
    return write_raw_log(tmp_path_factory.mktemp("raw"), settings)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_raw_log(tmp_path / name, RawLogSettings(searches=200, days=2, compress="gz", seed=seed))
    first = bytes_of(tmp_path / "a")
    assert first == bytes_of(tmp_path / "b")
    assert first != bytes_of(tmp_path / "c")
    assert gzip.decompress(first["events/2024-01-01-0.jsonl.gz"]).startswith(b"{")


def test_the_log_contains_every_row_of_the_truth_and_the_account_adds_up(log: RawLog) -> None:
    account, truth = log.account, truth_of(log)
    lines = lines_of(log)
    assert account["in"] == len(lines)
    assert account["in"] == sum(account[name] for name in ("accepted", "duplicate", "filtered", "quarantined"))
    good, bad = [], 0
    for line in lines:
        try:
            row = json.loads(line.decode())
            good.append((row["search_id"], row["document_id"], row["position"], row["click"]))
            bad += row["time"] > "9" or row["search_id"] is None or row["position"] < 1 or row["click"] == "maybe"
            bad += (row["display_ms"] or 0) < 0
        except (ValueError, TypeError, KeyError):
            bad += 1
    names = ("search_id", "document_id", "position", "clicked")
    shown = set(zip(*(truth[name].to_pylist() for name in names), strict=True))
    assert len(shown) == len(truth) == log.impressions
    assert shown <= set(good)
    assert bad == account["quarantined"] == sum(log.broken.values())
    assert len(lines) - bad - len(shown) == account["duplicate"]
    assert sum(truth["filtered"].to_pylist()) == account["filtered"]


def test_every_query_has_a_text_of_its_own() -> None:
    texts = Catalogue.random(RawLogSettings(searches=200, queries=3000)).texts
    assert len(set(texts)) == len(texts) == 3000


def test_the_summary_and_the_tables_contain_the_counts(log: RawLog) -> None:
    summary = json.loads((log.folder / "truth" / "summary.json").read_text(encoding="utf-8"))
    assert to_plain(log) == {"folder": str(log.folder), **summary}
    contents, rows = log.tables()
    assert contents.rows[:2] == [["searches", f"{log.searches:,}"], ["searches by robots", f"{log.searches - 3000:,}"]]
    assert rows.rows == [[name, f"{count:,}"] for name, count in log.account.items()]


def test_rows_arrive_late_and_out_of_order(log: RawLog) -> None:
    names = sorted(path.name for path in (log.folder / "events").iterdir())
    late = sum(
        line.count(b'"time":"2024') and day.encode() not in line
        for name in names
        for day in [name[:10]]
        for line in (log.folder / "events" / name).read_bytes().splitlines()
    )
    assert late >= log.late > 100
    times = [line.partition(b'"time":"')[2][:23] for line in lines_of(log, names[0]) if b'"time":"2024' in line]
    assert times != sorted(times)


def test_people_observe_and_click_as_their_model_says(tmp_path: Path) -> None:
    settings = RawLogSettings(searches=8000, days=2, user={"name": "pbm"}, trust=0, feedback=0, length=10, **CLEAN)
    truth = truth_of(write_raw_log(tmp_path, settings))
    position = truth["position"].to_numpy()
    observed, clicked, relevance = (truth[name].to_numpy() for name in ("observed", "clicked", "relevance"))
    shown = np.bincount(position)[1:]
    curve = PositionUser().observation(np.arange(1, 11))
    error = 5 * np.sqrt(curve * (1 - curve) / shown)
    assert (np.abs(np.bincount(position, weights=observed)[1:] / shown - curve) < error).all()
    expected = np.bincount(position, weights=relevance * curve[position - 1])[1:]
    assert (np.abs(np.bincount(position, weights=clicked)[1:] - expected) < 5 * np.sqrt(expected)).all()


def test_queries_follow_zipf_and_some_first_positions_are_random(tmp_path: Path) -> None:
    settings = RawLogSettings(searches=12_000, days=2, queries=1000, exponent=1.0, randomised=0.2, length=10, **CLEAN)
    truth = truth_of(write_raw_log(tmp_path, settings))
    first = truth.filter(truth["position"].to_numpy() == 1)
    counts = np.array(sorted(Counter(first["query_id"].to_pylist()).values(), reverse=True), dtype=np.float64)
    slope = np.polyfit(np.log(np.arange(3, 103)), np.log(counts[2:102]), 1)[0]
    assert abs(slope + 1) < 0.1
    assert abs(np.mean(first["randomised"].to_numpy()) - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 12_000)
    assert not truth.filter(truth["position"].to_numpy() > 1)["randomised"].to_numpy().any()
    random = first["randomised"].to_numpy()
    relevance = first["relevance"].to_numpy()
    assert relevance[random].mean() < relevance[~random].mean() - 0.05


def test_display_time_depends_on_observation_and_dwell_time_on_relevance(log: RawLog) -> None:
    truth = truth_of(log)
    names = ("search_id", "document_id")
    key = list(zip(*(truth[name].to_pylist() for name in names), strict=True))
    observed = dict(zip(key, truth["observed"].to_pylist(), strict=True))
    robot = dict(zip(key, truth["is_robot"].to_pylist(), strict=True))
    grade = dict(zip(key, truth["grade"].to_pylist(), strict=True))
    display: dict[bool, list[int]] = {True: [], False: []}
    dwell: dict[bool, list[int]] = {True: [], False: []}
    for line in lines_of(log):
        try:
            row = json.loads(line.decode())
            pair = (row["search_id"], row["document_id"])
        except (ValueError, TypeError, KeyError):
            continue
        if pair not in observed or robot[pair]:
            continue
        if row["display_ms"] is not None:
            display[observed[pair]].append(row["display_ms"])
        if row["dwell_ms"] is not None:
            dwell[grade[pair] >= 3].append(row["dwell_ms"])
    assert 0.6 < np.mean(np.array(display[True]) > 5000) < 0.9
    assert np.mean(np.array(display[False]) < 1000) > 0.9
    assert 0.001 < np.mean(np.array(display[True]) < 1000) < 0.2
    assert np.median(dwell[True]) > 2 * np.median(dwell[False])


def test_a_further_page_is_shown_only_to_users_who_look_at_it(log: RawLog) -> None:
    truth = truth_of(log)
    people = truth.filter(~truth["is_robot"].to_numpy())
    second = people.filter(people["position"].to_numpy() > 10)
    looked = set(second.filter(second["observed"].to_numpy())["search_id"].to_pylist())
    assert looked == set(second["search_id"].to_pylist())
    assert 0 < len(looked) < 300


def test_clicked_documents_rank_higher() -> None:
    engine = SearchEngine(RawLogSettings(searches=100, feedback=1.0))
    query, ranker = np.array([0]), np.array([0])
    before, length = engine.rank(query, ranker)
    last = before[0, length[0] - 1]
    engine.clicks[last] = 10_000
    after, _ = engine.rank(query, ranker)
    assert after[0, 0] == last
    assert after[0, 1 : length[0]].tolist() == before[0, : length[0] - 1].tolist()


def test_clicks_of_a_day_change_the_ranking_of_the_next_day(tmp_path: Path) -> None:
    settings = RawLogSettings(searches=4000, days=2, queries=5, rankers=1, feedback=10, randomised=0, **CLEAN)
    truth = truth_of(write_raw_log(tmp_path, settings))
    names = ("time", "query_id", "document_id", "position", "clicked")
    clicks: Counter[tuple[str, str]] = Counter()
    lists: dict[str, dict[int, str]] = defaultdict(dict)
    for time, query, document, position, clicked in zip(*(truth[name].to_pylist() for name in names), strict=True):
        if time.day == 1:
            clicks[query, document] += clicked
        else:
            lists[query][position] = document
    for query, documents in lists.items():
        counts = [clicks[query, documents[position]] for position in (1, 2)]
        assert counts[0] == max(count for (asked, _), count in clicks.items() if asked == query)
        assert counts[0] >= counts[1]


def test_robots_exceed_the_limits_of_people(log: RawLog) -> None:
    truth = truth_of(log)
    first = truth.filter(truth["position"].to_numpy() == 1)
    rows = zip(*(first[name].to_pylist() for name in ("user_id", "robot", "time")), strict=True)
    minutes = Counter((user, robot, time.replace(second=0, microsecond=0)) for user, robot, time in rows if user)
    assert max(count for (_, robot, _), count in minutes.items() if robot == "fast") == 90
    assert max(count for (_, robot, _), count in minutes.items() if robot is None) <= 3
    assert set(log.robots) == {"fast", "crawler", "spammer", "repeat"}
    repeat = truth.filter(np.array(truth["robot"].to_pylist(), dtype=object) == "repeat")
    clicks = Counter(repeat.filter(repeat["clicked"].to_numpy())["document_id"].to_pylist())
    assert list(clicks.values()) == [50]
    assert _earlier_count(np.array([], dtype=np.int64)).tolist() == []


@pytest.mark.parametrize(("schema", "kind"), [("ubi", "queries-*"), ("metarank", "*")])
def test_ubi_and_metarank_rows(tmp_path: Path, schema: str, kind: str) -> None:
    settings = RawLogSettings(searches=300, days=2, schema=schema, compress="none", ordinal_base=0, **CLEAN)  # type: ignore[arg-type]
    log = write_raw_log(tmp_path, settings)
    truth = truth_of(log)
    rows = [json.loads(line) for line in lines_of(log, kind)]
    if schema == "ubi":
        events = [json.loads(line) for line in lines_of(log, "events-*")]
        lists = {row["query_id"]: row["query_response_hit_ids"] for row in rows}
        assert Counter(event["action_name"] for event in events) == {
            "impression": log.impressions,
            "click": log.clicks,
        }
        for event in events:
            attributes = event["event_attributes"]
            assert lists[event["query_id"]][attributes["position"]["ordinal"]] == str(attributes["object"]["object_id"])
    else:
        lists = {row["id"]: [item["id"] for item in row["items"]] for row in rows if row["event"] == "ranking"}
        clicks = [row for row in rows if row["event"] == "interaction"]
        assert len(clicks) == log.clicks
        assert all(row["item"] in lists[row["ranking"]] for row in clicks)
        assert sum(row["event"] == "item" for row in rows) == log.ignored == log.account["filtered"]
    assert sum(map(len, lists.values())) == len(truth)


@pytest.mark.parametrize("schema", ["clickprism", "ubi"])
def test_rows_contain_features_if_asked_for(tmp_path: Path, schema: str) -> None:
    settings = RawLogSettings(searches=60, days=2, schema=schema, compress="none", features=True, **CLEAN)  # type: ignore[arg-type]
    events = [
        json.loads(line) for line in lines_of(write_raw_log(tmp_path, settings), "events-*" if schema == "ubi" else "*")
    ]
    rows = [event if schema == "clickprism" else event["event_attributes"] for event in events]
    lists = SearchEngine(settings).catalogue.judged.lists
    known = {tuple(row) for row in np.round(lists.features.astype(np.float64), 3).tolist()}
    found = {tuple(row["features"].values()) for row in rows if row.get("features")}
    assert len(found) > 100
    assert found <= known
    with pytest.raises(SettingError, match="features must be false with format 'csv'"):
        RawLogSettings(features=True, format="csv")


def test_user_parameters_without_a_name_change_the_default_model() -> None:
    default = RawLogSettings().user
    assert RawLogSettings(user={"after_skip": 0.5}).user == {**default, "after_skip": 0.5}
    assert RawLogSettings(user={"name": "ubm"}).user == {"name": "ubm"}


def test_wrong_settings_and_folders_are_rejected(tmp_path: Path, log: RawLog) -> None:
    with pytest.raises(SettingError, match="format must be 'jsonl' with schema 'ubi'"):
        RawLogSettings(schema="ubi", format="csv")
    with pytest.raises(SettingError, match="start must be a day"):
        RawLogSettings(start="yesterday")
    with pytest.raises(SettingError, match="robots must be a probability"):
        RawLogSettings(robots=2)
    with pytest.raises(SettingError, match=r"user\.name must be a known name"):
        write_raw_log(tmp_path, RawLogSettings(user={"name": "cmc"}))
    with pytest.raises(DataError, match="is not empty"):
        write_raw_log(log.folder)


@dataclass(frozen=True)
class Ingested:
    """A raw log, the click log that it was ingested into, and what the ingest counted."""

    raw: RawLog
    folder: Path
    counts: Account


@pytest.fixture(scope="module")
def ingested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    schema, file_format = request.param
    folder = tmp_path_factory.mktemp("ingested")
    settings = RawLogSettings(searches=300, days=2, schema=schema, format=file_format, broken=0.005, seed=5)
    raw = write_raw_log(folder / "raw", settings)
    source = SourceSettings(schema=schema, ordinal_base=settings.ordinal_base if schema == "ubi" else None)
    counts = ingest([raw.folder / "events"], folder / "log", source=source)
    return Ingested(raw, folder / "log", counts)


OWN, UBI = ("clickprism", "jsonl"), ("ubi", "jsonl")
ALL = [OWN, ("clickprism", "csv"), ("clickprism", "parquet"), UBI, ("metarank", "jsonl")]


@pytest.mark.parametrize("ingested", ALL, indirect=True, ids="-".join)
def test_ingest_counts_rows_as_predicted(ingested: Ingested) -> None:
    account = ingested.raw.account
    found = ingested.counts
    counts = {"in": found.rows_in, "accepted": found.accepted, "duplicate": found.duplicate}
    counts |= {"filtered": sum(found.filtered.values()), "quarantined": sum(found.quarantined.values())}
    assert counts == account
    again = ingest([ingested.raw.folder / "events"], ingested.folder)
    assert (again.rows_in, again.known) == (0, ingested.raw.files)


@pytest.mark.parametrize("ingested", [OWN, UBI], indirect=True, ids="-".join)
def test_sessions_equal_the_truth(ingested: Ingested) -> None:
    store = LogStore.open(ingested.folder)
    with connect() as engine:
        update_sessions(store, engine)
    names = ["search_id", "document_id", "position", "clicked", "user_id", "ranker", "randomised", "filtered"]
    sessions = store.table("sessions").read([*names[:-1], "filter"])
    sessions = sessions.append_column("filtered", sessions["filter"].is_valid())
    keys = [("search_id", "ascending"), ("position", "ascending")]
    truth = truth_of(ingested.raw).sort_by(keys).select([*names, "robot"]).to_pylist()
    for row in truth:
        if row.pop("robot") == "repeat" and ingested.raw.settings.schema == "ubi":
            row |= {"clicked": False, "filtered": False}  # only the click is filtered, the impression is kept
    assert sessions.select(names).sort_by(keys).to_pylist() == truth


def test_a_given_catalogue_decides_what_is_found_asked_and_randomised(tmp_path: Path) -> None:
    settings = RawLogSettings(searches=300, days=2, robots=0, rankers=1, length=3, min_documents=3, trust=0, feedback=0)
    offsets, numbers = np.array([0, 4, 8]), np.array([11, 12, 13, 14, 21, 22, 23, 24])
    lists = Lists(np.zeros((8, 1), np.float32), offsets, np.array(["q1", "q2"]), numbers.astype(np.str_))
    judged = JudgedLists(lists, np.array([0, 1, 2, 3] * 2, np.int32))
    scores = np.array([[1, 2, 3, 4] * 2], np.float32)
    catalogue = Catalogue(judged, numbers, ["red", "blue"], np.array([0.75, 0.25]), scores, np.array([0.0, 1.0]))
    log = write_raw_log(tmp_path, settings, catalogue=catalogue)
    rows = truth_of(log).to_pylist()
    first = [row for row in rows if row["position"] == 1]
    assert 180 < sum(row["query_id"] == "q1" for row in first) < 270
    assert {row["document_id"] for row in first if row["query_id"] == "q1"} == {"14"}
    assert {row["document_id"] for row in first if row["query_id"] == "q2"} == {"22", "23", "24"}  # of the three shown
    assert {row["randomised"] for row in first if row["query_id"] == "q2"} == {True}
    assert not any(row["randomised"] for row in rows if row["query_id"] == "q1")
    assert {row["relevance"] for row in rows if row["grade"] == 3} == {1.0}
