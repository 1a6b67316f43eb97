"""`clickprism log`: what the commands print and write, and their errors."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.cli.app import COMMANDS
from clickprism.cli.reference import examples
from clickprism.log.engines.base import connect
from clickprism.log.features.windows import windows
from clickprism.log.ingest import ingest
from clickprism.log.schema import SESSIONS
from clickprism.log.store import PENDING, LogStore
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings
from tests.data.shop import shop_table
from tests.log.event_logs import event
from tests.log.raw_logs import BROKEN, impression, write_lines
from tests.log.test_sessions import DAY
from tests.log.test_sessions import log as event_log
from tests.log.window_logs import Thirds

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the examples in the help use."""
    folder = tmp_path_factory.mktemp("work")
    raw = write_raw_log(folder / "own", RawLogSettings(searches=60, days=8, compress="none", broken=0.003))
    lines = b"".join(file.read_bytes() for file in sorted((raw.folder / "events").iterdir()))
    (folder / "events.jsonl").write_bytes(lines)
    write_raw_log(
        folder / "other", RawLogSettings(searches=60, days=8, schema="ubi", compress="gz", ordinal_base=0, broken=0.003)
    )
    (folder / "other" / "events").rename(folder / "ubi")
    (folder / "columns.toml").write_text('[columns]\ndocument_id = "sku"\n', encoding="utf-8")
    row = impression(1)
    names = ["sku" if name == "document_id" else name for name in row]
    cells = [",".join(map(str, line)) for line in (names, row.values())]
    (folder / "export.csv").write_text("\n".join(cells) + "\n", encoding="utf-8")
    (folder / "small.toml").write_text("searches = 20\ndays = 2\n", encoding="utf-8")
    ingest([folder / "events.jsonl"], folder / "mylog")
    shop_table(folder / "clicks.csv", folder / "shop.db")
    return folder


@pytest.mark.parametrize("name", [name[4:] for name in COMMANDS if name.startswith("log ")])
def test_examples_of_the_help_run(name: str, work: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    for line in examples(["log", name]):
        small = ["--config", "small.toml"] if line == "clickprism log simulate --out raw" else []
        assert cli(*shlex.split(line)[1:], *small).stdout


def test_simulate_ingest_and_info_agree(tmp_path: Path, cli: Run) -> None:
    raw, log = tmp_path / "raw", tmp_path / "mylog"
    words = ["--searches", "60", "--days", "2", "--robots", "0", "--user.name", "ubm", "--seed", "4"]
    done = cli("log", "simulate", *words, "--out", raw, "--json")
    simulated = done.json
    assert (simulated["searches"], simulated["settings"]["seed"]) == (60, 4)
    assert simulated["settings"]["user"] == {"name": "ubm"}
    assert f"Next: clickprism log ingest {raw / 'events'} --into mylog" in done.stderr
    done = cli("log", "ingest", raw / "events", "--into", log, "--max-bad-ratio", "1", "--json")
    account = done.json
    assert account["rows_in"] == simulated["account"]["in"]
    assert account["accepted"] == simulated["account"]["accepted"]
    assert f"Next: clickprism diagnose {log}" in done.stderr
    done = cli("log", "info", log, "--json")
    described = done.json
    assert (described["searches"], described["days"], described["sources"]) == (60, 2, {"auto": account["files"]})
    assert described["kinds"] == {"impression": described["events"]}
    assert (described["events"], described["duplicates"]) == (account["accepted"], account["duplicate"])
    assert described["quarantine"]["standing"] == sum(account["quarantined"].values())
    assert (described["session_days"], described["positions"], described["features_as_of"]) == (0, [], None)
    assert described["bytes"] > 1000
    assert f"Next: clickprism log sessions {log}" in done.stderr
    rebuilt = cli("log", "sessions", log, "--json").json["rebuilt"]
    cli("log", "features", log, "--min-users", "0", "--quiet")
    done = cli("log", "info", log, "--json")
    described = done.json
    assert done.stderr == ""
    assert described["session_rows"] == sum(each["rows"] for each in rebuilt) == simulated["impressions"]
    assert sum(each["clicked"] for each in described["positions"]) == sum(each["clicked"] for each in rebuilt)
    assert [each["position"] for each in described["positions"]][:3] == [1, 2, 3]
    assert described["features_as_of"] == "2024-01-03T00:00:00"
    shown = cli("log", "info", log).stdout
    assert "click rate" in shown
    assert "searches" in shown


def test_simulate_refuses_impossible_settings(tmp_path: Path, cli: Run) -> None:
    assert "--out" in cli("log", "simulate", code=2).stderr
    assert "--days must be at least 1" in cli("log", "simulate", "--days", "0", "--out", tmp_path, code=2).stderr
    assert "user.name" in cli("log", "simulate", "--user.name", "nobody", "--out", tmp_path, code=2).stderr


def test_ingest_accounts_for_every_row(tmp_path: Path, cli: Run) -> None:
    path, log = write_lines(tmp_path / "a.jsonl", [impression(1), impression(2), BROKEN]), tmp_path / "log"
    failed = cli("log", "ingest", path, "--into", log, code=1)
    assert "1 of 3 rows are broken" in failed.stderr
    assert failed.stdout == ""  # nothing was ingested
    good = write_lines(tmp_path / "good.jsonl", [impression(1)])
    failed = cli("log", "ingest", good, path, "--into", tmp_path / "other", "--json", code=1)
    assert (failed.json["rows_in"], failed.json["accepted"]) == (1, 1)
    assert "1 of 4 rows are broken" in failed.stderr
    words = ["log", "ingest", path, "--into", log, "--max-bad-ratio", "1"]
    dry = cli("log", "ingest", path, "--into", tmp_path / "dry", "--max-bad-ratio", "1", "--dry-run")
    assert "time-unreadable: the time cannot be read" in dry.stdout
    assert "nothing was written" in dry.stderr
    assert not (tmp_path / "dry").exists()
    done = cli(*words, "--json")
    assert (done.json["rows_in"], done.json["accepted"], done.json["duplicate"]) == (3, 2, 0)
    assert (done.json["filtered"], done.json["quarantined"]) == ({}, {"time-unreadable": 1})
    assert f"Next: clickprism log quarantine {log}" in done.stderr
    assert cli(*words, "--json").json["known"] == 1
    assert "source.schema must be 'auto'" in cli(*words, "--schema", "ubi", code=2).stderr
    shown = cli("log", "quarantine", log, "--out", tmp_path / "broken.jsonl").stdout
    assert "time-unreadable" in shown
    assert "a.jsonl:3" in shown
    assert (tmp_path / "broken.jsonl").read_text(encoding="utf-8") == f"{BROKEN}\n"


def test_ingest_takes_file_names_that_are_not_utf8(tmp_path: Path, cli: Run) -> None:
    path, log = write_lines(tmp_path / os.fsdecode(b"a\xff.jsonl"), [impression(1), BROKEN]), tmp_path / "log"
    assert cli("log", "ingest", path, "--into", log, "--max-bad-ratio", "1", "--json").json["rows_in"] == 2
    assert "a\\xff.jsonl:2" in cli("log", "quarantine", log).stdout
    pq.write_table(pa.Table.from_pylist([impression(3)]), tmp_path / "a.parquet")
    path = (tmp_path / "a.parquet").rename(tmp_path / os.fsdecode(b"a\xff.parquet"))
    assert cli("log", "ingest", path, "--into", log, "--json").json["accepted"] == 1


def test_a_log_keeps_the_settings_of_its_first_ingest(tmp_path: Path, cli: Run) -> None:
    (tmp_path / "columns.toml").write_text('[columns]\ndocument_id = "sku"\n', encoding="utf-8")
    (tmp_path / "settings.toml").write_text("[robots]\nsearches_per_day = 5\n", encoding="utf-8")
    row = impression(1)
    row["sku"] = row.pop("document_id")
    path, log = write_lines(tmp_path / "a.jsonl", [row]), tmp_path / "log"
    words = ["log", "ingest", path, "--into", log, "--mapping", tmp_path / "columns.toml", "--json"]
    given = [
        "--robots.searches-per-minute",
        "7",
        "--source.max-position",
        "50",
        "--source.start",
        "2001-02-03",
        "--config",
        tmp_path / "settings.toml",
    ]
    assert cli(*words, *given).json["accepted"] == 1
    kept = LogStore.open(log).settings
    assert (kept.source.mapping.columns, kept.source.max_position) == ({"document_id": "sku"}, 50)
    assert kept.source.start == "2001-02-03"
    assert (kept.robots.searches_per_day, kept.robots.searches_per_minute) == (5, 7)
    assert cli(*words).json["known"] == 1
    assert "--robots.searches-per-day must be 5, as in" in cli(*words, "--robots.searches-per-day", "6", code=2).stderr
    assert "Did you mean --robots.searches-per-day?" in cli(*words, "--robots.searches-per-dya", "5", code=2).stderr
    assert "did you mean 'max_position'?" in cli(*words, "--source.max-positoin", "5", code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "PATHS must name at least one file"),
        (["a.jsonl", "--max-bad-ratio", "2"], "--max-bad-ratio must be from 0 to 1, got 2"),
        (["a.jsonl", "--threads", "0"], "--threads must be at least 1, got 0"),
        (["a.jsonl", "--memory", "much"], "--memory must be such as 500MB or 2GB"),
        (["a.jsonl", "--schema", "csv"], "--schema"),
    ],
)
def test_ingest_names_the_wrong_option(words: list[str], message: str, tmp_path: Path, cli: Run) -> None:
    assert message in cli("log", "ingest", *words, "--into", tmp_path / "log", code=2).stderr


def test_sessions_are_built_once_and_written(tmp_path: Path, cli: Run) -> None:
    rows = [
        event("ranking", "s", documents=["a", "b", "a"], clicked=["b", "z"]),
        event("ranking", "bot", documents=["a"], agent="curl/8"),
    ]
    folder = event_log(tmp_path / "log", rows).folder
    assert "are up to date" in cli("log", "sessions", folder, "--days", "2020-01-01..2020-01-31").stdout
    first = cli("log", "sessions", folder).stdout
    assert "excluded as robots" in first
    assert first.splitlines()[1].split() == [DAY.isoformat(), "1", "2", "1", "1", "1"]
    out = tmp_path / "out.parquet"
    done = cli("log", "sessions", folder, "--days", DAY.isoformat(), "--out", out, "--json")
    assert done.json == {"rebuilt": [], "rows_written": 2, "days": 1}
    written = pq.read_table(out)
    assert written.schema.equals(SESSIONS)
    assert sorted(written["document_id"].to_pylist()) == ["a", "b"]
    assert list((tmp_path / "log" / "staging").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--days", "x"], "--days must be two days such as"),
        (["--days", "2026-02-01..2026-01-01"], "--days must have the earlier day first"),
        (["--out", "a.csv"], "--out must end in .parquet"),
        (["--engine", "fast"], "--engine must be duckdb"),
    ],
)
def test_sessions_name_the_wrong_option(words: list[str], message: str, work: Path, cli: Run) -> None:
    assert message in cli("log", "sessions", work / "mylog", *words, code=2).stderr


@pytest.mark.parametrize("name", ["sessions", "features", "quarantine", "compact", "forget", "info"])
def test_a_folder_that_is_no_log_is_an_error(name: str, tmp_path: Path, cli: Run) -> None:
    words = ["--user", "u"] if name == "forget" else []
    assert "is not a click log" in cli("log", name, tmp_path, *words, code=1).stderr


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of two users who saw one document on two days, and one who saw another document."""
    folder = tmp_path_factory.mktemp("log")
    shown = [("a", "d1", 0), ("b", "d1", 26), ("c", "d2", 1)]
    rows = [
        {
            "search_id": f"s-{user}",
            "query_id": "q",
            "document_id": document,
            "position": 1,
            "time": (datetime(2026, 3, 4, 10) - timedelta(hours=back)).isoformat() + "Z",
            "click": True,
            "user_id": f"user-{user}",
        }
        for user, document, back in shown
    ]
    ingest([write_lines(folder / "rows.jsonl", rows)], folder / "log")
    return folder / "log"


def test_features_change_when_users_are_erased(log: Path, tmp_path: Path, cli: Run) -> None:
    done = cli("log", "features", log, "--min-users", 2, "--out", tmp_path / "x.parquet")
    assert done.stdout.startswith("As of 2026-03-05 00:00 UTC: 1 pairs, 144 features")
    assert "pairs with fewer than 2 users" in done.stdout
    assert (tmp_path / "x.parquet").is_file()
    words = ["--min-users", 2, "--as-of", "2026-03-05", "--json", "--examination", "none"]
    found = cli("log", "features", log, *words).json
    assert (found["changed"], found["rows"], found["suppressed"]["week"]) == (False, 1, 1)
    assert "add --min-users 0" in cli("log", "features", log, "--min-users", 9).stderr
    found = cli("log", "forget", log, "--user", "user-a", "--dry-run", "--json").json
    assert (found["rows"], found["dry_run"]) == (1, True)
    done = cli("log", "forget", log, "--user", "user-a")
    assert "click features deleted" in done.stdout
    assert f"Next: clickprism log features {log}" in done.stderr
    (log.parent / "clickprism.toml").touch()
    assert cli("log", "features", log, "--min-users", 2, "--json").json["rows"] == 0
    assert "The log has no rows of these users" in cli("log", "forget", log, "--user", "user-a").stderr
    (log / PENDING).write_text(json.dumps({"users": ["user-c"], "days": []}))
    done = cli("log", "forget", log, "--json")
    assert done.json["rows"] == 1
    assert f"Next: clickprism run {log.parent}" in done.stderr
    assert "--user must name at least one user" in cli("log", "forget", log, code=2).stderr
    (log / PENDING).write_text(json.dumps({"users": ["user-c"], "days": []}))
    noted = cli("log", "features", log, "--min-users", 0).stderr
    assert "Finished an erasure of users that had been interrupted" in noted
    assert not (log / PENDING).exists()
    noted = cli("log", "features", log, "--min-users", 0, "--as-of", "2026-07-01").stderr
    assert "the log ends 2026-03-04 00:00. Omit --as-of to use its end" in noted
    assert [*(log / "staging").iterdir()] == []


def test_a_changed_number_of_features_is_reported_even_with_quiet(log: Path, cli: Run) -> None:
    with connect(memory="500MB", threads=1) as running:
        windows(LogStore.open(log), running, datetime(2026, 3, 1), examiner=Thirds())
    words = ["log", "features", log, "--as-of", "2026-03-01", "--quiet"]
    assert cli(*words).stderr.startswith("warning: 144 features instead of 180: the examination model is missing now")
    assert cli(*words).stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--as-of", "soon"], 2, "--as-of must be a time such as"),
        (["--min-users", "-1"], 2, "--min-users must be 0 or more, got -1"),
        (["--engine", "mysql"], 2, "--engine must be duckdb"),
        (["--as-of", "9999-12-31"], 2, "--as-of must not be after now"),
        (["--out", "x.csv"], 2, "--out must end in .parquet, got 'x.csv'"),
        (["--out", "/dev/null/x.parquet"], 1, "/dev/null/x.parquet: cannot be written (File exists)"),
        (["--examination", "missing.json"], 1, "missing.json: cannot be read"),
    ],
)
def test_features_name_the_wrong_option(log: Path, words: list[str], code: int, message: str, cli: Run) -> None:
    assert message in cli("log", "features", log, *words, code=code).stderr


def test_features_of_a_log_without_events_are_refused(tmp_path: Path, cli: Run) -> None:
    path = write_lines(tmp_path / "a.jsonl", [BROKEN])
    ingest([path], tmp_path / "log", max_bad_ratio=1)
    assert "clickprism log ingest" in cli("log", "features", tmp_path / "log", code=3).stderr
    assert cli("log", "info", tmp_path / "log", "--json").json["first_day"] is None


@pytest.mark.parametrize("words", [["sessions"], ["features"], ["forget", "--user", "u"]])
def test_commands_on_spark_say_that_it_starts(
    words: list[str], log: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clickprism.log.store.connect", refuse)
    noted = cli("log", *words, log, "--engine", "local[1]", code=130).stderr
    assert "Starting Spark (local[1])" in noted
    assert noted.endswith("interrupted\n")


def test_compact_merges_the_files_of_a_day(tmp_path: Path, cli: Run) -> None:
    for number in range(3):
        ingest([write_lines(tmp_path / f"{number}.jsonl", [impression(number)])], tmp_path / "log")
    found = cli("log", "compact", tmp_path / "log", "--json").json
    assert (found["days"], found["files_before"], found["rows"], found["expired_days"]) == ([], 0, 0, [])
    found = cli("log", "compact", tmp_path / "log", "--files", "1", "--json").json
    assert (found["days"], found["files_before"], found["rows"]) == (["2026-03-01"], 3, 3)
    done = cli("log", "compact", tmp_path / "log")
    assert "files before" in done.stdout
    assert "No day has more than 8 files" in done.stderr
    assert "--files must be at least 1" in cli("log", "compact", tmp_path / "log", "--files", "0", code=2).stderr
